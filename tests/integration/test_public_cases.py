"""Public bug reports about LLM caches, through the running proxy: each docstring names its case.

The ids are those of the project's list of reports. Not here, because they concern other tiers or
are tested elsewhere:
"""

# A10, A11, B5, B6, C2 (in an engine), C3, F2, F6, G1 to G8, H5: the semantic and prefix tiers.
# H4: the same, there are no vectors here. L1 to L10, P: prompt layout, hosted caches, batches.
# K1 to K4: tests/middleware/test_pricing.py, test_metrics.py. K6, E4: there are no guardrails.
# O4: a soak run, in bench/.

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from proxy import Proxy, Reply, chat_body, free_port, request, serving
from raw_http import Answer, post
from redis_servers import Server
from redis_servers import running as redis_running
from trouble_rig import exact_of, faults, lines, metric, mocked, states, text_of, texts

from trivet.middleware.mock_upstream.commands import in_baggage
from trivet.policies.keygen import key_hash

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
MISS = {"fwd": "miss", "stored": True}
SECRET = "0123456789abcdef" * 4
TOOL = {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": TOOL}]
PIXEL = "data:image/png;base64,"
Body = dict[str, Any]

POLICIES = {
    "pool": "exact: {sampled: pool, k: 3}\n",
    "zero": "usage_on_hit: zero\n",
    "never": "exact: {tool_calls: never}\n",
    "users": "exact: {user_scope: true, user_from: body}\n",
    "intents": "exact: {ttl: 7d, rules: [{match: {route: /prices}, ttl: 5s}]}\n",
    "limited": "limits: {requests_in_flight: 1}\n",
    "twokeys": "exact: {sampled: cache}\n",
}
"""Policy text by tenant. The key of tenant `x` is `sk-x`; `twokeys` has `sk-twokeys-b` too."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Proxy]:
    with serving(None, "--log-requests", "--log-format", "json") as running:
        yield running


@pytest.fixture
def proxy(shared: Proxy) -> Proxy:
    return reset(shared)


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("policies")
    for tenant, text in POLICIES.items():
        keys = [f"sk-{tenant}"] + (["sk-twokeys-b"] if tenant == "twokeys" else [])
        head = "".join(f"  - sha256: {key_hash(key)}\n" for key in keys)
        (folder / f"{tenant}.yaml").write_text(f"tenant: {tenant}\ncredentials:\n{head}{text}")
    with serving(None, "--policies", str(folder)) as running:
        yield running


@pytest.fixture
def tenants(declared: Proxy) -> Proxy:
    return reset(declared)


def reset(proxy: Proxy) -> Proxy:
    assert proxy.mock is not None
    proxy.mock.calls.reset()
    return proxy


def calls(proxy: Proxy) -> int:
    assert proxy.mock is not None
    return proxy.mock.calls.total


def user(text: Any) -> Body:
    return {"role": "user", "content": text}


def body_of(path: str, text: str, /, **more: Any) -> Body:
    """A request of that API at temperature 0."""
    if path == RESPONSES:
        return {"model": "mock", "temperature": 0, "store": False, "input": text, **more}
    body: Body = {"model": "mock", "temperature": 0, "messages": [user(text)], **more}
    return {"max_tokens": 300, **body} if path == MESSAGES else body


def ask(proxy: Proxy, path: str, body: Body, **headers: Any) -> Reply:
    """One request in the API's dialect."""
    if path == MESSAGES:
        headers.setdefault("anthropic_version", "2023-06-01")
    return proxy.post(path, body, **headers)


def events(reply: Reply) -> list[Body]:
    """The data of a stream's events, `[DONE]` left out."""
    data = [line[6:] for line in reply.body.splitlines() if line.startswith(b"data: {")]
    return [json.loads(one) for one in data]


def tells_name(tool: str) -> list[Body]:
    call = {"name": tool, "arguments": "{}"}
    made = {"id": "call_1", "type": "function", "function": call}
    return [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]


def instructed(role: str, text: str) -> list[Body]:
    return [{"role": role, "content": text}, user("case A6")]


DIFFERENT: dict[str, tuple[str, Body, Body]] = {
    "A1-reasoning-effort": (CHAT, {"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
    "A1-thinking-budget": (
        MESSAGES,
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
    ),
    "A1-responses-reasoning": (
        RESPONSES,
        {"reasoning": {"effort": "low"}},
        {"reasoning": {"effort": "high"}},
    ),
    "A2-unknown-option": (CHAT, {"num_ctx": 2048}, {"num_ctx": 8192}),
    "A2-nested-option": (CHAT, {"options": {"num_ctx": 2048}}, {"options": {"num_ctx": 8192}}),
    "A3-verbosity": (RESPONSES, {"text": {"verbosity": "low"}}, {"text": {"verbosity": "high"}}),
    "A3-instructions": (RESPONSES, {"instructions": "A"}, {"instructions": "B"}),
    "A5-model": (CHAT, {"model": "mock"}, {"model": "mock-large"}),
    "A6-system": (
        CHAT,
        {"messages": instructed("system", "be rude")},
        {"messages": instructed("system", "be polite")},
    ),
    "A6-developer": (
        CHAT,
        {"messages": instructed("developer", "be rude")},
        {"messages": instructed("developer", "be polite")},
    ),
    "A6-role": (
        CHAT,
        {"messages": instructed("system", "be kind")},
        {"messages": instructed("developer", "be kind")},
    ),
    "A6-anthropic-system": (MESSAGES, {"system": "be rude"}, {"system": "be polite"}),
    "A7-history": (
        CHAT,
        {"messages": [user("A7 A"), *tells_name("find"), user("A7")]},
        {"messages": [user("A7 B"), *tells_name("find"), user("A7")]},
    ),
    "A8-max-tokens": (CHAT, {"max_tokens": 5}, {"max_tokens": 500}),
    "C2-inline-image": (
        CHAT,
        {"messages": [user([{"type": "image_url", "image_url": {"url": PIXEL + "AAAA"}}])]},
        {"messages": [user([{"type": "image_url", "image_url": {"url": PIXEL + "AAAB"}}])]},
    ),
    "A9-run-together": (
        CHAT,
        {"stop": "x", "temperature": 0, "seed": 1},
        {"stop": "xtemperature: 0", "seed": 1},
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_request_that_shapes_its_answer_otherwise_is_a_miss(proxy: Proxy, case: str) -> None:
    """A1 to A3, A5 to A9, C2: what two requests differ in is in the key, known field or not."""
    path, first, second = DIFFERENT[case]
    for changed in (first, second):
        body = body_of(path, f"case {case}", **changed)
        if "seed" in changed and "temperature" not in changed:
            del body["temperature"]
        assert ask(proxy, path, body).exact == MISS
        assert ask(proxy, path, body).exact["hit"] is True
    assert calls(proxy) == 2


def test_an_agent_is_not_given_its_first_tool_call_again_after_the_tools_result(
    proxy: Proxy,
) -> None:
    """A7, E1: the whole message list is keyed, so the loop goes on."""
    question = user("please call a tool for E1")
    first = proxy.chat(messages=[question], tools=TOOLS).json["choices"][0]
    assert first["finish_reason"] == "tool_calls"
    call = first["message"]["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call, "content": "4"}
    second = proxy.chat(messages=[question, first["message"], result], tools=TOOLS)
    assert second.exact == MISS
    assert second.json["choices"][0]["finish_reason"] == "stop"
    other = {**result, "content": "5"}
    assert proxy.chat(messages=[question, first["message"], other], tools=TOOLS).exact == MISS


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_a_history_with_a_replayed_thought_has_the_key_of_the_live_one(
    proxy: Proxy, path: str
) -> None:
    """B1: a replay is the live answer, reasoning included, so the next turn is one request."""
    body = body_of(path, "case B1")
    live = ask(proxy, path, body, baggage=in_baggage("reasoning"))
    again = ask(proxy, path, body)
    assert live.exact == MISS
    assert again.exact["hit"] is True

    def next_turn(answer: Body) -> Body:
        said = answer["choices"][0]["message"] if path == CHAT else answer
        kept = said if path == CHAT else {"role": "assistant", "content": said["content"]}
        return {**body, "messages": [*body["messages"], kept, user("and then?")]}

    assert b"made no thought" in again.body
    assert next_turn(live.json) == next_turn(again.json)
    assert ask(proxy, path, next_turn(live.json)).exact == MISS
    assert ask(proxy, path, next_turn(again.json)).exact["hit"] is True


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("strict", [True, False, None])
def test_a_structured_request_hits_the_second_time(
    proxy: Proxy, strict: bool | None, stream: bool
) -> None:
    """B2, B3: the key is made once, from the body as it came, with `strict` as it was."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    inner = {"name": "place", "schema": schema}
    form = {"type": "json_schema", "json_schema": {**inner, "strict": strict}}
    options: Body = {"response_format": form, "stream": stream}
    first = proxy.chat(f"case B2 {strict} {stream}", **options)
    second = proxy.chat(f"case B2 {strict} {stream}", **options)
    assert first.status == 200
    assert second.exact["hit"] is True
    assert text_of(second) == text_of(first)
    assert json.loads(text_of(second)).keys() == {"city"}


def test_a_pydantic_schema_hits_through_the_sdk(proxy: Proxy) -> None:
    """B3: `response_format` as the SDK makes it of a pydantic model."""
    from openai import OpenAI
    from pydantic import BaseModel

    class Place(BaseModel):
        city: str
        people: int

    with OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0) as client:
        asked: Any = {"model": "mock", "temperature": 0, "messages": [user("case B3")]}
        parsed = [
            client.chat.completions.parse(response_format=Place, **asked).choices[0].message.parsed
            for _ in range(2)
        ]
    assert calls(proxy) == 1
    assert isinstance(parsed[0], Place)
    assert parsed[0] == parsed[1]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_the_order_of_the_envelopes_fields_makes_no_difference(proxy: Proxy, path: str) -> None:
    """B4: `a` before `b` is `b` before `a`."""
    body = body_of(path, "case B4", top_p=0.5)
    assert ask(proxy, path, body).exact == MISS
    assert ask(proxy, path, dict(reversed(body.items()))).exact["hit"] is True


def test_the_order_of_a_schemas_properties_makes_a_difference(proxy: Proxy) -> None:
    """B4: models write fields in the order of the schema, so it is kept."""

    def tool(*names: str) -> list[Body]:
        properties = {name: {"type": "string"} for name in names}
        shape = {"type": "object", "properties": properties}
        return [{"type": "function", "function": {"name": "f", "parameters": shape}}]

    assert proxy.chat("case B4 schema", tools=tool("a", "b")).exact == MISS
    assert proxy.chat("case B4 schema", tools=tool("b", "a")).exact == MISS


ENDS = {CHAT: b"data: [DONE]", RESPONSES: b"response.completed", MESSAGES: b"message_stop"}


@pytest.mark.parametrize("path", ENDS)
@pytest.mark.parametrize("recorded", ["json", "stream"])
def test_one_entry_serves_both_deliveries(proxy: Proxy, path: str, recorded: str) -> None:
    """D1, D3, D6: a stream is a stream to its end on a hit, whichever way it was recorded."""
    whole = body_of(path, f"case D6 {recorded}")
    streamed = {**whole, "stream": True}
    assert "hit" not in ask(proxy, path, whole if recorded == "json" else streamed).exact
    stream, answer = ask(proxy, path, streamed), ask(proxy, path, whole)
    assert stream.exact["hit"] is True
    assert answer.exact["hit"] is True
    assert calls(proxy) == 1
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert ENDS[path] in stream.body.splitlines()[-2]
    assert answer.headers["content-type"] == "application/json"


def test_a_replayed_responses_stream_goes_from_created_to_completed(proxy: Proxy) -> None:
    """D3: streamed Responses requests are stored and replayed, with every event in order."""
    body = body_of(RESPONSES, "case D3", stream=True)
    live, again = events(ask(proxy, RESPONSES, body)), ask(proxy, RESPONSES, body)
    assert again.exact["hit"] is True
    replayed = events(again)
    kinds = [event["type"] for event in replayed]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event["sequence_number"] for event in replayed] == list(range(len(kinds)))
    assert set(kinds) == {event["type"] for event in live}
    texts = [made[-1]["response"]["output"][0]["content"][0]["text"] for made in (live, replayed)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("recorded", ["json", "stream"])
def test_a_streamed_tool_call_has_its_index_id_and_name_once(proxy: Proxy, recorded: str) -> None:
    """D2: the tool call is in the replayed stream, whichever way it was recorded."""
    asked = {"tools": TOOLS, "tool_choice": "required"}
    live = proxy.chat(f"case D2 {recorded}", stream=recorded == "stream", **asked)
    stream = proxy.chat(f"case D2 {recorded}", stream=True, **asked)
    assert "hit" not in live.exact
    assert stream.exact["hit"] is True
    choices = [choice for event in events(stream) for choice in event["choices"]]
    deltas = [call for choice in choices for call in choice["delta"].get("tool_calls") or ()]
    assert {delta["index"] for delta in deltas} == {0}
    assert len([delta["id"] for delta in deltas if delta.get("id")]) == 1
    assert [call["function"]["name"] for call in deltas if call["function"].get("name")] == ["find"]
    arguments = "".join(call["function"].get("arguments") or "" for call in deltas)
    assert json.loads(arguments).keys() == {"q"}
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_a_replayed_stream_is_not_one_lump_of_text(proxy: Proxy) -> None:
    """D7: clients that show text as it comes get it in pieces on a hit too."""
    proxy.chat("case D7", baggage=in_baggage("tokens=200"))
    pieces = [
        choice["delta"]["content"]
        for event in events(proxy.chat("case D7", stream=True))
        for choice in event["choices"]
        if choice["delta"].get("content")
    ]
    assert len(pieces) > 1


def test_an_action_is_repeated_from_the_cache_only_where_the_policy_lets_it(
    proxy: Proxy, tenants: Proxy
) -> None:
    """E3: `tool_calls: exact` for the very same conversation, `never` for none."""
    tools = [{"type": "function", "function": {**TOOL, "name": "send_email"}}]
    asked = {"tools": tools, "tool_choice": "required"}
    assert proxy.chat("case E3", **asked).exact == MISS
    assert proxy.chat("case E3", **asked).exact["hit"] is True
    assert proxy.chat("case E3, please", **asked).exact == MISS
    for _ in range(2):
        never = tenants.chat("case E3", key="sk-never", **asked)
        assert never.exact == {"fwd": "miss", "detail": "tool-calls"}


def test_another_tenant_neither_gets_the_answer_nor_learns_of_it(proxy: Proxy) -> None:
    """F1: T2 misses, is told what anybody is told of a first request, and sees another key."""
    first = proxy.chat("case F1", key="sk-t1")
    other = proxy.chat("case F1", key="sk-t2")
    assert first.exact == other.exact == MISS
    assert set(first.headers) == set(other.headers)
    keys = {proxy.chat("case F1", key=key).exact["key"] for key in ("sk-t1", "sk-t2")}
    assert len(keys) == 2
    assert calls(proxy) == 2


def test_what_a_user_asks_about_himself_is_his_own(tenants: Proxy) -> None:
    """F3: within the user scope, no user at all is a bypass and another user a miss."""
    asked: Any = {"key": "sk-users"}
    question = "how much is left on my gift card"
    assert tenants.chat(question, **asked).exact == {"fwd": "bypass", "detail": "user-missing"}
    assert tenants.chat(question, user="a", **asked).exact == MISS
    assert tenants.chat(question, user="b", **asked).exact == MISS
    assert tenants.chat(question, user="a", **asked).exact["hit"] is True
    assert calls(tenants) == 3


def test_the_shared_store_and_the_memory_before_it_are_both_scoped(tmp_path: Path) -> None:
    """F4: T2 misses in the front's process, and in one that only has Redis to ask."""
    with mocked() as behind, redis_running(tmp_path / "redis") as redis:
        options: Any = {"store": redis.url, "env": {"TRIVET_SECRET": SECRET}}
        with serving(behind.url, **options) as one, serving(behind.url, **options) as two:
            assert one.chat("case F4", key="sk-t1").exact == MISS
            assert one.chat("case F4", key="sk-t2").exact == MISS
            assert behind.mock.calls.total == 2
            assert two.chat("case F4", key="sk-t1").exact["hit"] is True
            assert two.chat("case F4", key="sk-t3").exact == MISS
            assert one.chat("case F4", key="sk-t3").exact["hit"] is True


def test_each_intent_has_a_lifetime_of_its_own(tenants: Proxy) -> None:
    """H3: prices are kept for seconds, history for days."""
    left = {}
    for route in ("/prices", "/history"):
        asked: Any = {"key": "sk-intents", "trivet_route": route}
        tenants.chat(f"case H3 {route}", **asked)
        left[route] = int(tenants.chat(f"case H3 {route}", **asked).exact["ttl"])
    assert left["/prices"] <= 5
    assert 6 * 86400 < left["/history"] <= 7 * 86400


def test_a_new_model_prompt_or_source_is_a_new_key_space_and_the_old_can_be_purged(
    proxy: Proxy,
) -> None:
    """H6: by version, by tag and by tenant."""
    asked: Any = {"key": "sk-h6"}
    proxy.chat("case H6", trivet_version="prompt=1", trivet_tag="doc-1", **asked)
    assert proxy.chat("case H6", trivet_version="prompt=2", **asked).exact == MISS
    assert proxy.chat("case H6", trivet_version="docs=1", **asked).exact == MISS
    assert proxy.chat("case H6", model="mock-large", **asked).exact == MISS
    assert proxy.chat("case H6", trivet_version="prompt=1", **asked).exact["hit"] is True
    last = json.loads(next(line for line in reversed(proxy.lines()) if '"tenant"' in line))

    def purge(**what: str) -> int:
        body = json.dumps({"tenant": last["tenant"], **what}).encode()
        kind = {"content-type": "application/json"}
        reply = request("POST", f"{proxy.admin}/trivet/purge", body, kind, 30)
        assert reply.status == 200, reply.body
        return int(reply.json["deleted"])

    assert purge(version="prompt=2") == 1
    assert purge(tag="doc-1") == 1
    assert purge() == 2
    assert proxy.chat("case H6", model="mock-large", **asked).exact == MISS


BAD = {
    "I1-429": ("status=429; retry-after=3", 429, "status-429"),
    "I1-500": ("status=500", 500, "status-500"),
    "I4-empty": ("empty", 200, "empty"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_a_failure_keeps_its_status_and_is_not_stored(proxy: Proxy, path: str, case: str) -> None:
    """I1, I4: neither an error nor an empty answer is replayed as a 200."""
    commands, status, reason = BAD[case]
    body = body_of(path, f"case {case}")
    for _ in range(2):
        failed = ask(proxy, path, body, baggage=in_baggage(commands))
        assert failed.status == status
        assert failed.exact == {"fwd": "miss", "detail": reason}
    assert ask(proxy, path, body).exact == MISS
    assert calls(proxy) == 3


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_an_empty_stream_is_not_stored(proxy: Proxy, path: str) -> None:
    """I4: the same in a stream."""
    body = body_of(path, "case I4 stream", stream=True)
    assert ask(proxy, path, body, baggage=in_baggage("empty")).status == 200
    assert "hit" not in ask(proxy, path, body).exact
    assert ask(proxy, path, body).exact["hit"] is True


def test_who_asks_again_on_purpose_gets_another_answer_that_replaces_the_first(
    tenants: Proxy,
) -> None:
    """I6: `Cache-Control: no-cache` asks the upstream and renews the entry."""
    asked: Any = {"key": "sk-twokeys", "temperature": 1}
    said = [text_of(tenants.chat("case I6", **asked)) for _ in range(2)]
    assert said[0] == said[1]
    fresh = tenants.chat("case I6", cache_control="no-cache", **asked)
    assert fresh.exact == {"fwd": "request", "stored": True, "detail": "no-cache"}
    assert text_of(fresh) != said[0]
    assert text_of(tenants.chat("case I6", **asked)) == text_of(fresh)
    assert calls(tenants) == 2


def test_samples_do_not_collapse_to_one_text(proxy: Proxy) -> None:
    """J1: five samples at temperature 1 are five answers, one after another and at once."""
    replies = [proxy.chat("case J1", temperature=1) for _ in range(5)]
    assert [reply.exact for reply in replies] == [{"fwd": "bypass", "detail": "sampled"}] * 5
    assert len({text_of(reply) for reply in replies}) == 5

    async def at_once() -> list[Answer]:
        body = chat_body("case J1 at once", temperature=1)
        return await asyncio.gather(
            *(post(proxy.url, body, baggage=in_baggage("delay=100")) for _ in range(5))
        )

    assert len({text_of(answer) for answer in asyncio.run(at_once())}) == 5
    assert calls(proxy) == 10


def test_a_bucket_keeps_three_answers_and_draws_among_them(tenants: Proxy) -> None:
    """J3: k real answers, then no more calls, and no answer but those."""
    asked: Any = {"key": "sk-pool", "temperature": 1}
    collected = {text_of(tenants.chat("case J3", **asked)) for _ in range(3)}
    assert len(collected) == 3
    drawn = [text_of(tenants.chat("case J3", **asked)) for _ in range(40)]
    assert set(drawn) == collected
    assert calls(tenants) == 3


def test_a_hit_is_billed_nothing_and_saves_what_its_answer_cost(proxy: Proxy) -> None:
    """K5: upstream tokens count once, whatever the number of hits."""

    def figures() -> tuple[float, float, float]:
        upstream = metric(proxy, "trivet_upstream_tokens_total", kind="input")
        saved = [
            metric(proxy, "trivet_tokens_saved_total", kind=kind) for kind in ("input", "output")
        ]
        return upstream, saved[0], saved[1]

    usage = proxy.chat("case K5").json["usage"]
    before = figures()
    for _ in range(3):
        proxy.chat("case K5")
    after = figures()
    assert after[0] == before[0]
    assert after[1] - before[1] == 3 * usage["prompt_tokens"]
    assert after[2] - before[2] == 3 * usage["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_what_a_hit_reports_as_usage_is_the_policys_choice(
    proxy: Proxy, tenants: Proxy, stream: bool
) -> None:
    """K7: kept by default, zero where `usage_on_hit: zero`; `Cache-Status` tells the two apart."""
    asked: Body = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}

    def total(reply: Reply) -> int:
        return int((events(reply)[-1] if stream else reply.json)["usage"]["total_tokens"])

    kept = [proxy.chat(f"case K7 {stream}", **asked) for _ in range(2)]
    assert total(kept[0]) == total(kept[1]) > 0
    zeroed = [tenants.chat(f"case K7 {stream}", key="sk-zero", **asked) for _ in range(2)]
    assert total(zeroed[0]) > 0
    assert total(zeroed[1]) == 0
    assert zeroed[1].exact["hit"] is True


async def led_by(proxy: Proxy, body: Body, mock: str, followers: int) -> list[Answer]:
    """The answers to those who come while a leader's call, made as `mock` says, is under way."""
    leader = asyncio.create_task(post(proxy.url, body, baggage=in_baggage(mock)))
    await asyncio.sleep(0.2)
    waiting = [post(proxy.url, body, baggage=in_baggage("delay=100")) for _ in range(followers)]
    answers = await asyncio.gather(*waiting)
    await leader
    return answers


def test_a_leader_that_fails_is_replaced_once_and_harms_no_waiter(proxy: Proxy) -> None:
    """M2: the upstream's 500 to the leader leads to one call more, and all waiters share it."""
    led = led_by(proxy, chat_body("case M2 fails"), "status=500; delay=1000", 10)
    answers = asyncio.run(led)
    assert {answer.status for answer in answers} == {200}
    assert calls(proxy) == 2


def test_a_leader_whose_answer_cannot_be_kept_leaves_no_waiter_with_it(proxy: Proxy) -> None:
    """M2: a cut answer is the leader's alone; the waiters share one call of their own."""
    led = led_by(proxy, chat_body("case M2 cut"), "length; delay=1000", 10)
    answers = asyncio.run(led)
    finished = {json.loads(answer.body)["choices"][0]["finish_reason"] for answer in answers}
    assert finished == {"stop"}
    assert calls(proxy) == 2
    assert proxy.chat("case M2 cut").exact["hit"] is True


def test_requests_in_flight_are_shared_by_the_whole_key_only(proxy: Proxy, tenants: Proxy) -> None:
    """M3: not between tenants, nor between users of one tenant, although the bodies are equal."""

    async def ask_all(url: str, body: Body, keys: list[str]) -> list[Answer]:
        asked = (
            post(url, body, baggage=in_baggage("delay=200"), authorization=f"Bearer {key}")
            for key in keys
        )
        return await asyncio.gather(*asked)

    keys = ["sk-m3-a", "sk-m3-b"] * 4
    answers = asyncio.run(ask_all(proxy.url, chat_body("case M3"), keys))
    assert calls(proxy) == 2
    assert sum("collapsed" in exact_of(answer) for answer in answers) == 6

    async def two_users() -> None:
        await asyncio.gather(
            *(
                ask_all(tenants.url, chat_body("case M3", user=name), ["sk-users"] * 3)
                for name in ("a", "b")
            )
        )

    asyncio.run(two_users())
    assert calls(tenants) == 2


def test_a_dead_redis_costs_neither_the_start_nor_an_answer_nor_a_log_line_a_request() -> None:
    """N3, N4, N5: the proxy starts without it, answers from the upstream, and says so once."""
    config = "log_format: json\nstore: {front_bytes: 0}\n"
    dead = f"redis://127.0.0.1:{free_port()}"
    with mocked() as behind, serving(behind.url, store=dead, config=config) as proxy:
        for text in texts("case N4", 100):
            reply = proxy.chat(text)
            assert reply.status == 200
            assert str(reply.exact["detail"]).startswith("store-")
        assert behind.mock.calls.total == 100
        assert states(proxy, "redis") == ["down"]
        assert faults(proxy) == []
        assert proxy.get("/readyz", admin=True).status == 200
        assert len(lines(proxy, "store-state")) <= 2


def test_a_redis_that_dies_under_the_proxy_breaks_no_call(tmp_path: Path) -> None:
    """N4: an exception of the store never reaches the caller."""
    with mocked() as behind, redis_running(tmp_path / "redis") as redis:
        config = "log_format: json\nstore: {front_bytes: 0, budget: 2}\n"
        with serving(behind.url, store=redis.url, config=config) as proxy:
            dies_between(redis, proxy)
            assert faults(proxy) == []


def dies_between(redis: Server, proxy: Proxy) -> None:
    proxy.chat("case N4")
    assert proxy.chat("case N4").exact["hit"] is True
    redis.stop()
    for _ in range(20):
        reply = proxy.chat("case N4")
        assert reply.status == 200
        assert reply.exact["fwd"] == "miss"


@pytest.mark.parametrize("bound", ["max_entries: 50", "max_bytes: 256KiB"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_unique_prompts_are_bounded_by_entries_and_by_bytes(
    tmp_path: Path, kind: str, bound: str
) -> None:
    """O2: what is beyond a bound is evicted, and the newest stays."""
    store = kind if kind == "memory" else f"sqlite:{tmp_path / 'cache.sqlite'}"
    config = f"store: {{{bound}, front_bytes: 0}}\n"
    with mocked() as behind, serving(behind.url, store=store, config=config) as proxy:

        async def fill(numbers: range) -> None:
            for at in numbers:
                await post(proxy.url, chat_body(f"case O2 {at}"), baggage=in_baggage("bytes=3000"))

        asyncio.run(fill(range(200)))
        kept = proxy.get("/trivet/stats", admin=True).json["store"]
        if bound.startswith("max_entries"):
            assert 0 < kept["entries"] <= 50
        else:
            assert 0 < kept["bytes"] <= 256 << 10
        assert kept["evictions"] >= 100
        assert proxy.chat("case O2 199").exact["hit"] is True


def thinks(text: str, **more: Any) -> Body:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    body = body_of(MESSAGES, text, thinking=thinking, max_tokens=2000, **more)
    del body["temperature"]
    return body


def test_a_signed_thought_is_replayed_to_its_model_and_credential_only(tenants: Proxy) -> None:
    """Q1: one tenant's second key, or another model, gets a signature of its own."""
    body = thinks("case Q1")
    mine: Any = {"key": "sk-twokeys"}
    assert ask(tenants, MESSAGES, body, **mine).exact == MISS
    assert ask(tenants, MESSAGES, body, key="sk-twokeys-b").exact == MISS
    assert ask(tenants, MESSAGES, {**body, "model": "mock-large"}, **mine).exact == MISS
    again = ask(tenants, MESSAGES, body, **mine)
    assert again.exact["hit"] is True
    assert again.json["content"][0]["signature"].startswith("mock")


class _Unsigned(BaseHTTPRequestHandler):
    """Answers a Messages request with a thought that nobody signed, as other providers do."""

    STREAM = (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":'
        '"message","role":"assistant","model":"m","content":[],"stop_reason":null,'
        '"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"thinking","thinking":"","signature":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"thinking_delta","thinking":"Hm."}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":1,'
        '"content_block":{"type":"text","text":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
        '"delta":{"type":"text_delta","text":"Yes."}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n'
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn",'
        '"stop_sequence":null},"usage":{"output_tokens":4}}\n\n'
        'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = self.STREAM.encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def unsigned() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Unsigned) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_an_unsigned_thought_keeps_its_empty_signature_and_gets_no_signature_delta() -> None:
    """Q3: the shape that came is the shape that is replayed, as a stream and as JSON."""
    with unsigned() as upstream, serving(upstream) as proxy:
        body = body_of(MESSAGES, "case Q3", stream=True)
        assert "hit" not in ask(proxy, MESSAGES, body).exact
        stream = ask(proxy, MESSAGES, body)
        assert stream.exact["hit"] is True
        assert b"signature_delta" not in stream.body
        opened = [one for one in events(stream) if one["type"] == "content_block_start"]
        assert opened[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
        whole = ask(proxy, MESSAGES, {**body, "stream": False})
        assert whole.exact["hit"] is True
        thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
        assert whole.json["content"] == [thought, {"type": "text", "text": "Yes."}]


@pytest.mark.parametrize("directive", ["no-cache", "no-store"])
def test_a_bypass_reaches_a_cache_behind_this_one(proxy: Proxy, directive: str) -> None:
    """R1: `Cache-Control` and another gateway's own skip header go upstream as they came."""
    proxy.post(CHAT, chat_body("case R1"), cache_control=directive, cf_aig_skip_cache="true")
    assert proxy.mock is not None
    sent = dict(proxy.mock.calls.last[-1]["headers"])
    assert sent[b"cache-control"] == directive.encode()
    assert sent[b"cf-aig-skip-cache"] == b"true"


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ({"no-cache": True}, b"no-cache"),
        ({"no-store": True, "s-maxage": 60}, b"no-store, max-age=60"),
        ({"use-cache": False}, b"no-store"),
        ({"ttl": 60}, None),
    ],
)
def test_a_bypass_in_litellms_field_reaches_a_cache_behind_this_one(
    proxy: Proxy, field: Body, sent: bytes | None
) -> None:
    """R1: the field is stripped, so its wish goes upstream as a header."""
    assert proxy.chat(f"case R1 {field}", cache=field).status == 200
    assert proxy.mock is not None
    assert dict(proxy.mock.calls.last[-1]["headers"]).get(b"cache-control") == sent
    assert b'"cache"' not in proxy.mock.calls.last[-1]["body"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_a_hit_is_marked_and_has_a_request_id_of_its_own(proxy: Proxy, path: str) -> None:
    """R4: a replay can be told from the live answer by its headers."""
    body = body_of(path, "case R4")
    live, hit = ask(proxy, path, body), ask(proxy, path, body)
    assert "hit" not in live.exact
    assert "age" not in live.headers
    assert hit.exact["hit"] is True
    assert int(hit.headers["age"]) >= 0
    name = "request-id" if path == MESSAGES else "x-request-id"
    assert live.headers[name] != hit.headers[name]


def test_a_hit_does_not_evade_the_tenants_limit(tenants: Proxy) -> None:
    """R4: `requests_in_flight` counts whoever would be answered from the cache too."""
    limited: Any = {"authorization": "Bearer sk-limited"}

    async def busy() -> Answer:
        body = chat_body("case R4 slow")
        slow = asyncio.create_task(
            post(tenants.url, body, baggage=in_baggage("delay=800"), **limited)
        )
        await asyncio.sleep(0.3)
        refused = await post(tenants.url, chat_body("case R4 cached"), **limited)
        await slow
        return refused

    tenants.chat("case R4 cached", key="sk-limited")
    assert tenants.chat("case R4 cached", key="sk-limited").exact["hit"] is True
    assert asyncio.run(busy()).status == 429
    assert tenants.chat("case R4 cached", key="sk-limited").exact["hit"] is True
