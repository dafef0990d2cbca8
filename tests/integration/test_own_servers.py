"""Two tenants in front of real engines: hits inside a tenant, none across, and the same count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest
from engine_folder import write_model
from engine_servers_rig import (
    Fleet,
    fleet,
    llama_server,
    our_engine,
    started,
    vllm_server,
    write_wide_model,
)
from proxy import free_port

from trivet.messages import Api
from trivet.middleware.fleets.fleets import Fleets
from trivet.middleware.fleets.way import Way
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import steps_of

CHAT = "/v1/chat/completions"
JSON = [(b"content-type", b"application/json")]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    write_model(str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def engines(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two engines of ours."""
    folder = tmp_path_factory.mktemp("engines")
    with ExitStack() as stack:
        ports = free_port(), free_port()
        servers = [
            stack.enter_context(started(our_engine(model, port), port, folder)) for port in ports
        ]
        made = stack.enter_context(fleet(servers, folder, "trivet", models=["*"]))
        assert made.await_probe() == "isolated"
        yield made


def hits_inside_and_none_across(made: Fleet) -> None:
    """The contract of every engine."""
    prompt, cached = made.ask("acme", "Where is my bag?")
    assert cached == 0
    assert made.ask("acme", "When does it open?")[1] > 0.5 * prompt
    assert made.ask("globex", "Where is my bag?", x=1)[1] == 0
    assert made.ask("globex", "When does it open?", x=1)[1] > 0.5 * prompt


class TestOurEngine:
    def test_tenants_share_with_themselves_alone(self, engines: Fleet) -> None:
        before = [one.metric("trivet_engine_prefix_cache_hits_total") for one in engines.servers]
        engines.told.clear()
        text = "Where is my bag? " * 3
        assert engines.ask("acme", text)[1] == 0
        for at in range(3):
            assert engines.ask("acme", text, text, "Here.", seed=at)[1] >= 0
        prompt, cached = engines.ask("acme", "Now?", text, "Here.", text, "There.")
        assert cached > 0.5 * prompt
        assert engines.ask("globex", text)[1] == 0
        assert engines.ask("globex", "Now?", text, "Here.")[1] > 0
        after = [one.metric("trivet_engine_prefix_cache_hits_total") for one in engines.servers]
        assert sum(after) - sum(before) == sum(engines.told.values())

    def test_a_callers_own_salt_reads_nobodys_prefix(self, engines: Fleet) -> None:
        theirs = "Mine. " * 20
        engines.ask("acme", theirs, cache_salt="theirs")
        prompt, cached = engines.ask("globex", theirs, cache_salt="theirs")
        # Its own system prompt may be there.
        assert cached <= prompt - len(theirs)

    def test_a_replica_that_ends_costs_no_request(self, model: str, tmp_path: Path) -> None:
        with ExitStack() as stack:
            ports = free_port(), free_port()
            servers = [
                stack.enter_context(started(our_engine(model, port), port, tmp_path))
                for port in ports
            ]
            made = stack.enter_context(fleet(servers, tmp_path, "trivet", models=["*"]))
            made.await_probe()
            for at in range(4):
                made.ask("acme", f"Question {at}")
            servers[1].stop()
            for at in range(8):
                made.ask("acme", f"Question {at}", "And?", "Yes.", seed=at)
            states = {(one["replica"], one["state"]) for one in made.lines("replica-state")}
            assert states == {(servers[1].url.removeprefix("http://"), "ejected")}

    def test_an_engine_that_is_told_the_tenant_is_probed_as_two_of_them(
        self, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRIVET_ENGINE_SECRET", "e" * 40)
        port = free_port()
        with (
            started([*our_engine(model, port), "--signed-only"], port, tmp_path) as server,
            fleet([server], tmp_path, "auto", engine_secret_env="TRIVET_ENGINE_SECRET") as made,
        ):
            assert made.await_probe() == "isolated"
            hits_inside_and_none_across(made)


class TestLlamaServer:
    def test_tenants_share_with_themselves_alone(self, tmp_path: Path) -> None:
        port = free_port()
        command = llama_server(port, "--cache-ram", "0")
        with (
            started(command, port, tmp_path) as server,
            fleet([server], tmp_path, "llamacpp", slots=2) as made,
        ):
            assert made.await_probe() == "isolated"
            before = server.metric("llamacpp:prompt_tokens_cached_total")
            prompt, _ = made.ask("acme", "Where is my bag?")
            assert made.ask("acme", "When does it open?")[1] > 0.5 * prompt
            # What the template puts in front of all is on every slot, from the probe.
            assert made.ask("globex", "Where is my bag?")[1] < 0.1 * prompt
            assert made.ask("globex", "When does it open?")[1] > 0.5 * prompt
            after = server.metric("llamacpp:prompt_tokens_cached_total")
            assert after - before == sum(made.told.values())

    def test_the_hosts_prompt_cache_is_found_out_and_tenants_share_nothing(
        self, tmp_path: Path
    ) -> None:
        port = free_port()
        with (
            started(llama_server(port), port, tmp_path) as server,
            fleet([server], tmp_path, "llamacpp", slots=2) as made,
        ):
            assert made.await_probe() == "leaks"
            assert "--cache-ram 0" in made.component("prefix:pool")["detail"]
            (line,) = made.lines("prefix-probe")
            assert (line["level"], line["state"]) == ("warning", "leaks")
            made.ask("acme", "Where is my bag?")
            assert made.ask("globex", "Where is my bag?")[1] == 0
            assert made.ask("acme", "Where is it?")[1] == 0

    def test_two_proxies_on_one_server_both_find_out_that_it_is_safe(self, tmp_path: Path) -> None:
        port = free_port()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        with (
            started(llama_server(port, "--cache-ram", "0"), port, tmp_path) as server,
            fleet([server], tmp_path / "one", "llamacpp", slots=2) as one,
            fleet([server], tmp_path / "two", "llamacpp", slots=2) as two,
        ):
            assert [one.await_probe(), two.await_probe()] == ["isolated"] * 2

    def test_one_tenant_alone_may_use_it_as_it_is(self, tmp_path: Path) -> None:
        port = free_port()
        with (
            started(llama_server(port), port, tmp_path) as server,
            fleet([server], tmp_path, "llamacpp", tenants=("acme",), slots=2) as made,
        ):
            made.await_probe()
            prompt, _ = made.ask("acme", "Where is my bag?")
            assert made.ask("acme", "When does it open?")[1] > 0.5 * prompt


class TestVllm:
    def test_tenants_share_with_themselves_alone(self, tmp_path: Path) -> None:
        port, events = free_port(), free_port()
        told = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{events}"}
        command, env = vllm_server(
            write_wide_model(tmp_path / "tiny"),
            port,
            "--enable-prompt-tokens-details",
            "--kv-events-config",
            json.dumps(told),
        )
        with started(command, port, tmp_path, env) as server:
            replicas = [{"url": server.url, "kv_events": f"tcp://127.0.0.1:{events}"}]
            with fleet([server], tmp_path, "vllm", replicas=replicas) as made:
                assert made.await_probe() == "isolated", made.component("prefix:pool")
                before = server.metric("vllm:prefix_cache_hits_total")
                hits_inside_and_none_across(made)
                after = server.metric("vllm:prefix_cache_hits_total")
                assert after - before == sum(made.told.values())
            asyncio.run(_events_tell_what_is_held(server.url, events))


async def _events_tell_what_is_held(url: str, events: int) -> None:
    """The index finds a prompt that the engine holds, though nothing was known of it here."""
    replicas = [{"url": url, "kv_events": f"tcp://127.0.0.1:{events}"}]
    upstream = UpstreamConfig.model_validate(
        {"name": "pool", "base_url": url, "replicas": replicas}
    )
    fleets = Fleets([upstream])
    client = UpstreamClient(None, fleets)
    fleets.start()
    await asyncio.sleep(1)
    known = fleets.sets["pool"]
    salt = "5a" * 32
    messages = [
        {"role": "system", "content": "You are the desk of a small airline. " * 20},
        {"role": "user", "content": "Where is it? " * 19},
    ]
    body = {"model": "tiny", "messages": messages, "max_tokens": 1, "cache_salt": salt}
    way = Way(steps_of(outline_of(Api.CHAT, body), salt.encode()))
    assert way.steps.digests
    try:
        for _ in range(2):
            response = await client.send(upstream, "POST", CHAT, JSON, orjson.dumps(body), way)
            usage = orjson.loads(await response.read())["usage"]
            response.close()
            async with asyncio.timeout(20):
                while not len(known.index):
                    await asyncio.sleep(0.05)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert len(known.index) * known.index.size == cached
        async with asyncio.timeout(20):
            while way.steps not in known.links:
                await asyncio.sleep(0.05)
        found = known.links.corrected(known.index, 0, way.steps, 0)
        assert found == way.steps.tokens[-1]
    finally:
        await client.close()
        await fleets.close()
