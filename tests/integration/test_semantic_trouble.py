"""The semantic tier in trouble, through the running proxy: requests go on, and it says why."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from embeddings_server import EmbeddingsServer
from proxy import Proxy, free_port
from redis_servers import Server
from redis_servers import running as redis_running
from semantic_rig import (
    SECRET,
    VERBS,
    Models,
    acme,
    asked,
    entries,
    hits,
    learns,
    learns_something,
    measured,
    models,
    name_of,
    policy,
    purge,
    said,
    semantic,
    semantic_proxy,
    similar,
    tier,
    topics,
    write,
)
from trouble_rig import component, faults, lines, metric, mocked, states, timed, until

from trivet.canonical import mac
from trivet.exact.seal import Seal, load_secret
from trivet.semantic.record_codec import seal_record
from trivet.semantic.record_rows import Row, put
from trivet.semantic.records import RecordBound
from trivet.semantic.sqlite_records import SqliteRecords

DEADLINE_S = 0.5
SLACK_S = 2.5
"""What a busy machine may add to a deadline."""
Served = tuple[Models, EmbeddingsServer]


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with models() as made:
        yield made


@pytest.fixture
def well(shared: Served) -> Iterator[EmbeddingsServer]:
    """An endpoint of which all models are well."""
    yield shared[1]
    shared[0].heal()


WAYS = {
    "hangs": "Embedding took more than 0.5 s.",
    "late": "Embedding took more than 0.5 s.",
    "errors": "answered HTTP 500",
    "garbage": "something that is not JSON",
    "short": "(1, 3)",
    "nan": "no direction",
}


@pytest.mark.alone
def test_an_embedder_in_trouble_costs_its_deadline_and_then_nothing(
    shared: Served, tmp_path: Path
) -> None:
    """H5 (another dimension is told as such) and its like: each tenant has an embedder that fails
    in another way; all come back by themselves."""
    made, server = shared
    files: dict[str, str] = {}
    for way in (*WAYS, "changed"):
        section = {"embedder": name_of(server, way), "calibration": f"{way}.json"}
        files[f"{way}.yaml"] = policy(way, section)
        files[f"{way}.json"] = measured(server, way).model_dump_json()
    with semantic_proxy(write(tmp_path / "policies", files)) as proxy:
        for way in (*WAYS, "changed"):
            proxy.chat(asked(topics()[0]), key=f"sk-{way}")
        for way in (*WAYS, "changed"):
            again = asked(topics()[0], "can")
            until(partial(similar, proxy, again, way), f"{way} serves")
        made.healed.clear()
        made.ways.update({way: way for way in WAYS}, changed="errors")
        for way in (*WAYS, "changed"):
            assert_steps_aside(proxy, way)
        for way, told in WAYS.items():
            (line,) = down_lines(proxy, server, way)
            assert told in line["reason"]
            assert f"{name_of(server, way)}: {line['reason']}" in tier(proxy)["detail"]
        assert tier(proxy)["state"] == "down"
        assert "the tier serves nothing" in tier(proxy)["detail"]
        made.heal()
        made.ways["changed"] = "changed"
        for way in WAYS:
            again = asked(topics()[0], "would")
            until(partial(similar, proxy, again, way), f"{way} is back")
            assert states(proxy, f"embedder:{name_of(server, way)}") == ["up", "down", "up"]
        # What answers after the trouble is another model: its vectors are compared with nothing.
        until(lambda: "another model" in tier(proxy)["detail"], "readiness says so")
        again = asked(topics()[0], "did")
        assert semantic(proxy.chat(again, key="sk-changed"))["detail"] == "embedder-changed"
        made.heal()
        again = asked(topics()[0], "would")
        until(partial(similar, proxy, again, "changed"), "the model is the old one again")
        until(lambda: tier(proxy)["state"] == "up", "readiness says up")
        assert faults(proxy) == []


def says(proxy: Proxy, text: str) -> bool:
    """Whether readiness says that of the tier."""
    return text in tier(proxy).get("detail", "")


def assert_steps_aside(proxy: Proxy, way: str) -> None:
    texts = [asked(topic, "did", "nature") for topic in topics()]
    details = []
    for text in texts[:4]:
        began = time.monotonic()
        reply = proxy.chat(text, key=f"sk-{way}")
        assert time.monotonic() - began < DEADLINE_S + SLACK_S
        assert (reply.status, reply.exact) == (200, {"fwd": "miss", "stored": True})
        details.append(str(semantic(reply)["detail"]))
    assert details[0].startswith("embedder-")
    assert details[-1] == "embedder-open"
    rest = texts[4:16]
    took = timed(lambda: [proxy.chat(text, key=f"sk-{way}") for text in rest])
    assert took < len(rest) * DEADLINE_S / 2


def down_lines(proxy: Proxy, server: EmbeddingsServer, way: str) -> list[dict[str, Any]]:
    name = f"embedder:{name_of(server, way)}"
    found = [line for line in lines(proxy, "store-state") if line["store"] == name]
    return [line for line in found if line["state"] == "down"]


HEAVY = ("numpy", "faiss", "onnxruntime", "torch", "transformers", "sentence_transformers")
_HIDES = """\
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def test_without_the_extra_the_proxy_serves_and_says_what_to_install(tmp_path: Path) -> None:
    write(tmp_path / "hidden", {"sitecustomize.py": _HIDES.format(heavy=HEAVY)})
    policies = write(tmp_path / "policies", {"acme.yaml": policy("acme", {"calibration": None})})
    env = {"PYTHONPATH": str(tmp_path / "hidden")}
    with semantic_proxy(policies, wait=False, env=env) as proxy:
        until(lambda: tier(proxy).get("state") == "down", "readiness says down")
        told = "numpy is not installed (pip install 'trivet[semantic]'): the tier serves nothing"
        assert tier(proxy)["detail"] == told
        text = asked(topics()[0])
        reply = proxy.chat(text)
        assert (reply.status, reply.exact["stored"]) == (200, True)
        assert semantic(reply) == {"fwd": "miss", "detail": "unavailable"}
        assert proxy.chat(text).exact["hit"] is True
        assert states(proxy, "semantic") == ["down"]
        assert faults(proxy) == []


def test_an_embedder_that_is_not_there_is_named_and_taken_up_once_it_is(tmp_path: Path) -> None:
    port = free_port()
    name = f"openai:http://127.0.0.1:{port}#m"
    files = {
        "acme.yaml": policy("acme", {"embedder": name, "calibration": None, "mode": "shadow"}),
        "nowhere.yaml": policy("nowhere", {"embedder": "openai:nowhere", "calibration": None}),
    }
    with semantic_proxy(write(tmp_path / "policies", files), wait=False) as proxy:
        # Nobody has asked yet: the models are opened as the proxy starts.
        for told in (
            f"{name} (cosine): 127.0.0.1:{port} did not answer",
            "openai:nowhere (cosine): openai:nowhere is not of the form",
        ):
            until(partial(says, proxy, told), f"readiness says {told}")
        assert tier(proxy)["state"] == "down"
        for text in (asked(topic) for topic in topics()[:3]):
            reply = proxy.chat(text)
            assert reply.status == 200
            assert semantic(reply)["detail"] == "embedder-missing"
        assert states(proxy, "semantic-models") == ["down"]
        with models(port):

            def taken_up() -> bool:
                proxy.chat(asked(topics()[5]), cache_control="only-if-cached")
                return name not in tier(proxy)["detail"]

            until(taken_up, "the embedder is taken up")
            assert semantic(proxy.chat(asked(topics()[3])))["detail"] == "no-neighbour"
        assert faults(proxy) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "no-such-model")
    files = {"acme.yaml": policy("acme", {"embedder": folder, "calibration": None})}
    with semantic_proxy(write(tmp_path / "policies", files), wait=False) as proxy:
        until(lambda: tier(proxy).get("state") == "down", "readiness says down")
        assert f"There is no folder {folder}" in tier(proxy)["detail"]
        assert proxy.chat(asked(topics()[0])).status == 200


def test_a_proxy_whose_policies_leave_the_tier_off_imports_nothing_of_it(tmp_path: Path) -> None:
    policies = write(
        tmp_path / "policies", {"acme.yaml": policy("acme", {"mode": "off", "calibration": None})}
    )
    script = f"""
import asyncio, sys
from pathlib import Path
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.service import open_service

async def opened():
    upstreams = [{{"name": "u", "base_url": "http://127.0.0.1:9"}}]
    config = ServerConfig(policies=Path({str(policies)!r}), upstreams=upstreams)
    service = await open_service(config, b"s" * 32)
    await asyncio.sleep(0.2)
    await service.close()

asyncio.run(opened())
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


BROKEN = {
    "not-json": ('{"format": 1,', "calibration: Invalid JSON"),
    "other-format": ("FORMAT", "format: Input should be 1"),
    "unknown-field": ("FIELD", "surplus: Extra inputs are not permitted"),
    "missing": (None, "calibration: cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_unsound_calibration_is_refused_at_start_by_file_and_field(
    well: EmbeddingsServer, tmp_path: Path, case: str
) -> None:
    text, told = BROKEN[case]
    files = {"acme.yaml": policy("acme", {"embedder": name_of(well)})}
    sound = json.loads(measured(well).model_dump_json())
    altered = {"FORMAT": {**sound, "format": 2}, "FIELD": {**sound, "surplus": 1}}
    if text is not None:
        files["cal.json"] = json.dumps(altered[text]) if text in altered else text
    policies = write(tmp_path / "policies", files)
    serve = ["serve", "--policies", str(policies), "--upstream", "http://127.0.0.1:9"]
    for command, code in ((serve, 2), (["check", str(policies)], 1)):
        done = subprocess.run(
            [sys.executable, "-m", "trivet.cli", *command],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        assert "acme.yaml" in said
        assert "semantic.calibration" in said
        assert "cal.json: " in said
        assert told in said
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def calm(shared: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy whose tier is well, with a tenant for each way to be treated."""
    server = shared[1]
    told: dict[str, dict[str, Any]] = {
        "acme": {},
        "globex": {},
        "shadow": {"mode": "shadow"},
        "assist": {"mode": "assist"},
        "cyrillic": {"calibration": "cyrillic.json"},
        "german": {"calibration": "german.json"},
        "rules": {"calibration": "rules.json"},
        "unmeasured": {"calibration": None},
        "scoped": {"intents": ["informational", "personal"]},
        "short": {"intent_ttl": {"informational": 2, "time": 1}},
    }
    exact: dict[str, dict[str, Any]] = {"scoped": {"user_scope": True, "user_from": "body"}}
    files = {
        f"{name}.yaml": policy(
            name, {"embedder": name_of(server), **more}, exact=exact.get(name, {})
        )
        for name, more in told.items()
    }
    files["cal.json"] = measured(server).model_dump_json()
    files["cyrillic.json"] = measured(server, scripts=("cyrillic",)).model_dump_json()
    files["german.json"] = measured(server, languages=("de",)).model_dump_json()
    files["rules.json"] = measured(server, chain="rules").model_dump_json()
    policies = write(tmp_path_factory.mktemp("calm") / "policies", files)
    with semantic_proxy(policies) as proxy:
        yield proxy


STRANGE = {
    "100-kB": ("word " * 20_000, "too-long"),
    "empty": ("", "empty"),
    "blank": (" \n\t ", "empty"),
    "emoji": ("🙂🙃🎉", "unread-no-words"),
    "zero-width": ("\u200b\u200d\ufeff", "unread-no-words"),
    "right-to-left": ("كيف تعمل عملية البناء الضوئي؟", "unread-script"),
    "right-to-left-mark": ("\u202eHow does gravity work in practice?", None),
    "mixed-scripts": ("How does фотосинтез work in practice?", "unread-script"),
    "other-language": ("Wie backe ich ein Brot mit Hefe?", "unread-language"),
    "nul": ("How does gravity\x00 work in practice?", None),
    "combining": ("How does gravity" + "\u0301" * 400 + " work?", None),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_text_that_nothing_can_be_said_about_is_bypassed_with_a_reason(
    calm: Proxy, case: str
) -> None:
    text, reason = STRANGE[case]
    for wording in (text, f"{text} " if text.strip() else text):
        reply = calm.chat(wording)
        assert reply.status == 200
        told = semantic(reply)
        if reason is not None and "hit" not in reply.exact:
            assert told == {"fwd": "bypass", "detail": reason}
        assert told.get("detail") != "semantic-failed"
    assert faults(calm) == []


def test_a_lone_surrogate_is_no_text_to_compare(calm: Proxy) -> None:
    body = (
        b'{"model": "mock", "temperature": 0, "messages": [{"role": "user", "content": "\\ud800"}]}'
    )
    reply = calm.post("/v1/chat/completions", body)
    assert reply.status in (200, 400)
    assert semantic(reply).get("hit") is None
    assert faults(calm) == []


@pytest.mark.parametrize(
    ("tenant", "reason"), [("cyrillic", "script-unseen"), ("german", "language-unseen")]
)
def test_what_the_calibration_did_not_see_is_bypassed_and_not_learned(
    calm: Proxy, tenant: str, reason: str
) -> None:
    before = entries(calm)
    for verb in VERBS[:3]:
        told = semantic(calm.chat(asked("photosynthesis", verb), key=f"sk-{tenant}"))
        assert told == {"fwd": "bypass", "detail": reason}
    assert entries(calm) == before
    labels = {"kind": "bypass", "reason": reason, "tenant": tenant}
    assert metric(calm, "trivet_semantic_lookups_total", **labels) == 3


def test_a_shadow_looks_up_serves_nothing_and_counts_what_it_would_have_served(
    calm: Proxy,
) -> None:
    first = learns(calm, asked("evolution"), key="sk-shadow")
    for verb in VERBS[1:4]:
        reply = calm.chat(asked("evolution", verb), key="sk-shadow")
        assert semantic(reply) == {"fwd": "miss", "detail": "shadow-mode"}
        assert said(reply) != said(first)
    assert semantic(calm.chat(asked("osmosis"), key="sk-shadow"))["detail"] == "below-threshold"
    name = "trivet_semantic_lookups_total"
    assert metric(calm, name, tenant="shadow", kind="shadow", reason="mode") == 3
    assert metric(calm, name, tenant="shadow", kind="hit") == 0


def test_an_exact_hit_asks_nothing_of_the_tier(calm: Proxy) -> None:
    name = "trivet_semantic_lookups_total"
    calm.chat(asked("electricity"))
    looked = metric(calm, name)
    for _ in range(20):
        reply = calm.chat(asked("electricity"))
        assert (reply.exact["hit"], semantic(reply)) == (True, {})
    assert metric(calm, name) == looked


class TestDirectives:
    """What a caller asks of the cache holds for similar answers too."""

    def test_no_cache_asks_the_model(self, calm: Proxy) -> None:
        first = learns(calm, asked("gravity"))
        reply = calm.chat(asked("gravity", "can"), cache_control="no-cache")
        assert semantic(reply) == {}
        assert said(reply) != said(first)

    def test_no_store_neither_reads_nor_learns(self, calm: Proxy) -> None:
        first = learns(calm, asked("magnetism"))
        before = entries(calm)
        reply = calm.chat(asked("magnetism", "can"), cache_control="no-store")
        assert (semantic(reply), said(reply) == said(first)) == ({}, False)
        calm.chat(asked("erosion"), cache_control="no-store")
        time.sleep(0.3)
        assert entries(calm) == before

    def test_only_if_cached_takes_a_similar_answer_and_else_none(self, calm: Proxy) -> None:
        first = learns(calm, asked("friction"))
        only: Any = {"cache_control": "only-if-cached"}
        assert said(calm.chat(asked("friction", "can"), **only)) == said(first)
        assert calm.chat(asked("radiation", "can"), **only).status == 504

    def test_only_if_cached_never_asks_the_model_for_a_suggestion(self, calm: Proxy) -> None:
        learns(calm, asked("friction"), key="sk-assist")
        assert calm.mock is not None
        before = calm.mock.calls.total
        only: Any = {"cache_control": "only-if-cached", "key": "sk-assist"}
        assert calm.chat(asked("friction", "can"), **only).status == 504
        assert calm.mock.calls.total == before

    def test_max_age_and_min_fresh_bound_the_age_of_the_similar_answer(self, calm: Proxy) -> None:
        learns(calm, asked("digestion"))
        time.sleep(1.1)
        again = asked("digestion", "can")
        for control in ("max-age=1", "min-fresh=9999999"):
            reply = calm.chat(again, cache_control=f"{control}, only-if-cached")
            assert reply.status == 504
        assert said(calm.chat(again, cache_control="max-age=600, min-fresh=5"))
        told = semantic(calm.chat(asked("digestion", "would"), cache_control="max-age=0"))
        assert told == {"fwd": "miss", "detail": "max-age"}
        # Too old for one caller is not too old for all.
        assert hits(calm.chat(asked("digestion", "did")))


class TestPublicCases:
    """Groups F, G and H of the public bug reports about LLM caches, for this tier."""

    def test_another_tenant_learns_nothing_of_a_question_that_was_asked(self, calm: Proxy) -> None:
        """F1: T2 misses as if nobody had asked, and an id of T1's is none of T2's."""
        learns(calm, asked("refraction"))
        mine = calm.chat(asked("refraction", "can"))
        assert hits(mine)
        theirs = calm.chat(asked("refraction", "can"), key="sk-globex")
        assert semantic(theirs) == {"fwd": "miss", "detail": "no-neighbour"}
        told = {"id": mine.headers["trivet-hit-id"], "verdict": "wrong"}
        assert calm.post("/trivet/feedback", told, key="sk-globex").status == 404

    def test_a_long_question_of_another_user_is_in_another_partition(self, calm: Proxy) -> None:
        """F2: the user is no text in the embedding: no question finds a neighbour."""
        text = asked("combustion") + " " + "Explain it step by step in plain words. " * 3
        learns(calm, text, key="sk-scoped", user="a")
        other = calm.chat(f"{text} ", key="sk-scoped", user="b")
        assert semantic(other) == {"fwd": "miss", "detail": "no-neighbour"}
        assert hits(calm.chat(f"{text} ", key="sk-scoped", user="a"))

    def test_what_a_user_asks_about_himself_is_his_own(self, calm: Proxy) -> None:
        """F3: refused where personal questions are closed; else within the user's scope."""
        text, again = "how much is left on my gift card", "how much is left on my gift card?"
        for wording in (text, again):
            assert semantic(calm.chat(wording))["detail"] == "intent-personal"
        learns(calm, text, key="sk-scoped", user="c")
        assert semantic(calm.chat(again, key="sk-scoped", user="d"))["detail"] == "no-neighbour"
        assert semantic(calm.chat(f"{again}!", key="sk-scoped")) == {}
        assert hits(calm.chat(again, key="sk-scoped", user="c"))

    def test_different_questions_do_not_match_one_entry(self, calm: Proxy) -> None:
        """G1: each is a miss, whatever was asked before."""
        learns(calm, asked("pollination"), key="sk-globex")
        for text in ("Hello world", "What is 1+1?", "weather?", asked("encryption")):
            assert semantic(calm.chat(text, key="sk-globex")).get("hit") is None

    def test_a_reversed_question_is_another_question(self, calm: Proxy) -> None:
        """G2: the two have one vector; the rules tell them apart."""
        told: Any = {"key": "sk-rules"}
        learns(calm, "How do I convert miles to kilometres?", **told)
        assert hits(calm.chat("How can I convert miles to kilometres?", **told))
        turned = semantic(calm.chat("How do I convert kilometres to miles?", **told))
        assert turned["detail"].startswith("veto-")

    def test_no_threshold_is_assumed_where_none_was_measured(self, calm: Proxy) -> None:
        """G8: without a calibration nothing is served, however near."""
        learns(calm, asked("photosynthesis"), key="sk-unmeasured")
        told = semantic(calm.chat(asked("photosynthesis", "can"), key="sk-unmeasured"))
        assert told == {"fwd": "miss", "detail": "shadow-uncalibrated"}

    @pytest.mark.parametrize(
        "other",
        [
            {"messages": [{"role": "system", "content": "Talk like a lawyer."}]},
            {"messages": [{"role": "system", "content": "Talk like a pirate"}]},
            {"response_format": {"type": "json_object"}},
            {"tools": [{"type": "function", "function": {"name": "find", "parameters": {}}}]},
            {
                "messages": [
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "Hello."},
                ]
            },
        ],
        ids=["persona", "a-letter", "format", "tools", "history"],
    )
    def test_a_question_is_compared_under_equal_instructions_only(
        self, calm: Proxy, other: dict[str, Any]
    ) -> None:
        """G4, G5: system prompt, history, tools and format are a partition, not a text."""
        pirate = {"role": "system", "content": "Talk like a pirate."}
        path = "/v1/chat/completions"
        calm.post(path, chat([pirate], asked("insulation")))
        until(
            lambda: hits(calm.post(path, chat([pirate], asked("insulation", "can")))),
            "the pirate's answer is served to pirates",
            5,
        )
        before = other.get("messages", [pirate])
        changed = {**other, **chat(before, asked("insulation", "would"))}
        told = semantic(calm.post(path, changed))
        assert told.get("hit") is None
        assert told["detail"] in ("no-neighbour", "tools", "turns")

    def test_a_caller_removes_a_false_hit_and_it_is_counted(self, calm: Proxy) -> None:
        """G7: by its id; it is served no more, to nobody."""
        learns(calm, asked("fermentation"))
        hit = calm.chat(asked("fermentation", "can"))
        told = {"id": hit.headers["trivet-hit-id"], "verdict": "wrong"}
        before = metric(calm, "trivet_semantic_audits_total", tenant="acme", verdict="different")
        reply = calm.post("/trivet/feedback", told)
        assert reply.json == {**told, "removed": True}
        after = metric(calm, "trivet_semantic_audits_total", tenant="acme", verdict="different")
        assert after == before + 1
        assert semantic(calm.chat(asked("fermentation", "did"))).get("hit") is None

    def test_each_intent_has_a_lifetime_of_its_own(self, calm: Proxy) -> None:
        """H3: two seconds here, a day elsewhere; the exact answer stays."""
        for tenant, last in (("short", 2), ("globex", 86_400)):
            key = f"sk-{tenant}"
            learns(calm, asked("evaporation"), key=key)
            ttl = int(semantic(calm.chat(asked("evaporation", "can"), key=key))["ttl"])
            assert last - 5 <= ttl <= last
        time.sleep(2.1)
        assert semantic(calm.chat(asked("evaporation", "did"), key="sk-short")).get("hit") is None
        assert calm.chat(asked("evaporation"), key="sk-short").exact["hit"] is True

    def test_a_new_source_or_prompt_version_is_a_new_space_and_the_old_is_purged(
        self, calm: Proxy
    ) -> None:
        """H6: by version and by tenant."""
        old: Any = {"trivet_version": "prompt=1"}
        learns(calm, asked("condensation"), **old)
        new = calm.chat(asked("condensation", "can"), trivet_version="prompt=2")
        assert semantic(new)["detail"] == "no-neighbour"
        assert hits(calm.chat(asked("condensation", "would"), **old))
        purge(calm, version="prompt=1")
        assert semantic(calm.chat(asked("condensation", "did"), **old)).get("hit") is None

    def test_vectors_of_another_model_are_compared_with_nothing(
        self, shared: Served, tmp_path: Path
    ) -> None:
        """H4: a model of the same dimension under another name finds no entry of the first."""
        _, server = shared
        store = f"sqlite:{tmp_path / 'cache.sqlite'}"
        with mocked() as behind:
            with acme(tmp_path, server, store=store, upstream=behind.url) as proxy:
                learns(proxy, asked("gravity"))
            files = {
                "acme.yaml": policy("acme", {"embedder": name_of(server, "m2")}),
                "cal.json": measured(server, "m2").model_dump_json(),
            }
            policies = write(tmp_path / "policies", files)
            with semantic_proxy(policies, store=store, upstream=behind.url) as proxy:
                assert entries(proxy) == 1
                assert semantic(proxy.chat(asked("gravity", "can")))["detail"] == "no-neighbour"
                assert proxy.chat(asked("gravity")).exact["hit"] is True


def chat(before: list[dict[str, Any]], text: str) -> dict[str, Any]:
    messages = [*before, {"role": "user", "content": text}]
    return {"model": "mock", "temperature": 0, "messages": messages}


class TestMeasuredWhileItRuns:
    """Audits of every hit close a tier that is wrong; only another calibration opens it."""

    @pytest.fixture
    def folder(self, well: EmbeddingsServer, tmp_path: Path) -> Path:
        judge = {"share": 1.0, "judge": {"kind": "equality"}}
        files = {
            "acme.yaml": policy("acme", {"embedder": name_of(well), "audit": judge}),
            "cal.json": measured(well).model_dump_json(),
        }
        return write(tmp_path / "policies", files)

    def test_what_closes_it_survives_a_restart_and_a_new_calibration_opens_it(
        self, folder: Path, well: EmbeddingsServer, tmp_path: Path
    ) -> None:
        store = f"sqlite:{tmp_path / 'cache.sqlite'}"
        closed = "closed by measurement: acme informational (bound)"
        with mocked() as behind:
            with semantic_proxy(folder, store=store, upstream=behind.url) as proxy:
                self.close_it(proxy)
                assert metric(proxy, "trivet_semantic_open", tenant="acme") == 0
                (line,) = lines(proxy, "semantic-state")
                assert (line["state"], line["reason"]) == ("closed", "bound")
                assert closed in tier(proxy)["detail"]
                assert tier(proxy)["state"] == "degraded"
                time.sleep(1.2)
            with semantic_proxy(folder, store=store, upstream=behind.url, wait=False) as proxy:
                until(
                    lambda: closed in tier(proxy).get("detail", ""), "it is closed from the start"
                )
                again = asked(topics()[-1], "did", "nature")
                told: dict[str, Any] = {}

                def looked() -> bool:
                    told.update(semantic(proxy.chat(again, cache_control="only-if-cached")))
                    return told["detail"] not in ("loading", "index-building")

                until(looked, "the models are open")
                self.reload(proxy, folder, "{", "stale")
                assert "cal.json" in component(proxy, "policies")["detail"]
                shadow = semantic(proxy.chat(asked(topics()[-1], "did")))
                assert shadow == {"fwd": "miss", "detail": "shadow-bound"}
                other = measured(well, dataset="1" * 64).model_dump_json()
                self.reload(proxy, folder, other, "up")
                assert hits(proxy.chat(asked(topics()[-1], "would")))
                assert "closed" not in tier(proxy)["detail"]

    def close_it(self, proxy: Proxy) -> None:
        """Serve answers that differ from the model's until it is noticed."""

        def looked(topic: str) -> bool:
            learns(proxy, asked(topic))
            proxy.chat(asked(topic, "can"))
            return bool(lines(proxy, "semantic-state"))

        found = iter(reversed(topics()))
        until(lambda: looked(next(found)), "the tier is closed")

    def reload(self, proxy: Proxy, folder: Path, text: str, state: str) -> None:
        """Put another calibration in place, and wait until it was taken or refused."""
        (folder / "next.json").write_text(text)
        (folder / "next.json").rename(folder / "cal.json")
        until(lambda: component(proxy, "policies")["state"] == state, f"policies are {state}")


class TestRecordsInAFile:
    """The questions are kept beside the answers: what becomes of them when their file is ill."""

    @pytest.mark.parametrize("how", ["foreign", "folder"])
    def test_a_file_that_is_no_store_is_named_and_costs_no_answer(
        self, well: EmbeddingsServer, tmp_path: Path, how: str
    ) -> None:
        store = tmp_path / "cache.sqlite"
        records = tmp_path / "cache.sqlite-semantic"
        if how == "foreign":
            with closing(sqlite3.connect(records)) as db:
                db.execute("CREATE TABLE mine(x)")
        else:
            records.mkdir()
        with acme(tmp_path, well, store=f"sqlite:{store}", wait=False) as proxy:
            until(lambda: str(records) in tier(proxy).get("detail", ""), "readiness names it")
            assert tier(proxy)["state"] == "degraded"
            # This process goes on by what it learns itself.
            topic = learns_something(proxy)
            assert proxy.chat(asked(topic)).exact["hit"] is True
            assert states(proxy, "semantic-records") == ["down"]
            assert faults(proxy) == []
            shutil.rmtree(records) if records.is_dir() else records.unlink()
            until(lambda: tier(proxy)["state"] == "up", "a new file is made")
            assert states(proxy, "semantic-records") == ["down", "up"]

    def test_a_corrupt_file_is_moved_aside_and_a_new_one_made(
        self, well: EmbeddingsServer, tmp_path: Path
    ) -> None:
        store = tmp_path / "cache.sqlite"
        records = tmp_path / "cache.sqlite-semantic"
        records.write_bytes(b"no database at all " * 1000)
        with acme(tmp_path, well, store=f"sqlite:{store}", wait=False) as proxy:
            until(lambda: states(proxy, "semantic-records") == ["down", "up"], "it heals")
            assert Path(f"{records}.corrupt").read_bytes() == b"no database at all " * 1000
            learns(proxy, asked("gravity"))
            assert hits(proxy.chat(asked("gravity", "can")))
            assert faults(proxy) == []

    def test_a_locked_file_is_told_and_delays_nobody(
        self, well: EmbeddingsServer, tmp_path: Path
    ) -> None:
        store = tmp_path / "cache.sqlite"
        with acme(tmp_path, well, store=f"sqlite:{store}") as proxy:
            learns(proxy, asked("gravity"))
            with closing(sqlite3.connect(f"{store}-semantic", isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                for topic in topics()[2:6]:
                    began = time.monotonic()
                    assert proxy.chat(asked(topic)).exact["stored"] is True
                    assert hits(proxy.chat(asked("gravity", "can")))
                    assert time.monotonic() - began < SLACK_S
                until(lambda: similar(proxy, asked(topics()[2], "can")), "what is new is served")
                other.execute("ROLLBACK")
            until(lambda: tier(proxy)["state"] == "up", "it is well again")
            assert faults(proxy) == []

    def test_a_full_disk_is_told_and_delays_nobody(
        self, well: EmbeddingsServer, tmp_path: Path
    ) -> None:
        with acme(tmp_path, well, store=f"sqlite:{tmp_path / 'cache.sqlite'}") as proxy:
            learns(proxy, asked("gravity"))
            size = (tmp_path / "cache.sqlite-semantic-wal").stat().st_size
            none = resource.RLIM_INFINITY
            resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (size, none))
            for topic in topics()[2:8]:
                assert proxy.chat(asked(topic)).status == 200
                assert similar(proxy, asked("gravity", "can"))
            resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (none, none))
            until(lambda: tier(proxy)["state"] == "up", "it is well again")
            learns_something(proxy)
            assert faults(proxy) == []


BETWEEN = "How can gravity work in practice in nature?"


class TestTheAnswerBehindAQuestion:
    """The exact store is the authority: no answer, or another's, is no hit."""

    @pytest.fixture
    def two(self, well: EmbeddingsServer, tmp_path: Path) -> Iterator[tuple[Proxy, Path]]:
        """Two neighbours of one question, the nearer one first."""
        store = tmp_path / "cache.sqlite"
        with mocked() as behind:
            options: Any = {"store": f"sqlite:{store}", "upstream": behind.url}
            options |= {"config": "store: {front_bytes: 0}\n", "cal": {"threshold": 0.87}}
            with acme(tmp_path, well, **options) as proxy:
                learns(proxy, asked("gravity"))
                learns(proxy, asked("gravity", "does", "nature"))
                learns(proxy, asked("osmosis"))
                yield proxy, store
                assert faults(proxy) == []

    def test_one_that_is_gone_is_forgotten_and_the_next_neighbour_is_served(
        self, two: tuple[Proxy, Path]
    ) -> None:
        proxy, store = two
        answers = [
            said(proxy.chat(asked("gravity", "does", place))) for place in ("practice", "nature")
        ]
        nearest = answers.index(said(proxy.chat(BETWEEN)))
        with closing(sqlite3.connect(store, isolation_level=None)) as db:
            db.execute("DELETE FROM entries WHERE id = ?", (ids(store)[nearest],))
        assert said(proxy.chat(BETWEEN)) == answers[1 - nearest]
        assert entries(proxy) == 2
        until(lambda: rows(store) == 2, "its record is deleted")

    def test_the_answer_of_another_request_in_its_place_is_never_served(
        self, two: tuple[Proxy, Path]
    ) -> None:
        proxy, store = two
        other = said(proxy.chat(asked("osmosis")))
        first, second, third = ids(store)
        with closing(sqlite3.connect(store, isolation_level=None)) as db:
            (value,) = db.execute("SELECT value FROM entries WHERE id = ?", (third,)).fetchone()
            for place in (first, second):
                db.execute("UPDATE entries SET value = ? WHERE id = ?", (value, place))
        reply = proxy.chat(BETWEEN)
        assert semantic(reply)["fwd"] == "miss"
        assert said(reply) != other
        until(lambda: rows(store) == 2, "their records are deleted, and the new one is there")
        assert metric(proxy, "trivet_entries_rejected_total", store="sqlite") >= 1

    def test_a_purge_leaves_no_question_behind(self, two: tuple[Proxy, Path]) -> None:
        proxy, _ = two
        purge(proxy)
        assert semantic(proxy.chat(BETWEEN))["detail"] == "no-neighbour"


def rows(store: Path) -> int:
    """Records in the file."""
    with closing(sqlite3.connect(f"{store}-semantic")) as db:
        return int(db.execute("SELECT count(*) FROM records").fetchone()[0])


def ids(store: Path) -> list[int]:
    """Rows of the exact store in the order in which they came."""
    with closing(sqlite3.connect(store)) as db:
        return [row[0] for row in db.execute("SELECT id FROM entries ORDER BY created")]


def test_an_index_that_is_being_built_says_so(well: EmbeddingsServer, tmp_path: Path) -> None:
    store = tmp_path / "cache.sqlite"
    with mocked() as behind:
        with acme(tmp_path, well, store=f"sqlite:{store}", upstream=behind.url) as proxy:
            learns(proxy, asked("gravity"))
        multiply(tmp_path / "cache.sqlite-semantic", 5_000)
        with acme(
            tmp_path, well, store=f"sqlite:{store}", upstream=behind.url, wait=False
        ) as proxy:
            seen: set[str] = set()

            def built() -> bool:
                found = tier(proxy)
                seen.add(str(found.get("state")))
                seen.add(
                    str(semantic(proxy.chat(asked("osmosis"), cache_control="only-if-cached")))
                )
                return found.get("state") == "up"

            until(built, "the index is built")
            assert "building" in seen
            assert similar(proxy, asked("gravity", "can"))


def multiply(records: Path, count: int) -> None:
    """Fill the file with copies of its one record, sealed under names of their own."""
    secret = load_secret(None, {"TRIVET_SECRET": SECRET})
    seal = Seal(mac(secret, b"trivet-store"), encrypt=False)
    bound = RecordBound(lambda tenant: 10 * count)

    async def fill() -> None:
        store = SqliteRecords(records, seal, bound)
        snapshot = await store.snapshot()
        (record,) = [one async for batch in snapshot.batches for one in batch]
        await store.close()
        tenant = seal.pseudonym(record.tenant)
        with closing(sqlite3.connect(records, isolation_level=None)) as db:
            db.execute("BEGIN")
            for at in range(count):
                copy = replace(record, id=f"{at:032x}")
                row = Row(tenant, copy.id, (), copy.created, copy.expires, seal_record(copy, seal))
                put(db, row, "added", (10 * count, bound), 0.0)
            db.execute("COMMIT")

    asyncio.run(fill())


def holds(proxy: Proxy, count: int) -> bool:
    return entries(proxy) == count


def is_up(proxy: Proxy) -> bool:
    return bool(tier(proxy)["state"] == "up")


def is_degraded(proxy: Proxy) -> bool:
    return bool(tier(proxy).get("state") == "degraded")


class TestTwoProxiesOverOneRedis:
    """What one learns, forgets or loses is so for the other."""

    def test_they_keep_in_step_through_restarts_purges_and_trouble(
        self, well: EmbeddingsServer, tmp_path: Path
    ) -> None:
        with (
            mocked() as behind,
            redis_running(tmp_path / "redis") as redis,
            ExitStack() as stack,
        ):
            options: Any = {"store": redis.url, "upstream": behind.url}
            one = stack.enter_context(acme(tmp_path, well, **options))
            with acme(tmp_path, well, **options) as two:
                self.assert_in_step(one, two)
            # While it was away.
            learns(one, asked(topics()[3]))
            purge(one, tag="doc-1")
            two = stack.enter_context(acme(tmp_path, well, **options))
            until(partial(similar, two, asked(topics()[3], "can")), "it has caught up")
            self.assert_purges_reach(one, two)
            self.assert_flushed(redis, one, two)
            self.assert_stopped(redis, one, two)
            assert faults(one) + faults(two) == []

    def assert_in_step(self, one: Proxy, two: Proxy) -> None:
        for first, second, topic in ((one, two, topics()[0]), (two, one, topics()[1])):
            answer = said(learns(first, asked(topic), trivet_tag="doc-1"))
            there = partial(similar, second, asked(topic, "can"))
            took = timed(partial(until, there, "the other one serves it"))
            assert took < 1 + SLACK_S
            assert said(second.chat(asked(topic, "can"))) == answer

    def assert_purges_reach(self, one: Proxy, two: Proxy) -> None:
        learns(one, asked(topics()[4]), trivet_tag="doc-2")
        until(partial(similar, two, asked(topics()[4], "can")), "the other one serves it")
        purge(two, tag="doc-2")
        assert not similar(two, asked(topics()[4], "can"))
        until(lambda: not similar(one, asked(topics()[4], "can")), "the purge has reached it")
        until(lambda: entries(one) == entries(two), "neither index has it")
        assert similar(one, asked(topics()[3], "can"))

    def assert_flushed(self, redis: Server, one: Proxy, two: Proxy) -> None:
        redis.cli("FLUSHALL")
        for proxy in (one, two):
            until(partial(holds, proxy, 0), "its index is empty too")
            assert not similar(proxy, asked(topics()[3], "can"))
        answer = said(learns(one, asked(topics()[5])))
        until(partial(similar, two, asked(topics()[5], "can")), "they go on")
        assert said(two.chat(asked(topics()[5], "can"))) == answer

    def assert_stopped(self, redis: Server, one: Proxy, two: Proxy) -> None:
        redis.freeze()
        try:
            for topic in topics()[6:10]:
                began = time.monotonic()
                assert one.chat(asked(topic)).status == 200
                assert time.monotonic() - began < DEADLINE_S + SLACK_S
            for proxy in (one, two):
                until(partial(is_degraded, proxy), "readiness says so")
            assert "new entries of other processes are not seen" in tier(one)["detail"]
            assert states(one, "semantic-records")[-1] == "down"
        finally:
            redis.thaw()
        for proxy in (one, two):
            until(partial(is_up, proxy), "it is back")
            assert states(proxy, "semantic-records")[-2:] == ["down", "up"]

        def learned() -> bool:
            topic = next(left)
            one.chat(asked(topic, "does", "nature"))
            time.sleep(0.6)
            return similar(two, asked(topic, "can", "nature"))

        left = iter(topics()[6:])
        until(learned, "what one learns the other serves")
