"""A labelling session in a terminal: one pair at a time, one key each, each answer kept at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from trivet.eval.candidates import Candidate
from trivet.eval.labels import Answer, LabelFile
from trivet.eval.side_by_side import Word, differing, shown, wrapped

_ANSWERS: dict[str, Answer] = {"s": "same", "d": "different", "?": "unsure"}
_ENDS = frozenset({"q", "\x03", "\x04", ""})
"""q, Ctrl-C, Ctrl-D, and the end of the input."""
_HELP = "s same   d different   ? unsure   b back   q quit"
_ANSWER_LINES = 4
"""Of each answer, where a pair comes with its answers."""
_QUESTION = "Would one answer be right for both?"


class Terminal(NamedTuple):
    """Where a session takes place."""

    key: Callable[[], str]
    """Waits for one key."""
    write: Callable[[str], None]
    """Writes one line."""
    width: int
    mark: Callable[[str], str]
    """Marks a word that differs; see `side_by_side.wrapped`."""


class Session(NamedTuple):
    """How a session ended."""

    labelled: int
    left: int


def label(
    pairs: Sequence[Candidate], labels: LabelFile, near: float, terminal: Terminal
) -> Session:
    """Ask about each pair. `b` goes back one answer of this session. Raises `ConfigError`."""
    at = 0
    try:
        while at < len(pairs):
            step = _ask(pairs, at, (labels, near), terminal)
            if step is None:
                break
            at += step
    except KeyboardInterrupt:
        pass  # Every answer was kept when it was given.
    return Session(at, len(pairs) - at)


def _ask(
    pairs: Sequence[Candidate], at: int, into: tuple[LabelFile, float], terminal: Terminal
) -> int | None:
    """Ask about one pair. Returns how many pairs to go on by; None ends the session."""
    labels, near = into
    for line in _card(pairs[at], (at, len(pairs)), terminal):
        terminal.write(line)
    key = _known_key(terminal)
    if key in _ENDS:
        return None
    if key == "b":
        if at == 0:
            terminal.write("This is the first pair of this session.")
            return 0
        labels.take_back(pairs[at - 1])
        return -1
    labels.add(pairs[at], _ANSWERS[key], "person", near)
    terminal.write(f"-> {_ANSWERS[key]}")
    return 1


def _known_key(terminal: Terminal) -> str:
    while True:
        key = terminal.key().lower()
        if key in _ENDS or key == "b" or key in _ANSWERS:
            return key
        terminal.write(_HELP)


def _card(pair: Candidate, place: tuple[int, int], terminal: Terminal) -> Iterator[str]:
    at, count = place
    score = "vetoed" if pair.score is None else f"score {pair.score:.3f}"
    yield ""
    yield f"{at + 1} of {count}   {score}   cosine {pair.cosine:.3f}"
    width = max(8, terminal.width - 4)
    answers = pair.answers or ("", "")
    for name, words, answer in zip("AB", differing(pair.a, pair.b), answers, strict=True):
        for number, line in enumerate(wrapped(words, width, terminal.mark)):
            yield f"{name if number == 0 else ' '}   {line}"
        yield from _answer(answer, width)
    yield _QUESTION
    yield _HELP


def _answer(text: str, width: int) -> Iterator[str]:
    words = [Word(word, False) for word in f"-> {shown(text)}".split()] if text.strip() else []
    for number, line in enumerate(wrapped(words, width, str)):
        if number == _ANSWER_LINES:
            yield "    ..."
            return
        yield f"    {line}"
