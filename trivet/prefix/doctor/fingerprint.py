"""A prompt without its text: digests by part, member and block of characters, and what they hide.

Digests are keyed: without the key nobody can test guesses. Beside the digest of a text stand those
of the text in other guises (clocks and ids masked, words sorted, white space removed, keys
sorted), so that the cause of a break is seen when the older text is no longer there.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from trivet.messages import Api
from trivet.prefix.doctor.layout import Reading, reading
from trivet.prefix.doctor.volatile import volatile
from trivet.prefix.prompts.outline import Level, NativeApi, Outline, Part, Place, Setting

BLOCK: Final = 32
"""Characters of a block."""

_LONGEST: Final = 400_000
"""Longer texts have no guises: only their digest, and blocks up to here."""
_MOST_SPANS: Final = 1_024
_BITE: Final = 8_192
_NO_TEXT: Final = frozenset({"image", "document", "audio"})
_NOTHING: Final = b""
_WORDS: Final = re.compile(r"\w+")


class Span(NamedTuple):
    """A volatile piece of a text, in characters."""

    start: int
    end: int
    kind: str
    digest: int
    """32 bits, keyed."""


class Looks(NamedTuple):
    """A part's content. Digests of guises are empty where there is no such guise."""

    digest: bytes
    length: int = 0
    """Characters of its text."""
    masked: bytes = b""
    squeezed: bytes = b""
    """White space removed."""
    words: bytes = b""
    """Words sorted."""
    keys: bytes = b""
    """JSON with its keys sorted."""
    sets: bytes = b""
    """JSON with its keys and lists sorted."""
    fields: tuple[tuple[str, bytes], ...] = ()
    """Members of an object; a function's own (`function.parameters`) in place of the whole."""
    name: bytes = b""
    """Of a tool's name."""
    label: str = ""
    """A tool's name as written, where that may be kept."""
    spans: tuple[Span, ...] = ()
    blocks: array[int] = array("I")
    """32 bits, keyed, for each `BLOCK` characters of the text; empty where they are not kept."""

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return 400 + 80 * len(self.spans) + 4 * len(self.blocks) + 120 * len(self.fields)


class Piece(NamedTuple):
    """A part."""

    level: Level
    place: Place
    kind: str
    role: str
    tokens: int
    marked: bool
    looks: Looks


class Trait(NamedTuple):
    """A setting."""

    level: Level
    name: str
    value: bytes
    fields: tuple[tuple[str, bytes], ...] = ()


class Fingerprint(NamedTuple):
    """A whole prompt."""

    api: Api | NativeApi
    model: str
    parts: tuple[Piece, ...]
    settings: tuple[Trait, ...] = ()
    automatic: bool = False

    @property
    def tokens(self) -> int:
        """Estimated tokens of the whole prompt."""
        return sum(part.tokens for part in self.parts)


class Known(Protocol):
    """Looks that were made before, by digest."""

    def get(self, digest: bytes, /) -> Looks | None: ...


class Maker:
    """Makes fingerprints under one key. `blocks` are kept for comparing within one process: their
    digests are of the interpreter's own keyed hash. `labels` keep the names of tools."""

    def __init__(
        self,
        key: bytes,
        known: Known | None = None,
        *,
        blocks: bool = False,
        labels: bool = False,
    ) -> None:
        self._key = key[:64]
        self._known = known
        self._blocks = blocks
        self._labels = labels
        self._short: Callable[[str], int] = _interned if blocks else self._small

    def make(self, outline: Outline) -> Fingerprint:
        """The fingerprint of a prompt."""
        parts = tuple(self._piece(part) for part in outline.parts)
        traits = tuple(self._trait(one) for one in outline.settings)
        return Fingerprint(outline.api, outline.model, parts, traits, outline.automatic is not None)

    def _piece(self, part: Part) -> Piece:
        marked = part.mark is not None
        shape = (part.level, part.place, part.kind, part.role, part.tokens, marked)
        if part.kind in _NO_TEXT and len(part.content) > _LONGEST:
            return Piece(*shape, Looks(self._hash(b"j" + part.content, 16)))
        read = reading(part)
        plain = part.kind == "text" and read.plain
        raw = b"t" + _bytes(read.text) if plain else b"j" + part.content
        digest = self._hash(raw, 16)
        known = None if self._known is None else self._known.get(digest)
        return Piece(*shape, known or self._looks(part, read, digest))

    def _looks(self, part: Part, read: Reading, digest: bytes) -> Looks:
        text = read.text
        tool = _tool(read.value) if part.level is Level.TOOLS else {}
        name = tool.get("name")
        named = isinstance(name, str)
        blocks = array("I")
        if self._blocks:
            step = range(0, min(len(text), _LONGEST), BLOCK)
            blocks.extend([_interned(text[at : at + BLOCK]) for at in step])
        whole = Looks(
            digest,
            len(text),
            fields=self._fields(tool or read.value),
            name=self._hash(_bytes(str(name)), 8) if named else _NOTHING,
            label=str(name)[:64] if named and self._labels else "",
            blocks=blocks,
        )
        return whole if len(text) > _LONGEST else self._guises(whole, read)

    def _guises(self, looks: Looks, read: Reading) -> Looks:
        text = read.text
        found = list(volatile(text, _MOST_SPANS))
        masked, at = list[str](), 0
        for one in found:
            masked += (text[at : one.start], "\0", one.kind, "\0")
            at = one.end
        masked.append(text[at:])
        value = read.value
        lists = isinstance(value, (dict, list)) and not read.plain
        return looks._replace(
            masked=self._text("".join(masked)),
            squeezed=self._text("".join(text.split())),
            words=self._bag(text),
            keys=self._text(_sorted(value, lists=False)) if lists else _NOTHING,
            sets=self._text(_sorted(value, lists=True)) if lists else _NOTHING,
            spans=tuple(
                Span(one.start, one.end, one.kind, self._short(text[one.start : one.end]))
                for one in found
            ),
        )

    def _bag(self, text: str) -> bytes:
        """A digest of the words in whatever order. Within one process it is a sum, taken in small
        bites: one call on a long text would keep the interpreter from other threads."""
        if not self._blocks:
            return self._text(" ".join(sorted(_WORDS.findall(text))))
        total = at = 0
        while at < len(text):
            cut = text.find(" ", at + _BITE)
            end = len(text) if cut < 0 else cut
            total += sum(map(hash, _WORDS.findall(text, at, end)))
            at = end
        return (total & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big")

    def _trait(self, one: Setting) -> Trait:
        value = json.loads(one.value.lstrip(b"\x00"))
        return Trait(one.level, one.name, self._hash(one.value, 8), self._fields(value))

    def _fields(self, value: Any) -> tuple[tuple[str, bytes], ...]:
        if not isinstance(value, Mapping):
            return ()
        return tuple(
            (self._shown(name), self._text(json.dumps(item)))
            for name, item in list(value.items())[:32]
        )

    def _shown(self, name: str) -> str:
        """A field's name as the APIs have it; a caller's own word is a text like any other."""
        return name if name in _FIELDS else f"field {self._text(name)[:4].hex()}"

    def _small(self, text: str) -> int:
        return int.from_bytes(self._hash(_bytes(text), 4), "big")

    def _text(self, text: str) -> bytes:
        return self._hash(_bytes(text), 8)

    def _hash(self, raw: bytes, size: int) -> bytes:
        return blake2b(raw, key=self._key, digest_size=size).digest()


# fmt: off
_FIELDS: Final = frozenset(
    {
        "type", "name", "description", "input_schema", "parameters", "strict", "function", "effort",
        "summary", "format", "schema", "json_schema", "verbosity", "budget_tokens",
        "disable_parallel_tool_use", "text", "source", "id", "input", "content", "tool_use_id",
        "call_id", "tool_call_id", "tool_calls", "arguments", "output", "display", "max_uses",
        "url", "detail", "image_url", "title", "context", "citations", "role", "generate_summary",
        "signature", "thinking", "data", "is_error", "file_id", "allowed_domains",
        "blocked_domains", "user_location", "toolSpec", "inputSchema", "json", "mode", "ttl",
        "allowed_tools", "tools", "file", "filename", "annotations", "refusal", "status",
        "encrypted_content",
    }
)
# fmt: on


def _tool(value: Any) -> Mapping[str, Any]:
    """The members of a tool: a function's own count as the tool's."""
    if not isinstance(value, Mapping):
        return {}
    made: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping) and name in ("function", "toolSpec"):
            made.update(item)
        else:
            made[str(name)] = item
    return made


def _sorted(value: Any, *, lists: bool) -> str:
    return json.dumps(_ordered(value, lists), sort_keys=True)


def _ordered(value: Any, lists: bool) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(item, lists) for name, item in value.items()}
    if isinstance(value, list):
        made = [_ordered(item, lists) for item in value]
        return sorted(made, key=lambda one: json.dumps(one, sort_keys=True)) if lists else made
    return value


def _interned(text: str) -> int:
    """32 bits of the interpreter's hash: SipHash under a key of this process."""
    return hash(text) & 0xFFFFFFFF


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
