"""The path of one request through the tiers, in the order of the picture in docs/structure.md."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, assert_never

from trivet.canonical import digest
from trivet.errors import UpstreamError
from trivet.exact.collapse import Collapser, Ticket
from trivet.exact.flight import Failed, Flight, Head, Result, Stored, Subscription, Unstored
from trivet.exact.key import keyed, pool_key
from trivet.exact.tier import ExactTier, Hit, Miss, Question, carrying
from trivet.messages import ExactKey
from trivet.middleware.arrival.recall import Known
from trivet.middleware.call import Call, Live, Note, Reply, Whole
from trivet.middleware.record import STALE_FOR, Leader, asking_usage
from trivet.middleware.replay import (
    StreamFilter,
    follower_shapes,
    hides_usage,
    without_usage,
)
from trivet.middleware.reply import Replies
from trivet.middleware.semantic_tier.suggest import Similarity, suggested_to, suggests
from trivet.middleware.upstream import Sender
from trivet.policies.directives import tags_of
from trivet.policies.eligibility import Bypass, Eligible

if TYPE_CHECKING:
    from trivet.middleware.semantic_tier.tier import Suggested

_REPLAYED = Head(200, ((b"x-trivet-replayed", b"1"),), stream=False)
"""Head of a flight without an upstream call: its result is an answer out of the store."""


_MOST_LABELS = 64
"""Of an answer that takes the place of one which carried other tags."""


class CachePipeline:
    """Asks the tiers one after the other, and the upstream last."""

    def __init__(
        self,
        exact: ExactTier,
        collapser: Collapser,
        client: Sender,
        replies: Replies,
        collapse_wait: float,
        similar: Similarity | None = None,
    ) -> None:
        self._similar = similar
        self._exact = exact
        self._collapser = collapser
        self._client = client
        self._leader = Leader(client, exact)
        self._reply = replies
        self._wait = collapse_wait

    async def answer(self, call: Call) -> Reply:
        """The reply to one request. Raises nothing that is not a defect."""
        plan = call.plan
        if isinstance(plan, Bypass):
            call.note.outcome, call.note.reason = "bypass", plan.reason
            if plan.only_if_cached:
                return self._reply.not_cached(call)
            return await self._forward(call)
        question = await _question(call, plan)
        found = carrying(await self._find(call, question, plan), call.labels)
        if isinstance(found, Hit):
            call.remember(call, found.entry)
            return self._reply.hit(call, call.note, found)
        call.note.outcome, call.note.reason = "miss", found.reason
        if self._similar is not None and plan.lookup and not plan.pool:
            similar = await self._similar.find(call, question)
            if similar is not None and not (plan.only_if_cached and suggests(similar)):
                return await self._suggest(call, similar)
        if plan.only_if_cached:
            return self._reply.not_cached(call)
        return await self._fetch(call, plan, question, found)

    async def _suggest(self, call: Call, similar: Suggested) -> Reply:
        """The answer to a similar question: in place of the model's, or beside it."""
        if not suggests(similar):
            return self._reply.similar(call, similar)
        suggested_to(call, similar)
        return await self._forward(call)

    async def again(self, known: Known, note: Note) -> Whole | Hit | Miss:
        """The reply to a request that came before.

        Where it has to be decided afresh, what was found, for the call's `asked`.
        """
        found = await self._exact.find(known.question)
        if isinstance(found, Hit) and known.labels <= found.entry.labels:
            return self._reply.hit(known, note, found)
        return found

    async def _find(self, call: Call, question: Question, plan: Eligible) -> Hit | Miss:
        keys = [pool_key(question.key, slot) for slot in range(plan.pool or 0)]
        if not plan.lookup:
            return Miss("no-cache", keys[0] if keys else question.key)
        if keys:
            return await self._exact.draw(question, keys)
        if call.asked is not None and call.asked[0] == question:
            return call.asked[1]
        return await self._exact.find(question)

    async def _forward(self, call: Call) -> Reply:
        """The upstream's answer as it comes, but for usage that only Trivet asked for."""
        call.waiting()
        began = time.perf_counter()
        asked = call.body or call.request.forward
        body = asking_usage(call, asked)
        try:
            response = await self._client.ask(call, body)
        except UpstreamError as error:
            call.note.upstream_s += time.perf_counter() - began
            return self._reply.failed(call, error)

        def release() -> None:
            call.note.upstream_s += time.perf_counter() - began
            call.note.usage, call.note.response_model = response.told()
            response.close()

        headers = self._reply.upstream_headers(call, response.headers)
        chunks = response.chunks()
        if body is not asked and response.media_type == "text/event-stream":
            chunks = without_usage(chunks)
        return Live(response.status, headers, chunks, release)

    async def _fetch(self, call: Call, plan: Eligible, question: Question, missed: Miss) -> Reply:
        """One upstream call per key in flight; everybody else follows it."""
        key = missed.key
        shared = plan.lookup and not plan.pool
        # Who asks under other tags does not follow: the answer would not carry them.
        tags = tags_of(call.labels) if call.labels else None
        flight_key = ExactKey(digest(key, *(tag.encode() for tag in tags))) if tags else key
        if not shared:
            flight_key = ExactKey(digest(key, os.urandom(16)))
        if missed.labels and len(call.labels | missed.labels) <= _MOST_LABELS:
            call.labels |= missed.labels
        call.waiting()
        after: Subscription | None = None
        for attempt in (0, 1):
            began = time.perf_counter()
            ticket = await self._collapser.join(
                flight_key,
                call.tenant,
                lambda flight: self._lead(call, plan, question, missed, flight),
                attempt=attempt,
                after=after,
            )
            after = ticket.subscription
            call.note.collapsed = ticket.role == "follow"
            reply = await self._board(call, ticket, missed, last=attempt == 1)
            if reply is not None:
                return reply
            call.note.upstream_s += time.perf_counter() - began
        call.note.collapsed = False
        began = time.perf_counter()
        async with self._collapser.own_call(flight_key):
            call.note.upstream_s += time.perf_counter() - began
            reply = await self._forward(call)
        if missed.stale and reply.status in STALE_FOR:
            if isinstance(reply, Live):
                await reply.close()
            return self._reply.hit(call, call.note, missed.stale)
        return reply

    async def _lead(
        self, call: Call, plan: Eligible, question: Question, missed: Miss, flight: Flight
    ) -> None:
        """Make the upstream call, unless another process has stored the answer by now.

        Between this process's miss and its claim, the process that led before may have ended.
        A store that was in trouble a moment ago is not paid for twice.
        """
        looks_again = self._collapser.has_fleet and plan.lookup
        if looks_again and not missed.reason.startswith("store-"):
            asked = question._replace(key=missed.key)
            found = carrying(await self._exact.find(asked), call.labels)
            if isinstance(found, Hit):
                flight.start(_REPLAYED)
                flight.finish(Stored(found.entry))
                return
        await self._leader.run(call, plan, missed, flight)

    async def _board(self, call: Call, ticket: Ticket, missed: Miss, *, last: bool) -> Reply | None:
        """The reply that this flight gives the caller; None if a follower has to try again."""
        flight, leads = ticket.subscription, ticket.role == "lead"
        handed_over = False
        try:
            head = await (flight.head() if leads else self._head(flight))
            if head is None:
                return None
            failed = isinstance(head, Failed) or head.status >= 400
            if failed and not leads and not last:
                return None
            if isinstance(head, Failed):
                return self._failed(call, missed, head.error)
            if missed.stale and head.status in STALE_FOR:
                return self._reply.hit(call, call.note, missed.stale)
            if head == _REPLAYED:
                return await self._await_result(call, flight)
            if call.request.stream == head.stream or failed or leads:
                reply = await self._deliver(call, ticket, head, missed)
                handed_over = isinstance(reply, Live)
                return reply
            return await self._await_result(call, flight)
        finally:
            if not handed_over:
                flight.leave()

    async def _head(self, flight: Subscription) -> Head | Failed | None:
        """The upstream's head; None if a follower has waited long enough for it."""
        try:
            async with asyncio.timeout(self._wait):
                return await flight.head()
        except TimeoutError:
            return None

    def _failed(self, call: Call, missed: Miss, error: UpstreamError) -> Whole:
        if missed.stale and error.status in STALE_FOR:
            return self._reply.hit(call, call.note, missed.stale)
        return self._reply.failed(call, error)

    async def _deliver(self, call: Call, ticket: Ticket, head: Head, missed: Miss) -> Reply | None:
        flight, leads = ticket.subscription, ticket.role == "lead"
        if head.stream:
            headers = self._reply.upstream_headers(call, head.headers)
            if not leads and head.status < 300:
                call.note.outcome, call.note.tier = "collapsed", "exact"
            return Live(head.status, headers, self._stream(call, flight, leads), flight.leave)
        if not leads and head.status < 300:
            return await self._await_result(call, flight)
        try:
            return await self._gather(call, flight, head)
        except UpstreamError as error:
            return self._failed(call, missed, error)

    async def _await_result(self, call: Call, flight: Subscription) -> Reply | None:
        result = await flight.result()
        if isinstance(result, Stored):
            reply = self._reply.shared(call, result.entry)
            call.note.stored = not result.reason
            return reply
        return None

    async def _gather(self, call: Call, flight: Subscription, head: Head) -> Reply:
        """A JSON answer in one piece, so that its head can say whether it was stored."""
        body = flight.rest()
        if body is None or len(body) > call.settings.max_entry:
            parts = [body] if body else []
            body = await self._read(flight, parts, call.settings.max_entry)
            if body is None:
                headers = self._reply.upstream_headers(call, head.headers)
                chunks = self._rest(call, flight, parts)
                return Live(head.status, headers, chunks, flight.leave)
        self._note_result(call, await flight.result())
        headers = self._reply.upstream_headers(call, head.headers)
        return Whole(head.status, headers, body)

    async def _read(self, flight: Subscription, parts: list[bytes], most: int) -> bytes | None:
        """The whole body, begun with `parts`; None if it is too large: `parts` is what has come."""
        size = sum(map(len, parts))
        if size > most:
            return None
        async for chunk in flight:
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                return None
        return b"".join(parts)

    async def _rest(
        self,
        call: Call,
        flight: Subscription,
        parts: list[bytes],
    ) -> AsyncGenerator[bytes, None]:
        yield b"".join(parts)
        async for chunk in flight:
            yield chunk
        self._note_result(call, await flight.result())

    async def _stream(
        self, call: Call, flight: Subscription, leads: bool
    ) -> AsyncGenerator[bytes, None]:
        hide = hides_usage(call.dialect, call.request)
        if leads and call.upstream.stream_usage == "leave":
            # Nothing was asked for on this caller's behalf; who follows may follow one who asked.
            hide = False
        shapes = () if leads else follower_shapes(call.dialect, call.request)
        shape = StreamFilter(hide_usage=hide, shapes=shapes)
        plain = leads and not hide
        async for chunk in flight:
            piece = chunk if plain else shape.push(chunk)
            if piece:
                yield piece
        if shape.rest():
            yield shape.rest()
        self._note_result(call, await flight.result())

    def _note_result(self, call: Call, result: Result) -> None:
        match result:
            case Stored():
                call.note.stored, call.note.entry = not result.reason, result.entry
                if call.note.stored:
                    call.remember(call, result.entry)
                    if self._similar is not None:
                        self._similar.learn(call, result.entry)
                call.note.reason = result.reason or call.note.reason
                call.note.usage = result.entry.usage
                call.note.response_model = result.entry.model
            case Unstored():
                call.note.reason = result.reason
                call.note.usage, call.note.response_model = result.usage, result.model
            case Failed():
                call.note.outcome, call.note.reason = "error", result.error.reason
            case _:
                assert_never(result)


_LARGE = 1 << 20
"""Hashing takes about 0.7 ms a MiB: beyond this size it happens in a thread."""


async def _question(call: Call, plan: Eligible) -> Question:
    if len(call.parts.canonical) > _LARGE:
        key, canonical = await asyncio.to_thread(keyed, call.parts)
    else:
        key, canonical = keyed(call.parts)
    call.question = call.question_for(plan, key, canonical)
    return call.question
