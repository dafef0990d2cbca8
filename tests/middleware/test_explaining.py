"""The explanation names the key that the running proxy uses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgi_driver import SECRET, Rig, chat_body, json_script
from openai_bodies import completion

from trivet.errors import RequestError
from trivet.exact.memory import MemoryStore
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.tenants import UNDECLARED, TenantDirectory

MAIN = UpstreamConfig(name="main", base_url="http://u/v1")
OWN = UpstreamConfig(name="main", base_url="http://u/v1", credential_env="KEY")
ENV = {"KEY": "sk-up"}
TENANTS = TenantDirectory(UNDECLARED, SECRET)
CHAT = "/v1/chat/completions"


def stored_keys(rig: Rig) -> set[str]:
    assert isinstance(rig.store, MemoryStore)
    return {key.hex() for shelf in rig.store._shelves.values() for key in shelf.nodes}


@pytest.mark.parametrize("upstream", [MAIN, OWN])
@pytest.mark.parametrize("path", [CHAT, "/chat/completions"])
@pytest.mark.parametrize("headers", [(), (("openai-beta", "x"), ("trivet-version", "a=1"))])
async def test_the_key_is_the_one_in_the_store(
    upstream: UpstreamConfig, path: str, headers: tuple[tuple[str, str], ...]
) -> None:
    rig = Rig(json_script(completion()), upstreams=[upstream], env=ENV)
    await rig.ask(path, chat_body(), *headers)
    explainer = Explainer(Routing([upstream], ENV), SECRET)
    sent = {"authorization": "Bearer sk-acme", **dict(headers)}
    told = explainer.explain(TENANTS, path, sent, json.dumps(chat_body()).encode())
    assert set(told["keys"]) == stored_keys(rig)


async def test_each_item_of_a_batch_has_its_key() -> None:
    data = [{"index": index, "embedding": [1.0]} for index in range(2)]
    rig = Rig(json_script({"data": data, "model": "m"}), upstreams=[MAIN])
    body = {"model": "m", "input": ["a", "b"]}
    await rig.ask("/v1/embeddings", body)
    told = Explainer(Routing([MAIN], {}), SECRET).explain(
        TENANTS,
        "/v1/embeddings",
        {"authorization": "Bearer sk-acme"},
        json.dumps(body).encode(),
    )
    assert set(told["keys"]) == stored_keys(rig)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"messages": []}, "model"),
        (CHAT, {"model": 7}, "model"),
        ("/v1/audio", {"model": "m"}, "path"),
    ],
)
def test_what_is_wrong_is_named(path: str, body: Any, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        Explainer(Routing([MAIN], {}), SECRET).explain(TENANTS, path, {}, json.dumps(body).encode())
    assert caught.value.field == field


@pytest.mark.parametrize("raw", [b"", b"{", b'{"model":"m"},"path":"/v1/responses"', b'{},"x":{}'])
def test_a_body_cannot_break_out_of_its_place(raw: bytes) -> None:
    with pytest.raises(RequestError):
        Explainer(None, SECRET).explain(TENANTS, CHAT, {}, raw)


def test_odd_text_is_explained_too() -> None:
    body = rb'{"model":"m","x":"\ud800","messages":[{"role":"user","content":"\ud83d"}]}'
    told = Explainer(Routing([MAIN], {}), SECRET).explain(TENANTS, CHAT, {"x-a": "\ud800"}, body)
    assert told["model"] == "m"
