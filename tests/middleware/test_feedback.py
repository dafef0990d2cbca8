"""A caller reports a similar answer: it is gone everywhere, and counted; nobody else's is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from asgi_driver import exchange
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError, StoreError
from trivet.middleware.arrival.visit import visit_of
from trivet.middleware.semantic_tier.feedback import Feedback, Told, caller_of, read_told
from trivet.middleware.semantic_tier.semantics import FEEDBACK_PATH
from trivet.policies.intents import Intent
from trivet.policies.model import ExactPolicy, TenantPolicy
from trivet.policies.tenants import Identified
from trivet.semantic.monitor import Monitor
from trivet.semantic.tally import Counts
from trivet.semantic.types import Partition, Record
from trivet.telemetry import Event, SemanticAudit

HIT = "ab" * 16
ACME, OTHER = TenantPolicy(tenant="acme"), TenantPolicy(tenant="other")


def record(tenant: str) -> Record:
    return Record(
        id=HIT,
        tenant=tenant,
        partition=Partition(b"p" * 32),
        key=b"k" * 32,
        text="q",
        vector=b"",
        intent=Intent.INFORMATIONAL,
        created=0.0,
        expires=9e9,
    )


class Desk:
    """Feedback over records in a dictionary."""

    def __init__(self, *tenants: str) -> None:
        self.records = {(tenant, HIT): record(tenant) for tenant in tenants}
        self.events: list[Event] = []
        self.monitor = Monitor(observer=self.events.append)
        self.fails = False
        self.now = 0.0
        self.feedback = Feedback(
            lambda tenant, hit: self.records.get((tenant, hit)),
            self.forget,
            self.monitor,
            lambda: self.now,
        )

    async def forget(self, tenant: str, hit: str) -> None:
        if self.fails:
            raise StoreError("timeout")
        await asyncio.sleep(0)
        self.records.pop((tenant, hit), None)

    async def give(self, hit: str, who: bytes, judge: str = "caller") -> None:
        self.records["acme", hit] = replace(record("acme"), id=hit)
        await self.feedback.give(ACME, Told(hit, "wrong"), judge, who)

    async def post(self, body: Any, policy: TenantPolicy = ACME, method: str = "POST") -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = exchange(method, FEEDBACK_PATH, raw)
        reply = await self.feedback.serve(visit_of(asked.scope, asked.receive), policy)
        assert reply.status == 200
        return json.loads(reply.body)

    @property
    def reported(self) -> int:
        counts = self.monitor.counts("acme", ACME.semantic)
        return counts.get(("", "informational"), Counts()).reported


async def test_a_wrong_answer_is_taken_out_and_counted() -> None:
    desk = Desk("acme")
    told = await desk.post({"id": HIT, "verdict": "wrong"})
    assert told == {"id": HIT, "verdict": "wrong", "removed": True}
    assert desk.records == {}
    assert desk.reported == 1
    (event,) = desk.events
    assert isinstance(event, SemanticAudit)
    assert (event.tenant, event.intent, event.judge, event.same) == (
        "acme",
        "informational",
        "caller",
        False,
    )


async def test_a_right_answer_stays() -> None:
    desk = Desk("acme")
    told = await desk.post({"id": HIT, "verdict": "right"})
    assert told == {"id": HIT, "verdict": "right", "removed": False}
    assert len(desk.records) == 1
    assert desk.reported == 0


async def test_one_answer_is_reported_once() -> None:
    desk = Desk("acme")
    await desk.post({"id": HIT, "verdict": "wrong"})
    with pytest.raises(RequestError) as caught:
        await desk.post({"id": HIT, "verdict": "wrong"})
    assert caught.value.status == 404
    assert desk.reported == 1


async def test_reports_of_one_hit_at_once_count_once() -> None:
    desk = Desk("acme")
    told = Told(HIT, "wrong")
    given = (desk.feedback.give(ACME, told, "caller", b"%d" % n) for n in range(80))
    assert all(one["removed"] for one in await asyncio.gather(*given))
    assert desk.reported == 1
    assert len(desk.events) == 1


async def test_of_one_caller_one_report_in_a_window_counts_and_each_takes_out() -> None:
    desk = Desk()
    for number in range(80):
        await desk.give(f"{number:032x}", b"one")
    assert (desk.reported, desk.records) == (1, {})
    await desk.give("c" * 32, b"two")
    assert desk.reported == 2
    desk.now += 601
    await desk.give("d" * 32, b"one")
    assert desk.reported == 3


async def test_every_report_of_the_operator_counts() -> None:
    desk = Desk()
    for number in range(5):
        await desk.give(f"{number:032x}", b"", "operator")
    assert desk.reported == 5


async def test_a_caller_is_the_user_that_a_header_names_else_the_credential() -> None:
    gateway = TenantPolicy(tenant="acme", exact=ExactPolicy(user_from="header:X-User"))
    caller = Identified(ACME, "acme", "own", b"credential")

    def who(policy: TenantPolicy, *headers: tuple[bytes, bytes]) -> bytes:
        asked = exchange("POST", FEEDBACK_PATH)
        asked.scope["headers"] = list(headers)
        visit = visit_of(asked.scope, asked.receive)
        visit.caller = caller
        return caller_of(visit, policy)

    ann, bob = (b"x-user", b"ann"), (b"x-user", b"bob")
    assert len({who(gateway, ann), who(gateway, bob), who(gateway)}) == 3
    assert who(ACME, ann) == who(ACME, bob) == who(gateway)


async def test_another_tenants_answer_is_as_unknown_as_one_that_never_was() -> None:
    desk = Desk("acme")
    said = []
    for hit in (HIT, "cd" * 16):
        with pytest.raises(RequestError) as caught:
            await desk.post({"id": hit, "verdict": "wrong"}, OTHER)
        assert (caught.value.status, caught.value.field) == (404, "id")
        said.append(caught.value.message.replace(hit, "ID"))
    assert said[0] == said[1]
    assert len(desk.records) == 1


async def test_a_store_in_trouble_is_told_and_nothing_is_counted() -> None:
    desk = Desk("acme")
    desk.fails = True
    with pytest.raises(RequestError) as caught:
        await desk.post({"id": HIT, "verdict": "wrong"})
    assert (caught.value.status, caught.value.code) == (503, "store-timeout")
    assert desk.reported == 0
    desk.fails = False
    await desk.post({"id": HIT, "verdict": "wrong"})
    assert desk.reported == 1


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_it_takes_posts_only(method: str) -> None:
    with pytest.raises(RequestError) as caught:
        await Desk().post({}, method=method)
    assert caught.value.status == 405


async def test_a_large_body_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        await Desk().post(b" " * 5000)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", None),
        (b"[]", None),
        (b"\xff", None),
        (b'{"id": 1, "id": 2}', "id"),
        ({}, "id"),
        ({"id": 7, "verdict": "wrong"}, "id"),
        ({"id": "AB" * 16, "verdict": "wrong"}, "id"),
        ({"id": HIT + "\n", "verdict": "wrong"}, "id"),
        ({"id": HIT}, "verdict"),
        ({"id": HIT, "verdict": "bad"}, "verdict"),
        ({"id": HIT, "verdict": ["wrong"]}, "verdict"),
        ({"id": HIT, "verdict": "wrong", "tenant": "other"}, "tenant"),
    ],
)
def test_a_body_that_is_wrong_names_the_field(body: Any, field: str | None) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(RequestError) as caught:
        read_told(raw)
    assert (caught.value.status, caught.value.field) == (400, field)


@given(st.binary(max_size=60))
def test_any_bytes_are_told_or_refused(raw: bytes) -> None:
    found: Told | RequestError
    try:
        found = read_told(raw)
    except RequestError as error:
        found = error
    assert isinstance(found, Told) or found.status == 400
