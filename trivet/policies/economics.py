"""When a semantic hit is worth its risk: h * c > l + h * f * w."""

from __future__ import annotations

from pydantic import Field

from trivet.policies.model_base import Section


class Economics(Section):
    """Costs in one currency. The hit rate `h` and the false-hit rate `f` are measured."""

    call_cost: float = Field(gt=0, allow_inf_nan=False, description="c: one model call.")
    lookup_cost: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="l: embedding and search, per request."
    )
    false_hit_cost: float = Field(
        ge=0, allow_inf_nan=False, description="w: what one wrong answer costs on average."
    )


def margin(hit_rate: float, false_hit_rate: float, costs: Economics) -> float:
    """Saved minus risked per request: h*c - (l + h*f*w). Rates are fractions; f is among hits.

    Give the upper bound of the false-hit rate, not its estimate.
    """
    risked = costs.lookup_cost + hit_rate * false_hit_rate * costs.false_hit_cost
    return hit_rate * costs.call_cost - risked


def worth_it(hit_rate: float, false_hit_rate: float, costs: Economics) -> bool:
    """Whether `margin` is above zero."""
    return margin(hit_rate, false_hit_rate, costs) > 0
