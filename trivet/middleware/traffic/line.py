"""What is recorded of one request: a pure function of the call and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from trivet.canonical import mac
from trivet.exact.entry import Entry
from trivet.exact.key import exact_key
from trivet.messages import Usage
from trivet.middleware.call import Call, Note
from trivet.middleware.dialects.texts import answer_text
from trivet.middleware.prefix_tier.prompt_record import PromptRecorder
from trivet.middleware.semantic_tier.asking import asked_of, may_write, principal_of, rest_of
from trivet.policies.eligibility import Bypass, Eligible
from trivet.policies.traffic import RecordedAnswer, RecordedExact, RecordedUsage, Traffic
from trivet.semantic.asked import Asked

_KEY, _REST, _TEXT = b"trivet-traffic-key", b"trivet-traffic-rest", b"trivet-traffic-text"
_LONGEST_MODEL = 256


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended."""

    at: float
    """When it arrived, in Unix seconds."""
    entry: Entry | None
    """The answer that was served from the cache, or recorded while it passed by."""
    price: float | None
    """US dollars of the answer's usage."""


def line_of(
    call: Call, ended: Ended, secret: bytes, prompts: PromptRecorder | None = None
) -> Traffic:
    """The record of a call that has ended. Texts are in it only where the policy says so.

    `secret` is the deployment's. Parses the request anew: meant for a thread.
    """
    asked = asked_of(call.request, call.policy.semantic)
    found = asked if isinstance(asked, Asked) else None
    with_text = call.policy.semantic.store_text
    key = exact_key(call.parts) if call.question is None else call.question.key
    return Traffic(
        at=ended.at,
        tenant=call.tenant,
        api=call.request.api,
        model=_sound(call.request.model)[:_LONGEST_MODEL],
        key=mac(secret, _KEY, key).hex(),
        exact=_exact(call.plan),
        rest=None if found is None else mac(secret, _REST, rest_of(call, found)).hex(),
        text=found.text if found is not None and with_text else None,
        text_digest=None if found is None else _text_digest(secret, call.tenant, found.text),
        unasked=asked if isinstance(asked, str) else "",
        principal=principal_of(call, secret),
        may_write=may_write(call),
        answer=_answer(call.note, ended, with_text=with_text),
        prompt=None if prompts is None else prompts.record(call),
    )


def _text_digest(secret: bytes, tenant: str, text: str) -> str:
    return mac(secret, _TEXT, tenant.encode(), text.encode("utf-8", "surrogatepass")).hex()


def _exact(plan: Eligible | Bypass) -> RecordedExact:
    if isinstance(plan, Bypass):
        return RecordedExact(reason=plan.reason)
    return RecordedExact(
        reason="" if plan.lookup else "no-cache",
        store=plan.store,
        ttl=plan.ttl,
        max_age=plan.max_age,
        min_fresh=plan.min_fresh,
        pool=plan.pool,
    )


def _answer(note: Note, ended: Ended, *, with_text: bool) -> RecordedAnswer:
    entry = ended.entry
    text = None if entry is None else answer_text(entry.api, entry.body)
    own = note.tier != "semantic"
    return RecordedAnswer(
        tier="model" if note.tier is None else "semantic" if not own else "exact",
        reason=_reason(note),
        plain=text is not None,
        length=None if entry is None else len(entry.body),
        text=_sound(text) if with_text and own and text is not None else None,
        usage=_usage(note.usage),
        price=ended.price,
        upstream_s=max(0.0, note.upstream_s),
    )


def _reason(note: Note) -> str:
    if note.outcome == "hit" or note.stored:
        return ""
    return note.reason or note.outcome


def _usage(usage: Usage | None) -> RecordedUsage | None:
    if usage is None:
        return None
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_long_tokens,
    )
    if min(counts) < 0:
        return None
    names = ("input", "output", "cache_read", "cache_write", "cache_write_long")
    return RecordedUsage(**dict(zip(names, counts, strict=True)))


def _sound(text: str) -> str:
    """Without lone surrogates, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode()
