"""Anthropic's cache, and Bedrock's for the models that take cache points.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching: writes happen at breakpoints
only; a breakpoint looks at 20 positions, its own first, for what earlier requests wrote; a prefix
below the model's minimum is passed over in silence; with two lifetimes in one request the tokens
up to the last 1h breakpoint behind the hit are written for 1h, the rest for 5m.

What the documentation leaves open is read so: a hit renews every entry on the way to it, and does
not turn a 5m entry into a 1h one; a breakpoint before the hit makes an entry of its own, free of
charge and as long-lived as the one that is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trivet.canonical import dump
from trivet.prefix.caches.base import Billed, Entries, Refused, RulesFor, bill
from trivet.prefix.caches.steps import Step, part_steps, plain, value_of
from trivet.prefix.markers.rules import CacheRules, Ttl
from trivet.prefix.prompts.outline import Level, Outline, Part, Setting

Marks = list[tuple[int, Ttl]]
"""Index of the part and the lifetime, in the order of the prompt."""

_WEB_SEARCH: Final = b"web_search"


class MarkedCache:
    """A cache that keeps what breakpoints ask for. `owner`: an organisation, and on Anthropic's own
    platform a workspace."""

    def __init__(self, provider: str, rules: RulesFor) -> None:
        self._provider = provider
        self._rules = rules
        self._entries = Entries()

    def ask(
        self, owner: str, outline: Outline, at: float, *, first_byte_s: float = 0.0
    ) -> Billed | Refused:
        """See `CacheModel`."""
        rules = self._rules(self._provider, outline.model)
        refused = check_marks(outline, rules)
        if refused is not None:
            return refused
        steps = part_steps(outline, *_settings(outline))
        marks = [
            mark for mark in _marks(outline, rules) if steps[mark[0]].tokens >= rules.min_tokens
        ]
        hit = self._hit(owner, steps, marks, at, rules)
        for step in steps[: hit + 1]:
            self._entries.refresh(owner, step.digest, at)
        for index, _ in marks:
            if index < hit:
                self._entries.split(owner, steps[index].digest, steps[hit].digest, at)
        new = [(index, ttl) for index, ttl in marks if index > hit]
        why = self._entries.why(owner, steps[hit + 1 :], at, hit >= 0)
        if not marks:
            why = "below-minimum" if outline.marks else "no-mark"
        for index, ttl in new:
            self._entries.write(owner, steps[index].digest, ttl, at, first_byte_s)
        return bill(steps, hit, new, why)

    def _hit(
        self, owner: str, steps: Sequence[Step], marks: Marks, at: float, rules: CacheRules
    ) -> int:
        """Index of the longest prefix that can be read; -1 for none."""
        for index, _ in reversed(marks):
            for seen in range(index, max(-1, index - rules.lookback), -1):
                if self._entries.readable(owner, steps[seen].digest, at):
                    return seen
        return -1


def _marks(outline: Outline, rules: CacheRules) -> Marks:
    found = {at: part.mark.ttl for at, part in enumerate(outline.parts) if part.mark is not None}
    last = _last_markable(outline.parts)
    if outline.automatic is not None and last is not None:
        found.setdefault(last, outline.automatic.ttl)
    pairs = ((at, rules.ttl(name)) for at, name in sorted(found.items()))
    return [(at, ttl) for at, ttl in pairs if ttl is not None]


def _last_markable(parts: Sequence[Part]) -> int | None:
    """Where automatic caching puts its breakpoint: behind the last block that can carry one."""
    return next((at for at in range(len(parts) - 1, -1, -1) if _markable(parts[at])), None)


def _markable(part: Part) -> bool:
    return part.kind != "thinking" and not _is_empty(part)


def _is_empty(part: Part) -> bool:
    return part.kind == "text" and plain(part) == b"t"


def check_marks(outline: Outline, rules: CacheRules) -> Refused | None:
    """The 400 that breakpoints of this kind get, or `None`."""
    if outline.marks > rules.max_marks:
        most = rules.max_marks
        told = f"A maximum of {most} blocks with cache_control may be provided."
        return Refused(400, "cache_control", f"{told} Found {outline.marks}.")
    return next(_faults(outline, rules), None)


def _faults(outline: Outline, rules: CacheRules) -> Iterator[Refused]:
    shorter = ""
    for part in outline.parts:
        if part.mark is None:
            continue
        field = ".".join(map(str, (*part.place, "cache_control")))
        ttl = rules.ttl(part.mark.ttl)
        if ttl is None:
            yield _unknown_ttl(field, rules)
            return
        if part.kind == "thinking" or (len(part.place) == 2 and part.level is Level.MESSAGES):
            yield Refused(400, field, f"{field}: Extra inputs are not permitted")
        if _is_empty(part):
            yield Refused(400, field, f"{field}: cannot be set for empty text blocks")
        if shorter and ttl.name == "1h":
            yield _wrong_order(field)
        shorter = shorter or ("" if ttl.name == "1h" else field)
    if outline.automatic is not None:
        yield from _automatic_faults(outline, rules, bool(shorter))


def _automatic_faults(outline: Outline, rules: CacheRules, shorter: bool) -> Iterator[Refused]:
    assert outline.automatic is not None
    ttl = rules.ttl(outline.automatic.ttl)
    if ttl is None:
        yield _unknown_ttl("cache_control", rules)
        return
    last = _last_markable(outline.parts)
    mark = None if last is None else outline.parts[last].mark
    if mark is not None and rules.ttl(mark.ttl) != ttl:
        told = "cache_control: the last block has a breakpoint with another ttl"
        yield Refused(400, "cache_control", told)
    elif shorter and ttl.name == "1h":
        yield _wrong_order("cache_control")


def _unknown_ttl(field: str, rules: CacheRules) -> Refused:
    names = " or ".join(f"'{one.name}'" for one in rules.ttls)
    return Refused(400, f"{field}.ttl", f"{field}.ttl: Input should be {names}")


def _wrong_order(field: str) -> Refused:
    told = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
    return Refused(400, field, f"{field}: {told}")


def _settings(outline: Outline) -> tuple[tuple[Setting, ...], frozenset[int]]:
    """What beside the blocks a level depends on, as the table of invalidations has it: web search
    and citations from the system prompt on, images anywhere from the messages on. An explicit
    default effort equals none."""
    searches = [
        at
        for at, part in enumerate(outline.parts)
        if part.level is Level.TOOLS and _is_web_search(part.content)
    ]
    toggled = b"".join(outline.parts[at].content for at in searches)
    cited = any(b'"citations":{"enabled":true' in part.content for part in outline.parts
                if part.kind == "document")  # fmt: skip
    pictured = any(part.kind == "image" for part in outline.parts)
    own = (
        Setting(Level.SYSTEM, "web search", toggled),
        Setting(Level.SYSTEM, "citations", b"1" if cited else b""),
        Setting(Level.MESSAGES, "images", b"1" if pictured else b""),
    )
    return (*map(_default_effort, outline.settings), *own), frozenset(searches)


def _is_web_search(content: bytes) -> bool:
    if _WEB_SEARCH not in content:
        return False
    tool = value_of(content)
    return isinstance(tool, Mapping) and str(tool.get("type", "")).startswith("web_search_")


def _default_effort(setting: Setting) -> Setting:
    if setting.name != "output_config" or setting.value == b"null":
        return setting
    value = value_of(setting.value)
    if not isinstance(value, dict):
        return setting
    kept = {name: one for name, one in value.items() if (name, one) != ("effort", "high")}
    return setting._replace(value=dump(kept) if kept else b"null")
