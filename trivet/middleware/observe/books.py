"""Tokens and dollars by tenant, route and model: the figures of `prefix.markers.money`, counted.

Label values are bounded: tenants come from credentials and policies, models are those that
answered, and of names beyond the bounds there is one, `other`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from trivet.messages import Usage
from trivet.metric_names import MODEL_TOKENS, MONEY, UNPRICED, UPSTREAM_TOKENS
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.observe.series import Names, Series
from trivet.prefix.markers.money import (
    Post,
    Purpose,
    book_call,
    book_hit,
    net_saved,
    sound,
    without_caches,
)
from trivet.telemetry import ModelCall, SemanticLookup

_ROUTES: Final = 200
_MODELS: Final = 200
_SETTLED: Final = 1_000
"""Calls after which they are priced, if nobody looked before."""
_FLAT: Final = 32_000
"""Tokens of a prompt up to which no price depends on its length, so that calls are summed up
before they are priced; a test compares it with the price list."""
_POSTS: Final[tuple[Post, ...]] = get_args(Post)
_LOOKED: Final = frozenset({"hit", "assist", "shadow", "miss"})
_KINDS: Final = ("input", "output", "cache_read", "cache_write", "cache_write_long")
"""In the order of `Usage`."""

_Sums = dict[str, dict[Post, float]]
_About = tuple[str, str, str, str, str, Purpose]
"""All of a `ModelCall` but its usage."""


@dataclass(slots=True)
class _Account:
    """Calls of one kind that are not priced yet."""

    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    """Tokens of short calls, in the order of `Usage`."""
    calls: int = 0
    """Short calls."""
    long: list[Usage] = field(default_factory=list)
    """Calls whose price may depend on the prompt's length."""


class Books:
    """Counts into `series`; for one event loop. A call costs a microsecond or two."""

    def __init__(self, series: Mapping[str, Series], tenant: Names, pricing: Pricing) -> None:
        self._series = series
        self._tenant = tenant
        self._route = Names(_ROUTES)
        self._model = Names(_MODELS)
        self._pricing = pricing
        self._accounts: dict[_About, _Account] = {}
        self._unsettled = 0

    def call(self, event: ModelCall) -> None:
        """A model answered."""
        tenant, route, api, model, upstream, usage, purpose = event
        if usage is None or not sound(usage):
            self._series[UNPRICED.name].add(1, *self._named(tenant, route, model), "usage")
            return
        about = (tenant, route, api, model, upstream, purpose)
        account = self._accounts.get(about)
        if account is None:
            self._pricing.start()
            account = self._accounts[about] = _Account()
        if usage[0] <= _FLAT:
            a, b, c, d, e = account.counts
            v, w, x, y, z = usage
            account.counts = (a + v, b + w, c + x, d + y, e + z)
            account.calls += 1
        else:
            account.long.append(usage)
        self._unsettled += 1
        if self._unsettled >= _SETTLED:
            self.settle()

    def lookup(self, event: SemanticLookup) -> None:
        """The semantic tier was asked, which costs what the policy says, whatever came of it."""
        if event.cost and event.kind in _LOOKED:
            named = self._named(event.tenant, event.route, event.model)
            self._series[MONEY.name].add(event.cost, *named, "lookup")

    def saved(self, about: Sequence[str], tier: str, price: float, count: int) -> None:
        """`count` requests were answered by a response cache, each worth `price`. `about` is the
        tenant, route and model."""
        kind: Literal["exact", "semantic"] = "semantic" if tier == "semantic" else "exact"
        tenant, route, model = about
        named = self._named(tenant, route, model)
        for post, amount in book_hit(kind, price).items():
            self._series[MONEY.name].add(count * amount, *named, post)

    def settle(self) -> None:
        """Count and price the calls since the last time, as soon as the price list is there."""
        self._unsettled = 0
        if self._pricing.loading and len(self._accounts) < _SETTLED:
            return
        accounts, self._accounts = self._accounts, {}
        for about, account in accounts.items():
            if account.calls:
                self._count(about, Usage(*account.counts), account.calls)
            for usage in account.long:
                self._count(about, usage, 1)

    def _count(self, about: _About, usage: Usage, calls: int) -> None:
        tenant, route, api, model, upstream, purpose = about
        named = self._named(tenant, route, model)
        tokens, by_api = self._series[MODEL_TOKENS.name], self._series[UPSTREAM_TOKENS.name]
        for kind, count in zip(_KINDS, usage, strict=True):
            if count:
                tokens.add(count, *named, purpose, kind)
                if kind != "cache_write_long":
                    by_api.add(count, named[0], api, kind)
        prompt = usage.input_tokens if calls == 1 else 0
        prices = self._pricing.prices(model, upstream, usage, prompt)
        if prices is None:
            self._series[UNPRICED.name].add(calls, *named, "price")
            return
        prices = prices._replace(request=calls * prices.request)
        money = self._series[MONEY.name]
        for post, amount in book_call(purpose, usage, prices).items():
            money.add(amount, *named, post)

    def _named(self, tenant: str, route: str, model: str) -> tuple[str, str, str]:
        return self._tenant(tenant), self._route(route), self._model(model)


def statement(counters: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, Any]:
    """The sums for people: in all, and by tenant, route and model; JSON-able, in US dollars."""
    by: tuple[_Sums, _Sums, _Sums] = ({}, {}, {})
    total: dict[Post, float] = {}
    for (*names, post), amount in counters.get(MONEY.name, ()):
        _add(total, post, amount)
        for sums, name in zip(by, names, strict=True):
            _add(sums.setdefault(name, {}), post, amount)
    unpriced = sum(amount for _, amount in counters.get(UNPRICED.name, ()))
    made: dict[str, Any] = {"total": _told(total), "unpriced_calls": int(unpriced)}
    for kind, sums in zip(("tenants", "routes", "models"), by, strict=True):
        made[kind] = {name: _told(one) for name, one in sorted(sums.items())}
    return made


def _add(sums: dict[Post, float], post: Post, amount: float) -> None:
    sums[post] = sums.get(post, 0.0) + amount


def _told(sums: dict[Post, float]) -> dict[str, float]:
    posts: dict[str, float] = {post: sums[post] for post in _POSTS if post in sums}
    return {**posts, "net-saved": net_saved(sums), "without-caches": without_caches(sums)}
