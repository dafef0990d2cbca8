"""A running proxy with the semantic tier over an embeddings endpoint of the test's own."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from embeddings_server import EmbeddingsServer, embeddings_server
from parts import calibration
from proxy import Proxy, Reply, request, serving
from trouble_rig import until

from trivet.middleware.status import parse
from trivet.policies.calibration import Calibration, Chain
from trivet.policies.keygen import key_hash
from trivet.semantic.endpoint_embedder import EndpointEmbedder
from trivet.semantic.english import word_list, word_set
from trivet.semantic.gate import load_gate
from trivet.semantic.verifiers import open_chain

DIMENSION = 128
SECRET = "5" * 64
_SMALL = word_set("how do does did can could may might should would i the a an of work in")
_TOPICS = word_list(
    """photosynthesis gravity magnetism evolution fermentation osmosis refraction erosion friction
    evaporation combustion digestion respiration condensation radiation inflation encryption
    compression electricity pollination diffusion taxation insulation navigation"""
)
VERBS = ("does", "can", "would", "should", "did")


def asked(topic: str, verb: str = "does", place: str = "practice") -> str:
    """A question that is the same whatever the verb, and a near one (0.8) in another place."""
    return f"How {verb} {topic} work in {place}?"


@cache
def topics() -> list[str]:
    """Those whose every wording passes the shipped gate."""
    gate = load_gate()
    found: list[str] = []
    for topic in _TOPICS:
        wordings = [asked(topic, verb, place) for verb in VERBS for place in ("practice", "nature")]
        if all(one.admitted and not one.reason for one in gate.classify(wordings, None)):
            found.append(topic)
    assert len(found) > 12
    return found


def words_vector(text: str, salt: str = "") -> list[float]:
    """Twice a random vector for the first word that is not small, and one for each other; a model
    of its own by `salt`."""
    words = [word for word in text.lower().strip(" ?!.").split() if word not in _SMALL]
    total = np.zeros(DIMENSION)
    for at, word in enumerate(words or ["nothing"]):
        seed = hashlib.sha256(f"{salt} {word}".encode("utf-8", "replace")).digest()[:4]
        vector = np.random.default_rng(int.from_bytes(seed, "big")).normal(size=DIMENSION)
        total += vector if at else 2 * vector
    return [float(value) for value in total]


class Models:
    """What the endpoint serves: `ways` says how a model misbehaves, by its name."""

    def __init__(self) -> None:
        self.ways: dict[str, str] = {}
        self.healed = threading.Event()

    def __call__(self, body: dict[str, Any]) -> tuple[int, Any]:
        way = self.ways.get(body["model"], "")
        if way == "hangs":
            self.healed.wait(20)
        if way == "late":
            time.sleep(0.9)
        if way == "errors":
            return 500, {"error": "overloaded"}
        if way == "garbage":
            return 200, b"<html>Bad gateway</html>"
        salt = "other" if way == "changed" else ""
        vectors = [words_vector(text, salt) for text in body["input"]]
        if way == "short":
            vectors = [vector[:3] for vector in vectors]
        if way == "nan":
            vectors = [[float("nan"), *vector[1:]] for vector in vectors]
        data = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        return 200, {"data": data, "model": body["model"]}

    def heal(self) -> None:
        """Every model is well again."""
        self.ways.clear()
        self.healed.set()


@contextmanager
def models(port: int = 0) -> Iterator[tuple[Models, EmbeddingsServer]]:
    """An endpoint whose models can be made ill."""
    with embeddings_server(port) as server:
        served = server.reply = Models()
        try:
            yield served, server
        finally:
            served.heal()


def measured(
    server: EmbeddingsServer, model: str = "m", chain: Chain = "cosine", **given: Any
) -> Calibration:
    """A calibration at 0.7 for a model of the endpoint, and maybe a cross-encoder over it, or
    weights (`fitted`)."""
    embedder = EndpointEmbedder(server.url, model)
    embedder.close()
    named = given.pop("cross_encoder", None)
    made = open_chain(chain, embedder, load_gate(), named, given.get("fitted")).fingerprint
    return calibration(given.pop("threshold", 0.7), fingerprint=made, **given)


def policy(tenant: str, semantic: Mapping[str, Any], **more: Any) -> str:
    """A policy file. The key of tenant `x` is `sk-x`."""
    section = {"mode": "replace", "calibration": "cal.json", "audit": {"share": 0}, **semantic}
    credentials = [{"sha256": key_hash(f"sk-{tenant}")}]
    return yaml.safe_dump(
        {"tenant": tenant, "credentials": credentials, "semantic": section, **more}
    )


def name_of(server: EmbeddingsServer, model: str = "m") -> str:
    """How a policy names a model of the endpoint."""
    return f"openai:{server.url}#{model}"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """The files in a policy directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def _is_open(part: Mapping[str, Any]) -> bool:
    """Tenants that only watch are told of, and no trouble."""
    return part.get("state") == "up" or "; watching only" in part.get("detail", "")


@contextmanager
def semantic_proxy(
    policies: Path,
    *arguments: str,
    store: str = "memory",
    upstream: str | None = None,
    wait: bool = True,
    config: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Proxy]:
    """`trivet serve` over a policy directory, once the tier is open (unless `wait` is False)."""
    cache_home = str(policies.parent / "cache")
    given = {"TRIVET_SECRET": SECRET, "XDG_CACHE_HOME": cache_home, **(env or {})}
    flags = ("--policies", str(policies), "--log-format", "json", *arguments)
    with serving(upstream, *flags, store=store, config=config, env=given) as proxy:
        proxy.key = "sk-acme"
        if wait:
            until(lambda: _is_open(tier(proxy)), "the tier is open")
        yield proxy


@contextmanager
def acme(folder: Path, server: EmbeddingsServer, **options: Any) -> Iterator[Proxy]:
    """A proxy with one tenant, `acme`, that replaces."""
    with ExitStack() as stack:
        files = {
            "acme.yaml": policy(
                "acme", {"embedder": name_of(server), **options.pop("semantic", {})}
            ),
            "cal.json": measured(server, **options.pop("cal", {})).model_dump_json(),
        }
        policies = write(folder / "policies", files)
        yield stack.enter_context(semantic_proxy(policies, **options))


def tier(proxy: Proxy) -> dict[str, Any]:
    """What readiness says about the tier; it says so without failing."""
    reply = proxy.get("/readyz", admin=True)
    assert reply.status == 200
    found = [part for part in reply.json["components"] if part["name"] == "semantic"]
    return dict(found[0]) if found else {}


def semantic(reply: Reply) -> dict[str, Any]:
    """What the tier says in `Cache-Status`."""
    return dict(parse(reply.headers["cache-status"]).get("trivet-semantic", {}))


def hits(reply: Reply) -> bool:
    """Whether a similar answer was served."""
    assert reply.status == 200, reply.body
    return semantic(reply).get("hit") is True


def said(reply: Reply) -> str:
    """The answer's text."""
    return str(reply.json["choices"][0]["message"]["content"])


def learns(proxy: Proxy, text: str, **options: Any) -> Reply:
    """Ask, and wait until the question is in the index."""
    before = entries(proxy)
    reply = proxy.chat(text, **options)
    assert reply.status == 200, reply.body
    until(lambda: entries(proxy) > before, f"{text!r} is learned: {semantic(reply)}", 10)
    return reply


def learns_something(proxy: Proxy) -> str:
    """Ask until a question is in the index, which it may not be at first; the one that is."""
    for topic in topics():
        before = entries(proxy)
        proxy.chat(asked(topic))
        limit = time.monotonic() + 1
        while time.monotonic() < limit:
            if entries(proxy) > before or similar(proxy, asked(topic, "can")):
                return topic
            time.sleep(0.05)
    raise AssertionError("nothing is learned")


def similar(proxy: Proxy, text: str, tenant: str = "acme") -> bool:
    """Whether a similar question's answer is served; nothing is stored for the text."""
    reply = proxy.chat(text, key=f"sk-{tenant}", cache_control="only-if-cached")
    return semantic(reply).get("hit") is True


def entries(proxy: Proxy) -> int:
    """Questions in the index."""
    detail = str(tier(proxy)["detail"])
    return int(detail.split()[0]) if detail.split()[0].isdigit() else -1


def purge(proxy: Proxy, **what: str) -> Reply:
    """Ask the admin port to forget."""
    body = json.dumps({"tenant": "acme", **what}).encode()
    kind = {"content-type": "application/json"}
    reply = request("POST", f"{proxy.admin}/trivet/purge", body, kind, 30)
    assert reply.status == 200, reply.body
    return reply
