"""Builders for the tests of the traffic log."""

from __future__ import annotations

import json
from typing import Any

import orjson
from openai_bodies import completion

from trivet.exact.entry import Entry
from trivet.exact.key import KeyParts, keyed
from trivet.exact.tier import Question
from trivet.messages import Api, Scope, Usage
from trivet.middleware.call import Call, Note
from trivet.middleware.dialects.registry import CHAT
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.eligibility import Bypass, Eligible
from trivet.policies.model import ExactSettings, TenantPolicy

SECRET = b"s" * 32
PLAN = Eligible(
    lookup=True,
    store=True,
    ttl=60.0,
    fresh_for=60.0,
    max_age=None,
    min_fresh=None,
    stale_if_error=0.0,
    only_if_cached=False,
    pool=None,
    user=None,
)


def policy(tenant: str = "t1", **semantic: Any) -> TenantPolicy:
    given = {"record": True, **semantic}
    return TenantPolicy.model_validate({"tenant": tenant, "semantic": given})


def call_of(
    text: str = "how high is it",
    *,
    plan: Eligible | Bypass = PLAN,
    owner: TenantPolicy | None = None,
    principal: str | None = None,
    **body: Any,
) -> Call:
    """A chat call by `owner` that asks `text`."""
    owner = owner or policy()
    asked = {"model": "m1", "messages": [{"role": "user", "content": text}], **body}
    request = CHAT.decode(json.dumps(asked).encode(), {})
    parts = KeyParts(
        api=request.api,
        upstream="up",
        base_url="http://up",
        credential=b"c",
        headers=(),
        scope=Scope(owner.tenant),
        policy_versions=(),
        request_versions=(),
        query="",
        canonical=request.canonical,
    )
    call = Call(
        dialect=CHAT,
        request=request,
        policy=owner,
        settings=ExactSettings(),
        plan=plan,
        upstream=UpstreamConfig(name="up", base_url="http://up"),
        target="/v1/chat/completions",
        headers=[],
        parts=parts,
        labels=frozenset(),
        remember=lambda call, entry: None,
        waiting=lambda: None,
        note=Note("miss", stored=True, usage=Usage(10, 2), upstream_s=0.5),
        principal=principal,
    )
    if isinstance(plan, Eligible):
        call.question = Question(owner.tenant, *keyed(parts))
    return call


def entry_of(call: Call, answer: dict[str, Any] | None = None) -> Entry:
    """A stored answer to the call."""
    assert call.question is not None
    return Entry(
        key=call.question.key,
        tenant=call.tenant,
        api=Api.CHAT,
        canonical=call.question.canonical,
        body=orjson.dumps(answer or completion()),
        model="m1",
        usage=Usage(10, 2),
        ids=(),
        created=0.0,
        expires=60.0,
        stale_until=60.0,
    )
