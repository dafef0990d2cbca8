"""What a store's URL says, read without its library: configs are checked where it is missing.

    memory
    sqlite:PATH
    redis://[USER:PASSWORD@]HOST[:PORT][/DB]
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],...[/SERVICE[/DB]]
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],...

`rediss` in place of `redis` is TLS; `valkey` and `valkeys` are other names for the two.

Options after `?`: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs, ssl_check_hostname,
sentinel_username, sentinel_password.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_SENTINEL = ("sentinel_username", "sentinel_password")
_PORTS = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Redis is and how to log in; `repr` leaves secrets out."""

    kind: str
    """`standalone`, `sentinel` or `cluster`."""
    nodes: tuple[tuple[str, int], ...]
    service: str = "mymaster"
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)


def check_store_url(url: str) -> None:
    """Raises `ValueError` that says what is wrong with it, without the URL's password."""
    if url in ("memory", "sqlite") or url.startswith("sqlite:"):
        return
    scheme, colon, _ = url.partition(":")
    if colon and scheme.startswith(("redis", "valkey")):
        parse_url(url)
        return
    # The URL may hold a password: only its scheme is repeated.
    raise ValueError(f"{scheme!r} is not a store: memory, sqlite:PATH, or redis://HOST:PORT/DB")


def parse_url(url: str) -> Address:
    """Read a Redis URL as above. Raises `ValueError`, without the URL's password in it."""
    scheme, found, rest = url.partition("://")
    if not found:
        raise ValueError(f"a Redis URL begins with {url.partition(':')[0]}://")
    name, _, kind = scheme.partition("+")
    kind = kind or "standalone"
    if name not in ("redis", "rediss", "valkey", "valkeys") or kind not in _PORTS:
        raise ValueError(
            f"{scheme}:// is not redis, rediss, or one of them with +sentinel, +cluster"
        )
    rest, _, query = rest.partition("?")
    place, _, path = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    options: dict[str, Any] = {"ssl": True} if name in ("rediss", "valkeys") else {}
    user, _, password = login.partition(":")
    if user:
        options["username"] = unquote(user)
    if password:
        options["password"] = unquote(password)
    sentinel_options = _read_options(query, options)
    service = "mymaster"
    if kind == "sentinel":
        named, _, path = path.partition("/")
        service = unquote(named) or service
    if path:
        if not path.isdecimal() or kind == "cluster":
            raise ValueError(f"/{path} is not a database number of a {kind} Redis")
        options["db"] = int(path)
    nodes = tuple(_node(host, _PORTS[kind]) for host in hosts.split(","))
    if kind == "standalone" and len(nodes) > 1:
        raise ValueError("several hosts are redis+sentinel:// or redis+cluster://")
    return Address(kind, nodes, service, options, sentinel_options)


def _read_options(query: str, options: dict[str, Any]) -> dict[str, Any]:
    sentinel_options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in _SENTINEL:
            sentinel_options[name.removeprefix("sentinel_")] = value
        elif name == "ssl_check_hostname":
            options[name] = value.lower() in ("1", "true", "yes")
        elif name in _TLS:
            options[name] = value
        else:
            raise ValueError(f"{name!r} is not an option; there are {', '.join(_TLS + _SENTINEL)}")
    return sentinel_options


def _node(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return host, int(port)
