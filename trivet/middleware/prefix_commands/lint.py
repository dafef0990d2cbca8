"""`trivet prefix lint`: what two requests share, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from trivet import canonical
from trivet.errors import ConfigError, Problem, RequestError
from trivet.messages import Api
from trivet.middleware.explain.sample import read_sample
from trivet.prefix.doctor.lint import Parted, Warned, lost_tokens, parted, unread, warnings
from trivet.prefix.doctor.places import shown
from trivet.prefix.doctor.remedies import Cause
from trivet.prefix.markers.rules import CacheRules, rules_for
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, Outline, outline_of
from trivet.terminal import plain, say, say_json

OK, FINDING = 0, 1
AT_LEAST: Final = 1_000
"""Tokens that two requests have to share, unless told or the model's minimum is higher."""
_CONVERSE: Final = frozenset({"inferenceConfig", "toolConfig", "modelId"})
_BY_NAME: Final = (
    ("claude", "anthropic"), ("gpt", "openai"), ("o1", "openai"), ("o3", "openai"),
    ("o4", "openai"), ("gemini", "gemini"), ("deepseek", "deepseek"), ("nova", "bedrock"),
)  # fmt: skip


class Gate(NamedTuple):
    """What two requests have to keep to, in tokens."""

    at_least: int | None = None
    """Shared; None for `AT_LEAST` or the model's minimum, whichever is more."""
    max_lost: int | None = None
    """Lost at most; None for no bound."""


@dataclass(frozen=True, slots=True)
class _Compared:
    old: Path
    new: Path
    found: Parted | None
    shared: int
    lost: int
    """Tokens that both have behind the break."""
    least: int
    """Tokens that they have to share."""
    max_lost: int | None
    notes: tuple[Cause, ...]

    @property
    def fails(self) -> bool:
        """Whether the gate is shut."""
        return self._parts_early or self._loses_much

    @property
    def _parts_early(self) -> bool:
        return self.found is not None and self.shared < self.least

    @property
    def _loses_much(self) -> bool:
        return self.max_lost is not None and self.lost > self.max_lost

    def verdict(self) -> str:
        """Whether it passes, with the figures."""
        least = f"{self.shared:,} shared {'<' if self._parts_early else '>='} {self.least:,}"
        told = [] if self.found is None else [f"{least} (--at-least)"]
        if self.max_lost is not None:
            sign = ">" if self._loses_much else "<="
            told.append(f"{self.lost:,} lost {sign} {self.max_lost:,} (--max-lost)")
        return f"{'fails' if self.fails else 'passes'}: {', '.join(told) or 'nothing differs'}"

    def data(self) -> dict[str, Any]:
        made: dict[str, Any] = {"old": str(self.old), "new": str(self.new)}
        made |= {"ok": not self.fails, "shared_tokens": self.shared}
        made |= {"lost_tokens": self.lost, "least_tokens": self.least}
        made["most_lost_tokens"] = self.max_lost
        if self.found is None:
            made |= {"where": None, "cause": None, "detail": "one goes on after the other"}
        else:
            where, cause = self.found
            made["where"] = {
                "level": where.level.value,
                "place": list(where.place),
                "char": where.char,
                "shown": shown(where.level, where.place, where.char),
            }
            made |= {"cause": cause.name, "detail": cause.told, "fix": cause.fix}
        made["notes"] = [
            {"cause": one.name, "detail": one.told, "fix": one.fix} for one in self.notes
        ]
        return made


def lint(paths: Sequence[Path], gate: Gate, provider: str | None, *, as_json: bool) -> int:
    """Compare each file with the one before it, or look one through. Returns the exit code."""
    outlines = [read_prompt(path) for path in paths]
    rules = [rules_for(provider or provider_of(one), one.model) for one in outlines]
    if len(paths) == 1:
        return _lint_one(paths[0], outlines[0], _least(gate, rules[0]), as_json=as_json)
    made = [
        _compare(paths[at - 1 : at + 1], outlines[at - 1 : at + 1], rules[at], gate)
        for at in range(1, len(paths))
    ]
    if as_json:
        told = [one.data() for one in made]
        say_json(told[0] if len(told) == 1 else {"pairs": told})
    else:
        say("\n\n".join(map(_text, made)))
    return FINDING if any(one.fails for one in made) else OK


def read_prompt(path: Path) -> Outline:
    """The prompt in a request file: a body, or path, headers and body. Raises `ConfigError`."""
    try:
        raw = path.read_bytes()
        body = canonical.parse(raw)
        if isinstance(body, dict) and "contents" in body:
            return native_outline(NativeApi.GENERATE, str(body.get("model", "")), body)
        if isinstance(body, dict) and body.keys() & _CONVERSE:
            return native_outline(NativeApi.CONVERSE, str(body.get("modelId", "")), body)
        sample = read_sample(raw)
        return outline_of(sample.api, canonical.parse(sample.body))
    except OSError as error:
        raise ConfigError(
            Problem(str(path), 0, 0, "", f"cannot be read: {error.strerror}")
        ) from None
    except RequestError as error:
        raise ConfigError(Problem(str(path), 0, 0, error.field or "", str(error))) from None


def provider_of(outline: Outline) -> str:
    """Whose cache a prompt is probably meant for, by its model, else by its API."""
    model = outline.model.lower().rpartition("/")[2]
    if outline.api is NativeApi.CONVERSE:
        return "bedrock"
    by_name = next((provider for name, provider in _BY_NAME if model.startswith(name)), None)
    by_api = "anthropic" if outline.api is Api.MESSAGES else "openai"
    return by_name or ("gemini" if outline.api is NativeApi.GENERATE else by_api)


def _least(gate: Gate, rules: CacheRules) -> int:
    return max(AT_LEAST, rules.min_tokens) if gate.at_least is None else gate.at_least


def _compare(
    paths: Sequence[Path], outlines: Sequence[Outline], rules: CacheRules, gate: Gate
) -> _Compared:
    old, new = outlines
    found = parted(old, new)
    shared = min(old.tokens, new.tokens) if found is None else found.where.shared_tokens
    cause = unread(old, new, None if found is None else found.where, rules)
    broken = found is not None and found.cause.name != "other-message"
    if cause is not None and broken and cause.name != "below-minimum":
        cause = None
    lost = lost_tokens(old, new) if broken else 0
    notes = () if cause is None else (cause,)
    bounds = (_least(gate, rules), gate.max_lost)
    return _Compared(paths[0], paths[1], found, shared, lost, *bounds, notes)


def _text(one: _Compared) -> str:
    lines = [f"{one.old} and {one.new}"]
    if one.found is None:
        lines.append(f"  One goes on after the other: about {one.shared:,} tokens shared.")
    else:
        where, cause = one.found
        place = shown(where.level, where.place, where.char)
        lines.append(f"  {place}: {cause.told} ({cause.name})")
        lines.append(f"  Shared before it: about {one.shared:,} tokens.")
        if one.lost:
            lines.append(f"  Lost by it: about {one.lost:,} tokens behind it that both have.")
        lines.append(f"  Fix: {cause.fix}.")
    lines += [f"  {note.told} ({note.name}); {note.fix}." for note in one.notes]
    lines.append(f"  {one.verdict()}")
    return "\n".join(map(plain, lines))


def _lint_one(path: Path, outline: Outline, at_least: int, *, as_json: bool) -> int:
    found = warnings(outline)
    ok = not any(one.tokens_before < at_least for one in found)
    if as_json:
        told = [_warned(one) for one in found]
        say_json({"file": str(path), "ok": ok, "warnings": told})
    elif not found:
        say(f"{path}: nothing in tools and system prompt looks as if it changed each time.")
    else:
        lines = [
            f"{shown(one.level, one.place, one.char)}: looks like a {one.kind}: {one.text!r}"
            for one in found
        ]
        lines.insert(0, f"{path}: what looks as if it changed each time:")
        where = "none of it" if ok else "some of it"
        verdict = "passes" if ok else "fails"
        lines.append(f"{verdict}: {where} within the first {at_least:,} tokens (--at-least)")
        say("\n".join(map(plain, lines)))
    return OK if ok else FINDING


def _warned(one: Warned) -> dict[str, Any]:
    place = shown(one.level, one.place, one.char)
    where = {"level": one.level.value, "place": list(one.place), "char": one.char, "shown": place}
    return {"where": where, "kind": one.kind, "text": one.text, "tokens_before": one.tokens_before}
