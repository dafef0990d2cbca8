from __future__ import annotations

import random
from typing import Any

from fleet_builders import chat, steps
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import BLOCK, Affinity, Steps, steps_of

LONG = "All of this stands in front of every question. " * 200


class TestSteps:
    def test_a_longer_conversation_has_the_steps_of_the_shorter_one(self) -> None:
        first = steps(LONG)
        later = steps(LONG, "Yes.", "And then? " * 300)
        assert first.digests
        assert later.digests[: len(first.digests)] == first.digests
        assert len(later.digests) > len(first.digests)

    def test_what_differs_in_the_first_byte_shares_nothing(self) -> None:
        assert not set(steps("A" + LONG).digests) & set(steps("B" + LONG).digests)

    def test_another_tenant_shares_nothing(self) -> None:
        assert not set(steps(LONG, owner=b"a").digests) & set(steps(LONG, owner=b"b").digests)

    def test_another_model_shares_nothing(self) -> None:
        assert not set(steps(LONG, model="a").digests) & set(steps(LONG, model="b").digests)

    def test_two_pictures_are_two_prompts_and_cost_no_steps_for_their_bytes(self) -> None:
        def asked(picture: str) -> Steps:
            block = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
            text = {"type": "text", "text": LONG}
            body = {"model": "m", "messages": [{"role": "user", "content": [block, text]}]}
            return steps_of(outline_of(Api.CHAT, body), b"salt")

        one, other = asked("A" * 100_000), asked("B" * 100_000)
        assert not set(one.digests) & set(other.digests)
        assert len(one.digests) <= len(LONG) // BLOCK + 1

    def test_the_turns_of_a_conversation_have_one_key(self) -> None:
        keys = {
            steps("Hello", system="Be kind.").key,
            steps("Hello", "Hi!", "How are you?", system="Be kind.").key,
            steps("Hello", "Hi!", "How are you?", "Well.", "Good.", system="Be kind.").key,
        }
        assert len(keys) == 1
        assert steps("Goodbye", system="Be kind.").key not in keys
        assert steps("Hello", system="Be kind.", owner=b"other").key not in keys

    def test_what_an_earlier_turn_sent_is_settled(self) -> None:
        assert steps(LONG).settled == 0
        whole = steps(LONG, "Yes.", "And then?")
        assert len(LONG) // 4 < whole.settled < whole.total

    def test_a_body_of_any_shape_has_steps(self) -> None:
        bodies: list[dict[str, Any]] = [
            {},
            {"messages": 5},
            {"messages": [None, 7, {"content": {}}]},
        ]
        for body in bodies:
            found = steps_of(outline_of(Api.CHAT, body), b"salt")
            assert found.digests == ()

    @given(st.lists(st.text(max_size=3000), max_size=12))
    def test_tokens_grow_with_the_steps_up_to_the_total(self, texts: list[str]) -> None:
        found = steps(*texts)
        assert list(found.tokens) == sorted(found.tokens)
        assert len(found.tokens) == len(found.digests)
        assert all(0 <= tokens <= found.total for tokens in found.tokens)
        assert 0 <= found.settled <= found.total


class TestAffinity:
    def test_nothing_is_known_before_anything_was_sent(self) -> None:
        assert Affinity().known(steps(LONG)) == {}

    def test_each_replica_is_known_for_its_longest_prefix(self) -> None:
        known = Affinity()
        short, long = steps(LONG), steps(LONG, "Yes.", "And then? " * 300)
        known.learn(3, short)
        known.learn(5, long)
        found = known.known(long)
        assert found == {3: short.tokens[-1], 5: long.tokens[-1]}

    def test_a_tenant_is_told_nothing_of_another(self) -> None:
        known = Affinity()
        known.learn(0, steps(LONG, owner=b"a"))
        assert known.known(steps(LONG, owner=b"b")) == {}

    def test_it_is_bounded_and_the_newest_blocks_of_a_conversation_go_first(self) -> None:
        known = Affinity(most=6)
        one = steps("x" * (4 * BLOCK))
        other = steps("y" * (4 * BLOCK))
        known.learn(0, one)
        known.learn(0, other)
        assert len(known) == 6
        assert known.known(one) == {0: one.tokens[1]}
        assert known.known(other) == {0: other.tokens[-1]}

    def test_a_replica_that_was_cleared_is_known_for_nothing(self) -> None:
        known = Affinity()
        known.learn(0, steps(LONG))
        known.learn(1, steps(LONG))
        known.forget(0)
        assert known.known(steps(LONG)) == {1: steps(LONG).tokens[-1]}
        known.forget(1)
        assert len(known) == 0

    @given(st.integers(0, 2**32))
    def test_it_agrees_with_a_list_of_all_that_was_sent(self, seed: int) -> None:
        draw = random.Random(seed)
        known = Affinity()
        sent: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(20):
            texts = [f"{draw.randrange(2)}" * (BLOCK * draw.randrange(1, 3)) for _ in range(3)]
            asked = steps(*texts)
            wanted: dict[int, int] = {}
            for replica, digests in sent:
                shared = 0
                for mine, theirs in zip(asked.digests, digests, strict=False):
                    if mine != theirs:
                        break
                    shared += 1
                if shared:
                    tokens = asked.tokens[shared - 1]
                    wanted[replica] = max(wanted.get(replica, 0), tokens)
            assert known.known(asked) == wanted
            replica = draw.randrange(4)
            known.learn(replica, asked)
            sent.append((replica, asked.digests))


def test_the_builder_makes_what_it_says() -> None:
    assert [one["role"] for one in chat("a", "b", system="s")["messages"]] == [
        *("system", "user", "assistant")
    ]
