"""What a process knows of Redis tenants' tombstones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from trivet.exact import redis_purged
from trivet.exact.redis_purged import KnownPurges

LABEL = b"0f" * 16


class Hashes:
    """The hashes `t`, and how often they were asked for."""

    def __init__(self, **fields: bytes) -> None:
        self.fields = {name.encode(): value for name, value in fields.items()}
        self.asked: list[bytes] = []

    async def fetch(self, prefixes: Sequence[bytes]) -> Sequence[Mapping[bytes, bytes]]:
        self.asked += prefixes
        return [self.fields for _ in prefixes]


async def test_what_was_read_holds_for_its_token_only() -> None:
    hashes = Hashes(token=b"1", floor=b"9.0", **{LABEL.decode(): b"5.5", "": b"nan"})
    known = KnownPurges(hashes.fetch)
    assert known.of(b"p", b"1") is None
    assert await known.read(b"", b"p") == {bytes.fromhex(LABEL.decode()): 5.5, b"": math.inf}
    assert known.of(b"p", b"1") == {bytes.fromhex(LABEL.decode()): 5.5, b"": math.inf}
    assert known.of(b"p", b"2") is None
    assert known.of(b"p", None) is None
    assert hashes.asked == [b"p"]
    await known.close()


async def test_too_many_names_are_forgotten_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_purged, "_MOST_NAMES", 3)
    known = KnownPurges(Hashes(token=b"1", **{LABEL.decode(): b"5"}).fetch)
    for number in range(20):
        await known.read(b"", b"%d" % number)
        held = [n for n in range(20) if known.of(b"%d" % n, b"1") is not None]
        assert number in held
        assert len(held) <= 4
    await known.close()
