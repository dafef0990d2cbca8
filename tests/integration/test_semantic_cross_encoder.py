"""A cross-encoder as verifier in the running proxy: it decides by its score, it may be missing or
another one, and it may be slow."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from embeddings_server import EmbeddingsServer
from proxy import Proxy
from semantic_rig import (
    VERBS,
    asked,
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
from tiny_cross_encoder import make_tiny_cross_encoder
from trouble_rig import faults, states, until

from trivet.policies.calibration import Calibration
from trivet.semantic.cross_encoder import CrossEncoderVerifier
from trivet.semantic.types import TextPair

pytestmark = [pytest.mark.alone, pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]
LOADED_S = 120.0
"""What a busy machine may take to load torch."""
DEADLINE_S = 0.25
SLACK_S = 2.5
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
STORED = asked(topics()[0])

_SLOWED = """\
import importlib.util
import sys
import time

class Slowed:
    \"\"\"Every verdict of a cross-encoder takes two seconds.\"\"\"

    def find_spec(self, name, path=None, target=None):
        if name != "trivet.semantic.cross_encoder":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def slowed(module):
            run(module)
            made = module.CrossEncoderVerifier
            verify = made.verify
            made.verify = lambda of, pairs: time.sleep(2) or verify(of, pairs)

        spec.loader.exec_module = slowed
        return spec

sys.meta_path.insert(0, Slowed())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingsServer]:
    with models() as (_, made):
        yield made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_cross_encoder(tmp_path / "model")


@contextmanager
def cross_encoded(
    folder: Path, server: EmbeddingsServer, cal: Calibration, env: dict[str, str], **named: Path
) -> Iterator[Proxy]:
    """A proxy whose tenants name these folders; all have the same calibration."""
    files = {"cal.json": cal.model_dump_json()}
    for tenant, path in named.items():
        section = {"embedder": name_of(server), "cross_encoder": str(path)}
        files[f"{tenant}.yaml"] = policy(tenant, section)
    policies = write(folder / "policies", files)
    with semantic_proxy(policies, wait=False, env={**OFFLINE, **env}) as proxy:
        yield proxy


def detail(proxy: Proxy) -> str:
    return str(tier(proxy).get("detail", ""))


def loaded(proxy: Proxy) -> None:
    until(lambda: tier(proxy).get("state") in ("up", "degraded"), "the models are open", LOADED_S)


def only(proxy: Proxy, text: str, tenant: str = "acme") -> dict[str, Any]:
    """What the tier says; nothing is stored for the text."""
    return semantic(proxy.chat(text, key=f"sk-{tenant}", cache_control="only-if-cached"))


def parted(model: Path) -> tuple[str, str, float]:
    """The wordings with the highest and the lowest score, and a threshold between them."""
    wordings = [asked(topics()[0], verb, place) for verb in VERBS[1:] for place in ("practice",)]
    wordings += [asked(topics()[0], verb, "nature") for verb in VERBS]
    pairs = [TextPair(STORED, text, 0.0) for text in wordings]
    scores = [one.score for one in CrossEncoderVerifier(str(model)).verify(pairs)]
    ranked = sorted(zip(scores, wordings, strict=True))
    (low, refused), (high, served) = ranked[0], ranked[-1]
    assert high - low > 1e-3
    return served, refused, (low + high) / 2


def test_a_similar_question_is_served_or_refused_by_the_score_of_the_cross_encoder(
    tmp_path: Path, server: EmbeddingsServer, model: Path
) -> None:
    served, refused, threshold = parted(model)
    cal = measured(server, chain="cross-encoder", cross_encoder=str(model), threshold=threshold)
    other = make_tiny_cross_encoder(tmp_path / "other", seed=2)
    with cross_encoded(tmp_path, server, cal, {}, acme=model, globex=other) as proxy:
        loaded(proxy)
        first = learns(proxy, STORED)
        assert only(proxy, refused)["detail"] == "below-threshold"
        again = proxy.chat(served)
        assert semantic(again)["hit"] is True
        assert said(again) == said(first)
        # Another model than the one that was measured only watches.
        learns(proxy, STORED, key="sk-globex")
        assert only(proxy, served, "globex")["detail"] == "shadow-other-chain"
        until(lambda: "globex (other-chain)" in detail(proxy), "readiness says so")
        assert "acme" not in detail(proxy)
        assert faults(proxy) == []


def test_requests_go_on_without_the_model_and_it_is_taken_up_once_it_is_there(
    tmp_path: Path, server: EmbeddingsServer, model: Path
) -> None:
    served, _, threshold = parted(model)
    cal = measured(server, chain="cross-encoder", cross_encoder=str(model), threshold=threshold)
    gone = tmp_path / "gone"
    with cross_encoded(tmp_path, server, cal, {}, acme=gone) as proxy:
        told = f"(cross-encoder {gone}): cross_encoder: There is no folder {gone}."
        until(lambda: told in detail(proxy), "readiness names the model", LOADED_S)
        assert tier(proxy)["state"] == "down"
        reply = proxy.chat(STORED)
        assert (reply.status, reply.exact) == (200, {"fwd": "miss", "stored": True})
        assert semantic(reply) == {"fwd": "miss", "detail": "verifier-missing"}
        assert proxy.chat(STORED).exact["hit"] is True
        assert states(proxy, "semantic-models") == ["down"]
        shutil.copytree(model, gone)
        until(lambda: only(proxy, served)["detail"] == "no-neighbour", "it is open", LOADED_S)
        purge(proxy)  # What was stored meanwhile is an exact hit, and never learned.
        learns(proxy, STORED)
        assert only(proxy, served)["hit"] is True
        assert states(proxy, "semantic-models") == ["down", "up"]
        assert faults(proxy) == []


def test_a_slow_one_costs_its_deadline_and_then_nothing(
    tmp_path: Path, server: EmbeddingsServer, model: Path
) -> None:
    cal = measured(server, chain="cross-encoder", cross_encoder=str(model), threshold=0.01)
    env = {"PYTHONPATH": str(write(tmp_path / "slowed", {"sitecustomize.py": _SLOWED}))}
    with cross_encoded(tmp_path, server, cal, env, acme=model) as proxy:
        loaded(proxy)
        learns(proxy, STORED)
        details = []
        for verb in VERBS[1:]:
            began = time.monotonic()
            reply = proxy.chat(asked(topics()[0], verb))
            assert time.monotonic() - began < DEADLINE_S + SLACK_S
            assert (reply.status, reply.exact) == (200, {"fwd": "miss", "stored": True})
            details.append(semantic(reply)["detail"])
        assert details == ["verifier-timeout"] * 3 + ["verifier-open"]
        told = f"(cross-encoder {model}): A verdict took more than {DEADLINE_S:g} s."
        until(lambda: told in detail(proxy), "readiness says so")
        assert faults(proxy) == []
