"""`trivet prefix report`: what recorded traffic read from prefix caches, what that cost, what it
would have cost under each provider's rules, and the breaks that cost most.

Tokens of recorded usage are the provider's. Where a cache is simulated, the estimated tokens of a
prompt are scaled to them. Prices are of input tokens: what an answer costs does not depend on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from trivet.messages import Usage
from trivet.middleware.prefix_commands.lint import provider_of
from trivet.middleware.prefix_commands.log import InputPrice, ReadLog
from trivet.middleware.prefix_tier.prompt_record import fingerprint_of_record, outline_of_record
from trivet.policies.prefix_model import PrefixPolicy
from trivet.policies.traffic import RecordedPrompt, RecordedUsage, Traffic
from trivet.prefix.caches import PROVIDERS, Refused, make_cache
from trivet.prefix.doctor.live import Doctor, Finding, Seen
from trivet.prefix.doctor.places import shown
from trivet.prefix.markers.placement import as_sent, place_breakpoints
from trivet.prefix.markers.rules import CacheRules, rules_for
from trivet.prefix.markers.stability import Stability, prompt_of
from trivet.prefix.prompts.outline import Outline

WORST: Final = 3
_KEY: Final = b"trivet-prefix-report"
_BELOW: Final = "below-minimum"
_MEMORY: Final = 256 << 20
_AUTO: Final = PrefixPolicy()


@dataclass(slots=True)
class Spent:
    """Input tokens by what they cost, and the sum. `relative` counts uncached input tokens."""

    tokens: int = 0
    read: int = 0
    written: int = 0
    relative: float = 0.0
    usd: float = 0.0
    unpriced: int = 0
    """Calls whose model has no known price: they are not in `usd`."""
    refused: int = 0
    """Calls that the provider would have answered with an error."""
    unread: Counter[str] = field(default_factory=Counter)
    """Calls of which nothing would have been read, by reason, as in `Billed.why`."""
    minimum: int = 0
    """Tokens below which nothing is cached, of the models that were asked: the most."""

    def add(self, weights: Sequence[tuple[int, float]], price: float | None) -> None:
        """Count one call: tokens, and what each costs times the input price."""
        cost = sum(tokens * weight for tokens, weight in weights)
        self.tokens += sum(tokens for tokens, _ in weights)
        self.relative += cost
        if price is None:
            self.unpriced += 1
        else:
            self.usd += cost * price

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "input_tokens": self.tokens,
            "read_tokens": self.read,
            "written_tokens": self.written,
            "relative_cost": round(self.relative / self.tokens, 4) if self.tokens else None,
            "usd": round(self.usd, 6),
            "calls_without_price": self.unpriced,
            "refused": self.refused,
            "unread": dict(self.unread),
        }


@dataclass(slots=True)
class Route:
    """One tenant's route."""

    calls: int = 0
    unknown: int = 0
    """Calls whose usage was not reported."""
    spent: Spent = field(default_factory=Spent)
    uncached: Spent = field(default_factory=Spent)
    """The same without any cache."""
    under: dict[str, Spent] = field(default_factory=dict)


class Break(NamedTuple):
    """Breaks of one kind."""

    tenant: str
    route: str
    place: str
    cause: str
    told: str
    fix: str
    times: int
    lost_tokens: int
    saving_usd: float | None
    """What reading the lost tokens would have saved; None where no price is known, or no cache
    takes so short a prompt."""

    @property
    def mends(self) -> bool:
        """Whether the fix lets the lost tokens be read."""
        return self.cause != _BELOW

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict()


class Report(NamedTuple):
    """What the log says."""

    routes: dict[tuple[str, str], Route]
    worst: tuple[Break, ...]
    causes: dict[str, int]
    """Breaks, and prompts that no cache takes, by cause."""
    hits: int
    shapeless: int

    def data(self) -> dict[str, Any]:
        """For JSON."""
        routes = [
            {"tenant": tenant, "route": name, **_route_data(one)}
            for (tenant, name), one in self.routes.items()
        ]
        return {
            "routes": routes,
            "worst": [one.data() for one in self.worst],
            "causes": self.causes,
            "answered_by_trivet": self.hits,
            "calls_without_shape": self.shapeless,
        }


def report(log: ReadLog, price: InputPrice) -> Report:
    """Play a log through the doctor, and through a model of each provider's cache."""
    player = _Player(price)
    for row in log.calls:
        player.play(row, row.prompt or RecordedPrompt())
    breaks = player.breaks
    routes = dict(player.routes)
    return Report(routes, breaks.worst(), dict(breaks.causes), log.hits, log.shapeless)


class _Player:
    """Plays one call after the other."""

    def __init__(self, price: InputPrice) -> None:
        self._price = price
        self._caches = {provider: make_cache(provider) for provider in PROVIDERS}
        self._learned = {provider: Stability() for provider in PROVIDERS}
        self._doctor = Doctor(_KEY, _MEMORY)
        self.routes: dict[tuple[str, str], Route] = defaultdict(Route)
        self.breaks = _Breaks()

    def play(self, row: Traffic, prompt: RecordedPrompt) -> None:
        route = self.routes[row.tenant, prompt.route]
        route.calls += 1
        outline = outline_of_record(row)
        own = rules_for(prompt.cache or provider_of(outline), row.model)
        usage, scale = row.answer.usage, 1.0
        tokens = outline.tokens if usage is None else usage.input
        price = self._price(row.model, prompt.upstream, tokens)
        if usage is None:
            route.unknown += 1
        else:
            scale = usage.input / max(1, outline.tokens)
            _count_own(route, usage, own, price)
        bare = _unmarked(outline)
        for provider in self._caches:
            spent = route.under.setdefault(provider, Spent())
            asked = outline if provider == own.provider else bare
            self._simulate(provider, row, asked, (spent, scale, price))
        known = None if usage is None else _usage(usage)
        named = (row.tenant, prompt.route, fingerprint_of_record(row))
        found = self._doctor.note(Seen(*named, known, row.at, own))
        self.breaks.add(found, scale, price, own)

    def _simulate(
        self, provider: str, row: Traffic, outline: Outline, into: tuple[Spent, float, float | None]
    ) -> None:
        spent, scale, price = into
        rules = rules_for(provider, row.model)
        marked = self._marked(provider, row, outline, rules)
        billed = self._caches[provider].ask(row.tenant, marked, row.at)
        if isinstance(billed, Refused):
            spent.refused += 1
            spent.add([(round(scale * outline.tokens), 1.0)], price)
            return
        weights = [(billed.uncached, 1.0), (billed.read, rules.read)]
        weights += [(tokens, _write(rules, ttl)) for ttl, tokens in billed.writes]
        if not billed.read:
            short = marked.tokens < rules.min_tokens
            spent.unread[_BELOW if short else billed.why or "new"] += 1
            spent.minimum = max(spent.minimum, rules.min_tokens)
        spent.read += round(scale * billed.read)
        spent.written += round(scale * sum(tokens for _, tokens in billed.writes))
        spent.add([(round(scale * tokens), weight) for tokens, weight in weights], price)

    def _marked(self, provider: str, row: Traffic, outline: Outline, rules: CacheRules) -> Outline:
        """With the breakpoints that Trivet would set, where the provider takes them and none are
        there. Those that were recorded are of the provider that was asked."""
        if not rules.max_marks:
            return _unmarked(outline)
        route = "" if row.prompt is None else row.prompt.route
        learned, prompt = self._learned[provider], prompt_of(row.tenant, route, outline, row.at)
        chosen = place_breakpoints(outline, rules, learned.view(prompt), _AUTO, row.at)
        learned.see(prompt, rules, chosen)
        return as_sent(outline, chosen)


class _Breaks:
    """Findings, put together by kind."""

    def __init__(self) -> None:
        self.causes: Counter[str] = Counter()
        self._kinds: dict[tuple[str, ...], Break] = {}

    def add(
        self, found: Finding | None, scale: float, price: float | None, rules: CacheRules
    ) -> None:
        if found is None:
            return
        self.causes[found.cause] += 1
        place = tuple("*" if isinstance(step, int) else step for step in found.place)
        kind = (found.tenant, found.route, found.cause, found.level.value, *place)
        known = self._kinds.get(kind)
        if known is None:
            where = shown(found.level, found.place, found.char)
            named = (found.tenant, found.route, where, found.cause, found.told, found.fix)
            known = Break(*named, 0, 0, None)
        lost = round(found.lost_tokens * scale)
        uncached = found.cause == _BELOW
        saving = None if price is None or uncached else lost * (1 - rules.read) * price
        if known.saving_usd is not None or saving is not None:
            saving = (known.saving_usd or 0.0) + (saving or 0.0)
        self._kinds[kind] = known._replace(
            times=known.times + 1, lost_tokens=known.lost_tokens + lost, saving_usd=saving
        )

    def worst(self) -> tuple[Break, ...]:
        """The kinds that lost most tokens."""
        made = sorted(self._kinds.values(), key=lambda one: -one.lost_tokens)
        return tuple(made[:WORST])


def _count_own(route: Route, usage: RecordedUsage, own: CacheRules, price: float | None) -> None:
    plain = max(0, usage.input - usage.cache_read - usage.cache_write)
    long = min(usage.cache_write_long, usage.cache_write)
    longest = max(own.ttls, key=lambda ttl: ttl.seconds, default=None)
    written = [
        (usage.cache_write - long, _write(own, "")),
        (long, 1.0 if longest is None else longest.write),
    ]
    route.spent.add([(plain, 1.0), (usage.cache_read, own.read), *written], price)
    route.spent.read += usage.cache_read
    route.spent.written += usage.cache_write
    route.uncached.add([(usage.input, 1.0)], price)


def _unmarked(outline: Outline) -> Outline:
    parts = tuple(part._replace(mark=None) for part in outline.parts)
    return outline._replace(parts=parts, automatic=None)


def _write(rules: CacheRules, ttl: str) -> float:
    found = rules.ttl(ttl)
    return 1.0 if found is None else found.write


def _usage(one: RecordedUsage) -> Usage:
    return Usage(one.input, one.output, one.cache_read, one.cache_write)


def _route_data(one: Route) -> dict[str, Any]:
    return {
        "calls": one.calls,
        "calls_without_usage": one.unknown,
        "hit_rate": round(one.spent.read / one.spent.tokens, 4) if one.spent.tokens else None,
        "cost": one.spent.data(),
        "cost_without_cache": one.uncached.data(),
        "cost_under": {name: spent.data() for name, spent in one.under.items()},
    }
