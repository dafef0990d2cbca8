"""Policies are replaced as a whole while requests are in flight."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trivet.errors import ConfigError
from trivet.policies import source as source_module
from trivet.policies.keygen import key_hash
from trivet.policies.loader import load
from trivet.policies.settling import Settling
from trivet.policies.source import PolicySource
from trivet.policies.tenants import UNDECLARED, GatewayTrust, PolicySet
from trivet.telemetry import PolicyReload

SECRET = b"s" * 32
ASKED = ((b"x-api-key", b"k1"),)


def policy(directory: Path, key: str = "k1", extra: str = "") -> None:
    text = f"tenant: acme\ncredentials: [{{sha256: {key_hash(key)}}}]\n{extra}"
    (directory / "acme.yaml").write_text(text)


def test_without_a_directory_each_credential_is_its_own_tenant() -> None:
    source = PolicySource(None, SECRET)
    assert source.current is UNDECLARED
    found = source.tenants.identify(ASKED)
    assert found is not None
    assert found.how == "own"
    assert source.reload() == PolicyReload(True, "none", 0)


def test_a_bad_directory_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        PolicySource(tmp_path, SECRET)


def test_a_reload_brings_the_new_set(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    before = source.current
    policy(tmp_path, extra="exact: {ttl: 5}\n")
    result = source.reload()
    assert result == PolicyReload(True, source.current.version, 0)
    assert source.current.version != before.version
    assert before.tenants["acme"].exact.ttl == 86400
    assert source.current.tenants["acme"].exact.ttl == 5


def test_a_revoked_key_is_unknown_at_once(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    assert source.tenants.identify(ASKED) is not None
    policy(tmp_path, "k2")
    source.reload()
    assert source.tenants.identify(ASKED) is None


def test_a_bad_file_keeps_the_old_set_and_says_so(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    before = source.tenants
    policy(tmp_path, extra="ttl: 5\nexact: {k: 1}\n")
    result = source.reload()
    assert source.tenants is before
    assert source.problem is not None
    assert result == PolicyReload(False, before.policies.version, 2, str(source.problem))
    assert [one.field for one in source.problem.problems] == ["ttl", "exact.k"]


def test_an_upstream_that_is_not_declared_is_refused_at_a_reload_as_at_the_start(
    tmp_path: Path,
) -> None:
    policy(tmp_path, extra="upstreams: [openai]\n")
    source = PolicySource(tmp_path, SECRET, upstreams=["local", "openai"])
    before = source.tenants
    policy(tmp_path, extra="upstreams: [opnai]\n")
    result = source.reload()
    assert (result.ok, source.tenants) == (False, before)
    assert result.detail == (
        f"{tmp_path / 'acme.yaml'}:3:13: upstreams[0]: 'opnai' is not declared in the server "
        "config; it has local, openai. Did you mean `openai`?"
    )
    with pytest.raises(ConfigError, match="opnai"):
        PolicySource(tmp_path, SECRET, upstreams=["local", "openai"])


def test_a_directory_that_becomes_empty_keeps_the_old_set(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    (tmp_path / "acme.yaml").unlink()
    assert not source.reload().ok
    assert source.tenants.identify(ASKED) is not None


def test_a_mended_file_clears_the_problem(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    policy(tmp_path, extra="ttl: 5\n")
    source.reload()
    policy(tmp_path)
    assert source.reload().ok
    assert source.problem is None


def test_a_reload_keeps_the_gateway(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text("tenant: acme\ncredentials: [{gateway: team}]\n")
    source = PolicySource(tmp_path, SECRET, GatewayTrust("x-tenant", peers=("10.0.0.1",)))
    source.reload()
    found = source.tenants.identify(((b"x-tenant", b"team"),), "10.0.0.1")
    assert found is not None
    assert found.tenant == "acme"


async def _seen(source: PolicySource, results: list[PolicyReload]) -> None:
    async for result in source.watch():
        results += [result]


async def _until(source: PolicySource, results: list[PolicyReload], ttl: float) -> None:
    async with asyncio.timeout(20):
        while source.current.tenants["acme"].exact.ttl != ttl:
            await asyncio.sleep(0.02)
    async with asyncio.timeout(20):
        while not results[-1].ok:
            await asyncio.sleep(0.02)


async def test_watching_reloads_on_a_change(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    results: list[PolicyReload] = []
    task = asyncio.create_task(_seen(source, results))
    try:
        await asyncio.sleep(0.3)
        policy(tmp_path, extra="exact: {ttl: 5}\n")
        await _until(source, results, 5)
        (tmp_path / "next").write_text((tmp_path / "acme.yaml").read_text() + "versions: {a: 1}\n")
        (tmp_path / "next").rename(tmp_path / "acme.yaml")
        async with asyncio.timeout(20):
            while not source.current.tenants["acme"].versions:
                await asyncio.sleep(0.02)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_watching_sees_a_swapped_symlink(tmp_path: Path) -> None:
    """Kubernetes updates a mounted ConfigMap like this."""
    for name, ttl in (("..1", 1), ("..2", 2)):
        (tmp_path / name).mkdir()
        policy(tmp_path / name, extra=f"exact: {{ttl: {ttl}}}\n")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "acme.yaml").symlink_to("..data/acme.yaml")
    source = PolicySource(tmp_path, SECRET)
    results: list[PolicyReload] = []
    task = asyncio.create_task(_seen(source, results))
    try:
        await asyncio.sleep(0.3)
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await _until(source, results, 2)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_watching_follows_a_directory_that_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "policies"
    directory.mkdir()
    policy(directory)
    source = PolicySource(directory, SECRET)
    results: list[PolicyReload] = []
    task = asyncio.create_task(_seen(source, results))
    try:
        await asyncio.sleep(0.3)
        shutil.rmtree(directory)
        async with asyncio.timeout(20):
            while not results:
                await asyncio.sleep(0.02)
        assert not results[0].ok
        directory.mkdir()
        policy(directory, extra="exact: {ttl: 5}\n")
        await _until(source, results, 5)
        policy(directory, extra="exact: {ttl: 6}\n")
        await _until(source, results, 6)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_watch_that_fails_goes_on_by_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's watches can be used up; a watch can also end or have nothing to tell."""
    policy(tmp_path)
    asked: list[bool] = []

    async def awatch(*_: object, force_polling: bool, **__: object) -> AsyncIterator[set[object]]:
        asked.append(force_polling)
        if len(asked) == 1:
            raise RuntimeError("no watches are left")
        yield set()
        if len(asked) == 3:
            policy(tmp_path, extra="exact: {ttl: 5}\n")
            yield {(1, str(tmp_path / "acme.yaml"))}

    monkeypatch.setattr("watchfiles.awatch", awatch)
    monkeypatch.setattr("trivet.policies.source._LOOK_MS", 1)
    monkeypatch.setattr("trivet.policies.settling.PAUSE_S", 0.0)
    source = PolicySource(tmp_path, SECRET)
    async with asyncio.timeout(20):
        async for result in source.watch():
            assert result.ok
            break
    assert asked == [False, True, True]
    assert source.current.tenants["acme"].exact.ttl == 5


class Stirred:
    """A source beside what its watch asks, with a clock that goes when it is told."""

    def __init__(self, directory: Path) -> None:
        self.now = 0.0
        policy(directory, extra=SCOPED)
        self.source = PolicySource(directory, SECRET)
        self.settling = Settling(directory, lambda: self.now)

    def after(self, seconds: float) -> list[PolicyReload]:
        self.now += seconds
        self.settling.stir()
        return self.source._settled(self.settling)

    @property
    def scoped(self) -> bool:
        return self.source.current.tenants["acme"].exact.user_scope


SCOPED = "exact:\n  ttl: 5\n  user_scope: true\n"


def test_a_file_that_is_written_in_pieces_is_not_read_in_between(tmp_path: Path) -> None:
    rig = Stirred(tmp_path)
    whole = (tmp_path / "acme.yaml").read_text() + "versions: {a: 1}\n"
    with (tmp_path / "acme.yaml").open("w") as file:
        file.write(whole[: whole.index("  user_scope")])
        file.flush()
        assert [rig.after(step) for step in (0.0, 0.5, 0.4)] == [[], [], []]
        file.write(whole[whole.index("  user_scope") :])
    assert rig.after(0.1) == []
    assert rig.scoped
    (result,) = rig.after(1.0)
    assert result.ok
    assert rig.scoped
    assert rig.source.current.tenants["acme"].versions == {"a": "1"}


def test_an_explicit_reload_reads_at_once(tmp_path: Path) -> None:
    rig = Stirred(tmp_path)
    policy(tmp_path, extra="exact: {ttl: 7}\n")
    assert rig.after(0.0) == []
    assert rig.source.reload().ok
    assert not rig.scoped


async def test_who_asks_for_a_reload_gets_no_half_of_a_file(tmp_path: Path) -> None:
    policy(tmp_path, extra="exact: {user_scope: true}\n")
    source = PolicySource(tmp_path, SECRET)
    whole = (tmp_path / "acme.yaml").read_text()
    (tmp_path / "acme.yaml").write_text(whole[: whole.index("exact")])
    asked = asyncio.create_task(source.reload_at_rest(0.2))
    await asyncio.sleep(0.05)
    assert source.current.tenants["acme"].exact.user_scope
    (tmp_path / "acme.yaml").write_text(whole + "versions: {a: '1'}\n")
    assert (await asked).ok
    assert source.current.tenants["acme"].exact.user_scope
    assert source.current.tenants["acme"].versions == {"a": "1"}


async def test_files_that_were_read_already_are_read_again_without_a_pause(tmp_path: Path) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    result = await asyncio.wait_for(source.reload_at_rest(3600.0), 5)
    assert result == PolicyReload(True, source.current.version, 0)
    undeclared = await asyncio.wait_for(PolicySource(None, SECRET).reload_at_rest(3600.0), 5)
    assert undeclared == PolicyReload(True, "none", 0)


async def test_files_that_go_on_changing_leave_the_old_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(tmp_path)
    source = PolicySource(tmp_path, SECRET)
    before, states = source.current, iter(range(1000))
    monkeypatch.setattr(source_module, "state_of", lambda _: ((str(next(states)), ()),))
    result = await source.reload_at_rest(0.01)
    assert (result.ok, result.version) == (False, before.version)
    assert "being changed" in result.detail
    assert source.current is before


def test_files_that_change_while_they_are_read_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Stirred(tmp_path)
    policy(tmp_path, extra="exact: {ttl: 7}\n")
    rig.after(0.0)

    def load_and_write(directory: Path, *_: object) -> PolicySet:
        found = load(directory)
        policy(tmp_path, extra=SCOPED + "versions: {a: 1}\n")
        return found

    with monkeypatch.context() as patched:
        patched.setattr("trivet.policies.source.load", load_and_write)
        assert rig.after(1.0) == []
    assert rig.scoped
    assert rig.after(0.0) == []
    assert [result.ok for result in rig.after(1.0)] == [True]
    assert rig.scoped
    assert rig.source.current.tenants["acme"].versions == {"a": "1"}


async def test_without_a_directory_there_is_nothing_to_watch() -> None:
    results: list[PolicyReload] = []
    await _seen(PolicySource(None, SECRET), results)
    assert results == []
