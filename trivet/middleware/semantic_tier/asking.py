"""What of a call the semantic tier is asked: the compared text, or the reason why it is not."""

from __future__ import annotations

from trivet.canonical import mac
from trivet.exact.key import exact_key
from trivet.messages import ExactKey, Request
from trivet.middleware.call import Call
from trivet.policies.semantic_model import SemanticPolicy
from trivet.semantic.asked import Asked, read_asked

_LARGEST = 256 << 10
"""Bytes of a request beyond which it is not read again: that takes milliseconds."""


def asked_of(request: Request, policy: SemanticPolicy) -> Asked | str:
    """The compared text and the rest; a string is why it is not looked up.

    The reasons are those of `read_asked`, `too-large`, `tools` and `turns`.
    """
    if len(request.canonical) > _LARGEST:
        return "too-large"
    if request.tools and policy.tools == "bypass":
        return "tools"
    asked = read_asked(request.api, request.canonical)
    if isinstance(asked, Asked) and asked.turns > policy.max_turns:
        return "turns"
    return asked


def rest_of(call: Call, asked: Asked) -> ExactKey:
    """Digest of all that has to be equal but the text: the request's exact key without it."""
    return exact_key(call.parts._replace(canonical=asked.rest))


def principal_of(call: Call, secret: bytes) -> str:
    """Opaque name of the end user, 16 hex digits; one for all where none is named."""
    user = call.principal or ""
    return mac(secret, user.encode("utf-8", "surrogatepass"))[:8].hex()


def may_write(call: Call) -> bool:
    """Whether the policy lets this user write entries that others get."""
    writers = call.policy.semantic.writers
    return writers is None or call.principal in writers
