"""What the operator can ask of several workers: they answer together, or it is said who did not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from trivet.errors import RequestError, StoreError
from trivet.exact.hub import HubServer
from trivet.middleware.admin.answering import refusal_of
from trivet.middleware.admin.control import Heard, Said
from trivet.middleware.admin.fleet_operations import FleetOperations
from trivet.middleware.explain.explaining import Explainer
from trivet.policies.keygen import key_hash
from trivet.policies.source import PolicySource
from trivet.telemetry import Event, PolicyReload


class Hub:
    """Workers that answer what a test says, by topic."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    async def call_all(self, topic: str, payload: bytes, timeout_s: float) -> list[bytes]:
        self.asked.append((topic, json.loads(payload)))
        return [json.dumps(answer).encode() for answer in self.answers[topic]]


def fleet(
    policies: Path | None = None, workers: int = 2, **answers: list[Any]
) -> tuple[FleetOperations, Hub, list[Event]]:
    events: list[Event] = []
    hub = Hub(**answers)
    made = FleetOperations(
        cast(HubServer, hub),
        PolicySource(policies, b"s"),
        workers,
        events.append,
        Explainer(None, b"s"),
    )
    return made, hub, events


def worker(ok: bool = True, **states: str) -> dict[str, Any]:
    parts = [
        {"name": name, "ok": True, "state": state, "detail": state}
        for name, state in states.items()
    ]
    return {"ok": ok, "components": parts}


class TestReady:
    async def test_one_worker_is_enough(self) -> None:
        ready = await fleet(ready=[worker(), worker(ok=False)])[0].ready()
        assert ready.ok
        assert ready.components[0].detail == "1 of 2 ready"

    @pytest.mark.parametrize("answers", [[], [worker(ok=False)]])
    async def test_none_is_not(self, answers: list[Any]) -> None:
        ready = await fleet(ready=answers)[0].ready()
        assert not ready.ok
        assert ready.components[0].state == "down"

    async def test_a_fleet_that_drains_is_not(self) -> None:
        made, _, _ = fleet(ready=[worker()])
        made.draining = True
        ready = await made.ready()
        assert (ready.ok, ready.components[0].state) == (False, "draining")

    @pytest.mark.parametrize("states", [("up", "down"), ("down", "up")])
    async def test_a_part_is_shown_as_the_worker_sees_it_that_is_worst_off(
        self, states: tuple[str, str]
    ) -> None:
        answers = [worker(server="up", store=state) for state in states]
        ready = await fleet(ready=answers)[0].ready()
        assert [(part.name, part.state) for part in ready.components] == [
            ("workers", "up"),
            ("store", "down"),
        ]


class TestPurge:
    async def test_what_the_workers_deleted_is_summed(self) -> None:
        made, hub, _ = fleet(purge=[2, 1])
        assert await made.purge("acme", tag="x", version=None, key=None) == 3
        ((topic, asked),) = hub.asked
        assert asked.pop("at") > 0
        assert asked == {"tenant": "acme", "tag": "x", "version": None, "key": None}
        assert topic == "purge"

    async def test_one_key_is_one_answer(self) -> None:
        made, _, _ = fleet(purge=[1, 1])
        assert await made.purge("acme", tag=None, version=None, key="ab" * 32) == 1

    async def test_what_is_no_key_is_refused_before_anybody_is_asked(self) -> None:
        made, hub, _ = fleet(purge=[1, 1])
        with pytest.raises(RequestError):
            await made.purge("acme", tag=None, version=None, key="ab")
        assert hub.asked == []

    REFUSED = refusal_of(RequestError(404, "No policy declares the tenant 'x'.", field="tenant"))

    async def test_what_all_workers_refuse_alike_is_refused(self) -> None:
        made, _, _ = fleet(purge=[self.REFUSED, self.REFUSED])
        with pytest.raises(RequestError) as caught:
            await made.purge("x", tag=None, version=None, key=None)
        assert (caught.value.status, caught.value.field) == (404, "tenant")
        assert caught.value.message == "No policy declares the tenant 'x'."

    async def test_where_one_worker_refused_the_purge_is_not_confirmed(self) -> None:
        with pytest.raises(StoreError, match="run it again"):
            await fleet(purge=[2, self.REFUSED])[0].purge("x", tag=None, version=None, key=None)

    async def test_a_tenant_that_no_policy_declares_is_refused_before_anybody_is_asked(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "acme.yaml").write_text("tenant: acme\n")
        made, hub, _ = fleet(tmp_path)
        with pytest.raises(RequestError, match="No policy declares the tenant 'nope'"):
            await made.purge("nope", tag=None, version=None, key=None)
        assert hub.asked == []

    async def test_a_worker_that_did_not_confirm_is_told(self) -> None:
        with pytest.raises(StoreError) as caught:
            await fleet(purge=[2])[0].purge("acme", tag=None, version=None, key=None)
        assert caught.value.reason == "partial"


class TestReload:
    async def test_all_that_went_well_is_well(self) -> None:
        result = {"ok": True, "version": "none", "problems": 0}
        made, _, events = fleet(reload=[result, result])
        assert await made.reload() == PolicyReload(True, "none", 0)
        assert events == [PolicyReload(True, "none", 0)]

    async def test_a_worker_that_did_not_confirm_is_told(self) -> None:
        made, _, _ = fleet(reload=[{"ok": True, "version": "none", "problems": 0}])
        said = "1 of 2 workers confirmed; reload again."
        assert await made.reload() == PolicyReload(False, "none", 0, said)

    async def test_a_worker_that_kept_the_old_set_is_told(self) -> None:
        results = [{"ok": True, "version": "2", "problems": 0}]
        results.append({"ok": False, "version": "1", "problems": 3})
        assert await fleet(reload=results)[0].reload() == PolicyReload(False, "1", 3)


class TestFigures:
    @staticmethod
    def counted(value: float) -> dict[str, Any]:
        return {"counters": {"trivet_policy_reloads_total": [[["ok"], value]]}, "histograms": {}}

    async def test_a_worker_that_ended_stays_counted(self) -> None:
        made, hub, _ = fleet(metrics=[[1, self.counted(3)], [2, self.counted(4)]])
        assert b'trivet_policy_reloads_total{result="ok"} 7' in await made.metrics()
        hub.answers["metrics"] = [[2, self.counted(5)], [3, self.counted(1)]]
        for _ in range(2):
            assert b'trivet_policy_reloads_total{result="ok"} 9' in await made.metrics()

    async def test_stats_are_each_workers_own(self) -> None:
        assert await fleet(stats=[{"a": 1}, {"a": 2}])[0].stats() == {
            "workers": [{"a": 1}, {"a": 2}]
        }


async def test_explain_and_policies_are_answered_here() -> None:
    made, hub, _ = fleet()
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
    told = await made.explain("/v1/chat/completions", {}, body)
    assert told["tenant"] == "anonymous"
    assert made.policies() == {"version": "none", "tenants": {}}
    assert hub.asked == []


class TestExplainSemantic:
    BODY = b'{"model":"m","temperature":0,"messages":[{"role":"user","content":"x"}]}'

    @pytest.fixture
    def declared(self, tmp_path: Path) -> Path:
        key = f"credentials: [{{sha256: {key_hash('sk-a')}}}]"
        (tmp_path / "acme.yaml").write_text(f"tenant: acme\n{key}\nsemantic: {{mode: shadow}}\n")
        return tmp_path

    async def told(self, made: FleetOperations) -> dict[str, Any]:
        headers = {"authorization": "Bearer sk-a"}
        return await made.explain("/v1/chat/completions", headers, self.BODY)

    async def test_the_worker_that_serves_least_is_told_of(self, declared: Path) -> None:
        fine = {"reason": "", "detail": "", "closed": {}}
        made, hub, _ = fleet(declared, running=[fine, None, {**fine, "reason": "loading"}])
        assert (await self.told(made))["semantic"]["reason"] == "loading"
        assert hub.asked == [("running", "acme")]

    async def test_without_an_answer_it_says_what_the_policy_does(self, declared: Path) -> None:
        made, _, _ = fleet(declared, running=[])
        assert (await self.told(made))["semantic"]["reason"] == "uncalibrated"


class TestFeedback:
    @pytest.fixture
    def declared(self, tmp_path: Path) -> Path:
        (tmp_path / "acme.yaml").write_text("tenant: acme\n")
        return tmp_path

    async def test_one_worker_that_knows_the_hit_acts(self, declared: Path) -> None:
        told = {"id": "ab", "verdict": "wrong", "removed": True}
        made, hub, _ = fleet(declared, knows=[None, 7, 8], feedback=[None, told, None])
        assert await made.feedback("acme", "ab", "wrong") == told
        assert hub.asked == [
            ("knows", ["acme", "ab"]),
            ("feedback", [7, "acme", "ab", "wrong"]),
        ]

    async def test_a_hit_that_no_worker_knows_is_unknown(self, declared: Path) -> None:
        made, _, _ = fleet(declared, knows=[None, None])
        with pytest.raises(RequestError, match="ab"):
            await made.feedback("acme", "ab", "wrong")

    async def test_a_worker_that_does_not_confirm_is_trouble(self, declared: Path) -> None:
        made, _, _ = fleet(declared, knows=[7], feedback=[None])
        with pytest.raises(StoreError):
            await made.feedback("acme", "ab", "wrong")

    async def test_a_tenant_that_is_not_declared_is_named(self) -> None:
        with pytest.raises(RequestError, match="nobody"):
            await fleet()[0].feedback("nobody", "ab", "wrong")


class TestVerdicts:
    SAID = (Said("a", True), Said("b", False))

    @pytest.fixture
    def declared(self, tmp_path: Path) -> Path:
        (tmp_path / "acme.yaml").write_text("tenant: acme\n")
        return tmp_path

    async def test_the_first_worker_that_is_open_hears_them(self, declared: Path) -> None:
        told = [["a", "counted", False], ["b", "repeated", True]]
        made, hub, _ = fleet(declared, hears=[None, 7, 8], verdicts=[None, told, None])
        assert await made.verdicts("acme", self.SAID) == [
            Heard("a", "counted"),
            Heard("b", "repeated", True),
        ]
        assert hub.asked == [
            ("hears", None),
            ("verdicts", [7, "acme", [["a", True], ["b", False]]]),
        ]

    async def test_what_one_does_not_know_the_next_may(
        self, declared: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made, hub, _ = fleet(declared, hears=[7, 8])
        turns = [
            [[["a", "unknown", False], ["b", "counted", True]], None],
            [None, [["a", "unknown", False]]],
        ]

        async def answer(topic: str, payload: bytes, timeout_s: float) -> list[bytes]:
            if topic == "verdicts":
                hub.answers[topic] = turns.pop(0)
            return await Hub.call_all(hub, topic, payload, timeout_s)

        monkeypatch.setattr(hub, "call_all", answer)
        assert await made.verdicts("acme", self.SAID) == [
            Heard("a", "unknown"),
            Heard("b", "counted", True),
        ]
        assert hub.asked[-1] == ("verdicts", [8, "acme", [["a", True]]])

    async def test_a_worker_that_does_not_confirm_is_trouble(self, declared: Path) -> None:
        made, _, _ = fleet(declared, hears=[7], verdicts=[None])
        with pytest.raises(StoreError, match="send the verdicts again"):
            await made.verdicts("acme", self.SAID)

    async def test_what_a_worker_refuses_is_refused(self, declared: Path) -> None:
        refused = refusal_of(RequestError(503, "Later.", code="starting"))
        made, _, _ = fleet(declared, hears=[7], verdicts=[refused, None])
        with pytest.raises(RequestError, match="Later"):
            await made.verdicts("acme", self.SAID)

    async def test_without_an_open_tier_they_have_to_be_sent_again(self, declared: Path) -> None:
        made, _, _ = fleet(declared, hears=[None, None])
        with pytest.raises(RequestError) as caught:
            await made.verdicts("acme", self.SAID)
        assert (caught.value.status, caught.value.code) == (503, "semantic-not-open")

    async def test_a_tenant_that_is_not_declared_is_named(self) -> None:
        with pytest.raises(RequestError, match="nobody"):
            await fleet()[0].verdicts("nobody", self.SAID)
