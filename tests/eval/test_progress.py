"""The progress bar: only on a terminal, only when it takes long, and never in the data."""

from __future__ import annotations

import io

import pytest

from trivet.eval import progress


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
