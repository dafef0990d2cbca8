"""What a caller asks of the cache: `Cache-Control`, LiteLLM's `cache` field, versions and tags.

A caller can only make caching stricter. Nothing here names a tenant, widens a scope or lengthens a
lifetime; fields of LiteLLM's that would (`namespace`) are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trivet.errors import RequestError
from trivet.policies.model import TenantPolicy

_LARGEST = 2147483648
"""What RFC 9111, section 1.2.2 has a cache take a larger delta-seconds for."""
_DIRECTIVE = re.compile(r'([^\s,;="]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?')
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VALUE = re.compile(r"[!-+\--~](?:[ -+\--~]{0,126}[!-+\--~])?")
"""Printable ASCII without commas, no white space at the ends, at most 128 characters."""
_TAG = "tag:"
_MOST_VERSIONS = 16
_MOST_TAGS = 32


@dataclass(frozen=True, slots=True)
class Directives:
    """A caller's wishes. Ages and lifetimes are seconds; None is no wish."""

    no_cache: bool = False
    """Do not answer from the cache; the new answer is stored."""
    no_store: bool = False
    """Take no part in caching: neither read nor store."""
    max_age: float | None = None
    min_fresh: float | None = None
    """How much of its lifetime an answer has to have left at least."""
    only_if_cached: bool = False
    ttl: float | None = None
    """How long the new answer may be kept at most."""
    versions: tuple[tuple[str, str], ...] = ()
    """Sorted by name."""
    tags: tuple[str, ...] = ()


NONE = Directives()


def read_purpose(headers: Mapping[str, str]) -> Literal["request", "warm"]:
    """What a request is for, by its `Trivet-Purpose` header (names in lower case): `warm` fills the
    caches before anybody asks. Raises `RequestError` 400 for another word."""
    purpose = headers.get("trivet-purpose")
    if purpose is None:
        return "request"
    if purpose != "warm":
        raise _malformed("Trivet-Purpose", "warm, or to be left out")
    return "warm"


def read_directives(headers: Mapping[str, str], body: Mapping[str, Any]) -> Directives:
    """Read the headers (names in lower case) and LiteLLM's `cache` object of the body.

    Raises `RequestError` 400 naming the header or field that cannot be read. What RFC 9111 has a
    cache ignore (unknown directives, malformed numbers in `Cache-Control`) is ignored.
    """
    control = headers.get("cache-control", headers.get("pragma"))
    version = headers.get("trivet-version")
    tag = headers.get("trivet-tag")
    if control is None and version is None and tag is None and not body:
        return NONE
    asked = _cache_control(control or "")
    if "cache-control" not in headers:
        # HTTP/1.0's way to say it, and all that Pragma can say (RFC 7234 section 5.4).
        asked = {name: None for name in asked if name == "no-cache"}
    return Directives(
        no_cache="no-cache" in asked or _flag(body, "no-cache") is True,
        # RFC 9111, section 5.2.1.5 forbids storing any part of the request; a caller who says so
        # does not expect an answer out of a store either.
        no_store="no-store" in asked
        or _flag(body, "no-store") is True
        or _flag(body, "use-cache") is False,
        max_age=_least(
            asked.get("max-age"), _seconds(body, "s-maxage"), _seconds(body, "s-max-age")
        ),
        min_fresh=asked.get("min-fresh"),
        only_if_cached="only-if-cached" in asked,
        ttl=_seconds(body, "ttl"),
        versions=_versions(version) if version is not None else (),
        tags=_tags(tag) if tag is not None else (),
    )


def entry_labels(policy: TenantPolicy, directives: Directives) -> frozenset[str]:
    """What a purge can name of an answer: its tags, and the versions it was made under."""
    if not (directives.tags or directives.versions or policy.versions):
        return frozenset()
    labels = {_TAG + tag for tag in directives.tags}
    labels.update(f"version:{name}={value}" for name, value in policy.versions.items())
    labels.update(f"version:{name}={value}" for name, value in directives.versions)
    return frozenset(labels)


def tags_of(labels: frozenset[str]) -> list[str]:
    """The labels that are tags, sorted."""
    return sorted(label for label in labels if label.startswith(_TAG))


def _cache_control(text: str) -> dict[str, float | None]:
    asked: dict[str, float | None] = {}
    for found in _DIRECTIVE.finditer(text):
        name, quoted, token = found.groups()
        name, value = name.lower(), token if quoted is None else quoted
        # Where one is given twice, the stricter counts.
        if name == "max-age":
            asked[name] = _least(asked.get(name), _delta_seconds(value))
        elif name == "min-fresh":
            asked[name] = _most(asked.get(name), _delta_seconds(value))
        else:
            asked[name] = None
    return asked


def _delta_seconds(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"[0-9]+", text):
        return None
    return float(min(int(text), _LARGEST)) if len(text) < 20 else float(_LARGEST)


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _flag(body: Mapping[str, Any], name: str) -> bool | None:
    value = body.get(name)
    if value is None or type(value) is bool:
        return value
    raise RequestError(400, f"cache.{name} has to be true or false.", field=f"cache.{name}")


def _seconds(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if type(value) is str and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    if value is None:
        return None
    if type(value) not in (int, float) or value < 0:
        raise RequestError(
            400, f"cache.{name} has to be a number of seconds, 0 or more.", field=f"cache.{name}"
        )
    return float(min(value, _LARGEST))


def _versions(text: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for item in _items("Trivet-Version", text, _MOST_VERSIONS):
        name, equals, value = item.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise _malformed("Trivet-Version", "name=value pairs, parted by commas")
        if name in found:
            raise RequestError(
                400, f"The Trivet-Version header names {name} twice.", field="Trivet-Version"
            )
        found[name] = value
    return tuple(sorted(found.items()))


def _tags(text: str) -> tuple[str, ...]:
    items = _items("Trivet-Tag", text, _MOST_TAGS)
    if not all(_VALUE.fullmatch(item) for item in items):
        raise _malformed("Trivet-Tag", "tags of at most 128 printable ASCII characters")
    return tuple(dict.fromkeys(items))


def _items(header: str, text: str, most: int) -> list[str]:
    items = [item for item in (part.strip(" \t") for part in text.split(",")) if item]
    if len(items) > most:
        raise RequestError(
            400, f"The {header} header has {len(items)} members; {most} are allowed.", field=header
        )
    return items


def _malformed(header: str, form: str) -> RequestError:
    return RequestError(400, f"The {header} header has to hold {form}.", field=header)
