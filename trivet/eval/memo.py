"""What models said about texts, kept in a file: a replay that was interrupted asks them once.

All that takes long in a replay are pure functions of texts: vectors, intentions, verdicts. Played
again from its start with their answers at hand, a replay comes to where it was in a fraction of
the time, and to the very same state. The file holds digests in place of texts.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trivet.errors import ConfigError, Problem
from trivet.policies.intents import Intent
from trivet.semantic.types import Intention, Verdict

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

_LAYOUT = "trivet-replay-1"
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS said (asked BLOB PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID;
"""


class Memo:
    """Answers of one chain. Without a path they are kept in memory, and vectors not at all.

    `commit` makes what was put since the last one durable, atomically. For one thread at a time.
    """

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        """Raises `ConfigError` for a file of something else, or of another chain."""
        self._keeps_vectors = path is not None
        self._trouble: ConfigError | None = None
        self._name = str(path)
        if path is not None:
            self._create(path)
        try:
            self._rows = sqlite3.connect(path or ":memory:", check_same_thread=False)
            self._rows.executescript(_TABLES)
            self._check(fingerprint)
        except sqlite3.Error as error:
            raise self._refused(f"is not the state of a replay: {error}") from None

    def _create(self, path: Path) -> None:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise self._refused(f"cannot be written: {error.strerror}") from None

    def _check(self, fingerprint: str) -> None:
        wanted = {"layout": _LAYOUT, "fingerprint": fingerprint}
        found = dict(self._rows.execute("SELECT name, value FROM about"))
        if not found:
            self._rows.executemany("INSERT INTO about VALUES (?, ?)", wanted.items())
            self._rows.commit()
        elif found != wanted:
            raise self._refused("was made with another chain: give another file, or delete it")

    def _refused(self, message: str) -> ConfigError:
        return ConfigError(Problem(self._name, 0, 0, "", message))

    def vector(self, text: str) -> Vectors | None:
        """The text's vector, of shape (dimension,)."""
        row = self._one("SELECT vector FROM vectors WHERE text = ?", _digest(text))
        return None if row is None else np.frombuffer(zlib.decompress(row), "<f4")

    def put_vector(self, text: str, vector: Vectors) -> None:
        """Keep a vector, of shape (dimension,)."""
        if self._keeps_vectors:
            packed = zlib.compress(np.ascontiguousarray(vector, "<f4").tobytes(), 1)
            self._put("INSERT OR REPLACE INTO vectors VALUES (?, ?)", _digest(text), packed)

    def intention(self, text: str) -> Intention | None:
        """What the gate made of the text."""
        found = self._said(_digest("gate", text))
        if found is None:
            return None
        intent, admitted, reason, score = found
        return Intention(Intent(intent), admitted, reason, score)

    def put_intention(self, text: str, said: Intention) -> None:
        """Keep an intention."""
        self._say(_digest("gate", text), [said.intent, said.admitted, said.reason, said.score])

    def verdict(self, stored: str, asked: str) -> Verdict | None:
        """What the verifier made of two texts."""
        found = self._said(_digest("pair", stored, asked))
        return None if found is None else Verdict(*found)

    def put_verdict(self, stored: str, asked: str, said: Verdict) -> None:
        """Keep a verdict."""
        self._say(_digest("pair", stored, asked), [said.score, said.veto])

    def commit(self) -> None:
        """Make it durable. Raises `ConfigError` where that or anything before it went wrong: the
        tiers take what a model raises for a miss, and a replay must not go on so."""
        if self._trouble is not None:
            raise self._trouble
        try:
            self._rows.commit()
        except sqlite3.Error as error:
            raise self._refused(f"cannot be written: {error}") from None

    def close(self) -> None:
        """Commit if that can be done, and let go of the file."""
        with suppress(sqlite3.Error):
            self._rows.commit()
        self._rows.close()

    def _said(self, asked: bytes) -> list[Any] | None:
        row = self._one("SELECT answer FROM said WHERE asked = ?", asked)
        return None if row is None else list(json.loads(row))

    def _say(self, asked: bytes, answer: Sequence[object]) -> None:
        self._put("INSERT OR REPLACE INTO said VALUES (?, ?)", asked, json.dumps(answer))

    def _one(self, query: str, key: bytes) -> Any:
        try:
            row = self._rows.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            self._trouble = self._refused(f"cannot be read: {error}")
            raise self._trouble from None
        return None if row is None else row[0]

    def _put(self, query: str, *values: object) -> None:
        try:
            self._rows.execute(query, values)
        except sqlite3.Error as error:
            self._trouble = self._refused(f"cannot be written: {error}")
            raise self._trouble from None


def _digest(*parts: str) -> bytes:
    state = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        state.update(len(raw).to_bytes(8, "big") + raw)
    return state.digest()
