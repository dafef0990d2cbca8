"""Explain: the last requests with what became of them, and what would happen to a pasted one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trivet.errors import RequestError
from trivet.middleware.console.pages import Asked
from trivet.middleware.explain.sample import PATHS, read_sample
from trivet.middleware.observe.recent import Recent
from trivet.middleware.status import parse

_ROWS: Final = 1_000
_MOST: Final = 10_000
_PASTED: Final = frozenset({"request", "tenant", "look"})

Json = dict[str, Any]


async def show(asked: Asked) -> Json:
    """The newest requests, `count` of them, of one `tenant` where the query names one."""
    count = _count(asked.query.get("count", ""))
    wanted = {"count": count, "tenant": asked.query.get("tenant") or None}
    told = await asked.control.tell("recent", wanted)
    return {
        "now": time.time(),
        "since": asked.history.began,
        "columns": list(Recent._fields),
        "rows": newest(told, count),
        "tenants": sorted(asked.control.policies()["tenants"]),
        "paths": list(PATHS.values()),
    }


async def show_one(asked: Asked) -> Json:
    """One of the last requests by its `id`. Raises `RequestError` 404."""
    wanted = asked.query.get("id", "")
    told = await asked.control.tell("recent", {"count": _MOST, "tenant": None})
    for row in newest(told, _MOST):
        recent = Recent(*row)
        if wanted and recent.id == wanted:
            return {"request": recent._asdict(), "tiers": tiers_of(recent.cache_status)}
    raise RequestError(404, f"None of the last requests has the id {wanted!r}.", field="id")


async def take_request(asked: Asked) -> Json:
    """What would happen to a pasted `request`, of a declared `tenant` where one is named.

    The text is a request's body, or an object of path, headers and body, as for `trivet explain`.
    With `look` the semantic tier looks for a similar question, which asks the embedder.
    """
    unknown = sorted(asked.body.keys() - _PASTED)
    if unknown:
        raise RequestError(422, f"{unknown[0]!r} is not known here.", field=unknown[0])
    text, tenant = asked.body.get("request"), asked.body.get("tenant") or None
    if not isinstance(text, str) or not text.strip():
        raise RequestError(422, "Paste a request as JSON.", field="request")
    if tenant is not None and not isinstance(tenant, str):
        raise RequestError(422, "The tenant is a name.", field="tenant")
    sample = read_sample(text.encode("utf-8", "surrogatepass"))
    target = f"{sample.path}?{sample.query}" if sample.query else sample.path
    told = await asked.control.explain(target, sample.headers, sample.body, tenant)
    looked: Json | None = None
    if asked.body.get("look") is True and told.get("tenant") is not None:
        of_request = {"path": target, "headers": sample.headers, "tenant": tenant}
        answers = await asked.control.tell("look", {**of_request, "body": sample.body.decode()})
        looked = furthest(answers)
    guessed = {"api_guessed": sample.guessed, "chosen": tenant is not None}
    return {**told, **guessed, "looked": looked}


def furthest(answers: Sequence[Json]) -> Json | None:
    """Of what processes found, that of the one which got furthest: the highest score."""
    return max(
        answers,
        key=lambda one: (one.get("gate") is not None, one.get("score") or -1.0),
        default=None,
    )


def newest(told: Sequence[Sequence[Sequence[Any]]], count: int) -> list[Sequence[Any]]:
    """The rows of all processes, the newest first."""
    at = Recent._fields.index("at")
    rows = [row for process in told for row in process]
    return sorted(rows, key=lambda row: float(row[at]), reverse=True)[:count]


def tiers_of(cache_status: str) -> list[Json]:
    """What each tier did with a request, read from what its caller was told."""
    try:
        members = parse(cache_status) if cache_status else {}
    except ValueError:
        return []
    return [_tier(name.removeprefix("trivet-"), told) for name, told in members.items()]


def _tier(name: str, told: Mapping[str, str | int | bool]) -> Json:
    did = "hit" if told.get("hit") else str(told.get("fwd", "miss"))
    named = {key: value for key, value in told.items() if key not in ("hit", "fwd", "detail")}
    return {"tier": name, "did": did, "reason": str(told.get("detail", "")), "told": named}


def _count(text: str) -> int:
    if not text:
        return _ROWS
    if not text.isdecimal() or not 0 < int(text) <= _MOST:
        raise RequestError(422, f"`count` is a number from 1 to {_MOST}.", field="count")
    return int(text)
