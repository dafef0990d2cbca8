"""Prompts of more parts than are looked at: tenants are kept apart, nothing else is done."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
from traffic_parts import call_of

from trivet.messages import Api
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.asks import Asked
from trivet.middleware.prefix_tier.doctoring import Doctoring, _Job
from trivet.middleware.prefix_tier.slots import SlotBook
from trivet.middleware.prefix_tier.tier import Prefixes, Sent
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.prefix_model import PrefixPolicy
from trivet.policies.tenants import UNDECLARED
from trivet.prefix.prompts.extent import MOST_PARTS
from trivet.prefix.prompts.outline import NativeApi, Outline
from trivet.telemetry import PrefixUse

RULES = "Answer in the language of the question. " * 900


def asked(cache: str, api: Api | NativeApi, model: str, blocks: int, **body: Any) -> Asked:
    upstream = UpstreamConfig(name="up", base_url="http://127.0.0.1:1", cache=cast("Any", cache))
    said = [{"role": "user", "content": [{"type": "text", "text": RULES}] + [{}] * blocks}]
    raw = json.dumps({"model": model, "system": RULES, "messages": said, **body}).encode()
    return Asked(api, model, "a", PrefixPolicy(), upstream, "/v1/x", [], raw)


def tier(path: Path, one: Asked) -> Prefixes:
    nobody = cast("UpstreamClient", MappingProxyType({}))
    slots = SlotBook(path / "slots", b"s" * 32)
    return Prefixes(nobody, [one.upstream], b"s" * 32, lambda: UNDECLARED, slots)


async def sent(path: Path, one: Asked) -> Sent:
    made = tier(path, one)
    return await (made.prepare_native(one) if one.target == "native" else made.prepare(one))


@pytest.mark.parametrize("blocks", [MOST_PARTS, 40_000])
async def test_a_server_gets_the_tenants_salt_over_the_callers_all_the_same(
    tmp_path: Path, blocks: int
) -> None:
    one = asked("vllm", Api.CHAT, "m", blocks, cache_salt="theirs", id_slot=1)
    body = json.loads((await sent(tmp_path, one)).body)
    assert len(body["cache_salt"]) == 64
    assert "id_slot" not in body


async def test_openai_gets_the_tenants_key_and_no_breakpoint(tmp_path: Path) -> None:
    one = asked("openai", Api.CHAT, "gpt-5.6", MOST_PARTS, prompt_cache_key="k")
    made = await sent(tmp_path, one)
    assert json.loads(made.body)["prompt_cache_key"] != "k"
    assert b"prompt_cache_breakpoint" not in made.body
    assert made.prepared is not None
    assert made.prepared.notes[-1] == "no breakpoints: the prompt has more than 4,096 parts"


async def test_anthropic_gets_the_same_bytes(tmp_path: Path) -> None:
    one = asked("anthropic", Api.MESSAGES, "claude-opus-5", MOST_PARTS)
    made = await sent(tmp_path, one)
    assert made.body is one.body
    assert made.outline is not None
    assert (made.outline.parts, made.outline.cut) == ((), True)
    few = await sent(tmp_path, asked("anthropic", Api.MESSAGES, "claude-opus-5", 9))
    assert b"cache_control" in few.body


@pytest.mark.parametrize("api", list(NativeApi))
async def test_a_native_prompt_goes_unread(tmp_path: Path, api: NativeApi) -> None:
    cache = "bedrock" if api is NativeApi.CONVERSE else "gemini"
    one = asked(cache, api, "claude-opus-5", MOST_PARTS)._replace(target="native")
    made = await sent(tmp_path, one)
    assert made.body is one.body
    assert made.outline is None


async def test_the_doctor_looks_at_none_and_counts_it() -> None:
    heard: list[Any] = []
    doctor = Doctoring(heard.append, rest=1e9)
    call = call_of()
    call.sent = Sent(b"{}", [], outline=Outline(Api.CHAT, "m", (), cut=True))
    doctor.hand(call)
    doctor.forget("nobody")
    doctor.close()
    assert [one.unseen for one in heard if isinstance(one, PrefixUse)] == [1]


async def test_what_waits_for_the_doctor_is_texts_and_no_outline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doctor = Doctoring(lambda event: None, rest=1e9)
    monkeypatch.setattr(doctor, "_start", lambda: None)
    call = call_of()
    call.sent = Sent(b'{"x":1}', [], outline=Outline(Api.CHAT, "m", ()))
    doctor.hand(call)
    job = doctor._jobs.get_nowait()
    assert isinstance(job, _Job)
    assert not any(isinstance(one, Outline | Sent | Call) for one in job)
    assert job.size == len(call.request.forward) + 7 == doctor._given
