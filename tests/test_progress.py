"""The progress bar: only on a terminal, only when it takes long, and never in the data."""

from __future__ import annotations

import io
import threading

import pytest

from trivet import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def seen(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, patience: float) -> str:
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(progress, "_PATIENCE_S", patience)
    assert list(progress.watched(iter("abc"), 3, "reading")) == ["a", "b", "c"]
    return stderr.getvalue()


def test_a_bar_appears_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    told = seen(monkeypatch, Terminal(), -1)
    assert "reading" in told
    assert "100%" in told


def test_what_is_quick_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, Terminal(), 1e9) == ""


def test_a_pipe_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, io.StringIO(), -1) == ""


def waited(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, patience: float) -> str:
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(progress, "_PATIENCE_S", patience)
    wrote = threading.Event()
    write = stderr.write

    def noted(text: str) -> int:
        wrote.set()
        return write(text)

    monkeypatch.setattr(stderr, "write", noted)
    with progress.busy("loading"):
        if patience < 1:
            assert wrote.wait(10)
    return stderr.getvalue()


def test_what_has_no_foreseen_end_says_for_how_long_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = waited(monkeypatch, Terminal(), 0.001)
    assert "loading ... 0 s" in told
    assert told.endswith("\r\x1b[K")


def test_what_is_done_soon_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, Terminal(), 1e6) == ""


def interrupted(stderr: Terminal) -> None:
    with progress.busy("loading"):
        while not stderr.getvalue():
            pass
        raise KeyboardInterrupt


def test_the_line_is_cleared_where_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.001)
    with pytest.raises(KeyboardInterrupt):
        interrupted(stderr)
    assert stderr.getvalue().endswith("\r\x1b[K")
