"""Trivet's lines in an app: they are `logging`'s, and the app's own stay where they are."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from trivet.library.log_lines import tell_through_logging


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    before, configured = structlog.get_config(), structlog.is_configured()
    structlog.reset_defaults()
    # A server that ran in this process hands what `logging` gets back to structlog.
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    yield
    root.handlers = handlers
    structlog.reset_defaults()
    if configured:
        structlog.configure(**before)


def test_a_line_goes_to_the_logger_of_its_name(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_through_logging()
    with caplog.at_level(logging.INFO, "trivet"):
        structlog.get_logger("trivet.prefix").warning("store-state", state="down")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", "store-state state='down'")
    ]
    assert capsys.readouterr().out == ""


def test_what_the_app_logs_by_way_of_structlog_stays_as_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_through_logging()
    structlog.get_logger("app").info("mine")
    structlog.get_logger().info("unnamed")
    out = capsys.readouterr().out
    assert "mine" in out
    assert "unnamed" in out


def test_a_handler_that_hands_lines_back_to_structlog_hears_each_once() -> None:
    heard = []

    class Back(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())
            structlog.get_logger("trivet").warning("again")

    tell_through_logging()
    logging.getLogger().addHandler(Back())
    structlog.get_logger("trivet").warning("once")
    assert heard == ["once"]


def test_an_app_that_configured_structlog_keeps_its_configuration() -> None:
    structlog.configure(processors=[])
    tell_through_logging()
    assert structlog.get_config()["processors"] == []
