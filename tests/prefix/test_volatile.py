"""What changes from request to request by its look."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.prefix.doctor.volatile import KINDS, volatile

BEFORE = st.sampled_from(["", "As of ", "(", "at: ", "see the list;\n"])
AFTER = st.sampled_from(["", ".", ", more", " and so on", ")", "\nThen"])
MOMENTS = st.datetimes(datetime(2001, 1, 1), datetime(2039, 1, 1)).map(
    lambda at: at.replace(microsecond=0)
)
FORMATS = ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M", "%H:%M:%S", "%I:%M %p", "%d %B %Y, %H:%M",
           "%a, %d %b %Y %H:%M:%S GMT", "%B %d, %Y at %I:%M %p", "%d.%m.%Y %H:%M",
           "%m/%d/%Y %H:%M:%S", "%Y%m%dT%H%M%SZ", "%A, %B %d, %Y %H:%M"]  # fmt: skip
DAYS = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%B %d, %Y", "%d %B %Y", "%A, %B %d, %Y", "%d-%b-%Y"]


def covered(text: str, piece: str, kinds: set[str]) -> bool:
    """Whether pieces of these kinds hold all of `piece` but its edges."""
    at = text.index(piece)
    return any(
        found.start <= at and found.end >= at + len(piece.rstrip(".")) and found.kind in kinds
        for found in volatile(text)
    )


@given(BEFORE, MOMENTS, st.sampled_from(FORMATS), AFTER)
def test_a_time_of_day_is_a_timestamp_with_its_date(
    before: str, moment: datetime, form: str, after: str
) -> None:
    piece = moment.strftime(form)
    assert covered(f"{before}{piece}{after}", piece, {"timestamp"})


@given(BEFORE, MOMENTS, st.sampled_from(DAYS), AFTER)
def test_a_day_is_a_date(before: str, moment: datetime, form: str, after: str) -> None:
    piece = moment.strftime(form)
    assert covered(f"{before}{piece}{after}", piece, {"date"})


@given(BEFORE, st.integers(0, 10**9), AFTER)
def test_unix_time_is_a_timestamp(before: str, seconds: int, after: str) -> None:
    piece = str(int((datetime(2018, 1, 1, tzinfo=UTC) + timedelta(0)).timestamp()) + seconds // 5)
    assert covered(f"{before}{piece}{after}", piece, {"timestamp"})


@given(BEFORE, st.uuids(), AFTER)
def test_a_uuid_is_one(before: str, piece: object, after: str) -> None:
    assert covered(f"{before}{piece}{after}", str(piece), {"uuid"})


@given(BEFORE, st.binary(min_size=16, max_size=16), AFTER)
def test_a_digest_in_hex_is_a_hash_or_an_id(before: str, raw: bytes, after: str) -> None:
    assert covered(f"{before}{raw.hex()}{after}", raw.hex(), {"hash", "random-id", "timestamp"})


@given(
    st.sampled_from(["user: ", "You are talking to ", "Hello ", '"name": "']),
    st.sampled_from(["Anna Schmidt", "Jean-Luc Picard", "O'Neill", "Şule", "Ивана Петрова"]),
)
def test_a_name_behind_a_cue_is_a_users(before: str, name: str) -> None:
    assert covered(f'{before}{name}", and more', name, {"user-name"})


@given(st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8})?@[a-z]{2,8}\.(com|org)", fullmatch=True), AFTER)
def test_an_address_is_an_e_mail(piece: str, after: str) -> None:
    assert covered(f"Mail {piece}{after}", piece, {"e-mail"})


@given(st.text(max_size=300) | st.text(st.sampled_from("a1-:/. @TZ,\n2026"), max_size=300))
def test_pieces_lie_in_their_order_inside_the_text(text: str) -> None:
    end = 0
    for found in volatile(text):
        assert end <= found.start < found.end <= len(text)
        assert found.kind in KINDS
        end = found.end


def test_plain_prose_has_no_telling_pieces() -> None:
    text = "answer in the language of the question. keep it short, and give your sources."
    assert list(volatile(text)) == []


@pytest.mark.parametrize("piece", ["a-", "1:", "Aa ", "a.", "1 a ", "user ", "Jan ", "=/", "a@a."])
def test_long_texts_take_time_in_proportion(piece: str) -> None:
    def took(times: int) -> float:
        began = time.thread_time()
        assert sum(1 for _ in volatile(piece * times, 10**9)) >= 0
        return time.thread_time() - began

    took(1_000)
    short, long = min(took(4_000) for _ in range(3)), min(took(32_000) for _ in range(3))
    assert long < 32 * max(short, 1e-4)


def test_at_most_so_many_pieces_are_found() -> None:
    assert len(list(volatile("a 1 " * 100, 10))) <= 11
