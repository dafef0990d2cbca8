"""Gemini's, DeepSeek's and Bedrock's documented caches: one test a rule."""

from __future__ import annotations

from typing import Any

import pytest
from cache_builders import Body, billed, gpt, part, words

from trivet.prefix.caches import Billed, Refused, make_cache
from trivet.prefix.caches.deepseek import INTERVAL
from trivet.prefix.caches.gemini import Content, GeminiCache
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, Outline


def text(name: str, tokens: int) -> Body:
    return {"text": words(name, tokens)}


def gemini(*turns: Body, model: str = "gemini-2.5-pro", **fields: Any) -> Outline:
    contents = [{"role": "user", "parts": [turn]} for turn in turns]
    return native_outline(NativeApi.GENERATE, model, {"contents": contents, **fields})


class TestGeminiImplicit:
    def test_a_beginning_seen_before_is_read_and_never_billed_as_written(self) -> None:
        cache = make_cache("gemini")
        first = gemini(text("s", 3000), text("q", 100))
        assert billed(cache, first) == Billed(first.tokens, 0, (), "new")
        second = gemini(text("s", 3000), text("other", 100))
        assert billed(cache, second, 1).read == second.parts[0].tokens

    @pytest.mark.parametrize(
        ("model", "least"), [("gemini-2.5-pro", 2048), ("gemini-3.8-flash", 4096)]
    )
    def test_the_minimum_is_the_models(self, model: str, least: int) -> None:
        cache = make_cache("gemini")
        for size, read in ((least - 100, 0), (least + 100, least)):
            asked = gemini(text("s", size), model=model)
            billed(cache, asked)
            assert billed(cache, asked, 1).read >= read
            assert bool(billed(cache, asked, 2).read) == bool(read)


class TestGeminiContents:
    @staticmethod
    def made(cache: GeminiCache, **fields: Any) -> Content:
        found = cache.create("acme", gemini(text("s", 3000), **fields), 0.0)
        assert isinstance(found, Content)
        return found

    @pytest.fixture
    def cache(self) -> GeminiCache:
        return GeminiCache(rules_for)

    def test_a_request_that_names_it_reads_it(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        asked = gemini(text("q", 100))
        assert cache.ask_with("acme", made.name, asked, 1) == Billed(asked.tokens, made.tokens)

    def test_it_lives_an_hour_if_not_told(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        assert cache.get("acme", made.name, 3599) == made
        assert isinstance(cache.get("acme", made.name, 3600), Refused)

    def test_its_life_can_be_made_longer_before_it_ends(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        cache.renew("acme", made.name, 3000, 9000)
        assert isinstance(cache.get("acme", made.name, 8999), Content)
        assert isinstance(cache.renew("acme", made.name, 9000, 99_000), Refused)

    def test_a_read_does_not_renew_it(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        cache.ask_with("acme", made.name, gemini(text("q", 9)), 3599)
        assert isinstance(cache.get("acme", made.name, 3600), Refused)

    def test_another_project_cannot_name_it(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        found = cache.ask_with("other", made.name, gemini(text("q", 9)), 1)
        assert isinstance(found, Refused)
        assert found.status == 403

    def test_what_was_deleted_is_gone(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        cache.delete("acme", made.name, 1)
        assert cache.contents("acme", 2) == []

    def test_the_system_instruction_is_not_repeated(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        asked = gemini(text("q", 9), systemInstruction={"parts": [text("s", 9)]})
        assert isinstance(cache.ask_with("acme", made.name, asked, 1), Refused)

    def test_another_model_cannot_read_it(self, cache: GeminiCache) -> None:
        made = self.made(cache)
        asked = gemini(text("q", 9), model="gemini-3.8-flash")
        assert isinstance(cache.ask_with("acme", made.name, asked, 1), Refused)

    @pytest.mark.parametrize(
        ("model", "size"), [("gemini-4-argon", 9000), ("gemini-2.5-pro", 2000)]
    )
    def test_too_new_a_model_and_too_short_a_content_are_refused(
        self, cache: GeminiCache, model: str, size: int
    ) -> None:
        assert isinstance(cache.create("acme", gemini(text("s", size), model=model), 0), Refused)


def deep(*turns: Body) -> Outline:
    return gpt(*turns, model="deepseek-chat")


class TestDeepSeek:
    """Examples one and two of the guide, and the interval."""

    def test_a_conversation_reads_the_whole_input_before_it(self) -> None:
        cache = make_cache("deepseek")
        billed(cache, deep(part("a", 1000), part("b", 100)))
        asked = deep(part("a", 1000), part("b", 100), part("answer", 50), part("c", 70))
        assert billed(cache, asked, 1) == Billed(120, 1100)

    def test_a_common_beginning_is_read_by_the_third_request(self) -> None:
        cache = make_cache("deepseek")
        read = [
            billed(cache, deep(part("a", 1000), part(name, 100)), at).read
            for at, name in enumerate("bcd")
        ]
        assert read == [0, 0, 1000]

    def test_a_long_input_has_units_inside(self) -> None:
        cache = make_cache("deepseek")
        billed(cache, deep(part("a", INTERVAL + 1000), part("b", 100)))
        asked = deep(part("a", INTERVAL + 1000), part("c", 100))
        assert billed(cache, asked, 1).read == INTERVAL

    def test_users_of_a_key_share_nothing(self) -> None:
        cache = make_cache("deepseek")
        billed(cache, deep(part("a", 1000)), 0, "key one")
        assert billed(cache, deep(part("a", 1000)), 1, "key two").read == 0

    def test_less_than_64_tokens_are_not_kept(self) -> None:
        cache = make_cache("deepseek")
        billed(cache, deep(part("a", 60)))
        assert billed(cache, deep(part("a", 60)), 1) == Billed(60, 0, (), "below-minimum")


def converse(model: str, *system: Body, point: Body | None = None) -> Outline:
    blocks = [*system, {"cachePoint": point or {"type": "default"}}]
    messages = [{"role": "user", "content": [{"text": words("q", 100)}]}]
    return native_outline(NativeApi.CONVERSE, model, {"system": blocks, "messages": messages})


class TestBedrock:
    CLAUDE = "anthropic.claude-opus-5-5-v1:0"
    NOVA = "amazon.nova-pro-v1:0"

    @pytest.mark.parametrize("model", [CLAUDE, NOVA])
    def test_a_cache_point_writes_what_is_before_it(self, model: str) -> None:
        cache = make_cache("bedrock")
        asked = converse(model, text("s", 2000))
        first, second = billed(cache, asked), billed(cache, asked, 1)
        assert dict(first.writes) == {"5m": asked.parts[0].tokens}
        assert second.read == asked.parts[0].tokens

    def test_an_hour_is_claudes_only(self) -> None:
        cache, hour = make_cache("bedrock"), {"type": "default", "ttl": "1h"}
        asked = converse(self.CLAUDE, text("s", 2000), point=hour)
        assert billed(cache, asked).writes[0][0] == "1h"
        refused = cache.ask("acme", converse(self.NOVA, text("s", 2000), point=hour), 0)
        assert isinstance(refused, Refused)

    @pytest.mark.parametrize(("model", "read"), [(CLAUDE, True), (NOVA, False)])
    def test_only_claude_looks_back(self, model: str, read: bool) -> None:
        cache = make_cache("bedrock")
        billed(cache, converse(model, text("s", 2000)))
        assert bool(billed(cache, converse(model, text("s", 2000), text("t", 9)), 1).read) == read
