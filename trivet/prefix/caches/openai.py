"""OpenAI's caches: with explicit breakpoints (gpt-5.6 and later), and the automatic one before.

https://developers.openai.com/api/docs/guides/prompt-caching. From gpt-5.6 on a request writes at
most four breakpoints: the implicit one at the end of the latest message and the latest three
explicit ones, or, with mode `explicit`, the latest four. It looks at the first two and the latest
50 explicit ones, and in implicit mode also at the implicit one, at up to 20 earlier ends of
messages, and at the end of the first developer messages. Boundaries are exact.

What the documentation leaves open is read so: the minimum lifetime is the lifetime, and a read
renews it; a breakpoint before the hit makes an entry of its own, free of charge and as long-lived
as the one that is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trivet.messages import Api
from trivet.prefix.caches.base import Billed, Entries, Refused, RulesFor, bill
from trivet.prefix.caches.longest import LongestPrefixCache
from trivet.prefix.caches.steps import part_steps
from trivet.prefix.markers.rules import CacheRules, Ttl
from trivet.prefix.prompts.outline import Level, Outline, Part

EXPLICIT: Final = "explicit"
_FIRST: Final = 2
_LATEST: Final = 50
_ENDS: Final = 20
_UNMARKABLE: Final = ("instructions", "tools", "functions")
_MARKABLE: Final = ("text", "image", "audio", "input_audio", "document")


class OpenAiCache:
    """Which of the two holds depends on the model. `owner`: the organisation and the
    `prompt_cache_key`, which keeps reuse apart."""

    def __init__(self, rules: RulesFor) -> None:
        self._rules = rules
        self._entries = Entries()
        self._automatic = LongestPrefixCache("openai", rules)

    def ask(
        self, owner: str, outline: Outline, at: float, *, first_byte_s: float = 0.0
    ) -> Billed | Refused:
        """See `CacheModel`."""
        rules = self._rules("openai", outline.model)
        refused = check_marks(outline, rules)
        if refused is not None:
            return refused
        if not rules.explicit:
            return self._automatic.ask(owner, outline, at, first_byte_s=first_byte_s)
        steps = part_steps(outline, outline.settings)
        explicit = [index for index, part in enumerate(outline.parts) if part.mark is not None]
        looked, written = _breakpoints(outline, explicit, rules)
        if not written:
            return Billed(outline.tokens, 0, (), "no-mark")
        hit = max((one for one in looked if self._entries.readable(owner, steps[one].digest, at)),
                  default=-1)  # fmt: skip
        for step in steps[: hit + 1]:
            self._entries.refresh(owner, step.digest, at)
        written = [index for index in written if steps[index].tokens >= rules.min_tokens]
        if not written:
            return Billed(outline.tokens, 0, (), "below-minimum")
        for index in written:
            if index < hit:
                self._entries.split(owner, steps[index].digest, steps[hit].digest, at)
        new = [(index, _ttl(outline, index, rules)) for index in written if index > hit]
        why = self._entries.why(owner, steps[hit + 1 :], at, hit >= 0)
        for index, ttl in new:
            self._entries.write(owner, steps[index].digest, ttl, at, first_byte_s)
        return bill(steps, hit, new, why)


def _breakpoints(
    outline: Outline, explicit: Sequence[int], rules: CacheRules
) -> tuple[set[int], list[int]]:
    """Indexes of the parts behind which a prefix is looked for, and is written."""
    looked = {*explicit[:_FIRST], *explicit[-_LATEST:]}
    if outline.mode == EXPLICIT:
        return looked, list(explicit[-rules.max_marks :])
    ends = message_ends(outline.parts)
    if not ends:
        return looked, list(explicit[-rules.max_marks :])
    developer = [at for at, part in enumerate(outline.parts) if part.level is Level.SYSTEM]
    looked |= {*ends[-1 - _ENDS :], *developer[-1:]}
    return looked, sorted({*explicit[-(rules.max_marks - 1) :], ends[-1]})


def message_ends(parts: Sequence[Part]) -> list[int]:
    """Index of the last part of each message."""
    ends: dict[tuple[str | int, ...], int] = {}
    for at, part in enumerate(parts):
        if part.level is not Level.TOOLS:
            ends[part.place[:2]] = at
    return sorted(ends.values())


def _ttl(outline: Outline, index: int, rules: CacheRules) -> Ttl:
    mark = outline.parts[index].mark
    own = mark.ttl if mark is not None else ""
    return rules.ttl(own or outline.ttl) or rules.ttls[0]


def check_marks(outline: Outline, rules: CacheRules) -> Refused | None:
    """The 400 for breakpoints and lifetimes that the model or the API does not take."""
    marked = [part for part in outline.parts if part.mark is not None]
    if outline.automatic is not None:
        return Refused(400, "cache_control", "Unknown parameter: 'cache_control'.")
    if not rules.explicit:
        return _check_older(outline, marked, rules)
    for part in marked:
        if part.place[0] in _UNMARKABLE or len(part.place) == 2 or part.kind not in _MARKABLE:
            field = _field(part)
            return Refused(400, field, f"Unknown parameter: '{field}'.")
    given = [("prompt_cache_options.ttl", outline.ttl)]
    given += [(f"{_field(part)}.ttl", part.mark.ttl) for part in marked if part.mark is not None]
    offered = [one.name for one in rules.ttls]
    if outline.api is not Api.RESPONSES:
        offered = offered[:1]
    for field, ttl in given:
        if ttl and ttl not in offered:
            names = " and ".join(f"'{one}'" for one in offered)
            told = f"Invalid value: '{ttl}'. Supported values are: {names}."
            return Refused(400, field, told)
    return None


def _check_older(outline: Outline, marked: Sequence[Part], rules: CacheRules) -> Refused | None:
    if marked or outline.mode:
        field = _field(marked[0]) if marked else "prompt_cache_options"
        told = f"Unsupported parameter: '{field}' is not supported with this model."
        return Refused(400, field, told)
    if outline.retention and rules.ttl(outline.retention) is None:
        told = f"'{outline.retention}' is not supported with this model."
        return Refused(400, "prompt_cache_retention", told)
    return None


def _field(part: Part) -> str:
    head, *rest = part.place
    shown = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in rest)
    return f"{head}{shown}.prompt_cache_breakpoint"
