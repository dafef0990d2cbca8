"""Events and frames on their way between processes."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.fleet import EventCodec, claim_name, is_result
from trivet.exact.flight import Failed, Flight, FlightLimits, Head, Stored, Unstored
from trivet.exact.frames import FrameLink, Kind, pack_topic, unpack_topic
from trivet.exact.redis_names import Following, Names
from trivet.exact.seal import Seal
from trivet.messages import Api, ExactKey

KEY = ExactKey(b"k" * 32)
ENTRY = Entry(KEY, "t", Api.CHAT, b"{}", b"body", "m", None, (), 1.0, 2.0, 2.0)
CODEC = EventCodec(
    lambda entry: entry.body,
    lambda tenant, key, raw: ENTRY if raw == ENTRY.body and (tenant, key) == ("t", KEY) else None,
)
SEAL = Seal(b"0123456789abcdef")


def make(tenant: str = "t", attempt: int = 0, key: ExactKey = KEY) -> Flight:
    async def inside() -> Flight:
        return Flight(key, tenant, FlightLimits(1, 1), attempt=attempt)

    return asyncio.run(inside())


FLIGHT = make()
short = st.binary(max_size=20)
heads = st.builds(
    Head, st.integers(0, 999), st.lists(st.tuples(short, short)).map(tuple), st.booleans()
)


@given(heads | short | st.text(max_size=20).map(Unstored) | st.just(Stored(ENTRY)))
def test_events_arrive_as_they_left(event: Any) -> None:
    packed = CODEC.pack(event)
    assert CODEC.unpack(FLIGHT, packed) == event
    assert is_result(packed) == isinstance(event, Stored | Unstored)


def test_an_entry_arrives_in_a_flight_that_goes_by_more_than_its_key() -> None:
    flight = make(key=ExactKey(b"x" * 32))
    assert CODEC.unpack(flight, CODEC.pack(Stored(ENTRY))) == Stored(ENTRY)


@given(st.text(max_size=60), st.text(max_size=60), st.integers(0, 999))
def test_errors_arrive_as_they_left(reason: str, message: str, status: int) -> None:
    packed = CODEC.pack(Failed(UpstreamError(reason, message, status)))
    event = CODEC.unpack(FLIGHT, packed)
    assert isinstance(event, Failed)
    assert is_result(packed)
    error = event.error
    assert (error.reason, error.message, error.status) == (reason, message, status)


def test_an_entry_that_does_not_open_is_an_unstored_answer() -> None:
    packed = CODEC.pack(Stored(ENTRY))
    assert CODEC.unpack(make(tenant="u"), packed) == Unstored("handover")
    assert CODEC.unpack(FLIGHT, packed + b"x") == Unstored("handover")


@given(st.binary(max_size=40))
def test_rubbish_is_a_failed_flight_or_an_event_and_never_an_exception(packed: bytes) -> None:
    event = CODEC.unpack(FLIGHT, packed)
    assert isinstance(event, Head | bytes | Stored | Unstored | Failed)


def test_claims_differ_by_tenant_key_and_attempt() -> None:
    other = ExactKey(b"o" * 32)
    flights = [FLIGHT, make(tenant="u"), make(attempt=1), make(key=other)]
    assert len({claim_name(flight) for flight in flights}) == 4


class Wire(asyncio.Transport):
    """Collects what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.aborted = True


def link(frames: list[tuple[int, int, bytes]]) -> tuple[FrameLink, Wire]:
    made, wire = (
        FrameLink(lambda link, *frame: frames.append(frame), lambda link: None, lambda link: None),
        Wire(),
    )
    made.connection_made(wire)
    return made, wire


@given(st.lists(st.binary(max_size=30), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_any_cut_of_the_byte_stream(payloads: list[bytes], cuts: list[int]) -> None:
    got: list[tuple[int, int, bytes]] = []
    sender, wire = link([])
    receiver, _ = link(got)
    for number, payload in enumerate(payloads):
        sender.send(Kind.DATA, number, payload)
    rest, turn = wire.written, 0
    while rest:
        size = cuts[turn % len(cuts)]
        receiver.data_received(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert got == [(Kind.DATA, number, payload) for number, payload in enumerate(payloads)]


def test_a_frame_of_an_impossible_length_ends_the_connection() -> None:
    for head in (b"\x00\x00\x00\x01", b"\xff\xff\xff\xff"):
        got: list[tuple[int, int, bytes]] = []
        receiver, wire = link(got)
        receiver.data_received(head + b"\x00" * 20)
        assert (wire.aborted, got) == (True, [])


@given(st.text(max_size=50), st.binary())
def test_topics_survive(topic: str, payload: bytes) -> None:
    assert unpack_topic(pack_topic(topic, payload)) == (topic, payload)


def test_an_inbox_item_opens_only_in_its_own_place() -> None:
    here = Following(SEAL, "t", b"f" * 16, b"n" * 16)
    item = here.seal_item(3, b"event")
    assert here.open_item(item) == (3, b"event")
    moved = (4).to_bytes(8, "big") + item[8:]
    others = [
        Following(SEAL, "u", b"f" * 16, b"n" * 16),
        Following(SEAL, "t", b"g" * 16, b"n" * 16),
        Following(SEAL, "t", b"f" * 16, b"m" * 16),
        Following(Seal(b"another secret of ours"), "t", b"f" * 16, b"n" * 16),
    ]
    assert here.open_item(moved) is None
    assert here.open_item(b"") is None
    assert here.open_item(item[:-1]) is None
    assert [other.open_item(item) for other in others] == [None] * 4
    assert here.open_message(b"A", item[8:]) is None


def test_a_lease_opens_only_for_its_tenant_key_and_attempt() -> None:
    names = Names("p:", SEAL)
    value = names.seal_lease(FLIGHT, b"f" * 16, b"p" * 16)
    assert names.open_lease(FLIGHT, value) == (b"f" * 16, b"p" * 16)
    assert names.open_lease(make(tenant="u"), value) is None
    assert names.open_lease(make(attempt=1), value) is None
    assert names.open_lease(FLIGHT, b"g" * 16 + value[16:]) is None
    assert names.lease(FLIGHT) != names.lease(make(attempt=1))
    assert "t" not in names.lease(FLIGHT).split(":")[2]
