"""Pairs that wait for a person: one JSONL file for each tenant, for `trivet eval label`."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from trivet.canonical import sha256

_MOST_BYTES = 64 << 20
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class LabelQueue:
    """Appends to `directory/TENANT.jsonl`, which only its owner may read. Several processes may.

    A file of `most_bytes` takes no more. Raises nothing; `dropped` counts what was not written.
    """

    def __init__(self, directory: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._directory = directory
        self._most = most_bytes
        self.dropped = 0

    async def put(self, tenant: str, pair: Mapping[str, Any]) -> None:
        """Append one line, in a thread."""
        try:
            line = orjson.dumps(pair) + b"\n"
        except orjson.JSONEncodeError:  # A lone surrogate.
            self.dropped += 1
            return
        self.dropped += not await asyncio.to_thread(self._append, self.path(tenant), line)

    def path(self, tenant: str) -> Path:
        """The tenant's file. A name that is no file name is replaced by its hash."""
        plain = tenant if _PLAIN.fullmatch(tenant) else sha256(tenant.encode()).hex()[:32]
        return self._directory / f"{plain}.jsonl"

    def _append(self, path: Path, line: bytes) -> bool:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, flags, 0o600)
            try:
                if os.fstat(file).st_size + len(line) > self._most:
                    return False
                # One write: lines of several processes do not mix.
                return os.write(file, line) == len(line)
            finally:
                os.close(file)
        except OSError:
            return False
