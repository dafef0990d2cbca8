"""What earlier releases stored is read by this one, and what it cannot read is a miss."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from stored_entries import ENTRIES, FOLDER, RECORD, SECRET, seal, stored, written

from trivet.exact.codec import Rejected, decode
from trivet.exact.seal import Seal
from trivet.semantic.record_codec import unseal_record

RELEASES = sorted(file.stem for file in FOLDER.glob("*.json"))
KINDS = pytest.mark.parametrize("kind", ["sealed", "encrypted"])
EACH = pytest.mark.parametrize("release", RELEASES)


def test_this_release_has_its_bytes_kept() -> None:
    assert version("trivet") in RELEASES, "run: python tests/exact/stored_entries.py"


@EACH
@KINDS
@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_of_each_release_is_read(release: str, kind: str, name: str) -> None:
    entry = ENTRIES[name]
    raw = stored(release)[kind][name]
    assert decode(raw, entry.tenant, entry.key, seal(kind)) == entry


@EACH
@KINDS
def test_a_semantic_record_of_each_release_is_read(release: str, kind: str) -> None:
    assert unseal_record(stored(release)[kind]["record"], RECORD.id, seal(kind)) == RECORD


def test_what_is_written_has_not_changed_without_a_new_release() -> None:
    """Sealed bytes are the same each time; an older process of the fleet has to read them too."""
    kept, made = stored(version("trivet"))["sealed"], written()["sealed"]
    assert made["plain"] == kept["plain"]
    assert made["record"] == kept["record"]


@KINDS
@pytest.mark.parametrize("number", [0, 3, 255])
def test_a_format_of_another_number_is_a_miss(kind: str, number: int) -> None:
    entry = ENTRIES["plain"]
    raw = bytes([number]) + stored(version("trivet"))[kind]["plain"][1:]
    assert decode(raw, entry.tenant, entry.key, seal(kind)) == Rejected("format")


@KINDS
def test_the_other_kind_of_store_is_another_format(kind: str) -> None:
    entry = ENTRIES["plain"]
    other = Seal(SECRET, encrypt=kind != "encrypted")
    raw = stored(version("trivet"))[kind]["plain"]
    assert decode(raw, entry.tenant, entry.key, other) == Rejected("format")
