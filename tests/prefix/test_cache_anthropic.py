"""Anthropic's documented cache: one test a rule."""

from __future__ import annotations

from typing import Any

import pytest
from cache_builders import Body, billed, block, claude, user

from trivet.messages import Api
from trivet.prefix.caches import Billed, CacheModel, Refused, make_cache
from trivet.prefix.prompts.outline import outline_of


@pytest.fixture
def cache() -> CacheModel:
    return make_cache("anthropic")


def refusal(cache: CacheModel, outline: Any) -> Refused:
    found = cache.ask("acme", outline, 0.0)
    assert isinstance(found, Refused)
    return found


class TestWritesAndReads:
    def test_the_first_request_writes_up_to_its_breakpoint(self, cache: CacheModel) -> None:
        asked = claude(block("q", 100), system=[block("s", 1000, "")])
        assert billed(cache, asked) == Billed(100, 0, (("5m", 1000),), "new")

    def test_the_next_one_reads_it_whatever_comes_behind(self, cache: CacheModel) -> None:
        billed(cache, claude(block("q", 100), system=[block("s", 1000, "")]))
        asked = claude(block("other", 90), system=[block("s", 1000, "")])
        assert billed(cache, asked, 1) == Billed(90, 1000)

    def test_without_a_breakpoint_nothing_is_cached(self, cache: CacheModel) -> None:
        asked = claude(block("q", 2000))
        assert billed(cache, asked) == billed(cache, asked, 1) == Billed(2000, 0, (), "no-mark")

    def test_writes_happen_at_breakpoints_only(self, cache: CacheModel) -> None:
        billed(cache, claude(block("a", 1000), block("b", 1000, "")))
        asked = claude(block("a", 1000, ""), block("c", 1000))
        assert billed(cache, asked, 1) == Billed(1000, 0, (("5m", 1000),), "new")

    def test_a_prefix_below_the_minimum_is_passed_over_in_silence(self, cache: CacheModel) -> None:
        asked = claude(block("q", 100), system=[block("s", 411, "")])
        assert (
            billed(cache, asked) == billed(cache, asked, 1) == Billed(511, 0, (), "below-minimum")
        )

    def test_the_minimum_counts_all_before_the_breakpoint(self, cache: CacheModel) -> None:
        asked = claude(block("q", 212, ""), system=[block("s", 300, "")])
        assert billed(cache, asked).writes == (("5m", 512),)

    def test_a_conversation_reads_its_history_and_writes_its_new_turn(
        self, cache: CacheModel
    ) -> None:
        billed(cache, claude(block("a", 1000, "")))
        asked = claude(block("a", 1000), block("b", 200), block("c", 300, ""))
        assert billed(cache, asked, 1) == Billed(0, 1000, (("5m", 500),))

    def test_a_text_and_one_block_of_it_are_the_same_prompt(self, cache: CacheModel) -> None:
        marked = block("a", 1000, "")
        billed(cache, claude(marked))
        plain = {"role": "user", "content": marked["text"]}
        asked = outline_of(
            Api.MESSAGES, {"model": "claude-opus-5-5", "messages": [plain, user(block("b", 9, ""))]}
        )
        assert billed(cache, asked, 1).read == asked.parts[0].tokens

    def test_owners_share_nothing(self, cache: CacheModel) -> None:
        asked = claude(block("q", 1000, ""))
        billed(cache, asked, 0, "acme/one")
        assert billed(cache, asked, 1, "acme/two").read == 0
        assert billed(cache, asked, 2, "acme/one").read == 1000

    def test_a_breakpoint_before_the_hit_makes_an_entry_for_nothing(
        self, cache: CacheModel
    ) -> None:
        billed(cache, claude(block("q", 500, ""), system=[block("s", 1000)]))
        again = claude(block("q", 500, ""), system=[block("s", 1000, "1h")])
        assert billed(cache, again, 1) == Billed(0, 1500)
        assert billed(cache, claude(block("z", 9), system=[block("s", 1000, "")]), 2).read == 1000
        assert billed(cache, claude(block("z", 9), system=[block("s", 1000, "")]), 302).read == 0


class TestLookBack:
    @staticmethod
    def grown(cache: CacheModel, added: int) -> Billed:
        turns = [block(f"t{number}", 30) for number in range(added)]
        billed(cache, claude(block("a", 1000, "")))
        turns[-1] = block("last", 30, "")
        return billed(cache, claude(block("a", 1000), *turns), 1)

    def test_a_breakpoint_looks_at_20_positions_its_own_counted(self, cache: CacheModel) -> None:
        assert self.grown(cache, 19).read == 1000

    def test_a_write_21_positions_back_is_not_found(self, cache: CacheModel) -> None:
        assert self.grown(cache, 20) == Billed(0, 0, (("5m", 1600),), "look-back")

    def test_a_breakpoint_in_between_carries_on(self, cache: CacheModel) -> None:
        billed(cache, claude(block("a", 1000, "")))
        turns = [
            block(f"t{number}", 30, "" if number in (10, 29) else None) for number in range(30)
        ]
        assert billed(cache, claude(block("a", 1000), *turns), 1).read == 1000


class TestLifetimes:
    def test_five_minutes_count_from_the_start_of_the_request(self, cache: CacheModel) -> None:
        asked = claude(block("q", 1000, ""))
        cache.ask("acme", asked, 0.0, first_byte_s=60.0)
        assert billed(cache, asked, 300) == Billed(0, 0, (("5m", 1000),), "expired")

    def test_a_read_renews_for_nothing(self, cache: CacheModel) -> None:
        asked = claude(block("q", 1000, ""))
        for at in (0, 299, 598):
            found = billed(cache, asked, at)
        assert found == Billed(0, 1000)

    def test_an_hour_lives_an_hour(self, cache: CacheModel) -> None:
        asked = claude(block("q", 1000, "1h"))
        assert billed(cache, asked, 0).writes == (("1h", 1000),)
        assert billed(cache, asked, 3599).read == 1000

    def test_a_read_of_the_history_renews_what_it_starts_with(self, cache: CacheModel) -> None:
        system = [block("s", 1000, "")]
        billed(cache, claude(block("a", 100, ""), system=system))
        billed(cache, claude(block("a", 100, ""), system=system), 200)
        assert billed(cache, claude(block("z", 100), system=system), 400).read == 1000

    def test_an_entry_is_readable_once_the_answer_begins(self, cache: CacheModel) -> None:
        asked = claude(block("q", 1000, ""))
        first = cache.ask("acme", asked, 0.0, first_byte_s=2.0)
        assert isinstance(first, Billed)
        assert billed(cache, asked, 1) == Billed(0, 0, (("5m", 1000),), "pending")
        assert billed(cache, asked, 2).read == 1000

    def test_a_fan_out_writes_as_often_as_it_asks(self, cache: CacheModel) -> None:
        asked = claude(block("q", 1000, ""))
        found = [cache.ask("acme", asked, 0.0, first_byte_s=1.0) for _ in range(5)]
        assert [one.writes for one in found if isinstance(one, Billed)] == [(("5m", 1000),)] * 5


class TestMixedLifetimes:
    def test_an_hour_up_to_its_last_breakpoint_five_minutes_for_the_rest(
        self, cache: CacheModel
    ) -> None:
        billed(cache, claude(block("q", 50), system=[block("a", 1000, "1h")]))
        system = [block("a", 1000, "1h"), block("b", 700, "1h")]
        asked = claude(block("c", 300, ""), block("d", 40), system=system)
        assert billed(cache, asked, 1) == Billed(40, 1000, (("1h", 700), ("5m", 300)))

    def test_a_hit_behind_the_hour_pays_five_minutes_only(self, cache: CacheModel) -> None:
        system = [block("a", 1000, "1h")]
        billed(cache, claude(block("b", 500, ""), system=system))
        asked = claude(block("b", 500), block("c", 200, ""), system=system)
        assert billed(cache, asked, 1) == Billed(0, 1500, (("5m", 200),))

    def test_an_hour_after_five_minutes_is_refused(self, cache: CacheModel) -> None:
        found = refusal(cache, claude(block("b", 500, "1h"), system=[block("a", 1000, "")]))
        assert found.status == 400
        assert "must not come after" in found.message


class TestRefusals:
    def test_a_fifth_breakpoint(self, cache: CacheModel) -> None:
        blocks = [block(f"b{number}", 600, "") for number in range(5)]
        assert "maximum of 4" in refusal(cache, claude(*blocks)).message
        assert billed(cache, claude(*blocks[:4])).writes == (("5m", 2400),)

    def test_the_automatic_one_counts(self, cache: CacheModel) -> None:
        blocks = [block(f"b{number}", 600, "") for number in range(4)]
        asked = claude(*blocks, block("last", 9), cache_control={"type": "ephemeral"})
        assert "Found 5" in refusal(cache, asked).message

    def test_a_lifetime_that_is_not_offered(self, cache: CacheModel) -> None:
        assert refusal(cache, claude(block("q", 600, "2h"))).field.endswith("cache_control.ttl")

    @pytest.mark.parametrize(
        "marked",
        [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": ""},
        ],
    )
    def test_blocks_that_cannot_carry_one(self, cache: CacheModel, marked: Body) -> None:
        assert (
            refusal(cache, claude(marked | {"cache_control": {"type": "ephemeral"}})).status == 400
        )

    def test_a_breakpoint_on_a_message(self, cache: CacheModel) -> None:
        message = {"role": "user", "content": "x", "cache_control": {"type": "ephemeral"}}
        asked = outline_of(Api.MESSAGES, {"model": "claude-opus-5", "messages": [message]})
        assert refusal(cache, asked).field == "messages.0.cache_control"

    def test_a_refused_request_leaves_nothing(self, cache: CacheModel) -> None:
        refusal(cache, claude(block("b", 500, "1h"), system=[block("a", 1000, "")]))
        assert billed(cache, claude(system=[block("a", 1000, "")]), 1).read == 0


class TestAutomatic:
    def test_it_stands_behind_the_last_block(self, cache: CacheModel) -> None:
        asked = claude(block("a", 1000), cache_control={"type": "ephemeral"})
        assert billed(cache, asked).writes == (("5m", 1000),)
        more = claude(block("a", 1000), block("b", 200), cache_control={"type": "ephemeral"})
        assert billed(cache, more, 1) == Billed(0, 1000, (("5m", 200),))

    def test_it_passes_over_what_cannot_carry_one(self, cache: CacheModel) -> None:
        thought = {"type": "thinking", "thinking": "x" * 400, "signature": "s"}
        asked = claude(block("a", 1000), thought, cache_control={"type": "ephemeral"})
        assert billed(cache, asked).writes == (("5m", 1000),)

    def test_on_a_block_that_has_one_it_adds_nothing(self, cache: CacheModel) -> None:
        asked = claude(block("a", 1000, "5m"), cache_control={"type": "ephemeral"})
        assert billed(cache, asked).writes == (("5m", 1000),)

    def test_on_a_block_with_another_lifetime_it_is_refused(self, cache: CacheModel) -> None:
        asked = claude(block("a", 1000, "1h"), cache_control={"type": "ephemeral"})
        assert "another ttl" in refusal(cache, asked).message


TOOL: Body = {"name": "look", "description": "x" * 4000, "input_schema": {"type": "object"}}
SEARCH: Body = {"type": "web_search_20250305", "name": "web_search"}
PICTURE: Body = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
PAPER: Body = {"type": "document", "source": {"type": "text", "data": "x"}, "title": "t"}
MARKED_TOOL = TOOL | {"cache_control": {"type": "ephemeral"}}


class TestInvalidation:
    """Tools, system prompt and first message are marked: three levels, one of which is left."""

    @staticmethod
    def asked(*more: Body, **fields: Any) -> Any:
        fields = {"tools": [MARKED_TOOL], "system": [block("s", 1000, "")]} | fields
        return claude(block("q", 1000, ""), *more, **fields)

    @pytest.mark.parametrize(
        ("changed", "levels"),
        [
            ({}, 3),
            ({"tool_choice": {"type": "none"}}, 2),
            ({"thinking": {"type": "adaptive"}}, 2),
            ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, 2),
            ({"output_config": {"effort": "low"}}, 2),
            ({"output_config": {"effort": "high"}}, 3),
            ({"speed": "fast"}, 1),
            ({"system": [block("other", 1000, "")]}, 1),
            ({"tools": [SEARCH, MARKED_TOOL]}, 1),
            ({"tools": [MARKED_TOOL | {"description": "y" * 4000}]}, 0),
            ({"model": "claude-opus-5"}, 0),
            ({"metadata": {"user_id": "7"}, "max_tokens": 5}, 3),
        ],
    )
    def test_a_change_spares_the_levels_before_it(
        self, cache: CacheModel, changed: Body, levels: int
    ) -> None:
        first = self.asked()
        billed(cache, first)
        second = self.asked(**changed)
        tokens = [part.tokens for part in second.parts if SEARCH["type"] not in str(part.content)]
        extra = second.tokens - sum(tokens)
        expected = sum(tokens[:levels]) + (extra if levels else 0)
        assert billed(cache, second, 1).read == expected

    def test_an_image_anywhere_costs_the_messages(self, cache: CacheModel) -> None:
        billed(cache, self.asked())
        assert billed(cache, self.asked(PICTURE), 1).read == sum(
            part.tokens for part in self.asked().parts[:2]
        )

    def test_citations_cost_the_system_prompt(self, cache: CacheModel) -> None:
        billed(cache, self.asked(PAPER))
        cited = PAPER | {"citations": {"enabled": True}}
        assert billed(cache, self.asked(cited), 1).read == self.asked().parts[0].tokens

    def test_a_system_message_at_the_end_costs_nothing(self, cache: CacheModel) -> None:
        first = self.asked()
        billed(cache, first)
        body = {
            "model": "claude-opus-5-5", "tools": [MARKED_TOOL], "system": [block("s", 1000, "")],
            "messages": [user(block("q", 1000, "")), {"role": "system", "content": "Be brief."}],
        }  # fmt: skip
        assert billed(cache, outline_of(Api.MESSAGES, body), 1).read == first.tokens
