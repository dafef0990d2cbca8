"""The command line as people and scripts use it: help, JSON, exit codes, sentences that help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from trivet.cli import FINDING, USAGE, main
from trivet.errors import StoreError
from trivet.middleware.running.config import ServerConfig
from trivet.middleware.running.engine_process import EngineCommand
from trivet.policies.keygen import key_hash
from trivet.prefix.engine.serving import ServeOptions

CHAT = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "hi"}]}


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"TRIVET_ADMIN_KEY": None, **env})


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [path]
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, *path, name)
        else:
            found.append((*path, name))
    return found


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    text = f"tenant: acme\ncredentials:\n  - sha256: {key_hash('sk-acme')}\n"
    (folder / "acme.yaml").write_text(text)
    return folder


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(CHAT))
    return file


class TestHelp:
    @pytest.mark.parametrize("path", commands(main), ids=" ".join)
    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_every_command_explains_itself(self, path: tuple[str, ...], flag: str) -> None:
        result = run(*path, flag)
        assert result.exit_code == 0
        assert result.output.startswith("Usage: ")
        described = result.output.split("\n\n", 1)[1].strip()
        assert described[0].isupper() or described.startswith("Trivet")

    def test_the_commands_that_scripts_use_are_there(self) -> None:
        names = {" ".join(path) for path in commands(main)}
        wanted = {"serve", "upstream", "check", "explain", "keygen", "purge", "engine serve"}
        assert wanted <= names

    @pytest.mark.parametrize("command", ["check", "explain", "keygen", "purge"])
    def test_what_prints_data_prints_json_too(self, command: str) -> None:
        assert "--json" in run(command, "--help").output

    def test_a_wrong_command_is_a_wrong_usage(self) -> None:
        result = run("serv")
        assert result.exit_code == USAGE
        assert "No such command 'serv'" in result.output

    def test_the_version_is_told(self) -> None:
        assert run("--version").output.startswith("trivet, version ")


class TestKeygen:
    def test_the_key_and_what_goes_into_the_policy_file(self) -> None:
        made = json.loads(run("keygen", "--json").output)
        assert made["key"].startswith("tvt_")
        assert made["sha256"] == key_hash(made["key"])

    def test_people_are_told_what_to_do_with_it(self) -> None:
        result = run("keygen")
        assert result.exit_code == 0
        assert "credentials:\n    - sha256: " in result.output

    def test_no_key_is_made_twice(self) -> None:
        assert run("keygen", "--json").output != run("keygen", "--json").output


class TestCheck:
    def test_policies_that_are_well_are_listed(self, policies: Path) -> None:
        result = run("check", str(policies))
        assert (result.exit_code, result.output) == (0, "1 tenant: acme\n")

    def test_a_finding_names_file_line_and_field(self, policies: Path) -> None:
        (policies / "bad.yaml").write_text("tenant: globex\nexact:\n  tttl: 5\n")
        result = run("check", str(policies))
        assert result.exit_code == FINDING
        assert f"{policies / 'bad.yaml'}:3:3: exact.tttl: " in result.output
        assert result.output.endswith("1 problem found.\n")

    def test_findings_as_json(self, policies: Path) -> None:
        (policies / "bad.yaml").write_text("tenant: globex\nexact:\n  tttl: 5\nx: 1\n")
        result = run("check", str(policies), "--json")
        told = json.loads(result.output)
        assert (result.exit_code, told["ok"], told["tenants"]) == (FINDING, False, [])
        assert [(found["line"], found["field"]) for found in told["problems"]] == [
            (3, "exact.tttl"),
            (4, "x"),
        ]

    def test_well_as_json(self, policies: Path) -> None:
        told = json.loads(run("check", str(policies), "--json").output)
        assert told == {
            "ok": True,
            "tenants": ["acme"],
            "problems": [],
            "warnings": [],
            "semantic": {},
        }

    def test_a_directory_that_is_missing_is_named(self, tmp_path: Path) -> None:
        result = run("check", str(tmp_path / "none"))
        assert result.exit_code == FINDING
        assert "No such file or directory" in result.output

    def test_a_server_config_is_checked_alone_or_beside(self, policies: Path) -> None:
        file = policies.parent / "trivet.yaml"
        file.write_text("upstreams: [{name: a, base_url: ftp://a}]\nprot: 1\n")
        for arguments in ((str(policies),), ()):
            result = run("check", *arguments, "--config", str(file))
            assert result.exit_code == FINDING
            assert "upstreams[0].base_url" in result.output
            assert "prot" in result.output
            assert "2 problems found." in result.output

    def test_without_anything_to_check_it_says_what_to_give(self) -> None:
        result = run("check")
        assert result.exit_code == USAGE
        assert "Give the DIRECTORY" in result.output

    def test_the_schema_needs_no_directory(self) -> None:
        result = run("check", "--schema")
        assert result.exit_code == 0
        assert "tenant" in json.loads(result.output)["properties"]


class TestExplain:
    def test_it_says_what_would_happen(self, request_file: Path) -> None:
        result = run("explain", str(request_file))
        assert result.exit_code == 0
        assert "anonymous" in result.output

    def test_as_json_it_has_the_key(self, request_file: Path) -> None:
        told = json.loads(run("explain", str(request_file), "--json").output)
        assert len(told["keys"][0]) == 64
        assert told["tiers"][0]["open"] is True

    def test_a_caller_whom_the_policies_do_not_know_is_a_finding(
        self, request_file: Path, policies: Path
    ) -> None:
        result = run("explain", str(request_file), "--policies", str(policies), "--json")
        assert (result.exit_code, json.loads(result.output)["tenant"]) == (FINDING, None)

    def test_an_operator_may_choose_the_tenant(self, request_file: Path, policies: Path) -> None:
        arguments = ("--policies", str(policies), "--tenant", "acme", "--json")
        result = run("explain", str(request_file), *arguments)
        assert (result.exit_code, json.loads(result.output)["tenant"]) == (0, "acme")

    def test_a_config_says_what_is_sent_to_the_upstreams_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is sent, so no credential has to be there; and no salt is shown."""
        monkeypatch.delenv("ABSENT_KEY", raising=False)
        (tmp_path / "policies").mkdir()
        policy = {"tenant": "acme", "prefix": {"ttl": "1h", "repair": {"sort_tools": True}}}
        (tmp_path / "policies" / "acme.yaml").write_text(json.dumps(policy))
        upstreams = [
            {"name": "claude", "base_url": "https://api.anthropic.com", "models": ["claude-*"],
             "credential_env": "ABSENT_KEY"},
            {"name": "own", "base_url": "http://127.0.0.1:1", "cache": "vllm"},
        ]  # fmt: skip
        config = tmp_path / "trivet.yaml"
        config.write_text(json.dumps({"policies": "policies", "upstreams": upstreams}))
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in "ba"]
        body = {"model": "claude-opus-4-5", "max_tokens": 9, "system": "Rules. " * 5000,
                "tools": tools, "messages": [{"role": "user", "content": "x"}]}  # fmt: skip
        file = tmp_path / "request.json"
        file.write_text(json.dumps(body))
        given = ("--config", str(config), "--tenant", "acme")
        shown = run("explain", str(file), *given).output
        assert "Upstream  claude" in shown
        assert "\nanthropic: all callers of one account share" in shown
        assert "\nbreakpoint at system for 1h\n" in shown
        assert "\n--- as it came\n+++ as repaired\n" in shown
        told = json.loads(run("explain", str(file), *given, "--json").stdout)
        assert "breakpoint at system for 1h" in told["prefix"]
        file.write_text(json.dumps({"model": "m", "messages": body["messages"]}))
        shown = run("explain", str(file), *given).output
        assert "\nvllm: tenants apart by salt\ncache_salt set for the tenant\n" in shown
        assert "0000" not in shown

    def test_a_config_does_not_go_with_a_running_proxy(self, request_file: Path) -> None:
        given = ("--admin", "http://127.0.0.1:1", "--config", "trivet.yaml")
        assert run("explain", str(request_file), *given).exit_code == USAGE

    def test_a_config_without_policies_is_told_so(self, request_file: Path, tmp_path: Path) -> None:
        config = tmp_path / "trivet.yaml"
        upstreams = [{"name": "u", "base_url": "http://127.0.0.1:1"}]
        config.write_text(json.dumps({"upstreams": upstreams}))
        given = ("--config", str(config), "--tenant", "acme")
        result = run("explain", str(request_file), *given)
        assert result.exit_code == USAGE
        assert "trivet.yaml has no `policies:`" in result.output

    @pytest.mark.parametrize("declared", [True, False])
    def test_a_tenant_that_is_not_declared_is_a_wrong_usage(
        self, request_file: Path, policies: Path, declared: bool
    ) -> None:
        more = ("--policies", str(policies)) if declared else ()
        result = run("explain", str(request_file), "--tenant", "globex", *more)
        assert result.exit_code == USAGE
        assert "error: command line: --tenant: " in result.output
        assert ("globex" if declared else "--policies DIR") in result.output

    @pytest.mark.parametrize(
        ("text", "words"),
        [("{", "not valid JSON"), ("[]", "JSON object"), ('{"x":1}', "neither messages")],
    )
    def test_a_request_that_cannot_be_read_is_a_finding(
        self, tmp_path: Path, text: str, words: str
    ) -> None:
        file = tmp_path / "request.json"
        file.write_text(text)
        result = run("explain", str(file))
        assert result.exit_code == FINDING
        assert result.output.startswith("error: ")
        assert words in result.output

    @pytest.mark.parametrize("name", ["none.json", "."])
    def test_a_file_that_cannot_be_read_is_a_wrong_usage(self, tmp_path: Path, name: str) -> None:
        result = run("explain", str(tmp_path / name))
        assert result.exit_code == USAGE
        assert "cannot be read" in result.output


class TestPurge:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        from trivet.middleware.admin.client import AdminClient

        seen: list[Any] = []

        def purge(self: AdminClient, tenant: str, **which: Any) -> int:
            seen.append((self._url, self._key, tenant, which))
            return 3

        monkeypatch.setattr(AdminClient, "purge", purge)
        return seen

    def test_it_tells_how_many_were_deleted(self, asked: list[Any]) -> None:
        result = run("purge", "--tenant", "acme", "--tag", "x", TRIVET_ADMIN_KEY="secret")
        assert (result.exit_code, result.output) == (
            0,
            "3 stored answers of acme deleted.\n",
        )
        which = {"tag": "x", "version": None, "key": None}
        assert asked == [("http://127.0.0.1:8081", "secret", "acme", which)]

    def test_as_json(self, asked: list[Any]) -> None:
        result = run("purge", "--tenant", "acme", "--admin", "http://h:1", "--json")
        assert json.loads(result.output) == {"purged": 3}
        assert asked[0][0] == "http://h:1"

    def test_without_a_tenant_nothing_is_purged(self, asked: list[Any]) -> None:
        result = run("purge")
        assert (result.exit_code, asked) == (USAGE, [])
        assert "--tenant" in result.output

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "acme deleted: no tenant of that name has any here.\n"),
            (("--tag", "x"), "acme deleted.\n"),
            (("--key", "ab" * 32), "acme deleted: the key may be of another secret or policy"),
        ],
    )
    def test_where_nothing_was_deleted_it_says_why_that_may_be(
        self, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
    ) -> None:
        from trivet.middleware.admin.client import AdminClient

        monkeypatch.setattr(AdminClient, "purge", lambda *_, **__: 0)
        assert said in run("purge", "--tenant", "acme", *arguments).output

    def test_a_version_is_a_name_and_a_value(self, asked: list[Any]) -> None:
        result = run("purge", "--tenant", "acme", "--version", "7")
        assert (result.exit_code, asked) == (USAGE, [])
        assert "give NAME=VALUE" in result.output

    def test_one_of_the_three_at_a_time(self, asked: list[Any]) -> None:
        result = run("purge", "--tenant", "acme", "--tag", "x", "--version", "a=1")
        assert (result.exit_code, asked) == (USAGE, [])
        assert "Give one of --tag, --version and --key" in result.output

    def test_a_proxy_that_does_not_run_is_a_finding_that_says_so(self) -> None:
        result = run("purge", "--tenant", "acme", "--admin", "http://127.0.0.1:1")
        assert result.exit_code == FINDING
        assert "is trivet serve running there?" in result.output

    def test_the_admin_key_is_not_shown_in_the_help(self) -> None:
        assert "secret" not in run("purge", "--help", TRIVET_ADMIN_KEY="secret").output


class TestServe:
    @pytest.fixture
    def served(self, monkeypatch: pytest.MonkeyPatch) -> list[ServerConfig]:
        seen: list[ServerConfig] = []
        monkeypatch.setattr(
            "trivet.middleware.running.run.run", lambda config, engine: seen.append(config)
        )
        return seen

    def test_flags_become_the_config(self, served: list[ServerConfig]) -> None:
        arguments = ["--upstream", "http://127.0.0.1:9000/v1", "--upstream", "http://b"]
        arguments += ["--port", "8090", "--admin-port", "8091", "--policies", "p"]
        arguments += ["--store", "memory", "--workers", "2", "--log-requests"]
        result = run("serve", *arguments, TRIVET_ADMIN_KEY="secret")
        assert result.exit_code == 0, result.output
        (config,) = served
        assert [one.root for one in config.upstreams] == ["http://127.0.0.1:9000", "http://b"]
        assert [one.name for one in config.upstreams] == ["upstream", "upstream-2"]
        assert (config.port, config.admin_port, config.workers) == (8090, 8091, 2)
        assert (config.policies, config.store.url) == (Path("p"), "memory")
        assert config.log_requests
        assert config.admin_key_sha256 == key_hash("secret")

    def test_without_an_upstream_it_says_how_to_give_one(self, served: list[ServerConfig]) -> None:
        result = run("serve")
        assert (result.exit_code, served) == (USAGE, [])
        assert "give --upstream URL" in result.output

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--upstream", "localhost:9000"), "http:// or https:// URL"),
            (("--upstream", "http://a", "--port", "65536"), "65536"),
            (("--upstream", "http://a", "--workers", "0"), "workers"),
            (("--config", "/nonexistent.yaml"), "No such file"),
        ],
    )
    def test_a_wrong_flag_is_a_wrong_usage(
        self, served: list[ServerConfig], arguments: tuple[str, ...], words: str
    ) -> None:
        result = run("serve", *arguments)
        assert (result.exit_code, served) == (USAGE, [])
        assert words in result.output


class TestTold:
    def test_trouble_on_purpose_is_a_sentence_and_not_a_traceback(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any) -> None:
            raise StoreError("full", "the disk is full")

        monkeypatch.setattr("trivet.middleware.running.run.run", broken)
        result = run("serve", "--upstream", "http://a")
        assert (result.exit_code, result.output) == (FINDING, "error: the disk is full\n")

    def test_the_built_in_upstream_gets_its_flags(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []
        monkeypatch.setattr(
            "trivet.middleware.mock_upstream.run.run",
            lambda *given, provider: seen.append((*given, provider)),
        )
        assert run("upstream", "--port", "9001", "--delay-ms", "5").exit_code == 0
        assert run("upstream", "--as", "bedrock").exit_code == 0
        assert run("upstream", "--as", "nobody").exit_code == USAGE
        assert seen == [("127.0.0.1", 9001, 5, None), ("127.0.0.1", 9000, 0, "bedrock")]

    def test_the_engine_gets_its_flags(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []
        monkeypatch.setattr("trivet.prefix.engine.serving.run", seen.append)
        assert run("engine", "serve", "--port", "9101", "--kv-memory", "512MiB").exit_code == 0
        assert seen == [ServeOptions("smollm2", port=9101, kv_memory=512 << 20)]

    def test_a_size_that_is_none_is_a_wrong_usage(self) -> None:
        result = run("engine", "serve", "--kv-memory", "much")
        assert result.exit_code == USAGE
        assert "--kv-memory" in result.output

    def test_serve_runs_an_engine_where_it_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []
        monkeypatch.setattr(
            "trivet.middleware.running.run.serve", lambda *given: seen.append(given[-1])
        )
        options = ("--engine-port", "9200", "--engine-options", "--kv-memory '4 GiB'")
        assert run("serve", "--engine", "m", *options).exit_code == 0
        assert run("serve", "--upstream", "http://a").exit_code == 0
        assert seen == [EngineCommand("m", 9200, ("--kv-memory", "4 GiB")), None]

    @pytest.mark.parametrize(
        "flags",
        [
            ("--engine-port", "1"),
            ("--engine", "m", "--engine-options", "'"),
            ("--engine", "m", "--engine-options", "--kv-memory 4GiB --host=0.0.0.0"),
            ("--engine", "m", "--engine-options", "--port 9200"),
        ],
    )
    def test_options_of_no_engine_are_a_wrong_usage(self, flags: tuple[str, ...]) -> None:
        assert run("serve", *flags).exit_code == USAGE
