"""What an answer cost, by the offline price list of genai-prices. Unknown is None, never zero.

A price of cache reads or writes that the list lacks is the input price times the provider's own
multiplier, where `trivet.prefix.markers.rules` has the model; else such a token costs what input
does.

The list is imported on first use, in a background thread: it costs some 15 MB and a fifth of a
second, which neither the start nor a request should pay.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from trivet.messages import Usage
from trivet.prefix.markers.money import Prices, cost_of, sound
from trivet.prefix.markers.rules import NOTHING, CacheRules, rules_for

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

_MODELS = 4096
"""Names ever looked up at most; those beyond are unknown. Callers choose model names, and both
this module and genai-prices remember them."""
_MODEL_NAME = 128
"""Longest model name that is looked up, in characters."""
_HOUR_S = 3600


class PriceList(Protocol):
    """What is asked of genai-prices."""

    def knows(self, provider: str) -> bool:
        """Whether that is a provider's name."""
        ...

    def price(self, model: str, provider: str | None) -> tuple[str, ModelPrice] | None:
        """The provider and the entry of a model, at one provider or (None) by the model's name
        alone."""
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """US dollars for one token, by the length of the whole prompt: `steps` ascend by `start`, and
    the last one whose start the prompt exceeds holds for all its tokens."""

    base: float
    steps: tuple[tuple[int, float], ...] = ()

    def at(self, input_tokens: int) -> float:
        """The rate for a prompt of that many tokens."""
        rate = self.base
        for start, step in self.steps:
            if input_tokens > start:
                rate = step
        return rate


_FREE: Final = Rate(0.0)


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one model now. None: the list has no price for that kind of token."""

    request: float
    input: Rate | None
    output: Rate | None
    cache_read: Rate | None
    cache_write: Rate | None
    cache_write_long: Rate | None = None
    """For the provider's longer lifetime; None: as `cache_write`."""

    def prices(self, usage: Usage, prompt: int) -> Prices | None:
        """Prices of a call with so long a prompt; None where a kind of token that it used has none,
        or its counts cannot be true. Cache reads and writes without a price of their own cost as
        input."""
        if not sound(usage):
            return None
        if (self.input is None and usage.input_tokens) or (
            self.output is None and usage.output_tokens
        ):
            return None
        base, output = self.input or _FREE, self.output or _FREE
        write = self.cache_write or base
        return Prices(
            input=base.at(prompt),
            output=output.at(prompt),
            read=(self.cache_read or base).at(prompt),
            write=write.at(prompt),
            write_long=(self.cache_write_long or write).at(prompt),
            request=self.request,
        )

    def cost(self, usage: Usage) -> float | None:
        """US dollars; None where `prices` is."""
        prices = self.prices(usage, usage.input_tokens)
        return None if prices is None else cost_of(usage, prices).total


class Pricing:
    """Prices of answers. Not thread-safe but for the loading: use it on one event loop."""

    def __init__(self) -> None:
        self._list: PriceList | None = None
        self._thread: threading.Thread | None = None
        self._rates: dict[tuple[str, str | None], tuple[int, Rates | None]] = {}

    @property
    def loading(self) -> bool:
        """True from `start` until the price list is there, or could not be had."""
        return self._list is None and (self._thread is None or self._thread.is_alive())

    def start(self) -> None:
        """Begin loading the price list in the background. Idempotent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._load, name="trivet-prices", daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the loading has ended: for commands and tests, not for the event loop."""
        self.start()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def price(self, model: str, provider_hint: str | None, usage: Usage) -> float | None:
        """US dollars that the provider asks for `usage`; None where that is not known (yet).

        `provider_hint` is an upstream's name. If genai-prices knows a provider by it, only that
        provider is asked; else the model's name has to say enough.
        """
        if self._list is None:
            self.start()
            return None
        rates = self._rates_of(model, provider_hint)
        return rates.cost(usage) if rates is not None else None

    def prices(
        self, model: str, provider_hint: str | None, usage: Usage, prompt: int
    ) -> Prices | None:
        """What the provider asks for each token of `usage`, of calls whose prompts have `prompt`
        tokens each; None as in `price`."""
        if self._list is None:
            self.start()
            return None
        rates = self._rates_of(model, provider_hint)
        return rates.prices(usage, prompt) if rates is not None else None

    def input_price(self, model: str, provider_hint: str | None, prompt: int) -> float | None:
        """US dollars for one uncached input token of a prompt with so many; None as in `price`."""
        prices = self.prices(model, provider_hint, Usage(1, 0), prompt)
        return None if prices is None else prices.input

    def _load(self) -> None:
        self._list = _load_price_list()

    def _rates_of(self, model: str, hint: str | None) -> Rates | None:
        # Prices change with the date and, for some models, with the hour.
        hour = int(time.time()) // _HOUR_S
        asked = (model, hint)
        known = self._rates.get(asked)
        if known is not None and known[0] == hour:
            return known[1]
        if self._list is None or len(model) > _MODEL_NAME:
            return None
        if known is None and len(self._rates) >= _MODELS:
            return None
        rates = _lookup(self._list, model, hint)
        self._rates[asked] = (hour, rates)
        return rates


def _lookup(prices: PriceList, model: str, hint: str | None) -> Rates | None:
    attempts: list[tuple[str, str | None]]
    if hint and prices.knows(hint):
        attempts = [(model, hint)]
    else:
        # By name, by a `provider/` prefix, and as OpenAI's: its embedding models, for one, are
        # not known by name alone.
        prefix, slash, rest = model.partition("/")
        attempts = [(model, None), *([(rest, prefix)] if slash else []), (model, "openai")]
    for name, provider in attempts:
        found = prices.price(name, provider)
        if found is not None:
            provider, price = found
            return _rates(price, _rules(provider, name))
    return None


_RULES: Final = {
    "anthropic": "anthropic",
    "openai": "openai",
    "azure": "openai",
    "google": "gemini",
    "aws": "bedrock",
    "deepseek": "deepseek",
}
"""Whose cache rules hold at a provider of genai-prices."""


def _rules(provider: str, model: str) -> CacheRules:
    """The rules of a model that they name; a provider's defaults say nothing about a price."""
    rules = rules_for(_RULES.get(provider, ""), model)
    return rules if rules.model else NOTHING


def _rates(price: ModelPrice, rules: CacheRules) -> Rates:
    fee = _rate(price, "requests_kcount", 1_000)
    base = _rate(price, "input_mtok")
    default = rules.ttl("")
    longest = max(rules.ttls, key=lambda one: one.seconds, default=None)
    write = _rate(price, "cache_write_mtok") or _times(base, default.write if default else None)
    return Rates(
        request=fee.base if fee else 0.0,
        input=base,
        output=_rate(price, "output_mtok"),
        cache_read=_rate(price, "cache_read_mtok")
        or _times(base, rules.read if rules.model else None),
        cache_write=write,
        cache_write_long=_rate(price, "cache_write_1h_mtok")
        or _times(base, longest.write if longest else None),
    )


def _times(rate: Rate | None, multiplier: float | None) -> Rate | None:
    if rate is None or multiplier is None:
        return None
    steps = tuple((start, price * multiplier) for start, price in rate.steps)
    return Rate(rate.base * multiplier, steps)


def _rate(price: ModelPrice, key: str, per: int = 1_000_000) -> Rate | None:
    value = getattr(price, key)
    if value is None:
        return None
    tiers = getattr(value, "tiers", ())
    base = float(getattr(value, "base", value)) / per
    return Rate(base, tuple((tier.start, float(tier.price) / per) for tier in tiers))


def _load_price_list() -> PriceList | None:
    """Import genai-prices; None if it is not there."""
    try:
        from genai_prices import Usage as Counted
        from genai_prices import calc_price, data_snapshot
    except ImportError:
        return None
    nothing = Counted(input_tokens=0, output_tokens=0)
    snapshot = data_snapshot.get_snapshot()

    class Listed:
        def knows(self, provider: str) -> bool:
            try:
                return bool(snapshot.find_provider(None, provider, None))
            except LookupError:
                return False

        def price(self, model: str, provider: str | None) -> tuple[str, ModelPrice] | None:
            try:
                found = calc_price(nothing, model, provider_id=provider)
                return found.provider.id, found.model_price
            except (LookupError, ValueError):
                return None

    return Listed()
