"""SIGHUP to the running proxy: the policies are read again at once, and nothing ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, free_port, serving

from trivet.policies.keygen import key_hash

ACME, GLOBEX = "sk-acme", "sk-globex"
JSON = ("--log-format", "json")


def write(folder: Path, tenant: str, key: str, more: str = "") -> None:
    text = f"tenant: {tenant}\ncredentials:\n  - sha256: {key_hash(key)}\n{more}"
    (folder / f"{tenant}.yaml").write_text(text)


def lines(proxy: Proxy, event: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in proxy.lines() if line.startswith("{")]
    return [line for line in told if line["event"] == event]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def hang_up(proxy: Proxy) -> dict[str, Any]:
    """Send SIGHUP; the line that tells of the reload."""
    before = len(lines(proxy, "policies-reread"))
    proxy.process.send_signal(signal.SIGHUP)
    until(lambda: len(lines(proxy, "policies-reread")) > before)
    return lines(proxy, "policies-reread")[-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_new_policies_hold_in_every_worker_once_the_reload_is_told(
    tmp_path: Path, workers: int
) -> None:
    write(tmp_path, "acme", ACME)
    with serving(None, *JSON, "--policies", str(tmp_path), "--workers", str(workers)) as proxy:
        until(lambda: workers == 1 or "2 of 2 ready" in str(proxy.get("/readyz", admin=True).json))
        assert proxy.chat("hello", key=GLOBEX).status == 401
        write(tmp_path, "globex", GLOBEX)
        told = hang_up(proxy)
        assert (told["ok"], told["asked_by"]) == (True, "SIGHUP")
        assert {proxy.chat("hello", key=GLOBEX).status for _ in range(8)} == {200}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_file_keeps_the_old_set_and_is_told(tmp_path: Path, workers: int) -> None:
    write(tmp_path, "acme", ACME)
    with serving(None, *JSON, "--policies", str(tmp_path), "--workers", str(workers)) as proxy:
        until(lambda: workers == 1 or "2 of 2 ready" in str(proxy.get("/readyz", admin=True).json))
        write(tmp_path, "globex", GLOBEX, "exact: {tttl: 5}\n")
        assert hang_up(proxy)["ok"] is False
        assert "globex.yaml:4:9" in json.dumps(lines(proxy, "policies-refused")[0])
        assert proxy.chat("hello", key=ACME).status == 200
        assert proxy.chat("hello", key=GLOBEX).status == 401


def test_a_reload_with_nothing_new_and_one_without_policies_are_told_too(tmp_path: Path) -> None:
    with serving(None, *JSON) as proxy:
        for _ in range(2):
            assert hang_up(proxy)["in_use"] == "none"


@pytest.mark.parametrize("workers", [1, 2])
def test_hangups_without_end_end_nothing_from_the_start_to_the_exit(
    tmp_path: Path, workers: int
) -> None:
    write(tmp_path, "acme", ACME)
    port, admin = free_port(), free_port()
    command = [sys.executable, "-m", "trivet.cli", "serve", "--upstream", "http://127.0.0.1:9"]
    command += ["--port", str(port), "--admin-port", str(admin), "--workers", str(workers)]
    command += ["--policies", str(tmp_path), "--store", "memory", *JSON]
    log = tmp_path / "log"
    with log.open("wb") as out:
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        process = subprocess.Popen(command, stderr=out, stdout=out, env=environment)
    proxy = Proxy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}", process, log)
    over = threading.Event()

    def pester() -> None:
        while process.poll() is None and not over.wait(0.005):
            process.send_signal(signal.SIGHUP)

    try:
        until(lambda: _takes_hangup(process.pid))
        pesterer = threading.Thread(target=pester)
        pesterer.start()
        until(lambda: len(lines(proxy, "policies-reread")) > 20)
        assert proxy.chat("hello", key=ACME).status == 502
        assert proxy.stop(timeout=30) == 0
        over.set()
        pesterer.join()
    finally:
        process.kill()
        process.wait()
    assert not lines(proxy, "worker-ended")


def test_a_worker_leaves_the_hangup_of_its_group_to_the_supervisor(tmp_path: Path) -> None:
    with serving(None, *JSON, "--workers", "2") as proxy:
        children = Path(f"/proc/{proxy.process.pid}/task/{proxy.process.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()]
        for pid in workers:
            os.kill(pid, signal.SIGHUP)
        hang_up(proxy)
        assert {int(pid) for pid in children.read_text().split()} == set(workers)
        assert not lines(proxy, "worker-ended")


def _takes_hangup(pid: int) -> bool:
    """Whether SIGHUP no longer ends the process: it is ignored or caught."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [line.split()[1] for line in status if line.startswith(("SigIgn:", "SigCgt:"))]
    return any(int(mask, 16) & 1 for mask in masks)
