"""A TCP relay that delays every byte of the answers by a time that can be set while it runs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass
class SlowLine:
    """Relays `port` to another; `delay_s` holds for what is read from then on."""

    port: int
    delay_s: float = 0.0


@contextmanager
def slow_line(target: int) -> Iterator[SlowLine]:
    """A relay to `127.0.0.1:target`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = SlowLine(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, target, line), daemon=True).start()
        yield line
        # A thread that waits in accept would keep a merely closed socket listening.
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, target: int, line: SlowLine) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(("127.0.0.1", target))
        except OSError:
            near.close()
            continue
        for source, sink, slow in ((near, far, None), (far, near, line)):
            threading.Thread(target=_copy, args=(source, sink, slow), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket, slow: SlowLine | None) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if slow is not None:
                time.sleep(slow.delay_s)
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
