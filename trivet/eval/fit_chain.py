"""Makes the chain `fitted` of the pairs that were set aside to choose by, and scores with it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trivet.errors import ConfigError, Problem
from trivet.eval.counted import counted
from trivet.eval.fit import FEWEST, FEWEST_OF_EACH, Examples, Missing, fit
from trivet.eval.parts import SHARE, Parts, Promise, enough_to_part
from trivet.eval.scoring import ScoredPair, refusal, rescored
from trivet.eval.split import components
from trivet.policies.intents import Intent
from trivet.semantic.chain import Chain
from trivet.semantic.fitted import FittedVerifier, reader
from trivet.semantic.types import TextPair, Verdict
from trivet.semantic.verify import squash


@dataclass(frozen=True, slots=True)
class FittedChain:
    """The chain, and what it makes of all pairs."""

    chain: Chain
    scored: list[ScoredPair]
    """The pairs that it was fitted to by cross-validation, each by a layer that did not see it."""


def fitted_chain(
    base: Chain,
    first: Sequence[ScoredPair],
    choosing: Sequence[int],
    admit: Collection[Intent] | None,
) -> FittedChain | Missing:
    """Fit to the pairs at these places, or say what is missing.

    `base`: its embedder and gate are the chain's. `first`: all pairs by another chain over them.
    Pairs that are vetoed or refused have no part in the fit: no score decides about them.
    """
    compared = [at for at in choosing if _compared(first[at], admit)]
    seen = reader().read([_texts(first[at]) for at in compared])
    left = [n for n, veto in enumerate(seen.vetoes) if veto is None]
    used = [compared[n] for n in left]
    found = fit(
        Examples(
            seen.some(left),
            np.array([first[at].pair.same for at in used], dtype=bool),
            components([first[at].pair for at in used]),
        )
    )
    if isinstance(found, Missing):
        return found
    chain = Chain("fitted", base.embedder, FittedVerifier(found.weights), base.gate)
    scored = rescored(chain, first, admit)
    for at, odds in zip(used, found.unseen.tolist(), strict=True):
        score = squash(odds)
        scored[at] = replace(scored[at], score=score, verdict=Verdict(score))
    return FittedChain(chain, scored)


def too_few(missing: Missing, parts: Parts, promise: Promise) -> ConfigError:
    """What to tell somebody who asks for this chain and has too few pairs for it."""
    left = max(1, len(parts.choosing) + len(parts.certifying))
    if parts.choosing:
        lacking = max(missing) / SHARE
    else:
        lacking = max(0, max(enough_to_part(promise), FEWEST / SHARE) - left)
    more = math.ceil(lacking * (left + len(parts.held_out)) / left)
    told = (
        f"{counted(more, 'more pair')} needed to fit this chain: {SHARE:.0%} of them are set "
        f"aside to fit to, and of those it takes {FEWEST} that are not vetoed, {FEWEST_OF_EACH} "
        "the same and as many different"
        if more
        else "this chain cannot be fitted: the pairs hang together in too few groups"
    )
    return ConfigError(Problem("--chain fitted", 0, 0, "", told))


def _compared(one: ScoredPair, admit: Collection[Intent] | None) -> bool:
    return one.pair.comparable and (admit is None or not refusal(one, admit))


def _texts(one: ScoredPair) -> TextPair:
    return TextPair(one.pair.a, one.pair.b, one.cosine)
