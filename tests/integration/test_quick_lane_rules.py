"""What callers and policies ask of the cache holds for requests that are known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proxy import Proxy, serving
from quick_line import (
    Line,
    access_lines,
    purge,
    split,
    status,
    talk,
    teach,
    tenant_of,
    until,
    whole,
)
from raw_http import connect

from trivet.middleware.mock_upstream.commands import in_baggage
from trivet.policies.keygen import key_hash

ACME, GLOBEX = "sk-acme", "sk-globex"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving(None, "--log-requests", "--log-format", "json") as running:
        yield running


class TestDirectives:
    def ask(self, proxy: Proxy, text: str, **headers: str) -> str:
        async def once(line: Line) -> str:
            return status(await line.ask(whole(proxy, text, **headers)))

        found: str = talk(proxy, once)
        return found

    def test_no_cache_asks_anew_each_time(self, proxy: Proxy) -> None:
        teach(proxy, whole(proxy, "anew"))
        for _ in range(3):
            assert self.ask(proxy, "anew", cache_control="no-cache") == "fwd=request"
        assert self.ask(proxy, "anew") == "hit"

    def test_max_age_is_honoured_on_the_second(self, proxy: Proxy) -> None:
        request = whole(proxy, "aging", cache_control="max-age=2")
        teach(proxy, request)

        def fresh() -> bool:
            return self.ask(proxy, "aging", cache_control="max-age=2") == "hit"

        assert fresh()
        until(lambda: not fresh())

    def test_only_if_cached_is_504_once_there_is_nothing(self, proxy: Proxy) -> None:
        teach(proxy, whole(proxy, "cached only"))
        for _ in range(3):
            assert self.ask(proxy, "cached only", cache_control="only-if-cached") == "hit"
        tenant = tenant_of(proxy)
        purge(proxy, tenant)

        async def once(line: Line) -> int:
            request = whole(proxy, "cached only", cache_control="only-if-cached")
            return (await line.ask(request)).status

        assert talk(proxy, once) == 504

    def test_versions_of_a_caller_are_apart(self, proxy: Proxy) -> None:
        for version in ("p=1", "p=2"):
            self.ask(proxy, "versioned", trivet_version=version)
        calls = proxy.mock.calls.total if proxy.mock else 0
        for version in ("p=1", "p=2") * 3:
            assert self.ask(proxy, "versioned", trivet_version=version) == "hit"
        assert self.ask(proxy, "versioned", trivet_version="p=3") == "fwd=miss"
        assert proxy.mock is not None
        assert proxy.mock.calls.total == calls + 1

    def test_a_purge_holds_from_the_next_request_on(self, proxy: Proxy) -> None:
        request = whole(proxy, "purged")
        teach(proxy, request)

        async def ask(line: Line) -> tuple[str, str]:
            before = status(await line.ask(request))
            await asyncio.to_thread(purge, proxy, tenant_of(proxy))
            return before, status(await line.ask(request))

        assert talk(proxy, ask) == ("hit", "fwd=miss")


class TestReports:
    @pytest.mark.parametrize("text", ["reported", "reported stream"])
    def test_log_lines_are_those_of_the_usual_path(self, proxy: Proxy, text: str) -> None:
        request = whole(proxy, text)
        teach(proxy, request)

        async def ask(line: Line) -> None:
            await line.ask(request)
            await line.ask(*split(request))

        written = len(access_lines(proxy))
        talk(proxy, ask)
        until(lambda: len(access_lines(proxy)) == written + 2)
        quick, usual = access_lines(proxy)[-2:]
        assert quick["id"] != usual["id"]
        for each in ("timestamp", "total_ms", "first_byte_ms", "id"):
            assert quick.pop(each)
            assert usual.pop(each)
        assert quick == usual
        assert (quick["outcome"], quick["upstream_ms"]) == ("hit", 0)

    def test_figures_count_both_alike(self, proxy: Proxy) -> None:
        request = whole(proxy, "figures")

        def figures() -> dict[str, float]:
            text = proxy.get("/metrics", admin=True).body.decode()
            rows = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
            return {name: float(value) for name, _, value in rows if counts(name)}

        def counts(name: str) -> bool:
            return "_seconds" not in name and "{window=" not in name

        def added(*pieces: bytes) -> dict[str, float]:
            before = figures()
            talk(proxy, lambda line: line.ask(*pieces))
            return {
                name: value - before.get(name, 0)
                for name, value in figures().items()
                if value != before.get(name, 0)
            }

        def of_prefixes() -> float:
            return sum(n for name, n in figures().items() if "_prefix_prompt_tokens" in name)

        before = of_prefixes()
        teach(proxy, request)
        until(lambda: of_prefixes() > before)  # It is told a moment after the miss.
        quick, usual = added(request), added(*split(request))
        assert quick == usual
        assert any(name.startswith("trivet_requests_total") for name in quick)


def policy(tenant: str, key: str, more: str = "") -> str:
    return f"tenant: {tenant}\ncredentials:\n  - sha256: {key_hash(key)}\n{more}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "policies"
    made.mkdir()
    return made


class TestPolicies:
    @pytest.fixture
    def start(self, folder: Path) -> Iterator[Callable[..., Proxy]]:
        from contextlib import ExitStack

        with ExitStack() as stack:

            def begin(**files: str) -> Proxy:
                for name, text in files.items():
                    (folder / f"{name}.yaml").write_text(text)
                flags = ("--policies", str(folder), "--log-requests", "--log-format", "json")
                return stack.enter_context(serving(None, *flags))

            yield begin

    def test_a_revoked_key_is_401_although_its_request_is_known(
        self, start: Callable[..., Proxy], folder: Path
    ) -> None:
        proxy = start(acme=policy("acme", ACME), globex=policy("globex", GLOBEX))
        request = whole(proxy, "x", key=ACME)
        teach(proxy, request)
        (folder / "acme.yaml").unlink()

        async def ask(line: Line) -> int:
            found = 200
            async with asyncio.timeout(15):
                while found == 200:
                    found = (await line.ask(request)).status
                    await asyncio.sleep(0.02)
            return found

        assert talk(proxy, ask) == 401
        assert talk(proxy, ask) == 401

    def test_a_new_policy_holds_for_known_requests(
        self, start: Callable[..., Proxy], folder: Path
    ) -> None:
        proxy = start(acme=policy("acme", ACME))
        request = whole(proxy, "x", key=ACME)
        teach(proxy, request)
        (folder / "acme.yaml").write_text(policy("acme", ACME, "exact:\n  enabled: false\n"))

        def asked() -> str:
            async def once(line: Line) -> str:
                return status(await line.ask(request))

            found: str = talk(proxy, once)
            return found

        until(lambda: asked() == "fwd=bypass")

    def test_two_keys_that_alternate_on_one_connection_are_two_tenants(
        self, start: Callable[..., Proxy]
    ) -> None:
        proxy = start(acme=policy("acme", ACME), globex=policy("globex", GLOBEX))
        requests = [whole(proxy, "x", key=key) for key in (ACME, GLOBEX)]
        teach(proxy, *requests)
        written = len(access_lines(proxy))

        async def ask(line: Line) -> list[str]:
            return [status(await line.ask(request)) for request in requests * 3]

        assert talk(proxy, ask) == ["hit"] * 6
        until(lambda: len(access_lines(proxy)) == written + 6)
        assert [line["tenant"] for line in access_lines(proxy)[-6:]] == ["acme", "globex"] * 3
        purge(proxy, "acme")
        assert talk(proxy, ask) == ["fwd=miss", "hit", "hit", "hit", "hit", "hit"]

    def test_a_tracing_header_that_a_policy_names_is_part_of_the_question(
        self, start: Callable[..., Proxy]
    ) -> None:
        proxy = start(acme=policy("acme", ACME, "exact:\n  key_headers: [User-Agent]\n"))
        requests = [whole(proxy, "x", key=ACME, user_agent=agent) for agent in "ab"]

        async def ask(line: Line) -> list[str]:
            return [status(await line.ask(request)) for request in requests * 3]

        assert talk(proxy, ask) == ["fwd=miss"] * 2 + ["hit"] * 4

    @pytest.mark.parametrize("name", ["x-person", "x-request-id"])
    def test_a_users_answers_are_his_own(self, start: Callable[..., Proxy], name: str) -> None:
        scoped = f"exact:\n  user_scope: true\n  user_from: 'header:{name}'\n"
        proxy = start(acme=policy("acme", ACME, scoped))
        field = name.replace("-", "_")
        requests = [whole(proxy, "x", key=ACME, **{field: user}) for user in ("ann", "bob")]

        async def ask(line: Line) -> list[str]:
            return [status(await line.ask(request)) for request in requests * 3]

        assert talk(proxy, ask) == ["fwd=miss"] * 2 + ["hit"] * 4

    def test_an_answer_expires_on_time(self, start: Callable[..., Proxy]) -> None:
        proxy = start(acme=policy("acme", ACME, "exact:\n  ttl: 2s\n"))
        request = whole(proxy, "x", key=ACME)

        async def ask(line: Line) -> float:
            sent = time.time()
            await line.ask(request)
            async with asyncio.timeout(15):
                while status(await line.ask(request)) == "hit":
                    await asyncio.sleep(0.01)
            return time.time() - sent

        assert 1.9 < talk(proxy, ask) < 10

    def test_requests_in_flight_are_counted_where_they_are_limited(
        self, start: Callable[..., Proxy]
    ) -> None:
        proxy = start(acme=policy("acme", ACME, "limits:\n  requests_in_flight: 1\n"))
        request = whole(proxy, "x", key=ACME)
        teach(proxy, request)

        async def ask(line: Line) -> list[int]:
            slow = whole(proxy, "slow", key=ACME, baggage=in_baggage("delay=1500"))
            line.writer.write(slow)
            await asyncio.sleep(0.3)
            reader, writer = await connect(proxy.url)
            found = [(await Line(reader, writer).ask(request)).status]
            writer.close()
            await line.read()
            return [*found, (await line.ask(request)).status]

        assert talk(proxy, ask) == [429, 200]


def test_callers_that_a_header_tells_apart_are_recalled_apart(proxy: Proxy) -> None:
    requests = [
        whole(proxy, "told apart", x_tenant_id=name, x_request_start=name)
        for name in ("alice", "bob")
    ]
    moved = whole(proxy, "told apart", x_tenant_id="alice", x_request_start="later")

    async def ask(line: Line) -> list[str]:
        return [status(await line.ask(request)) for request in (*requests * 3, moved)]

    assert talk(proxy, ask) == ["fwd=miss"] * 2 + ["hit"] * 5


def test_tenants_that_a_gateway_names_are_recalled_apart(proxy: Proxy) -> None:
    command = proxy.process.args
    assert isinstance(command, list)
    upstream = str(command[command.index("--upstream") + 1])
    config = f"""\
upstreams:
  - name: mock
    base_url: {upstream}
gateway:
  header: X-Tenant
  peers: [127.0.0.1]
log_requests: true
log_format: json
"""
    with serving(config=config) as behind:
        requests = [whole(behind, "x", x_tenant=name) for name in ("acme", "globex")]

        async def ask(line: Line) -> list[str]:
            return [status(await line.ask(request)) for request in requests * 4]

        assert talk(behind, ask) == ["fwd=miss"] * 2 + ["hit"] * 6
        until(lambda: len(access_lines(behind)) == 8)
        assert [line["tenant"] for line in access_lines(behind)] == ["acme", "globex"] * 4
