"""What the OpenAI dialects have in common: request fields, the key's form, errors, usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Usage
from trivet.middleware.dialects.base import as_mapping
from trivet.middleware.dialects.bodies import model_of, usage_from

Json = dict[str, Any]

_DIRECTIVES = frozenset(("no-cache", "no-store", "ttl", "s-maxage", "namespace", "use-cache"))
_STREAM_OPTIONS = frozenset(("include_usage", "include_obfuscation"))
_MAX_CHOICES = 128
"""OpenAI's documented maximum of `n`."""
_EXACT = 2**53
"""Up to here a double holds every integer, so that 1.0 and 1 are one value."""


@dataclass(frozen=True, slots=True)
class Fields:
    """How the top-level fields of one API count in the key. What is not named is keyed as is."""

    transport: frozenset[str]
    """Shapes the delivery and not the answer: never keyed."""
    numbers: frozenset[str]
    """Numeric parameters for which 1 and 1.0 are one value."""
    nullable: frozenset[str]
    """Parameters whose null is documented to mean absent."""


SERVER_TRANSPORT = frozenset(
    (
        "cache_salt",
        "extra_key",
        "priority",
        "request_id",
        "rid",
        "session_id",
        "kv_transfer_params",
        "stream_interval",
        "cache_prompt",
        "id_slot",
    )
)
"""Fields of vLLM, SGLang and llama.cpp that steer scheduling and prefix reuse."""

SERVER_NUMBERS = frozenset(
    ("top_k", "min_p", "repetition_penalty", "min_tokens", "length_penalty", "typical_p")
)
"""Sampling parameters of vLLM, SGLang and llama.cpp."""


def read(raw: bytes) -> tuple[Json, Json, bytes]:
    """The body, LiteLLM's cache directives if it has any, and the bytes to forward.

    Raises `RequestError` 400 if the body is not a JSON object.
    """
    body = canonical.parse(raw)
    if type(body) is not dict:
        raise RequestError(400, "The body must be a JSON object.")
    found = body.get("cache")
    if type(found) is not dict or not _DIRECTIVES.issuperset(found):
        return body, {}, raw
    del body["cache"]
    return body, found, _compact(body)


def _compact(body: Json) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:
        # Lone surrogates and integers of 65 bits and more.
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")


_NULL = type(None)
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("stream", "store"), ((bool, _NULL), "true, false or null")),
    **dict.fromkeys(("stream_options", "response_format"), ((dict, _NULL), "an object or null")),
    **dict.fromkeys(("user", "safety_identifier"), ((str, _NULL), "a string or null")),
    **dict.fromkeys(("tools", "functions", "modalities"), ((list, _NULL), "an array or null")),
}
_NUMBER = (int, float, _NULL)


def check(body: Json, fields: Fields) -> None:
    """Raise `RequestError` naming the field for a wrong type of a field that Trivet reads."""
    model_of(body)
    for name, value in body.items():
        wanted = _TYPES.get(name)
        if wanted is not None and type(value) not in wanted[0]:
            raise RequestError(400, f"'{name}' must be {wanted[1]}.", field=name)
        if name in fields.numbers and type(value) not in _NUMBER and name not in SERVER_NUMBERS:
            raise RequestError(400, f"'{name}' must be a number or null.", field=name)


def count(body: Json) -> int:
    """`n`, the choices asked for a prompt: 1 if absent. Raises `RequestError` outside 1 to 128."""
    n = as_integer(body.get("n"))
    if n is None:
        return 1
    if type(n) is not int or not 1 <= n <= _MAX_CHOICES:
        raise RequestError(400, f"'n' must be an integer from 1 to {_MAX_CHOICES}.", field="n")
    return n


def as_integer(value: Any) -> Any:
    """An integral float as the int that equals it; anything else as it is."""
    if type(value) is float and value.is_integer() and -_EXACT <= value <= _EXACT:
        return int(value)
    return value


def keyed(body: Json, fields: Fields) -> Json:
    """The part of the body that the key is made of, its own keys sorted."""
    made: Json = {}
    for name in sorted(body):
        value = body[name]
        if name == "stream_options":
            value = keyed_stream_options(value)
            if value:
                made[name] = value
        elif name not in fields.transport and not (value is None and name in fields.nullable):
            made[name] = as_integer(value) if name in fields.numbers else value
    return made


def keyed_stream_options(value: Any) -> Json:
    """The members of `stream_options` that may shape more than the delivery."""
    return {k: v for k, v in as_mapping(value).items() if k not in _STREAM_OPTIONS}


def include_usage(body: Json) -> bool:
    """Whether the caller of a stream asked for its usage chunk."""
    return as_mapping(body.get("stream_options")).get("include_usage") is True


def is_sampled(body: Json) -> bool:
    """Whether the answer is drawn at random: no seed, and a temperature that is not 0."""
    temperature = body.get("temperature")
    return body.get("seed") is None and (temperature is None or temperature != 0)


def end_user(body: Json) -> str | None:
    """The end user that the body names."""
    return body.get("user") or body.get("safety_identifier") or None


def wanted_json(body: Json) -> tuple[bool, bytes | None]:
    """Whether the answer has to be JSON, and the JSON Schema that it has to satisfy.

    Understands OpenAI's `response_format`, llama.cpp's form with the schema beside the type, and
    vLLM's `guided_json`.
    """
    asked = as_mapping(body.get("response_format"))
    kind = asked.get("type")
    if kind not in ("json_object", "json_schema"):
        schema = body.get("guided_json")
        return schema is not None, canonical.dump(schema) if type(schema) is dict else None
    schema = as_mapping(asked.get("json_schema")).get("schema", asked.get("schema"))
    return True, canonical.dump(schema) if type(schema) is dict else None


def usage_of(value: Any) -> Usage | None:
    """Usage as OpenAI, and DeepSeek in its own field, report it; None if it is not known."""
    usage = as_mapping(value)
    details = as_mapping(usage.get("prompt_tokens_details"))
    return usage_from(
        usage.get("prompt_tokens"),
        usage.get("completion_tokens", 0),
        details.get("cached_tokens", usage.get("prompt_cache_hit_tokens")),
        details.get("cache_write_tokens"),
        as_mapping(details.get("cache_write_tokens_details")).get("ttl_12h_tokens"),
    )


_ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


def error_body(status: int, message: str, field: str | None, code: str | None) -> bytes:
    """An error as OpenAI's APIs shape it."""
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": field, "code": code}})
