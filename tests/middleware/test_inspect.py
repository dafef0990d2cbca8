"""`check` and `explain` in the shapes that the command line does not show; the rest: test_cli."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trivet.middleware.inspect import FINDING, OK, check, explain, schema


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
    assert said.out == "1 tenant: acme\n"
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
        f"tenant: acme\n{exact}semantic: {{writers: [bot], quarantine: {{users: 3}}}}\n"
    )
    assert check(tmp_path, None, as_json=True) == OK
    told = json.loads(capsys.readouterr().out)
    assert sorted(one["field"] for one in told["warnings"]) == warned
