"""The live doctor's shell: off the request path, bounded, and heard in log and metrics."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from traffic_parts import call_of, policy

from trivet.messages import Usage
from trivet.middleware.call import Call
from trivet.middleware.observe.logs import LogObserver, configure
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.prefix_tier import doctoring
from trivet.middleware.prefix_tier.doctoring import Doctoring
from trivet.middleware.prefix_tier.shapes import Examined
from trivet.telemetry import Event, PrefixBreak, PrefixUse

RULES = "Answer in the language of the question. " * 60


UNREAD = Usage(900, 5)


def call(clock: str, usage: Usage = UNREAD, **given: Any) -> Call:
    system = {"role": "system", "content": f"It is {clock}. {RULES}"}
    made = call_of(messages=[system, {"role": "user", "content": "hi"}], **given)
    made.note.usage = usage
    return made


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


class Heard(list[Event]):
    def __call__(self, event: Event, /) -> None:
        self.append(event)

    @property
    def breaks(self) -> list[PrefixBreak]:
        return [one for one in self if isinstance(one, PrefixBreak)]

    @property
    def uses(self) -> list[PrefixUse]:
        return [one for one in self if isinstance(one, PrefixUse)]


async def test_a_break_is_told_on_the_event_loop() -> None:
    heard = Heard()
    doctor = Doctoring(heard, rest=0)
    for clock in ("15:09:20", "15:09:48"):
        doctor.hand(call(clock))
    await until(lambda: bool(heard.breaks))
    doctor.close()
    (found,) = heard.breaks
    assert (found.tenant, found.route, found.cause) == ("t1", "chat", "timestamp")
    assert found.place == "system (messages[0].content), character 6"
    assert found.text == ""


async def test_the_share_of_cached_tokens_is_told_with_it() -> None:
    heard = Heard()
    doctor = Doctoring(heard, rest=0)
    doctor.hand(call("15:09:20", Usage(1_000, 5, 500)))
    doctor.hand(call("15:09:48", Usage(1_000, 5, 500)))
    await until(lambda: bool(heard.breaks))
    doctor.close()
    assert heard.breaks[0].cached_share == 0.5
    told = [(one.tokens, one.cached, one.calls) for one in heard.uses]
    assert tuple(map(sum, zip(*told, strict=True))) == (2_000, 1_000, 2)


async def test_hits_and_followers_are_not_looked_at() -> None:
    heard = Heard()
    doctor = Doctoring(heard)
    for outcome in ("hit", "stale", "collapsed"):
        one = call("15:09:20")
        one.note.outcome, one.note.tier = outcome, "exact"
        doctor.hand(one)
    failed = call("15:09:20")
    failed.note.outcome = "error"
    doctor.hand(failed)
    doctor.close()
    assert heard == []


async def test_what_it_has_no_time_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctoring, "_BYTES", 3 * len(call("15:09:20").request.forward))
    heard = Heard()
    doctor = Doctoring(heard, rest=1e9)
    for _ in range(9):
        doctor.hand(call("15:09:20"))
    doctor.close()
    await until(lambda: bool(heard.uses))
    unseen = sum(one.unseen for one in heard.uses)
    assert 5 <= unseen <= 6
    metrics = PrometheusObserver()
    for one in heard:
        metrics(one)
    assert f'trivet_prefix_unseen_total{{tenant="t1"}} {unseen}.0' in metrics.render().decode()


async def test_calls_are_told_of_together() -> None:
    heard = Heard()
    doctor = Doctoring(heard, rest=1e9)
    for _ in range(3):
        doctor.hand(call("15:09:20", Usage(1_000, 5, 500)))
    unknown = call("15:09:20")
    unknown.note.usage = None
    doctor.hand(unknown)
    assert heard.uses == []
    await until(lambda: bool(heard.uses))
    doctor.close()
    assert heard.uses == [PrefixUse("t1", "chat", 3_000, 1_500, 0, 3)]


@pytest.mark.parametrize("known", [True, False])
async def test_unknown_caches_get_less_of_its_time(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a look took is owed hundredfold before the next one, where no cache is known of."""
    monkeypatch.setattr(doctoring, "_AHEAD_S", 0.0)
    monkeypatch.setattr(doctoring, "_SPARING", 1e9)
    monkeypatch.setattr(doctoring, "cache_of", lambda call: "vllm" if known else "")
    seen: list[object] = []
    heard = Heard()
    doctor = Doctoring(heard, rest=0)
    doctor.examined = seen.append
    doctor.hand(call("15:09:20"))
    await until(lambda: bool(seen))
    while not (known or doctor._later):
        await asyncio.sleep(0.001)
    doctor.hand(call("15:09:20"))
    await until(lambda: bool(heard.uses))
    doctor.close()
    assert sum(one.unseen for one in heard.uses) == (0 if known else 1)


async def test_a_queue_that_is_long_enough_takes_none_of_an_unknown_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctoring, "_FEW", 2)
    heard = Heard()
    doctor = Doctoring(heard, rest=1e9)
    for _ in range(9):
        doctor.hand(call("15:09:20"))
    await until(lambda: bool(heard.uses))
    doctor.close()
    assert 6 <= sum(one.unseen for one in heard.uses) <= 7


async def test_a_body_that_cannot_be_read_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    doctor = Doctoring(heard, rest=0)
    monkeypatch.setattr(doctoring, "outline_as_sent", lambda *given: 1 / 0)
    doctor.hand(call("15:09:20"))
    await until(lambda: doctor.failed == 1)
    monkeypatch.undo()
    for clock in ("15:09:20", "15:09:48"):
        doctor.hand(call(clock))
    await until(lambda: bool(heard.breaks))
    doctor.close()


async def test_the_text_around_a_break_is_told_only_where_the_policy_lets_it() -> None:
    heard = Heard()
    doctor = Doctoring(heard, rest=0)
    owner = policy().model_copy(
        update={"prefix": policy().prefix.model_copy(update={"keep_text": True})}
    )
    for clock in ("15:09:20", "15:09:48"):
        doctor.hand(call(clock, owner=owner))
    await until(lambda: bool(heard.breaks))
    doctor.close()
    assert "It is 15:09:48." in heard.breaks[0].text


def test_only_a_new_break_is_a_line_in_the_log() -> None:
    out = io.BytesIO()
    configure("info", "json", stream=out)
    log, metrics = LogObserver(), PrometheusObserver()
    told = ("a timestamp", "put it at the end")
    for new in (True, False):
        event = PrefixBreak(
            "t1", "chat", "system, character 6", "timestamp", *told, 10, 900, 0.25, new, ""
        )
        log(event)
        metrics(event)
    structlog.reset_defaults()
    (line,) = [json.loads(raw) for raw in out.getvalue().splitlines()]
    assert {name: line[name] for name in line if name != "timestamp"} == {
        "level": "warning",
        "event": "prefix-break",
        "tenant": "t1",
        "route": "chat",
        "place": "system, character 6",
        "cause": "timestamp",
        "shared_tokens": 10,
        "lost_tokens": 900,
        "cached_share": 0.25,
        "detail": "a timestamp",
        "fix": "put it at the end",
    }
    text = metrics.render().decode()
    labels = '{cause="timestamp",route="chat",tenant="t1"}'
    assert f"trivet_prefix_breaks_total{labels} 2.0" in text
    assert f"trivet_prefix_lost_tokens_total{labels} 1800.0" in text


async def test_what_was_looked_at_is_told_with_its_shape_and_a_purged_tenant_is_forgotten() -> None:
    heard, seen = Heard(), list[Examined]()
    doctor = Doctoring(heard, rest=0)
    doctor.examined = seen.append
    doctor.forget("t1")
    doctor.hand(call("15:09:20"))
    await until(lambda: len(seen) == 1)
    doctor.forget("t1")
    for clock in ("15:09:48", "15:10:07"):
        doctor.hand(call(clock))
    await until(lambda: len(seen) == 3)
    doctor.close()
    assert [one.finding is None for one in seen] == [True, True, False]
    assert seen[2].shape.broken == 0
    assert (seen[2].shape.input_tokens, seen[2].shape.read_tokens) == (900, 0)
    assert not seen[2].with_text


async def test_what_waits_or_is_looked_at_while_its_tenant_is_purged_is_never_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard, seen, go = Heard(), list[Examined](), threading.Event()
    doctor = Doctoring(heard, rest=0)
    doctor.examined = seen.append
    look = doctor._see

    def slowly(job: Any) -> Any:
        go.wait(10)
        return look(job)

    monkeypatch.setattr(doctor, "_see", slowly)
    for clock in ("15:09:20", "15:09:48", "15:10:07"):
        doctor.hand(call(clock))
    doctor.forget("t1")
    go.set()
    doctor.hand(call("15:11:00"))
    await until(lambda: len(seen) == 1)
    doctor.close()
    await asyncio.sleep(0)
    assert [one.finding for one in seen] == [None]
    assert heard.breaks == []
