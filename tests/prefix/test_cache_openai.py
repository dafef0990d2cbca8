"""OpenAI's documented caches, with explicit breakpoints and before: one test a rule."""

from __future__ import annotations

import pytest
from cache_builders import Body, billed, gpt, part, words

from trivet.messages import Api
from trivet.prefix.caches import Billed, CacheModel, Refused, make_cache
from trivet.prefix.prompts.outline import Outline, outline_of

EXPLICIT: Body = {"prompt_cache_options": {"mode": "explicit"}}


@pytest.fixture
def cache() -> CacheModel:
    return make_cache("openai")


def refusal(cache: CacheModel, outline: Outline) -> Refused:
    found = cache.ask("acme", outline, 0.0)
    assert isinstance(found, Refused)
    return found


class TestImplicit:
    def test_the_breakpoint_is_at_the_end_of_the_latest_message(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 2000), part("q", 100))
        assert billed(cache, asked) == Billed(0, 0, (("30m", 2100),), "new")
        assert billed(cache, asked, 1) == Billed(0, 2100)

    def test_a_shared_system_prompt_alone_is_not_reused(self, cache: CacheModel) -> None:
        billed(cache, gpt(part("s", 2000), part("q", 100)))
        asked = gpt(part("s", 2000), part("other", 100))
        assert billed(cache, asked, 1) == Billed(0, 0, (("30m", 2100),), "new")

    def test_a_conversation_reads_up_to_its_earlier_message_ends(self, cache: CacheModel) -> None:
        billed(cache, gpt(part("s", 2000), part("a", 100)))
        asked = gpt(part("s", 2000), part("a", 100), part("b", 50), part("c", 70))
        assert billed(cache, asked, 1) == Billed(0, 2100, (("30m", 120),))

    def test_it_looks_at_20_earlier_ends(self, cache: CacheModel) -> None:
        first = part("s", 2000)
        billed(cache, gpt(first))
        turns = [part(f"t{number}", 30) for number in range(21)]
        assert billed(cache, gpt(first, part("z", 30)), 1).read == 2000
        near = gpt(part("x", 2000), *turns[:1])
        billed(cache, near, 2)
        assert billed(cache, gpt(part("x", 2000), *turns), 3).read == 2030
        billed(cache, gpt(part("y", 2000), turns[0]), 4)
        far = gpt(part("y", 2000), *turns, part("one more", 30))
        assert billed(cache, far, 5) == Billed(0, 0, (("30m", 2660),), "look-back")

    def test_below_1024_tokens_nothing_is_cached(self, cache: CacheModel) -> None:
        asked = gpt(part("q", 1023))
        assert (
            billed(cache, asked) == billed(cache, asked, 1) == Billed(1023, 0, (), "below-minimum")
        )

    def test_a_read_renews_thirty_minutes(self, cache: CacheModel) -> None:
        asked = gpt(part("q", 2000))
        for at in (0, 1799, 3598):
            found = billed(cache, asked, at)
        assert found.read == 2000
        assert billed(cache, asked, 5398).why == "expired"


class TestExplicit:
    def test_a_marked_prefix_below_the_minimum_is_not_kept(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 1000, ""), part("q", 1000), **EXPLICIT)
        assert billed(cache, asked) == Billed(2000, 0, (), "below-minimum")

    def test_a_breakpoint_behind_the_system_prompt_shares_it(self, cache: CacheModel) -> None:
        billed(cache, gpt(part("s", 2000, ""), part("q", 100)))
        asked = gpt(part("s", 2000, ""), part("other", 100))
        assert billed(cache, asked, 1) == Billed(0, 2000, (("30m", 100),))

    def test_mode_explicit_writes_no_more_than_asked(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 2000, ""), part("q", 100), **EXPLICIT)
        assert billed(cache, asked) == Billed(100, 0, (("30m", 2000),), "new")

    def test_mode_explicit_without_a_breakpoint_caches_nothing(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 2000), **EXPLICIT)
        assert billed(cache, asked) == billed(cache, asked, 1) == Billed(2000, 0, (), "no-mark")

    def test_the_latest_three_are_written_beside_the_implicit_one(self, cache: CacheModel) -> None:
        marked = [part(f"m{number}", 1100, "") for number in range(4)]
        billed(cache, gpt(*marked, part("q", 10)))
        assert billed(cache, gpt(marked[0], part("z", 10), **EXPLICIT), 1).read == 0
        assert billed(cache, gpt(*marked[:2], part("z", 10), **EXPLICIT), 2).read == 2200

    def test_the_latest_four_are_written_in_mode_explicit(self, cache: CacheModel) -> None:
        marked = [part(f"m{number}", 1100, "") for number in range(5)]
        billed(cache, gpt(*marked, **EXPLICIT))
        assert billed(cache, gpt(marked[0], part("z", 10), **EXPLICIT), 1).read == 0
        assert billed(cache, gpt(*marked[:2], part("z", 10), **EXPLICIT), 2).read == 2200

    def test_the_first_two_and_the_latest_fifty_are_looked_at(self, cache: CacheModel) -> None:
        many = [part(f"m{number}", 1100, "") for number in range(54)]
        for found in (1, 2, 3):
            billed(cache, gpt(*many[:found], **EXPLICIT), found)
        assert billed(cache, gpt(*many, **EXPLICIT), 9).read == 2200

    def test_a_string_and_one_part_of_it_are_the_same_prompt(self, cache: CacheModel) -> None:
        billed(cache, gpt(part("s", 2000, ""), part("q", 100)))
        messages = [{"role": "system", "content": words("s", 2000)}]
        asked = outline_of(Api.CHAT, {"model": "gpt-5.6", "messages": messages})
        assert billed(cache, asked, 1).read == asked.tokens

    def test_twelve_hours_are_billed_up_to_their_last_breakpoint(self, cache: CacheModel) -> None:
        parts = (part("s", 2000, "12h"), part("q", 100))
        asked = gpt(*parts, api=Api.RESPONSES)
        assert billed(cache, asked).writes == (("12h", 2000), ("30m", 100))
        assert billed(cache, gpt(parts[0], part("z", 9), api=Api.RESPONSES), 43_199).read == 2000

    @pytest.mark.parametrize(
        "fields",
        [
            {"model": "gpt-4o"},
            {"cache_control": {"type": "ephemeral"}},
            {"prompt_cache_options": {"ttl": "12h"}},
        ],
    )
    def test_what_the_model_or_the_api_does_not_take_is_refused(
        self, cache: CacheModel, fields: Body
    ) -> None:
        assert refusal(cache, gpt(part("s", 2000, ""), **fields)).status == 400

    def test_a_breakpoint_on_a_tool_is_refused(self, cache: CacheModel) -> None:
        tool = {"type": "function", "prompt_cache_breakpoint": {"mode": "explicit"}}
        assert refusal(cache, gpt(part("s", 10), tools=[tool])).field.startswith("tools[0]")


class TestOlder:
    def test_hits_are_rounded_down_to_128(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 2000), part("q", 100), model="gpt-4o")
        assert billed(cache, asked) == Billed(2100, 0, (), "new")
        assert billed(cache, asked, 1) == Billed(2100 - 2048, 2048)

    def test_a_shared_beginning_is_enough(self, cache: CacheModel) -> None:
        billed(cache, gpt(part("s", 2000), part("q", 700), model="gpt-4o"))
        asked = gpt(part("s", 2000), part("other", 700), model="gpt-4o")
        assert billed(cache, asked, 1).read == 1920

    def test_a_text_that_parts_in_its_middle_is_shared_up_to_there(self, cache: CacheModel) -> None:
        text = words("same", 3000)
        for at, end in enumerate(("one", "two")):
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text[:8000] + end}]}
            found = billed(cache, outline_of(Api.CHAT, body), at)
        assert found.read == 1920

    def test_gpt_5_5_cuts_at_2048(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 4000), model="gpt-5.5")
        billed(cache, asked)
        assert billed(cache, asked, 1).read == 2048

    def test_a_prompt_of_less_than_1024_is_not_cached(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 1000), model="gpt-4o")
        assert (
            billed(cache, asked) == billed(cache, asked, 1) == Billed(1000, 0, (), "below-minimum")
        )

    def test_retention_of_a_day_outlives_memory(self, cache: CacheModel) -> None:
        for retention, read in (("in_memory", 0), ("24h", 2048)):
            asked = gpt(part(retention, 2100), model="gpt-5", prompt_cache_retention=retention)
            billed(cache, asked)
            assert billed(cache, asked, 3600).read == read

    def test_gpt_5_5_keeps_for_a_day_only(self, cache: CacheModel) -> None:
        asked = gpt(part("s", 9), model="gpt-5.5", prompt_cache_retention="in_memory")
        assert refusal(cache, asked).field == "prompt_cache_retention"

    def test_tools_and_settings_are_before_everything(self, cache: CacheModel) -> None:
        billed(cache, gpt(part("s", 2000), model="gpt-5"))
        assert billed(cache, gpt(part("s", 2000), model="gpt-5", verbosity="low"), 1).read == 0
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert billed(cache, gpt(part("s", 2000), model="gpt-5", tools=tools), 2).read == 0
