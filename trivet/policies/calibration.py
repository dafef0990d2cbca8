"""What was measured about a chain (gate, embedder, verifier) on labelled pairs: data, no code.

`trivet eval calibrate` writes it, a policy names it, and the semantic tier serves only where the
fingerprint of the chain that runs equals the one that was measured.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from trivet.errors import ConfigError, Problem
from trivet.policies.economics import Economics
from trivet.policies.fitted import Fitted
from trivet.policies.intents import Intent
from trivet.policies.model_base import Section
from trivet.policies.regular_file import read_regular

_LARGEST = 4 << 20
Threshold = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
"""A cosine or a probability. At 0 or below, texts that have nothing in common would be served."""

Chain = Literal["cosine", "rules", "verifier", "fitted", "cross-encoder"]
"""What scores a pair: the cosine alone; the cosine unless a rule objects; the trained verifier;
a layer over it that was fitted to the pairs; a cross-encoder over both texts. Where a rule objects,
or the gate refuses, a pair has no score."""


class Fingerprint(Section):
    """Everything that a score depends on. Two chains with equal fingerprints score alike."""

    chain: Chain
    embedder: str
    """Of weights, tokenizer, pooling, normalisation and revision, computed from the files."""
    verifier: str | None = None
    """Of the rules and weights beyond the embedder; None for `cosine`."""
    gate: str | None = None
    """Of the gate, whether or not it filtered the pairs (see `Calibration.gated`)."""


class Measured(Section):
    """Counts at the threshold on the pairs that certified it. Rates are fractions."""

    pairs: int = Field(ge=0)
    same: int = Field(ge=0)
    hits: int = Field(ge=0)
    """n: pairs at or above the threshold."""
    false_hits: int = Field(ge=0)
    upper_bound: float = Field(ge=0, le=1)
    """On false hits among hits, one-sided, exact (Clopper and Pearson, 1934)."""

    @property
    def false_hit_rate(self) -> float | None:
        """False hits among hits; None where there was no hit."""
        return self.false_hits / self.hits if self.hits else None


class CurvePoint(Section):
    """One threshold of the sweep on all pairs."""

    threshold: float = Field(ge=-1, le=1, allow_inf_nan=False)
    hits: int = Field(ge=0)
    false_hits: int = Field(ge=0)


class Calibration(Section):
    """The artefact. `threshold` is None where no threshold could be certified."""

    format: Literal[1] = 1
    made: date
    fingerprint: Fingerprint
    embedder: str = "default"
    """The name under which it was opened. The fingerprint decides; this is for people and eval."""
    cross_encoder: str | None = None
    """Likewise, where the chain is one; a policy names its own."""
    fitted: Fitted | None = Field(default=None, validate_default=True)
    """The weights, where the chain is `fitted`, and only there."""
    dataset: str
    """SHA-256, in hex, of the pairs in their canonical form."""
    target: float = Field(gt=0, lt=1)
    confidence: float = Field(gt=0, lt=1)
    gated: tuple[Intent, ...] | None = None
    """The intents that the gate let through before a pair was scored; None: it filtered none, and
    what it refuses while serving is refused besides. The slice `gate` then says what was left."""
    threshold: Threshold | None
    needed: int | None = None
    """How many more hits without a false one it takes to certify, where `threshold` is None."""
    measured: Measured
    slices: dict[str, Measured] = Field(default_factory=dict)
    intents: dict[Intent, Threshold] = Field(default_factory=dict)
    """Thresholds of intents that were certified on their own; others use `threshold`."""
    scripts: tuple[str, ...] = ("latin",)
    """Writing systems that at least 20 of the pairs use: a text in another one is not served."""
    languages: tuple[str, ...] = ()
    """Languages of the pairs (ISO 639-1) as `semantic.language` tells them; empty: not told."""
    hit_rate: float | None = Field(default=None, ge=0, le=1)
    """h, given or estimated by replay."""
    economics: Economics | None = None
    worth_it: bool | None = None
    """h*c > l + h*f*w with the upper bound as f; None where h or the costs are not known."""
    curve: tuple[CurvePoint, ...] = ()

    @field_validator("fitted")
    @classmethod
    def _where_fitted(cls, found: Fitted | None, info: ValidationInfo) -> Fitted | None:
        fingerprint = info.data.get("fingerprint")
        if fingerprint is not None and (fingerprint.chain == "fitted") != (found is not None):
            told = "no weights for the chain" if found is None else "weights for the chain"
            raise ValueError(f"{told} {fingerprint.chain}")
        return found

    def threshold_for(self, intent: Intent) -> float | None:
        """From which score on a pair of this intent is served; None: it is not."""
        if self.threshold is None:
            return None
        return self.intents.get(intent, self.threshold)


def load_calibration(path: Path, *, within: Path | None = None) -> Calibration:
    """Read an artefact. Raises `ConfigError` that names the file and the field.

    A regular file of at most 4 MiB; with `within`, in that directory or below.
    """
    raw = read_regular(path, _LARGEST, "calibration", within=within)
    try:
        return Calibration.model_validate_json(raw)
    except ValidationError as error:
        problems = [
            Problem(str(path), 0, 0, ".".join(map(str, one["loc"])) or "calibration", one["msg"])
            for one in error.errors(include_url=False, include_context=False)
        ]
        raise ConfigError(*problems) from None
