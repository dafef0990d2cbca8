"""Embeddings on their way through the exact tier: each item is a question of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trivet.canonical import digest, join
from trivet.errors import UpstreamError
from trivet.exact.collapse import Collapser
from trivet.exact.flight import Failed, Flight, Head, Subscription, Unstored
from trivet.exact.tier import ExactTier, Hit, Miss, Question, carrying
from trivet.messages import ExactKey, NotStored, Usage
from trivet.middleware.arrival.idempotency import bound_to_body
from trivet.middleware.batches import (
    Asked,
    entry_of,
    go_together,
    missing_in,
    questions_of,
    reason_of,
    stale_of,
)
from trivet.middleware.call import Call, Reply, Whole
from trivet.middleware.dialects.embeddings import (
    Batch,
    Vectors,
    read_answer,
    remainder,
    write_answer,
)
from trivet.middleware.record import STALE_FOR, bound_of, forbids_storing
from trivet.middleware.reply import Replies
from trivet.middleware.upstream import Sender, media_type_of
from trivet.policies.directives import tags_of
from trivet.policies.eligibility import Eligible

_FLIGHT = b"trivet-embeddings"
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
        client: Sender,
        replies: Replies,
        collapse_wait: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._exact = exact
        self._collapser = collapser
        self._client = client
        self._reply = replies
        self._wait = collapse_wait
        self._clock = clock

    async def answer(self, call: Call, batch: Batch, plan: Eligible) -> Reply:
        """The reply to one batch."""
        questions = questions_of(call, batch, plan)
        found, misses = await self._find(questions, plan, call.labels)
        replaces = any(miss.replaces for miss in misses)
        asked = Asked(call, batch, plan, questions, found, stale_of(misses), replaces)
        missing = missing_in(questions, found)
        if not missing:
            return self._from_store(asked, found)
        call.note.outcome = "miss"
        call.note.reason = reason_of(misses) or ("partial" if found else "")
        if plan.only_if_cached:
            return self._reply.not_cached(call)
        return await self._complete(asked, missing)

    async def _find(
        self, questions: Sequence[Question], plan: Eligible, labels: frozenset[str]
    ) -> tuple[dict[ExactKey, Hit], list[Miss]]:
        """What is stored, and why the rest is not. Vectors that do not go together are no hits."""
        if not plan.lookup:
            return {}, [Miss("no-cache", questions[0].key)]
        distinct = {question.key: question for question in questions}
        stored = await asyncio.gather(*map(self._exact.find, distinct.values()))
        results = [carrying(one, labels) for one in stored]
        found = {result.entry.key: result for result in results if isinstance(result, Hit)}
        if not go_together(found.values()):
            return {}, [Miss("model-changed", questions[0].key)]
        return found, [result for result in results if isinstance(result, Miss)]

    def _from_store(self, asked: Asked, found: Mapping[ExactKey, Hit]) -> Whole:
        call, batch = asked.call, asked.batch
        hits = [found[question.key] for question in asked.questions]
        told = min(hits, key=lambda hit: (hit.ttl > 0, -hit.age))
        known = [hit.entry.usage for hit in hits]
        usage = Usage(sum(item.input_tokens for item in known if item), 0) if all(known) else None
        tokens = usage.input_tokens if usage and call.policy.usage_on_hit == "keep" else 0
        packed = [hit.entry.body for hit in hits]
        body = write_answer(packed, batch.encoding, told.entry.model, tokens)
        return self._reply.composed(call, told, body, usage)

    async def _complete(self, asked: Asked, missing: Sequence[int]) -> Reply:
        """Ask for the items at `missing`, and put the answer together."""
        call, started = asked.call, self._clock()
        fetched = await self._fetch(asked, missing)
        if isinstance(fetched, UpstreamError) or fetched.status >= 400:
            return self._stand_in(asked, fetched.status) or self._failed(call, fetched)
        whole = len(missing) == len(asked.batch.inputs)
        vectors = _judged(fetched, len(missing))
        if isinstance(vectors, NotStored):
            if not whole:
                return await self._afresh(asked)
            call.note.reason = vectors.reason
            return self._passed_on(call, fetched)
        if not go_together(asked.found.values(), vectors.packed, vectors.model):
            return await self._afresh(asked)
        questions = [asked.questions[at] for at in missing]
        await self._take_in(asked, questions, vectors, fetched, started)
        if whole:
            return self._passed_on(call, fetched)
        stored = {key: hit.entry.body for key, hit in asked.found.items()}
        fresh = dict(zip((question.key for question in questions), vectors.packed, strict=True))
        packed = [{**stored, **fresh}[question.key] for question in asked.questions]
        tokens = vectors.usage.input_tokens if vectors.usage else 0
        body = write_answer(packed, asked.batch.encoding, vectors.model, tokens)
        return self._passed_on(call, replace(fetched, body=body))

    async def _afresh(self, asked: Asked) -> Reply:
        """Ask for the whole batch as it came: what is stored and what came do not go together."""
        return await self._complete(replace(asked, found={}), range(len(asked.batch.inputs)))

    def _stand_in(self, asked: Asked, status: int) -> Whole | None:
        """Expired vectors in place of an upstream error, where the policy allows it."""
        every = {**asked.stale, **asked.found}
        if (
            status not in STALE_FOR
            or not all(question.key in every for question in asked.questions)
            or not go_together(every.values())
        ):
            return None
        return self._from_store(asked, every)

    def _failed(self, call: Call, failure: _Fetched | UpstreamError) -> Whole:
        if isinstance(failure, UpstreamError):
            return self._reply.failed(call, failure)
        call.note.reason = f"status-{failure.status}"
        return self._passed_on(call, failure)

    def _passed_on(self, call: Call, fetched: _Fetched) -> Whole:
        headers = self._reply.upstream_headers(call, fetched.headers)
        return Whole(fetched.status, headers, fetched.body)

    async def _fetch(self, asked: Asked, missing: Sequence[int]) -> _Fetched | UpstreamError:
        call, batch = asked.call, asked.batch
        body = remainder(batch, missing)
        call.waiting()
        unshared = b"" if asked.plan.lookup else os.urandom(16)
        keys = [asked.questions[at].key for at in missing]
        # The flight carries the answer as it comes, so its encoding is part of what is shared.
        tags = join(*(tag.encode() for tag in tags_of(call.labels)))
        flight_key = ExactKey(digest(_FLIGHT, batch.encoding.encode(), tags, unshared, *keys))
        after: Subscription | None = None
        for attempt in (0, 1):
            began = time.perf_counter()
            ticket = await self._collapser.join(
                flight_key,
                call.tenant,
                lambda flight: self._lead(call, body, flight),
                attempt=attempt,
                after=after,
            )
            after = flight = ticket.subscription
            follows = call.note.collapsed = ticket.role == "follow"
            try:
                fetched = await self._gather(flight, follows)
            finally:
                flight.leave()
            if not follows or (isinstance(fetched, _Fetched) and fetched.status < 400):
                break
            call.note.upstream_s += time.perf_counter() - began
        return fetched

    async def _gather(self, flight: Subscription, follows: bool) -> _Fetched | UpstreamError:
        """All of a flight. Who follows waits no longer than the config allows."""
        try:
            async with asyncio.timeout(self._wait if follows else None):
                head = await flight.head()
                if isinstance(head, Failed):
                    return head.error
                body = b"".join([chunk async for chunk in flight])
        except TimeoutError:
            return UpstreamError("leader-slow", "The call that this one followed is slow.", 504)
        except UpstreamError as error:
            return error
        return _Fetched(head.status, head.headers, body)

    async def _lead(self, call: Call, body: bytes, flight: Flight) -> None:
        began = time.perf_counter()
        try:
            response = await self._client.ask(_of_part(call, body), body)
        except UpstreamError as error:
            call.note.upstream_s += time.perf_counter() - began
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
            call.note.upstream_s += time.perf_counter() - began
            response.close()

    async def _take_in(
        self,
        asked: Asked,
        questions: Sequence[Question],
        vectors: Vectors,
        fetched: _Fetched,
        started: float,
    ) -> None:
        """Note what came, and store each item of it; or note why one of them was not stored."""
        call = asked.call
        note = call.note
        note.usage, note.response_model = vectors.usage, vectors.model
        if note.collapsed:
            note.outcome, note.tier = "collapsed", "exact"
        elif forbids_storing(fetched.headers):
            note.reason = "upstream-no-store"
        elif not asked.plan.store:
            note.reason = "ttl-0"
        else:
            entries = [
                entry_of(asked, question, vectors, place, started)
                for place, question in enumerate(questions)
            ]
            small = [entry for entry in entries if len(entry.body) <= call.settings.max_entry]
            bound = bound_of(call)
            keeping = (self._exact.keep(one, bound, replaces=asked.replaces) for one in small)
            reasons = await asyncio.gather(*keeping)
            if len(small) < len(entries):
                reasons.append("too-large")
            note.stored = not any(reasons)
            note.reason = next(filter(None, reasons), note.reason)


def _of_part(call: Call, body: bytes) -> Call:
    # What is left of a batch depends on what is stored, so its idempotency key goes by the body.
    headers = bound_to_body(call.headers, body)
    return call if headers is call.headers else replace(call, headers=headers)


def _judged(fetched: _Fetched, count: int) -> Vectors | NotStored:
    if fetched.status != 200:
        # An answer out of the store says 200: other successes are another answer.
        return NotStored(f"status-{fetched.status}")
    if media_type_of(fetched.headers) != "application/json":
        return NotStored("content-type")
    return read_answer(fetched.body, count)
