"""The weights of a chain that was fitted to a tenant's own labelled pairs: numbers, no text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from trivet.policies.model_base import Section

FeatureSet = Literal["few", "all"]
"""`few`: whether a rule objects, and the cosine. `all`: besides, what the verifier's trees see."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Fitted(Section):
    """A logistic layer over the verifier's log odds and its numbers about a pair.

    Log odds: `intercept + trust * odds + sum of weight * z`, where z is (number - mean) / scale,
    held within 5 of 0; and `contradicted` where a number of the one text contradicts the other.
    """

    features: FeatureSet
    pairs: int = Field(gt=0)
    """How many it was fitted to."""
    intercept: Finite
    trust: Finite
    """Weight of the verifier's log odds."""
    contradicted: Finite = -60.0
    """As good as a veto, where a file does not say."""
    weights: tuple[Finite, ...] = Field(min_length=1)
    means: tuple[Finite, ...]
    scales: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...]

    @field_validator("means", "scales")
    @classmethod
    def _as_long(cls, found: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        weights = info.data.get("weights")
        if weights is not None and len(found) != len(weights):
            raise ValueError(f"{len(found)} numbers for {len(weights)} weights")
        return found
