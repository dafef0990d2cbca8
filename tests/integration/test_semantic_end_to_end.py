"""The semantic tier in the running proxy: the real embedder and gate, the real SDKs in front."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from anthropic import Anthropic
from openai import OpenAI
from parts import calibration
from proxy import Proxy, Reply, request, serving
from semantic_rig import entries, hits, learns, similar
from trouble_rig import until

from trivet.middleware.mock_upstream.run import running
from trivet.middleware.status import parse
from trivet.policies.calibration import Calibration, Fingerprint
from trivet.policies.keygen import key_hash
from trivet.semantic.embedders import open_embedder
from trivet.semantic.gate import load_gate
from trivet.semantic.verifiers import open_chain

FIRST = "How do I bake sourdough bread?"
AGAIN = "How can I bake sourdough bread?"
OTHER = "How do I sharpen a kitchen knife?"

Start = Callable[..., Proxy]

pytestmark = pytest.mark.alone  # An embedding that waits for a core too long is a miss.


@cache
def fingerprint() -> Fingerprint:
    return open_chain("cosine", open_embedder("default"), gate=load_gate()).fingerprint


def measured(threshold: float | None = 0.85, **given: Any) -> Calibration:
    return calibration(threshold, **{"fingerprint": fingerprint(), **given})


def policy(tenant: str, mode: str = "replace", more: str = "", exact: str = "") -> str:
    return (
        f"tenant: {tenant}\ncredentials:\n  - sha256: {key_hash(f'sk-{tenant}')}\n"
        f"semantic:\n  mode: {mode}\n  calibration: cal.json\n  audit: {{share: 0}}\n{more}{exact}"
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(
            *arguments: str,
            cal: Calibration | None = None,
            store: str = "memory",
            upstream: str | None = None,
            **files: str,
        ) -> Proxy:
            folder = tmp_path / "policies"
            folder.mkdir(exist_ok=True)
            (folder / "cal.json").write_text((cal or measured()).model_dump_json())
            for name, text in (files or {"acme": policy("acme")}).items():
                (folder / f"{name}.yaml").write_text(text)
            env = {"TRIVET_SECRET": "s" * 64}
            proxy = stack.enter_context(
                serving(upstream, "--policies", str(folder), *arguments, store=store, env=env)
            )
            proxy.key = "sk-acme"
            opened(proxy)
            return proxy

        yield begin


def opened(proxy: Proxy, streak: int = 1) -> None:
    """Wait until the models are loaded: in each worker, if so many answers in a row say so."""
    deadline = time.monotonic() + 100
    number = ready = 0
    while time.monotonic() < deadline:
        number += 1
        found = semantic(proxy.chat(f"Is this warm up number {number}?", user="warm"))
        if found and found.get("detail") not in (
            "loading",
            "index-building",
            "embedder-timeout",
            "unavailable",
        ):
            ready += 1
            if ready >= streak:
                return
            continue
        ready = 0
        time.sleep(0.2)
    raise AssertionError("the tier did not open:\n" + proxy.log.read_text())


def semantic(reply: Reply) -> dict[str, Any]:
    return dict(parse(reply.headers["cache-status"]).get("trivet-semantic", {}))


def said(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"])


def test_a_similar_question_gets_the_stored_answer_and_is_told_so(start: Start) -> None:
    proxy = start()
    first = learns(proxy, FIRST)
    again = proxy.chat(AGAIN)
    assert semantic(again)["hit"] is True
    assert said(again) == said(first)
    assert int(again.headers["age"]) >= 0
    assert len(again.headers["trivet-hit-id"]) == 32
    assert again.json["id"] != first.json["id"]
    assert semantic(proxy.chat(OTHER))["detail"] == "below-threshold"


def test_the_official_sdks_read_a_similar_answer_in_both_deliveries(start: Start) -> None:
    proxy = start()
    client = OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-acme", max_retries=0)

    def ask(text: str) -> str | None:
        made = client.chat.completions.create(
            model="mock", temperature=0, messages=[{"role": "user", "content": text}]
        )
        return made.choices[0].message.content

    def streamed(text: str) -> str:
        with client.chat.completions.stream(
            model="mock", temperature=0, messages=[{"role": "user", "content": text}]
        ) as stream:
            return stream.get_final_completion().choices[0].message.content or ""

    before = entries(proxy)
    first = ask(FIRST)
    until(lambda: entries(proxy) > before, "it is learned")
    assert ask(AGAIN) == first
    assert streamed("How could I bake sourdough bread?") == first


def test_messages_of_anthropic_are_served_alike(start: Start) -> None:
    exact = "exact:\n  sampled: cache\n"
    proxy = start(acme=policy("acme", exact=exact))
    client = Anthropic(base_url=proxy.url, api_key="sk-acme", max_retries=0)

    def ask(text: str) -> Any:
        return client.messages.with_raw_response.create(
            model="mock", max_tokens=100, messages=[{"role": "user", "content": text}]
        )

    before = entries(proxy)
    first = ask(FIRST)
    until(lambda: entries(proxy) > before, "it is learned")
    again = ask(AGAIN)
    assert parse(again.headers["cache-status"])["trivet-semantic"]["hit"] is True
    assert again.parse().content[0].text == first.parse().content[0].text


def test_nothing_crosses_a_tenant(start: Start) -> None:
    proxy = start(acme=policy("acme"), globex=policy("globex"))
    learns(proxy, FIRST)
    assert semantic(proxy.chat(AGAIN, key="sk-globex"))["detail"] == "no-neighbour"
    assert semantic(proxy.chat(AGAIN))["hit"] is True


def test_nothing_crosses_a_user_where_the_policy_scopes_by_user(start: Start) -> None:
    proxy = start(acme=policy("acme", exact="exact:\n  user_scope: true\n"))
    learns(proxy, FIRST, user="alice")
    assert semantic(proxy.chat(AGAIN, user="bob"))["detail"] == "no-neighbour"
    assert semantic(proxy.chat(AGAIN, user="alice"))["hit"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"messages": [{"role": "system", "content": "Be a pirate."}]},
        {"response_format": {"type": "json_object"}},
        {"seed": 7},
        {"model": "mock-2"},
        {"x_made_up": 1},
    ],
    ids=["system", "format", "seed", "model", "unknown"],
)
def test_everything_but_the_last_text_has_to_be_equal(
    start: Start, options: dict[str, Any]
) -> None:
    proxy = start()
    learns(proxy, FIRST)
    body: dict[str, Any] = {"model": "mock", "temperature": 0, "messages": [], **options}
    body["messages"] = [*body["messages"], {"role": "user", "content": AGAIN}]
    found = proxy.post("/v1/chat/completions", body)
    assert semantic(found).get("hit") is None
    assert semantic(proxy.chat(AGAIN))["hit"] is True


def test_requests_that_offer_tools_are_not_looked_up(start: Start) -> None:
    proxy = start()
    tools = [{"type": "function", "function": {"name": "send_email", "parameters": {}}}]
    assert semantic(proxy.chat(FIRST, tools=tools))["detail"] == "tools"


@pytest.mark.parametrize(
    "text",
    [
        "Cancel my subscription now.",
        "What is the balance of my savings?",
        "What is the weather today?",
    ],
)
def test_the_gate_refuses_what_acts_or_depends_on_person_or_time(start: Start, text: str) -> None:
    proxy = start()
    for _ in range(2):
        reply = proxy.chat(text, cache_control="no-cache")
        assert semantic(reply) == {} or semantic(reply)["fwd"] == "bypass"
    assert semantic(proxy.chat(f"{text} "))["fwd"] == "bypass"


def test_a_purge_by_tag_reaches_similar_answers(start: Start) -> None:
    proxy = start()
    learns(proxy, FIRST, trivet_tag="doc-1")
    assert semantic(proxy.chat(AGAIN))["hit"] is True
    purge = request(
        "POST",
        f"{proxy.admin}/trivet/purge",
        b'{"tenant": "acme", "tag": "doc-1"}',
        {"content-type": "application/json"},
        10.0,
    )
    assert purge.status == 200, purge.body
    assert semantic(proxy.chat("How may I bake sourdough bread?")).get("hit") is None


def test_a_similar_answer_without_the_callers_tag_is_not_served(start: Start) -> None:
    proxy = start()
    learns(proxy, FIRST, trivet_tag="doc-1")
    assert semantic(proxy.chat(AGAIN, trivet_tag="doc-1"))["hit"] is True
    again = "How may I bake sourdough bread?"
    assert semantic(proxy.chat(again, trivet_tag="doc-2"))["detail"] == "tags"


def test_without_a_certified_threshold_it_only_watches(start: Start) -> None:
    proxy = start(cal=measured(None))
    learns(proxy, FIRST)
    assert semantic(proxy.chat(AGAIN))["detail"] == "shadow-not-certified"


def test_a_calibration_of_another_embedder_serves_nothing(start: Start) -> None:
    other = Fingerprint(chain="cosine", embedder="0" * 64, gate=fingerprint().gate)
    proxy = start(cal=measured(fingerprint=other))
    learns(proxy, FIRST)
    assert semantic(proxy.chat(AGAIN))["detail"] == "shadow-other-chain"
    (part,) = [
        one
        for one in proxy.get("/readyz", admin=True).json["components"]
        if one["name"] == "semantic"
    ]
    assert part["state"] == "degraded"
    assert "watching only, whatever the policy says: acme (other-chain)" in part["detail"]
    told = [line for line in proxy.lines() if "semantic-state" in line]
    assert len(told) == 1
    assert "other-chain" in told[0]


def test_an_answer_that_took_the_place_of_the_one_that_was_learned_is_not_served(
    start: Start,
) -> None:
    proxy = start(acme=policy("acme", more="  writers: [faq-bot]\n"))
    learns(proxy, FIRST, user="faq-bot")
    assert semantic(proxy.chat(AGAIN))["hit"] is True
    proxy.chat(FIRST, user="mallory", cache_control="no-cache")
    until(lambda: not hits(proxy.chat(AGAIN, cache_control="no-store")), "it is served no more")


def test_a_caller_reports_a_wrong_answer_and_it_is_served_no_more(start: Start) -> None:
    proxy = start(acme=policy("acme"), globex=policy("globex"))
    learns(proxy, FIRST)
    again = proxy.chat(AGAIN)
    told = {"id": again.headers["trivet-hit-id"], "verdict": "wrong"}
    assert proxy.post("/trivet/feedback", told, key="sk-globex").status == 404
    assert proxy.post("/trivet/feedback", told).status == 200
    assert semantic(proxy.chat("How might I bake sourdough bread?")).get("hit") is None
    assert proxy.post("/trivet/feedback", told).status == 404


def test_assist_gives_the_earlier_answer_to_the_model_and_stores_nothing_of_it(
    start: Start,
) -> None:
    proxy = start(acme=policy("acme", "assist"))
    first = learns(proxy, FIRST)
    again = proxy.chat(AGAIN)
    assert semantic(again)["detail"].startswith("assist")
    assert said(again) != said(first)
    assert "stored" not in again.exact
    # The mock's words are a digest of what it reads: it read something else.
    assert said(again) != said(proxy.chat(AGAIN, cache_control="no-store"))
    assert proxy.chat(AGAIN).exact.get("hit") is None


def test_assist_by_header_leaves_the_request_as_it_came(start: Start) -> None:
    proxy = start(acme=policy("acme", "assist", "  assist: header\n"))
    first = learns(proxy, FIRST)
    again = proxy.chat(AGAIN)
    assert said(first).startswith(unquote(again.headers["trivet-suggestion"])[:40])
    assert said(again) == said(proxy.chat(AGAIN, cache_control="no-store"))


def test_entries_survive_a_restart(start: Start, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'cache.sqlite'}"
    with running() as (url, _):
        proxy = start(store=store, upstream=url)
        learns(proxy, FIRST)
        proxy.stop()
        again = start(store=store, upstream=url)
        until(lambda: similar(again, AGAIN), "it is served")


def test_two_workers_learn_from_each_other(start: Start, tmp_path: Path) -> None:
    proxy = start("--workers", "2", store=f"sqlite:{tmp_path / 'cache.sqlite'}")
    opened(proxy, streak=20)
    proxy.chat(FIRST)
    time.sleep(2.5)
    words = ["may", "might", "could", "should", "would", "shall", "will"]
    found = [semantic(proxy.chat(f"How {word} I bake sourdough bread?")) for word in words]
    assert [one.get("hit") for one in found].count(True) >= len(words) - 1, found
