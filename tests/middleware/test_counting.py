import json

import pytest

from trivet.errors import RequestError
from trivet.middleware.prefix_tier.counting import is_count, unsteered

HEADERS = [(b"authorization", b"Bearer k"), (b"x-session-id", b"theirs")]


def test_a_count_says_nothing_of_whose_prefixes_are_read() -> None:
    body = {"model": "m", "cache_salt": "theirs", "messages": [{"cache_salt": 1}], "id_slot": 3}
    sent = unsteered(HEADERS, json.dumps({**body, "extra_key": "k"}).encode())
    assert json.loads(sent.body) == {"model": "m", "messages": [{"cache_salt": 1}]}
    assert sent.headers == [(b"authorization", b"Bearer k")]


def test_a_name_that_is_written_with_escapes_is_found_too() -> None:
    assert unsteered([], rb'{"cache\u005fsalt":"theirs"}').body == b"{}"


def test_a_count_that_steers_nothing_goes_as_it_came() -> None:
    raw = b'{"model":"m"}'
    assert unsteered([], raw).body is raw


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"cache_salt":1,"cache_salt":2}'])
def test_a_body_that_cannot_be_read_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        unsteered([], raw)
    assert refused.value.status == 400


def test_only_a_posted_count_is_one() -> None:
    assert is_count("POST", "/v1/messages/count_tokens")
    assert not is_count("GET", "/v1/messages/count_tokens")
    assert not is_count("POST", "/v1/messages")
