"""Embeddings on their way through the exact tier: each item is a question of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trivet.canonical import digest
from trivet.errors import UpstreamError
from trivet.exact.collapse import Collapser
from trivet.exact.entry import Entry
from trivet.exact.flight import Failed, Flight, Head, Subscription, Unstored
from trivet.exact.key import keyed
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier, Hit, Question
from trivet.messages import ExactKey, NotStored, Usage
from trivet.middleware.call import Call, Reply, Whole
from trivet.middleware.dialects.embeddings import (
    Batch,
    Vectors,
    read_answer,
    remainder,
    write_answer,
)
from trivet.middleware.reply import Replies
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.eligibility import Eligible

_SERVED = "vectors"
"""Result of a flight that carries a batch: its items are stored one by one, not as a whole."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Embeddings:
    """Answers batches out of stored items, and asks the upstream for the others only."""

    def __init__(
        self,
        exact: ExactTier,
        collapser: Collapser,
        client: UpstreamClient,
        replies: Replies,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._exact = exact
        self._collapser = collapser
        self._client = client
        self._reply = replies
        self._clock = clock

    async def answer(self, call: Call, batch: Batch, plan: Eligible) -> Reply:
        """The reply to one batch."""
        questions = [_question(call, canonical, plan) for canonical in batch.canonicals]
        found = await self._find(questions, plan)
        missing = _first_of_each(questions, found)
        if not missing:
            return self._from_store(call, batch, [found[question.key] for question in questions])
        call.note.outcome = "miss"
        call.note.reason = "" if len(missing) == len(batch.inputs) else "partial"
        if plan.only_if_cached:
            return self._reply.not_cached(call)
        return await self._complete(call, batch, plan, (questions, found, missing))

    async def _find(self, questions: Sequence[Question], plan: Eligible) -> dict[ExactKey, Hit]:
        if not plan.lookup:
            return {}
        distinct = {question.key: question for question in questions}
        results = await asyncio.gather(*map(self._exact.find, distinct.values()))
        return {
            key: result
            for key, result in zip(distinct, results, strict=True)
            if isinstance(result, Hit)
        }

    def _from_store(self, call: Call, batch: Batch, hits: Sequence[Hit]) -> Whole:
        oldest = max(hits, key=lambda hit: hit.age)
        known = [hit.entry.usage for hit in hits]
        usage = Usage(sum(item.input_tokens for item in known if item), 0) if all(known) else None
        tokens = usage.input_tokens if usage and call.policy.usage_on_hit == "keep" else 0
        body = write_answer(
            [hit.entry.body for hit in hits], batch.encoding, oldest.entry.model, tokens
        )
        return self._reply.composed(call, oldest, body, usage)

    async def _complete(
        self,
        call: Call,
        batch: Batch,
        plan: Eligible,
        state: tuple[Sequence[Question], dict[ExactKey, Hit], Sequence[int]],
    ) -> Reply:
        questions, found, missing = state
        body = remainder(batch, missing)
        started = self._clock()
        fetched = await self._fetch(call, body, [questions[at].key for at in missing], plan)
        if isinstance(fetched, UpstreamError):
            return self._reply.failed(call, fetched)
        headers = self._reply.upstream_headers
        if not 200 <= fetched.status < 300:
            call.note.reason = f"status-{fetched.status}"
            return Whole(fetched.status, headers(call, fetched.headers), fetched.body)
        vectors = read_answer(fetched.body, len(missing))
        whole = len(missing) == len(batch.inputs)
        if isinstance(vectors, NotStored):
            call.note.reason = vectors.reason
            if whole:
                return Whole(fetched.status, headers(call, fetched.headers), fetched.body)
            return self._reply.failed(
                call, UpstreamError("bad-vectors", "The upstream's embeddings cannot be read.")
            )
        if plan.store and not call.note.collapsed:
            await self._keep(call, plan, [questions[at] for at in missing], vectors, started)
        call.note.usage = vectors.usage
        if whole:
            return Whole(fetched.status, headers(call, fetched.headers), fetched.body)
        fresh = {questions[at].key: vectors.packed[place] for place, at in enumerate(missing)}
        packed = [
            fresh[question.key] if question.key in fresh else found[question.key].entry.body
            for question in questions
        ]
        tokens = vectors.usage.input_tokens if vectors.usage else 0
        answer = write_answer(packed, batch.encoding, vectors.model, tokens)
        return Whole(200, headers(call, fetched.headers), answer)

    async def _fetch(
        self, call: Call, body: bytes, keys: Sequence[ExactKey], plan: Eligible
    ) -> _Fetched | UpstreamError:
        call.waiting()
        unshared = b"" if plan.lookup else os.urandom(16)
        flight_key = ExactKey(digest(b"trivet-embeddings", unshared, *keys))
        after: Subscription | None = None
        for attempt in (0, 1):
            ticket = await self._collapser.join(
                flight_key,
                call.tenant,
                lambda flight: self._lead(call, body, flight),
                attempt=attempt,
                after=after,
            )
            after = flight = ticket.subscription
            call.note.collapsed = ticket.role == "follow"
            try:
                fetched = await _gather(flight)
            finally:
                flight.leave()
            bad = isinstance(fetched, UpstreamError) or fetched.status >= 400
            if not (bad and call.note.collapsed and attempt == 0):
                break
        return fetched

    async def _lead(self, call: Call, body: bytes, flight: Flight) -> None:
        began = time.perf_counter()
        try:
            response = await self._client.send(
                call.upstream, "POST", call.target, call.headers, body
            )
        except UpstreamError as error:
            flight.finish(Failed(error))
            return
        try:
            flight.start(Head(response.status, tuple(response.headers), stream=False))
            async for chunk in response.chunks():
                await flight.push(chunk)
            flight.finish(Unstored(_SERVED))
        except UpstreamError as error:
            flight.finish(Failed(error))
        finally:
            call.note.upstream_s = time.perf_counter() - began
            response.close()

    async def _keep(
        self,
        call: Call,
        plan: Eligible,
        questions: Sequence[Question],
        vectors: Vectors,
        started: float,
    ) -> None:
        bound = Bound(call.policy.limits.entries, call.policy.limits.bytes)
        # A batch's usage is one sum: what a single item took is known only if it came alone.
        usage = vectors.usage if len(questions) == 1 else None
        expires = started + plan.ttl
        reasons = await asyncio.gather(
            *(
                self._exact.keep(
                    Entry(
                        key=question.key,
                        tenant=call.tenant,
                        api=call.request.api,
                        canonical=question.canonical,
                        body=packed,
                        model=vectors.model,
                        usage=usage,
                        ids=(),
                        created=started,
                        expires=expires,
                        stale_until=expires,
                        labels=call.labels,
                    ),
                    bound,
                )
                for question, packed in zip(questions, vectors.packed, strict=True)
            )
        )
        call.note.stored = not any(reasons)
        call.note.reason = next(filter(None, reasons), call.note.reason)


async def _gather(flight: Subscription) -> _Fetched | UpstreamError:
    head = await flight.head()
    if isinstance(head, Failed):
        return head.error
    try:
        body = b"".join([chunk async for chunk in flight])
    except UpstreamError as error:
        return error
    return _Fetched(head.status, head.headers, body)


def _question(call: Call, canonical: bytes, plan: Eligible) -> Question:
    key, text = keyed(replace(call.parts, canonical=canonical))
    return Question(call.tenant, key, text, plan.max_age, plan.fresh_for)


def _first_of_each(questions: Sequence[Question], found: dict[ExactKey, Hit]) -> list[int]:
    """Positions of the items to ask for: not stored, and each distinct one once."""
    seen: set[ExactKey] = set(found)
    missing: list[int] = []
    for position, question in enumerate(questions):
        if question.key not in seen:
            seen.add(question.key)
            missing.append(position)
    return missing
