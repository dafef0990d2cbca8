"""Both prompts' text around a break: only where it may be shown, bounded, and gone when told so."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api, Usage
from trivet.prefix.doctor.live import Doctor, Finding, Prompted
from trivet.prefix.doctor.quotes import member
from trivet.prefix.prompts.outline import Outline, outline_of

RULES = "Answer in the language of the question, in short sentences. " * 60


def outline(system: str, tools: list[dict[str, Any]] | None = None) -> Outline:
    said = [{"role": "user", "content": "hi"}]
    body = {"model": "m", "system": system, "tools": tools or [], "messages": said}
    return outline_of(Api.MESSAGES, body)


def clocked(clock: str) -> Outline:
    return outline(f"You help people. It is {clock}. {RULES}")


class Seer:
    def __init__(self, most: int = 32 << 20) -> None:
        self.doctor = Doctor(b"k" * 16, most)
        self.now = 0.0

    def see(self, one: Outline, *, keep_text: bool = True, tenant: str = "t1") -> Finding | None:
        self.now += 1
        usage = Usage(1_000, 10)
        return self.doctor.see(Prompted(tenant, "r", one, usage, self.now, keep_text=keep_text))


def test_both_texts_are_quoted_from_the_same_character_on() -> None:
    seer = Seer()
    seer.see(clocked("15:09:20"))
    found = seer.see(clocked("15:09:48"))
    assert found is not None
    assert found.quote is not None
    assert found.quote.start == 0
    assert found.quote.old.startswith("You help people. It is 15:09:20. Answer")
    assert found.quote.new.startswith("You help people. It is 15:09:48. Answer")


def test_nothing_is_quoted_where_the_policy_does_not_say_so() -> None:
    seer = Seer()
    seer.see(clocked("15:09:20"), keep_text=False)
    found = seer.see(clocked("15:09:48"), keep_text=False)
    assert found is not None
    assert found.quote is None


def test_texts_are_forgotten_once_the_policy_says_so() -> None:
    seer = Seer()
    seer.see(clocked("15:09:20"))
    with_texts = seer.doctor.size
    seer.see(clocked("15:09:48"), keep_text=False)
    found = seer.see(clocked("15:09:59"))
    assert found is not None
    assert found.quote is not None
    assert found.quote.old == ""
    assert seer.doctor.size > with_texts


def test_a_tenants_prompts_are_forgotten_when_told_so() -> None:
    seer = Seer()
    seer.see(clocked("15:09:20"))
    seer.see(clocked("15:09:20"), tenant="t2")
    seer.doctor.forget("t1")
    assert seer.see(clocked("15:09:48")) is None
    assert seer.see(clocked("15:09:48"), tenant="t2") is not None
    seer.doctor.forget("t1")
    seer.doctor.forget("t2")
    assert seer.doctor.size == 0


def test_what_prompts_have_in_common_is_kept_once() -> None:
    seer = Seer()
    tools = [{"name": "f", "description": "Finds. " * 20_000, "input_schema": {}}]
    for number in range(10):
        seer.see(outline(f"You are number {number}.", tools))
    assert 140_000 < seer.doctor.size < 320_000


def test_texts_count_against_the_bound() -> None:
    seer = Seer(most=400_000)
    for number in range(40):
        seer.see(outline(f"{number} " + chr(65 + number % 26) * 20_000))
    assert seer.doctor.size <= 400_000


def test_a_member_that_only_one_prompt_has_is_quoted_from_that_one() -> None:
    part = outline("s", [{"name": "f", "description": "old", "input_schema": {}}]).parts[0]
    assert member(part, ("description",)) == "old"
    assert member(part, ("input_schema",)) == "{}"
    assert member(part, ("parameters", "x")) is None
    assert member(part, ("description", 99)) is None


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_two_texts_are_quoted_as_what_utf8_can_hold(old: str, new: str) -> None:
    seer = Seer()
    seer.see(outline(f"{old} {RULES}"))
    found = seer.see(outline(f"{new} {RULES}"))
    if found is not None and found.quote is not None:
        found.quote.old.encode()
        found.quote.new.encode()
        assert len(found.quote.new) <= 400
