from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefix_builders import MODEL, SIZE, chain, prompt

from trivet.prefix.pool.hashing import (
    BlockHash,
    BlockHasher,
    Namespace,
    PromptPart,
    hash_blocks,
    pack,
    tenant_salt,
)

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)
DIGEST = hashlib.sha256(b"a picture").digest()


def hashes(
    tokens: list[int], *parts: PromptPart, namespace: Namespace = MODEL, salt: str = "s"
) -> list[BlockHash]:
    return BlockHasher(namespace, salt, block_size=SIZE).chain(tokens, parts).hashes


def test_a_block_is_hashed_as_its_parent_and_its_packed_tokens() -> None:
    made = chain(prompt(2))
    first = hashlib.sha256(made.root + struct.pack("<4I", 100, 101, 102, 103)).digest()
    second = hashlib.sha256(first + struct.pack("<4I", 104, 105, 106, 107)).digest()
    assert made.hashes == [first, second]


def test_only_full_blocks_have_a_hash() -> None:
    made = chain(prompt(2, tail=3))
    assert (len(made.hashes), made.blocks, made.length) == (2, 3, 11)


@given(TOKENS, st.data())
def test_tokens_that_come_bit_by_bit_give_the_same_chain(
    tokens: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(tokens)))
    grown = chain(tokens[:cut])
    for token in tokens[cut:]:
        grown.extend([token])
    whole = chain(tokens)
    assert grown.hashes == whole.hashes
    assert grown.contents == whole.contents
    assert grown.length == whole.length


@given(TOKENS, TOKENS)
def test_two_prompts_share_as_many_hashes_as_leading_full_blocks(
    one: list[int], other: list[int]
) -> None:
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    shared = len(set(hashes(one)) & set(hashes(other)))
    assert shared == common // SIZE


def test_a_change_of_anything_that_shapes_kv_changes_every_hash() -> None:
    spaces = [
        MODEL,
        *(replace(MODEL, **{name: "x"}) for name in ("model", "revision", "tokenizer", "lora")),
        replace(MODEL, layout="bf16"),
    ]
    found = [hashes(prompt(2), namespace=space) for space in spaces]
    found.append(hashes(prompt(2), salt="another"))
    found.append(BlockHasher(MODEL, "s", block_size=SIZE * 2).chain(prompt(2)).hashes)
    assert len({name for each in found for name in each}) == sum(map(len, found))


def test_a_salt_never_equals_a_lora_name() -> None:
    roots = [MODEL.root(b"tenant", b"x", SIZE), replace(MODEL, lora="x").root(b"tenant", b"", SIZE)]
    assert roots[0] != roots[1]


def test_text_does_not_move_between_neighbouring_facts() -> None:
    one = replace(MODEL, model="ab", revision="c")
    other = replace(MODEL, model="a", revision="bc")
    assert hashes(prompt(1), namespace=one) != hashes(prompt(1), namespace=other)


def test_a_salt_that_is_a_block_hash_of_another_tenant_reads_nothing_of_it() -> None:
    victim = chain(prompt(3), "victim")
    for stolen in (victim.hashes[0].hex(), victim.hashes[0].decode("latin-1")):
        forged = chain(prompt(3)[SIZE:], stolen)
        assert not set(forged.hashes) & set(victim.hashes)


def test_a_chain_needs_a_salt() -> None:
    with pytest.raises(ValueError, match="salt"):
        BlockHasher(MODEL, "")


@pytest.mark.parametrize("token", [-1, 2**32, 1.5, "1", None])
def test_what_is_no_token_id_is_refused(token: object) -> None:
    with pytest.raises(ValueError, match="token ids"):
        pack([1, cast("int", token)])


def test_a_refused_token_leaves_the_chain_as_it_was() -> None:
    made = chain([1, 2, 3])
    with pytest.raises(ValueError, match="token ids"):
        made.extend([4, -1])
    made.extend([4])
    assert made.hashes == chain([1, 2, 3, 4]).hashes


def test_a_picture_changes_its_blocks_and_those_after_but_none_before() -> None:
    plain = hashes(prompt(4))
    with_it = hashes(prompt(4), PromptPart("image", 5, 2, DIGEST))
    assert [a == b for a, b in zip(plain, with_it, strict=True)] == [True, False, False, False]


@pytest.mark.parametrize(
    "other",
    [
        PromptPart("image", 4, 2, DIGEST),
        PromptPart("image", 5, 3, DIGEST),
        PromptPart("audio", 5, 2, DIGEST),
        PromptPart("image", 5, 2, DIGEST[::-1]),
    ],
)
def test_pictures_differ_by_place_length_kind_and_content(other: PromptPart) -> None:
    one = hashes(prompt(2), PromptPart("image", 5, 2, DIGEST))
    assert one[1] != hashes(prompt(2), other)[1]


def test_a_picture_over_two_blocks_is_in_both() -> None:
    made = BlockHasher(MODEL, "s", block_size=SIZE).chain(
        prompt(3), [PromptPart("image", 3, 2, DIGEST)]
    )
    assert [len(content) > SIZE * 4 for content in made.contents] == [True, True, False]


def test_nothing_is_shared_from_a_part_without_digest_on() -> None:
    made = BlockHasher(MODEL, "s", block_size=SIZE).chain(
        prompt(4), [PromptPart("image", 9, 1, None), PromptPart("image", 13, 1, DIGEST)]
    )
    made.extend(range(20))
    assert made.hashes == hashes(prompt(2))
    assert (made.length, made.matchable) == (37, 2)


def test_a_short_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="digest"):
        PromptPart("image", 0, 1, b"short")


def test_the_last_token_is_never_matchable() -> None:
    found = {length: chain(range(length)).matchable for length in (0, 1, 4, 5, 8, 9)}
    assert found == {0: 0, 1: 0, 4: 0, 5: 1, 8: 1, 9: 2}


def test_platform_blocks_are_equal_for_all_tenants_and_the_next_ones_are_not() -> None:
    platform = [pack(prompt(2, tail=0))]
    one = chain(prompt(4), "one", platform)
    other = chain(prompt(4), "other", platform)
    assert (one.shared, other.shared) == (2, 2)
    same = [a == b for a, b in zip(one.hashes, other.hashes, strict=True)]
    assert same == [True, True, False, False]


def test_a_prompt_that_has_only_a_part_of_the_platform_prefix_shares_nothing() -> None:
    platform = [pack(prompt(3, tail=0))]
    one = chain(prompt(2), "one", platform)
    assert one.shared == 0
    assert not set(one.hashes) & set(chain(prompt(2), "other", platform).hashes)


def test_a_picture_within_the_platform_prefix_is_not_the_platforms() -> None:
    hasher = BlockHasher(MODEL, "s", block_size=SIZE, platform=[pack(prompt(2, tail=0))])
    assert hasher.chain(prompt(3), [PromptPart("image", 7, 1, DIGEST)]).shared == 0
    assert hasher.chain(prompt(3), [PromptPart("image", 8, 1, DIGEST)]).shared == 2


def test_the_longest_platform_prefix_wins() -> None:
    platform = [pack(prompt(1, tail=0)), pack(prompt(3, tail=0)), pack([1])]
    assert chain(prompt(4), platform=platform).shared == 3
    assert chain(prompt(2), platform=platform).shared == 1


def test_no_salt_gives_the_platforms_root() -> None:
    roots = {MODEL.root(b"platform", b"", SIZE), MODEL.root(b"tenant", b"platform", SIZE)}
    assert len(roots) == 2


def test_a_tenants_salt_is_its_own_and_ends_with_its_epoch() -> None:
    salts = {
        tenant_salt(secret, tenant, epoch)
        for secret in (b"k1", b"k2")
        for tenant in ("a", "b")
        for epoch in (0, 1)
    }
    assert len(salts) == 8
    assert all(len(salt) == 64 and set(salt) <= set("0123456789abcdef") for salt in salts)


def test_hashing_goes_on_from_any_parent() -> None:
    made = chain(prompt(3))
    assert hash_blocks(made.hashes[0], made.contents[1:]) == made.hashes[1:]
