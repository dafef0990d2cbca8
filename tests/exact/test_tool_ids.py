"""Tool-call ids of hits: always new, and traceable where there is room."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.exact.tool_ids import mint, restore, restore_ids

OPENAI = "call_9xF2abQkAA0011223344bbCC"
ANTHROPIC = "toolu_01A09q90qw90lq917835lq9Z"
VLLM = "chatcmpl-tool-0123456789abcdef0123456789abcdef"
SHAPED = [
    "D681PevKs",
    "toolu_bdrk_01ABCdefGHI012345678901234",
    "7b2c9d4e-1f3a-4b5c-8d6e-9f0a1b2c3d4e",
    "function-call-1234567890123456789",
    "call_abcdefghijklmnop_qrstuvwx_abc-yz",
    "abcdefghijklmnopqrstuvwxyz01234_abc",
]
IDS = st.from_regex(re.compile(r"[A-Za-z0-9_-]{1,60}"), fullmatch=True)
NONCES = st.binary(min_size=8, max_size=16)


@pytest.mark.parametrize("original", [OPENAI, ANTHROPIC, VLLM, "call_1", "0"])
def test_an_id_with_room_gets_a_suffix_that_restore_undoes(original: str) -> None:
    made = mint(original, b"nonce-01")
    assert made.startswith(original + "-")
    assert len(made) == len(original) + 10
    assert restore(made) == original


def test_minted_ids_stay_within_the_strictest_api() -> None:
    assert (len(OPENAI), len(ANTHROPIC)) == (29, 30)
    assert len(mint(ANTHROPIC, b"nonce-01")) == 40


@pytest.mark.parametrize("original", [OPENAI, ANTHROPIC, VLLM, *SHAPED])
def test_two_hits_never_bring_the_same_id(original: str) -> None:
    made = {mint(original, number.to_bytes(8, "big")) for number in range(2000)}
    assert len(made) == 2000
    assert original not in made


def test_one_nonce_gives_one_id() -> None:
    assert mint(OPENAI, b"nonce-01") == mint(OPENAI, b"nonce-01")


@pytest.mark.parametrize("original", SHAPED)
def test_an_id_without_room_keeps_its_shape(original: str) -> None:
    made = mint(original, b"nonce-01")
    assert len(made) == len(original)
    assert restore(made) == made
    if original != "D681PevKs":
        classes = [
            re.sub(r"[a-z]", "a", re.sub(r"[0-9]", "0", re.sub(r"[A-Z]", "A", one)))
            for one in (made, original)
        ]
        hexes = re.fullmatch(r"[0-9a-f-]+", original)
        assert hexes or classes[0] == classes[1]


def test_prefixes_and_uuids_stay_what_they_are() -> None:
    assert mint(SHAPED[1], b"nonce-01").startswith("toolu_bdrk_")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", mint(SHAPED[2], b"nonce-01"))
    assert re.fullmatch(r"function-call-[0-9]{19}", mint(SHAPED[3], b"nonce-01"))
    assert mint(SHAPED[4], b"nonce-01").startswith("call_")
    assert re.fullmatch(r"[A-Za-z0-9]{9}", mint("D681PevKs", b"nonce-01"))


@pytest.mark.parametrize(
    "original", ["functions.get_weather:0", "", "a b", "\u00e9" * 20, "x" * 119]
)
def test_ids_built_by_rule_or_beyond_reason_are_kept_or_reshaped(original: str) -> None:
    made = mint(original, b"nonce-01")
    assert len(made) == len(original)
    assert restore(made) == made


def test_a_minted_id_is_minted_from_its_original() -> None:
    """One proxy in front of another: ids do not grow, and still lead back."""
    once = mint(ANTHROPIC, b"nonce-01")
    twice = mint(once, b"nonce-02")
    assert len(twice) == 40
    assert twice != once
    assert restore(twice) == ANTHROPIC


@pytest.mark.parametrize("original", [OPENAI, ANTHROPIC, VLLM, "call_1"])
def test_a_suffix_with_another_check_is_not_undone(original: str) -> None:
    made = mint(original, b"nonce-01")
    for place in range(len(made)):
        other = made[:place] + ("A" if made[place] != "A" else "B") + made[place + 1 :]
        assert restore(other) == other


def test_look_alikes_are_rarely_taken_for_minted() -> None:
    taken = [
        f"{OPENAI}-{number:05d}{number % 9973:04d}"
        for number in range(100_000)
        if restore(f"{OPENAI}-{number:05d}{number % 9973:04d}") == OPENAI
    ]
    assert len(taken) < 3


@given(IDS, NONCES)
def test_minting_never_changes_what_an_id_stands_for(original: str, nonce: bytes) -> None:
    made = mint(original, nonce)
    assert restore(made) in (restore(original), made)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", made)
    assert len(made) <= max(40, len(original) + 10)


@given(st.text(max_size=80), NONCES)
def test_any_text_can_be_minted_and_restored(original: str, nonce: bytes) -> None:
    restore(original)
    assert mint(original, nonce)[: len(original)] or not original


def test_the_ids_of_a_request_are_restored() -> None:
    made = mint(OPENAI, b"nonce-01")
    assert restore_ids([made, ANTHROPIC]) == {made: OPENAI, ANTHROPIC: ANTHROPIC}


def test_two_ids_of_one_original_stay_apart() -> None:
    one, two = mint(OPENAI, b"nonce-01"), mint(OPENAI, b"nonce-02")
    other = mint(ANTHROPIC, b"nonce-01")
    assert restore_ids([one, two, other]) == {one: one, two: two, other: ANTHROPIC}
    assert restore_ids([one, OPENAI]) == {one: one, OPENAI: OPENAI}


def test_restoring_is_injective_even_for_chains_that_a_caller_builds() -> None:
    first = mint("call_1", b"nonce-01")
    second = mint("call_1", b"nonce-02")
    chained = _forge(first)
    found = restore_ids(["call_1", first, second, chained])
    assert len(set(found.values())) == 4


def _forge(stem: str) -> str:
    """A suffix behind an id that is minted already, which `mint` never makes."""
    from trivet.exact import tool_ids

    head = f"{stem}-AAAAA"
    return head + tool_ids._check(head)


def test_a_forged_chain_is_undone_once() -> None:
    first = mint("call_1", b"nonce-01")
    assert restore(_forge(first)) == first


@given(st.lists(IDS, max_size=6), st.lists(NONCES, min_size=1, max_size=3))
def test_restoring_is_always_injective(originals: list[str], nonces: list[bytes]) -> None:
    ids = originals + [mint(one, nonce) for one in originals for nonce in nonces]
    found = restore_ids(ids)
    assert found.keys() == set(ids)
    assert len(set(found.values())) == len(found)
