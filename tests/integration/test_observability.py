"""What an operator sees of the running proxy: metrics, logs, readiness, the admin API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from proxy import Proxy, serving

from trivet.middleware.mock_upstream.commands import in_baggage

SECRET_TEXT = "my-very-private-question"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving(None, "--log-requests", "--log-format", "json") as running:
        yield running


def samples(proxy: Proxy, name: str) -> dict[frozenset[tuple[str, str]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    text = proxy.get("/metrics", admin=True).body.decode()
    return {
        frozenset(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def total(proxy: Proxy, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for key, value in samples(proxy, name).items() if wanted <= key)


def test_requests_are_counted_by_tier_outcome_and_reason(proxy: Proxy) -> None:
    proxy.chat("counted")
    proxy.chat("counted")
    proxy.chat("counted", temperature=1)
    proxy.chat("counted too", baggage=in_baggage("length"))
    name = "trivet_requests_total"
    assert total(proxy, name, outcome="hit", tier="exact", reason="") >= 1
    assert total(proxy, name, outcome="miss", reason="") >= 1
    assert total(proxy, name, outcome="bypass", reason="sampled") == 1
    assert total(proxy, name, outcome="miss", reason="finish-length") == 1


def test_tokens_saved_are_those_of_the_recorded_answer(proxy: Proxy) -> None:
    before = total(proxy, "trivet_tokens_saved_total", kind="input")
    usage = proxy.chat("saved tokens").json["usage"]
    assert total(proxy, "trivet_tokens_saved_total", kind="input") == before
    proxy.chat("saved tokens")
    proxy.chat("saved tokens", stream=True)
    saved = total(proxy, "trivet_tokens_saved_total", kind="input") - before
    assert saved == 2 * usage["prompt_tokens"]


def test_a_hit_of_unknown_usage_counts_as_unknown_and_not_as_zero(proxy: Proxy) -> None:
    before = total(proxy, "trivet_usage_unknown_total")
    proxy.chat("no usage", baggage=in_baggage("no-usage"))
    assert proxy.chat("no usage").exact["hit"] is True
    assert total(proxy, "trivet_usage_unknown_total") > before


def test_no_prompt_and_no_answer_reaches_the_log_or_the_metrics(proxy: Proxy) -> None:
    reply = proxy.chat(SECRET_TEXT, baggage=in_baggage("echo"), user=SECRET_TEXT)
    assert SECRET_TEXT in reply.body.decode()
    proxy.chat(SECRET_TEXT, baggage=in_baggage("echo"))
    proxy.chat(SECRET_TEXT, baggage=in_baggage("status=500"), temperature=1)
    log = proxy.log.read_text()
    assert SECRET_TEXT not in log
    assert "sk-test" not in log
    metrics = proxy.get("/metrics", admin=True).body.decode()
    assert SECRET_TEXT not in metrics
    assert "sk-test" not in metrics


def _request_lines(proxy: Proxy, model: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in proxy.lines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "request" and line["model"] == model]


def test_each_request_is_one_structured_line_when_asked_for(proxy: Proxy) -> None:
    proxy.chat("one line", model="mock-lines")
    # The line is written after the answer was sent.
    deadline = time.monotonic() + 10
    while not (found := _request_lines(proxy, "mock-lines")) and time.monotonic() < deadline:
        time.sleep(0.02)
    last = found[-1]
    assert last["outcome"] == "miss"
    assert last["api"] == "chat"
    assert last["status"] == 200


def test_the_admin_api_answers_here_and_not_on_the_data_port(proxy: Proxy) -> None:
    assert proxy.get("/trivet/stats", admin=True).status == 200
    assert proxy.get("/trivet/openapi.json", admin=True).json["paths"]
    refused = proxy.get("/trivet/stats")
    assert refused.status == 404
    assert "admin API" in refused.json["error"]["message"]
    assert "x-trivet-mock" in proxy.get("/metrics").headers


def test_the_admin_api_wants_its_own_key_when_there_is_one() -> None:
    with serving(None, env={"TRIVET_ADMIN_KEY": "a" * 40}) as guarded:
        assert guarded.get("/trivet/stats", admin=True).status == 401
        wrong = guarded.get("/trivet/stats", admin=True, authorization="Bearer sk-test")
        assert wrong.status == 401
        right = guarded.get("/trivet/stats", admin=True, authorization=f"Bearer {'a' * 40}")
        assert right.status == 200
        assert guarded.get("/healthz", admin=True).status == 200


def test_fastapi_and_provider_sdks_are_not_in_the_data_planes_process() -> None:
    import subprocess
    import sys

    code = (
        "import sys, trivet.middleware.running.server, trivet.middleware.running.run; "
        "import trivet.middleware.running.service; "
        "bad = {'fastapi', 'starlette', 'openai', 'anthropic', 'torch', 'scipy', 'genai_prices'};"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
