"""Who is asking: from the credential to the tenant, before anything else is looked at."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from trivet.canonical import mac, sha256
from trivet.errors import ConfigError, Problem
from trivet.policies.header_names import API_KEY_HEADERS, is_identity, weight
from trivet.policies.model import TenantPolicy
from trivet.policies.nodes import Position, Source, field_path

How = Literal["key", "gateway", "own", "anonymous", "chosen"]

ANONYMOUS = "anonymous"
_OWN_KEY = b"tvt_"
_MEMO_ENTRIES = 1024
_MEMO_WEIGHT = 4096
"""Bytes of memory; what is heavier is not remembered: callers choose it."""
_TENANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = re.compile(r"anonymous|key-.*|gateway-.*", re.DOTALL)
_LABEL_TAG = b"trivet-tenant-v1"
_CALLER_TAG = b"trivet-caller-v1"

RawHeaders = Sequence[tuple[bytes, bytes]]
"""(Lower-case name, value) pairs, as ASGI gives them."""
_Shown = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies at one moment. Replaced as a whole, never altered.

    `declared` is False when no policy directory is in use: then each credential is its own tenant.
    """

    version: str
    declared: bool
    tenants: Mapping[str, TenantPolicy]
    by_key: Mapping[str, TenantPolicy]
    """By SHA-256 of the API key, in hex."""
    by_gateway: Mapping[str, TenantPolicy]
    """By the value of the trusted tenant header."""
    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    """The file of each tenant, where it comes from one."""

    def problem(self, tenant: str, position: Position, message: str) -> Problem:
        """A finding about a tenant's policy, with its place in the file where there is one."""
        source = self.sources.get(tenant)
        if source is None:
            return Problem(f"policy of {tenant}", 0, 0, field_path(position), message)
        return source.problem(position, message)


UNDECLARED = PolicySet(
    "none", False, MappingProxyType({}), MappingProxyType({}), MappingProxyType({})
)


@dataclass(frozen=True, slots=True)
class GatewayTrust:
    """A gateway in front that says which tenant a request is of.

    It proves itself by a secret in a header, by its address, or by both where both are declared.
    The server must not rewrite the peer address from headers (uvicorn: `proxy_headers=False`).
    Raises `ConfigError` when neither is declared or an address cannot be read.
    """

    header: str
    secret_header: str | None = None
    secret_sha256: str | None = None
    peers: tuple[str, ...] = ()
    """Addresses or networks: `10.0.0.7`, `10.1.0.0/16`, `fd00::/8`."""
    _header: bytes = field(init=False, repr=False, compare=False)
    _secret: bytes = field(init=False, repr=False, compare=False)
    _networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if bool(self.secret_header) != bool(self.secret_sha256):
            raise _misdeclared("a secret header and its SHA-256 go together")
        if not self.peers and not self.secret_header:
            raise _misdeclared("give the gateway's addresses, or a secret header and its SHA-256")
        try:
            networks = tuple(ipaddress.ip_network(peer, strict=False) for peer in self.peers)
        except ValueError as error:
            raise _misdeclared(str(error)) from None
        object.__setattr__(self, "_networks", networks)
        object.__setattr__(self, "_header", self.header.lower().encode())
        object.__setattr__(self, "_secret", (self.secret_header or "").lower().encode())

    def named(self, raw: RawHeaders, peer: str | None) -> str | None:
        """The tenant that the gateway names; None if it names none or is not the gateway.

        Repeated headers are one value, which is no tenant's name: a caller whose header came
        through beside the gateway's gains nothing.
        """
        names = [value for name, value in raw if name == self._header]
        if not names or (self.peers and not self._is_peer(peer)):
            return None
        if self.secret_sha256:
            shown = [value for name, value in raw if name == self._secret]
            shown_hash = sha256(b", ".join(shown)).hex()
            if not hmac.compare_digest(shown_hash, self.secret_sha256):
                return None
        # Only what HTTP calls white space: `str.strip` would make one name of several.
        return b", ".join(names).strip(b" \t").decode("latin-1")

    def _is_peer(self, peer: str | None) -> bool:
        address = _address(peer or "")
        return address is not None and any(address in network for network in self._networks)


@dataclass(frozen=True, slots=True)
class Identified:
    """A caller who may go on."""

    policy: TenantPolicy
    tenant: str
    """`policy.tenant`: the tenant of the request's scope."""
    how: How
    """`own`: an undeclared credential as its own tenant; `chosen`: by an operator, for explain."""
    credential: bytes
    """Opaque name of what the caller identified itself with: the credential scope of the key
    when that goes upstream."""
    others: bytes = b""
    """The same without API keys, for upstreams that are asked with a key of the proxy's."""


class TenantDirectory:
    """Identifies callers against one `PolicySet`.

    A new set needs a new directory, so nothing that was remembered outlives a revoked key.
    `secret` is the deployment's own: tenants' names without policies are MACs under it.
    """

    def __init__(
        self, policies: PolicySet, secret: bytes, gateway: GatewayTrust | None = None
    ) -> None:
        self.policies = policies
        self._secret = secret
        self._gateway = gateway
        self._memo: dict[_Shown, Identified] = {}

    def identify(self, raw: RawHeaders, peer: str | None = None) -> Identified | None:
        """The tenant of a request, or None: answer 401. `peer` is the address that connected.

        Constant work: hashes and dictionary look-ups, whatever the number of tenants.
        """
        shown = tuple([pair for pair in raw if is_identity(pair[0])])
        if self._gateway is not None:
            named = self._gateway.named(raw, peer)
            if named is not None:
                # No header has an empty name, so this is no caller's own `shown`.
                key = ((b"", named.encode("latin-1")), *shown)
                found = self._memo.get(key)
                return found or self._remember(key, self._by_gateway(named, shown))
        return self._memo.get(shown) or self._remember(shown, self._by_credential(shown))

    def named_by_gateway(self, raw: RawHeaders, peer: str | None) -> str | None:
        """Whom the declared gateway says the request is of; None where no gateway says it."""
        return None if self._gateway is None else self._gateway.named(raw, peer)

    def chosen(self, tenant: str) -> Identified | None:
        """A declared tenant by its name, without a credential: for operators, never for callers."""
        policy = self.policies.tenants.get(tenant)
        return None if policy is None else self._identified(policy, "chosen", ())

    def _remember(self, shown: _Shown, found: Identified | None) -> Identified | None:
        if found is None or weight(shown) > _MEMO_WEIGHT:
            return found
        if len(self._memo) >= _MEMO_ENTRIES:
            del self._memo[next(iter(self._memo))]
        self._memo[shown] = found
        return found

    def _by_gateway(self, named: str, shown: _Shown) -> Identified | None:
        if self.policies.declared:
            policy = self.policies.by_gateway.get(named)
            return None if policy is None else self._identified(policy, "gateway", shown)
        if not _TENANT_NAME.fullmatch(named) or _RESERVED.fullmatch(named):
            named = "gateway-" + self._label(named.encode("latin-1"))
        return self._identified(TenantPolicy(tenant=named), "gateway", shown)

    def _by_credential(self, shown: _Shown) -> Identified | None:
        if self.policies.declared:
            policy = self._declared(shown)
            return None if policy is None else self._identified(policy, "key", shown)
        if not shown:
            return self._identified(TenantPolicy(tenant=ANONYMOUS), "anonymous", shown)
        tenant = "key-" + self._label(*_flat(shown))
        return self._identified(TenantPolicy(tenant=tenant), "own", shown)

    def _declared(self, shown: _Shown) -> TenantPolicy | None:
        found: TenantPolicy | None = None
        for name, value in shown:
            if name not in API_KEY_HEADERS:
                continue
            key = _api_key(name, value)
            policy = self.policies.by_key.get(sha256(key).hex()) if key else None
            if policy is None:
                continue  # The upstream's own key may travel beside ours.
            if found is not None and found is not policy:
                return None
            found = policy
        return found

    def _identified(self, policy: TenantPolicy, how: How, shown: _Shown) -> Identified:
        # Keys that `trivet keygen` made go no further, so they say nothing about the answer.
        sent = tuple(pair for pair in shown if not is_own_key(*pair))
        others = tuple(pair for pair in sent if pair[0] not in API_KEY_HEADERS)
        return Identified(
            policy,
            policy.tenant,
            how,
            mac(self._secret, _CALLER_TAG, *_flat(sent)),
            mac(self._secret, _CALLER_TAG, *_flat(others)) if others else b"",
        )

    def _label(self, *given: bytes) -> str:
        # 128 bits: anyone may present credentials here, so a shorter label could be searched for.
        return mac(self._secret, _LABEL_TAG, *given).hex()[:32]


def is_own_key(name: bytes, value: bytes) -> bool:
    """Whether a header carries a key that `trivet keygen` made. No upstream may see it."""
    return name in API_KEY_HEADERS and any(part.startswith(_OWN_KEY) for part in value.split())


def _flat(shown: _Shown) -> list[bytes]:
    # Sorted by name; the order of repeated headers is kept, because it decides which one counts.
    return [text for pair in sorted(shown, key=lambda pair: pair[0]) for text in pair]


def _api_key(name: bytes, value: bytes) -> bytes:
    if name != b"authorization":
        return value.strip()
    scheme, _, token = value.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


@lru_cache(maxsize=256)
def _address(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _misdeclared(what: str) -> ConfigError:
    return ConfigError(
        Problem("gateway", 0, 0, "", f"The declared gateway cannot be used: {what}.")
    )
