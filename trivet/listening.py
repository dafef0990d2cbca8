"""The sockets that servers of ours listen on."""

from __future__ import annotations

import errno
import socket

from trivet.errors import ConfigError, Problem

BACKLOG = 4096
"""Connections that may wait to be taken."""


def listen(host: str, port: int, flag: str, command: str = "command line") -> socket.socket:
    """A listening socket. Raises `ConfigError` that names the command and the flag to change.

    Nobody else can have a port that is listened on; one that is only bound is anybody's to take.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        what = f"cannot listen on {host}:{port} ({error.strerror}); {_remedy(error)}"
        raise ConfigError(Problem(command, 0, 0, flag, what)) from None
    return made


def url_of(made: socket.socket) -> str:
    """The address of a listening socket as a URL."""
    host, port = made.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "choose another port, or stop what listens there"
    if error.errno == errno.EACCES:
        return "choose a port from 1024 on"
    return "choose an address of this machine"
