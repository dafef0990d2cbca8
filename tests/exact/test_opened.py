"""What was opened before is served only for the very same bytes."""

from __future__ import annotations

import pytest
from entries import entry, key

from trivet.exact.codec import Rejected, encode
from trivet.exact.entry import Entry
from trivet.exact.opened import Opened
from trivet.exact.seal import Seal

SEAL = Seal(b"s" * 32)


def test_the_same_bytes_are_the_same_entry() -> None:
    opened, made = Opened(SEAL, 1 << 20), entry("a")
    raw = encode(made, SEAL)
    first = opened.decode(raw, made.tenant, made.key)
    assert first == made
    assert opened.decode(bytes(bytearray(raw)), made.tenant, made.key) is first


def test_without_a_bound_nothing_is_kept() -> None:
    opened, made = Opened(SEAL), entry("a")
    raw = encode(made, SEAL)
    first = opened.decode(raw, made.tenant, made.key)
    assert opened.decode(raw, made.tenant, made.key) is not first
    assert opened.find(raw, made.tenant, made.key) is None


@pytest.mark.parametrize("place", [0, 1, 40, -1])
def test_a_byte_changed_after_the_first_opening_is_refused(place: int) -> None:
    opened, made = Opened(SEAL, 1 << 20), entry("a")
    raw = encode(made, SEAL)
    opened.decode(raw, made.tenant, made.key)
    altered = bytearray(raw)
    altered[place] ^= 1
    assert isinstance(opened.decode(bytes(altered), made.tenant, made.key), Rejected)


def test_the_same_bytes_under_another_key_or_tenant_are_refused() -> None:
    opened, made = Opened(SEAL, 1 << 20), entry("a")
    raw = encode(made, SEAL)
    opened.decode(raw, made.tenant, made.key)
    assert opened.decode(raw, made.tenant, key("b")) == Rejected("mac")
    assert opened.decode(raw, "another", made.key) == Rejected("mac")


def test_a_new_answer_under_the_same_key_replaces_the_old_one() -> None:
    opened, old, new = Opened(SEAL, 1 << 20), entry("a", body=b"old"), entry("a", body=b"new")
    for made in (old, new, old):
        found = opened.decode(encode(made, SEAL), made.tenant, made.key)
        assert isinstance(found, Entry)
        assert found.body == made.body


def test_the_entries_read_last_stay_within_the_bound() -> None:
    made = [entry(str(number)) for number in range(20)]
    raws = [encode(one, SEAL) for one in made]
    room = len(raws[0]) + made[0].size + len(made[0].body) + 8
    opened = Opened(SEAL, 10 * room)
    for raw, one in zip(raws, made, strict=True):
        opened.decode(raw, one.tenant, one.key)
    kept = [
        number
        for number, (raw, one) in enumerate(zip(raws, made, strict=True))
        if opened.find(raw, one.tenant, one.key) is not None
    ]
    assert kept == list(range(10, 20))


def test_an_entry_that_is_large_for_the_bound_is_not_kept() -> None:
    opened, made = Opened(SEAL, 8000), entry("a", body=b"x" * 1000)
    raw = encode(made, SEAL)
    opened.decode(raw, made.tenant, made.key)
    assert opened.find(raw, made.tenant, made.key) is None
