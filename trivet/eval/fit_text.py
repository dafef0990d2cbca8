"""What a fitted layer weighs, in one sentence."""

from __future__ import annotations

from trivet.policies.fitted import Fitted
from trivet.semantic.fitted import heaviest

_NAMED = 3


def fitted_text(layer: Fitted) -> str:
    """How many pairs it was fitted to, and which groups of numbers weigh most."""
    weights = [f"{group} {weight:.2f}" for group, weight in heaviest(layer)[:_NAMED]]
    return (
        f"fitted to {layer.pairs} of those that chose: the verifier's log odds count "
        f"{layer.trust:.2f} times; of the {len(layer.weights)} numbers besides, "
        f"{', '.join(weights) or 'none'} weigh most"
    )
