"""What `make demo` runs: `trivet serve --engine`, which is a proxy with a model behind it, and
`demo.py` through both.

Leaves them up until Ctrl-C, which stops them. Their log is in `.demo/`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
FILES = HERE.parent / ".demo"
MODEL = "smollm2"


class DemoError(Exception):
    """The demo cannot go on; the message says what to do."""


class Child:
    """A program that runs beside the demo, with its output in a file."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.log = FILES / f"{name}.log"
        command = [str(Path(sys.executable).parent / "trivet"), *arguments]
        print(f"==> trivet {' '.join(arguments)}", flush=True)
        environment = {**os.environ, "XDG_STATE_HOME": str(FILES), "PYTHONUNBUFFERED": "1"}
        with self.log.open("wb") as output:
            # In a session of its own, so that Ctrl-C reaches this program alone, which then
            # stops its children in order.
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    def wait_ready(self, url: str, limit: float, note: str) -> None:
        """Wait until `url` answers 200, with a sign of life every few seconds."""
        start = time.monotonic()
        shown = 0.0
        while not answers(url):
            waited = time.monotonic() - start
            if self.process.poll() is not None:
                raise DemoError(self.obituary())
            if waited > limit:
                raise DemoError(
                    f"The {self.name} was not ready after {limit:.0f} s; see {self.log},"
                    " and run make demo again."
                )
            if waited - shown >= 5:
                shown = waited
                print(f"    {note} ... {waited:.0f} s", flush=True)
            time.sleep(0.2)
        print(f"    ready after {time.monotonic() - start:.1f} s", flush=True)

    def obituary(self) -> str:
        """How it ended, and the last lines of its output."""
        lines = self.log.read_text(errors="replace").splitlines()[-8:]
        ended = self.process.poll()
        how = f"was killed by signal {-ended}" if ended and ended < 0 else f"stopped ({ended})"
        return "\n    ".join([f"The {self.name} {how}. The end of {self.log}:", *lines])

    def stop(self) -> None:
        """End it; by force after ten seconds."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def answers(url: str) -> bool:
    """Whether `url` answers 200 now."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def check_free(port: int, variable: str) -> None:
    """Raise `DemoError` if another program listens on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise DemoError(
                f"Port {port} is taken. Stop what uses it, or choose another:"
                f" make demo {variable}={port + 10}"
            ) from None


def demonstrate(children: list[Child], asked: argparse.Namespace) -> None:
    """Start everything, send the script, and stay up."""
    for port, variable in (
        (asked.port, "PORT"),
        (asked.port + 1, "PORT"),
        (asked.engine_port, "ENGINE_PORT"),
    ):
        check_free(port, variable)
    FILES.mkdir(exist_ok=True)
    proxy = f"http://127.0.0.1:{asked.port}"
    admin = f"http://127.0.0.1:{asked.port + 1}"
    ports = ("--port", str(asked.port), "--engine-port", str(asked.engine_port))
    children.append(Child("trivet", "serve", "--engine", MODEL, *ports, "--store", "memory"))
    children[-1].wait_ready(f"{admin}/readyz", 300, "loading the model")

    sys.path.insert(0, str(HERE))
    import demo

    demo.run(proxy, MODEL)
    demo.prefixes(proxy, MODEL)
    if asked.once:
        print("\nDone (--once): the proxy and the model stop now.", flush=True)
        return
    print(_farewell(proxy, admin, asked.engine_port), flush=True)
    while True:
        time.sleep(0.5)
        for child in children:
            if child.process.poll() is not None:
                raise DemoError(child.obituary())


def _farewell(proxy: str, admin: str, engine_port: int) -> str:
    question = '[{"role": "user", "content": "What is the capital of Japan?"}]'
    return f"""
The proxy is up. Point an SDK at it:
  OpenAI      base_url = {proxy}/v1
  Anthropic   base_url = {proxy}
  metrics     {admin}/metrics, and the engine's: http://127.0.0.1:{engine_port}/metrics
Try it, twice (the second time Cache-Status says `hit`):
  curl -si {proxy}/v1/chat/completions \\
    -H 'authorization: Bearer me' -H 'content-type: application/json' \\
    -d '{{"model": "{MODEL}", "temperature": 0, "messages": {question}}}'
Ctrl-C stops the proxy and the model."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the demo.")
    parser.add_argument("--port", type=int, default=8080, help="the proxy's; admin is one above")
    parser.add_argument("--engine-port", type=int, default=9100)
    parser.add_argument("--once", action="store_true", help="stop after the table")
    asked = parser.parse_args()
    # A shell that runs this in the background has SIGINT ignored; it is to end the demo anyway.
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    children: list[Child] = []
    try:
        demonstrate(children, asked)
    except DemoError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopping.")
    finally:
        for child in reversed(children):
            child.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
