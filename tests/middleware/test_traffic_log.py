"""The traffic log: whole lines from several writers, bounded on disk and in memory, never in the
way of a request."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from traffic_parts import SECRET, call_of, entry_of, policy

from trivet.errors import StoreError
from trivet.middleware.traffic.file import Rotation, TrafficFile
from trivet.middleware.traffic.line import line_of
from trivet.middleware.traffic.log import TrafficLog, Waiting
from trivet.policies.traffic import read_line


def record(log: TrafficLog, count: int = 1, **given: Any) -> None:
    for _ in range(count):
        call = call_of(**given)
        log.record(call, 1000.0, entry_of(call))


def rows(path: Path) -> list[Any]:
    return [read_line(raw, str(path), 1) for raw in path.read_bytes().splitlines(keepends=True)]


class TestLog:
    def test_requests_are_written_in_their_order(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "traffic.jsonl"
        log = TrafficLog(path, SECRET, lambda model, upstream, usage: 0.5)
        for number in range(50):
            call = call_of(owner=policy(store_text=True), text=f"question {number}")
            log.record(call, float(number), entry_of(call))
        log.close()
        assert [row.text for row in rows(path)] == [f"question {number}" for number in range(50)]
        assert {row.answer.price for row in rows(path)} == {0.5}
        assert log.counts == (50, 0, 0)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_other_tenants_are_not_recorded_and_no_file_is_made(self, tmp_path: Path) -> None:
        log = TrafficLog(tmp_path / "traffic.jsonl", SECRET)
        record(log, owner=policy(record=False))
        log.close()
        assert list(tmp_path.iterdir()) == []

    def test_what_is_too_much_is_dropped_and_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(TrafficLog, "_start", lambda self: None)
        log = TrafficLog(tmp_path / "t", SECRET, waiting=Waiting(requests=3))
        record(log, 5)
        assert log.counts == (0, 2, 0)
        size = len(call_of().request.forward)
        log = TrafficLog(tmp_path / "t", SECRET, waiting=Waiting(bytes=size))
        record(log, 2)
        assert log.counts == (0, 2, 0)

    def test_a_disk_in_trouble_is_told_and_gotten_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "traffic.jsonl"
        path.mkdir()
        log = TrafficLog(path, SECRET)
        record(log)
        while not log.trouble:
            os.sched_yield()
        path.rmdir()
        record(log)
        log.close()
        assert log.counts == (1, 0, 1)
        assert log.trouble == ""
        assert len(rows(path)) == 1

    def test_a_call_that_cannot_be_recorded_costs_its_own_line_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = line_of

        def failing(call: Any, *given: Any) -> Any:
            if call.request.model == "bad":
                raise ZeroDivisionError
            return made(call, *given)

        monkeypatch.setattr("trivet.middleware.traffic.log.line_of", failing)
        log = TrafficLog(tmp_path / "t", SECRET)
        record(log, model="bad")
        record(log)
        log.close()
        assert log.counts == (1, 0, 1)

    def test_it_may_be_closed_twice_and_then_records_nothing(self, tmp_path: Path) -> None:
        log = TrafficLog(tmp_path / "t", SECRET)
        record(log)
        log.close()
        log.close()
        record(log)
        assert log.counts == (1, 0, 0)


def _write(path: Path, number: int, rotation: Rotation) -> None:
    file = TrafficFile(path, rotation)
    for count in range(400):
        file.append(b"%d %d %s\n" % (number, count, b"x" * (count % 90)))
    file.close()


class TestFile:
    def test_it_is_rotated_by_size_and_only_some_are_kept(self, tmp_path: Path) -> None:
        file = TrafficFile(tmp_path / "t", Rotation(bytes=10, files=3))
        for number in range(9):
            file.append(b"%d....\n" % number)
        assert {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()} == {
            "t": b"8",
            "t.1": b"6",
            "t.2": b"4",
        }
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())

    def test_processes_write_whole_lines_and_lose_none_while_they_rotate(
        self, tmp_path: Path
    ) -> None:
        rotation = Rotation(bytes=5000, files=1000)
        context = multiprocessing.get_context("spawn")
        writers = [
            context.Process(target=_write, args=(tmp_path / "t", number, rotation))
            for number in range(3)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        lines = [
            line.split() for path in tmp_path.iterdir() for line in path.read_bytes().splitlines()
        ]
        found = sorted((int(line[0]), int(line[1])) for line in lines)
        assert found == [(number, count) for number in range(3) for count in range(400)]
        assert len(list(tmp_path.iterdir())) > 10

    def test_a_full_disk_leaves_no_half_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "t"
        file = TrafficFile(path, Rotation())
        file.append(b"whole\n")
        write = os.write
        calls = iter((3, None))

        def full(fd: int, data: bytes) -> int:
            room = next(calls)
            if room is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, data[:room])

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(StoreError, match="No space left"):
                file.append(b"another\n")
        file.append(b"third\n")
        assert path.read_bytes() == b"whole\nthird\n"

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "t").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError):
            TrafficFile(tmp_path / "t", Rotation()).append(b"x\n")
        assert not (tmp_path / "elsewhere").exists()

    def test_a_file_that_was_deleted_is_made_again(self, tmp_path: Path) -> None:
        file = TrafficFile(tmp_path / "t", Rotation())
        file.append(b"1\n")
        (tmp_path / "t").unlink()
        file.append(b"2\n")
        assert (tmp_path / "t").read_bytes() == b"2\n"
