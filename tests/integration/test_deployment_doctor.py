"""`trivet doctor` against real stores, upstreams and a proxy that runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from proxy import Proxy, serving
from redis_servers import Server, running

from trivet.canonical import mac
from trivet.cli import main
from trivet.exact.redis_secret import MARKS
from trivet.exact.seal import Seal
from trivet.middleware.mock_upstream import run as mock
from trivet.policies.keygen import key_hash

SECRET = "s" * 32
OURS = Seal(mac(SECRET.encode(), b"trivet-store")).mark


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(shared: Server) -> Server:
    shared.cli("FLUSHALL")
    return shared


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with mock.running() as (url, _):
        yield url


@pytest.fixture(scope="module")
def anthropic() -> Iterator[str]:
    with mock.running(provider="anthropic") as (url, _):
        yield url


@pytest.fixture(scope="module")
def proxy(upstream: str) -> Iterator[Proxy]:
    with serving(upstream) as made:
        yield made


def doctor(folder: Path, *arguments: str, **env: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings, with an empty state directory."""
    given = {"XDG_STATE_HOME": str(folder), "TRIVET_SECRET": SECRET, "TRIVET_ADMIN_KEY": None}
    result = CliRunner().invoke(main, ["doctor", "--json", *arguments], env={**given, **env})
    told = json.loads(result.output)
    assert result.exit_code == told["exit_code"], result.output
    return result.exit_code, told["findings"]


def about(found: list[dict[str, Any]], check: str) -> list[tuple[str, str]]:
    return [(one["level"], one["told"]) for one in found if one["check"] == check]


def test_all_is_well_with_a_sound_deployment(
    tmp_path: Path, redis: Server, upstream: str, proxy: Proxy
) -> None:
    arguments = ("--store", redis.url, "--upstream", upstream, "--admin", proxy.admin)
    code, found = doctor(tmp_path, *arguments)
    assert (code, [one for one in found if one["level"] != "ok"]) == (0, [])
    assert about(found, "store")[0][1].startswith(f"{redis.url} can be read and written; Redis ")
    assert about(found, "proxy") == [
        ("ok", f"The one at {proxy.admin} is ready, with all its parts.")
    ]


def test_nothing_is_left_in_redis_and_nothing_is_made(tmp_path: Path, redis: Server) -> None:
    doctor(tmp_path, "--store", redis.url)
    assert redis.cli("DBSIZE") == "0\n"
    doctor(tmp_path, TRIVET_SECRET="")
    assert list(tmp_path.iterdir()) == []


def test_a_secret_that_is_not_that_of_the_proxies_is_a_fault(tmp_path: Path, redis: Server) -> None:
    with serving("http://127.0.0.1:9", store=redis.url, env={"TRIVET_SECRET": SECRET}):
        assert redis.cli("ZRANGE", MARKS.decode(), "0", "-1") == f"{OURS}\n"
        code, found = doctor(tmp_path, "--store", redis.url)
        assert about(found, "secret")[-1] == ("ok", "It is the one that this Redis is used with.")
        other = "o" * 32
        code, found = doctor(tmp_path, "--store", redis.url, TRIVET_SECRET=other)
        assert (code, about(found, "secret")[-1][0]) == (2, "fault")
        with serving("http://127.0.0.1:9", store=redis.url, env={"TRIVET_SECRET": other}) as wrong:
            parts = wrong.get("/readyz", admin=True).json["components"]
            (told,) = [one for one in parts if one["name"] == "redis-secret"]
            assert (told["ok"], told["state"]) == (True, "degraded")
            assert any("redis-secret" in line and "degraded" in line for line in wrong.lines())


def test_redis_that_is_not_there_or_takes_no_writes_is_a_fault(
    tmp_path: Path, redis: Server
) -> None:
    code, found = doctor(tmp_path, "--store", "redis://127.0.0.1:1")
    assert (code, about(found, "store")[0][0]) == (2, "fault")
    redis.cli("CONFIG", "SET", "maxmemory", "1")
    try:
        code, found = doctor(tmp_path, "--store", redis.url)
        ((level, told),) = about(found, "store")
        assert (code, level) == (2, "fault")
        assert "can be read and not written: full" in told
    finally:
        redis.cli("CONFIG", "SET", "maxmemory", "0")


def test_upstreams_are_told_by_what_they_speak(
    tmp_path: Path, upstream: str, anthropic: str
) -> None:
    config = tmp_path / "trivet.yaml"
    config.write_text(
        f"""
upstreams:
  - {{name: both, base_url: {upstream}/v1}}
  - {{name: claude, base_url: {anthropic}, dialects: [openai, anthropic]}}
  - {{name: wrong, base_url: {upstream}/elsewhere}}
  - {{name: gone, base_url: http://127.0.0.1:9, credential_env: NO_SUCH_KEY}}
store: {{url: memory}}
workers: 2
"""
    )
    code, found = doctor(tmp_path, "--config", str(config))
    assert code == 2
    assert about(found, "upstream both") == [("ok", f"{upstream} answers as openai and anthropic.")]
    assert about(found, "upstream claude")[0][0] == "warning"
    assert about(found, "upstream wrong")[0][0] == "fault"
    assert about(found, "upstream gone")[0][0] == "fault"
    assert [level for level, _ in about(found, "workers")] == ["warning"]
    ((level, told),) = about(found, "policies")
    assert (level, "NO_SUCH_KEY" in told) == ("fault", True)


@pytest.mark.parametrize(
    ("gateway", "secret", "said"),
    [
        ("{header: x-tenant, secret_header: x-secret, secret_env: GATEWAY}", "e" * 40, "GATEWAY"),
        ("null", "short", "fewer than"),
    ],
)
def test_secrets_that_are_missing_or_too_short_are_faults(
    tmp_path: Path, gateway: str, secret: str, said: str
) -> None:
    config = tmp_path / "trivet.yaml"
    config.write_text(
        "upstreams: [{name: e, base_url: http://127.0.0.1:9, engine_secret_env: ENGINE}]\n"
        f"store: {{url: memory}}\ngateway: {gateway}\n"
    )
    code, found = doctor(tmp_path, "--config", str(config), ENGINE=secret)
    assert code == 2
    ((level, told),) = about(found, "policies")
    assert (level, said in told) == ("fault", True)


def test_a_config_that_serve_refuses_is_a_fault_in_json_too(tmp_path: Path) -> None:
    config = tmp_path / "trivet.yaml"
    config.write_text("upstreams: [{name: a, base_url: ftp://a}]\nprot: 1\n")
    code, found = doctor(tmp_path, "--config", str(config))
    assert (code, [one["check"] for one in found]) == (2, ["config", "config"])


def test_permissions_of_database_secret_and_policies_are_looked_at(tmp_path: Path) -> None:
    state = tmp_path / "trivet"
    (tmp_path / "policies").mkdir()
    state.mkdir()
    policy = tmp_path / "policies" / "acme.yaml"
    policy.write_text(f"tenant: acme\ncredentials: [{{sha256: {key_hash('sk-acme')}}}]\n")
    policy.chmod(0o666)
    (state / "secret").write_text(SECRET)
    (state / "secret").chmod(0o644)
    database = state / "cache.sqlite"
    sqlite3.connect(database).close()
    database.touch(0o644)
    database.chmod(0o644)
    arguments = ("--policies", str(policy.parent))
    code, found = doctor(tmp_path, *arguments, TRIVET_SECRET="")
    assert code == 2
    assert about(found, "secret")[0][0] == "fault"
    assert "chmod 600" in about(found, "secret")[0][1]
    assert [level for level, _ in about(found, "store")] == ["ok", "warning"]
    assert [level for level, _ in about(found, "policies")] == ["ok", "warning"]


def test_a_database_of_another_program_is_a_fault_and_stays_as_it_is(tmp_path: Path) -> None:
    database = tmp_path / "other.sqlite"
    made = sqlite3.connect(database)
    made.execute("CREATE TABLE t(x)")
    made.close()
    before = database.read_bytes()
    code, found = doctor(tmp_path, "--store", f"sqlite:{database}")
    assert (code, about(found, "store")[0][0]) == (2, "fault")
    database.write_text("no database at all, " * 100)
    code, found = doctor(tmp_path, "--store", f"sqlite:{database}")
    assert (code, about(found, "store")[0][0]) == (2, "fault")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.sqlite"]
    assert before != database.read_bytes()


def test_an_admin_port_that_is_not_trivets_is_a_fault(tmp_path: Path, upstream: str) -> None:
    for url in (upstream, "http://127.0.0.1:9"):
        code, found = doctor(tmp_path, "--store", "memory", "--admin", url)
        assert (code, about(found, "proxy")[0][0]) == (2, "fault")


def test_people_get_sentences(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["doctor", "--store", "memory"], env={"XDG_STATE_HOME": str(tmp_path)}
    )
    assert result.exit_code == 0
    assert result.output.startswith("ok      versions: Trivet ")
    assert result.output.endswith("\nAll is well.\n")
