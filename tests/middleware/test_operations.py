"""What the operator can ask of one process."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trivet.errors import RequestError, StoreError
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.store import Bound, StoreStats
from trivet.messages import Api, ExactKey
from trivet.middleware.admin.answering import error_of, handlers_of, is_refusal
from trivet.middleware.admin.control import Heard, Said
from trivet.middleware.admin.health import StoreHealth
from trivet.middleware.admin.operations import (
    Operations,
    follow_policies,
    full_key,
    shown_policies,
    stop,
)
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.semantic_tier.feedback import Told
from trivet.policies.model import TenantPolicy
from trivet.policies.source import PolicySource
from trivet.telemetry import Event, PolicyReload

KEY = ExactKey(b"k" * 32)


class Broken(MemoryStore):
    async def ready(self) -> None:
        raise StoreError("refused")

    async def usage(self, tenant: str | None) -> StoreStats:
        raise StoreError("timeout")


def entry(name: bytes, *labels: str) -> Entry:
    return Entry(
        key=ExactKey(name * 32),
        tenant="acme",
        api=Api.CHAT,
        canonical=b"c",
        body=b"b",
        model="m",
        usage=None,
        ids=(),
        created=0.0,
        expires=4e9,
        stale_until=4e9,
        labels=frozenset(labels),
    )


def operations(
    store: MemoryStore | None = None, policies: Path | None = None
) -> tuple[Operations, MemoryStore, list[Event]]:
    events: list[Event] = []
    kept = store or MemoryStore()
    explainer = Explainer(Routing([UpstreamConfig(name="main", base_url="http://u")], {}), b"s")
    made = Operations(
        PolicySource(policies, b"s"),
        kept,
        PrometheusObserver(Pricing()),
        events.append,
        explainer,
        StoreHealth(),
    )
    return made, kept, events


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "acme.yaml").write_text("tenant: acme\n")
    return tmp_path


class TestReady:
    async def test_a_process_that_serves_is_ready(self) -> None:
        ready = await operations()[0].ready()
        assert ready.ok
        assert [(part.name, part.state) for part in ready.components] == [
            ("server", "up"),
            ("policies", "up"),
            ("store:memory", "up"),
        ]

    async def test_one_that_drains_is_not(self) -> None:
        made, _, _ = operations()
        made.draining = True
        ready = await made.ready()
        assert not ready.ok
        assert ready.components[0].state == "draining"

    async def test_a_store_in_trouble_costs_hits_and_not_readiness(self) -> None:
        ready = await operations(Broken())[0].ready()
        assert ready.ok
        assert (ready.components[2].state, ready.components[2].ok) == ("down", True)
        assert "refused" in ready.components[2].detail

    async def test_policies_that_cannot_be_read_are_told(self, folder: Path) -> None:
        made, _, events = operations(policies=folder)
        (folder / "acme.yaml").write_text("tenant: acme\nnonsense: 1\n")
        result = await made.reload()
        assert (result.ok, events) == (False, [result])
        ready = await made.ready()
        assert ready.ok
        assert ready.components[1].state == "stale"
        assert "nonsense" in ready.components[1].detail


class TestStats:
    async def test_the_store_and_the_counters(self) -> None:
        stats = await operations()[0].stats()
        assert stats["store"]["entries"] == 0
        assert "trivet_requests_total" in stats["metrics"]

    async def test_a_store_in_trouble_says_so(self) -> None:
        assert (await operations(Broken())[0].stats())["store"] == {
            "name": "memory",
            "error": "timeout",
        }

    async def test_metrics_are_prometheus_text(self) -> None:
        assert b"# TYPE trivet_requests_total counter" in await operations()[0].metrics()


class TestPurge:
    @pytest.mark.parametrize(
        ("which", "left"),
        [
            ({}, set()),
            ({"tag": "x"}, {b"b", b"c"}),
            ({"version": "prompt=7"}, {b"a", b"c"}),
            ({"key": (b"c" * 32).hex()}, {b"a", b"b"}),
        ],
    )
    async def test_it_forgets_what_was_named(self, which: dict[str, str], left: set[bytes]) -> None:
        made, store, _ = operations()
        kept = [entry(b"a", "tag:x"), entry(b"b", "version:prompt=7"), entry(b"c")]
        for one in kept:
            await store.put(one, Bound())
        tag, version, key = (which.get(name) for name in ("tag", "version", "key"))
        gone = await made.purge("acme", tag=tag, version=version, key=key)
        assert gone == 3 - len(left)
        found = {one.key[:1] for one in kept if await store.get("acme", one.key)}
        assert found == left

    async def test_another_tenants_are_not_touched(self) -> None:
        made, store, _ = operations()
        await store.put(entry(b"a"), Bound())
        assert await made.purge("globex", tag=None, version=None, key=None) == 0
        assert await store.get("acme", ExactKey(b"a" * 32)) is not None

    @pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 33])
    def test_what_is_no_key_is_a_422(self, text: str) -> None:
        with pytest.raises(RequestError) as caught:
            full_key(text)
        assert (caught.value.status, caught.value.field) == (422, "key")

    def test_a_key_is_read_from_hex(self) -> None:
        assert full_key(KEY.hex()) == KEY


class TestExplain:
    async def test_it_speaks_of_the_upstreams_in_use(self) -> None:
        body = b'{"model":"m","temperature":0,"messages":[{"role":"user","content":"x"}]}'
        told = await operations()[0].explain("/v1/chat/completions", {}, body)
        assert (told["tenant"], told["upstream"]) == ("anonymous", "main")


class TestPolicies:
    def test_they_are_shown_as_json(self, folder: Path) -> None:
        shown = operations(policies=folder)[0].policies()
        assert json.loads(json.dumps(shown))["tenants"]["acme"]["tenant"] == "acme"
        assert shown == shown_policies(PolicySource(folder, b"s"))


class TestHandlers:
    async def test_a_worker_answers_its_supervisor_as_json(self) -> None:
        made, store, _ = operations()
        await store.put(entry(b"a"), Bound())
        handlers = handlers_of(made)
        asked = b'{"tenant":"acme","tag":null,"version":null,"key":null}'
        topics = ("ready", "stats", "metrics", "reload", "purge")
        answers = {topic: json.loads(await handlers[topic](asked)) for topic in topics}
        assert answers["ready"]["ok"] is True
        assert answers["stats"]["store"]["name"] == "memory"
        assert answers["metrics"][0] == os.getpid()
        assert answers["reload"] == {"ok": True, "version": "none", "problems": 0, "detail": ""}
        assert answers["purge"] == 1

    async def test_a_worker_tells_its_supervisor_what_it_refuses(self, folder: Path) -> None:
        handlers = handlers_of(operations(policies=folder)[0])
        asked = b'{"tenant":"nope","tag":null,"version":null,"key":null}'
        answer = json.loads(await handlers["purge"](asked))
        assert is_refusal(answer)
        assert error_of(answer).message == "No policy declares the tenant 'nope'."


class TestFollowPolicies:
    async def test_every_reload_is_told(self) -> None:
        events: list[Event] = []

        class Source(PolicySource):
            async def watch(self) -> AsyncIterator[PolicyReload]:
                yield PolicyReload(True, "1", 0)
                yield PolicyReload(False, "1", 2)

        await follow_policies(Source(None, b"s"), events.append)
        assert events == [PolicyReload(True, "1", 0), PolicyReload(False, "1", 2)]

    async def test_it_can_be_stopped(self) -> None:
        async def for_ever() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(for_ever())
        await stop(task)
        assert task.cancelled()


class TestFeedback:
    async def test_it_goes_to_the_tenants_records(self, folder: Path) -> None:
        made, _, _ = operations(policies=folder)
        made.similar = desk = cast(Any, Desk())
        handlers = handlers_of(made)
        assert json.loads(await handlers["knows"](b'["acme", "ab"]')) == os.getpid()
        assert json.loads(await handlers["knows"](b'["acme", "cd"]')) is None
        asked = json.dumps([os.getpid(), "acme", "ab", "wrong"]).encode()
        assert json.loads(await handlers["feedback"](asked)) == {"removed": True}
        assert desk.told == [("acme", "ab", "wrong", "operator")]

    async def test_another_workers_is_left_to_it(self, folder: Path) -> None:
        made, _, _ = operations(policies=folder)
        made.similar = desk = cast(Any, Desk())
        assert await handlers_of(made)["feedback"](b'[-1, "acme", "ab", "wrong"]') == b"null"
        assert desk.told == []

    @pytest.mark.parametrize(("tenant", "field"), [("nobody", "tenant"), ("acme", "id")])
    async def test_a_tenant_or_a_hit_that_is_not_there_is_named(
        self, folder: Path, tenant: str, field: str
    ) -> None:
        made, _, _ = operations(policies=folder)
        with pytest.raises(RequestError) as caught:
            await made.feedback(tenant, "ab", "wrong")
        assert (caught.value.status, caught.value.field) == (404, field)


class TestVerdicts:
    ASKED = (Said("one", True), Said("two", False))

    @staticmethod
    def opened(folder: Path, verdicts: Office | None) -> Operations:
        made, _, _ = operations(policies=folder)
        made.semantics = cast(Any, SimpleNamespace(verdicts=verdicts))
        return made

    async def test_they_go_to_the_open_tier(self, folder: Path) -> None:
        office = Office()
        handlers = handlers_of(self.opened(folder, office))
        assert json.loads(await handlers["hears"](b"null")) == os.getpid()
        asked = json.dumps([os.getpid(), "acme", self.ASKED]).encode()
        assert json.loads(await handlers["verdicts"](asked)) == [
            ["one", "counted", False],
            ["two", "counted", False],
        ]
        assert office.told == [("acme", self.ASKED[0]), ("acme", self.ASKED[1])]

    async def test_another_workers_are_left_to_it(self, folder: Path) -> None:
        office = Office()
        handlers = handlers_of(self.opened(folder, office))
        assert await handlers["verdicts"](b'[-1, "acme", [["one", true]]]') == b"null"
        assert office.told == []

    async def test_a_tier_that_is_not_open_says_to_send_them_again(self, folder: Path) -> None:
        made = self.opened(folder, None)
        assert await handlers_of(made)["hears"](b"null") == b"null"
        with pytest.raises(RequestError) as caught:
            await made.verdicts("acme", self.ASKED)
        assert (caught.value.status, caught.value.code) == (503, "semantic-not-open")

    async def test_a_tenant_that_is_not_declared_is_named(self, folder: Path) -> None:
        with pytest.raises(RequestError) as caught:
            await self.opened(folder, Office()).verdicts("nobody", self.ASKED)
        assert (caught.value.status, caught.value.field) == (404, "tenant")


class Office:
    """Verdicts that all count."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Said]] = []

    async def give(self, policy: TenantPolicy, said: Sequence[Said]) -> list[Heard]:
        self.told += [(policy.tenant, one) for one in said]
        return [Heard(one.id, "counted") for one in said]


class Desk:
    """Feedback that knows the hit `ab`."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def knows(self, tenant: str, hit: str) -> bool:
        return hit == "ab"

    async def give(self, policy: TenantPolicy, told: Told, judge: str) -> dict[str, Any]:
        self.told.append((policy.tenant, *told, judge))
        return {"removed": True}
