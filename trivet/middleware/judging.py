"""The judge that a tenant's policy names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trivet.middleware.audits import JudgeOf
from trivet.middleware.call import Call
from trivet.middleware.llm_judge import LlmJudge
from trivet.middleware.routing import Routing
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.batching import BatchedEmbedder
from trivet.semantic.judges import EmbedderJudge, EqualityJudge, Judge

EmbedderOf = Callable[[SemanticPolicy], BatchedEmbedder | None]
"""The policy's embedder, once it is loaded."""


def judges(client: UpstreamClient, routing: Routing, embedder_of: EmbedderOf) -> JudgeOf:
    """Finds the judge of a call."""

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
                return LlmJudge(client, target, named.model, named.prompt)
        return None

    return judge_of
