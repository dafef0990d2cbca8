"""HTTP by hand, for what well-behaved clients do not do: half requests, slow ones, many at once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


def head(url: str, body: bytes, *, path: str = "/v1/chat/completions", **headers: str) -> bytes:
    """The head of a POST whose body is `body`. Header names are written with underscores."""
    named = {"host": urlsplit(url).netloc, "content-length": str(len(body))}
    named["authorization"] = "Bearer sk-test"
    named["content-type"] = "application/json"
    named.update({name.replace("_", "-"): value for name, value in headers.items()})
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the server behind `url`."""
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port)


@dataclass
class Answer:
    """What came back on one connection. `complete` is False if it broke off."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one response with Content-Length or chunked coding."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body, True)
    parts: list[bytes] = []
    try:
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
    except asyncio.IncompleteReadError:
        return Answer(status, headers, b"".join(parts), False)
    return Answer(status, headers, b"".join(parts), True)


async def post(url: str, body: Any, **headers: str) -> Answer:
    """One request on a connection of its own."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await connect(url)
    try:
        writer.write(head(url, data, **headers) + data)
        return await read_answer(reader)
    finally:
        writer.close()
