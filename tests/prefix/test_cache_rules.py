"""The table of what providers document."""

from __future__ import annotations

from datetime import date

import pytest

from trivet.prefix.backends.bedrock import takes_points
from trivet.prefix.caches import PROVIDERS
from trivet.prefix.markers import rules
from trivet.prefix.markers.rules import rules_for


@pytest.mark.parametrize(
    ("provider", "model", "minimum", "read"),
    [
        ("anthropic", "claude-opus-5", 512, 0.1),
        ("anthropic", "claude-opus-5-5", 512, 0.05),
        ("anthropic", "claude-fable-5-1", 512, 0.025),
        ("anthropic", "claude-mythos-preview", 2048, 0.1),
        ("anthropic", "claude-opus-4-1-20250805", 1024, 0.1),
        ("anthropic", "claude-opus-4-6", 4096, 0.1),
        ("anthropic", "claude-opus-4-7-20260416", 2048, 0.1),
        ("anthropic", "claude-haiku-4-5-20251001", 4096, 0.1),
        ("anthropic", "claude-3-5-haiku-20241022", 2048, 0.1),
        ("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", 4096, 0.1),
        ("bedrock", "amazon.nova-pro-v1:0", 1000, 0.25),
        ("openai", "gpt-4o-mini", 1024, 0.5),
        ("openai", "ft:gpt-4.1:acme::7", 1024, 0.25),
        ("openai", "gpt-5.5-pro", 1024, 0.1),
        ("openai", "gpt-6-astra", 1024, 0.1),
        ("gemini", "models/gemini-2.5-pro", 2048, 0.1),
        ("gemini", "gemini-3.8-flash", 4096, 0.1),
        ("gemini", "gemini-4-argon", 4096, 0.05),
        ("deepseek", "deepseek/deepseek-v4-flash", 64, 0.02),
    ],
)
def test_the_most_special_pattern_tells_a_models_figures(
    provider: str, model: str, minimum: int, read: float
) -> None:
    found = rules_for(provider, model)
    assert (found.provider, found.min_tokens, found.read) == (provider, minimum, read)


def test_explicit_breakpoints_begin_with_gpt_5_6() -> None:
    older, newer = rules_for("openai", "gpt-5.5"), rules_for("openai", "gpt-5.6-sol")
    assert (older.max_marks, newer.max_marks) == (0, 4)
    assert [one.write for one in newer.ttls] == [1.25, 2.5]
    assert [one.name for one in older.ttls] == ["24h"]


def test_explicit_contents_end_with_gemini_4() -> None:
    assert rules_for("gemini", "gemini-3.8-flash").explicit
    assert not rules_for("gemini", "gemini-4-argon").explicit


def test_a_model_that_is_not_known_gets_the_providers_default() -> None:
    assert rules_for("anthropic", "mock").model == ""
    assert rules_for("openai", "mock").max_marks == 0


def test_a_provider_that_is_not_known_is_asked_for_nothing() -> None:
    found = rules_for("vllm", "tiny")
    assert (found.max_marks, found.ttls, found.automatic, found.explicit) == (0, (), False, False)


def test_every_row_has_a_date_a_source_and_possible_figures() -> None:
    for provider in PROVIDERS:
        table = rules._table()[provider]
        for model in ("", *table["models"]):
            found = rules_for(provider, model.replace("*", "x"))
            assert date.fromisoformat(found.as_of).isoformat() == found.as_of
            assert found.source
            assert 0 < found.read < 1
            assert found.ttls
            assert all(ttl.write >= 1 and ttl.seconds > 0 for ttl in found.ttls)
            assert found.explicit or not found.max_marks


@pytest.mark.parametrize(
    ("model", "marks", "ttls"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", False, None),
        ("us.anthropic.claude-3-opus-20240229-v1:0", False, None),
        ("anthropic.claude-v2:1", False, None),
        ("anthropic.claude-instant-v1", False, None),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", True, ["5m"]),
        ("eu.anthropic.claude-sonnet-4-20250514-v1:0", True, ["5m"]),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", True, ["5m", "1h"]),
        ("anthropic.claude-opus-5-v1:0", True, ["5m", "1h"]),
    ],
)
def test_at_bedrock_older_models_cache_nothing_or_for_minutes_only(
    model: str, marks: bool, ttls: list[str] | None
) -> None:
    found = rules_for("bedrock", model)
    assert bool(found.max_marks) is marks is takes_points(model)
    assert ttls is None or [one.name for one in found.ttls] == ttls
