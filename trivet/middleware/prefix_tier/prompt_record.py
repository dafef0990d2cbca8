"""The shape of a prompt as it is recorded, and read back as a fingerprint or an outline."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Api
from trivet.middleware.call import Call
from trivet.policies.traffic import RecordedPart, RecordedPrompt, RecordedSetting, Traffic
from trivet.prefix.backends.base import Marked
from trivet.prefix.backends.registry import backend_of
from trivet.prefix.doctor.fingerprint import Fingerprint, Looks, Maker, Piece, Span, Trait
from trivet.prefix.markers.placement import as_sent
from trivet.prefix.prompts.extent import MOST_PARTS, crowded
from trivet.prefix.prompts.outline import Level, Mark, Outline, Part, Setting, outline_of

_MOST_SPANS: Final = 32
_MOST_BODY: Final = 1 << 20
_KNOWN: Final = 4_096
_LARGEST: Final = 4 << 20
_PROMPTS: Final = frozenset({Api.CHAT, Api.RESPONSES, Api.COMPLETIONS, Api.MESSAGES})


class PromptRecorder:
    """Makes records. Parts that came before are not looked at anew; for one thread."""

    def __init__(self, secret: bytes) -> None:
        self._known: OrderedDict[bytes, Looks] = OrderedDict()
        self._maker = Maker(canonical.mac(secret, b"trivet-prompt")[:32], self)

    def get(self, digest: bytes, /) -> Looks | None:
        """Looks that were made before."""
        return self._known.get(digest)

    def record(self, call: Call) -> RecordedPrompt | None:
        """The record of a call that has ended; None where no model was asked, or is too big."""
        if call.note.tier is not None or call.request.api not in _PROMPTS:
            return None
        if len(call.request.forward) > _LARGEST:
            return None
        outline = outline_of_call(call)
        if outline.cut:
            return None
        made = self._maker.make(outline)
        self._learn(made)
        raw = call.request.forward
        kept = call.policy.prefix.keep_text and len(raw) <= _MOST_BODY
        return RecordedPrompt(
            route=route_of_call(call),
            upstream=call.upstream.name,
            cache=cache_of(call),
            parts=tuple(map(_part, made.parts, outline.parts)),
            settings=tuple(map(_setting, made.settings)),
            automatic=None if outline.automatic is None else _sound(outline.automatic.ttl[:16]),
            mode=_sound(outline.mode[:16]),
            ttl=_sound(outline.ttl[:16]),
            retention=_sound(outline.retention[:16]),
            body=raw.decode("utf-8", "replace") if kept else None,
        )

    def _learn(self, made: Fingerprint) -> None:
        for part in made.parts:
            self._known[part.looks.digest] = part.looks
            self._known.move_to_end(part.looks.digest)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)


_ROUTES: Final = {api: api.value for api in Api}
"""What requests are called that name no route."""
_ROLES: Final = frozenset(
    ("", "system", "developer", "user", "assistant", "tool", "function", "model")
)


def route_of_call(call: Call) -> str:
    """What a route is called in metrics, logs and records."""
    return call.route or _ROUTES[call.request.api]


def cache_of(call: Call) -> str:
    """Whose prefix cache stands behind the call's upstream; empty where that is not known."""
    upstream = call.upstream
    kind = backend_of(upstream.cache, upstream.base_url, upstream.engine_secret_env).kind
    return "" if kind == "none" else kind


def outline_of_call(call: Call) -> Outline:
    """The prompt as the caller wrote it, with the breakpoints with which it was sent."""
    sent = None if call.sent is None else call.sent.body
    return outline_as_sent(call.request.api, call.body or call.request.forward, sent)


def outline_as_sent(api: Api, raw: bytes, body: bytes | None) -> Outline:
    """The prompt `raw`, with the breakpoints of the `body` that was sent; without parts where it
    has more than are looked at."""
    parsed = _parsed(raw)
    if crowded(parsed):
        return Outline(api, str(parsed.get("model", "")), (), cut=True)
    outline = outline_of(api, parsed, MOST_PARTS)
    if body is None or body is raw:
        return outline
    sent = outline_of(api, _parsed(body), MOST_PARTS)
    if len(sent.parts) != len(outline.parts):
        return sent
    pairs = zip(outline.parts, sent.parts, strict=True)
    return sent._replace(parts=tuple(own._replace(mark=other.mark) for own, other in pairs))


def _parsed(raw: bytes) -> Mapping[str, Any]:
    try:
        value: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            value = canonical.parse(raw)
        except RequestError:
            return {}
    return value if isinstance(value, dict) else {}


def _part(piece: Piece, part: Part) -> RecordedPart:
    looks = piece.looks
    guises = (looks.masked, looks.squeezed, looks.words, looks.keys, looks.sets)
    return RecordedPart(
        level=piece.level.value,
        place=piece.place,
        kind=_sound(piece.kind[:32]),
        role=piece.role if piece.role in _ROLES else "other",
        tokens=piece.tokens,
        mark=None if part.mark is None else _sound(part.mark.ttl[:16]),
        digest=looks.digest.hex(),
        length=looks.length,
        guises=tuple(one.hex() for one in guises) if any(guises) else (),
        name=looks.name.hex(),
        fields={_sound(name): value.hex() for name, value in looks.fields},
        spans=tuple(
            (one.start, one.end, one.kind, one.digest) for one in looks.spans[:_MOST_SPANS]
        ),
    )


def _setting(trait: Trait) -> RecordedSetting:
    return RecordedSetting(
        level=trait.level.value,
        name=trait.name,
        value=trait.value.hex(),
        fields={_sound(name): value.hex() for name, value in trait.fields},
    )


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def fingerprint_of_record(row: Traffic) -> Fingerprint:
    """The fingerprint that was recorded; one without parts where none was."""
    prompt = row.prompt or RecordedPrompt()
    return Fingerprint(
        row.api,
        row.model,
        tuple(map(_piece_of, prompt.parts)),
        tuple(
            Trait(Level(one.level), one.name, bytes.fromhex(one.value), _fields(one.fields))
            for one in prompt.settings
        ),
        prompt.automatic is not None,
    )


def outline_of_record(row: Traffic) -> Outline:
    """An outline with digests in the place of contents: for what asks only what is equal.

    Places in a record are the caller's. A breakpoint on a message that is a string was sent on the
    block that a backend makes of it, so it stands there in the outline.
    """
    prompt = row.prompt or RecordedPrompt()
    parts = tuple(
        Part(
            Level(one.level),
            one.place,
            one.kind,
            one.role,
            canonical.dump(one.digest),
            one.tokens,
            None if one.mark is None else Mark(one.mark),
        )
        for one in prompt.parts
    )
    settings = tuple(
        Setting(Level(one.level), one.name, canonical.dump(one.value)) for one in prompt.settings
    )
    automatic = None if prompt.automatic is None else Mark(prompt.automatic)
    asked = (prompt.mode, prompt.ttl, prompt.retention)
    outline = Outline(row.api, row.model, parts, settings, automatic, *asked)
    marks = [
        Marked(part.place, part.mark.ttl)
        for part in parts
        if part.mark is not None and part.kind == "text"
    ]
    return as_sent(outline, marks)


def _piece_of(one: RecordedPart) -> Piece:
    guises = [bytes.fromhex(guise) for guise in one.guises]
    guises += [b""] * (5 - len(guises))
    masked, squeezed, words, keys, sets = guises[:5]
    looks = Looks(
        bytes.fromhex(one.digest),
        one.length,
        masked=masked,
        squeezed=squeezed,
        words=words,
        keys=keys,
        sets=sets,
        fields=_fields(one.fields),
        name=bytes.fromhex(one.name),
        spans=tuple(Span(*span) for span in one.spans),
    )
    shape = (Level(one.level), one.place, one.kind, one.role, one.tokens, one.mark is not None)
    return Piece(*shape, looks)


def _fields(given: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, bytes.fromhex(value)) for name, value in given.items())
