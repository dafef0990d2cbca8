"""A warning about workers that do not share what they store."""

from __future__ import annotations

from trivet.errors import Problem
from trivet.middleware.running.config import ServerConfig


def apart(config: ServerConfig) -> list[Problem]:
    """Several workers over memory: each has its own, and callers meet them by chance."""
    if config.workers == 1 or config.store.url != "memory":
        return []
    message = (
        f"each of the {config.workers} has a memory of its own: an answer is found only by the "
        "worker that stored it, and takes memory in each. Leave --store away or give "
        "--store sqlite:PATH, which all of them share behind a memory front, or run one worker."
    )
    return [Problem("store memory", 0, 0, "workers", message)]
