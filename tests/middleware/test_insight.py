"""What people see of similar answers, and what their verdicts do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai_bodies import completion
from test_feedback import HIT, record

from trivet.errors import RequestError, StoreError
from trivet.exact.entry import Entry
from trivet.exact.memory import MemoryStore
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.exact.tier import ExactTier
from trivet.messages import Api, ExactKey
from trivet.middleware.semantic_tier.feedback import Feedback
from trivet.middleware.semantic_tier.hit_log import HitLog, Row
from trivet.middleware.semantic_tier.insight import PAGE, Insight, Known
from trivet.middleware.semantic_tier.label_queue import LabelQueue
from trivet.middleware.semantic_tier.verdicts import Verdicts
from trivet.policies.model import TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.draws import DrawNames, drawn
from trivet.semantic.monitor import Monitor
from trivet.semantic.tally import Counts, digest_of
from trivet.semantic.types import Record
from trivet.telemetry import ignore

EVER = float("inf")
NAMES = DrawNames(Seal(b"s" * 32))
ACME = TenantPolicy(tenant="acme", semantic=SemanticPolicy(mode="replace", store_text=True))
SILENT = TenantPolicy(tenant="acme", semantic=SemanticPolicy(mode="replace"))
OTHER = TenantPolicy(tenant="other", semantic=SemanticPolicy(mode="replace", store_text=True))


def row(number: int = 0, **given: Any) -> Row:
    made = {
        "id": f"1-{number}",
        "at": float(number),
        "told": "hit",
        "reason": "",
        "intent": "informational",
        "route": "chat",
        "model": "m",
        "text": "how can I",
        "record": HIT,
        "key": b"k" * 32,
        "context": "c0",
        "score": 0.9,
    }
    return Row(**{**made, **given})


class Desk:
    """An insight over one record of one tenant, whose answer is stored."""

    def __init__(self, folder: Path) -> None:
        self.records: dict[tuple[str, str], Record] = {("acme", HIT): record("acme")}
        self.store = MemoryStore(1 << 20)
        self.monitor = Monitor()
        self.log = HitLog()
        self.folder = folder
        self.fails = False
        feedback = Feedback(self.find, self.forget, self.monitor)
        known = Known(
            self.find, ExactTier(self.store, ignore), self.monitor, self.log, LabelQueue(folder)
        )
        self.insight = Insight(known, feedback, Verdicts(NAMES, self.forget, self.monitor))

    def find(self, tenant: str, hit: str) -> Record | None:
        return self.records.get((tenant, hit))

    async def forget(self, tenant: str, hit: str) -> None:
        if self.fails:
            raise StoreError("timeout")
        self.records.pop((tenant, hit), None)

    def keep(self, *rows: Row) -> None:
        for one in rows:
            self.log._add("acme", "hits", one)

    async def answer(self, text: str) -> None:
        body = completion()
        body["choices"][0]["message"]["content"] = text
        made = Entry(
            *(ExactKey(b"k" * 32), "acme", Api.CHAT, b"{}", orjson.dumps(body), "m", None, ()),
            *(0.0, 9e9, 9e9),
        )
        await self.store.put(made, Bound())

    @property
    def labels(self) -> list[dict[str, Any]]:
        file = self.folder / "acme.jsonl"
        return (
            [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
        )

    @property
    def counts(self) -> Counts:
        total = Counts()
        for one in self.monitor.counts("acme", ACME.semantic).values():
            total = total.plus(one)
        return total


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_hit_is_told_with_both_texts_and_the_answer(desk: Desk) -> None:
    await desk.answer("forty-two")
    desk.keep(row())
    (told,) = await desk.insight.rows(ACME, "hits", EVER)
    assert (told["stored"], told["asked"], told["answer"]) == ("q", "how can I", "forty-two")
    assert "key" not in told
    assert "context" not in told


async def test_no_text_is_told_once_the_policy_forbids_it(desk: Desk) -> None:
    await desk.answer("forty-two")
    desk.keep(row())
    (told,) = await desk.insight.rows(SILENT, "hits", EVER)
    assert told["asked"] is None
    assert not {"stored", "answer"} & told.keys()
    (again,) = await desk.insight.rows(ACME, "hits", EVER)
    assert again["asked"] is None


async def test_what_was_purged_is_not_told(desk: Desk) -> None:
    desk.keep(row())
    desk.records.clear()
    (told,) = await desk.insight.rows(ACME, "hits", EVER)
    assert told["there"] is False
    assert not {"stored", "answer"} & told.keys()
    desk.insight.forget("acme")
    assert await desk.insight.rows(ACME, "hits", EVER) == []


async def test_a_page_at_a_time_is_told(desk: Desk) -> None:
    desk.keep(*(row(number) for number in range(PAGE + 3)))
    first = await desk.insight.rows(ACME, "hits", EVER)
    second = await desk.insight.rows(ACME, "hits", first[-1]["at"])
    assert [one["at"] for one in (*first, *second)] == list(range(PAGE + 2, -1, -1))


async def test_wrong_takes_the_answer_out_and_is_a_report_and_a_label(desk: Desk) -> None:
    desk.keep(row())
    done = await desk.insight.judge(ACME, "1-0", "wrong")
    assert done == {"verdict": "wrong", "labelled": True, "counted": "report", "removed": True}
    assert desk.records == {}
    assert desk.counts.reported == 1
    (label,) = desk.labels
    assert (label["a"], label["b"], label["same"]) == ("q", "how can I", False)
    assert (label["context"], label["labelled_by"]) == ("c0", "person")


async def test_right_leaves_the_answer_and_counts_nothing(desk: Desk) -> None:
    desk.keep(row())
    done = await desk.insight.judge(ACME, "1-0", "right")
    assert done == {"verdict": "right", "labelled": True, "counted": "report", "removed": False}
    assert desk.counts == Counts()
    assert desk.labels[0]["same"] is True


@pytest.mark.parametrize(("verdict", "false_hits"), [("right", 0), ("wrong", 1)])
async def test_a_hit_that_was_drawn_counts_in_the_bound(
    desk: Desk, verdict: Any, false_hits: int
) -> None:
    at = "chat:m", "informational"
    draw = drawn(desk.monitor.book, digest_of(None), at, HIT, time.time())
    desk.keep(row(draw=NAMES.name("acme", draw)))
    done = await desk.insight.judge(ACME, "1-0", verdict)
    assert done is not None
    assert done["counted"] == "audit"
    assert desk.counts == Counts(audits=1, false_hits=false_hits)
    assert (("acme", HIT) in desk.records) == (verdict == "right")


async def test_a_draw_of_an_earlier_calibration_is_a_report(desk: Desk) -> None:
    draw = drawn(desk.monitor.book, "another", ("chat:m", "informational"), HIT, 0.0)
    desk.keep(row(draw=NAMES.name("acme", draw)))
    done = await desk.insight.judge(ACME, "1-0", "wrong")
    assert done is not None
    assert (done["counted"], done["removed"]) == ("report", True)
    assert desk.counts == Counts(reported=1)


async def test_a_verdict_is_given_once(desk: Desk) -> None:
    desk.keep(row())
    await desk.insight.judge(ACME, "1-0", "right")
    with pytest.raises(RequestError) as caught:
        await desk.insight.judge(ACME, "1-0", "wrong")
    assert caught.value.status == 409
    assert ("acme", HIT) in desk.records
    assert len(desk.labels) == 1


async def test_a_store_in_trouble_leaves_the_verdict_to_be_given_again(desk: Desk) -> None:
    desk.keep(row())
    desk.fails = True
    with pytest.raises(RequestError) as caught:
        await desk.insight.judge(ACME, "1-0", "wrong")
    assert caught.value.status == 503
    assert (desk.counts, desk.labels) == (Counts(), [])
    desk.fails = False
    assert await desk.insight.judge(ACME, "1-0", "wrong") is not None
    assert desk.counts.reported == 1


async def test_nobody_judges_another_tenants_hit(desk: Desk) -> None:
    desk.keep(row())
    assert await desk.insight.judge(OTHER, "1-0", "wrong") is None
    assert ("acme", HIT) in desk.records


async def test_without_texts_there_is_no_label(desk: Desk) -> None:
    desk.keep(row(text=None))
    done = await desk.insight.judge(SILENT, "1-0", "wrong")
    assert done is not None
    assert (done["labelled"], done["removed"]) == (False, True)
    assert desk.labels == []
