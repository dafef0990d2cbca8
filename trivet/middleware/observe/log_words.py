"""What log lines say in words beside their codes: for who reads them at night, and no manual."""

from __future__ import annotations

_STORE = {
    "down": "requests go to the upstream, answers are not stored",
    "degraded": "stored answers are served, new ones may not be stored",
}
_EFFECTS = {
    "hub": {"down": "identical requests are collapsed within each worker only"},
    "fleet": {"down": "identical requests are collapsed within each machine only"},
    "redis-secret": {
        "degraded": "processes with different secrets do not read each other's answers: give all "
        "of them one TRIVET_SECRET, and one store.encrypt"
    },
    "semantic-monitor": {"down": "feedback and audits are not shared and may be lost"},
}
_SIMILAR = {
    "down": "similar questions are not answered from the cache",
    "degraded": "fewer similar questions are answered from the cache",
}
_REJECTED = {
    "mac": "not written with this deployment's TRIVET_SECRET, or altered since",
    "format": "written by another version of Trivet",
    "corrupt": "cannot be read",
    "canonical": "answers another request",
    "purged": "was purged, and somebody put it back",
}


def effect_of(store: str, state: str) -> str:
    """What a store's state means for requests; empty where all is well."""
    if store in _EFFECTS:
        return _EFFECTS[store].get(state, "")
    if store.startswith(("semantic", "verifier:")):
        return _SIMILAR.get(state, "")
    return _STORE.get(state, "")


def rejected_because(reason: str) -> str:
    """What the code of a rejected entry means."""
    return _REJECTED.get(reason, "cannot be trusted")


def given(**fields: object) -> dict[str, object]:
    """The fields that say something: a line has no empty ones."""
    return {name: value for name, value in fields.items() if value not in (None, "")}
