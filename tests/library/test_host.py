"""The services of one event loop: when they are opened, how many, and what closes them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from trivet.errors import ConfigError
from trivet.library import host as host_module
from trivet.library.host import MOST, Host, Hosts
from trivet.library.settings import Plan, plan_of
from trivet.middleware.running.service import Service


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return plan_of(None, "memory", None, named=False)


async def test_those_who_ask_at_once_get_one_service(plan: Plan) -> None:
    host = Host(plan)
    found = await asyncio.gather(*(host.service("http://a") for _ in range(5)))
    assert len({id(one) for one in found}) == 1
    await host.close()


async def test_who_asks_first_may_leave(plan: Plan) -> None:
    host = Host(plan)
    first = asyncio.create_task(host.service("http://a"))
    second = asyncio.create_task(host.service("http://a"))
    await asyncio.sleep(0)
    first.cancel()
    assert isinstance(await second, Service)
    await host.close()


async def test_base_urls_beyond_the_bound_go_without_tiers_and_it_is_said_once(
    plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(plan)
    for number in range(MOST):
        assert await host.service(f"http://h{number}") is not None
    with caplog.at_level(logging.WARNING, "trivet"):
        assert await host.service("http://one-more") is None
        assert await host.service("http://two-more") is None
    assert await host.service("http://h0") is not None
    assert [record.message for record in caplog.records] == [
        "requests go without tiers: 16 base URLs have tiers already"
    ]
    await host.close()


async def test_tiers_that_cannot_be_opened_are_tried_again_at_the_next_request(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> Service:
        raise OSError("no files left")

    host = Host(plan)
    with monkeypatch.context() as patched:
        patched.setattr(host_module, "open_service", fails)
        assert await host.service("http://a") is None
    assert await host.service("http://a") is not None
    await host.close()


async def test_a_base_url_that_no_upstream_may_have_goes_without_tiers(plan: Plan) -> None:
    host = Host(plan)
    assert await host.way("http://a", "/v1/completions/chat/completions") is None
    await host.close()


async def test_policies_are_not_gone_past_where_the_tiers_cannot_be_opened(
    tmp_path: Path, plan: Plan
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "a.yaml").write_text("tenant: a\ncredentials: [{gateway: a}]\n")
    guarded = plan_of(None, "memory", folder, named=True)
    (folder / "a.yaml").write_text("tenant: [\n")
    with pytest.raises(ConfigError):
        await Host(guarded).way("http://a", "/v1/models")


async def test_what_was_closed_opens_again(plan: Plan) -> None:
    host = Host(plan)
    first = await host.service("http://a")
    await host.close()
    await host.close()
    assert await host.service("http://a") is not first
    await host.close()


def test_a_loop_that_ends_closes_its_host_and_the_next_has_its_own(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(plan)
    closed: list[Service] = []

    async def opens() -> Host:
        service = await hosts.here.service("http://a")
        assert service is not None
        close = service.close

        async def noted() -> None:
            closed.append(service)
            await close()

        monkeypatch.setattr(service, "close", noted)
        return hosts.here

    first, second = asyncio.run(opens()), asyncio.run(opens())
    assert first is not second
    assert len(closed) == 2
