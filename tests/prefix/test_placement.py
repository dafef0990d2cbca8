"""Where breakpoints go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.messages import Api
from trivet.policies.prefix_model import PrefixPolicy
from trivet.prefix.caches import Billed, Refused, make_cache
from trivet.prefix.markers.placement import as_sent, place_breakpoints
from trivet.prefix.markers.rules import CacheRules, rules_for
from trivet.prefix.markers.stability import NOTHING_SEEN, Stability, prompt_of
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, Outline, outline_of

Body = dict[str, Any]
LONG = "word " * 5000
RULES = rules_for("anthropic", "claude-opus-5")
AUTO = PrefixPolicy()


def user(*texts: str) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def said(*texts: str) -> Body:
    return {**user(*texts), "role": "assistant"}


TOOLS = [{"name": "a", "description": LONG}, {"name": "b"}]


def claude(*messages: Body, **fields: Any) -> Outline:
    body = {"model": "claude-opus-5", "messages": list(messages), **fields}
    return outline_of(Api.MESSAGES, body)


class Traffic:
    """Requests of one tenant and route, one after the other."""

    def __init__(self, rules: CacheRules = RULES, policy: PrefixPolicy = AUTO) -> None:
        self.rules, self.policy = rules, policy
        self.stability = Stability()

    def ask(self, outline: Outline, now: float, tenant: str = "a") -> list[Any]:
        prompt = prompt_of(tenant, "route", outline, now)
        seen = self.stability.view(prompt)
        marks = place_breakpoints(outline, self.rules, seen, self.policy, now)
        self.stability.see(prompt, self.rules, marks)
        return [mark.place if not mark.ttl else (*mark.place, mark.ttl) for mark in marks]


def first(outline: Outline, policy: PrefixPolicy = AUTO, rules: CacheRules = RULES) -> list[Any]:
    marks = place_breakpoints(outline, rules, NOTHING_SEEN, policy, 0.0)
    return [mark.place if not mark.ttl else (*mark.place, mark.ttl) for mark in marks]


class TestFirstRequests:
    def test_an_agents_prompt_is_marked_at_every_end(self) -> None:
        outline = claude(user("do it"), tools=TOOLS, system=[{"type": "text", "text": "s"}])
        assert first(outline) == [("tools", 1), ("system", 0), ("messages", 0, "content", 0)]

    def test_a_conversation_is_marked_at_its_end_and_at_the_turn_before(self) -> None:
        outline = claude(user("one"), said("two"), user("x", "y"), system=LONG)
        assert first(outline) == [
            ("system",),
            ("messages", 0, "content", 0),
            ("messages", 2, "content", 1),
        ]

    def test_one_question_is_not_written_but_the_system_prompt_is(self) -> None:
        assert first(claude(user(LONG), system=LONG)) == [("system",)]

    def test_one_question_alone_is_not_marked(self) -> None:
        assert first(claude(user(LONG))) == []

    def test_what_the_model_is_to_go_on_from_is_not_the_end(self) -> None:
        """A prefilled answer is another one in the next request."""
        outline = claude(user("one"), said("It is"), tools=TOOLS)
        assert first(outline)[-1] == ("messages", 0, "content", 0)

    def test_a_question_given_as_a_string_is_its_message(self) -> None:
        outline = claude({"role": "user", "content": "do it"}, tools=TOOLS)
        assert first(outline) == [("tools", 1), ("messages", 0)]


class TestWhatTakesNone:
    def test_thinking_and_empty_text(self) -> None:
        thinking = {"type": "thinking", "thinking": "h", "signature": "s"}
        result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
        messages = [
            user("one"),
            {"role": "assistant", "content": [thinking]},
            {"role": "user", "content": [result, {"type": "text", "text": ""}]},
        ]
        outline = claude(*messages, tools=TOOLS)
        assert first(outline)[-1] == ("messages", 2, "content", 0)

    def test_tools_whose_loading_is_deferred(self) -> None:
        outline = claude(user("q"), tools=[TOOLS[0], {"name": "z", "defer_loading": True}])
        assert first(outline)[0] == ("tools", 0)

    def test_messages_of_another_shape(self) -> None:
        odd = {"role": "user", "content": {"type": "text", "text": "x"}}
        assert first(claude(odd, tools=TOOLS))[0] == ("tools", 1)

    @pytest.mark.parametrize("policy", [PrefixPolicy(enabled=False), PrefixPolicy(mark="never")])
    def test_a_policy_that_wants_none(self, policy: PrefixPolicy) -> None:
        assert first(claude(user("q"), tools=TOOLS), policy) == []

    def test_a_request_with_marks_of_its_own(self) -> None:
        assert first(claude(user("q"), tools=TOOLS, cache_control={"type": "ephemeral"})) == []
        marked = {**TOOLS[0], "cache_control": {"type": "ephemeral"}}
        assert first(claude(user("q"), tools=[marked])) == []

    def test_a_prefix_below_the_minimum(self) -> None:
        """Case L9: 4,096 tokens for this model."""
        rules = rules_for("anthropic", "claude-opus-4-5")
        tools = [{"name": "a", "description": "word " * 2000}]
        assert first(claude(user("q"), tools=tools), rules=rules) == []

    def test_a_model_that_places_its_own(self) -> None:
        outline = outline_of(Api.CHAT, {"model": "gpt-4o", "messages": [user(LONG)]})
        assert first(outline, rules=rules_for("openai", "gpt-4o")) == []

    def test_an_empty_prompt(self) -> None:
        assert first(outline_of(Api.MESSAGES, {"model": "m"})) == []


class TestPinned:
    BODY = (user("one"), said("two"), user("x", "y"))

    def test_the_policy_names_the_places(self) -> None:
        outline = claude(*self.BODY, tools=TOOLS, system="s")
        policy = PrefixPolicy(mark=("last", "system", "history"))
        assert first(outline, policy) == [
            ("system",),
            ("messages", 1, "content", 0),
            ("messages", 2, "content", 1),
        ]

    def test_the_policy_names_the_lifetime(self) -> None:
        outline = claude(*self.BODY, tools=TOOLS)
        for policy in (PrefixPolicy(ttl="1h"), PrefixPolicy(ttl="1h", mark=("tools", "last"))):
            found = first(outline, policy)
            assert found
            assert {place[-1] for place in found} == {"1h"}

    def test_places_that_are_not_there_are_left_out(self) -> None:
        policy = PrefixPolicy(mark=("tools", "history"))
        assert first(claude(user("one"), system=LONG), policy) == []


class TestLearned:
    def test_a_block_that_varies_is_not_marked_but_the_one_before_it_is(self) -> None:
        """Case L1: a clock behind the rules."""
        traffic = Traffic()

        def at(now: float) -> list[Any]:
            clock = {"type": "text", "text": f"It is {now}."}
            system = [{"type": "text", "text": LONG}, clock]
            return traffic.ask(claude(user("q"), system=system), now)

        assert at(0) == [("system", 1)]
        assert [at(now) for now in (20, 40, 60)] == [[("system", 0)]] * 3

    def test_a_system_prompt_in_one_block_that_varies_is_left_alone(self) -> None:
        traffic = Traffic()
        found = [
            traffic.ask(claude(user("q"), system=f"It is {now}. {LONG}"), now)
            for now in range(0, 200, 20)
        ]
        assert found == [[("system",)]] * 2 + [[]] * 8

    def test_the_tools_before_a_system_prompt_that_varies_are_marked(self) -> None:
        traffic = Traffic()
        for now in range(0, 100, 20):
            found = traffic.ask(claude(user("q"), tools=TOOLS, system=f"It is {now}."), now)
        assert found[0][:2] == ("tools", 1)
        assert {place[0] for place in found} == {"tools", "messages"}

    def test_questions_that_nobody_continues_are_no_longer_written(self) -> None:
        traffic = Traffic()
        for number in range(30):
            found = traffic.ask(claude(user(f"question {number}"), tools=TOOLS), 60.0 * number)
        assert found == [("tools", 1)]

    def test_chats_without_tools_are_written_once_they_are_seen_to_go_on(self) -> None:
        traffic = Traffic()
        for number in range(6):
            opening, now = user(f"question {number}", LONG), 100.0 * number
            found = traffic.ask(claude(opening), now)
            traffic.ask(claude(opening, said("a"), user("more")), now + 20)
        assert found == [("messages", 0, "content", 1)]

    def test_a_prompt_used_every_quarter_of_an_hour_is_kept_for_one(self) -> None:
        traffic = Traffic()
        for number in range(30):
            found = traffic.ask(claude(user(f"{number}"), system=LONG), 900.0 * number)
        assert found == [("system", "1h")]

    def test_a_prompt_used_twice_a_day_is_not_kept(self) -> None:
        traffic = Traffic()
        for number in range(40):
            found = traffic.ask(claude(user(f"{number}"), system=LONG), 40_000.0 * number)
        assert found == []

    def test_tenants_learn_nothing_from_each_other(self) -> None:
        traffic = Traffic()
        for now in range(0, 200, 20):
            traffic.ask(claude(user("q"), system=f"It is {now}. {LONG}"), now)
        found = traffic.ask(claude(user("q"), system=f"It is noon. {LONG}"), 200, "b")
        assert found == [("system",)]


def step(number: int, blocks: int = 1) -> list[Body]:
    calls = [{"type": "tool_use", "id": f"{number}.{at}", "name": "a", "input": {}}
             for at in range(blocks)]  # fmt: skip
    given = [{"type": "tool_result", "tool_use_id": f"{number}.{at}", "content": "word " * 300}
             for at in range(blocks)]  # fmt: skip
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": given}]


class TestLookBack:
    def test_what_was_written_stays_within_reach_of_a_breakpoint(self) -> None:
        """A step of 12 calls adds 24 blocks: more than a breakpoint looks back."""
        traffic, cache = Traffic(), make_cache("anthropic")
        messages = [user("do it")]
        read = 0
        for number, blocks in enumerate((1, 12, 1, 30, 2)):
            outline = claude(*messages, tools=TOOLS, system="s")
            prompt = prompt_of("a", "route", outline, number * 10.0)
            seen = traffic.stability.view(prompt)
            marks = place_breakpoints(outline, RULES, seen, AUTO, number * 10.0)
            traffic.stability.see(prompt, RULES, marks)
            billed = cache.ask("a", as_sent(outline, marks), number * 10.0)
            assert isinstance(billed, Billed)
            assert billed.read == read
            read = outline.tokens
            messages += step(number, blocks)

    def test_without_memory_the_turn_before_is_marked_all_the_same(self) -> None:
        messages = [user("do it"), *step(0), *step(1, 12)]
        outline = claude(*messages, tools=TOOLS)
        assert ("messages", 2, "content", 0) in first(outline)

    def test_nova_looks_at_the_breakpoint_only(self) -> None:
        rules = rules_for("bedrock", "amazon.nova-pro-v1:0")
        turns: list[Body] = [{"role": "user", "content": [{"text": LONG}]}]
        traffic = Traffic(rules)
        seen = []
        for now in (0.0, 10.0):
            body = {"system": [{"text": LONG}], "messages": list(turns)}
            outline = native_outline(NativeApi.CONVERSE, "amazon.nova-pro-v1:0", body)
            seen.append(traffic.ask(outline, now))
            turns += [{"role": "assistant", "content": [{"text": "a"}]},
                      {"role": "user", "content": [{"text": "b"}]}]  # fmt: skip
        assert seen[0][-1] == ("messages", 0, "content", 0)
        assert {("messages", 0, "content", 0), ("messages", 2, "content", 0)} <= set(seen[1])


class TestOpenAI:
    RULES = rules_for("openai", "gpt-6-astra")

    def chat(self, *messages: Body, **fields: Any) -> Outline:
        body = {"model": "gpt-6-astra", "messages": list(messages), **fields}
        return outline_of(Api.CHAT, body)

    def test_the_end_of_the_system_prompt_is_marked_and_the_rest_is_implicit(self) -> None:
        system = {"role": "system", "content": LONG}
        outline = self.chat(system, user("one"), said("two"), user("three"), tools=[{"a": LONG}])
        assert first(outline, rules=self.RULES) == [("messages", 0)]

    def test_instructions_take_none(self) -> None:
        body = {"model": "gpt-6-astra", "instructions": LONG, "input": "hello"}
        assert first(outline_of(Api.RESPONSES, body), rules=self.RULES) == []

    def test_a_mode_of_the_callers_is_respected(self) -> None:
        system = {"role": "system", "content": LONG}
        outline = self.chat(system, prompt_cache_options={"mode": "explicit"})
        assert first(outline, rules=self.RULES) == []

    def test_the_longer_lifetime_is_of_the_responses_api_only(self) -> None:
        system = {"role": "system", "content": LONG}
        policy = PrefixPolicy(ttl="1h")
        assert first(self.chat(system), policy, self.RULES) == [("messages", 0)]
        body = {"model": "gpt-6-astra", "input": [system, user("q")]}
        outline = outline_of(Api.RESPONSES, body)
        assert first(outline, policy, self.RULES) == [("input", 0, "12h")]

    def test_what_lies_further_back_than_it_looks_is_marked(self) -> None:
        traffic = Traffic(self.RULES)
        messages = [{"role": "system", "content": LONG}, user("one")]
        traffic.ask(self.chat(*messages), 0.0)
        for number in range(12):
            messages += [said(f"a{number}"), user(f"q{number}")]
        found = traffic.ask(self.chat(*messages), 10.0)
        assert found == [("messages", 0), ("messages", 1, "content", 0)]


TEXTS = st.sampled_from(["", "x", "short", "word " * 700, "word " * 3000])
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, TEXTS),
    st.builds(lambda text: {"type": "tool_result", "tool_use_id": "t", "content": text}, TEXTS),
)
MESSAGES = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant"]),
    st.one_of(TEXTS, st.lists(BLOCKS, max_size=25)),
)
POLICIES = st.builds(
    PrefixPolicy,
    mark=st.one_of(
        st.sampled_from(["auto", "never"]),
        st.lists(st.sampled_from(["tools", "system", "history", "last"]), max_size=4).map(tuple),
    ),
    ttl=st.sampled_from(["auto", "5m", "1h"]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(MESSAGES, min_size=1, max_size=5),
            st.one_of(TEXTS, st.lists(BLOCKS.filter(lambda b: b["type"] == "text"), max_size=3)),
            st.integers(0, 2),
            st.sampled_from([1.0, 200.0, 900.0, 5000.0]),
        ),
        min_size=1,
        max_size=6,
    ),
    POLICIES,
    st.sampled_from(["claude-opus-5", "claude-opus-4-5"]),
)
def test_no_placement_is_ever_refused(
    requests: list[Any], policy: PrefixPolicy, model: str
) -> None:
    """Never a fifth, never 1h after 5m, never on thinking, empty text or a part of a block."""
    rules = rules_for("anthropic", model)
    stability, cache, now = Stability(), make_cache("anthropic"), 0.0
    for messages, system, tools, gap in requests:
        now += gap
        body = {"model": model, "messages": messages, "system": system, "tools": TOOLS[:tools]}
        outline = outline_of(Api.MESSAGES, body)
        prompt = prompt_of("a", "r", outline, now)
        marks = place_breakpoints(outline, rules, stability.view(prompt), policy, now)
        stability.see(prompt, rules, marks)
        assert len(marks) <= 4
        assert not isinstance(cache.ask("a", as_sent(outline, marks), now), Refused)
