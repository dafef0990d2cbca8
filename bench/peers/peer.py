"""A semantic cache of others, in a process and an environment of its own.

It is spoken to in JSON lines: `open` with a setting starts an empty cache, `store` puts a question
and its answer, `ask` is answered with what it serves. Vectors go along, so no embedder runs there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from bench.peers.stream import Question

if TYPE_CHECKING:
    from trivet.semantic.types import Vectors

HERE = Path(__file__).parent
KEPT = Path(tempfile.gettempdir()) / "trivet-peers-results"
Setting = Mapping[str, float]


class PeerError(Exception):
    """The peer's process ended or answered with something else."""


def python_of(name: str) -> Path | None:
    """The Python of a peer's environment; None where it is not there.

    That is bench/peers/.venv-NAME, or NAME under the folder that $TRIVET_PEERS_VENV names.
    """
    folder = os.environ.get("TRIVET_PEERS_VENV")
    venv = Path(folder) / name if folder else HERE / f".venv-{name}"
    python = venv / "bin" / "python"
    return python if python.exists() else None


def version_of(name: str, python: Path) -> str:
    """Of the peer's library in that environment; empty where it is not there."""
    found = python.parents[1].glob(f"lib/python*/site-packages/{name}-*.dist-info")
    return next((path.stem.removeprefix(f"{name}-") for path in found), "")


class Peer:
    """One peer's process. Results are kept in a temporary folder by a digest of what went in."""

    def __init__(self, name: str, python: Path, kept: Path = KEPT) -> None:
        self.name = name
        self._script = HERE / f"run_{name}.py"
        self._python = python
        self._kept = kept
        self._process: subprocess.Popen[str] | None = None
        self._log = kept / f"{name}.log"
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def play(
        self, setting: Setting, questions: Sequence[Question], vectors: Vectors
    ) -> list[str | None]:
        """What an empty cache serves to each question that is asked, in order; None: nothing.

        `vectors` has one row for each question. Raises `PeerError`.
        """
        path = self._kept / f"{self._digest(setting, questions, vectors)}.json"
        if path.exists():
            kept: list[str | None] = json.loads(path.read_text("utf-8"))
            return kept
        served = self._played(setting, questions, vectors)
        path.write_text(json.dumps(served), "utf-8")
        return served

    def _played(
        self, setting: Setting, questions: Sequence[Question], vectors: Vectors
    ) -> list[str | None]:
        self._send({"do": "open", "dimension": vectors.shape[1], **setting})
        served: list[str | None] = []
        for question, vector in zip(questions, vectors, strict=True):
            self._send(line_of(question, vector))
            if question.asked:
                served.append(self._receive())
        return served

    def _digest(self, setting: Setting, questions: Sequence[Question], vectors: Vectors) -> str:
        found = hashlib.sha256(self._script.read_bytes())
        parts = [
            version_of(self.name, self._python),
            sorted(setting.items()),
            [list(one) for one in questions],
        ]
        found.update(json.dumps(parts).encode())
        found.update(np.ascontiguousarray(vectors, "<f4").tobytes())
        return found.hexdigest()

    def _send(self, line: Mapping[str, Any]) -> None:
        pipe = self._pipes()[0]
        try:
            pipe.write(json.dumps(line) + "\n")
            pipe.flush()
        except OSError as error:
            raise self._trouble(f"ended: {error}") from error

    def _receive(self) -> str | None:
        text = self._pipes()[1].readline()
        try:
            served: str | None = json.loads(text)["served"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._trouble(f"ended or answered {text!r}") from error
        return served

    def _trouble(self, what: str) -> PeerError:
        self._end()
        return PeerError(f"{self.name} {what}\n{self._log.read_text('utf-8', 'replace')[-2000:]}")

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process is None:
            self._kept.mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="trivet-peer-")
            own = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TMPDIR": self._folder.name}
            with self._log.open("w") as log:
                self._process = subprocess.Popen(
                    [str(self._python), str(self._script)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={**os.environ, **own},
                )
        wanted, given = self._process.stdin, self._process.stdout
        if wanted is None or given is None:
            raise PeerError(f"{self.name} has no pipes")
        return wanted, given


def line_of(question: Question, vector: Vectors) -> dict[str, Any]:
    """A question as it is sent."""
    return {
        "do": "ask" if question.asked else "store",
        "text": question.text,
        "answer": question.answer,
        "keep": question.keep,
        "vector": base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode(),
    }
