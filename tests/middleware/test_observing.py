from structlog.testing import capture_logs

from trivet.middleware.observe.observing import tell_all
from trivet.telemetry import Event, StoreState, ignore


def event(state: str = "up") -> StoreState:
    return StoreState("redis", state, "secret prompt")  # type: ignore[arg-type]


def broken(_: Event, /) -> None:
    raise ValueError("quotes: secret prompt")


def test_every_observer_is_told_in_order() -> None:
    seen: list[str] = []
    tell = tell_all(lambda _: seen.append("a"), lambda _: seen.append("b"))
    tell(event())
    assert seen == ["a", "b"]


def test_an_observer_that_raises_hurts_neither_the_request_nor_the_others() -> None:
    seen: list[Event] = []
    tell = tell_all(broken, seen.append)
    with capture_logs():
        tell(event())
        tell(event())
    assert seen == [event(), event()]


def test_a_lone_observer_is_guarded_too() -> None:
    with capture_logs() as lines:
        tell_all(broken)(event())
    assert len(lines) == 1


def test_a_failing_observer_is_reported_once_and_without_what_it_was_told() -> None:
    tell = tell_all(broken)
    with capture_logs() as lines:
        for _ in range(3):
            tell(event())
    (line,) = lines
    assert (line["event"], line["observer"], line["error"]) == (
        "observer-failed",
        "broken",
        "ValueError",
    )
    assert "secret" not in str(line)


def test_nothing_to_tell_is_the_observer_that_does_nothing() -> None:
    assert tell_all() is ignore
    assert tell_all(ignore) is ignore
