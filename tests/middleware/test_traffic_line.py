"""What is recorded of a request: texts only where the policy says so, and how it ended."""

from __future__ import annotations

from typing import Any

import pytest
from openai_bodies import call as tool_call
from openai_bodies import calling
from traffic_parts import PLAN, SECRET, call_of, entry_of, policy

from trivet.middleware.call import Call, Note
from trivet.middleware.semantic_tier.asking import asked_of
from trivet.middleware.traffic.line import Ended, line_of
from trivet.policies.eligibility import Bypass
from trivet.policies.traffic import RecordedUsage, Traffic, read_line, write_line
from trivet.semantic.asked import Asked

OPEN = policy(store_text=True)


def line(call: Call, answer: dict[str, Any] | None = None, *, secret: bytes = SECRET) -> Traffic:
    entry = entry_of(call, answer) if call.question else None
    return line_of(call, Ended(1000.5, entry, 0.25), secret)


class TestTexts:
    def test_they_are_not_recorded_unless_the_policy_says_so(self) -> None:
        row = line(call_of("a private question"))
        raw = write_line(row)
        assert (row.text, row.answer.text) == (None, None)
        assert b"private" not in raw
        assert b"Hello" not in raw

    def test_both_are_recorded_where_the_policy_says_so(self) -> None:
        row = line(call_of("how high is it", owner=OPEN))
        assert (row.text, row.answer.text) == ("how high is it", "Hello there.")

    def test_equal_questions_have_equal_digests_within_a_tenant_only(self) -> None:
        one, again, other = line(call_of("a")), line(call_of("a")), line(call_of("b"))
        elsewhere = line(call_of("a", owner=policy("t2")))
        assert one.text_digest == again.text_digest
        assert len({one.text_digest, other.text_digest, elsewhere.text_digest}) == 3

    def test_digests_are_worth_nothing_without_the_secret(self) -> None:
        one, other = line(call_of("a")), line(call_of("a"), secret=b"x" * 32)
        for name in ("key", "rest", "text_digest", "principal"):
            assert getattr(one, name) != getattr(other, name)

    def test_the_rest_is_equal_for_other_texts_and_differs_for_other_systems(self) -> None:
        system = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
        assert line(call_of("a")).rest == line(call_of("b")).rest
        assert line(call_of("a")).rest != line(call_of("a", messages=system)).rest
        assert line(call_of("a")).key != line(call_of("b")).key


class TestWhatIsNotAsked:
    def test_tools_and_turns_are_reasons(self) -> None:
        tools = [{"type": "function", "function": {"name": "f"}}]
        turns = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
        assert line(call_of(tools=tools)).unasked == "tools"
        assert line(call_of(messages=turns)).unasked == "turns"
        row = line(call_of(messages=[{"role": "assistant", "content": "a"}]))
        assert (row.unasked, row.rest, row.text_digest) == ("not-a-question", None, None)

    def test_policies_may_open_both(self) -> None:
        tools = [{"type": "function", "function": {"name": "f"}}]
        turns = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
        call = call_of(tools=tools, messages=turns, owner=policy(tools="allow", max_turns=2))
        assert isinstance(asked_of(call.request, call.policy.semantic), Asked)


class TestAnswer:
    def test_a_stored_one(self) -> None:
        row = line(call_of())
        answer = row.answer
        assert (answer.tier, answer.reason, answer.plain, answer.upstream_s) == (
            "model",
            "",
            True,
            0.5,
        )
        assert (answer.price, answer.usage) == (0.25, RecordedUsage(input=10, output=2))
        assert answer.length == len(entry_of(call_of()).body)

    def test_one_that_calls_tools_is_not_plain(self) -> None:
        answer = line(call_of(owner=OPEN), calling(tool_call())).answer
        assert (answer.plain, answer.text) == (False, None)

    @pytest.mark.parametrize(
        ("note", "tier", "reason"),
        [
            (Note("hit", "exact"), "exact", ""),
            (Note("collapsed", "exact", stored=True), "exact", ""),
            (Note("stale", "exact", "stale-if-error"), "exact", "stale-if-error"),
            (Note("hit", "semantic"), "semantic", ""),
            (Note("miss", None, "status-429"), "model", "status-429"),
            (Note("miss", None, "expired", stored=True), "model", ""),
            (Note("error"), "model", "error"),
        ],
    )
    def test_where_it_came_from_and_why_it_is_not_stored(
        self, note: Note, tier: str, reason: str
    ) -> None:
        call = call_of()
        call.note = note
        answer = line(call).answer
        assert (answer.tier, answer.reason, answer.usage) == (tier, reason, None)

    def test_the_text_of_a_similar_questions_answer_is_left_out(self) -> None:
        call = call_of(owner=OPEN)
        call.note = Note("hit", "semantic")
        answer = line(call).answer
        assert (answer.text, answer.plain) == (None, True)


class TestEligibility:
    def test_a_bypass_has_its_reason_and_a_key(self) -> None:
        row = line(call_of(plan=Bypass("sampled")))
        assert (row.exact.reason, row.exact.store, len(row.key)) == ("sampled", False, 64)

    def test_the_plan_is_recorded(self) -> None:
        plan = PLAN._replace(lookup=False, max_age=5.0, pool=3)
        exact = line(call_of(plan=plan)).exact
        assert (exact.reason, exact.store, exact.ttl) == ("no-cache", True, 60.0)
        assert (exact.max_age, exact.min_fresh, exact.pool) == (5.0, None, 3)

    def test_writers_are_known(self) -> None:
        owner = policy(writers=["ann"])
        ann, bob = call_of(owner=owner, principal="ann"), call_of(owner=owner, principal="bob")
        assert (line(ann).may_write, line(bob).may_write) == (True, False)
        assert line(ann).principal != line(bob).principal


@pytest.mark.parametrize("text", ["a\nb", "\x00", "\u2028", "مرحبا", "🙂", "\\n", '"', "\x1b[2J"])
def test_any_text_is_one_line_and_comes_back(text: str) -> None:
    row = line(call_of(text, owner=OPEN))
    raw = write_line(row)
    assert raw.count(b"\n") == 1
    assert read_line(raw, "f", 1) == row
    assert row.text == text if text.strip() else row.unasked == "empty"


def test_half_a_surrogate_pair_does_not_make_a_line_unreadable() -> None:
    row = line(call_of("\ud800", owner=OPEN, model="m\ud800", user="\ud800"))
    assert read_line(write_line(row), "f", 1) == row
    assert (row.model, row.unasked) == ("m?", "unreadable")
