"""Behind a real nginx with its defaults: streams arrive event by event, and it names the tenant."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from nginx_rig import needs_nginx, nginx
from proxy import Proxy, chat_body, serving
from raw_http import connect, head

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.commands import in_baggage
from trivet.middleware.mock_upstream.run import running

pytestmark = needs_nginx
SECRET, GATEWAY_ADDRESS = "s3cret-of-the-gateway", "127.0.0.9"
BY_SECRET = "secret_header: X-Gateway-Secret, secret_env: GATEWAY_SECRET"
BY_ADDRESS = f"peers: [{GATEWAY_ADDRESS}]"
LOCATION = """\
      proxy_pass {target};
      proxy_bind {address};
      proxy_set_header X-Tenant acme;
      proxy_set_header X-Gateway-Secret {secret};
"""


def fronted_by(folder: Path, proxy: Proxy) -> AbstractContextManager[Proxy]:
    """nginx as a gateway that names the tenant, as the proxy's callers see it."""
    location = LOCATION.format(target=proxy.url, address=GATEWAY_ADDRESS, secret=SECRET)
    return nginx(folder, proxy, location)


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    for tenant in ("acme", "globex"):
        text = f"tenant: {tenant}\ncredentials: [{{gateway: {tenant}}}]\n"
        (folder / f"{tenant}.yaml").write_text(text)
    return folder


@contextmanager
def behind_gateway(policies: Path, proof: str) -> Iterator[tuple[Proxy, MockUpstream]]:
    with running() as (url, mock):
        config = f"upstreams:\n  - {{name: mock, base_url: {url}}}\npolicies: {policies}\n"
        config += f"gateway: {{header: X-Tenant, {proof}}}\nlog_format: json\nlog_requests: true\n"
        with serving(config=config, env={"GATEWAY_SECRET": SECRET}) as proxy:
            yield proxy, mock


async def arrivals(url: str, asked: dict[str, Any], commands: str) -> list[tuple[float, bytes]]:
    """When each piece of a streamed chat answer came, in seconds since the first, and the piece."""
    body = json.dumps(asked).encode()
    reader, writer = await connect(url)
    writer.write(head(url, body, baggage=in_baggage(commands), connection="close") + body)
    await reader.readuntil(b"\r\n\r\n")
    found: list[tuple[float, bytes]] = []
    while piece := await reader.read(65536):
        found.append((time.monotonic(), piece))
    writer.close()
    return [(at - found[0][0], piece) for at, piece in found]


@pytest.mark.parametrize("temperature", [0, 1], ids=["miss", "bypass"])
def test_a_streamed_answer_arrives_event_by_event(tmp_path: Path, temperature: int) -> None:
    asked = chat_body("streamed", stream=True, temperature=temperature)
    with serving() as proxy, fronted_by(tmp_path, proxy) as fronted:
        came = asyncio.run(arrivals(fronted.url, asked, "tokens=8; slow-chunks=200"))
        assert b"data: [DONE]" in b"".join(piece for _, piece in came)
        # Held back, they would come together: eight events that are 0.2 s apart take 1.4 s.
        assert len(came) >= 8
        assert came[-1][0] > 1.0
        again = fronted.post("/v1/chat/completions", asked)
        assert (again.exact.get("hit") is True) is (temperature == 0)


@pytest.mark.parametrize("proof", [BY_SECRET, BY_ADDRESS], ids=["secret", "address"])
def test_the_gateway_names_the_tenant_and_nobody_else_can(
    tmp_path: Path, policies: Path, proof: str
) -> None:
    with (
        behind_gateway(policies, proof) as (proxy, mock),
        fronted_by(tmp_path, proxy) as fronted,
    ):
        assert fronted.chat("named").exact == {"fwd": "miss", "stored": True}
        assert fronted.chat("named", x_tenant="globex").exact["hit"] is True
        tenants = {json.loads(line)["tenant"] for line in proxy.lines() if '"tenant"' in line}
        assert tenants == {"acme"}
        for headers in ({"x_tenant": "acme"}, {"x_tenant": "acme", "x_gateway_secret": "guess"}):
            assert proxy.chat("named", **headers).status == 401
        assert mock.calls.total == 1
        sent = dict(mock.calls.last[-1]["headers"])
        assert b"x-tenant" not in sent
        assert b"x-gateway-secret" not in sent or proof == BY_ADDRESS
