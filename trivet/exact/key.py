"""The exact key: everything that shapes an answer, encoded so that nothing can run together.

The hashed text is `canonical.join` of tagged, length-prefixed parts. It is stored with the answer
and compared on a hit, so it must hold no secret: credentials are in it as MACs or digests only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from trivet.canonical import digest, join, mac, sha256
from trivet.messages import Api, ExactKey, Scope
from trivet.policies.header_names import is_keyed, is_steering

Pairs = tuple[tuple[str, str], ...]

_TAG = b"trivet-exact-v1"
_POOL_TAG = b"trivet-pool-v1"
_CREDENTIAL_TAG = b"trivet-credential-v1"

_SETS = frozenset(("anthropic-beta", "openai-beta"))
"""Headers whose comma-separated values are a set: order and repetition mean nothing."""
_SECRET = re.compile("auth|config|cookie|key|password|secret|token")


class KeyParts(NamedTuple):
    """All that two requests must have in common to share an answer."""

    api: Api
    upstream: str
    base_url: str
    """The URL that is asked, its path included and its query not."""
    credential: bytes
    """Whose account pays, opaque: see `credential_scope`. Thinking signatures are bound to it."""
    headers: Pairs
    """What `key_headers` returned."""
    scope: Scope
    policy_versions: Pairs
    request_versions: Pairs
    """Kept apart from the policy's, so that no caller can pass for a policy version."""
    query: str
    """Raw query string that goes upstream (Azure's `api-version=...`)."""
    canonical: bytes
    """`Request.canonical`. The last field: the rest is the same for many requests."""


_Around = tuple[Api, str, str, bytes, Pairs, Scope, Pairs, Pairs, str]
"""`KeyParts` without the canonical request."""
_around: dict[_Around, bytes] = {}
_MEMO_ENTRIES = 256
_MEMO_TEXT = 4096
"""Longer ones are not remembered: callers choose them."""


def canonical_request(parts: KeyParts) -> bytes:
    """The text that is hashed: store it with the answer, and compare it on a hit. Injective."""
    around: _Around = parts[:-1]
    before = _around.get(around)
    if before is None:
        before = _joined(around)
        if len(before) + len(parts.query) <= _MEMO_TEXT:
            if len(_around) >= _MEMO_ENTRIES:
                _around.clear()
            _around[around] = before
    return before + join(parts.canonical)


def _joined(around: _Around) -> bytes:
    """What `canonical_request` begins with: all parts but the last, joined."""
    api, upstream, base_url, credential, headers, scope, policy, request, query = around
    return join(
        _TAG,
        api.encode(),
        _text(upstream),
        _text(base_url),
        # A query may carry an API key, which must not be stored.
        sha256(_text(query)) if query else b"",
        credential,
        _pairs(headers),
        _text(scope.tenant),
        b"" if scope.user is None else b"=" + _text(scope.user),
        _pairs(policy),
        _pairs(request),
    )


def exact_key(parts: KeyParts) -> ExactKey:
    """SHA-256 of `canonical_request(parts)`."""
    return ExactKey(sha256(canonical_request(parts)))


def keyed(parts: KeyParts) -> tuple[ExactKey, bytes]:
    """`exact_key` and `canonical_request`, encoded once."""
    text = canonical_request(parts)
    return ExactKey(sha256(text)), text


def pool_key(key: ExactKey, slot: int) -> ExactKey:
    """Key of one of the answers that `sampled: pool` keeps for a request. `slot` counts from 0."""
    return ExactKey(digest(_POOL_TAG, key, slot.to_bytes(2, "big")))


def credential_scope(secret: bytes, *credential: str) -> bytes:
    """An opaque name for an upstream credential: equal for equal ones, useless without `secret`.

    `credential` is alternately a header's name and its value, or one value from the config.
    """
    return mac(secret, _CREDENTIAL_TAG, *map(_text, credential))


def key_headers(
    raw: Iterable[tuple[bytes, bytes]], extra: tuple[str, ...] = (), ignored: tuple[str, ...] = ()
) -> Pairs:
    """The request headers that may shape the answer, sorted by name: see `is_keyed`.

    `raw` are (lower-case name, value) pairs as they go upstream, repeated names included: those
    are one list in order (RFC 9110, section 5.3). `extra` are the policy's own, whatever they are;
    `ignored` are left out by it, unless they are known to shape answers or are in `extra`.
    Values of headers that are not known, or that may hold a secret, are replaced by their digest.
    """
    wanted, unwanted = _named(extra), _named(ignored)
    found: dict[bytes, list[str]] = {}
    for name, value in raw:
        if name in wanted or (is_keyed(name) and (name not in unwanted or is_steering(name))):
            found.setdefault(name, []).append(value.decode("latin-1"))
    if not found:
        return ()
    return tuple(
        _pair(name, found[name], is_steering(name) or name in wanted) for name in sorted(found)
    )


@lru_cache(maxsize=256)
def _named(names: tuple[str, ...]) -> frozenset[bytes]:
    return frozenset(name.lower().encode("latin-1", "replace") for name in names)


def _pair(raw_name: bytes, values: list[str], known: bool) -> tuple[str, str]:
    name = raw_name.decode("latin-1")
    if name in _SETS:
        members = {member.strip(" \t") for value in values for member in value.split(",")}
        return name, ",".join(sorted(members - {""}))
    joined = ", ".join(value.strip(" \t") for value in values)
    if not known or _SECRET.search(name):
        return name, "sha256:" + sha256(_text(joined)).hex()
    return name, joined


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _pairs(pairs: Pairs) -> bytes:
    if not pairs:
        return b""
    return join(*[_text(part) for pair in pairs for part in pair])
