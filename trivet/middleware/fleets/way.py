"""What a call tells the router of an upstream with replicas, and what it is told back."""

from __future__ import annotations

from dataclasses import dataclass

from trivet.prefix.routing.affinity import Steps


@dataclass(slots=True)
class Way:
    """Made by who knows the prompt, for upstreams with replicas only (`upstream.replicas`).

    `steps` are `affinity.steps_of(outline, owner)`, where `owner` is the tenant's salt.
    """

    steps: Steps
    replica: int | None = None
    """Which server was asked, by its place; set when the call is sent."""
    expected: int = 0
    """Tokens of the prompt that it was thought to hold."""
