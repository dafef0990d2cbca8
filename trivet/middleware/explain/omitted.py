"""Which fields of a body are not in its key: found out by leaving each of them away."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trivet import canonical
from trivet.errors import RequestError

_DELIVERY = "how the answer is delivered, not what it says"
_CALLER = "says who asks; whose answer it is follows from the credential and the policy"
_PROVIDER_CACHE = "steers the provider's own cache; the answer stays the same"
_SCHEDULING = "steers the server's scheduling and prefix reuse; the answer stays the same"

_WHY = {
    "stream": _DELIVERY,
    "stream_options": _DELIVERY,
    "stream_interval": _DELIVERY,
    "encoding_format": "vectors are kept as numbers and encoded for each request",
    "user": _CALLER,
    "safety_identifier": _CALLER,
    "user_profile_id": _CALLER,
    "metadata": "the caller's own notes; the model does not see them",
    "store": "whether the provider keeps a copy",
    "service_tier": "how fast the provider answers",
    "billing_policy": "how the provider bills",
    "diagnostics": "asks the provider for details about its cache",
    "prompt_cache_key": _PROVIDER_CACHE,
    "prompt_cache_options": _PROVIDER_CACHE,
    "prompt_cache_retention": _PROVIDER_CACHE,
    "prompt_cache_breakpoint": _PROVIDER_CACHE,
    "cache_control": _PROVIDER_CACHE,
    "cache": "a wish to this cache; not sent upstream",
    "cache_salt": _SCHEDULING,
    "cache_prompt": _SCHEDULING,
    "extra_key": _SCHEDULING,
    "id_slot": _SCHEDULING,
    "kv_transfer_params": _SCHEDULING,
    "priority": _SCHEDULING,
    "request_id": _SCHEDULING,
    "rid": _SCHEDULING,
    "session_id": _SCHEDULING,
}
_MARKS = frozenset(("cache_control", "prompt_cache_breakpoint"))
"""Transport fields that stand deep inside a body."""
_MOST_PROBES = 200

_Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Omitted:
    """A field of the body that is not in the key, and why."""

    field: str
    why: str


def omitted(raw: bytes, form: Callable[[bytes], bytes]) -> tuple[Omitted, ...]:
    """The fields whose removal leaves the canonical form as it is.

    `form` gives a body's canonical form. Looked at are all top-level fields, and the cache marks
    wherever they stand. A field that the API requires is in the key.
    """
    body = canonical.parse(raw)
    whole = form(raw)
    found: dict[str, str] = {}
    places: list[_Place] = [(name,) for name in body]
    places += [place for place in _marks(body, ()) if len(place) > 1][:_MOST_PROBES]
    for place in places:
        if _same_without(body, place, form, whole):
            found.setdefault(_written(place), _reason(body, place))
    return tuple(Omitted(field, why) for field, why in found.items())


def _same_without(body: Any, place: _Place, form: Callable[[bytes], bytes], whole: bytes) -> bool:
    changed = copy.deepcopy(body)
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    del inner[place[-1]]
    try:
        return form(canonical.dump(changed).removeprefix(b"\x00")) == whole
    except RequestError:
        return False


def _marks(value: Any, place: _Place) -> Iterator[_Place]:
    if type(value) is dict:
        for name, item in value.items():
            if name in _MARKS:
                yield (*place, name)
            yield from _marks(item, (*place, name))
    elif type(value) is list:
        for index, item in enumerate(value):
            yield from _marks(item, (*place, index))


def _written(place: _Place) -> str:
    path = ""
    for step in place:
        path += "[]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _reason(body: Any, place: _Place) -> str:
    name = str(place[-1])
    if name in _WHY:
        return _WHY[name]
    if len(place) == 1 and body[name] is None:
        return "null means the same as leaving it away"
    return "has no influence on the answer"
