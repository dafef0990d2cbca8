"""The semantic tier in trouble, through the running proxy: requests go on, and it says why."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from embeddings_server import EmbeddingsServer
from proxy import Proxy, Reply, free_port
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
    measured,
    models,
    name_of,
    policy,
    purge,
    said,
    semantic,
    semantic_proxy,
    tier,
    topics,
    write,
)
from trouble_rig import component, faults, lines, metric, mocked, states, timed, until

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
    """Each tenant has an embedder that fails in another way; all come back by themselves."""
    made, server = shared
    files: dict[str, str] = {}
    for way in (*WAYS, "changed"):
        told = {"embedder": name_of(server, way), "calibration": f"{way}.json"}
        files[f"{way}.yaml"] = policy(way, told)
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
            assert told in line["why"]
            assert f"{name_of(server, way)}: {line['why']}" in tier(proxy)["detail"]
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


def similar(proxy: Proxy, text: str, tenant: str = "acme") -> bool:
    """Whether a similar question's answer is served; nothing is stored for the text."""
    reply = proxy.chat(text, key=f"sk-{tenant}", cache_control="only-if-cached")
    return semantic(reply).get("hit") is True


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
    policies = write(
        tmp_path / "policies", {"acme.yaml": policy("acme", {"calibration": None})}
    )
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
        until(lambda: tier(proxy).get("state") == "down", "readiness says down")
        detail = tier(proxy)["detail"]
        assert f"{name} (cosine): 127.0.0.1:{port} did not answer" in detail
        assert "openai:nowhere (cosine): openai:nowhere is not of the form" in detail
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
from trivet.middleware.config import ServerConfig
from trivet.middleware.service import open_service

async def opened():
    service = await open_service(ServerConfig(policies=Path({str(policies)!r})), b"s" * 32)
    await asyncio.sleep(0.2)
    await service.close()

asyncio.run(opened())
print([name for name in {HEAVY!r} if name in sys.modules])
print([name for name in sys.modules if name.startswith("trivet.semantic.")])
"""
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]


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
    for command in (
        ["serve", "--policies", str(policies), "--upstream", "http://127.0.0.1:9"],
        ["check", str(policies)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "trivet.cli", *command],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 2, done.stdout + done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        assert "acme.yaml" in said
        assert "semantic.calibration" in said
        assert "cal.json: " in said
        assert told in said
        assert "Traceback" not in said
