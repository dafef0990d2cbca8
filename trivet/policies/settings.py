"""A tenant's settings for one request: rules resolved, first match wins, field by field."""

from __future__ import annotations

import weakref
from fnmatch import fnmatchcase

from trivet.messages import Api
from trivet.policies.model import ExactPolicy, ExactRule, ExactSettings, TenantPolicy

_FIELDS = tuple(ExactSettings.model_fields)
_MEMO_ENTRIES = 512
_MEMO_TEXT = 512
"""Longer model and route names are not remembered: callers choose them."""

Place = tuple[str, str]
"""The path of a request, and its Trivet-Route header, empty where there is none."""
_Memo = dict[tuple[Api, str, str], ExactSettings]
_memos: dict[int, _Memo] = {}
"""By identity of the policy: hashing one costs more than resolving it. A policy's memo goes when
the policy does, before its identity can be another's."""


def exact_settings(policy: TenantPolicy, api: Api, model: str, route: str) -> ExactSettings:
    """What the policy says about a request of `api` for `model` on `route`.

    `route` is the Trivet-Route header, or the path where there is none.
    """
    exact = policy.exact
    if not exact.rules:
        return exact
    memo = _memos.get(id(exact))
    if memo is None:
        memo = _memos[id(exact)] = {}
        weakref.finalize(exact, _memos.pop, id(exact), None).atexit = False
    key = (api, model, route)
    found = memo.get(key)
    if found is None:
        found = _resolve(exact, api, model, route)
        if len(model) + len(route) <= _MEMO_TEXT:
            if len(memo) >= _MEMO_ENTRIES:
                memo.clear()
            memo[key] = found
    return found


def matching_rules(policy: TenantPolicy, api: Api, model: str, route: str) -> tuple[int, ...]:
    """Positions of the rules that match, from 0. Of two that set a field, the earlier one wins."""
    return tuple(
        position
        for position, rule in enumerate(policy.exact.rules)
        if _matches(rule, api, model, route)
    )


def settings_for(policy: TenantPolicy, api: Api, model: str, at: Place) -> ExactSettings:
    """`exact_settings` by the route that the caller names, else by the path.

    A caller's route may pick any rule that the owner wrote, but it never opens answers of one end
    user to another: where the path's own settings scope by user, they go on to.
    """
    path, named = at
    by_path = exact_settings(policy, api, model, path)
    if not named:
        return by_path
    chosen = exact_settings(policy, api, model, named)
    if by_path.user_scope and (not chosen.user_scope or chosen.user_from != by_path.user_from):
        scoped = {"user_scope": True, "user_from": by_path.user_from}
        return chosen.model_copy(update=scoped)
    return chosen


def may_use_model(policy: TenantPolicy, model: str) -> bool:
    """Whether the tenant may name `model`."""
    return policy.models is None or any(wildcard(model, pattern) for pattern in policy.models)


def may_use_upstream(policy: TenantPolicy, upstream: str) -> bool:
    """Whether the tenant may use `upstream`."""
    return policy.upstreams is None or upstream in policy.upstreams


def wildcard(name: str, pattern: str) -> bool:
    """`*` stands for any text and `?` for any one character; nothing else is special."""
    return pattern == "*" or fnmatchcase(name, pattern.replace("[", "[[]"))


def _resolve(exact: ExactPolicy, api: Api, model: str, route: str) -> ExactSettings:
    values = {field: getattr(exact, field) for field in _FIELDS}
    for rule in reversed(exact.rules):
        if _matches(rule, api, model, route):
            given = {field: getattr(rule, field) for field in _FIELDS}
            values.update({field: value for field, value in given.items() if value is not None})
    return ExactSettings(**values)


def _matches(rule: ExactRule, api: Api, model: str, route: str) -> bool:
    match = rule.match
    return (
        (match.api is None or match.api is api)
        and (match.model is None or wildcard(model, match.model))
        and (match.route is None or wildcard(route, match.route))
    )
