"""`check` and `explain` in the shapes that the command line does not show; the rest: test_cli."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from parts import calibration

from trivet.middleware.explain.inspect import FINDING, OK, check, explain, schema


def test_the_schema_refuses_unknown_fields() -> None:
    assert json.loads(schema())["additionalProperties"] is False


def test_a_server_config_alone_is_said_to_be_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trivet.yaml"
    file.write_text("upstreams: [{name: a, base_url: 'http://a'}]\n")
    assert check(None, file, as_json=False) == OK
    assert capsys.readouterr().out == "The server config is fine.\n"
    assert check(None, file, as_json=True) == OK
    assert json.loads(capsys.readouterr().out) == {
        "ok": True,
        "tenants": [],
        "problems": [],
        "warnings": [],
        "semantic": {},
    }


def test_it_says_what_semantic_modes_come_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("tenant: a\nsemantic: {mode: replace}\n")
    (tmp_path / "b.yaml").write_text("tenant: b\n")
    (tmp_path / "c.yaml").write_text("tenant: c\nsemantic: {mode: assist, calibration: cal.json}\n")
    (tmp_path / "cal.json").write_text(calibration(0.9).model_dump_json())
    assert check(tmp_path, None, as_json=False) == OK
    assert capsys.readouterr().out == (
        "3 tenants: a, b, c\n"
        "semantic tier of a: replace, but acts as shadow (uncalibrated): the policy names no "
        "calibration (trivet eval calibrate makes one)\n"
        "semantic tier of c: assist (if the models that run are those of the calibration)\n"
    )
    assert check(tmp_path, None, as_json=True) == OK
    told = json.loads(capsys.readouterr().out)["semantic"]
    assert {tenant: (mode["mode"], mode["acts_as"]) for tenant, mode in told.items()} == {
        "a": ("replace", "shadow"),
        "c": ("assist", "assist"),
    }


def test_an_upstream_that_gets_no_key_is_a_warning_and_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, policies = tmp_path / "trivet.yaml", tmp_path / "policies"
    policies.mkdir()
    file.write_text("upstreams: [{name: a, base_url: 'http://a'}]\n")
    (policies / "acme.yaml").write_text(f"tenant: acme\ncredentials: [{{sha256: '{'0' * 64}'}}]\n")
    assert check(policies, file, as_json=False) == OK
    said = capsys.readouterr()
    assert said.err.startswith(
        "warning: upstream a: credential_env: is not set, so callers of acme"
    )
    assert said.out == "The server config is fine.\n1 tenant: acme\n"
    assert check(policies, file, as_json=True) == OK
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], [one["field"] for one in told["warnings"]]) == (True, ["credential_env"])


def test_findings_of_policies_and_of_the_config_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("tenant: a\nx: 1\n")
    assert check(tmp_path, tmp_path / "none", as_json=True) == FINDING
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(one["field"], Path(one["file"]).name) for one in problems] == [
        ("x", "a.yaml"),
        ("", "none"),
    ]


def test_the_headers_of_a_request_file_say_who_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"Authorization": "Bearer sk-a"}
    file.write_text(json.dumps({"headers": headers, "body": body}))
    assert explain(file, policies=None, tenant=None, as_json=True) == OK
    assert json.loads(capsys.readouterr().out)["tenant"].startswith("key-")


@pytest.mark.parametrize(
    ("exact", "warned"),
    [
        ("", ["semantic.quarantine", "semantic.writers"]),
        ("exact: {user_from: 'header:x-user'}\n", []),
        (
            "exact: {user_from: 'header:x-user', "
            "rules: [{match: {route: /v1/*}, user_from: body}]}\n",
            ["semantic.quarantine", "semantic.writers"],
        ),
    ],
)
def test_writers_and_quarantine_that_go_by_a_user_from_the_body_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exact: str, warned: list[str]
) -> None:
    (tmp_path / "acme.yaml").write_text(
        f"tenant: acme\ncredentials: [{{gateway: acme}}]\n{exact}"
        "semantic: {writers: [bot], quarantine: {users: 3}}\n"
    )
    assert check(tmp_path, None, as_json=True) == OK
    told = json.loads(capsys.readouterr().out)
    assert sorted(one["field"] for one in told["warnings"]) == warned


UPSTREAMS = "upstreams: [{name: a, base_url: 'http://a', credential_env: KEY}]\n"
KEYED = f"credentials: [{{sha256: '{'0' * 64}'}}]\n"


class TestPoliciesOfTheConfig:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        (tmp_path / "policies").mkdir()
        file = tmp_path / "trivet.yaml"
        file.write_text(UPSTREAMS + "policies: policies\n")
        return file

    def test_they_are_listed(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (file.parent / "policies" / "acme.yaml").write_text("tenant: acme\n" + KEYED)
        assert check(None, file, as_json=False) == OK
        assert capsys.readouterr().out == "The server config is fine.\n1 tenant: acme\n"

    def test_their_findings_are_told(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        policy = file.parent / "policies" / "acme.yaml"
        policy.write_text(f"tenant: acme\n{KEYED}upstreams: [a, b]\n")
        assert check(None, file, as_json=False) == FINDING
        assert capsys.readouterr().out == (
            f"{policy}:3:16: upstreams[1]: 'b' is not declared in the server config; it has a.\n"
            "1 problem found.\n"
        )

    def test_a_judge_behind_an_upstream_that_is_not_declared_is_a_finding(
        self, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        judge = "{kind: llm, upstream: b, model: m}"
        text = f"tenant: acme\n{KEYED}semantic: {{audit: {{judge: {judge}}}}}\n"
        (file.parent / "policies" / "acme.yaml").write_text(text)
        assert check(None, file, as_json=True) == FINDING
        (problem,) = json.loads(capsys.readouterr().out)["problems"]
        assert (problem["line"], problem["field"]) == (3, "semantic.audit.judge.upstream")


class TestWarnings:
    def warned(self, directory: Path, file: Path | None, capsys: pytest.CaptureFixture[str]) -> str:
        assert check(directory, file, as_json=False) == OK
        return capsys.readouterr().err

    def test_a_tenant_without_credentials(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "acme.yaml").write_text("tenant: acme\n")
        assert self.warned(tmp_path, None, capsys).startswith(
            f"warning: {tmp_path}/acme.yaml:1:1: credentials: names none, so nobody can reach this"
        )

    @pytest.mark.parametrize(
        ("config", "warned"),
        [("", True), ("gateway: {header: X-Tenant, peers: [10.0.0.1]}\n", False)],
    )
    def test_a_gateways_credential_where_no_gateway_is_declared(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, warned: bool
    ) -> None:
        file, policies = tmp_path / "trivet.yaml", tmp_path / "policies"
        policies.mkdir()
        file.write_text(UPSTREAMS + config)
        (policies / "acme.yaml").write_text("tenant: acme\ncredentials: [{gateway: acme}]\n")
        assert self.warned(policies, None, capsys) == ""
        assert ("declares no gateway" in self.warned(policies, file, capsys)) is warned

    def test_a_file_whose_suffix_is_in_capitals(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "acme.yml").write_text("tenant: acme\n" + KEYED)
        (tmp_path / "b.YAML").write_text("tenant: b\n")
        told = f"warning: {tmp_path / 'b.YAML'}: is not read: policy files end in .yaml or .yml.\n"
        assert self.warned(tmp_path, None, capsys) == told
