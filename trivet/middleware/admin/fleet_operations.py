"""The operator's side of several workers behind a hub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trivet.errors import RequestError, StoreError
from trivet.exact.hub import HubServer
from trivet.middleware.admin.answering import error_of, is_refusal
from trivet.middleware.admin.control import Ask, Component, Heard, Readiness, Said, Verdict
from trivet.middleware.admin.operations import (
    check_declared,
    full_key,
    not_open,
    shown_policies,
)
from trivet.middleware.admin.policy_check import checked
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.observe.exposition import Snapshot, exposition, merge, without_gauges
from trivet.middleware.semantic_tier.effective import Running
from trivet.middleware.semantic_tier.feedback import unknown
from trivet.policies.source import PolicySource
from trivet.telemetry import Observer, PolicyReload

_ASK_S = 10.0
_READY_S = 1.0
"""A worker that does not say within this time that it is ready is not."""


class FleetOperations:
    """`Control` of a supervisor: asks every worker over the hub."""

    def __init__(
        self,
        hub: HubServer,
        source: PolicySource,
        workers: int,
        observer: Observer,
        explainer: Explainer,
    ) -> None:
        self._hub = hub
        self._source = source
        self._workers = workers
        self._observer = observer
        self._explainer = explainer
        self._counted: dict[int, Snapshot] = {}
        self._ended: Snapshot = {"counters": {}, "histograms": {}}
        self.draining = False
        self.engine: Ask | None = None
        """The engine that the supervisor runs, where it does."""

    async def _ask(self, topic: str, payload: Any = None, timeout_s: float = _ASK_S) -> list[Any]:
        """The workers' answers. Raises `RequestError` if all that say something refuse alike."""
        answers = await self._hub.call_all(topic, orjson.dumps(payload), timeout_s)
        told = [orjson.loads(answer) for answer in answers]
        refusals = [answer for answer in told if is_refusal(answer)]
        said = [answer for answer in told if answer is not None]
        if refusals and all(answer == refusals[0] for answer in said):
            raise error_of(refusals[0])
        # Where workers differ, one that refused has not done it.
        return [answer for answer in told if not is_refusal(answer)]

    async def ready(self) -> Readiness:
        """Ready while at least one worker is, and the engine that runs beside them."""
        answers = await self._ask("ready", timeout_s=_READY_S)
        up = sum(1 for answer in answers if answer["ok"])
        workers = Component(
            "workers", up > 0, "up" if up else "down", f"{up} of {self._workers} ready"
        )
        if self.draining:
            workers = Component("workers", False, "draining")
        engine = () if self.engine is None else (await self.engine(),)
        ok = workers.ok and all(one.ok for one in engine)
        return Readiness(ok, (workers, *_worst(answers), *engine))

    async def stats(self) -> dict[str, Any]:
        """Each worker's figures; the stores they share appear once each."""
        return {"workers": await self._ask("stats")}

    async def purge(
        self, tenant: str, *, tag: str | None, version: str | None, key: str | None
    ) -> int:
        """Forget entries in every worker. Raises `StoreError` if one did not say that it did."""
        asked = {"tenant": tenant, "tag": tag, "version": version, "key": key, "at": time.time()}
        check_declared(self._source.current, tenant)
        if key is not None:
            full_key(key)
        answers = await self._ask("purge", asked)
        if len(answers) < self._workers:
            raise StoreError("partial", "not every worker confirmed the purge; run it again")
        return max(answers, default=0) if key is not None else sum(answers)

    async def feedback(self, tenant: str, hit: str, verdict: Verdict) -> dict[str, Any]:
        """Let one worker that knows the answer act on what the operator says of it.

        Raises `StoreError` if it did not say that it did.
        """
        if tenant not in self._source.current.tenants:
            raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")
        known = [worker for worker in await self._ask("knows", [tenant, hit]) if worker]
        if not known:
            raise unknown(hit)
        told = await self._ask("feedback", [known[0], tenant, hit, verdict])
        for answer in told:
            if answer is not None:
                return dict(answer)
        raise StoreError("partial", "the worker that knows it did not confirm; send it again")

    async def verdicts(self, tenant: str, said: Sequence[Said]) -> list[Heard]:
        """Let one worker after the other hear what those before did not know of.

        Where they share a store the first one knows all. Raises `StoreError` if one did not say
        that it did.
        """
        if tenant not in self._source.current.tenants:
            raise RequestError(404, f"No policy declares the tenant {tenant!r}.", field="tenant")
        workers = [worker for worker in await self._ask("hears") if worker]
        if not workers:
            raise not_open()
        heard = {one.id: Heard(one.id, "unknown") for one in said}
        for worker in workers:
            left = [list(one) for one in said if heard[one.id].outcome == "unknown"]
            if not left:
                break
            answers = await self._ask("verdicts", [worker, tenant, left])
            told = next((answer for answer in answers if answer is not None), None)
            if told is None:
                raise StoreError("partial", "a worker did not confirm; send the verdicts again")
            heard.update((one[0], Heard(*one)) for one in told)
        return [heard[one.id] for one in said]

    async def reload(self) -> PolicyReload:
        """Read the policies again, here and in every worker, once their files are at rest.

        `ok` is also False where not every worker said that it has read them.
        """
        told = asyncio.create_task(self._ask("reload"))
        result = await self._source.reload_at_rest()
        self._observer(result)
        answers = await told
        for answer in answers:
            if not answer["ok"]:
                result = PolicyReload(**answer)
        if result.ok and len(answers) < self._workers:
            said = f"{len(answers)} of {self._workers} workers confirmed; reload again."
            return PolicyReload(False, result.version, 0, detail=said)
        return result

    async def explain(
        self, path: str, headers: Mapping[str, str], body: bytes, tenant: str | None = None
    ) -> dict[str, Any]:
        """What would happen to a request under the policies in use."""
        tenants = self._source.tenants
        told = self._explainer.explain(tenants, path, headers, body, tenant=tenant)
        if told["semantic"] is None or told["semantic"]["mode"] == "off":
            return told
        answers = await self._ask("running", told["tenant"])
        known = [Running(**answer) for answer in answers if answer is not None]
        # The one that serves least: which worker a request meets is chance.
        worst = max(known, key=lambda one: (bool(one.reason), len(one.closed)), default=None)
        return self._explainer.explain(
            tenants, path, headers, body, lambda policy: worst, tenant=tenant
        )

    async def metrics(self) -> bytes:
        """The metrics of all workers, summed; what ended workers had counted stays counted."""
        answers = dict(await self._ask("metrics"))
        for pid in self._counted.keys() - answers.keys():
            self._ended = merge([self._ended, without_gauges(self._counted.pop(pid))])
        self._counted.update(answers)
        return await asyncio.to_thread(exposition, merge([self._ended, *answers.values()]))

    async def check_policy(self, text: str) -> dict[str, Any]:
        """What a text would be as a policy file."""
        return await checked(self._source, text)

    async def tell(self, topic: str, asked: Any = None) -> list[Any]:
        """What each worker knows of a topic of the console."""
        return [told for told in await self._ask("tell", [topic, asked]) if told is not None]

    def policies(self) -> dict[str, Any]:
        """The policies in use."""
        return shown_policies(self._source)


def _worst(answers: list[Any]) -> list[Component]:
    """Each component of the workers once, as the one sees it that is worst off."""
    parts: dict[str, Component] = {}
    for answer in answers:
        for part in answer["components"]:
            seen = Component(**part)
            if seen.name not in parts or parts[seen.name].state == "up":
                parts[seen.name] = seen
    parts.pop("server", None)
    return list(parts.values())
