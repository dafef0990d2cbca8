"""What the dialects share about request and answer bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Usage

NUMBER: Final = (int, float)
STRING: Final = (str,)
ARRAY: Final = (list,)
OBJECT: Final = (dict,)
BOOLEAN: Final = (bool,)

_NAMES: Final[dict[type, str]] = {
    str: "a string",
    int: "a number",
    list: "an array",
    dict: "an object",
    bool: "true or false",
}


def check_types(body: dict[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Refuse fields whose JSON type is not among `kinds`; absent and null are left alone.

    Raises `RequestError` 400 naming the field.
    """
    for field, value in body.items():
        allowed = kinds.get(field)
        if allowed is not None and value is not None and type(value) not in allowed:
            names = " or ".join(_NAMES[kind] for kind in allowed if kind in _NAMES)
            raise RequestError(400, f"'{field}' must be {names}.", field=field)


def model_of(body: Mapping[str, Any]) -> str:
    """The model that the body names. Raises `RequestError` 400 if it names none."""
    model = body.get("model")
    if type(model) is not str or not model:
        raise RequestError(400, "'model' must be a non-empty string.", field="model")
    return model


def compact(value: Any) -> bytes:
    """Compact JSON text. What orjson cannot write is written in ASCII with escapes."""
    return canonical.dump(value).removeprefix(b"\x00")


def is_zero(value: Any) -> bool:
    """True for the JSON number 0 in any spelling, not for false."""
    return type(value) in NUMBER and bool(value == 0)


def token_count(value: Any) -> int | None:
    """A JSON integer from 0 to 2^31 - 1, or None: no answer has more tokens."""
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def usage_from(given: Any, made: Any, read: Any, written: Any, longer: Any = None) -> Usage | None:
    """Usage out of five values as they came; None where one of them is no count of tokens.

    `read`, `written` and `longer` (of those written) may be left out or null: that is 0. One count
    that cannot be true leaves none to be believed, and counters that only grow are fed from here.
    """
    whole, answer = token_count(given), token_count(made)
    cached = token_count(0 if read is None else read)
    kept = token_count(0 if written is None else written)
    if whole is None or answer is None or cached is None or kept is None:
        return None
    long = token_count(longer) if longer is not None else 0
    return Usage(whole, answer, cached, kept, min(long or 0, kept))


def schema_of(wanted: Mapping[str, Any]) -> tuple[bool, bytes | None]:
    """Whether `text.format` or `output_config.format` asks for JSON, and for which schema."""
    if wanted.get("type") not in ("json_schema", "json_object"):
        return False, None
    schema = wanted.get("schema")
    return True, None if schema is None else compact(schema)
