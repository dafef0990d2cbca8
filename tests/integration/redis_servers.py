"""Real redis-server processes of a test's own, on free ports, in a directory of its own."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proxy import free_port


def free_bus_ports(count: int) -> list[int]:
    """Ports that are free together with the cluster bus's, 10,000 above."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as one, socket.socket() as two, suppress(OSError):
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 10_000))
            found.add(port)
    return sorted(found)


@dataclass
class Server:
    """One redis-server or redis-sentinel."""

    port: int
    directory: Path
    arguments: Sequence[str] = ()
    login: Sequence[str] = ()
    """Arguments with which redis-cli reaches it."""
    program: str = "redis-server"
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it answers a PING."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.program, *self._options()], stdout=log, stderr=log, cwd=self.directory
            )
        if wait:
            self.wait_for("PONG", "PING")

    def _options(self) -> list[str]:
        if self.program == "redis-sentinel":
            return list(self.arguments)
        port = [] if "--port" in self.arguments else ["--port", str(self.port)]
        usual = ["--bind", "127.0.0.1", "--save", "", "--dir", str(self.directory)]
        return [*port, *usual, *self.arguments]

    def cli(self, *command: str) -> str:
        """What redis-cli prints."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *self.login, *command],
            capture_output=True,
            timeout=20,
            check=False,
        )
        return (done.stdout + done.stderr).decode()

    def wait_for(self, text: str, *command: str, seconds: float = 30.0) -> None:
        """Until `command` prints `text`."""
        limit = time.monotonic() + seconds
        while text not in (said := self.cli(*command)):
            if time.monotonic() > limit:
                log = (self.directory / "log").read_text()[-2000:]
                raise AssertionError(f"{command} never said {text!r} but {said!r}\n{log}")
            time.sleep(0.02)

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextmanager
def running(
    directory: Path, *arguments: str, login: Sequence[str] = (), start: bool = True
) -> Iterator[Server]:
    """A standalone server with its own configuration arguments."""
    server = Server(free_port(), directory, arguments, login)
    try:
        if start:
            server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def replica_of(master: Server, directory: Path) -> Iterator[Server]:
    """A read-only replica that has caught up."""
    with running(directory, "--replicaof", "127.0.0.1", str(master.port)) as replica:
        replica.wait_for("master_link_status:up", "INFO", "replication")
        yield replica


@contextmanager
def cluster(directory: Path, size: int = 3) -> Iterator[list[Server]]:
    """A cluster of `size` masters that covers all slots."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    servers = [Server(port, directory / f"n{port}", options) for port in free_bus_ports(size)]
    try:
        for server in servers:
            server.start()
        nodes = [f"127.0.0.1:{server.port}" for server in servers]
        servers[0].cli("--cluster", "create", *nodes, "--cluster-yes")
        for server in servers:
            server.wait_for("cluster_state:ok", "CLUSTER", "INFO")
        yield servers
    finally:
        for server in servers:
            server.stop()


@contextmanager
def sentinel(directory: Path, master: Server, service: str) -> Iterator[Server]:
    """A sentinel that alone decides about a failover, after half a second."""
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor {service} 127.0.0.1 {master.port} 1\n"
        f"sentinel down-after-milliseconds {service} 500\n"
        f"sentinel failover-timeout {service} 3000\n"
    )
    server = Server(port, directory, (str(config),), program="redis-sentinel")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    directory.mkdir(parents=True, exist_ok=True)
    made, secret = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {secret} -out {made}".split(),
        check=True,
        capture_output=True,
    )
    return made, secret
