"""Which recorded requests are worth sending again to a cold deployment: pure.

A request is worth the tokens that it saves times how often they come: those of its stored answer,
for each time the same request came, and those of its prompt's beginning, for each other request
that begins alike. What is picked first pays for the beginning; those after it do not count it.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from trivet.messages import Api, Usage
from trivet.policies.traffic import RecordedPrompt, RecordedUsage, Traffic
from trivet.prefix.markers.rules import rules_for

PATHS: Final[dict[Api, str]] = {
    Api.CHAT: "/v1/chat/completions",
    Api.RESPONSES: "/v1/responses",
    Api.COMPLETIONS: "/v1/completions",
    Api.MESSAGES: "/v1/messages",
}
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_LEAST_OUTPUT: Final = 4096
_Node = bytes


class Warm(NamedTuple):
    """One request to be sent again."""

    tenant: str
    key: str
    """The keyed digest of its exact key, in hex."""
    api: Api
    model: str
    upstream: str
    route: str
    body: str
    times: int
    """How often it came."""
    entry_tokens: int
    """Saved by its stored answer, in all."""
    prefix_tokens: int
    """Saved by its prompt's beginning, in all."""
    usage: Usage | None

    @property
    def value(self) -> int:
        """Tokens saved in all."""
        return self.entry_tokens + self.prefix_tokens


@dataclass
class WarmPlan:
    """What to send, most valuable first, and what is left out."""

    picked: list[Warm] = field(default_factory=list)
    rows: int = 0
    tenants: set[str] = field(default_factory=set)
    """Of all rows."""
    no_body: int = 0
    """Distinct requests to models of which no body was recorded."""
    worthless: int = 0
    """Distinct requests that saved nobody anything."""


@dataclass(slots=True)
class _Seen:
    row: Traffic
    times: int = 0
    nodes: tuple[tuple[_Node, int], ...] = ()
    """The prompt's beginnings: a digest of each, and the tokens that it adds."""


def plan_warm(rows: Iterable[Traffic]) -> WarmPlan:
    """The plan for recorded traffic, in any order."""
    plan = WarmPlan()
    times: Counter[tuple[str, str]] = Counter()
    seen: dict[tuple[str, str], _Seen] = {}
    for row in rows:
        plan.rows += 1
        plan.tenants.add(row.tenant)
        at = (row.tenant, row.key)
        times[at] += 1
        if row.prompt is not None and row.api in PATHS:
            # The latest one: its answer and its prices are the newest.
            seen[at] = _Seen(row)
    shared: Counter[_Node] = Counter()
    for at, one in seen.items():
        one.times = times[at]
        one.nodes = tuple(_nodes(one.row))
        shared.update(node for node, _ in one.nodes)
    usable = [one for one in seen.values() if one.row.prompt and one.row.prompt.body]
    plan.no_body = len(seen) - len(usable)
    plan.picked = list(_greedy(usable, shared))
    plan.worthless = len(usable) - len(plan.picked)
    return plan


def _greedy(usable: list[_Seen], shared: Counter[_Node]) -> Iterator[Warm]:
    """Picks fall in value only, as others take their beginnings: the top is valued anew."""
    warm: set[_Node] = set()
    heap = [(-_value(one, shared, warm), at) for at, one in enumerate(usable)]
    heapq.heapify(heap)
    while heap:
        known, at = heapq.heappop(heap)
        one = usable[at]
        value = -_value(one, shared, warm)
        if value > known:
            if value < 0:
                heapq.heappush(heap, (value, at))
            continue
        if value == 0:
            return
        yield _warm(one, shared, warm)
        warm.update(node for node, _ in one.nodes)


def _value(one: _Seen, shared: Counter[_Node], warm: set[_Node]) -> int:
    return _entry_tokens(one) + _prefix_tokens(one, shared, warm)


def _entry_tokens(one: _Seen) -> int:
    usage, exact, answer = one.row.answer.usage, one.row.exact, one.row.answer
    stored = not exact.reason and exact.store and exact.ttl > 0 and not answer.reason
    if not stored or exact.pool is not None or usage is None or one.times < 2:
        return 0
    return one.times * (usage.input + usage.output)


def _prefix_tokens(one: _Seen, shared: Counter[_Node], warm: set[_Node]) -> int:
    prompt = one.row.prompt
    assert prompt is not None
    if not prompt.cache:
        return 0
    common = sum(tokens for node, tokens in one.nodes if shared[node] > 1)
    if common < rules_for(prompt.cache, one.row.model).min_tokens:
        return 0
    return sum(
        tokens * (shared[node] - 1)
        for node, tokens in one.nodes
        if shared[node] > 1 and node not in warm
    )


def _nodes(row: Traffic) -> Iterator[tuple[_Node, int]]:
    prompt = row.prompt
    assert prompt is not None
    owner = f"{row.tenant}\0{prompt.upstream}\0{row.model}\0{_settings(prompt)}"
    chain = blake2b(owner.encode("utf-8", "replace"), digest_size=16).digest()
    for part in prompt.parts:
        chain = blake2b(chain + f"{part.level}\0{part.digest}".encode(), digest_size=16).digest()
        yield chain, part.tokens


def _settings(prompt: RecordedPrompt) -> str:
    return "\0".join(f"{one.level}.{one.name}={one.value}" for one in prompt.settings)


def _warm(one: _Seen, shared: Counter[_Node], warm: set[_Node]) -> Warm:
    row, prompt = one.row, one.row.prompt
    assert prompt is not None
    return Warm(
        row.tenant,
        row.key,
        row.api,
        row.model,
        prompt.upstream,
        prompt.route if prompt.route != row.api.value else "",
        prompt.body or "",
        one.times,
        _entry_tokens(one),
        _prefix_tokens(one, shared, warm),
        _usage(row.answer.usage),
    )


def _usage(recorded: RecordedUsage | None) -> Usage | None:
    if recorded is None:
        return None
    return Usage(
        recorded.input,
        recorded.output,
        recorded.cache_read,
        recorded.cache_write,
        recorded.cache_write_long,
    )


def most_output(warm: Warm) -> int:
    """Tokens that the answer may have: the body's own limit, or four times the recorded answer,
    4,096 at least; for each choice that is asked for."""
    body = json.loads(warm.body)
    limits = [body[name] for name in _LIMITS if type(body.get(name)) is int]
    recorded = warm.usage.output_tokens if warm.usage else 0
    choices = body.get("n")
    count = max(choices, 1) if type(choices) is int else 1
    return count * max(0, min(limits)) if limits else max(_LEAST_OUTPUT * count, 4 * recorded)
