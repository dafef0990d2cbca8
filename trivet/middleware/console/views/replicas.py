"""The replicas of each upstream, as all processes together see them: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trivet.metric_names import REPLICA_REQUESTS, REPLICA_TOKENS


def replicas_of(told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Out of what each process told: by upstream, each of its replicas in the config's order."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for one in told:
        for upstream, replicas in one["replicas"].items():
            for replica in replicas:
                known = found.setdefault(upstream, {}).setdefault(replica["replica"], [])
                known.append(replica)
    return [
        {
            "upstream": upstream,
            "replicas": [
                {"replica": name, **_replica(known), **_asked(told, upstream, name)}
                for name, known in replicas.items()
            ],
        }
        for upstream, replicas in found.items()
    ]


def _replica(known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of one replica. A server tells everybody the same queue; what was sent there each process
    knows for itself."""
    held = [one["held"] for one in known if one["held"] is not None]
    return {
        "up": sum(one["up"] for one in known),
        "processes": len(known),
        "reason": next((one["reason"] for one in known if not one["up"]), ""),
        "weight": min(one["weight"] for one in known),
        "in_flight": sum(one["in_flight"] for one in known),
        "at_server": max(one["in_flight"] + one["others"] for one in known),
        "waiting_tokens": sum(one["waiting"] for one in known),
        "trust": min(one["trust"] for one in known) if any(one["tells"] for one in known) else None,
        "routed_blocks": [one["routed"] for one in known],
        "held_blocks": max(held) if held else None,
    }


def _asked(told: Sequence[Mapping[str, Any]], upstream: str, replica: str) -> dict[str, Any]:
    """Requests by why the replica was chosen, and prompt tokens, since the processes began."""
    reasons: dict[str, int] = {}
    tokens = {"all": 0, "known": 0}
    for one in told:
        for (*named, reason), count in one["counted"][REPLICA_REQUESTS.name]:
            if named == [upstream, replica]:
                reasons[reason] = reasons.get(reason, 0) + int(count)
        for (*named, kind), count in one["counted"][REPLICA_TOKENS.name]:
            if named == [upstream, replica]:
                tokens[kind] = tokens.get(kind, 0) + int(count)
    return {"requests": reasons, "tokens": tokens["all"], "known_tokens": tokens["known"]}
