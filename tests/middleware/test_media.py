"""What a body says of itself: it is read as plain JSON in UTF-8, and is sent on as that."""

from __future__ import annotations

import pytest
from asgi_driver import Rig, json_script
from openai_bodies import completion

from trivet.errors import RequestError
from trivet.middleware.arrival.headers import RequestHeaders
from trivet.middleware.arrival.media import refuse_coded, says_json, sent_as_json

JSON = (b"content-type", b"application/json")


@pytest.mark.parametrize(
    "kind",
    [
        b"application/json",
        b"application/json; charset=utf-8",
        b"application/json;charset=UTF-8",
        b'application/json; charset="utf-8" ; a=b',
        b"application/json; charset=utf8",
        b"application/json; charset=us-ascii",
        b'application/json;charset="US-ASCII"',
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"",
    ],
)
def test_a_body_that_is_said_to_be_utf_8_or_nothing_is_read(kind: bytes) -> None:
    refuse_coded(RequestHeaders([(b"content-type", kind)]))
    refuse_coded(RequestHeaders([]))


@pytest.mark.parametrize(
    "kind",
    [
        b"application/json; charset=utf-7",
        b"application/json; CHARSET=cp037",
        b'application/json; charset="utf-16"',
        b"application/json; charset=utf-8; charset=utf-7",
        b"application/json; charset=utf-8; charset=utf-8",
        b"application/json; charset*=utf-8''utf-7",
        b"application/json; charset*0=utf-7",
        b'application/json; charset="ut\\f-7"',
        b"application/json; charset = utf-7",
        b"application/json; charset",
        b"application/json; charset=",
        b"application/json; charset=utf-8x",
        b"application/json; charset=us-ascii8",
        b"application/json; charset=us-ascii; charset=utf-8",
        b"application/json; x=" + b"a" * 300,
    ],
)
def test_a_body_that_is_said_to_be_anything_else_is_refused(kind: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        refuse_coded(RequestHeaders([(b"content-type", kind)]))
    assert (refused.value.status, refused.value.field) == (415, "content-type")


def test_a_charset_in_a_second_content_type_is_refused_too() -> None:
    raw = [JSON, (b"content-type", b"application/json; charset=utf-7")]
    with pytest.raises(RequestError):
        refuse_coded(RequestHeaders(raw))


@pytest.mark.parametrize("coding", [b"gzip", b"identity, br", b"deflate"])
def test_a_coded_body_is_refused(coding: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        refuse_coded(RequestHeaders([JSON, (b"content-encoding", coding)]))
    assert (refused.value.status, refused.value.field) == (415, "content-encoding")


def test_a_body_without_a_coding_may_say_so() -> None:
    refuse_coded(RequestHeaders([JSON, (b"content-encoding", b"Identity")]))


@pytest.mark.parametrize(
    "kind",
    [b"application/json", b"Application/JSON; charset=utf-8", b"application/vnd.api+json"],
)
def test_json_goes_on_as_it_was_called(kind: bytes) -> None:
    headers = [(b"a", b"1"), (b"content-type", kind)]
    assert sent_as_json(headers) is headers


@pytest.mark.parametrize(
    "kinds",
    [
        [b"application/json; charset=us-ascii"],
        [],
        [b""],
        [b"text/plain"],
        [b"application/x-www-form-urlencoded"],
        [b"application/json", b"application/json"],
        [b"application/json, text/plain"],
        [b"application/jsonp"],
        [b"text/application/json"],
    ],
)
def test_what_was_read_as_json_goes_on_as_json(kinds: list[bytes]) -> None:
    headers = [(b"a", b"1"), *((b"content-type", kind) for kind in kinds)]
    assert sent_as_json(headers) == [(b"a", b"1"), JSON]


def test_what_a_connection_takes_away_is_not_said_upstream() -> None:
    assert says_json(RequestHeaders([JSON]))
    assert not says_json(RequestHeaders([JSON, (b"connection", b"content-type")]))
    assert not says_json(RequestHeaders([JSON, JSON]))
    assert not says_json(RequestHeaders([]))


UTF_7 = ("content-type", "application/json; charset=utf-7")


async def test_another_charset_is_told_in_the_dialect_and_asks_nobody() -> None:
    rig = Rig(json_script(completion()))
    told = await rig.chat("hi", UTF_7)
    assert told.status == 415
    assert told.json["error"]["param"] == "content-type"
    assert rig.upstream.sent == []


async def test_a_stored_answer_is_not_given_under_another_charset() -> None:
    rig = Rig(json_script(completion()))
    for _ in range(3):
        await rig.chat("hi")
    assert (await rig.chat("hi", UTF_7)).status == 415


async def test_another_charset_names_no_model_that_the_tenant_may_not_use() -> None:
    rig = Rig(json_script(completion()))
    told = await rig.chat("hi", UTF_7, ("cache-control", "no-store"))
    assert told.status == 415


async def test_a_file_keeps_its_type_and_its_coding() -> None:
    rig = Rig(json_script({}))
    kind = ("content-type", "multipart/form-data; charset=utf-16; boundary=x")
    await rig.ask("/v1/files", b"--x--", kind, ("content-encoding", "gzip"))
    headers = dict(rig.upstream.sent[0].headers)
    assert headers[b"content-type"] == kind[1].encode()
    assert headers[b"content-encoding"] == b"gzip"
