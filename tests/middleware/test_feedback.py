"""A caller reports a similar answer: it is gone everywhere, and counted; nobody else's is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgi_driver import exchange
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError, StoreError
from trivet.middleware.feedback import Feedback, Told, read_told
from trivet.middleware.semantics import FEEDBACK_PATH
from trivet.middleware.visit import visit_of
from trivet.policies.intents import Intent
from trivet.policies.model import TenantPolicy
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
        self.feedback = Feedback(
            lambda tenant, hit: self.records.get((tenant, hit)), self.forget, self.monitor
        )

    async def forget(self, tenant: str, hit: str) -> None:
        if self.fails:
            raise StoreError("timeout")
        del self.records[tenant, hit]

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
