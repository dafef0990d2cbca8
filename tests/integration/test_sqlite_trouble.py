"""The SQLite file in trouble behind the running proxy: callers get the upstream's answers, soon."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, chat_body
from raw_http import post
from trouble_rig import (
    BUDGET_S,
    FRONT,
    GENEROUS,
    NO_FRONT,
    PATIENT_S,
    Kept,
    ask,
    assert_altered_entries_are_misses,
    assert_answered,
    assert_degraded,
    assert_stands_aside,
    assert_works,
    calls,
    component,
    exact_of,
    faults,
    fronts,
    lines,
    metric,
    mocked,
    one_by_one,
    operations,
    states,
    text_of,
    texts,
    troubled,
    until,
    until_stored,
)

pytestmark = pytest.mark.waits

Damage = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cache.sqlite"


@fronts
def test_a_file_that_another_program_locks_is_read_and_written_again_afterwards(
    path: Path, front: int
) -> None:
    warm = texts("warm", 20)
    with troubled(f"sqlite:{path}", front=front, budget=PATIENT_S) as proxy:
        assert_answered(ask(proxy, warm), hits=0)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert_degraded(proxy, "sqlite", "locked", warm)
            other.execute("ROLLBACK")
        until_stored(proxy)
        assert_works(proxy, "sqlite", "after")
        assert states(proxy, "sqlite") == ["up", "degraded", "up"]


def test_a_locked_file_costs_those_who_come_first_and_nobody_after_them(path: Path) -> None:
    with troubled(f"sqlite:{path}") as proxy:
        assert_answered(ask(proxy, texts("warm", 5)), hits=0)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert one_by_one(proxy, "first") < BUDGET_S * GENEROUS
            assert operations(proxy, "sqlite", "put", "open") >= 10
            other.execute("ROLLBACK")
        until_stored(proxy)
        assert_works(proxy, "sqlite", "after")


def test_a_file_that_is_locked_for_readers_too_when_the_proxy_starts(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN EXCLUSIVE")
        with troubled(f"sqlite:{path}") as proxy:
            assert_stands_aside(proxy, "sqlite", "locked")
            other.execute("ROLLBACK")
            other.close()
            assert_works(proxy, "sqlite", "after")
            assert states(proxy, "sqlite") == ["down", "up"]


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of 2 MiB at `place`."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(filler: Path) -> None:
    """Write until there is no room left."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


@fronts
def test_a_full_disk_is_read_from_and_written_to_once_there_is_room(path: Path, front: int) -> None:
    warm = texts("warm", 20)
    with (
        small_disk(path.parent),
        troubled(f"sqlite:{path}", front=front, budget=PATIENT_S) as proxy,
    ):
        assert_answered(ask(proxy, warm), hits=0)
        filler = path.parent / "filler"
        fill(filler)
        # What was allocated already is used up first.
        ask(proxy, texts("fill", 100))
        assert_degraded(proxy, "sqlite", "full", warm)
        filler.unlink()
        until_stored(proxy)
        assert_works(proxy, "sqlite", "after")
        assert states(proxy, "sqlite") == ["up", "degraded", "up"]


def test_a_file_that_may_not_grow_is_read_from(path: Path) -> None:
    warm = texts("warm", 20)
    with troubled(f"sqlite:{path}", budget=PATIENT_S) as proxy:
        assert_answered(ask(proxy, warm), hits=0)
        size = Path(f"{path}-wal").stat().st_size
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (size, unlimited[1]))
        assert_degraded(proxy, "sqlite", "io", warm)
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, unlimited)
        until_stored(proxy)
        assert_works(proxy, "sqlite", "after")
        assert states(proxy, "sqlite") == ["up", "degraded", "up"]


def filled(path: Path) -> list[str]:
    """A closed store with entries in it; their prompts."""
    warm = texts("warm", 60)
    with troubled(f"sqlite:{path}", budget=PATIENT_S) as proxy:
        assert_answered(ask(proxy, warm), hits=0)
    return warm


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage " * 4096)


def torn(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 100)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [garbage, torn, cut], ids=lambda made: made.__name__)
def test_a_file_that_was_corrupted_before_the_start_is_moved_aside(
    path: Path, damage: Damage
) -> None:
    warm = filled(path)
    damage(path)
    with troubled(f"sqlite:{path}", budget=PATIENT_S) as proxy:
        for _ in range(3):
            assert_answered(ask(proxy, warm))
        until(lambda: Path(f"{path}.corrupt").exists(), "the broken file is moved aside")
        assert_works(proxy, "sqlite", "after")
        assert states(proxy, "sqlite")[-2:] == ["down", "up"]
        assert len(states(proxy, "sqlite")) <= 3
        said = [line["reason"] for line in lines(proxy, "store-state") if line["state"] == "down"]
        assert "moved to" in said[0]
        assert_answered(ask(proxy, warm))
        assert_answered(ask(proxy, warm), hits=60)


@pytest.mark.parametrize(
    ("workers", "front"), [(1, NO_FRONT), (2, FRONT)], ids=["one-worker", "two-workers-front"]
)
@pytest.mark.parametrize(
    "damage", [garbage, torn, cut, emptied, deleted], ids=lambda made: made.__name__
)
def test_a_file_that_is_damaged_while_the_proxy_runs_costs_no_answer(
    path: Path, damage: Damage, workers: int, front: int
) -> None:
    warm = texts("warm", 60)
    with mocked() as upstream:
        with troubled(f"sqlite:{path}", upstream, budget=PATIENT_S) as first:
            truth = [text_of(answer) for answer in ask(first, warm)]
        with troubled(
            f"sqlite:{path}", upstream, front=front, workers=workers, budget=PATIENT_S
        ) as proxy:
            assert_answered(ask(proxy, warm), hits=60)
            damage(path)
            for turn in range(4):
                answers = ask(proxy, warm)
                assert_answered(answers)
                assert [text_of(answer) for answer in answers] == truth
                assert_answered(ask(proxy, texts(f"new {turn}", 10)))
                time.sleep(0.5)
            numbers = iter(range(1000))

            def works() -> bool:
                label = f"after {next(numbers)}"
                assert_answered(ask(proxy, texts(label, 10)))
                again = ask(proxy, texts(label, 10))
                assert_answered(again)
                return all(exact_of(answer).get("hit") is True for answer in again)

            until(works, "answers are stored again")
            until(lambda: component(proxy, "store:sqlite")["state"] == "up", "up in /readyz")
            assert len(states(proxy, "sqlite")) <= 5 * workers
            assert faults(proxy) == []


@contextmanager
def forbidden(place: Path) -> Iterator[None]:
    """A directory in which this user can make no file; root needs the immutable attribute."""
    place.mkdir()
    place.chmod(0o500)
    root = os.geteuid() == 0
    if root and subprocess.run(["chattr", "+i", str(place)], check=False).returncode:
        pytest.skip("this file system has no immutable directories, and root may do all else")
    try:
        yield
    finally:
        if root:
            subprocess.run(["chattr", "-i", str(place)], check=True)
        place.chmod(0o700)


def test_a_directory_that_is_not_writable_is_a_store_that_is_down(path: Path) -> None:
    with troubled_in_forbidden(path) as proxy:
        assert_stands_aside(proxy, "sqlite", "cannot-open")
        assert states(proxy, "sqlite") == ["down"]
    with troubled(f"sqlite:{path}") as proxy:
        assert_works(proxy, "sqlite", "after")


@contextmanager
def troubled_in_forbidden(path: Path) -> Iterator[Proxy]:
    with forbidden(path.parent), troubled(f"sqlite:{path}") as proxy:
        yield proxy


def test_a_directory_that_becomes_writable_is_noticed(path: Path) -> None:
    path.parent.write_text("a file is in the way")
    with troubled(f"sqlite:{path}") as proxy:
        assert_stands_aside(proxy, "sqlite", "cannot-open")
        path.parent.unlink()
        assert_works(proxy, "sqlite", "after")
        assert states(proxy, "sqlite") == ["down", "up"]


def kill_all(proxy: Proxy) -> None:
    """SIGKILL to the proxy's process and to its workers."""
    pid = proxy.process.pid
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for number in (pid, *map(int, workers)):
        os.kill(number, signal.SIGKILL)
    proxy.process.wait()


@pytest.mark.parametrize("workers", [1, 2])
def test_entries_survive_a_kill_in_the_middle_of_writing(path: Path, workers: int) -> None:
    stored: list[str] = []
    truth: dict[str, str] = {}

    async def write(proxy: Proxy, lane: int) -> None:
        for number in range(100_000):
            text = f"{lane} {number} " + "long " * 400
            try:
                answer = await post(proxy.url, chat_body(text))
            except (OSError, EOFError, asyncio.IncompleteReadError):
                return
            truth[text] = text_of(answer)
            if exact_of(answer).get("stored") is True:
                stored.append(text)

    async def all_lanes(proxy: Proxy) -> None:
        await asyncio.gather(*(write(proxy, lane) for lane in range(16)))

    with mocked() as upstream:
        with troubled(f"sqlite:{path}", upstream, workers=workers, budget=PATIENT_S) as proxy:
            killing = threading.Timer(2.0, kill_all, [proxy])
            killing.start()
            asyncio.run(all_lanes(proxy))
            killing.join()
        assert len(stored) > 20
        with troubled(f"sqlite:{path}", upstream, workers=workers, budget=PATIENT_S) as proxy:
            until(lambda: component(proxy, "store:sqlite")["state"] == "up", "up")
            before = calls(proxy)
            for start in range(0, len(stored), 100):
                some = stored[start : start + 100]
                answers = ask(proxy, some)
                assert_answered(answers, hits=len(some))
                assert [text_of(answer) for answer in answers] == [truth[text] for text in some]
            assert calls(proxy) == before
            assert metric(proxy, "trivet_entries_rejected_total") == 0
            assert set(states(proxy, "sqlite")) == {"up"}
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (held,) = db.execute("SELECT count(*) FROM entries").fetchone()
        assert held >= len(stored)
        assert db.execute("SELECT entries FROM totals WHERE tenant = x''").fetchone() == (held,)


def test_a_program_that_opens_and_closes_the_file_takes_nothing_away(path: Path) -> None:
    """Whoever closes a database last removes its log: the proxy's locks have to tell it apart."""
    with mocked() as upstream:
        with troubled(f"sqlite:{path}", upstream, workers=2, budget=PATIENT_S) as proxy:
            for turn in range(3):
                assert_answered(ask(proxy, texts(f"turn {turn}", 10)), hits=0)
                with closing(sqlite3.connect(path)) as other:
                    assert other.execute("SELECT count(*) FROM entries").fetchone()[0] > 0
                assert Path(f"{path}-wal").exists()
            kill_all(proxy)
        with troubled(f"sqlite:{path}", upstream, budget=PATIENT_S) as proxy:
            for turn in range(3):
                assert_answered(ask(proxy, texts(f"turn {turn}", 10)), hits=10)


# Entries that somebody else wrote, altered, or can read.


_OTHER = "UPDATE entries SET value = (SELECT value FROM entries WHERE id = {}) WHERE id = {{one}}"
ALTERATIONS = {
    "a byte changed": "UPDATE entries SET value = substr(value, 1, 90) || x'07' ||"
    " substr(value, 92) WHERE id = {one}",
    "another format": "UPDATE entries SET value = x'07' || substr(value, 2) WHERE id = {one}",
    "cut short": "UPDATE entries SET value = substr(value, 1, length(value) - 8) WHERE id = {one}",
    "replaced by garbage": "UPDATE entries SET value = x'0123' WHERE id = {one}",
    "replaced by nothing": "UPDATE entries SET value = x'' WHERE id = {one}",
    "replaced by text": "UPDATE entries SET value = 'text' WHERE id = {one}",
    "another answer of the tenant": _OTHER.format("{two}"),
    "another tenant's answer to that request": _OTHER.format("{theirs}"),
    "of another deployment": _OTHER.format("{foreign}"),
}


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_altered_rows_are_misses_counted_and_deleted(path: Path, encrypt: bool) -> None:
    def rows() -> set[str]:
        with closing(sqlite3.connect(path)) as db:
            return {str(row) for (row,) in db.execute("SELECT id FROM entries")}

    def alter(statement: str, names: Mapping[str, str]) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            assert db.execute(statement.format(**names)).rowcount == 1

    alterations = {how: partial(alter, statement) for how, statement in ALTERATIONS.items()}
    kept = Kept("sqlite", f"sqlite:{path}", rows)
    assert_altered_entries_are_misses(kept, encrypt, alterations)


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_what_the_file_keeps_tells_nothing_when_it_is_encrypted(path: Path, encrypt: bool) -> None:
    with troubled(f"sqlite:{path}", encrypt=encrypt) as proxy:
        reply = proxy.chat("walnut", key="sk-hazel", trivet_tag="almond")
        assert reply.exact["stored"] is True
        said = text_of(reply).encode()
        assert len(said) > 10

        def written() -> bytes:
            return b"".join(file.read_bytes() for file in path.parent.iterdir())

        kept = written()
        assert proxy.stop() == 0
        for found in (kept, written()):
            readable = [word for word in (b"walnut", said) if word in found]
            assert readable == ([] if encrypt else [b"walnut", said])
            assert b"hazel" not in found
            assert not (encrypt and b"almond" in found)


def test_answers_of_all_kinds_pass_while_the_store_is_down(path: Path) -> None:
    """Each API, both ways of delivery."""
    path.parent.write_text("a file is in the way")
    with troubled(f"sqlite:{path}") as proxy:
        until(lambda: states(proxy, "sqlite") == ["down"], "down")
        messages = [{"role": "user", "content": "x"}]
        asked: dict[str, dict[str, Any]] = {
            "/v1/chat/completions": {"model": "m", "temperature": 0, "messages": messages},
            "/v1/responses": {"model": "m", "temperature": 0, "input": "x"},
            "/v1/completions": {"model": "m", "temperature": 0, "prompt": "x"},
            "/v1/messages": {"model": "m", "temperature": 0, "max_tokens": 9, "messages": messages},
            "/v1/embeddings": {"model": "m", "input": ["x", "y"]},
        }
        for route, body in asked.items():
            for stream in (False, True)[: 1 if route == "/v1/embeddings" else 2]:
                named = {"stream": True} if stream else {}
                reply = proxy.post(route, body | named, anthropic_version="2023-06-01")
                assert reply.status == 200, (route, stream, reply.body)
        assert proxy.chat("x", cache_control="only-if-cached").status == 504
        assert faults(proxy) == []
