from __future__ import annotations

import pytest

from trivet.prefix.routing.isolation import Counted, Seen, counted, hits_between, prompt, verdict


def test_hits_under_one_salt_and_none_under_another_is_isolated() -> None:
    assert verdict("vllm", Seen(0, 512, 0)).state == "isolated"


def test_what_a_slot_begins_with_for_all_is_no_leak() -> None:
    assert verdict("llamacpp", Seen(3, 512, 3)).state == "isolated"


def test_llamacpps_leak_names_the_flag_that_mends_it() -> None:
    found = verdict("llamacpp", Seen(0, 512, 510))
    assert found.state == "leaks"
    assert "--cache-ram 0" in found.detail


def test_a_leak_counts_though_the_server_tells_little() -> None:
    assert verdict("vllm", Seen(None, None, 512)).state == "leaks"


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("vllm", "--enable-prompt-tokens-details"), ("sglang", "--enable-cache-report")],
)
def test_a_server_that_tells_nothing_is_told_its_flag(kind: str, flag: str) -> None:
    found = verdict(kind, Seen(None, None, None))
    assert found.state == "unverified"
    assert flag in found.detail


def test_no_hit_at_all_proves_nothing() -> None:
    found = verdict("vllm", Seen(0, 0, 0))
    assert found.state == "unverified"
    assert "--no-enable-prefix-caching" in found.detail


def test_counters_tell_where_nobody_else_asked_meanwhile() -> None:
    text = (
        'vllm:prefix_cache_queries_total{engine="0"} 1000.0\n'
        'vllm:prefix_cache_hits_total{engine="0"} 250.0\n'
    )
    assert counted("vllm", text) == Counted(1000, 250)
    assert counted("vllm", "up 1\n") is None
    assert counted("llamacpp", text) is None
    assert hits_between(Counted(1000, 250), Counted(1100, 346), 100) == 96
    assert hits_between(Counted(1000, 250), Counted(1300, 346), 100) is None
    assert hits_between(None, Counted(1, 1), 1) is None


def test_a_prompt_is_as_long_as_asked_for_and_made_of_words() -> None:
    text = prompt(800, bytes(range(256)) * 4)
    assert len(text) == 800
    assert text.startswith("river stone cloud table")
