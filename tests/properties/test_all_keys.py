"""More than 200,000 mutated requests: equal keys exactly where two requests ask for the same.

Each request's key is compared with what the request says, written down by an oracle from the
documented lists. Keys and meanings have to correspond one to one over all requests of an API, so
every pair of them is compared, not only neighbours.
"""

from __future__ import annotations

import random

import pytest
from request_cases import CASES, Case
from request_meaning import meanings
from request_mutation import chosen, restyled

from trivet.canonical import dump, sha256
from trivet.errors import RequestError
from trivet.exact.key import KeyParts, exact_key
from trivet.messages import Scope


def test_at_least_two_hundred_thousand_requests_are_tried() -> None:
    assert sum(case.requests for case in CASES) >= 200_000


def keys_of(case: Case, raw: bytes) -> tuple[bytes, ...]:
    return tuple(
        exact_key(KeyParts(case.api, "main", "http://u", b"", (), Scope("acme"), (), (), "", form))
        for form in case.forms(raw)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api.value)
def test_keys_are_equal_exactly_where_requests_are(case: Case) -> None:
    draw = random.Random(f"trivet {case.api}")
    meaning_of: dict[bytes, bytes] = {}
    key_of: dict[bytes, bytes] = {}
    tried = 0
    while tried < case.requests:
        body = chosen(case, draw)
        raw = dump(body).removeprefix(b"\x00")
        try:
            keys = keys_of(case, raw)
        except RequestError:
            continue
        tried += 1
        for key, text in zip(keys, meanings(case, body), strict=True):
            said = sha256(text.encode())
            assert meaning_of.setdefault(key, said) == said, raw
            assert key_of.setdefault(said, key) == key, raw
        if tried % 8 == 0:
            other = restyled(case, body, draw)
            assert keys_of(case, other) == keys, (raw, other)
    assert len(meaning_of) > case.requests / 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api.value)
def test_every_field_that_shapes_answers_is_keyed(case: Case) -> None:
    whole = keys_of(case, dump(case.body))
    for name, value in case.body.items():
        for other in ([value, "x"], {"x": value}, "other", None, 17.5):
            try:
                found = keys_of(case, dump({**case.body, name: other}))
            except RequestError:
                continue
            assert found != whole, (name, other)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api.value)
def test_no_transport_field_is_keyed(case: Case) -> None:
    whole = keys_of(case, dump(case.body))
    for name, value in case.carried.items():
        assert keys_of(case, dump({**case.body, name: value})) == whole, name
    assert keys_of(case, dump({**case.body, **case.carried})) == whole
