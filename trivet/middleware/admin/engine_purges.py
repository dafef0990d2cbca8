"""Purges of a tenant, told to the engines of our own that keep KV for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trivet.errors import StoreError, UpstreamError
from trivet.middleware.prefix_tier.signed_tenant import TenantSigner, tenant_header
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient

_ASK_S = 2.0
_BODY = b"{}"


class EnginePurges:
    """Asks every server of the upstreams that name an `engine_secret_env`."""

    def __init__(
        self, upstreams: Sequence[UpstreamConfig], signer: TenantSigner, client: UpstreamClient
    ) -> None:
        self._servers = [
            (upstream, url.removesuffix("/v1"))
            for upstream in upstreams
            if upstream.engine_secret_env is not None
            for url in (upstream.base_url, *(replica.url for replica in upstream.replicas))
        ]
        self._signer = signer
        self._client = client

    async def purge(self, tenant: str) -> None:
        """Let no request find what the tenant kept until now. Raises `StoreError` if an engine did
        not confirm it."""
        asked = [self._ask(upstream, url, tenant) for upstream, url in self._servers]
        lost = [url for url in await asyncio.gather(*asked) if url]
        if lost:
            told = f"{lost[0]} did not confirm that its KV is purged; run it again"
            raise StoreError("partial", told)

    async def _ask(self, upstream: UpstreamConfig, url: str, tenant: str) -> str:
        """The server's URL if it did not confirm it."""
        headers = [(b"content-type", b"application/json"), *tenant_header(upstream, tenant)]
        headers = self._signer.signed(upstream, headers, _BODY)
        try:
            async with asyncio.timeout(_ASK_S):
                response = await self._client.send_to(
                    upstream, url, "POST", "/trivet/purge", headers, _BODY
                )
                await response.read()
        except (UpstreamError, TimeoutError):
            return url
        return "" if response.status == 200 else url
