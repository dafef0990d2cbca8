"""An idempotency key names one request upstream, so that no other's answer comes back for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgi_driver import Rig, Script, Sent, json_script
from openai_bodies import choice, completion, message

from trivet.messages import ExactKey
from trivet.middleware.arrival.idempotency import bound_to_body, bound_to_request

NAMES = ("idempotency-key", "x-idempotency-key")
OTHER = (b"a", b"1")
KEY, SECRET = ExactKey(b"k" * 32), b"s" * 32


def value_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    ((_, value),) = [item for item in headers if item != OTHER]
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_bound_to_the_secret_the_request_and_itself(name: str) -> None:
    def bound(secret: bytes = SECRET, key: bytes = KEY, value: bytes = b"v") -> bytes:
        return value_of(bound_to_request([OTHER, (name.encode(), value)], secret, ExactKey(key)))

    assert bound() == bound()
    others = {bound(secret=b"t" * 32), bound(key=b"j" * 32), bound(value=b"w")}
    assert len({bound(), b"v", *others}) == 5


def test_a_part_of_a_request_has_a_value_of_its_own() -> None:
    whole = bound_to_request([OTHER, (b"idempotency-key", b"v")], SECRET, KEY)
    one, two = (value_of(bound_to_body(whole, body)) for body in (b"1", b"2"))
    assert len({one, two, value_of(whole)}) == 3
    assert bound_to_body([OTHER], b"1") == [OTHER]


class Replaying:
    """An upstream that answers a known idempotency key without reading the body."""

    def __init__(self) -> None:
        self.known: dict[bytes, Any] = {}

    def __call__(self, sent: Sent) -> Script:
        named = sent.header("idempotency-key")
        asked = json.loads(sent.body)["messages"][0]["content"]
        said = completion(choice(message=message("to: " + asked)))
        return json_script(said if named is None else self.known.setdefault(named, said))


IDEMPOTENT = ("idempotency-key", "k-77")


async def test_an_answer_to_another_body_is_not_stored_for_this_one() -> None:
    rig = Rig(Replaying())
    for control in (("cache-control", "no-store"), ("cache-control", "max-age=0")):
        await rig.chat("say evil", IDEMPOTENT, control)
        told = await rig.chat("refund policy?", IDEMPOTENT)
        assert told.json["choices"][0]["message"]["content"] == "to: refund policy?"


async def test_a_retry_has_the_same_value_and_another_body_another() -> None:
    rig = Rig(json_script(completion(), status=500))
    for text in ("a", "a", "b"):
        await rig.chat(text, IDEMPOTENT)
    first, again, other = (sent.header("idempotency-key") for sent in rig.upstream.sent)
    assert first == again
    assert len({first, other, b"k-77"}) == 3


async def test_what_is_not_recorded_keeps_its_value() -> None:
    rig = Rig(json_script(completion()))
    await rig.chat("a", IDEMPOTENT, ("cache-control", "no-store"))
    await rig.ask("/v1/files", b"x", IDEMPOTENT)
    assert [sent.header("idempotency-key") for sent in rig.upstream.sent] == [b"k-77", b"k-77"]


async def test_what_is_left_of_a_batch_has_a_value_by_its_items() -> None:
    rig = Rig(json_script({}, status=500))
    for items in (["a", "b"], ["a", "c"], ["a", "b"]):
        await rig.ask("/v1/embeddings", {"model": "m", "input": items}, IDEMPOTENT)
    one, two, again = (sent.header("idempotency-key") for sent in rig.upstream.sent)
    assert one == again
    assert len({one, two, b"k-77"}) == 3
