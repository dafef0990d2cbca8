"""Ctrl-C in any command: exit code 130, no traceback, and nothing half written."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60.0
TRAFFIC = (
    '{"format":1,"at":1.0,"tenant":"acme","api":"messages","model":"claude-opus-5",'
    f'"key":"{0:064x}","exact":{{"store":true,"ttl":60.0}},'
    '"answer":{"tier":"model","plain":true,"usage":{"input":1000,"output":100}},'
    '"prompt":{"upstream":"anthropic","body":"{}"}}\n'
)


@pytest.fixture
def silent() -> Iterator[tuple[str, socket.socket]]:
    """A server that takes connections and never answers: its URL, and the socket."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(PATIENCE_S)
        yield f"http://127.0.0.1:{made.getsockname()[1]}", made


def started(folder: Path, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "trivet.cli", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), **env},
    )


def interrupted(process: subprocess.Popen[bytes]) -> str:
    """What it says at its end. An import of a C library can swallow the first Ctrl-C."""
    for left in (10, 10, PATIENCE_S):
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=left)
            break
        except subprocess.TimeoutExpired:
            assert left != PATIENCE_S, "it goes on"
    assert process.returncode == 130, err.decode()
    assert b"Traceback" not in err
    assert out == b""
    return err.decode()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--upstream", "{url}", "--store", "memory"),
        ("doctor", "--admin", "{url}", "--store", "memory"),
        ("purge", "--tenant", "acme", "--admin", "{url}"),
    ],
    ids=" ".join,
)
def test_a_command_that_waits_for_a_server(
    tmp_path: Path, silent: tuple[str, socket.socket], arguments: tuple[str, ...]
) -> None:
    url, server = silent
    process = started(tmp_path, *(one.format(url=url) for one in arguments))
    connection, _ = server.accept()
    with connection:
        assert interrupted(process).strip().endswith("interrupted")
    assert files(tmp_path) == []


def test_a_warming_that_is_under_way_keeps_what_was_sent_and_no_more(
    tmp_path: Path, silent: tuple[str, socket.socket]
) -> None:
    url, server = silent
    (tmp_path / "traffic.jsonl").write_text(TRAFFIC * 2)
    process = started(tmp_path, "warm", "traffic.jsonl", "--url", url, TRIVET_WARM_KEY="tvt_key")
    connection, _ = server.accept()
    with connection:
        interrupted(process)
    assert files(tmp_path) == ["traffic.jsonl"]


def test_a_sweep_that_is_under_way_writes_no_report(tmp_path: Path) -> None:
    fifo = tmp_path / "pairs.jsonl"
    os.mkfifo(fifo)
    process = started(
        tmp_path, "eval", "sweep", str(fifo), "--embedder", "bag-of-words", "--html", "sweep.html"
    )
    # Opening it waits for the reader, who then waits for the file's end.
    with fifo.open("w") as pairs:
        pairs.write('{"a": "x", "b": "y", "same": true}\n')
        pairs.flush()
        interrupted(process)
    assert files(tmp_path) == []


def at_terminal(folder: Path, *arguments: str) -> tuple[int, int]:
    """The process and the terminal's other side."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["OPENAI_API_KEY"] = "sk-proj-0123456789"
        os.execv(sys.executable, [sys.executable, "-m", "trivet.cli", *arguments])
    return pid, terminal


def read_until(terminal: int, text: str) -> str:
    seen, limit = "", time.monotonic() + PATIENCE_S
    while text not in seen:
        left = limit - time.monotonic()
        assert left > 0, seen
        if select.select([terminal], [], [], left)[0]:
            seen += os.read(terminal, 4096).decode()
    return seen


def ended(pid: int, terminal: int, again: bytes = b"") -> tuple[int, str]:
    """The exit code, and what was still said. `again` is typed whenever nothing is said."""
    said, limit = b"", time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < limit:
            if not select.select([terminal], [], [], 0.3)[0]:
                os.write(terminal, again)
            elif some := os.read(terminal, 4096):
                said += some
            else:
                break
    except OSError:
        pass  # Linux: the other side is closed.
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def test_init_asks_three_questions_and_writes_what_was_answered(tmp_path: Path) -> None:
    pid, terminal = at_terminal(tmp_path, "init")
    for question, answer in (
        ("Which API do your apps call?", b"\n"),
        ("Name of the first tenant", b"acme\n"),
        ("Which key will callers send?", b"own\n"),
    ):
        read_until(terminal, question)
        os.write(terminal, answer)
    code, said = ended(pid, terminal)
    assert code == 0, said
    assert 'OpenAI(base_url="http://127.0.0.1:8080/v1")' in said
    assert files(tmp_path) == ["policies/acme.yaml", "trivet.yaml"]


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_init_that_is_interrupted_at_a_question_writes_nothing(
    tmp_path: Path, answered: int
) -> None:
    pid, terminal = at_terminal(tmp_path, "init")
    questions = ("Which API do your apps call?", "Name of the first tenant", "Which key will")
    for question in questions[:answered]:
        read_until(terminal, question)
        os.write(terminal, b"\n")
    read_until(terminal, questions[answered])
    # CPython's readline misses a signal that comes just as it begins to wait.
    os.write(terminal, b"\x03")
    code, said = ended(pid, terminal, again=b"\x03")
    assert (code, "Traceback" in said) == (130, False)
    assert files(tmp_path) == []
