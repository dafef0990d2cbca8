"""Upstreams, judged. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trivet.middleware.deployment_doctor.facts import UpstreamFacts
from trivet.middleware.deployment_doctor.findings import Finding, fault, ok, warning

_SKEW_S = 10.0
"""A Date is told to the second, and something on the way may have kept it a while."""
_REFUSALS = frozenset({401, 403})
_PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


def check_upstreams(upstreams: Sequence[UpstreamFacts]) -> list[Finding]:
    """Each of them; none is a finding too."""
    if not upstreams:
        told = "None was named, so none was asked: give --config or --upstream."
        return [ok("upstream", told)]
    return [found for one in upstreams for found in check_upstream(one)]


def check_upstream(seen: UpstreamFacts) -> list[Finding]:
    """Whether it is there, takes the key, and speaks what it is declared to speak."""
    check = f"upstream {seen.name}"
    if seen.trouble:
        remedy = f"see that {seen.url} is right, and can be reached from this machine"
        return [fault(check, seen.trouble, remedy)]
    return [*_key(seen, check), *_dialects(seen, check), *_clock(seen, check)]


def _key(seen: UpstreamFacts, check: str) -> list[Finding]:
    # That a variable is not set is among what `trivet check` finds.
    if not seen.key_set or not _REFUSALS & set(seen.statuses.values()):
        return []
    refused = [family for family, status in seen.statuses.items() if status in _REFUSALS]
    if seen.spoken and not seen.spoken <= set(refused):
        return []
    return [
        fault(check, f"{seen.url} refuses the key in {seen.key_env}.",
              f"put a valid one into {seen.key_env}, where the proxy starts")
    ]  # fmt: skip


def _dialects(seen: UpstreamFacts, check: str) -> list[Finding]:
    where = f"{seen.url} answers"
    if seen.native and not seen.spoken:
        return [ok(check, f"{where}, on paths of its own API.")]
    if any(status >= 500 for status in seen.statuses.values()) and not seen.spoken:
        codes = ", ".join(str(status) for status in seen.statuses.values())
        return [fault(check, f"{where} with {codes}.", "see its own log and status page")]
    named = ", ".join(f"{_PATHS[one]} ({seen.statuses[one]})" for one in seen.statuses)
    if not seen.spoken:
        remedy = "give its base URL, with or without /v1, and nothing behind that"
        return [fault(check, f"{where}, but as no API that Trivet knows: {named}.", remedy)]
    spoken = " and ".join(one for one in seen.dialects if one in seen.spoken)
    missing = [one for one in seen.dialects if one not in seen.spoken]
    if missing and seen.dialects_named:
        remedy = f"leave {' and '.join(missing)} out of its `dialects`"
        return [warning(check, f"{where} as {spoken} only: {named}.", remedy)]
    keyless = set(seen.statuses.values()) & _REFUSALS and not seen.key_set
    keys = "; callers send its key (one made by `trivet keygen` never reaches it)"
    return [ok(check, f"{where} as {spoken}{keys if keyless else ''}.")]


def _clock(seen: UpstreamFacts, check: str) -> list[Finding]:
    if seen.ahead_s is None or abs(seen.ahead_s) < _SKEW_S:
        return []
    off = f"{abs(seen.ahead_s):.0f} s {'ahead of' if seen.ahead_s > 0 else 'behind'}"
    remedy = "run an NTP client here: lifetimes, purges and signatures go by this machine's clock"
    return [warning(check, f"Its clock is {off} this machine's.", remedy)]
