"""A share of the similar answers is compared with what the model says, behind the caller's back."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asgi_driver import Exchange, Rig, Script, Sent, json_script
from openai_bodies import completion

from trivet.errors import UpstreamError
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.exact.tier import ExactTier, Hit, Question
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.call import Call
from trivet.middleware.record import Leader
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.semantic_tier.audits import Audits, Bench
from trivet.middleware.semantic_tier.judging import judges
from trivet.middleware.semantic_tier.label_queue import LabelQueue
from trivet.middleware.semantic_tier.tier import Suggested
from trivet.policies.intents import Intent
from trivet.policies.model import TenantPolicy
from trivet.policies.queued_pair import is_queued, read_queued
from trivet.policies.semantic_model import Audit, Judge, SemanticPolicy
from trivet.semantic.bag_of_words import BagOfWords
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.decide import Decision, Kind
from trivet.semantic.draws import DrawNames
from trivet.semantic.judges import Judge as AnyJudge
from trivet.semantic.monitor import Monitor
from trivet.semantic.tally import Counts
from trivet.semantic.tier import Asking, Looked
from trivet.semantic.types import Intention, Neighbour, Partition, Record
from trivet.telemetry import SemanticAudit

STORED, ASKED = "how do I reset it", "how can I reset it"
AT = "chat:m", "informational"
NAMES = DrawNames(Seal(b"s" * 32))
UNJUDGED = Counts(lookups=1, hits=1)
UPSTREAMS = (
    UpstreamConfig(name="main", base_url="http://u"),
    UpstreamConfig(name="judge", base_url="http://j/v1", credential_env="JUDGE_KEY"),
)
ENV = {"JUDGE_KEY": "sk-judge"}


def acme(share: float = 1.0, store_text: bool = False, **judge: Any) -> TenantPolicy:
    audit = Audit(share=share, judge=Judge(**{"kind": "equality", **judge}))
    semantic = SemanticPolicy(mode="replace", audit=audit, store_text=store_text)
    return TenantPolicy(tenant="acme", semantic=semantic)


def says(text: str) -> dict[str, Any]:
    made = completion()
    made["choices"][0]["message"]["content"] = text
    return made


def model(answers: dict[str, str], verdict: str = "same") -> Callable[[Sent], Script]:
    """An upstream that answers by the last message, and the judge's with `verdict`."""

    def answer(sent: Sent) -> Script:
        if sent.upstream == "judge":
            return json_script(says(verdict))
        return json_script(says(answers[sent.json["messages"][-1]["content"]]))

    return answer


def looked_up(call: Call, entry: Entry, kind: Kind = "hit") -> Looked:
    record = Record(
        id="ab" * 16,
        tenant=call.tenant,
        partition=Partition(b"p" * 32),
        key=entry.key,
        text=STORED,
        vector=b"",
        intent=Intent.INFORMATIONAL,
        created=entry.created,
        expires=entry.expires,
    )
    decision = Decision(kind, "", Neighbour(record, 0.97), 0.97, 0.9)
    asking = Asking(call.tenant, call.policy.semantic, ASKED, b"r" * 32, "somebody")
    return Looked(decision, asking, None, None, Intention(Intent.INFORMATIONAL, True))


class Likeness:
    """In place of the tier: `ASKED` is served what is stored for `STORED`."""

    def __init__(self, audits: Audits) -> None:
        self.audits = audits
        self.entry: Entry | None = None
        self.kind: Kind = "hit"
        self.intention: Intention | None = Intention(Intent.INFORMATIONAL, True)
        self.gone = False

    async def find(self, call: Call, question: Question) -> Suggested | None:
        if self.entry is None or ASKED.encode() not in question.canonical:
            return None
        looked = replace(looked_up(call, self.entry, self.kind), intention=self.intention)
        call.looked = looked
        hit = Hit(self.entry, 1.0, 100.0)
        found = None if self.kind == "shadow" or self.gone else Suggested(hit, looked)
        self.audits.looked(call, found)
        if found is None:
            return None
        self.audits.served(call, found)
        return found

    def learn(self, call: Call, entry: Entry) -> None:
        if self.entry is None:
            self.entry = entry
        elif call.looked is not None:
            self.audits.shadowed(call, call.looked, entry)


class Audited:
    """A proxy whose similar answers are audited."""

    def __init__(
        self,
        *scripts: Any,
        policy: TenantPolicy | None = None,
        rng: random.Random | None = None,
        labels: LabelQueue | None = None,
        judge: AnyJudge | None = None,
    ) -> None:
        self.rig = Rig(*scripts, policies=[policy or acme()], upstreams=UPSTREAMS, env=ENV)
        self.monitor = Monitor(observer=self.rig.events.append)
        exact = ExactTier(self.rig.store, self.rig.events.append)
        named = judges(self.rig.upstream, Routing(UPSTREAMS, ENV), lambda policy: None)
        self.audits = Audits(
            Leader(self.rig.upstream, exact),
            exact,
            self.rig.collapser,
            Bench(self.monitor, named if judge is None else lambda call: judge, labels, NAMES),
            rng or random.Random(7),
        )
        self.likeness = Likeness(self.audits)
        self.rig.reception._pipeline._similar = self.likeness

    async def chat(self, text: str, **fields: Any) -> Exchange:
        return await self.rig.chat(text, **fields)

    @property
    def counts(self) -> Counts:
        policy = self.rig.reception._identify([(b"authorization", b"Bearer sk-acme")], None)
        assert policy is not None
        found = self.monitor.counts("acme", policy.policy.semantic)
        return found.get(AT, Counts())


SAME = {STORED: "Press it.", ASKED: "press it"}
OTHER = {STORED: "Press it.", ASKED: "Pull it."}


class TestAudit:
    async def test_an_answer_that_is_the_models_own_counts_as_the_same(self) -> None:
        audited = Audited(model(SAME))
        await audited.chat(STORED)
        reply = await audited.chat(ASKED)
        await audited.audits.idle()
        assert reply.json["choices"][0]["message"]["content"] == "Press it."
        assert audited.counts == Counts(audits=1, lookups=1, hits=1)

    async def test_another_answer_counts_as_a_false_hit_and_is_told(self) -> None:
        audited = Audited(model(OTHER))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert audited.counts == Counts(1, 1, 1, 1)
        (told,) = (event for event in audited.rig.events if isinstance(event, SemanticAudit))
        assert (told.tenant, told.judge, told.same) == ("acme", "equality", False)

    async def test_the_caller_does_not_wait_for_it(self) -> None:
        gate = asyncio.Event()

        async def slow(sent: Sent) -> Script:
            if ASKED in sent.body.decode():
                await gate.wait()
            return model(SAME)(sent)

        audited = Audited(slow)
        await audited.chat(STORED)
        reply = await audited.chat(ASKED)
        assert reply.status == 200
        assert audited.counts == UNJUDGED
        gate.set()
        await audited.audits.idle()
        assert audited.counts == Counts(audits=1, lookups=1, hits=1)

    async def test_the_model_is_asked_as_the_caller_would_have_asked_it(self) -> None:
        audited = Audited(model(SAME))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        first, second = audited.rig.upstream.sent
        assert second.json == {**first.json, "messages": [{"role": "user", "content": ASKED}]}
        assert second.header("authorization") == b"Bearer sk-acme"

    async def test_the_new_answer_is_the_exact_one_from_then_on(self) -> None:
        audited = Audited(model(OTHER))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        again = await audited.chat(ASKED)
        assert again.exact["hit"] is True
        assert again.json["choices"][0]["message"]["content"] == "Pull it."
        assert len(audited.rig.upstream.sent) == 2

    async def test_a_shadow_is_compared_at_no_further_call(self) -> None:
        audited = Audited(model(OTHER))
        audited.likeness.kind = "shadow"
        await audited.chat(STORED)
        reply = await audited.chat(ASKED)
        await audited.audits.idle()
        assert reply.json["choices"][0]["message"]["content"] == "Pull it."
        assert audited.counts == Counts(1, 1, 1, 1)
        assert len(audited.rig.upstream.sent) == 2


class TestSample:
    @pytest.mark.parametrize("share", [0.0, 1.0])
    async def test_none_or_all(self, share: float) -> None:
        audited = Audited(model(SAME), policy=acme(share))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert audited.counts.audits == share

    async def test_the_share_is_drawn_by_the_proxy(self) -> None:
        rng = random.Random(3)
        drawn = random.Random(3)
        expected = sum(drawn.random() < 0.3 for _ in range(40))
        audited = Audited(model(SAME), policy=acme(0.3), rng=rng)
        await audited.chat(STORED)
        for number in range(40):
            # Another key each time, so that no audit's answer is served to the next one.
            await audited.chat(ASKED, max_tokens=100 + number)
        await audited.audits.idle()
        assert audited.counts.audits == expected

    async def test_too_many_at_once_are_dropped_and_counted(self) -> None:
        gate = asyncio.Event()

        async def slow(sent: Sent) -> Script:
            if ASKED in sent.body.decode():
                await gate.wait()
            return model(SAME)(sent)

        audited = Audited(slow)
        await audited.chat(STORED)
        for number in range(70):
            await audited.chat(ASKED, max_tokens=100 + number)
        assert audited.audits.dropped == 2
        assert audited.rig.collapser.flights == 4
        gate.set()
        await audited.audits.idle()
        assert audited.counts.audits == 68

    async def test_nobody_is_asked_where_nobody_would_judge(self) -> None:
        audited = Audited(model(SAME), policy=acme(kind="person"))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert len(audited.rig.upstream.sent) == 1


class TestTrouble:
    @pytest.mark.parametrize(
        "trouble",
        [
            UpstreamError("upstream-refused", "gone"),
            json_script({"error": {"message": "no"}}, status=500),
            json_script(says("")),
        ],
    )
    async def test_no_complete_answer_is_no_verdict(self, trouble: Any) -> None:
        audited = Audited(json_script(says("Press it.")), trouble)
        await audited.chat(STORED)
        assert (await audited.chat(ASKED)).status == 200
        await audited.audits.idle()
        assert (audited.counts, audited.audits.unjudged) == (UNJUDGED, 1)

    @pytest.mark.parametrize("crashes", [True, False])
    async def test_a_judge_that_cannot_tell_or_crashes_counts_for_nothing(
        self, crashes: bool
    ) -> None:
        class Unsure:
            name = "unsure"

            async def judge(self, question: str, stored: str, fresh: str) -> bool | None:
                if crashes:
                    raise RuntimeError
                return None

        audited = Audited(model(SAME), judge=Unsure())
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert (audited.counts, audited.audits.unjudged) == (UNJUDGED, 1)

    async def test_closing_gives_up_what_runs(self) -> None:
        async def never(sent: Sent) -> Script:
            if ASKED in sent.body.decode():
                await asyncio.Event().wait()
            return model(SAME)(sent)

        audited = Audited(never)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.close()
        await audited.rig.collapser.close(0)
        assert audited.counts == UNJUDGED


class TestLlm:
    @pytest.mark.parametrize(("verdict", "false_hits"), [("Same.", 0), ("different", 1)])
    async def test_a_model_judges_with_its_own_upstreams_key(
        self, verdict: str, false_hits: int
    ) -> None:
        policy = acme(kind="llm", upstream="judge", model="j", prompt="{question}|{stored}|{fresh}")
        audited = Audited(model(OTHER, verdict), policy=policy)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        asked = audited.rig.upstream.sent[-1]
        assert (asked.upstream, asked.target) == ("judge", "/v1/chat/completions")
        assert asked.header("authorization") == b"Bearer sk-judge"
        assert (asked.json["model"], asked.json["temperature"]) == ("j", 0)
        assert asked.json["messages"][1]["content"] == f'"{ASKED}"|"Press it."|"Pull it."'
        assert audited.counts == Counts(1, false_hits, 1, 1)

    @pytest.mark.parametrize(
        "trouble",
        [
            UpstreamError("upstream-refused", "gone"),
            json_script(says("same"), status=429),
            json_script(says("perhaps")),
            Script(b"<html>"),
            Script(b" " * (1 << 20), b"x"),
        ],
    )
    async def test_a_judge_in_trouble_cannot_tell(self, trouble: Any) -> None:
        policy = acme(kind="llm", upstream="judge", model="j")
        audited = Audited(json_script(says("a")), json_script(says("b")), trouble, policy=policy)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert (audited.counts, audited.audits.unjudged) == (UNJUDGED, 1)

    async def test_a_judge_at_an_upstream_that_is_not_declared_judges_nothing(self) -> None:
        audited = Audited(model(SAME), policy=acme(kind="llm", upstream="gone", model="j"))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert len(audited.rig.upstream.sent) == 1


class TestEmbedder:
    @pytest.mark.parametrize(("answer", "false_hits"), [("it press", 0), ("Pull that.", 1)])
    async def test_the_policys_embedder_compares_the_answers(
        self, answer: str, false_hits: int
    ) -> None:
        policy = acme(kind="embedder", threshold=0.9)
        batched = BatchedEmbedder(BagOfWords(), deadline_s=5.0)
        audited = Audited(model({STORED: "Press it.", ASKED: answer}), policy=policy)
        judge_of = judges(audited.rig.upstream, Routing(UPSTREAMS, ENV), lambda policy: batched)
        audited.audits._bench = Bench(audited.monitor, judge_of)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        await batched.close()
        assert audited.counts == Counts(1, false_hits, 1, 1)

    async def test_while_it_loads_nobody_is_asked(self) -> None:
        audited = Audited(model(SAME), policy=acme(kind="embedder"))
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert len(audited.rig.upstream.sent) == 1


class TestPerson:
    async def test_the_pair_waits_for_the_person(self, tmp_path: Path) -> None:
        labels = LabelQueue(tmp_path / "labels")
        policy = acme(kind="person", store_text=True)
        audited = Audited(model(OTHER), policy=policy, labels=labels)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        line = json.loads(labels.path("acme").read_bytes())
        assert (line["a"], line["b"], line["same"]) == (STORED, ASKED, None)
        assert (line["answer_a"], line["answer_b"]) == ("Press it.", "Pull it.")
        assert (line["judge"], line["judged"], line["id"]) == ("person", None, "ab" * 16)
        assert audited.counts == UNJUDGED

    async def test_what_waits_names_the_hit_that_its_verdict_is_counted_by(
        self, tmp_path: Path
    ) -> None:
        labels = LabelQueue(tmp_path / "labels")
        policy = acme(kind="person", store_text=True)
        audited = Audited(model(OTHER), policy=policy, labels=labels)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        found = read_queued(labels.path("acme").read_bytes(), "f", 1)
        draw = NAMES.read("acme", found.draw)
        assert draw is not None
        assert (draw.book, draw.calibration) == (audited.monitor.book, "")
        assert ((draw.family, draw.intent), draw.record) == (AT, found.id)

    @pytest.mark.parametrize("kind", ["equality", "embedder"])
    async def test_what_another_judge_judges_waits_for_no_verdict(
        self, tmp_path: Path, kind: str
    ) -> None:
        labels = LabelQueue(tmp_path / "labels")
        policy = acme(kind=kind, store_text=True)
        audited = Audited(model(OTHER), policy=policy, labels=labels)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert read_queued(labels.path("acme").read_bytes(), "f", 1).draw == ""

    async def test_what_waits_is_what_eval_reads(self, tmp_path: Path) -> None:
        labels = LabelQueue(tmp_path / "labels")
        audited = Audited(model(OTHER), policy=acme(store_text=True), labels=labels)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        raw = labels.path("acme").read_bytes()
        assert is_queued(raw)
        found = read_queued(raw, "f", 1)
        assert (found.tenant, found.a, found.b) == ("acme", STORED, ASKED)
        assert (found.answer_a, found.answer_b) == ("Press it.", "Pull it.")
        assert (found.context, found.threshold) == ((b"r" * 32).hex(), 0.9)
        assert (found.judge, found.judged) == ("equality", False)

    async def test_no_text_is_kept_where_the_policy_does_not_say_so(self, tmp_path: Path) -> None:
        labels = LabelQueue(tmp_path / "labels")
        audited = Audited(model(OTHER), labels=labels)
        await audited.chat(STORED)
        await audited.chat(ASKED)
        await audited.audits.idle()
        assert audited.counts.audits == 1
        assert not (tmp_path / "labels").exists()


class TestLookups:
    async def test_what_the_gate_refused_or_the_policy_left_closed_is_not_counted(self) -> None:
        audited = Audited(model(SAME), policy=acme(0.0))
        await audited.chat(STORED)
        assert audited.likeness.entry is not None
        for intention in (
            Intention(Intent.INFORMATIONAL, False),
            Intention(Intent.ACTION, True),
            None,
        ):
            audited.likeness.intention = intention
            await audited.chat(ASKED)
        assert audited.counts == Counts()

    async def test_a_hit_whose_answer_is_gone_is_none(self) -> None:
        audited = Audited(model(SAME), policy=acme(0.0))
        await audited.chat(STORED)
        audited.likeness.gone = True
        await audited.chat(ASKED)
        assert audited.counts == Counts(lookups=1)
