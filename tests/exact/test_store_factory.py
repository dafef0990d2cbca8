"""Store URLs, and what they open."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trivet.errors import ConfigError
from trivet.exact.factory import StoreLimits, open_store
from trivet.exact.followed import FollowedStore
from trivet.exact.layered import LayeredStore
from trivet.exact.memory import MemoryStore
from trivet.exact.seal import Seal
from trivet.exact.store import Bound
from trivet.exact.store_url import parse_url

SEAL = Seal(b"s" * 32)


async def test_memory_is_memory_alone() -> None:
    assert isinstance(open_store("memory", seal=SEAL), MemoryStore)


async def test_other_stores_have_memory_in_front_unless_it_may_hold_nothing(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'c.db'}"
    layered = open_store(url, seal=SEAL)
    assert isinstance(layered, LayeredStore)
    assert layered.name == "sqlite"
    for none in (Bound(entries=0), Bound(bytes=0)):
        assert isinstance(open_store(url, seal=SEAL, limits=StoreLimits(front=none)), FollowedStore)
    assert not (tmp_path / "c.db").exists()


@pytest.mark.parametrize(
    "url",
    ["redis://h", "rediss://h:1/2", "redis+sentinel://a,b/main", "redis+cluster://a", "valkey://h"],
)
async def test_redis_urls_open_without_touching_the_network(url: str) -> None:
    store = open_store(url, seal=SEAL)
    assert store.name == "redis"
    await store.close()


@pytest.mark.parametrize("url", ["", "sqlite:", "mysql://u:hunter2@h", "redisx://u:hunter2@h"])
def test_what_is_no_store_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url, seal=SEAL)
    assert "hunter2" not in str(caught.value)


def test_redis_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("trivet.exact.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"trivet\[redis\]"):
        open_store("redis://h", seal=SEAL)


def test_a_plain_url_is_read_whole() -> None:
    address = parse_url("redis://us%40er:p%2Fw@[::1]:7000/3")
    assert address.kind == "standalone"
    assert address.nodes == (("::1", 7000),)
    assert address.options == {"username": "us@er", "password": "p/w", "db": 3}
    assert "p/w" not in repr(address)


def test_defaults_are_the_usual_ports_and_the_usual_service() -> None:
    assert parse_url("redis://h").nodes == (("h", 6379),)
    sentinel = parse_url("redis+sentinel://a,b:1")
    assert sentinel.nodes == (("a", 26379), ("b", 1))
    assert sentinel.service == "mymaster"


def test_a_sentinel_url_names_service_database_and_both_logins() -> None:
    address = parse_url("rediss+sentinel://:pw@a/main/2?sentinel_password=s&ssl_ca_certs=/ca")
    assert (address.service, address.options["db"]) == ("main", 2)
    assert address.options["ssl"] is True
    assert address.options["ssl_ca_certs"] == "/ca"
    assert address.options["password"] == "pw"
    assert address.sentinel_options == {"password": "s"}


def test_an_option_that_is_a_yes_or_no_is_read_as_one() -> None:
    assert parse_url("rediss://h?ssl_check_hostname=false").options["ssl_check_hostname"] is False


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h:port",
        "redis://h:0",
        "redis://h:70000",
        "redis://h/db",
        "redis://a,,b",
        "redis://a,b",
        "redis+cluster://a/1",
        "redis+ring://a",
        "redis://u:hunter2@h?nope=1",
    ],
)
def test_a_url_that_is_not_understood_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_url(url)
    assert "hunter2" not in str(caught.value)
