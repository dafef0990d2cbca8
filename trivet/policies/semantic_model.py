"""The `semantic:` section of a policy file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PrivateAttr

from trivet.policies.calibration import Calibration
from trivet.policies.economics import Economics
from trivet.policies.intents import Intent
from trivet.policies.model_base import Seconds, Section

Mode = Literal["off", "shadow", "assist", "replace"]


class Quarantine(Section):
    """A new entry is served to others once one of the two is reached."""

    users: int = Field(default=2, ge=1, description="Distinct users who asked the same.")
    answers: int = Field(
        default=2, ge=1, description="Distinct model calls whose answers agree, the first included."
    )


class Judge(Section):
    """Who says whether a served answer was the right one."""

    kind: Literal["equality", "embedder", "llm", "person"] = Field(
        default="embedder",
        description="equality: the same words; embedder: cosine of the two answers; llm: a model "
        "that is asked `prompt`; person: `trivet eval label`.",
    )
    threshold: float = Field(
        default=0.9, ge=-1, le=1, description="Cosine from which `embedder` says same."
    )
    upstream: str | None = Field(default=None, description="Upstream that `llm` asks.")
    model: str | None = Field(default=None, description="Model that `llm` asks.")
    prompt: str | None = Field(
        default=None,
        description="What `llm` is asked, with {question}, {stored} and {fresh}; it has to answer "
        "with `same` or `different`.",
    )


class Audit(Section):
    """A share of the hits also goes to the model, in the background, to measure while it runs."""

    share: float = Field(default=0.05, ge=0, le=1, description="Of the hits, drawn at random.")
    judge: Judge = Judge()


class SemanticPolicy(Section):
    """How the semantic tier treats this tenant. It serves nothing that was not measured."""

    mode: Mode = Field(
        default="off",
        description="shadow: look up, serve nothing, measure; assist: give the nearest answer to "
        "the model, or to the caller, as a suggestion; replace: serve it.",
    )
    calibration: Path | None = Field(
        default=None,
        description="File that `trivet eval calibrate` wrote, relative to the policy file, in its "
        "directory or below. "
        "Without one, `assist` and `replace` act as `shadow`.",
    )
    embedder: str = Field(
        default="default",
        description="default, a model's name or folder, or openai:URL#MODEL for an endpoint.",
    )
    cross_encoder: str | None = Field(
        default=None,
        min_length=1,
        description="The cross-encoder's name on the hub or its folder. Needed where the "
        "calibration's chain is cross-encoder; no other chain uses it.",
    )
    intents: tuple[Intent, ...] = Field(
        default=(Intent.INFORMATIONAL,), description="What the gate lets through."
    )
    ttl: Seconds = Field(default=86400.0, description="Lifetime of an entry, from its answer's.")
    intent_ttl: dict[Intent, Seconds] = Field(
        default_factory=dict, description="Other lifetimes by intent."
    )
    assist: Literal["prompt", "header"] = Field(
        default="prompt",
        description="Where the nearest answer goes. prompt: to the model, at the end of the last "
        "message; header: to the caller, as Trivet-Suggestion (percent-encoded, 2 KiB at most).",
    )
    max_turns: int = Field(
        default=1, ge=1, description="User messages in a conversation that is still looked up."
    )
    tools: Literal["bypass", "allow"] = Field(
        default="bypass", description="Requests that offer tools to the model."
    )
    writers: tuple[str, ...] | None = Field(
        default=None,
        description="End users whose answers others may get; anybody of the tenant when absent.",
    )
    quarantine: Quarantine | None = None
    max_entries: int = Field(default=100_000, ge=0, description="Entries of this tenant.")
    target_false_hits: float = Field(
        default=0.02, gt=0, lt=1, description="Above it, by the running bound, the tier closes."
    )
    economics: Economics | None = None
    audit: Audit = Audit()
    store_text: bool = Field(
        default=False, description="Keep both texts of hits for people to look at and label."
    )
    record: bool = Field(
        default=False, description="Record questions and outcomes for `trivet eval replay`."
    )

    _measured: Calibration | None = PrivateAttr(default=None)

    @property
    def measured(self) -> Calibration | None:
        """What `calibration` holds, once the file was loaded."""
        return self._measured

    def attach(self, measured: Calibration) -> None:
        """Called once, by who loads the policy file and the calibration that it names."""
        self._measured = measured
