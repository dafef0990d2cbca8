"""Stop strings in text that comes in pieces, and the parts of the engine that need no model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trivet.prefix.engine.streaming import StopFilter


def passed(pieces: list[str], stops: tuple[str, ...]) -> tuple[str, bool]:
    got: list[str] = []
    stop = StopFilter(stops, got.append)
    for piece in pieces:
        stop.push(piece, end=False)
    stop.push("", end=True)
    return "".join(got), stop.stopped


def test_text_ends_before_a_stop_string_that_spans_pieces() -> None:
    assert passed(["a", "b", "c", "d"], ("bc",)) == ("a", True)


def test_a_beginning_that_leads_nowhere_is_passed_on() -> None:
    assert passed(["ab", "ab"], ("abc",)) == ("abab", False)


def test_an_empty_stop_string_stops_nothing() -> None:
    assert passed(["ab"], ("",)) == ("ab", False)


@given(st.lists(st.text("ab", max_size=3)), st.lists(st.text("ab", min_size=1, max_size=3)))
def test_pieces_make_no_difference(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    places = [whole.find(stop) for stop in stops if stop in whole]
    wanted = (whole[: min(places)], True) if places else (whole, False)
    got = passed(pieces, tuple(stops))
    # Text that was passed on before its stop string was whole never holds a beginning of it, so
    # the earliest stop string to be complete decides; it can begin later than a longer one.
    assert got[1] == wanted[1]
    assert whole.startswith(got[0])
    assert not any(stop in got[0] for stop in stops)
