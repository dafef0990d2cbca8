"""A person judges what the running proxy served: `trivet eval label --admin` to the bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from embeddings_server import EmbeddingsServer
from proxy import Proxy, request
from semantic_rig import (
    asked,
    hits,
    learns,
    learns_something,
    measured,
    models,
    name_of,
    policy,
    semantic_proxy,
    similar,
    tier,
    topics,
    write,
)
from trouble_rig import faults, until

from trivet.cli import main
from trivet.middleware.mock_upstream.run import running

ADMIN_KEY = "an-admin-key"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingsServer]:
    with models() as (_, made):
        yield made


class Person:
    """Whoever labels, with a proxy whose hits are all drawn."""

    def __init__(self, folder: Path, server: EmbeddingsServer) -> None:
        self.folder = folder
        told = {"share": 1, "judge": {"kind": "person"}}
        section = {"embedder": name_of(server), "audit": told, "store_text": True}
        files = {f"{name}.yaml": policy(name, section) for name in ("acme", "globex")}
        files["cal.json"] = measured(server).model_dump_json()
        self.policies = write(folder / "policies", files)
        self.state = folder / "state"

    def proxy(self, *arguments: str, **options: Any) -> AbstractContextManager[Proxy]:
        env = {"XDG_STATE_HOME": str(self.state), "TRIVET_ADMIN_KEY": ADMIN_KEY}
        return semantic_proxy(self.policies, *arguments, env=env, **options)

    @property
    def queue(self) -> Path:
        return self.state / "trivet" / "labels" / "acme.jsonl"

    def drawn(self) -> list[dict[str, Any]]:
        if not self.queue.exists():
            return []
        return [json.loads(line) for line in self.queue.read_bytes().splitlines()]

    def label(self, proxy: Proxy, keys: str = "", out: str = "pairs.jsonl") -> str:
        """What the command says."""
        command = ["eval", "label", str(self.queue), "-o", str(self.folder / out)]
        command += ["--admin", proxy.admin]
        done = CliRunner().invoke(main, command, input=keys, env={"TRIVET_ADMIN_KEY": ADMIN_KEY})
        assert done.exit_code == 0, done.output
        return done.output

    def post(self, proxy: Proxy, tenant: str, draw: str, key: str = ADMIN_KEY) -> tuple[int, Any]:
        body = {"tenant": tenant, "verdicts": [{"id": draw, "same": False}]}
        headers = {**JSON, "authorization": f"Bearer {key}"}
        raw = json.dumps(body).encode()
        reply = request("POST", f"{proxy.admin}/trivet/verdicts", raw, headers, 30)
        return reply.status, reply.json

    def draws_one(self, proxy: Proxy, topic: str) -> None:
        """A hit on the topic is served, and waits."""
        before = len(self.drawn())
        assert hits(proxy.chat(asked(topic, "can")))
        until(lambda: len(self.drawn()) > before, "it waits in the queue", 10)


@pytest.fixture
def person(tmp_path: Path, server: EmbeddingsServer) -> Person:
    return Person(tmp_path, server)


def audits(proxy: Proxy) -> dict[str, int]:
    """The person's verdicts that were counted, by verdict."""
    text = proxy.get("/metrics", admin=True).body.decode()
    found = re.findall(r'trivet_semantic_audits_total\{(.*judge="person".*)\} (\d+)', text)
    named = ((re.search(r'verdict="(\w+)"', labels), count) for labels, count in found)
    return {verdict[1]: int(count) for verdict, count in named if verdict}


def test_a_false_hit_that_a_person_names_is_counted_once_and_served_no_more(
    person: Person, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'cache.sqlite'}"
    wrong, right = topics()[:2]
    with running() as (url, _):
        with person.proxy(store=store, upstream=url) as proxy:
            for topic in (wrong, right):
                learns(proxy, asked(topic))
                person.draws_one(proxy, topic)
            draw = person.drawn()[0]["draw"]
            assert person.post(proxy, "acme", draw, "another")[0] == 401
            status, told = person.post(proxy, "globex", draw)
            assert (status, told["verdicts"][0]["outcome"]) == (200, "unknown")
            assert similar(proxy, asked(wrong, "would"))
            assert audits(proxy) == {}

            assert "2 verdicts sent" in person.label(proxy, "ds")
            assert audits(proxy) == {"different": 1, "same": 1}
            assert not similar(proxy, asked(wrong, "would"))
            assert similar(proxy, asked(right, "would"))
            assert "No verdict is left to send" in person.label(proxy)
            # Another file of labels knows nothing of what was sent.
            assert "2 counted before" in person.label(proxy, "ds", "others.jsonl")
            assert audits(proxy) == {"different": 1, "same": 1}
            assert faults(proxy) == []
        with person.proxy(store=store, upstream=url) as proxy:
            assert "2 counted before" in person.label(proxy, "dd", "third.jsonl")
            assert audits(proxy) == {}


def test_false_hits_that_a_person_finds_close_the_tier(person: Person) -> None:
    with person.proxy() as proxy:
        chosen = topics()[:6]
        for topic in chosen:
            learns(proxy, asked(topic))
            person.draws_one(proxy, topic)
        assert "6 counted." in person.label(proxy, "d" * 6)
        assert "closed by measurement: acme" in str(tier(proxy)["detail"])
        learns(proxy, asked(topics()[7]))
        assert not hits(proxy.chat(asked(topics()[7], "can")))


@pytest.mark.parametrize("shared", [True, False])
def test_of_two_workers_one_counts_each_hit(person: Person, tmp_path: Path, shared: bool) -> None:
    store = f"sqlite:{tmp_path / 'cache.sqlite'}" if shared else "memory"
    with person.proxy("--workers", "2", store=store) as proxy:
        topic = learns_something(proxy)

        # Another key each time: a miss in a worker that has not learned it yet is stored.
        blanks = count(1)

        def drawn() -> bool:
            proxy.chat(asked(topic, "can") + " " * next(blanks))
            return bool(person.drawn())

        until(drawn, "a hit is drawn", 20)
        draw = person.drawn()[0]["draw"]
        for expected in ("counted", "repeated", "repeated"):
            status, told = person.post(proxy, "acme", draw)
            assert (status, told["verdicts"][0]["outcome"]) == (200, expected), told
        until(lambda: audits(proxy) == {"different": 1}, "it is counted once")
        status, told = person.post(proxy, "acme", f"{draw[:-5]}AAAAA")
        assert (status, told["verdicts"][0]["outcome"]) == (200, "unknown")
