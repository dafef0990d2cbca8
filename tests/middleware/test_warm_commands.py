"""`trivet warm` against a server that notes what reached it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trivet.cli import main

ENV = {"A": "sk-a", "B": "sk-b", "TRIVET_WARM_KEY": "sk-one"}
USAGE = {"input_tokens": 1000, "output_tokens": 100}
COST = 1000 * 5e-6 + 100 * 25e-6
MOST = 1000 * 10e-6 + 100 * 25e-6
"""Of a request of 1,000 tokens to claude-opus-5: all of it written for an hour."""


class Server:
    """Answers every request alike."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str]] = []
        """Key and the tenant whose prompt it was."""
        self.headers: list[dict[str, str]] = []
        self.purposes: set[str | None] = set()
        self.status = 200
        self.reply = json.dumps({"model": "claude-opus-5", "usage": USAGE}).encode()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.got.append((self.headers["x-api-key"], body["of"]))
                outer.headers.append(dict(self.headers.items()))
                outer.purposes.add(self.headers["trivet-purpose"])
                self.send_response(outer.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(outer.reply)))
                self.end_headers()
                self.wfile.write(outer.reply)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def written(folder: Path, *tenants: str, bodies: bool = True, each: int = 1) -> Path:
    """A log in which each tenant asked `each` requests, twice."""
    log = folder / "traffic.jsonl"
    rows = [row(one, at, bodies) for one in tenants for at in range(each) for _ in range(2)]
    log.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return log


def row(tenant: str, at: int, bodies: bool, api: str = "messages") -> dict[str, Any]:
    body = {"model": "claude-opus-5", "max_tokens": 100, "of": tenant, "at": at}
    return {
        "format": 1,
        "at": 1.0,
        "tenant": tenant,
        "api": api,
        "model": "claude-opus-5",
        "key": f"{at:064x}",
        "exact": {"store": True, "ttl": 60.0},
        "answer": {"tier": "model", "plain": True, "usage": {"input": 1000, "output": 100}},
        "prompt": {"upstream": "anthropic", "body": json.dumps(body)} if bodies else None,
    }


def warm(log: Path, server: Server | None, *options: str, env: Any = ENV) -> Result:
    url = ["--url", server.url if server else "http://127.0.0.1:9"]
    unset = dict.fromkeys(ENV)
    return CliRunner().invoke(main, ["warm", str(log), *url, *options], env={**unset, **env})


def ledger(log: Path) -> list[Any]:
    return [json.loads(one) for one in log.with_name(log.name + ".warm").read_text().splitlines()]


@pytest.mark.parametrize("options", [(), ("--key", "a=A")])
def test_no_tenant_s_prompts_are_sent_under_the_one_key_of_another(
    server: Server, tmp_path: Path, options: tuple[str, ...]
) -> None:
    log = written(tmp_path, "a", "b", "c")
    run = warm(log, server, *options)
    assert run.exit_code == 2
    missing = "b, c" if options else "a, b, c"
    assert f"no API key was given of {missing}: give `--key TENANT=VARIABLE`" in run.output
    assert "`--tenant T`" in run.output
    assert server.got == []
    assert not log.with_name("traffic.jsonl.warm").exists()


def test_each_tenant_s_prompts_go_out_under_its_own_key(server: Server, tmp_path: Path) -> None:
    log = written(tmp_path, "a", "b", each=2)
    run = warm(log, server, "--key", "a=A", "--key", "b=B")
    assert run.exit_code == 0, run.output
    pairs = [("sk-a", "a")] * 2 + [("sk-b", "b")] * 2
    assert sorted(server.got) == pairs
    assert server.purposes == {"warm"}


def test_the_unnamed_key_is_for_a_log_that_is_filtered_to_one_tenant(
    server: Server, tmp_path: Path
) -> None:
    run = warm(written(tmp_path, "a", "b"), server, "--tenant", "b")
    assert run.exit_code == 0, run.output
    assert server.got == [("sk-one", "b")]


@pytest.mark.parametrize(
    ("api", "options", "sent"),
    [
        ("messages", (), {"x-api-key": "sk-one", "anthropic-version": "2023-06-01"}),
        ("messages", ("--key-header", "authorization", "--header", "anthropic-version: 2026-10-21"),
         {"authorization": "Bearer sk-one", "anthropic-version": "2026-10-21"}),
        ("chat", (), {"authorization": "Bearer sk-one"}),
        ("chat", ("--key-header", "api-key"), {"api-key": "sk-one"}),
    ],
)  # fmt: skip
def test_the_key_goes_where_the_api_expects_it_unless_told(
    server: Server, tmp_path: Path, api: str, options: tuple[str, ...], sent: dict[str, str]
) -> None:
    log = tmp_path / "traffic.jsonl"
    log.write_text(2 * (json.dumps(row("a", 0, True, api)) + "\n"))
    run = warm(log, server, *options)
    assert run.exit_code == 0, run.output
    (got,) = server.headers
    names = ("authorization", "x-api-key", "api-key", "anthropic-version")
    assert {name: value for name, value in got.items() if name in names} == sent


def test_two_tenants_cannot_have_the_same_key(server: Server, tmp_path: Path) -> None:
    run = warm(written(tmp_path, "a", "b"), server, "--key", "a=A", "--key", "b=A")
    assert (run.exit_code, server.got) == (2, [])
    assert "a, b cannot have the same API key" in run.output


@pytest.mark.parametrize(
    "header", ["Authorization: Bearer sk-x", "x-api-key: sk-x", "cookie: a=1", "X-Tenant: a"]
)
def test_no_header_tells_whose_the_requests_of_several_tenants_are(
    server: Server, tmp_path: Path, header: str
) -> None:
    keys = ("--key", "a=A", "--key", "b=B")
    run = warm(written(tmp_path, "a", "b"), server, *keys, "--header", header)
    assert (run.exit_code, server.got) == (2, [])


def test_a_tenant_that_the_log_does_not_have_is_a_usage_error(
    server: Server, tmp_path: Path
) -> None:
    run = warm(written(tmp_path, "a"), server, "--tenant", "z")
    assert (run.exit_code, server.got) == (2, [])
    assert "the log holds no request of z" in run.output


def test_a_key_that_is_no_header_value_is_a_usage_error(server: Server, tmp_path: Path) -> None:
    run = warm(written(tmp_path, "a"), server, env={"TRIVET_WARM_KEY": "sk-a\nx: y"})
    assert (run.exit_code, server.got) == (2, [])
    assert "TRIVET_WARM_KEY is no API key" in run.output


def test_the_ledger_says_for_which_tenant_each_request_was_sent(
    server: Server, tmp_path: Path
) -> None:
    log = written(tmp_path, "a", "b")
    warm(log, server, "--key", "a=A", "--key", "b=B")
    assert sorted((one["tenant"], one["key"]) for one in ledger(log)) == [
        ("a", "0" * 64),
        ("b", "0" * 64),
    ]
    assert [one["spent_usd"] for one in ledger(log)] == pytest.approx([COST, COST])


def test_again_leaves_the_ledger_alone_until_something_was_sent(
    server: Server, tmp_path: Path
) -> None:
    log = written(tmp_path, "a")
    warm(log, server)
    before = ledger(log)
    assert warm(log, None, "--again").exit_code == 1
    assert warm(log, server, "--again", env={}).exit_code == 2
    assert warm(log, server, "--again", "--dry-run").exit_code == 0
    server.status = 401
    assert warm(log, server, "--again").exit_code == 1
    assert ledger(log) == before


def test_what_was_spent_before_again_still_counts_against_the_budget(
    server: Server, tmp_path: Path
) -> None:
    log = written(tmp_path, "a")
    warm(log, server)
    budget = str(COST + MOST - 0.0001)
    refused = json.loads(warm(log, server, "--again", "--json", "--budget-usd", budget).output)
    assert (refused["sent"], refused["left"]) == (0, {"over-budget": 1})
    sent = json.loads(warm(log, server, "--again", "--json").output)
    assert (sent["sent"], sent["spent_before_usd"]) == (1, pytest.approx(COST))
    assert sent["spent_usd"] == pytest.approx(2 * COST)
    assert "$0.0150 spent in all, $0.0150 of it by earlier runs" in warm(log, server).output


def test_a_run_again_that_was_broken_off_goes_on(server: Server, tmp_path: Path) -> None:
    log = written(tmp_path, "a", each=2)
    warm(log, server)
    budget = str(3 * COST + MOST - 0.0001)
    warm(log, server, "--again", "--budget-usd", budget)
    assert len(server.got) == 3
    rest = json.loads(warm(log, server, "--json").output)
    assert (rest["sent"], rest["sent_before"]) == (1, 1)


def test_a_line_that_was_cut_off_spoils_no_other(server: Server, tmp_path: Path) -> None:
    log = written(tmp_path, "a")
    log.with_name("traffic.jsonl.warm").write_text('{"tenant": "a", "ke')
    warm(log, server)
    told = json.loads(warm(log, server, "--json").output)
    assert (told["sent"], told["sent_before"]) == (0, 1)


def test_a_dry_run_tells_dollars_and_keeps_to_the_budget(tmp_path: Path) -> None:
    log = written(tmp_path, "a", "b")
    budget = ("--budget-usd", str(MOST + 0.0001))
    told = json.loads(warm(log, None, "--dry-run", "--json", *budget, env={}).output)
    assert (told["would_send"], told["left"]) == (1, {"over-budget": 1})
    assert told["most_usd"] == pytest.approx(MOST)
    assert [one["left"] for one in told["requests"]] == ["", "over-budget"]
    shown = warm(log, None, "--dry-run", *budget, env={}).output
    assert "1 would be sent, for $0.0125 at most" in shown
    assert "1 left out: that could cost more than is left of the budget." in shown


def test_a_dry_run_counts_what_earlier_runs_sent_and_spent(server: Server, tmp_path: Path) -> None:
    log = written(tmp_path, "a")
    warm(log, server)
    told = json.loads(warm(log, server, "--dry-run", "--json").output)
    assert (told["would_send"], told["sent_before"], told["most_usd"]) == (0, 1, 0)
    assert told["spent_before_usd"] == pytest.approx(COST)
    assert len(server.got) == 1


def test_a_log_without_bodies_is_told_before_a_key_is_asked_for(tmp_path: Path) -> None:
    run = warm(written(tmp_path, "a", "b", bodies=False), None, env={})
    assert run.exit_code == 2
    assert "none of its 4 requests holds a body" in run.output
    assert "keep_text: true" in run.output
    assert "key" not in run.output


def test_a_failed_reply_is_told_as_text_that_steers_no_terminal(
    server: Server, tmp_path: Path
) -> None:
    server.status, server.reply = 401, '{"error":\n "clé \x1b[2J"}'.encode()
    run = warm(written(tmp_path, "a"), server)
    assert run.exit_code == 1
    assert 'First failure: 401: {"error": "clé \\x1b[2J"}' in run.output
