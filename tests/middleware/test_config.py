"""A server config says what is wrong with it, by field, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trivet.errors import ConfigError
from trivet.middleware.running.config import UpstreamConfig, server_config, state_dir

UP: dict[str, Any] = {"upstreams": [{"name": "a", "base_url": "http://a"}]}


def refused(overrides: dict[str, Any], file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        server_config(file, overrides)
    return str(caught.value)


class TestStateDir:
    def test_it_follows_xdg(self) -> None:
        assert state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/trivet")

    def test_its_default_is_in_the_home(self) -> None:
        assert state_dir({}) == Path.home() / ".local" / "state" / "trivet"


class TestUpstream:
    @pytest.mark.parametrize(
        ("url", "root"),
        [
            ("http://a", "http://a"),
            ("http://a/v1", "http://a"),
            ("https://a:8443/base/v1/", "https://a:8443/base"),
        ],
    )
    def test_a_url_may_end_with_v1_or_not(self, url: str, root: str) -> None:
        assert UpstreamConfig(name="a", base_url=url).root == root

    @pytest.mark.parametrize(
        "url",
        [
            "a",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:port",
            "http://a:99999",
            "http://a:0",
            "http://user:secret@a",
            "http://a?x=1",
            "http://a#x",
            "http://[::1",
        ],
    )
    def test_what_is_no_url_to_append_to_is_refused(self, url: str) -> None:
        said = refused({"upstreams": [{"name": "a", "base_url": url}]})
        assert "upstreams[0].base_url" in said
        assert "secret" not in said

    @pytest.mark.parametrize("prefix", ["azure", "/a b", "/ä"])
    def test_a_prefix_begins_with_a_slash(self, prefix: str) -> None:
        said = refused({"upstreams": [{"name": "a", "base_url": "http://a", "prefix": prefix}]})
        assert "upstreams[0].prefix" in said

    def test_two_upstreams_need_two_names(self) -> None:
        assert "two upstreams" in refused({"upstreams": UP["upstreams"] * 2})


class TestServerConfig:
    def test_flags_win_over_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text(
            "upstreams: [{name: a, base_url: 'http://a'}]\nport: 1\nhost: h\n"
            "store: {url: memory, budget: 20s}\n"
        )
        config = server_config(file, {"port": 2, "host": None, "store.url": "sqlite:x"})
        assert (config.port, config.host) == (2, "h")
        assert (config.store.url, config.store.budget) == ("sqlite:x", 20.0)

    @pytest.mark.parametrize("written", ["store:\n", "store: {}\n", ""])
    def test_a_flag_fills_an_empty_section(self, tmp_path: Path, written: str) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text("upstreams: [{name: a, base_url: 'http://a'}]\n" + written)
        assert server_config(file, {"store.url": "memory"}).store.url == "memory"

    def test_a_section_that_is_no_mapping_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text("upstreams: [{name: a, base_url: 'http://a'}]\nstore: memory\n")
        said = refused({"store.url": "memory"}, file)
        assert said.startswith(f"{file}:2:1: store: ")

    def test_without_an_upstream_it_says_how_to_give_one(self) -> None:
        assert "--upstream URL" in refused({})

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("- a\n", "mapping"),
            ("a: [", "not valid YAML"),
            ("", "is empty"),
        ],
    )
    def test_a_file_that_is_no_mapping_is_refused(
        self, tmp_path: Path, text: str, words: str
    ) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text(text)
        said = refused(UP, file)
        assert str(file) in said
        assert words in said

    def test_a_file_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_bytes(b"\xff\xfe\x00")
        assert "is not UTF-8 at byte 0" in refused(UP, file)

    def test_a_file_that_is_missing_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "none.yaml"
        assert refused(UP, file) == f"{file}: No such file or directory"

    def test_a_finding_has_its_line_and_the_nearest_name(self, tmp_path: Path) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text("upstreams:\n  - {name: a, base_ur: 'http://a'}\nprot: 1\n")
        assert refused({}, file).splitlines() == [
            f"{file}:2:5: upstreams[0].base_url: is missing.",
            f"{file}:2:15: upstreams[0].base_ur: is not a known field. Did you mean `base_url`?",
            f"{file}:3:1: prot: is not a known field. Did you mean `port`?",
        ]

    def test_a_field_given_twice_is_a_finding(self, tmp_path: Path) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text("port: 1\nport: 2\n")
        assert "port: is given twice" in refused(UP, file)

    def test_what_a_flag_says_wrong_has_no_line_of_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "trivet.yaml"
        file.write_text("upstreams: [{name: a, base_url: 'http://a'}]\nworkers: 1\n")
        assert refused({"workers": 0}, file).startswith("command line: workers: ")

    def test_every_finding_is_told(self) -> None:
        said = refused({**UP, "workers": 0, "prot": 1})
        assert "command line: workers: " in said
        assert "command line: prot: " in said

    @pytest.mark.parametrize("name", ["body_timeout", "header_timeout"])
    def test_a_time_that_would_end_every_request_is_refused(self, name: str) -> None:
        assert name in refused({**UP, name: 0})

    @pytest.mark.parametrize("value", [float("inf"), float("nan"), -1])
    def test_a_time_is_a_number(self, value: float) -> None:
        assert "drain" in refused({**UP, "drain": value})


class TestStoreUrl:
    @pytest.mark.parametrize(
        ("url", "told"),
        [
            ("sqlit:/x", "'sqlit' is not a store"),
            ("mysql://u:hunter2@h", "'mysql' is not a store"),
            ("redis:/h", "a Redis URL begins with redis://"),
            ("redis://u:hunter2@h:p/0", "'h:p' is not HOST or HOST:PORT"),
        ],
    )
    def test_what_is_no_store_is_told_with_its_line_and_without_its_password(
        self, tmp_path: Path, url: str, told: str
    ) -> None:
        file = tmp_path / "t.yaml"
        file.write_text(f'upstreams: [{{name: a, base_url: "http://a"}}]\nstore:\n  url: "{url}"\n')
        said = refused({}, file)
        assert f"{file}:3:3: store.url: {told}" in said
        assert "hunter2" not in said

    @pytest.mark.parametrize("url", ["memory", "sqlite", "sqlite:", "sqlite:/x", "redis://h/0"])
    def test_a_store_is_named_by_its_url(self, url: str) -> None:
        assert server_config(None, {**UP, "store.url": url}).store.url == url


def test_an_upstream_section_in_the_singular_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text('upstream: [{name: a, base_url: "http://a"}]\n')
    assert "under `upstreams` (it says `upstream`)" in refused({}, file)
