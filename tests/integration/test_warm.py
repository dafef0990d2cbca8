"""`trivet warm` from a deployment's record into a cold one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, request, serving

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running
from trivet.policies.keygen import key_hash

RULES = "Answer in one word. " * 600
VERSION = {"anthropic-version": "2023-06-01"}


@contextmanager
def deployment(folder: Path, prefix: str) -> Iterator[tuple[Proxy, MockUpstream, Path]]:
    folder.mkdir()
    policies = folder / "policies"
    policies.mkdir()
    (policies / "acme.yaml").write_text(
        f"tenant: acme\ncredentials:\n  - sha256: {key_hash('sk-acme')}\nprefix: {prefix}\n"
    )
    log = folder / "traffic.jsonl"
    with running(provider="anthropic") as (url, mock):
        upstream = {"name": "anthropic", "base_url": url, "cache": "anthropic"}
        config = {"upstreams": [upstream], "policies": str(policies), "traffic_log": str(log)}
        with serving(config=json.dumps(config)) as proxy:
            yield proxy, mock, log


def ask(proxy: Proxy, text: str) -> Any:
    body = {
        "model": "claude-opus-5",
        "max_tokens": 40,
        "temperature": 0,
        "system": RULES,
        "messages": [{"role": "user", "content": text}],
    }
    headers = {**VERSION, "x-api-key": "sk-acme", "content-type": "application/json"}
    reply = request("POST", proxy.url + "/v1/messages", json.dumps(body).encode(), headers, 30)
    assert reply.status == 200, reply.body
    return reply


def record(folder: Path, prefix: str = "{record: true, keep_text: true}") -> Path:
    with deployment(folder, prefix) as (proxy, _, log):
        for text in ("often", "often", "often", "twice", "twice", "once"):
            ask(proxy, text)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if log.exists() and log.read_bytes().count(b"\n") == 6:
                return log
            time.sleep(0.05)
    raise AssertionError("not recorded")


def warm(log: Path, proxy: Proxy | None, *options: str) -> subprocess.CompletedProcess[str]:
    url = ["--url", proxy.url] if proxy is not None else []
    version = ["--header", "anthropic-version: 2023-06-01", "--key-header", "x-api-key"]
    return subprocess.run(
        [sys.executable, "-m", "trivet.cli", "warm", str(log), *url, *version, *options],
        capture_output=True,
        text=True,
        env={"TRIVET_WARM_KEY": "sk-acme", "PATH": "/usr/bin:/bin"},
        check=False,
    )


def posts(mock: MockUpstream) -> int:
    return sum(call["method"] == "POST" for call in mock.calls.last)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("warm") / "old")


def test_the_most_valuable_requests_are_hits_afterwards(log: Path, tmp_path: Path) -> None:
    with deployment(tmp_path / "new", "{}") as (proxy, mock, _):
        run = warm(log, proxy, "--json")
        assert run.returncode == 0, run.stderr
        told = json.loads(run.stdout)
        assert (told["rows"], told["planned"], told["sent"]) == (6, 2, 2)
        assert told["spent_usd"] > 0
        before = posts(mock)
        for text in ("often", "twice"):
            assert ask(proxy, text).exact["hit"] is True
        assert posts(mock) == before
        assert ask(proxy, "new").json["usage"]["cache_read_input_tokens"] > 1000
        again = json.loads(warm(log, proxy, "--json").stdout)
        assert (again["sent"], again["sent_before"]) == (0, 2)
        forced = json.loads(warm(log, proxy, "--json", "--again").stdout)
        assert (forced["sent"], forced["already_warm"]) == (0, 2)
        assert forced["spent_usd"] == told["spent_usd"]


def test_a_budget_holds_for_all_runs_together(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "traffic.jsonl"
    copy.write_bytes(log.read_bytes())
    with deployment(tmp_path / "new", "{}") as (proxy, mock, _):
        one = 3100 * 10e-6 + 40 * 25e-6
        first = json.loads(warm(copy, proxy, "--json", "--budget-usd", str(one)).stdout)
        assert (first["sent"], first["left"]) == (1, {"over-budget": 1})
        assert first["spent_usd"] <= one
        second = json.loads(warm(copy, proxy, "--json", "--budget-usd", str(one)).stdout)
        assert (second["sent"], second["sent_before"]) == (0, 1)
        assert posts(mock) == 1


def test_a_dry_run_sends_nothing(log: Path) -> None:
    run = warm(log, None, "--dry-run")
    assert run.returncode == 0
    assert "6 recorded requests: 2 are worth sending" in run.stdout


def test_a_log_without_bodies_is_told_with_what_the_policy_has_to_say(tmp_path: Path) -> None:
    bare = record(tmp_path / "old", "{record: true}")
    run = warm(bare, None)
    assert run.returncode == 2
    assert "prefix: {record: true, keep_text: true}" in run.stderr


def test_a_deployment_that_is_not_there_is_told_and_nothing_is_noted(
    log: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "traffic.jsonl"
    copy.write_bytes(log.read_bytes())
    run = warm(copy, None, "--url", "http://127.0.0.1:9")
    assert run.returncode == 1
    assert "cannot be reached" in run.stderr
    assert not copy.with_name("traffic.jsonl.warm").exists()


def test_a_tenant_without_a_key_is_refused_by_name(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "traffic.jsonl"
    copy.write_bytes(log.read_bytes())
    run = subprocess.run(
        [sys.executable, "-m", "trivet.cli", "warm", str(copy), "--key", "other=K"],
        capture_output=True,
        text=True,
        env={"K": "sk-other", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert run.returncode == 2
    assert "Set TRIVET_WARM_KEY to the API key of acme" in run.stderr
