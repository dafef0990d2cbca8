"""The layout doctor in a running proxy: its log line, its figures, and the report on its record."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import yaml
from click.testing import CliRunner
from proxy import Proxy, serving

from trivet.cli import main
from trivet.middleware.mock_upstream.run import running
from trivet.policies.keygen import key_hash

KEY = "sk-doctor"
RULES = "Answer in the language of the question, in short sentences. " * 120


def ask(proxy: Proxy, clock: str, text: str) -> anthropic.types.Message:
    system = f"You help people with trivets. Current time is {clock}. {RULES}"
    with anthropic.Anthropic(api_key=KEY, base_url=proxy.url, max_retries=0) as client:
        return client.messages.create(
            model="claude-opus-5",
            max_tokens=16,
            system=system,
            messages=[{"role": "user", "content": text}],
            extra_headers={"Trivet-Route": "support"},
        )


def until(found: Callable[[], Any]) -> Any:
    """What is found within some seconds."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("nothing was found")


def lines(path: Path, event: str) -> list[dict[str, Any]]:
    made = []
    for raw in path.read_bytes().splitlines():
        line = json.loads(raw) if raw.startswith(b"{") else {}
        if line.get("event") == event:
            made.append(line)
    return made


def test_l1_a_clock_in_the_system_prompt_is_told_counted_and_reported(tmp_path: Path) -> None:
    policies, traffic = tmp_path / "policies", tmp_path / "traffic.jsonl"
    policies.mkdir()
    policy = {
        "tenant": "shop",
        "credentials": [{"sha256": key_hash(KEY)}],
        "prefix": {"record": True},
    }
    (policies / "shop.yaml").write_text(yaml.safe_dump(policy))
    with running(provider="anthropic") as (url, _):
        upstream = {"name": "claude", "base_url": url, "cache": "anthropic"}
        config = {
            "upstreams": [upstream],
            "policies": str(policies),
            "traffic_log": str(traffic),
            "log_format": "json",
        }
        with serving(config=json.dumps(config)) as proxy:
            for number, clock in enumerate(("15:09:20", "15:09:48", "15:11:02")):
                ask(proxy, clock, f"Question {number}")
            (line,) = until(lambda: lines(proxy.log, "prefix-break"))
            assert (line["tenant"], line["route"]) == ("shop", "support")
            assert (line["place"], line["cause"]) == ("system, character 46", "timestamp")
            assert line["lost_tokens"] > 1_500
            assert line["cached_share"] == 0.0
            assert "trivets" not in json.dumps(line)
            name = 'trivet_prefix_breaks_total{cause="timestamp",route="support",tenant="shop"}'
            until(lambda: f"{name} 2.0" in httpx2.get(f"{proxy.admin}/metrics").text)
            text = httpx2.get(f"{proxy.admin}/metrics").text
            assert 'trivet_prefix_prompt_tokens_total{kind="cached",route="support"' in text
    assert b"trivets" not in traffic.read_bytes()
    found = CliRunner().invoke(main, ["prefix", "report", str(traffic), "--json"])
    told = json.loads(found.stdout)
    assert told["causes"] == {"timestamp": 2}
    (route,) = told["routes"]
    assert (route["route"], route["calls"], route["hit_rate"]) == ("support", 3, 0.0)
    assert told["worst"][0]["saving_usd"] > 0
