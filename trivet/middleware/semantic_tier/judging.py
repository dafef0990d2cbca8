"""The judge that a tenant's policy names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trivet.messages import Api, Usage
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.call import Call
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.middleware.semantic_tier.audits import JudgeOf
from trivet.middleware.semantic_tier.llm_judge import LlmJudge
from trivet.middleware.upstream import Sender
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.judges import EmbedderJudge, EqualityJudge, Judge
from trivet.telemetry import ModelCall, Observer, ignore

EmbedderOf = Callable[[SemanticPolicy], BatchedEmbedder | None]
"""The policy's embedder, once it is loaded."""


def judges(
    client: Sender, routing: Routing, embedder_of: EmbedderOf, observer: Observer = ignore
) -> JudgeOf:
    """Finds the judge of a call. What a model as judge costs is told to `observer`."""

    def judge_of(call: Call) -> Judge | None:
        policy = call.policy.semantic
        named = policy.audit.judge
        if named.kind == "equality":
            return EqualityJudge()
        if named.kind == "embedder":
            embedder = embedder_of(policy)
            if embedder is None:
                return None
            return EmbedderJudge(partial(embedder.embed, tenant=call.tenant), named.threshold)
        if named.kind == "llm" and named.upstream and named.model:
            target = routing.named(named.upstream)
            if target is not None:
                told = partial(_billed, observer, call, (named.model, named.upstream))
                return LlmJudge(client, target, named.model, named.prompt, told)
        return None

    return judge_of


def _billed(
    observer: Observer, call: Call, asked: tuple[str, str], usage: Usage | None, served: str
) -> None:
    model, upstream = asked
    observer(
        ModelCall(
            call.tenant,
            route_of_call(call),
            Api.CHAT.value,
            served or model,
            upstream,
            usage,
            "judge",
        )
    )
