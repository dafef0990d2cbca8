"""What a library user says, and what is refused when it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError
from trivet.library.settings import named, place_of, plan_of


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("TRIVET_SECRET", raising=False)


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_said_is_what_serve_does_without_flags() -> None:
    plan = plan_of(None, None, None, named=False)
    assert plan.declared == ()
    assert plan.config.store.url == "sqlite:"
    assert plan.config.gateway is None
    assert not plan.guarded


def test_a_base_url_becomes_an_upstream_of_its_own() -> None:
    config = plan_of(None, "memory", None, named=False).of_root("https://api.openai.com")
    assert [(one.name, one.root) for one in config.upstreams] == [
        ("openai", "https://api.openai.com")
    ]


def test_declared_upstreams_are_told_apart_by_a_path(tmp_path: Path) -> None:
    file = written(tmp_path / "t.yaml", "upstreams: [{name: a, base_url: 'http://h/x'}]\n")
    plan = plan_of(file, None, None, named=False)
    assert [one.prefix for one in plan.of_declared().upstreams] == ["/to/a"]
    assert place_of(plan.declared[0]) == "/to/a"


def test_a_file_without_upstreams_is_fine(tmp_path: Path) -> None:
    file = written(tmp_path / "t.yaml", "store: {url: memory}\n")
    plan = plan_of(file, None, None, named=False)
    assert (plan.declared, plan.config.store.url) == ((), "memory")


def test_an_app_that_names_tenants_is_the_gateway_and_a_file_cannot_be_another(
    tmp_path: Path,
) -> None:
    text = "store: {url: memory}\ngateway: {header: X-T, peers: ['0.0.0.0/0']}\n"
    file = written(tmp_path / "t.yaml", text)
    named = plan_of(file, None, None, named=True).config.gateway
    assert named is not None
    assert (named.header, named.peers) == ("trivet-tenant", ("127.0.0.1",))
    assert plan_of(file, None, None, named=False).config.gateway is None


@pytest.mark.parametrize(
    "text", ["stor: {}\n", "upstream: []\n", "upstreams: [{name: a}]\n", "store: {url: nosuch}\n"]
)
def test_a_wrong_file_is_refused_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        plan_of(written(tmp_path / "t.yaml", text), None, None, named=False)


def test_a_wrong_store_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        plan_of(None, "nosuch", None, named=False)


def test_wrong_policies_are_refused_at_once(tmp_path: Path) -> None:
    folder = written(tmp_path / "p" / "a.yaml", "tenant: a\nexact: {tll: 1h}\n").parent
    with pytest.raises(ConfigError, match="tll"):
        plan_of(None, "memory", folder, named=False)


def test_policies_that_name_upstreams_need_them_declared(tmp_path: Path) -> None:
    folder = written(tmp_path / "p" / "a.yaml", "tenant: a\nupstreams: [openai]\n").parent
    with pytest.raises(ConfigError, match="openai"):
        plan_of(None, "memory", folder, named=False)


def test_a_place_that_cannot_be_written_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(written(tmp_path / "file", "")))
    with pytest.raises(ConfigError, match="TRIVET_SECRET"):
        plan_of(None, "memory", None, named=False)


@given(st.text(), st.text())
def test_no_two_tenants_are_named_alike(one: str, other: str) -> None:
    assert (named(one) == named(other)) == (one == other)
    assert named(one).strip() == named(one)


def test_a_policys_tenant_is_named_as_it_is() -> None:
    assert named("Acme-2.eu_west") == b"Acme-2.eu_west"
