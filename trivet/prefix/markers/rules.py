"""What each provider documents about its prefix cache, per model: data with its date and source.

The figures are in `rules.json`. A provider has defaults, a model pattern (shell style, lower case)
overrides some of them. Multipliers are of the price of an uncached input token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple


class Ttl(NamedTuple):
    """One lifetime that a provider offers."""

    name: str
    """As requests and `Billed.writes` spell it."""
    seconds: int
    write: float
    """What a token costs to write, times the input price; 1.0: as if it were not cached."""


class CacheRules(NamedTuple):
    """One model's rules."""

    provider: str
    model: str
    """The pattern that told them; empty for the provider's default."""
    min_tokens: int
    """A shorter prefix is not cached."""
    max_marks: int
    """Breakpoints in a request, the automatic one counted; 0: the provider takes none."""
    lookback: int
    """Positions that a breakpoint looks at, its own counted; 0: no such limit."""
    ttls: tuple[Ttl, ...]
    """The provider's default first; empty where it caches nothing."""
    read: float
    automatic: bool
    """Caches without being asked."""
    explicit: bool
    """Caches what it is asked to: marks, or Gemini's cachedContents."""
    step: int
    """Tokens that hits are rounded down to; 1: exact."""
    as_of: str
    """Date of the figures, ISO 8601."""
    source: str

    def ttl(self, name: str) -> Ttl | None:
        """The lifetime of that name, the default for an empty one; `None` if it is not offered."""
        return next((one for one in self.ttls if not name or one.name == name), None)


NOTHING: Final = CacheRules("", "", 0, 0, 0, (), 1.0, False, False, 1, "", "")
"""For a provider that is not in the table: it is asked for nothing."""


_LONGEST: Final = 256
"""Characters of a model's name beyond which its rules are not remembered: callers choose it."""


def rules_for(provider: str, model: str) -> CacheRules:
    """The rules of the most special (longest) pattern that `model` matches; the provider's default
    where none does. A publisher's prefix (`deepseek/...`) and a fine-tune's (`ft:`) are ignored."""
    return _remembered(provider, model) if len(model) <= _LONGEST else _rules_for(provider, model)


def _rules_for(provider: str, model: str) -> CacheRules:
    entry = _table().get(provider)
    if entry is None:
        return NOTHING._replace(provider=provider)
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    found = [pattern for pattern in entry["models"] if fnmatchcase(name, pattern)]
    pattern = max(found, key=len, default="")
    own: Mapping[str, Any] = entry["models"].get(pattern, {})
    if "like" in own:
        # One cloud's name for a model holds the maker's: `us.anthropic.claude-opus-5-v1:0`.
        inner = pattern.strip("*")
        return rules_for(own["like"], name[name.index(inner) :])._replace(provider=provider)
    given = {**entry["default"], "as_of": entry["as_of"], "source": entry["source"], **own}
    ttls = tuple(Ttl(*one) for one in given.pop("ttls"))
    return CacheRules(provider=provider, model=pattern, ttls=ttls, **given)


_remembered = lru_cache(maxsize=1024)(_rules_for)


@cache
def _table() -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(files(__package__).joinpath("rules.json").read_bytes())
    return read
