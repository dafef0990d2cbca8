"""Servers as child processes on a core of their own, and what the kernel says about them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.load import BenchError

_TICKS = os.sysconf("SC_CLK_TCK")
_START_S = 60.0
_MAIN = "from trivet.cli import main; main()"

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORES = {CORES[0]}
CLIENT_CORES = set(CORES[1:]) or SERVER_CORES
"""The load generator, upstreams and redis run where the server under test does not."""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """One server. Its output goes to a file, which is shown if it does not come up."""

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        log: Path,
        cores: set[int],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self.ready_s = 0.0
        """Seconds from its start until it answered."""
        self._log = log
        self.started = time.perf_counter()
        with log.open("wb") as out:
            self._child = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def wait_for(self, url: str | None = None) -> None:
        """Wait until `url` answers 200, or without one until the port accepts."""
        while time.perf_counter() < self.started + _START_S:
            if self._child.poll() is not None:
                break
            if _is_up(url, self.url):
                self.ready_s = time.perf_counter() - self.started
                return
            time.sleep(0.002)
        self.stop()
        raise BenchError(f"{self.url} did not start:\n{self._log.read_text()[-3000:]}")

    def cpu_s(self) -> float:
        """User and system time so far, seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def waited_s(self) -> float:
        """Time so far that it could have run and another process had its core."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9

    def resident_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """End it, kindly first. Idempotent."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(5)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


def _is_up(url: str | None, base: str) -> bool:
    host, _, port = base.rpartition("//")[2].partition(":")
    try:
        if url is None:
            socket.create_connection((host, int(port)), 1).close()
            return True
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


class Bench:
    """The processes of one run, with a folder of their own; all end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[Process] = []

    def app(self, kind: str, *arguments: str, cores: set[int] = SERVER_CORES) -> Process:
        """One of `bench.apps`."""
        port = free_port()
        command = [sys.executable, "-m", "bench.apps", kind, str(port), *arguments]
        made = self.start(command, f"http://127.0.0.1:{port}", kind, cores)
        made.wait_for()
        return made

    def trivet(
        self, config: str, *, cores: set[int] = SERVER_CORES, lacks: Sequence[str] = ()
    ) -> Process:
        """`trivet serve` with a config file of this text (ports are added).

        It cannot import the packages that it `lacks`.
        """
        port, admin = free_port(), free_port()
        file = self.folder / f"trivet-{port}.yaml"
        file.write_text(f"port: {port}\nadmin_port: {admin}\n{config}")
        # What is None in sys.modules counts as not found.
        code = f"import sys; sys.modules.update(dict.fromkeys({list(lacks)!r})); {_MAIN}"
        command = [sys.executable, "-c", code, "serve", "--config", str(file)]
        env = {"XDG_STATE_HOME": str(self.folder / "state")}
        made = self.start(command, f"http://127.0.0.1:{port}", "trivet", cores, env)
        made.wait_for(f"http://127.0.0.1:{admin}/healthz")
        return made

    def start(
        self,
        command: Sequence[str],
        url: str,
        name: str,
        cores: set[int],
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Any other server."""
        log = self.folder / f"{name}-{len(self._running)}.log"
        made = Process(command, url, log, cores, env)
        self._running.append(made)
        return made

    def close(self) -> None:
        """Stop what still runs, the latest first."""
        for process in reversed(self._running):
            process.stop()
