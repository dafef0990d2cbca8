"""The built wheel in a bare venv: what `pip install trivet` gives, with nothing of a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proxy import chat_body, free_port, request

from trivet.middleware.mock_upstream.run import running

ROOT = Path(__file__).parent.parent.parent
HEAVY = {"torch", "numpy", "faiss", "redis", "cryptography", "scipy", "openai", "anthropic"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a venv that holds the wheel and what it requires, at the tested versions."""
    venv = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv), "install", "-q"]
    pip += ["--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    return venv / "bin"


def told(bare: Path, *command: str) -> str:
    """What a command of the venv prints, run where no checkout is."""
    done = subprocess.run(
        [str(bare / command[0]), *command[1:]],
        cwd=bare,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"trivet", wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "trivet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {name for name in tracked if (ROOT / name).exists()} - set(names) == set()
    assert "trivet/py.typed" in names
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}


def test_a_plain_install_brings_nothing_heavy(bare: Path) -> None:
    code = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
    assert told(bare, "python", "-c", code, *sorted(HEAVY)).split() == []


def test_every_module_that_a_plain_install_can_use_is_imported(bare: Path) -> None:
    code = "import trivet.cli, trivet.middleware.running.run, trivet.middleware.running.service"
    assert told(bare, "python", "-W", "error", "-c", code) == ""


def test_the_command_is_there_and_tells_its_version(bare: Path) -> None:
    assert told(bare, "trivet", "--version").startswith("trivet, version ")
    assert told(bare, "trivet", "check", "--schema").startswith("{")


@contextmanager
def serving(bare: Path, upstream: str, folder: Path) -> Iterator[str]:
    port, admin = free_port(), free_port()
    command = [str(bare / "trivet"), "serve", "--upstream", upstream, "--store", "memory"]
    command += ["--port", str(port), "--admin-port", str(admin)]
    env = {**os.environ, "XDG_STATE_HOME": str(folder)}
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.DEVNULL)
    try:
        # curl waits for the port: it tries again where nobody listens yet.
        ready = ["curl", "-s", "--retry", "60", "--retry-delay", "0", "--retry-all-errors"]
        ready += ["--retry-max-time", "30", "-o", "/dev/null", f"http://127.0.0.1:{admin}/readyz"]
        subprocess.run(ready, check=True)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_the_second_answer_comes_from_the_cache(bare: Path, tmp_path: Path) -> None:
    with running() as (upstream, mock), serving(bare, upstream, tmp_path) as url:
        body = json.dumps(chat_body("Is it in the wheel?")).encode()
        headers = {"content-type": "application/json"}
        for expected in ("stored", "hit"):
            reply = request("POST", f"{url}/v1/chat/completions", body, headers, 30)
            assert expected in reply.headers["cache-status"]
    assert mock.calls.report()["total"] == 1
