"""A chain that was fitted to a tenant's own pairs, in the running proxy: its weights come with the
calibration, and other weights are another chain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from embeddings_server import EmbeddingsServer
from proxy import Proxy
from semantic_rig import (
    asked,
    learns,
    measured,
    models,
    name_of,
    policy,
    said,
    semantic,
    semantic_proxy,
    tier,
    topics,
    write,
)
from trouble_rig import faults, until

from trivet.policies.fitted import Fitted

STORED, REWORDED = asked(topics()[0]), asked(topics()[0], "can")
ELSEWHERE = asked(topics()[0], place="nature")
LAYER = Fitted(
    features="few",
    pairs=200,
    intercept=0.0,
    trust=0.0,
    weights=(0.0, 1.0),
    means=(0.0, 0.9),
    scales=(1.0, 0.02),
)
"""The cosine as a probability: 0.5 where it is 0.9."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingsServer]:
    with models() as (_, made):
        yield made


def only(proxy: Proxy, text: str, tenant: str = "acme") -> dict[str, Any]:
    """What the tier says; nothing is stored for the text."""
    return semantic(proxy.chat(text, key=f"sk-{tenant}", cache_control="only-if-cached"))


def test_the_proxy_serves_by_the_weights_that_were_measured_and_by_no_others(
    tmp_path: Path, server: EmbeddingsServer
) -> None:
    cal = measured(server, chain="fitted", fitted=LAYER, threshold=0.5)
    loose = measured(
        server, chain="fitted", fitted=LAYER.model_copy(update={"means": (0.0, 0.5)}), threshold=0.5
    )
    # The fingerprint is that of the measured weights, the weights are not.
    changed = cal.model_copy(update={"fitted": loose.fitted})
    files = {
        "cal.json": cal.model_dump_json(),
        "loose.json": loose.model_dump_json(),
        "changed.json": changed.model_dump_json(),
        "acme.yaml": policy("acme", {"embedder": name_of(server)}),
    }
    for tenant in ("loose", "changed"):
        section = {"embedder": name_of(server), "calibration": f"{tenant}.json"}
        files[f"{tenant}.yaml"] = policy(tenant, section)
    policies = write(tmp_path / "policies", files)
    with semantic_proxy(policies) as proxy:
        first = learns(proxy, STORED)
        again = proxy.chat(REWORDED)
        assert semantic(again)["hit"] is True
        assert said(again) == said(first)
        assert only(proxy, ELSEWHERE)["detail"] == "below-threshold"
        learns(proxy, STORED, key="sk-loose")
        assert only(proxy, ELSEWHERE, "loose")["hit"] is True
        learns(proxy, STORED, key="sk-changed")
        assert only(proxy, REWORDED, "changed")["detail"] == "shadow-other-chain"
        told = "watching only, whatever the policy says: changed (other-chain)"
        until(lambda: told in str(tier(proxy)["detail"]), "readiness says so")
        assert faults(proxy) == []


def test_weights_that_are_not_as_many_as_the_verifier_has_numbers_are_named_and_serve_nothing(
    tmp_path: Path, server: EmbeddingsServer
) -> None:
    cal = measured(server, chain="fitted", fitted=LAYER, threshold=0.5)
    short = LAYER.model_copy(update={"weights": (1.0,), "means": (0.0,), "scales": (1.0,)})
    files = {
        "cal.json": cal.model_copy(update={"fitted": short}).model_dump_json(),
        "acme.yaml": policy("acme", {"embedder": name_of(server)}),
    }
    with semantic_proxy(write(tmp_path / "policies", files), wait=False) as proxy:
        told = "fitted.weights: 1 weights, and the verifier has 2 numbers: calibrate again"
        until(lambda: told in str(tier(proxy).get("detail")), "readiness names the weights")
        reply = proxy.chat(STORED)
        assert (reply.status, reply.exact) == (200, {"fwd": "miss", "stored": True})
        assert semantic(reply) == {"fwd": "miss", "detail": "verifier-missing"}
        assert faults(proxy) == []
