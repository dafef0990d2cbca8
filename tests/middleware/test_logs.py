import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from trivet.messages import Api, Usage
from trivet.middleware.observe.logs import Format, Level, LogObserver, configure
from trivet.telemetry import (
    REPLICA_STARTED,
    Collapse,
    EntryRejected,
    PolicyReload,
    PrefixPing,
    ReplicaChanged,
    RequestDone,
    StoreOperation,
    StoreState,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.handlers[:], root.level, uvicorn.level, uvicorn.propagate
    # uvicorn's own logging config, which other tests load, keeps its records to itself.
    uvicorn.propagate = True
    yield
    root.handlers[:], root.level, uvicorn.level, uvicorn.propagate = before
    structlog.reset_defaults()


class Sink:
    """A configured log, and the lines written to it."""

    def __init__(
        self, level: Level = "info", format: Format = "json", worker: int | None = None
    ) -> None:
        self.out = io.BytesIO()
        configure(level, format, worker=worker, stream=self.out)

    @property
    def text(self) -> str:
        return self.out.getvalue().decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def done(model: str = "gpt-4o") -> RequestDone:
    return RequestDone(
        tenant="acme",
        api=Api.CHAT,
        model=model,
        upstream="openai",
        status=200,
        stream=True,
        tier="exact",
        outcome="hit",
        reason="",
        total_s=0.0005,
        upstream_s=0.0,
        first_byte_s=0.00025,
        request_bytes=4096,
        response_bytes=1020,
        usage=Usage(10, 2),
        stored=False,
        traceparent="00-secret",
    )


def test_a_store_that_goes_down_is_one_line_however_many_requests_notice() -> None:
    """N3: a dead Redis at 100 requests a second."""
    sink, observer = Sink(), LogObserver()
    for _ in range(100):
        observer(StoreOperation("redis", "get", "timeout", 0.05, 0))
        observer(StoreState("redis", "down", "timeout"))
        observer(done())
    observer(StoreState("redis", "up", ""))
    assert sink.events == ["store-state", "store-state"]
    first, second = sink.lines
    assert (first["level"], first["store"], first["state"], first["reason"]) == (
        "warning",
        "redis",
        "down",
        "timeout",
    )
    assert (second["level"], second["was"], second["state"]) == ("info", "down", "up")


def test_a_line_about_a_store_says_what_it_means_for_requests_and_has_no_empty_fields() -> None:
    sink, observer = Sink(), LogObserver()
    observer(StoreState("redis", "down", "timeout"))
    observer(StoreState("redis", "up", ""))
    down, up = sink.lines
    assert down["effect"] == "requests go to the upstream, answers are not stored"
    assert "was" not in down
    assert up.keys() - {"timestamp", "level", "event"} == {"store", "state", "was"}


def test_a_line_about_rejected_entries_says_what_the_code_means() -> None:
    sink, observer = Sink(), LogObserver()
    for reason in ("mac", "something-new"):
        observer(EntryRejected("redis", reason))
    assert [line["meaning"] for line in sink.lines] == [
        "not written with this deployment's TRIVET_SECRET, or altered since",
        "cannot be trusted",
    ]


@pytest.mark.parametrize(
    ("store", "effect"),
    [
        ("sqlite", "requests go to the upstream, answers are not stored"),
        ("hub", "identical requests are collapsed within each worker only"),
        ("fleet", "identical requests are collapsed within each machine only"),
        ("semantic-models", "similar questions are not answered from the cache"),
        ("verifier:default", "similar questions are not answered from the cache"),
    ],
)
def test_each_part_that_is_down_has_an_effect_of_its_own(store: str, effect: str) -> None:
    sink = Sink()
    LogObserver()(StoreState(store, "down", "refused"))
    assert sink.lines[0]["effect"] == effect


def test_each_store_has_a_state_of_its_own() -> None:
    sink, observer = Sink(), LogObserver()
    observer(StoreState("redis", "down", "refused"))
    observer(StoreState("sqlite", "down", "locked"))
    assert [line["store"] for line in sink.lines] == ["redis", "sqlite"]


def test_a_refused_policy_set_is_said_once_until_something_changes() -> None:
    sink, observer = Sink(), LogObserver()
    for _ in range(3):
        observer(PolicyReload(False, "v1", 2))
    observer(PolicyReload(True, "v2", 0))
    observer(PolicyReload(False, "v2", 2))
    assert sink.events == ["policies-refused", "policies-loaded", "policies-refused"]
    assert sink.lines[0]["still_in_use"] == "v1"


def test_rejected_entries_are_one_line_a_minute_with_their_number() -> None:
    clock = Clock()
    sink, observer = Sink(), LogObserver(clock=clock)
    for _ in range(50):
        observer(EntryRejected("redis", "mac"))
    observer(EntryRejected("redis", "format"))
    clock.now = 60.0
    observer(EntryRejected("redis", "mac"))
    assert [(line["reason"], line["count"]) for line in sink.lines] == [
        ("mac", 1),
        ("format", 1),
        ("mac", 50),
    ]


def test_requests_are_not_logged_unless_asked_for() -> None:
    sink = Sink()
    LogObserver()(done())
    LogObserver()(Collapse("lead", "process"))
    assert sink.text == ""


def test_the_access_log_says_what_happened_to_a_request() -> None:
    sink = Sink()
    LogObserver(access=True)(done())
    (line,) = sink.lines
    del line["timestamp"]
    assert line == {
        "level": "info",
        "event": "request",
        "id": None,
        "tenant": "acme",
        "api": "chat",
        "model": "gpt-4o",
        "upstream": "openai",
        "status": 200,
        "stream": True,
        "tier": "exact",
        "outcome": "hit",
        "reason": "",
        "stored": False,
        "total_ms": 0.5,
        "upstream_ms": 0.0,
        "first_byte_ms": 0.25,
        "request_bytes": 4096,
        "response_bytes": 1020,
        "input_tokens": 10,
        "output_tokens": 2,
    }


def test_the_access_log_is_below_the_level_warning() -> None:
    sink = Sink("warning")
    LogObserver(access=True)(done())
    assert sink.text == ""


def test_a_line_begins_with_its_time_level_and_event() -> None:
    sink = Sink()
    LogObserver()(StoreState("redis", "down", "refused"))
    assert list(sink.lines[0])[:3] == ["timestamp", "level", "event"]


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize("model", ["a\nb", "a\x1b[2Jb", "a\rb", "a\u2028b", "a\x00b"])
def test_a_callers_text_can_neither_forge_a_line_nor_drive_the_terminal(
    format: Format, model: str
) -> None:
    sink = Sink(format=format)
    LogObserver(access=True)(done(model))
    line = sink.text.removesuffix("\n")
    assert all(char not in line for char in "\n\r\x1b\x00")
    assert len(line.splitlines()) == 1 or format == "json"


def test_a_lone_surrogate_is_logged_all_the_same() -> None:
    sink = Sink()
    LogObserver(access=True)(done("a\ud800"))
    assert sink.lines[0]["model"] == "a\ud800"


def test_a_long_model_name_is_cut() -> None:
    sink = Sink()
    LogObserver(access=True)(done("x" * 10_000))
    assert len(sink.lines[0]["model"]) == 128


def test_the_worker_is_on_every_line_where_there_are_several() -> None:
    sink = Sink(worker=2)
    LogObserver()(StoreState("redis", "down", "refused"))
    assert sink.lines[0]["worker"] == 2


def test_a_stream_that_is_gone_loses_lines_and_raises_nothing() -> None:
    sink = Sink()
    sink.out.close()
    LogObserver()(StoreState("redis", "down", "refused"))


def test_records_of_the_standard_library_are_lines_of_the_same_kind() -> None:
    sink = Sink()
    logging.getLogger("uvicorn.other").info("not this")
    logging.getLogger("uvicorn.other").warning("Uvicorn running on %s", "8080")
    logging.getLogger("asyncio").info("not this")
    try:
        raise ValueError("cause")
    except ValueError:
        logging.getLogger("asyncio").exception("task failed")
    first, second = sink.lines
    assert (first["event"], first["logger"]) == ("Uvicorn running on 8080", "uvicorn.other")
    assert second["exception"].endswith("ValueError: cause")


def test_the_console_format_is_for_people() -> None:
    sink = Sink(format="console")
    LogObserver()(StoreState("redis", "down", "refused"))
    assert "store-state" in sink.text
    assert "store=redis" in sink.text
    assert "\x1b" not in sink.text


def failed(reason: str = "upstream-refused") -> RequestDone:
    return done()._replace(tier=None, outcome="error", reason=reason, status=502)


def answered() -> RequestDone:
    return done()._replace(tier=None, outcome="miss", upstream_s=0.1)


def test_an_upstream_that_fails_is_one_line_and_one_more_when_it_answers_again() -> None:
    clock = Clock()
    sink, observer = Sink(), LogObserver(clock=clock)
    for _ in range(50):
        observer(failed())
        observer(done())
    clock.now = 4.0
    observer(answered())
    observer(failed("upstream-timeout"))
    clock.now = 10.0
    observer(answered())
    observer(answered())
    first, second = sink.lines
    assert (first["event"], first["upstream"], first["state"], first["reason"]) == (
        "upstream-state",
        "openai",
        "failing",
        "upstream-refused",
    )
    assert (second["state"], second["reason"], second["failures"]) == ("up", "upstream-timeout", 51)


def test_an_upstream_that_answers_with_its_own_errors_is_not_up_again() -> None:
    clock = Clock()
    sink, observer = Sink(), LogObserver(clock=clock)
    observer(failed())
    clock.now = 60.0
    observer(answered()._replace(status=503))
    assert len(sink.lines) == 1


@pytest.mark.parametrize("name", [b"x-request-id", b"request-id"])
def test_the_access_log_has_the_id_that_the_caller_was_told(name: bytes) -> None:
    sink, observer = Sink(), LogObserver(access=True)
    observer(done()._replace(reply_headers=[(b"content-type", b"x"), (name, b"req_1")]))
    assert sink.lines[0]["id"] == "req_1"


def test_a_replica_that_is_there_from_the_start_is_no_change() -> None:
    sink, observer = Sink(), LogObserver()
    observer(ReplicaChanged("pool", "a:1", True, REPLICA_STARTED))
    observer(ReplicaChanged("pool", "a:1", False, "health"))
    assert [line["state"] for line in sink.lines] == ["ejected"]


def test_what_becomes_of_pings_is_one_line_for_each_state() -> None:
    sink = Sink()
    observer = LogObserver()
    for new in (True, False, False):
        observer(PrefixPing("acme", "claude", "m\x1b", "over-budget", new))
    (line,) = sink.lines
    assert (line["event"], line["state"], line["tenant"]) == (
        "prefix-keep-warm",
        "over-budget",
        "acme",
    )
    assert line["detail"] == "prefix.keep_warm.budget_usd is spent for today (UTC)"
