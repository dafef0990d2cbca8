"""Repairs of a body: keyed and sent as repaired, shown by explain, off unless asked for."""

from __future__ import annotations

import json
from typing import Any

from asgi_driver import Rig, json_script
from openai_bodies import completion

from trivet.messages import Api
from trivet.middleware.dialects.registry import CHAT as DIALECT
from trivet.middleware.explain.considered import Destination
from trivet.middleware.explain.explain import explain
from trivet.middleware.explain.sample import Sample
from trivet.middleware.explain.text import render
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import Identified

CHAT = "/v1/chat/completions"


def _policy(**repair: Any) -> TenantPolicy:
    return TenantPolicy.model_validate({"tenant": "acme", "prefix": {"repair": repair}})


def _body(*names: str) -> bytes:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps(
        {"model": "m", "temperature": 0, "messages": messages, "tools": tools}
    ).encode()


def _names(raw: bytes) -> list[str]:
    return [tool["function"]["name"] for tool in json.loads(raw)["tools"]]


async def test_a_repaired_body_is_what_is_keyed_and_sent() -> None:
    rig = Rig(json_script(completion()), policies=[_policy(sort_tools=True)])
    first = await rig.ask(CHAT, _body("b", "a"))
    again = await rig.ask(CHAT, _body("a", "b"))
    assert _names(rig.upstream.sent[0].body) == ["a", "b"]
    assert (first.status, len(rig.upstream.sent)) == (200, 1)
    assert "hit" in (again.header("cache-status") or "")


async def test_the_order_is_the_callers_where_nothing_is_asked_for() -> None:
    """Case L2."""
    rig = Rig(json_script(completion()), policies=[_policy()])
    await rig.ask(CHAT, raw := _body("b", "a"))
    assert rig.upstream.sent[0].body == raw


def test_explain_shows_what_is_changed_as_a_diff() -> None:
    sample = Sample(Api.CHAT, False, CHAT, "", {}, _body("b", "a"))
    who = Identified(_policy(sort_tools=True), "acme", "key", b"c")
    found = explain(sample, DIALECT.decode, who, Destination("u", "http://u"))
    assert found.repairs[0] == "tools: sorted by name (prefix.repair.sort_tools)"
    assert any(line.startswith("-") for line in found.repairs)
    assert "Changed by the policy (prefix.repair)" in render(found)
