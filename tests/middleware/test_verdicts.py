"""A person judged hits that were drawn: each counts once, and a wrong one is taken out."""

from __future__ import annotations

from typing import Any

import pytest
from parts import calibration

from trivet.errors import RequestError, StoreError
from trivet.exact.seal import Seal
from trivet.middleware.admin.control import Heard, Said
from trivet.middleware.semantic_tier.verdicts import Verdicts
from trivet.policies.model import TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.draws import DrawNames, drawn
from trivet.semantic.monitor import Monitor
from trivet.semantic.monitor_store import MemoryMonitorStore
from trivet.semantic.tally import Counts, digest_of
from trivet.telemetry import Event, SemanticAudit

AT = "chat:m", "informational"
RECORD = "ab" * 16
NOW = 1_000_000.0


def tenant(name: str = "acme", threshold: float = 0.8) -> TenantPolicy:
    semantic = SemanticPolicy(mode="replace")
    semantic.attach(calibration(threshold))
    return TenantPolicy(tenant=name, semantic=semantic)


ACME = tenant()


class Office:
    """Verdicts over records that are only remembered to be gone."""

    def __init__(self, store: MemoryMonitorStore | None = None) -> None:
        self.events: list[Event] = []
        self.names = DrawNames(Seal(b"s" * 32))
        self.monitor = Monitor(store, self.events.append)
        self.gone: list[tuple[str, str]] = []
        self.fails = False
        self.now = NOW
        self.verdicts = Verdicts(self.names, self.forget, self.monitor, lambda: self.now)

    async def forget(self, tenant: str, record: str) -> None:
        if self.fails:
            raise StoreError("timeout")
        self.gone.append((tenant, record))

    def draw(self, policy: TenantPolicy = ACME, **fields: Any) -> str:
        measured = digest_of(policy.semantic.measured)
        made = drawn(self.monitor.book, measured, AT, RECORD, NOW)._replace(**fields)
        return self.names.name(policy.tenant, made)

    async def say(self, draw: str, same: bool, policy: TenantPolicy = ACME) -> Heard:
        (heard,) = await self.verdicts.give(policy, [Said(draw, same)])
        assert heard.id == draw
        return heard

    @property
    def counts(self) -> dict[tuple[str, str], Counts]:
        return self.monitor.counts("acme", ACME.semantic)


async def test_a_hit_that_was_right_is_counted_and_stays() -> None:
    office = Office()
    assert (await office.say(office.draw(), True))[1:] == ("counted", False)
    assert office.counts == {AT: Counts(audits=1)}
    assert office.gone == []


async def test_a_false_hit_is_counted_taken_out_and_told() -> None:
    office = Office()
    assert (await office.say(office.draw(), False))[1:] == ("counted", True)
    assert office.counts == {AT: Counts(audits=1, false_hits=1)}
    assert office.gone == [("acme", RECORD)]
    (event,) = (one for one in office.events if isinstance(one, SemanticAudit))
    assert (event.tenant, event.judge, event.same) == ("acme", "person", False)


async def test_a_verdict_that_is_given_again_is_told_so() -> None:
    office = Office()
    draw = office.draw()
    await office.say(draw, True)
    assert (await office.say(draw, True)).outcome == "repeated"
    assert (await office.say(draw, False)).outcome == "repeated"
    assert office.counts == {AT: Counts(audits=1)}


async def test_two_draws_of_one_hit_are_two_audits() -> None:
    office = Office()
    said = [Said(office.draw(), True), Said("nothing", True), Said(office.draw(), False)]
    heard = await office.verdicts.give(ACME, said)
    assert [one.outcome for one in heard] == ["counted", "unknown", "counted"]
    assert office.counts == {AT: Counts(audits=2, false_hits=1)}


@pytest.mark.parametrize(
    ("policy", "fields", "outcome"),
    [
        (tenant("other"), {}, "unknown"),
        (ACME, {"book": "another"}, "unknown"),
        (ACME, {"at": NOW - 91 * 86400}, "expired"),
        (ACME, {"calibration": "another"}, "recalibrated"),
    ],
)
async def test_what_does_not_count_is_told_why_and_changes_nothing(
    policy: TenantPolicy, fields: dict[str, Any], outcome: str
) -> None:
    office = Office()
    draw = office.draw(policy, **fields)
    assert (await office.say(draw, False))[1:] == (outcome, False)
    assert (office.counts, office.gone, office.events) == ({}, [], [])


async def test_a_draw_of_an_old_calibration_does_not_speak_of_the_new_one() -> None:
    office = Office()
    draw = office.draw()
    assert (await office.say(draw, False, tenant(threshold=0.9))).outcome == "recalibrated"
    assert (await office.say(draw, False)).outcome == "counted"


async def test_another_process_over_the_same_store_takes_it_and_none_over_another() -> None:
    store = MemoryMonitorStore()
    one, other, stranger = Office(store), Office(store), Office(MemoryMonitorStore())
    for office in (one, other, stranger):
        await office.monitor.step()
    draw = one.draw()
    assert (await stranger.say(draw, True)).outcome == "unknown"
    assert (await other.say(draw, True)).outcome == "counted"
    assert (await one.say(draw, True)).outcome == "repeated"


async def test_until_the_store_was_read_nothing_is_taken() -> None:
    office = Office(MemoryMonitorStore())
    with pytest.raises(RequestError) as caught:
        await office.say("x", True)
    assert (caught.value.status, caught.value.code) == (503, "starting")


async def test_a_record_that_cannot_be_taken_out_is_not_counted_until_it_can() -> None:
    office = Office()
    draw = office.draw()
    office.fails = True
    with pytest.raises(RequestError) as caught:
        await office.say(draw, False)
    assert (caught.value.status, caught.value.code) == (503, "store-timeout")
    assert office.counts == {}
    office.fails = False
    assert (await office.say(draw, False))[1:] == ("counted", True)
