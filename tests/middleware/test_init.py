"""`trivet init`: what it writes works as it is, and replaces nothing that is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from trivet.cli import USAGE, main
from trivet.middleware.first_steps.templates import (
    Answers,
    Sampled,
    config_text,
    policy_text,
    provider_of,
)
from trivet.middleware.running.config import server_config
from trivet.policies.keygen import key_hash
from trivet.policies.loader import load, load_policy
from trivet.policies.nodes import read_yaml

KEY = "sk-proj-0123456789"
FLAGS = ("--upstream", "openai", "--tenant", "acme", "--key")


def run(folder: Path, *flags: str, **env: str | None) -> Result:
    arguments = ["init", str(folder), *flags]
    given = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": None, **env}
    return CliRunner().invoke(main, arguments, env=given)


def checked(folder: Path) -> Result:
    return CliRunner().invoke(main, ["check", "--config", str(folder / "trivet.yaml"), "--json"])


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


class TestWhatIsWritten:
    @pytest.mark.parametrize("upstream", ["openai", "anthropic", "http://127.0.0.1:9000/v1"])
    @pytest.mark.parametrize("whose", ["own", "new"])
    @pytest.mark.parametrize("sampled", [None, "bypass", "cache", "pool"])
    def test_it_passes_the_check(
        self, tmp_path: Path, upstream: str, whose: str, sampled: Sampled | None
    ) -> None:
        more = () if sampled is None else ("--sampled", sampled)
        flags = ("--upstream", upstream, "--tenant", "acme", "--key", whose, *more)
        result = run(tmp_path, *flags, "--key-env", "OPENAI_API_KEY")
        assert result.exit_code == 0, result.output
        told = json.loads(checked(tmp_path).output)
        assert (told["ok"], told["tenants"], told["problems"]) == (True, ["acme"], [])
        wanted = sampled or ("cache" if upstream == "anthropic" else "bypass")
        assert load(tmp_path / "policies").tenants["acme"].exact.sampled == wanted

    @pytest.mark.parametrize(
        "url", ["http://[::1]:9000", "http://h/a:b", "http://h/a'b{", "http://h/%20*"]
    )
    def test_any_url_of_an_upstream_is_written_as_that_url(self, tmp_path: Path, url: str) -> None:
        flags = ("--upstream", url, "--tenant", "acme", "--key", "new")
        assert run(tmp_path, *flags).exit_code == 0
        config = server_config(tmp_path / "trivet.yaml", {})
        assert [one.base_url for one in config.upstreams] == [url]

    @given(name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"))
    def test_any_name_of_a_tenant_is_written_as_that_name(self, name: str) -> None:
        answers = Answers(provider_of("openai"), name, "own", None, "bypass", 8080)
        text = policy_text(answers, key_hash(KEY))
        source = read_yaml("x", text)
        assert (source.value["tenant"], source.problems) == (name, ())

    def test_own_keys_are_kept_as_a_hash_and_go_on_to_the_upstream(self, tmp_path: Path) -> None:
        result = run(tmp_path, *FLAGS, "own")
        policy = load_policy(tmp_path / "policies" / "acme.yaml")
        assert [one.sha256 for one in policy.credentials] == [key_hash(KEY)]
        assert not any(KEY in text for text in (*contents(tmp_path).values(), result.output))
        assert "credential_env:" not in re.sub(r"#.*", "", config_of(tmp_path))

    def test_a_new_key_is_shown_once_and_the_upstream_gets_the_providers(
        self, tmp_path: Path
    ) -> None:
        told = json.loads(run(tmp_path, *FLAGS, "new", "--json").output)
        assert told["key"].startswith("tvt_")
        policy = load_policy(tmp_path / "policies" / "acme.yaml")
        assert [one.sha256 for one in policy.credentials] == [key_hash(told["key"])]
        assert not any(told["key"] in text for text in contents(tmp_path).values())
        assert "credential_env: OPENAI_API_KEY" in config_of(tmp_path)

    @pytest.mark.parametrize(
        ("upstream", "lines"),
        [
            ("openai", ['OpenAI(base_url="http://127.0.0.1:8090/v1")']),
            ("anthropic", ['Anthropic(base_url="http://127.0.0.1:8090")']),
            (
                "http://h:1",
                [
                    'OpenAI(base_url="http://127.0.0.1:8090/v1")',
                    'Anthropic(base_url="http://127.0.0.1:8090")',
                ],
            ),
        ],
    )
    def test_the_line_to_change_is_that_of_the_apis_sdk(
        self, tmp_path: Path, upstream: str, lines: list[str]
    ) -> None:
        flags = ("--upstream", upstream, "--tenant", "acme", "--key", "new", "--port", "8090")
        output = run(tmp_path, *flags).output
        assert re.findall(r"(?:OpenAI|Anthropic)\(base_url=.*\)", output) == lines

    def test_it_is_commented_and_fits_100_columns(self) -> None:
        for upstream in ("openai", "anthropic", "http://127.0.0.1:9000"):
            for whose in ("own", "new"):
                answers = Answers(provider_of(upstream), "acme", whose, "KEY", "pool", 8080)
                for text in (policy_text(answers, "0" * 64), config_text(answers)):
                    assert text.count("#") >= 3
                    assert max(map(len, text.splitlines())) <= 100


def config_of(folder: Path) -> str:
    return (folder / "trivet.yaml").read_text()


class TestWhatIsThere:
    def test_a_policy_is_not_replaced_without_force(self, tmp_path: Path) -> None:
        run(tmp_path, *FLAGS, "new")
        before = contents(tmp_path)
        result = run(tmp_path, *FLAGS, "new")
        assert result.exit_code == USAGE
        assert "is there already: give --force" in result.output
        assert contents(tmp_path) == before

    def test_with_force_it_is(self, tmp_path: Path) -> None:
        run(tmp_path, *FLAGS, "new")
        before = contents(tmp_path)
        assert run(tmp_path, *FLAGS, "new", "--force").exit_code == 0
        assert contents(tmp_path) != before

    def test_a_second_tenant_is_put_beside_the_first_under_the_same_config(
        self, tmp_path: Path
    ) -> None:
        run(tmp_path, *FLAGS, "new", "--port", "8123")
        before = config_of(tmp_path)
        result = run(tmp_path, "--upstream", "openai", "--tenant", "globex", "--key", "new")
        assert result.exit_code == 0
        assert config_of(tmp_path) == before
        assert "kept:" in result.output
        assert "http://127.0.0.1:8123/v1" in result.output
        assert json.loads(checked(tmp_path).output)["tenants"] == ["acme", "globex"]

    @pytest.mark.parametrize(
        ("first", "flags", "said"),
        [
            ("new", ("--upstream", "anthropic", "--key", "new"), "has no upstream https://api.an"),
            (
                "own",
                ("--upstream", "openai", "--key", "new"),
                "add `credential_env: OPENAI_API_KEY",
            ),
            ("own", ("--upstream", "openai", "--key", "own"), "has the same credential"),
        ],
    )
    def test_what_would_not_work_with_what_is_there_changes_nothing(
        self, tmp_path: Path, first: str, flags: tuple[str, ...], said: str
    ) -> None:
        run(tmp_path, *FLAGS, first)
        before = contents(tmp_path)
        result = run(tmp_path, "--tenant", "globex", *flags)
        assert result.exit_code == USAGE
        assert said in result.output
        assert contents(tmp_path) == before

    def test_force_that_fails_puts_back_what_was_there(self, tmp_path: Path) -> None:
        run(tmp_path, *FLAGS, "new")
        (tmp_path / "policies" / "other.yaml").write_text("tenant: acme\n")
        before = contents(tmp_path)
        (tmp_path / "trivet.yaml").chmod(0o600)
        assert run(tmp_path, *FLAGS, "new", "--force").exit_code == USAGE
        assert contents(tmp_path) == before
        assert (tmp_path / "trivet.yaml").stat().st_mode & 0o777 == 0o600

    def test_a_folder_that_cannot_be_made_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        result = run(tmp_path / "file" / "below", *FLAGS, "new")
        assert result.exit_code == USAGE
        assert "cannot be written" in result.output
        assert contents(tmp_path) == {"file": ""}


class TestWrongUsage:
    def test_with_nobody_to_ask_the_flags_are_named(self, tmp_path: Path) -> None:
        result = run(tmp_path, "--tenant", "acme")
        assert result.exit_code == USAGE
        assert "give --upstream openai|anthropic|URL, --key own|new." in result.output
        assert contents(tmp_path) == {}

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (
                ("--upstream", "opneai", "--tenant", "a", "--key", "new"),
                "none of openai, anthropic",
            ),
            (("--upstream", "http://h/v1/messages", "--tenant", "a", "--key", "new"), "base URL"),
            (("--upstream", "http://h/ #", "--tenant", "a", "--key", "new"), "no URL has"),
            (("--upstream", "http://h\nworkers: 9", "--tenant", "a", "--key", "new"), "no URL has"),
            (("--upstream", "openai", "--tenant", "../a", "--key", "new"), "a tenant's name"),
            (
                ("--upstream", "openai", "--tenant", "a", "--key", "new", "--key-env", "a b"),
                "'a b'",
            ),
            (("--upstream", "anthropic", "--tenant", "a", "--key", "own"), "is not set"),
        ],
    )
    def test_a_wrong_flag_is_told_and_writes_nothing(
        self, tmp_path: Path, flags: tuple[str, ...], said: str
    ) -> None:
        result = run(tmp_path, *flags)
        assert result.exit_code == USAGE
        assert said in result.output
        assert contents(tmp_path) == {}

    def test_a_key_that_anyone_guesses_is_refused(self, tmp_path: Path) -> None:
        result = run(tmp_path, *FLAGS, "own", OPENAI_API_KEY="changeme")
        assert result.exit_code == USAGE
        assert "anyone can guess" in result.output
        assert contents(tmp_path) == {}
