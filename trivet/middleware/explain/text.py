"""An explanation for people: plain text, aligned, the verdict first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trivet.middleware.explain.explain import Explanation, TierView
from trivet.terminal import plain

_RULE = "-" * 72


def render(explanation: Explanation) -> str:
    """The text that `trivet explain` prints."""
    if explanation.tenant is None:
        return (
            "401: no tenant has this credential, so nothing else is decided.\n"
            "Put the API key into the file's headers, e.g. "
            '"headers": {"authorization": "Bearer tvt_..."}.'
        )
    blocks = [
        _pairs(_summary(explanation)),
        _titled("Tiers", _tiers(explanation)),
        _titled("Sent to the upstream's prefix cache", list(explanation.prefix)),
        _titled("Changed by the policy (prefix.repair)", list(explanation.repairs)),
        _titled("In the key", _pairs(explanation.key_fields)),
        _titled(
            "Left out of the key",
            _pairs([(item.field, item.why) for item in explanation.left_out])
            or ["nothing: every field of the body is in it"],
        ),
        _titled("Headers left out of the key", _wrapped(explanation.headers_left_out)),
        _titled(
            "Left out because the policy says so (exact.ignore_headers)",
            _wrapped(explanation.headers_ignored),
        ),
        _titled("Settings for this request", _pairs(_settings(explanation))),
        _titled("Purge labels", list(explanation.labels)),
    ]
    return "\n\n".join("\n".join(map(plain, block)) for block in blocks if block)


def _summary(told: Explanation) -> list[tuple[str, str]]:
    exact = told.tiers[0]
    verdict = f"yes: {exact.detail}" if exact.open else f"no ({exact.reason}): {exact.detail}"
    ways = {
        "key": "by API key",
        "gateway": "named by the gateway",
        "own": "each credential is its own tenant",
        "anonymous": "no credential given",
        "chosen": "chosen on the command line",
    }
    guess = " (guessed from the body)" if told.api_guessed else ""
    rows = [
        ("Cached", verdict),
        ("Tenant", f"{told.tenant} ({ways[told.identified_by]})"),
        ("User", told.user or ""),
        ("API", f"{told.api}{guess}, {told.path}"),
        ("Route", told.route if told.route != told.path else ""),
        ("Model", told.model),
        ("Delivery", "stream" if told.stream else "JSON"),
        ("Upstream", told.upstream),
        ("Semantic", _mode(told)),
        ("Kept for", "" if told.ttl is None else f"{told.ttl:g} s"),
        ("Versions", _versions(told)),
    ]
    rows += [("Key" if index == 0 else "", key) for index, key in enumerate(told.keys)]
    return [(name, value) for name, value in rows if value]


def _mode(told: Explanation) -> str:
    return "" if told.semantic is None or told.semantic.mode == "off" else told.semantic.text


def _versions(told: Explanation) -> str:
    pairs = [f"{name}={value} (policy)" for name, value in told.policy_versions.items()]
    pairs += [f"{name}={value} (request)" for name, value in told.request_versions.items()]
    return ", ".join(pairs)


def _tiers(told: Explanation) -> list[str]:
    width = max(len(view.tier) for view in told.tiers)
    return [
        f"{view.tier:<{width}}  {'open  ' if view.open else 'closed'}  "
        + (f"{view.reason}: {_detail(view, told)}" if view.reason else _detail(view, told))
        for view in told.tiers
    ]


def _detail(view: TierView, told: Explanation) -> str:
    return told.prefix[0] if view.tier == "prefix" and told.prefix else view.detail


def _settings(told: Explanation) -> list[tuple[str, str]]:
    rows = [(name, _plain(value)) for name, value in told.settings.items()]
    rules = ", ".join(f"exact.rules[{index}]" for index in told.rules)
    return [*rows, ("rules that match", rules or "none")]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return [title, _RULE, *lines] if lines else []


def _pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _wrapped(names: Sequence[str]) -> list[str]:
    lines, line = [], ""
    for name in names:
        if line and len(line) + len(name) + 2 > len(_RULE):
            lines.append(line)
            line = ""
        line += f", {name}" if line else name
    return [*lines, line] if line else lines
