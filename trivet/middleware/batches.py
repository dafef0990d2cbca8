"""One batch of embeddings as questions, and what its stored and its new vectors make: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trivet.exact.entry import Entry
from trivet.exact.key import keyed
from trivet.exact.tier import Hit, Miss, Question
from trivet.messages import ExactKey
from trivet.middleware.call import Call
from trivet.middleware.dialects.embeddings import Batch, Vectors, dimensions
from trivet.policies.eligibility import Eligible


@dataclass(frozen=True, slots=True)
class Asked:
    """One batch, its items as questions, and what the store had for them."""

    call: Call
    batch: Batch
    plan: Eligible
    questions: Sequence[Question]
    found: dict[ExactKey, Hit]
    stale: dict[ExactKey, Hit]
    """Expired vectors that may stand in for an upstream error."""
    replaces: bool
    """Whether some of what is missing is stored, and was passed over."""


def questions_of(call: Call, batch: Batch, plan: Eligible) -> list[Question]:
    """One question an item, in the batch's order."""
    questions = []
    for canonical in batch.canonicals:
        key, text = keyed(call.parts._replace(canonical=canonical))
        questions.append(call.question_for(plan, key, text))
    return questions


def missing_in(questions: Sequence[Question], found: Mapping[ExactKey, Hit]) -> list[int]:
    """Positions of the items to ask for: not stored, and each distinct one once."""
    seen: set[ExactKey] = set(found)
    missing: list[int] = []
    for position, question in enumerate(questions):
        if question.key not in seen:
            seen.add(question.key)
            missing.append(position)
    return missing


def stale_of(misses: Iterable[Miss]) -> dict[ExactKey, Hit]:
    """The expired vectors among `misses`."""
    return {miss.key: miss.stale for miss in misses if miss.stale is not None}


def reason_of(misses: Iterable[Miss]) -> str:
    """Why something is missing: the first reason that says more than "never asked"."""
    return next((miss.reason for miss in misses if miss.reason), "")


def go_together(hits: Iterable[Hit], fresh: Iterable[bytes] = (), model: str | None = None) -> bool:
    """Whether all vectors are of one model and one length: others cannot be compared."""
    shapes = {(dimensions(hit.entry.body), hit.entry.model) for hit in hits}
    shapes |= {(dimensions(packed), model or "") for packed in fresh}
    return len(shapes) <= 1


def entry_of(asked: Asked, question: Question, vectors: Vectors, place: int, at: float) -> Entry:
    """The vector at `place`, to be stored as the answer to `question` that was asked `at`."""
    expires = at + asked.plan.ttl
    return Entry(
        key=question.key,
        tenant=asked.call.tenant,
        api=asked.call.request.api,
        canonical=question.canonical,
        body=vectors.packed[place],
        model=vectors.model,
        # A batch's usage is one sum: what a single item took is known only if it came alone.
        usage=vectors.usage if len(vectors.packed) == 1 else None,
        ids=(),
        created=at,
        expires=expires,
        stale_until=expires + asked.plan.stale_if_error,
        labels=asked.call.labels,
    )
