"""Sends planned requests through a proxy, one after the other, within a budget. Blocking.

What was sent is kept in a file beside the log, so that a run that was broken off goes on where it
was, and the budget holds for all runs together. A request is sent only if the most that it can
cost still fits: the prompt written to the longest-lived cache, and the longest answer.
"""

from __future__ import annotations

import http.client
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from trivet.errors import CacheError
from trivet.messages import Api, Usage
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.prefix_commands.warm_plan import PATHS, Warm, most_output
from trivet.middleware.prefix_tier.usage_tap import UsageTap
from trivet.prefix.markers.money import cost_of

_TIMEOUT_S: Final = 600.0
_TRIES: Final = 5
_LONGEST_PAUSE_S: Final = 30.0
_RETRIED: Final = frozenset({429, 503})
_SAID: Final = 200
"""Bytes of a failed reply that are told."""
_BEFORE: Final = "sent-before"
_VERSION: Final = "2023-06-01"
"""Of Anthropic's API: it refuses a request that names none."""


@dataclass
class Warmed:
    """What came of a run."""

    sent: int = 0
    already: int = 0
    """Answered out of a cache: they cost nothing."""
    before: int = 0
    """Sent by an earlier run."""
    spent_usd: float = 0.0
    """By all runs together; of answers without known usage, the most that they can have cost."""
    spent_before_usd: float = 0.0
    """Of it, by earlier runs."""
    saved_tokens: int = 0
    """That the requests which were sent are worth."""
    left: Counter[str] = field(default_factory=Counter)
    """Requests that were not sent, by reason."""
    first_error: str = ""


class Progress:
    """The requests that were sent, in a file: one JSON object a line, appended at once.

    Nothing is ever taken out of the file, so that what was spent stays counted.
    """

    def __init__(self, path: Path) -> None:
        """Reads what is there. A line that was cut off is not counted."""
        self.path = path
        self.done: set[tuple[str, str]] = set()
        """Tenant and key of each request that need not be sent again."""
        self.spent = 0.0
        """US dollars, by all runs."""
        self._ahead = ""
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise CacheError(f"{path}: cannot be read ({error}).") from None
        for line in text.splitlines():
            self._read(line)
        if text and not text.endswith("\n"):
            self._ahead = "\n"

    def forget(self) -> None:
        """Send everything again. The file says so as soon as the first request was sent: a run
        that reaches nothing leaves it as it is."""
        self.done.clear()
        self._ahead += json.dumps({"again": True}) + "\n"

    def add(self, tenant: str, key: str, spent: float) -> None:
        """Note a request. Raises `CacheError` where that cannot be written."""
        self.done.add((tenant, key))
        self.spent += spent
        noted = json.dumps({"tenant": tenant, "key": key, "spent_usd": spent})
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{self._ahead}{noted}\n")
        except OSError as error:
            raise CacheError(f"{self.path}: cannot be written ({error.strerror}).") from None
        self._ahead = ""

    def _read(self, line: str) -> None:
        try:
            noted = json.loads(line)
            if noted.get("again"):
                self.done.clear()
                return
            tenant, key, spent = noted["tenant"], noted["key"], float(noted["spent_usd"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return
        self.done.add((str(tenant), str(key)))
        self.spent += spent


class Forecast(NamedTuple):
    """What a run would do with a request."""

    left: str
    """Why it would not be sent; empty where it would."""
    most_usd: float | None
    """The most that it can cost; None where its price is not known."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where to send, and as whom."""

    url: str
    keys: Mapping[str, str]
    """API key by tenant: nobody's requests are sent with another's."""
    headers: Mapping[str, str] = field(default_factory=dict)
    key_header: str | None = None
    """Where the callers send their key: a stored answer may belong to that way of asking. None: as
    the SDK of the request's API does."""

    def headers_for(self, api: Api, key: str) -> dict[str, str]:
        """Those of a request to that API with a tenant's key."""
        messages = api is Api.MESSAGES
        named = self.key_header or ("x-api-key" if messages else "authorization")
        made = {named: f"Bearer {key}" if named == "authorization" else key}
        if messages:
            made["anthropic-version"] = _VERSION
        return {**made, **self.headers}


class Warmer:
    """Warms one deployment."""

    def __init__(
        self,
        deployment: Deployment,
        progress: Progress,
        budget_usd: float | None,
        pricing: Pricing,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Without a budget prices are told where they are known, and nothing is held back."""
        parts = urlsplit(deployment.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CacheError(f"{deployment.url!r} is not an http:// or https:// URL.")
        self._deployment = deployment
        self._parts = parts
        self._progress = progress
        self._budget = budget_usd
        self._pricing = pricing
        self._sleep = sleep
        self.told = Warmed(spent_usd=progress.spent, spent_before_usd=progress.spent)

    def warm(self, one: Warm) -> None:
        """Send one request, unless it was sent, cannot be, or may cost too much."""
        key, most = self._deployment.keys.get(one.tenant), self._most(one)
        left = self._left(one, most)
        if not self._leave(left or ("" if key else "no-key")) and key:
            self._send(one, key, most or 0.0)

    def foresee(self, one: Warm) -> Forecast:
        """What `warm` would do if each request cost the most that it can. Needs no keys."""
        most = self._most(one)
        left = self._left(one, most)
        if not self._leave(left):
            self.told.sent += 1
            self.told.saved_tokens += one.value
            self.told.spent_usd += most or 0.0
        return Forecast(left, most)

    def _left(self, one: Warm, most: float | None) -> str:
        if (one.tenant, one.key) in self._progress.done:
            return _BEFORE
        if self._budget is None:
            return ""
        if most is None:
            return "no-price"
        return "over-budget" if self.told.spent_usd + most > self._budget else ""

    def _leave(self, reason: str) -> bool:
        if reason == _BEFORE:
            self.told.before += 1
        elif reason:
            self.told.left[reason] += 1
        return bool(reason)

    def _most(self, one: Warm) -> float | None:
        if one.usage is None:
            return None
        counts = Usage(one.usage.input_tokens, most_output(one))
        prices = self._pricing.prices(one.model, one.upstream, counts, counts.input_tokens)
        if prices is None:
            return None
        dearest = max(prices.input, prices.write, prices.write_long)
        return cost_of(counts, prices._replace(input=dearest)).total

    def _send(self, one: Warm, key: str, most: float) -> None:
        told = self.told
        for attempt in range(_TRIES):
            try:
                status, headers, body = self._ask(one, key)
            except (OSError, http.client.HTTPException) as error:
                told.left["failed"] += 1
                told.first_error = told.first_error or f"{type(error).__name__}: {error}"
                # It may have reached the model all the same.
                told.spent_usd += most
                self._progress.add(one.tenant, one.key, most)
                return
            if status not in _RETRIED or attempt == _TRIES - 1:
                break
            self._sleep(_pause(headers, attempt))
        if status >= 400:
            told.left["failed"] += 1
            told.first_error = told.first_error or _failure(status, body)
            return
        hit = "; hit" in headers.get("cache-status", "")
        spent = 0.0 if hit else self._cost(one, headers, body, most)
        told.already += hit
        told.sent += not hit
        told.saved_tokens += one.value
        told.spent_usd += spent
        self._progress.add(one.tenant, one.key, spent)

    def _ask(self, one: Warm, key: str) -> tuple[int, dict[str, str], bytes]:
        parts = self._parts
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        try:
            connection.connect()
        except OSError as error:
            raise CacheError(f"{self._deployment.url} cannot be reached ({error}).") from None
        headers = {"content-type": "application/json", "trivet-purpose": "warm"}
        if one.route:
            headers["trivet-route"] = one.route
        headers.update(self._deployment.headers_for(one.api, key))
        try:
            target = parts.path.rstrip("/") + PATHS[one.api]
            connection.request("POST", target, one.body.encode(), headers)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, told, answer.read()
        finally:
            connection.close()

    def _cost(self, one: Warm, headers: Mapping[str, str], body: bytes, most: float) -> float:
        tap = UsageTap(headers.get("content-type", "").partition(";")[0].strip())
        tap.take(body)
        usage, model = tap.told()
        price: float | None = None
        if usage is not None:
            price = self._pricing.price(model or one.model, one.upstream, usage)
        return most if price is None else price


def _failure(status: int, body: bytes) -> str:
    said = " ".join(body[:_SAID].decode("utf-8", "replace").split())
    return f"{status}: {said}" if said else f"{status}, without a word"


def _pause(headers: Mapping[str, str], attempt: int) -> float:
    given = headers.get("retry-after", "")
    wanted = float(given) if given.isdigit() else 0.0
    return min(max(wanted, 2.0**attempt), _LONGEST_PAUSE_S)


def told_as_data(told: Warmed, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome, JSON-able."""
    return {
        **plan,
        "sent": told.sent,
        "already_warm": told.already,
        "sent_before": told.before,
        "spent_usd": round(told.spent_usd, 6),
        "spent_before_usd": round(told.spent_before_usd, 6),
        "saved_tokens": told.saved_tokens,
        "left": dict(told.left),
        "first_error": told.first_error,
    }
