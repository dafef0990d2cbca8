"""Slots of a llama.cpp server: given away once, and never to another tenant."""

from __future__ import annotations

from pathlib import Path

from trivet.middleware.prefix_tier.slots import Slot, SlotBook

SECRET = b"s" * 32


def _book(path: Path) -> SlotBook:
    return SlotBook(path / "state" / "slots", SECRET)


def test_tenants_get_slots_in_the_order_in_which_they_come(tmp_path: Path) -> None:
    book = _book(tmp_path)
    assert [book.slot("up", name, 2) for name in ("b", "a", "b")] == [
        Slot(0, 1),
        Slot(1, 1),
        Slot(0, 1),
    ]


def test_a_tenant_too_many_makes_the_last_slot_common(tmp_path: Path) -> None:
    """Who had it gives it up: what the others compute there could be read otherwise."""
    book = _book(tmp_path)
    first = [book.slot("up", name, 2) for name in ("a", "b")]
    assert book.slot("up", "c", 2) == Slot(None, 1)
    assert first == [Slot(0, 1), Slot(1, 1)]
    assert [book.slot("up", name, 2) for name in ("a", "b", "d")] == [
        Slot(0, 1),
        Slot(None, 1),
        Slot(None, 1),
    ]


def test_one_slot_is_for_one_tenant(tmp_path: Path) -> None:
    book = _book(tmp_path)
    assert book.slot("up", "a", 1) == Slot(0, 0)
    assert book.slot("up", "b", 1) == Slot(None, 0)
    assert book.slot("up", "a", 1) == Slot(None, 0)


def test_workers_agree(tmp_path: Path) -> None:
    one, two = _book(tmp_path), _book(tmp_path)
    assert one.slot("up", "a", 3) == Slot(0, 2)
    assert two.slot("up", "b", 3) == Slot(1, 2)
    assert one.slot("up", "b", 3) == Slot(1, 2)
    assert _book(tmp_path).slot("up", "a", 3) == Slot(0, 2)


def test_upstreams_are_told_apart(tmp_path: Path) -> None:
    book = _book(tmp_path)
    book.slot("up", "a", 2)
    assert book.slot("other", "b", 2) == Slot(0, 1)


def test_the_book_names_nobody_and_is_bounded(tmp_path: Path) -> None:
    book = _book(tmp_path)
    for at in range(100):
        book.slot("up", f"tenant-{at}", 4)
    text = (tmp_path / "state" / "slots").read_text()
    assert "tenant" not in text
    assert len(text.splitlines()) == 5
    assert (tmp_path / "state" / "slots").stat().st_mode & 0o077 == 0


def test_a_book_that_cannot_be_written_gives_nobody_a_slot(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    book = _book(tmp_path)
    assert book.slot("up", "a", 2) == Slot(None, 1)


def test_a_book_that_is_damaged_gives_nobody_a_slot(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "slots").write_bytes(b"\xff nonsense\n")
    assert _book(tmp_path).slot("up", "a", 2) == Slot(None, 1)
