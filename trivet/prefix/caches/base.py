"""What the cache models share: what a request is billed, and which prefixes are known till when."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from trivet.prefix.caches.steps import Step
from trivet.prefix.markers.rules import CacheRules, Ttl
from trivet.prefix.prompts.outline import Outline

RulesFor = Callable[[str, str], CacheRules]
"""Provider and model to rules: `rules_for`, or other figures."""

Known = Literal["readable", "pending", "expired", "absent"]

_MOST: Final = 500_000
_REASONS: Final = (("readable", "look-back"), ("pending", "pending"), ("expired", "expired"))


class Billed(NamedTuple):
    """The input tokens of one request by price. They sum to `outline.tokens`."""

    uncached: int
    read: int
    writes: tuple[tuple[str, int], ...] = ()
    """Name of the lifetime, tokens written under it; none with 0 tokens."""
    why: str = ""
    """Why less was read than could have been: `no-mark`, `below-minimum`, `new` (nobody wrote this
    prefix), `pending` (written, its answer has not begun), `expired`, `look-back` (written, and no
    breakpoint looks that far). Empty where all was read that earlier requests left."""

    @property
    def total(self) -> int:
        """All input tokens."""
        return self.uncached + self.read + sum(tokens for _, tokens in self.writes)


class Refused(NamedTuple):
    """The provider's answer to a request that its cache rules do not allow."""

    status: int
    field: str
    message: str


class CacheModel(Protocol):
    """One provider's cache."""

    def ask(
        self, owner: str, outline: Outline, at: float, *, first_byte_s: float = 0.0
    ) -> Billed | Refused:
        """Bill a request that starts `at` seconds; its answer begins `first_byte_s` later.

        `owner` names those who share a cache: the organisation, the workspace, with OpenAI's
        `prompt_cache_key` or DeepSeek's `user_id` where one was sent. Requests come in the order
        of their starts.
        """


class Entry(NamedTuple):
    """A prefix that was written. Times in seconds."""

    ttl: Ttl
    readable: float
    expires: float


class Entries:
    """Prefixes by owner and digest. Lifetimes count from the start of the request that wrote or
    read; what was written can be read once the writer's answer begins. At most half a million."""

    def __init__(self) -> None:
        self._all: OrderedDict[tuple[str, bytes], Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def state(self, owner: str, key: bytes, at: float) -> Known:
        """Whether the prefix can be read."""
        entry = self._all.get((owner, key))
        if entry is None:
            return "absent"
        if at >= entry.expires:
            return "expired"
        return "readable" if at >= entry.readable else "pending"

    def readable(self, owner: str, key: bytes, at: float) -> bool:
        """Whether the prefix can be read."""
        return self.state(owner, key, at) == "readable"

    def longest(self, owner: str, steps: Sequence[Step], at: float) -> int:
        """Index of the last of `steps` that can be read; -1 for none."""
        for index in range(len(steps) - 1, -1, -1):
            if self.readable(owner, steps[index].digest, at):
                return index
        return -1

    def why(self, owner: str, beyond: Sequence[Step], at: float, read: bool) -> str:
        """Why a request that `read` something, or nothing, did not read these longer prefixes."""
        states = {self.state(owner, step.digest, at) for step in beyond}
        for state, reason in _REASONS:
            if state in states:
                return reason
        return "" if read else "new"

    def write(self, owner: str, key: bytes, ttl: Ttl, at: float, first_byte_s: float) -> None:
        """Keep a prefix. What is still alive stays so, at least as long."""
        made = Entry(ttl, at + first_byte_s, at + ttl.seconds)
        old = self._all.get((owner, key))
        if old is not None and at < old.expires:
            longer = max(old, made, key=lambda one: one.expires)
            made = longer._replace(readable=min(old.readable, made.readable))
        self._all[owner, key] = made
        self._all.move_to_end((owner, key))
        while len(self._all) > _MOST:
            self._all.popitem(last=False)

    def split(self, owner: str, key: bytes, source: bytes, at: float) -> None:
        """Keep the beginning `key` of the prefix `source`, which is being read, as long as that."""
        entry = self._all.get((owner, source))
        if entry is not None and self.state(owner, key, at) in ("absent", "expired"):
            self._all[owner, key] = entry

    def refresh(self, owner: str, key: bytes, at: float) -> None:
        """A read: its lifetime begins again, free of charge."""
        entry = self._all.get((owner, key))
        if entry is not None and entry.readable <= at < entry.expires:
            self._all[owner, key] = entry._replace(
                expires=max(entry.expires, at + entry.ttl.seconds)
            )
            self._all.move_to_end((owner, key))


def bill(steps: Sequence[Step], hit: int, new: Sequence[tuple[int, Ttl]], why: str) -> Billed:
    """A request that reads up to step `hit` (-1: nothing) and writes at the steps `new`.

    Tokens behind the hit are written under the longest lifetime that a breakpoint after them asks
    for. Where 1h has to stand before 5m that is what Anthropic documents: 1h up to the last such
    breakpoint, 5m for the rest.
    """
    read = done = steps[hit].tokens if hit >= 0 else 0
    writes: dict[str, int] = {}
    for at, (index, _) in enumerate(new):
        longest = max((ttl for _, ttl in new[at:]), key=lambda ttl: ttl.seconds).name
        writes[longest] = writes.get(longest, 0) + steps[index].tokens - done
        done = steps[index].tokens
    total = steps[-1].tokens if steps else 0
    return Billed(total - done, read, tuple((name, n) for name, n in writes.items() if n), why)
