"""Entries as each release stored them: `stored/RELEASE.json` has the bytes, in base64.

Run as a script it writes the file of the release at hand. Files of earlier releases stay as they
are: they are what stores out there hold.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from importlib.metadata import version
from pathlib import Path

from trivet.exact.codec import encode
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.messages import Api, ExactKey, Usage
from trivet.policies.intents import Intent
from trivet.semantic.record_codec import seal_record
from trivet.semantic.types import Partition, Record

FOLDER = Path(__file__).parent / "stored"
SECRET = b"entries of every release, sealed"
PLAIN = Entry(
    key=ExactKey(bytes(range(32))),
    tenant="acme",
    api=Api.CHAT,
    canonical=b'{"model":"m"}',
    body=b'{"choices":[]}',
    model="m-1",
    usage=Usage(10, 20, 5, 0),
    ids=("call_1",),
    created=1e9,
    expires=1e9 + 60,
    stale_until=1e9 + 90,
    labels=frozenset({"tag:doc", "version:prompt=7"}),
    headers=(("x-ratelimit-remaining", "9"),),
)
LARGE = Entry(
    key=ExactKey(bytes(32)),
    tenant="acme",
    api=Api.MESSAGES,
    canonical=b'{"max_tokens":1}',
    body=b"a long answer " * 1_000,
    model="m-2",
    usage=Usage(1, 2, 3, 4, 2),
    ids=(),
    created=1e9,
    expires=1e9 + 60,
    stale_until=1e9 + 60,
)
ENTRIES = {"plain": PLAIN, "large": LARGE}
RECORD = Record(
    id="00" * 16,
    tenant="acme",
    partition=Partition(b"p" * 32),
    key=bytes(range(32)),
    text="Do you ship to Norway?",
    vector=b"\x00\x00\x80?" * 4,
    intent=Intent.INFORMATIONAL,
    created=1e9,
    expires=1e9 + 60,
    labels=frozenset({"tag:doc"}),
    author="someone",
    confirmed=False,
    seen=("somebody",),
    answers=2,
)


def seal(kind: str) -> Seal:
    """The seal of a `sealed` or an `encrypted` store."""
    return Seal(SECRET, encrypt=kind == "encrypted")


def stored(release: str) -> dict[str, dict[str, bytes]]:
    """What that release wrote, by kind of store and name."""
    kinds = json.loads((FOLDER / f"{release}.json").read_text())
    return {
        kind: {name: b64decode(text) for name, text in texts.items()}
        for kind, texts in kinds.items()
    }


def written() -> dict[str, dict[str, bytes]]:
    """The same, by the code at hand."""
    return {
        kind: {
            **{name: encode(entry, seal(kind)) for name, entry in ENTRIES.items()},
            "record": seal_record(RECORD, seal(kind)),
        }
        for kind in ("sealed", "encrypted")
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    texts = {
        kind: {name: b64encode(raw).decode() for name, raw in made.items()}
        for kind, made in written().items()
    }
    (FOLDER / f"{version('trivet')}.json").write_text(json.dumps(texts, indent=1) + "\n")
