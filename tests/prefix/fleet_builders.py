"""Prompts as the router sees them, and replicas."""

from __future__ import annotations

from typing import Any

from trivet.messages import Api
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import Steps, steps_of
from trivet.prefix.routing.choose import ReplicaState

OWNER = b"salt-of-acme"


def chat(*texts: str, system: str = "", model: str = "m") -> dict[str, Any]:
    """A conversation: user and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": model, "messages": messages}


def steps(*texts: str, owner: bytes = OWNER, **options: str) -> Steps:
    """Its steps."""
    return steps_of(outline_of(Api.CHAT, chat(*texts, **options)), owner)


def replicas(count: int, **states: Any) -> list[ReplicaState]:
    """Replicas 0 to `count` - 1; `states` hold a value by replica, as `load={1: 3.0}`."""
    made = []
    for at in range(count):
        given = {name: values[at] for name, values in states.items() if at in values}
        made.append(ReplicaState(at, 0x9E3779B97F4A7C15 * (at + 1) & (2**64 - 1), **given))
    return made
