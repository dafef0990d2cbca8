"""A model call as the prefix tier looks at it, before anything is decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Api
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.prefix_model import PrefixPolicy
from trivet.prefix.backends.base import Marked, PrefixBackend
from trivet.prefix.markers.placement import place_breakpoints
from trivet.prefix.markers.rules import rules_for
from trivet.prefix.markers.stability import NOTHING_SEEN
from trivet.prefix.prompts.extent import MOST_PARTS, crowded, crowded_text
from trivet.prefix.prompts.native_outline import native_outline
from trivet.prefix.prompts.outline import NativeApi, Outline, outline_of


class Asked(NamedTuple):
    """One model call before it is prepared."""

    api: Api | NativeApi
    model: str
    tenant: str
    policy: PrefixPolicy
    upstream: UpstreamConfig
    target: str
    headers: RawHeaders
    body: bytes
    route: str = ""
    """The application, as the caller names it."""


def outline_for(asked: Asked, backend: PrefixBackend) -> Outline:
    """The outline of the prompt; one without parts where nothing depends on them."""
    if not (backend.takes_marks or asked.upstream.replicas):
        return Outline(asked.api, asked.model, ())
    body = _parsed(asked.body)
    many = crowded_text(asked.body) or crowded(body)
    if many and not asked.upstream.replicas:
        return Outline(asked.api, asked.model, (), cut=True)
    if isinstance(asked.api, NativeApi):
        made = native_outline(asked.api, asked.model, body, MOST_PARTS)
    else:
        # On some paths it is the path that names the model.
        made = outline_of(asked.api, body, MOST_PARTS)._replace(model=asked.model)
    return made._replace(cut=made.cut or many)


def readable_native(raw: bytes) -> bool:
    """Whether a body that no dialect has read is a JSON object, and no crowded one. Blocking."""
    if crowded_text(raw):
        return False
    try:
        # The faster parser first: the strict one would take long for a crowded body.
        quick = orjson.loads(raw)
    except orjson.JSONDecodeError:
        quick = None
    if isinstance(quick, dict) and crowded(quick):
        return False
    try:
        value = canonical.parse(raw)
    except RequestError:
        return False
    return isinstance(value, dict) and not crowded(value)


def marks_for(asked: Asked, outline: Outline, kind: str) -> tuple[Marked, ...]:
    """Where breakpoints go at a cache of that kind, in the first request of its kind."""
    rules = rules_for(kind, asked.model)
    return place_breakpoints(outline, rules, NOTHING_SEEN, asked.policy, 0.0)


def signed_by_aws(target: str, headers: RawHeaders) -> bool:
    """Whether a signature covers the body: AWS Signature Version 4, in a header or in the URL."""
    return "X-Amz-Signature=" in target or any(
        name == b"authorization" and value.lstrip().startswith(b"AWS4-") for name, value in headers
    )


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        # What orjson does not read the strict parser may: it has read this body before.
        value = canonical.parse(body)
    return value if isinstance(value, dict) else {}
