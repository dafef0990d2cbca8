"""An embeddings request is forwarded whole, and keyed as it is forwarded."""

from __future__ import annotations

import json

from trivet.middleware.dialects.embeddings import decode, remainder


def test_directives_are_stripped_and_kept_apart() -> None:
    batch = decode(b'{"model":"m","input":["a"],"cache":{"ttl":5}}', {})
    assert batch.request.forward == b'{"model":"m","input":["a"]}'
    assert batch.request.directives == {"ttl": 5}


def test_a_cache_field_of_the_upstreams_own_is_forwarded_and_keyed() -> None:
    raw = b'{"model":"m","input":["a"],"cache":{"size":5}}'
    batch = decode(raw, {})
    assert batch.request.forward == raw
    assert b'"cache":{"size":5}' in batch.canonicals[0]


def test_lone_surrogates_are_forwarded_as_json() -> None:
    batch = decode(rb'{"model":"m","input":["\ud800","b"],"cache":{"ttl":5}}', {})
    assert json.loads(batch.request.forward)["input"] == ["\ud800", "b"]
    assert json.loads(remainder(batch, [0])) == {"model": "m", "input": ["\ud800"]}
