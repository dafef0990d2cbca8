"""The shape of a prompt in recorded traffic: what is in it, and what can be told from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from traffic_parts import SECRET, call_of, entry_of

from trivet.messages import Api
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.prompt_record import (
    PromptRecorder,
    fingerprint_of_record,
    outline_of_record,
)
from trivet.middleware.prefix_tier.tier import Sent
from trivet.middleware.traffic.line import Ended, line_of
from trivet.middleware.traffic.log import TrafficLog
from trivet.policies.model import TenantPolicy
from trivet.policies.traffic import Traffic, read_line, write_line
from trivet.prefix.caches import Billed, make_cache
from trivet.prefix.prompts.outline import Mark, chain, outline_of


def owner(**prefix: Any) -> TenantPolicy:
    return TenantPolicy.model_validate({"tenant": "t1", "prefix": {"record": True, **prefix}})


def recorded(call: Call, secret: bytes = SECRET) -> Traffic:
    made = line_of(call, Ended(1.0, None, None), secret, PromptRecorder(secret))
    return read_line(write_line(made), "f", 1)


MESSAGES = [
    {"role": "system", "content": "You know the secret plan. It is 15:09:20."},
    {"role": "user", "content": [{"type": "text", "text": "Tell the secret plan."}]},
]


def test_no_text_is_in_it_unless_the_policy_keeps_it() -> None:
    call = call_of(owner=owner(), messages=MESSAGES)
    raw = write_line(recorded(call))
    assert b"plan" not in raw
    assert b"15:09" not in raw
    kept = recorded(call_of(owner=owner(keep_text=True), messages=MESSAGES)).prompt
    assert kept is not None
    assert kept.body is not None
    assert json.loads(kept.body)["messages"] == MESSAGES


def test_it_is_written_for_calls_of_a_model_only(tmp_path: Path) -> None:
    log = TrafficLog(tmp_path / "log.jsonl", SECRET)
    asked, hit = (call_of(owner=owner(), messages=MESSAGES) for _ in range(2))
    hit.note.tier, hit.note.outcome = "exact", "hit"
    for call in (asked, hit):
        log.record(call, 1.0, entry_of(call))
    log.close()
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    first, second = (read_line(raw, "f", 1) for raw in lines)
    assert first.prompt is not None
    assert first.prompt.route == "chat"
    assert first.prompt.upstream == "up"
    assert second.prompt is None


def test_a_line_of_an_older_version_reads_back() -> None:
    raw = json.loads(write_line(recorded(call_of(owner=owner(), messages=MESSAGES))))
    del raw["prompt"]
    assert read_line(json.dumps(raw).encode(), "f", 1).prompt is None


def test_its_digests_are_worth_nothing_without_the_secret() -> None:
    call = call_of(owner=owner(), messages=MESSAGES)
    one, other = recorded(call).prompt, recorded(call, b"x" * 32).prompt
    assert one is not None
    assert other is not None
    assert not {part.digest for part in one.parts} & {part.digest for part in other.parts}


def test_the_outline_of_a_record_has_the_same_chain_where_prompts_are_the_same() -> None:
    longer = [*MESSAGES, {"role": "assistant", "content": "No."}]
    one = outline_of_record(recorded(call_of(owner=owner(), messages=MESSAGES)))
    other = outline_of_record(recorded(call_of(owner=owner(), messages=longer)))
    assert chain(one) == chain(other)[:2]
    real = outline_of(Api.CHAT, {"model": "m1", "messages": MESSAGES})
    assert [(part.level, part.place, part.tokens) for part in one.parts] == [
        (part.level, part.place, part.tokens) for part in real.parts
    ]


def test_breakpoints_are_in_it() -> None:
    block = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    row = recorded(call_of(owner=owner(), messages=[{"role": "user", "content": [block]}]))
    assert outline_of_record(row).parts[0].mark == Mark("1h")


def sent_with_breakpoints(*strings: str) -> Call:
    """A call whose messages are strings, as it is sent: each is a block with a breakpoint."""
    call = call_of(owner=owner(), messages=[{"role": "user", "content": one} for one in strings])
    marker = {"cache_control": {"type": "ephemeral"}}
    wrapped = [
        {"role": "user", "content": [{"type": "text", "text": one, **marker}]} for one in strings
    ]
    call.sent = Sent(json.dumps({"model": "m1", "messages": wrapped}).encode(), [])
    return call


def test_a_breakpoint_on_a_string_stands_on_the_block_that_was_sent() -> None:
    row = recorded(sent_with_breakpoints("x" * 9_000))
    (part,) = outline_of_record(row).parts
    assert (part.place, part.mark) == (("messages", 0, "content", 0), Mark())
    for provider in ("anthropic", "bedrock"):
        billed = make_cache(provider).ask("t", outline_of_record(row), 0.0)
        assert isinstance(billed, Billed)
        assert billed.writes
    (piece,) = fingerprint_of_record(row).parts
    assert piece.place == ("messages", 0)


def test_a_record_gives_the_fingerprint_that_was_taken() -> None:
    recorder = PromptRecorder(SECRET)
    call = call_of(owner=owner(), messages=MESSAGES, tools=[{"type": "function"}])
    row = line_of(call, Ended(1.0, None, None), SECRET, recorder)
    taken = recorder._maker.make(outline_of(Api.CHAT, json.loads(call.request.forward)))
    assert fingerprint_of_record(read_line(write_line(row), "f", 1)) == taken


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "role": st.sampled_from(["user", "system", "\ud83d", 3]),
                "content": st.text(st.characters(), max_size=9)
                | st.lists(st.dictionaries(st.sampled_from(["type", "text", "\ud800"]), st.text())),
                "tool_calls": st.just([{"id": "c"}]),
            },
        ),
        max_size=4,
    )
)
def test_whatever_is_in_a_body_its_record_reads_back(messages: list[Any]) -> None:
    body = {"model": "m", "messages": messages}
    call = call_of(owner=owner(keep_text=True))
    call = replace(call, request=call.request._replace(forward=json.dumps(body).encode()))
    row = recorded(call)
    assert row.prompt is not None
    outline = outline_of_record(row)
    assert len(outline.parts) == len(outline_of(Api.CHAT, body).parts)
    assert len(fingerprint_of_record(row).parts) == len(outline.parts)
