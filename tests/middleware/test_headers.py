"""What of a request's and a response's head goes on, and what does not."""

from __future__ import annotations

import pytest

from trivet.errors import RequestError
from trivet.middleware.arrival.headers import (
    RawHeaders,
    RequestHeaders,
    cache_wishes,
    new_request_id,
    replayable,
    to_caller,
    to_upstream,
)
from trivet.policies.directives import Directives


def headers(*pairs: tuple[str, str]) -> RequestHeaders:
    return RequestHeaders([(name.encode(), value.encode("latin-1")) for name, value in pairs])


def forwarded(
    *pairs: tuple[str, str],
    credential: bytes | None = None,
    hidden: frozenset[bytes] = frozenset(),
    plain: bool = True,
) -> RawHeaders:
    return to_upstream(headers(*pairs), credential, hidden, plain=plain)


class TestRequestHeaders:
    def test_values_are_decoded_by_lower_case_name(self) -> None:
        found = headers(("x-a", "caf\xe9"))
        assert found["x-a"] == "caf\xe9"
        assert found.get("x-b") is None
        assert found.get_raw(b"x-a") == b"caf\xe9"
        assert "x-a" in found
        assert list(found) == ["x-a"]
        assert len(found) == 1

    def test_repeated_names_are_one_list_so_that_no_directive_is_lost(self) -> None:
        found = headers(("cache-control", "no-store"), ("cache-control", "max-age=5"))
        assert found["cache-control"] == "no-store, max-age=5"

    @pytest.mark.parametrize(
        "name", ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"]
    )
    def test_what_tells_callers_apart_may_come_once_only(self, name: str) -> None:
        with pytest.raises(RequestError) as caught:
            headers((name, "a"), ("x", "y"), (name, "b"))
        assert caught.value.status == 400
        assert caught.value.field == name

    def test_what_connection_names_is_for_this_hop_alone(self) -> None:
        found = headers(("connection", "keep-alive, X-Hop"), ("x-hop", "1"), ("x-end", "2"))
        assert found["x-hop"] == "1"
        assert found.end_to_end == [(b"connection", b"keep-alive, X-Hop"), (b"x-end", b"2")]

    def test_an_ordinary_connection_header_costs_no_copy(self) -> None:
        found = headers(("connection", "Keep-Alive"), ("x-end", "2"))
        assert found.end_to_end is found.raw


class TestToUpstream:
    def test_hop_by_hop_fields_and_framing_are_dropped(self) -> None:
        dropped = (
            "connection",
            "keep-alive",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "host",
            "content-length",
            "expect",
        )
        kept = forwarded(*((name, "1") for name in dropped), ("x-kept", "1"))
        assert kept == [(b"x-kept", b"1"), (b"accept-encoding", b"identity")]

    def test_what_any_of_two_connection_headers_names_is_dropped(self) -> None:
        kept = forwarded(("connection", "x-hop"), ("connection", "keep-alive"), ("x-hop", "1"))
        assert kept == [(b"accept-encoding", b"identity")]

    def test_trivets_own_headers_and_the_gateways_stay_here(self) -> None:
        kept = forwarded(
            ("trivet-route", "/a"), ("x-tenant", "acme"), hidden=frozenset((b"x-tenant",))
        )
        assert kept == [(b"accept-encoding", b"identity")]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("authorization", "Bearer tvt_abc"),
            ("authorization", "bearer  tvt_abc "),
            ("authorization", "tvt_abc"),
            ("x-api-key", "tvt_abc"),
            ("api-key", " tvt_abc"),
            ("x-goog-api-key", "tvt_abc"),
        ],
    )
    def test_a_key_of_trivets_own_never_goes_upstream(self, name: str, value: str) -> None:
        assert forwarded((name, value)) == [(b"accept-encoding", b"identity")]

    def test_the_upstreams_own_key_may_travel_beside_ours(self) -> None:
        kept = forwarded(("x-api-key", "tvt_abc"), ("authorization", "Bearer sk-up"))
        assert (b"authorization", b"Bearer sk-up") in kept
        assert len(kept) == 2

    def test_a_configured_credential_replaces_every_proof_of_the_caller(self) -> None:
        kept = forwarded(
            ("authorization", "Bearer a"),
            ("x-api-key", "b"),
            ("api-key", "c"),
            ("x-goog-api-key", "d"),
            ("cookie", "session=1"),
            credential=b"sk-up",
        )
        assert kept == [(b"authorization", b"Bearer sk-up"), (b"accept-encoding", b"identity")]

    def test_a_configured_credential_goes_where_anthropic_looks_for_it(self) -> None:
        kept = forwarded(("anthropic-version", "2023-06-01"), credential=b"sk-up")
        assert (b"x-api-key", b"sk-up") in kept

    def test_what_is_not_recorded_may_come_compressed(self) -> None:
        assert forwarded(("accept-encoding", "br"), plain=False) == [(b"accept-encoding", b"br")]
        assert forwarded(plain=False) == []

    def test_order_and_repetition_of_the_others_are_kept(self) -> None:
        kept = forwarded(("b", "1"), ("a", "2"), ("b", "3"), plain=False)
        assert kept == [(b"b", b"1"), (b"a", b"2"), (b"b", b"3")]


class TestToCaller:
    def test_hop_by_hop_fields_and_foreign_cache_fields_are_dropped(self) -> None:
        raw = [
            (b"Connection", b"X-Hop"),
            (b"X-Hop", b"1"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Content-Length", b"3"),
            (b"Cache-Status", b"cdn; hit"),
            (b"Age", b"7"),
            (b"X-Request-Id", b"r"),
        ]
        assert to_caller(raw) == [(b"x-request-id", b"r")]

    def test_two_cookies_stay_two(self) -> None:
        raw = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        assert to_caller(raw) == raw


def test_only_headers_that_still_hold_are_stored_however_they_are_written() -> None:
    raw = [(b"OpenAI-Version", b"2020-10-01"), (b"x-request-id", b"r"), (b"set-cookie", b"a=1")]
    assert replayable(raw) == (("openai-version", "2020-10-01"),)


def test_request_ids_are_never_the_same() -> None:
    made = {new_request_id() for _ in range(100)}
    assert len(made) == 100
    assert all(one.startswith("req_trivet_") for one in made)


@pytest.mark.parametrize(
    ("directives", "sent"),
    [
        (Directives(), []),
        (Directives(ttl=60.0), []),
        (Directives(no_cache=True), [(b"cache-control", b"no-cache")]),
        (
            Directives(no_cache=True, no_store=True, max_age=60.0),
            [(b"cache-control", b"no-cache, no-store, max-age=60")],
        ),
    ],
)
def test_wishes_of_a_stripped_field_become_a_header(
    directives: Directives, sent: RawHeaders
) -> None:
    assert cache_wishes(directives) == sent
