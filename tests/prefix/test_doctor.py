"""The live doctor: which breaks it tells, which it does not, and what it keeps."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api, Usage
from trivet.prefix.doctor.fingerprint import Maker
from trivet.prefix.doctor.kin import kin_of
from trivet.prefix.doctor.lint import lost_tokens, parted, warnings
from trivet.prefix.doctor.live import Doctor, Finding, Prompted
from trivet.prefix.doctor.places import shown
from trivet.prefix.doctor.remedies import CAUSES
from trivet.prefix.markers.rules import NOTHING, CacheRules, rules_for
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import Level, NativeApi, outline_of

RULES = "Answer in the language of the question, in short sentences. " * 60
UNREAD = Usage(1_000, 10)
ANTHROPIC = rules_for("anthropic", "claude-sonnet-5")


def body(
    *messages: str, system: str = RULES, tools: list[dict[str, Any]] | None = None, **more: Any
) -> dict[str, Any]:
    said = [
        {"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(messages)
    ]
    return {
        "model": "claude-sonnet-5",
        "system": system,
        "tools": tools or [],
        "messages": said,
        **more,
    }


class Seer:
    """A doctor, asked about one body after the other."""

    def __init__(self, most: int = 32 << 20) -> None:
        self.doctor = Doctor(b"k" * 16, most)
        self.now = 0.0

    def see(
        self,
        one: dict[str, Any],
        usage: Usage | None = UNREAD,
        rules: CacheRules = NOTHING,
        tenant: str = "t1",
        *,
        keep_text: bool = False,
    ) -> Finding | None:
        self.now += 1
        outline = outline_of(Api.MESSAGES, one)
        return self.doctor.see(
            Prompted(tenant, "messages", outline, usage, self.now, rules, keep_text)
        )


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Finds {name}. " * 40, "input_schema": {"type": "object"}}


class TestBreaks:
    def test_l1_a_clock_in_the_system_prompt_is_named_with_its_place(self) -> None:
        seer, head = Seer(), "You help people with trivets. "
        for clock in ("15:09:20", "15:09:48"):
            found = seer.see(body("hi", system=f"{head}It is {clock}. {RULES}"))
        assert found is not None
        assert (found.cause, shown(found.level, found.place, found.char)) == (
            "timestamp",
            f"system, character {len(head) + 6}",
        )
        assert found.lost_tokens > 800
        assert found.new

    def test_l2_tools_in_another_order_are_named(self) -> None:
        seer, tools = Seer(), [tool("orders"), tool("stock"), tool("people")]
        seer.see(body("hi", tools=tools))
        found = seer.see(body("hi", tools=[tools[0], tools[2], tools[1]]))
        assert found is not None
        assert (found.cause, found.place) == ("tools-reordered", ("tools", 1))

    def test_l3_arguments_serialised_anew_are_named(self) -> None:
        seer = Seer()

        def chat(arguments: str) -> dict[str, Any]:
            call = {
                "id": "c",
                "type": "function",
                "function": {"name": "f", "arguments": arguments},
            }
            return {
                "model": "gpt-5.6",
                "messages": [
                    {"role": "user", "content": "Find the order, please."},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", "content": RULES},
                ],
            }

        for text in ('{"order": 17, "language": "en"}', '{"language": "en", "order": 17}'):
            outline = outline_of(Api.CHAT, chat(text))
            found = seer.doctor.see(Prompted("t1", "chat", outline, UNREAD, 1.0))
        assert found is not None
        assert (found.cause, found.place[:2]) == ("keys-reordered", ("messages", 1))

    def test_the_second_of_a_kind_is_not_new(self) -> None:
        seer = Seer()
        found = [
            seer.see(body("hi", system=f"Session {number:08x}a1. {RULES}"))
            for number in (10**6, 10**7, 10**8)
        ]
        assert [one and one.new for one in found] == [None, True, False]

    def test_a_compacted_history_is_named(self) -> None:
        seer = Seer()
        said = [f"Message {number}: {'words ' * 80}" for number in range(9)]
        seer.see(body(*said))
        found = seer.see(body(said[0], "In short: all of it.", *said[6:], "More.", "And now?"))
        assert found is not None
        assert (found.cause, found.place[:2]) == ("history-compacted", ("messages", 1))

    def test_thinking_that_is_toggled_costs_the_messages_level(self) -> None:
        seer = Seer()
        said = [f"Message {number}: {'words ' * 80}" for number in range(3)]
        seer.see(body(*said))
        found = seer.see(body(*said, thinking={"type": "enabled", "budget_tokens": 1024}))
        assert found is not None
        assert (found.cause, found.level) == ("thinking-changed", Level.MESSAGES)

    def test_the_text_is_shown_only_where_it_may_be(self) -> None:
        for keep in (False, True):
            seer = Seer()
            seer.see(body("hi", system=f"It is 15:09:20. {RULES}"), keep_text=keep)
            found = seer.see(body("hi", system=f"It is 15:10:33. {RULES}"), keep_text=keep)
            assert found is not None
            assert ("It is 15:10:33." in found.text) == keep

    def test_names_of_the_callers_own_are_shown_only_where_text_may_be(self) -> None:
        for keep in (False, True):
            seer = Seer()
            for told in ("an old one", "a new one"):
                made = tool("orders")
                described = f"{'Of the plan. ' * 9} It is {told} {'of the plan. ' * 9}"
                fields = {"secret_plan": {"type": "string", "description": described}}
                made["input_schema"] = {"type": "object", "properties": fields}
                found = seer.see(body("hi", tools=[made]), keep_text=keep)
            assert found is not None
            assert found.cause == "tool-edited"
            assert ("secret_plan" in found.place) == keep


class TestWhatIsNoBreak:
    def test_a_first_prompt(self) -> None:
        assert Seer().see(body("hi")) is None

    def test_other_questions_under_one_system_prompt(self) -> None:
        seer = Seer()
        assert [seer.see(body(text)) for text in ("hi", "who?", "why " * 400)] == [None] * 3

    def test_conversations_side_by_side(self) -> None:
        seer, rng = Seer(), random.Random(7)
        talks = [[f"Question {talk}: {'words ' * 60}"] for talk in range(6)]
        for turn in range(40):
            talk = rng.choice(talks)
            assert seer.see(body(*talk)) is None
            talk += [f"Answer {turn} {'words ' * 60}", f"And {turn}? {'words ' * 60}"]

    def test_another_tenants_prompt(self) -> None:
        seer = Seer()
        seer.see(body("hi", system=f"It is 15:09:20. {RULES}"))
        other = body("hi", system=f"It is 15:10:20. {RULES}")
        assert seer.see(other, tenant="t2") is None

    def test_a_prompt_that_no_provider_has_any_more(self) -> None:
        seer = Seer()
        seer.see(body("hi", system=f"It is 15:09:20. {RULES}"), rules=ANTHROPIC)
        seer.now += 3_600
        later = body("hi", system=f"It is 16:09:20. {RULES}")
        assert seer.see(later, rules=ANTHROPIC) is None


class TestWhyNothingWasRead:
    def test_l9_a_prefix_below_the_minimum_is_named(self) -> None:
        seer, short = Seer(), "word " * 720  # 900 tokens
        for text in ("hi", "ho"):
            found = seer.see(body(text, system=short), rules=ANTHROPIC)
        assert found is not None
        assert found.cause == "below-minimum"
        assert found.told == "900 shared tokens are below the minimum of 1,024"

    def test_a_prefix_shorter_than_an_engines_block_is_named(self) -> None:
        # vllm-project/vllm#54607: 240 shared tokens, blocks of 784.
        seer, engine = Seer(), NOTHING._replace(min_tokens=784)
        for text in ("hi", "ho"):
            found = seer.see(body(text, system="word " * 192), rules=engine)
        assert found is not None
        assert (found.cause, found.shared_tokens) == ("below-minimum", 240)

    def test_nothing_is_said_where_something_was_read(self) -> None:
        seer = Seer()
        for text in ("hi", "ho"):
            found = seer.see(body(text, system="x" * 99), Usage(99, 1, 20), ANTHROPIC)
        assert found is None

    def test_more_blocks_than_a_breakpoint_looks_back_are_named(self) -> None:
        seer, marker = Seer(), {"cache_control": {"type": "ephemeral"}}

        def marked(count: int) -> dict[str, Any]:
            blocks: list[dict[str, Any]] = [
                {"type": "text", "text": f"block {n}"} for n in range(count)
            ]
            blocks[-1].update(marker)
            return body(system=RULES * 2) | {"messages": [{"role": "user", "content": blocks}]}

        seer.see(marked(1), rules=ANTHROPIC)
        assert seer.see(marked(20), rules=ANTHROPIC) is None
        found = seer.see(marked(41), rules=ANTHROPIC)
        assert found is not None
        assert found.cause == "look-back"
        assert found.told == "21 blocks since the last breakpoint: one looks back 20"


class TestMemory:
    def test_no_text_is_kept(self) -> None:
        seer, secret = Seer(), "the very secret plan of Zanzibar"
        for clock in ("15:09:20", "15:09:48"):
            seer.see(body(f"{secret} at {clock}", system=f"{secret} {clock} {RULES}"))
        gc.collect()
        held, seen = [seer.doctor.__dict__], set()
        while held:
            one = held.pop()
            if id(one) in seen or isinstance(one, type):
                continue
            seen.add(id(one))
            assert not (isinstance(one, str) and "Zanzibar" in one)
            assert not (isinstance(one, bytes) and b"Zanzibar" in one)
            if isinstance(one, (dict, list, tuple, set)) or type(one).__module__.startswith(
                "trivet."
            ):
                held += gc.get_referents(one)

    @pytest.mark.parametrize("tenants", [1, 50])
    def test_it_stays_within_its_bound(self, tenants: int) -> None:
        seer, rng = Seer(most=400_000), random.Random(1)
        for number in range(150):
            words = " ".join(f"{rng.getrandbits(40):x}" for _ in range(150))
            seer.see(body(words), tenant=f"t{number % tenants}")
            assert seer.doctor.size <= 400_000

    def test_a_long_conversation_is_not_kept_many_times(self) -> None:
        seer, said = Seer(), []
        for turn in range(60):
            said.append(f"Message {turn}: {'words and more ' * 100}")
            seer.see(body(*said))
        once = sum(len(text) for text in said)
        assert seer.doctor.size < 4 * once


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["text", "image", "thinking", "2026-11-30", "a@b.de", "\ud83d", "Anna"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "name", "function", "x"]), inner
        )
    ),
    max_leaves=12,
)
BODIES = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("tools", "functions", "system", "messages", "input", "instructions", "prompt", "thinking",
         "text", "contents", "toolConfig", "cache_control", "model"),
        JSON,
    ),
)  # fmt: skip


class TestWhateverComes:
    @given(st.lists(BODIES, min_size=2, max_size=4), st.sampled_from([*Api, *NativeApi]))
    def test_nothing_is_raised_and_the_place_is_in_the_prompt(
        self, bodies: list[dict[str, Any]], api: Api | NativeApi
    ) -> None:
        doctor = Doctor(b"k" * 16, least=1)
        previous = None
        for at, one in enumerate(bodies):
            if isinstance(api, NativeApi):
                outline = native_outline(api, "m", one)
            else:
                outline = outline_of(api, one)
            found = doctor.see(
                Prompted("t", "r", outline, UNREAD, float(at), ANTHROPIC, keep_text=True)
            )
            assert found is None or 0 <= found.shared_tokens <= outline.tokens
            if previous is not None:
                apart = parted(previous, outline)
                assert apart is None or apart.cause.name in CAUSES
            previous = outline
            warnings(outline)


WORDS = st.sampled_from(["", "hi", RULES[:300], RULES[:900], "It is 15:09:20.", "It is 15:09:21."])
TOOLS = st.lists(
    st.builds(
        lambda name, text: {"name": name, "description": text, "input_schema": {}},
        st.sampled_from("abc"),
        WORDS,
    ),
    max_size=5,
)
BODIES = st.builds(
    lambda said, system, tools: body(*said, system=system, tools=tools),
    st.lists(WORDS, min_size=1, max_size=5),
    WORDS,
    TOOLS,
)


@given(BODIES, BODIES)
def test_what_is_shared_and_what_is_lost_are_no_more_than_the_prompt(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    outlines = [outline_of(Api.MESSAGES, one) for one in (old, new)]
    maker = Maker(b"k" * 16)
    kin = kin_of(*map(maker.make, outlines))
    assert 0 <= kin.lost <= outlines[1].tokens - kin.shared
    found = parted(*outlines)
    shared = 0 if found is None else found.where.shared_tokens
    assert 0 <= lost_tokens(*outlines) <= outlines[1].tokens - shared


def test_all_of_tools_that_came_in_another_order_is_counted_once() -> None:
    tools = [
        {"name": f"tool_{at}", "description": RULES[:800], "input_schema": {}} for at in range(6)
    ]
    old, new = (outline_of(Api.MESSAGES, body(tools=order)) for order in (tools, tools[::-1]))
    assert 0 < lost_tokens(old, new) <= new.tokens
