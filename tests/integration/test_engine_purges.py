"""A purge of a tenant reaches the KV that engines keep for it."""

from __future__ import annotations

import time

import pytest
from engine_rig import ScriptedEngine, body, post, served

from trivet.errors import StoreError
from trivet.middleware.admin.engine_purges import EnginePurges
from trivet.middleware.prefix_tier.signed_tenant import TenantSigner
from trivet.middleware.running.config import ReplicaConfig, UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.prefix.engine.tenants import HEADER, sign

SECRET = b"s" * 40
LONG = {"messages": [{"role": "user", "content": "x" * 60}]}


def purges(*urls: str) -> EnginePurges:
    """As the proxy has it, for one upstream with a secret and one without."""
    other = UpstreamConfig(name="other", base_url="http://127.0.0.1:9")
    more = tuple(ReplicaConfig(url=url) for url in urls[1:])
    engine = UpstreamConfig(
        name="engine", base_url=urls[0], replicas=more, engine_secret_env="SECRET"
    )
    signer = TenantSigner([other, engine], {"SECRET": SECRET.decode()})
    return EnginePurges([other, engine], signer, UpstreamClient(signer))


def cached(url: str, tenant: str) -> int:
    sent = body(**LONG)
    signed = sign(SECRET, tenant, time.time(), _json(sent))
    told = post(url, "/v1/chat/completions", _json(sent), **{HEADER: signed}).json()
    return int(told["usage"]["prompt_tokens_details"]["cached_tokens"])


def _json(sent: object) -> bytes:
    return repr(sent).replace("'", '"').encode()


async def test_a_purged_tenant_finds_nothing_and_others_find_theirs() -> None:
    with served(ScriptedEngine(), secret=SECRET) as url:
        for tenant in ("acme", "other"):
            assert [cached(url, tenant) for _ in range(2)] == [0, 64]
        await purges(url + "/v1").purge("acme")
        assert [cached(url, "acme") for _ in range(2)] == [0, 64]
        assert cached(url, "other") == 64
        await purges(url).purge("acme")
        assert cached(url, "acme") == 0


async def test_every_replica_is_told() -> None:
    with (
        served(ScriptedEngine(), secret=SECRET) as one,
        served(ScriptedEngine(), secret=SECRET) as two,
    ):
        found = [[cached(url, "acme") for _ in range(2)] for url in (one, two)]
        await purges(one, two).purge("acme")
        assert found == [[0, 64]] * 2
        assert [cached(url, "acme") for url in (one, two)] == [0, 0]


async def test_an_engine_that_does_not_confirm_it_is_told() -> None:
    with (
        served(ScriptedEngine(), secret=b"another" * 8) as url,
        pytest.raises(StoreError, match=url),
    ):
        await purges(url).purge("acme")
    with pytest.raises(StoreError, match=url):
        await purges(url).purge("acme")


def test_only_a_signature_purges() -> None:
    with served(ScriptedEngine(), secret=SECRET) as url:
        assert [cached(url, "acme") for _ in range(2)] == [0, 64]
        assert post(url, "/trivet/purge", {}).status_code == 401
        stale = sign(SECRET, "acme", time.time(), b'{"another":"body"}')
        assert post(url, "/trivet/purge", {}, **{HEADER: stale}).status_code == 401
        assert cached(url, "acme") == 64
