"""Headers that a policy names: which may be left out of the key, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from trivet.errors import ConfigError
from trivet.policies.loader import json_schema, load
from trivet.policies.model import ExactPolicy


def exact_of(directory: Path, lines: str) -> ExactPolicy:
    (directory / "a.yaml").write_text(f"tenant: acme\nexact:\n{lines}")
    return load(directory).tenants["acme"].exact


def said(directory: Path, lines: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        exact_of(directory, lines)
    return [str(problem).removeprefix(f"{directory}/") for problem in raised.value.problems]


def test_ignored_headers_are_read_in_lower_case(tmp_path: Path) -> None:
    found = exact_of(tmp_path, "  ignore_headers: [X-Nonce, x-time, 7]\n")
    assert found.ignore_headers == ("x-nonce", "x-time", "7")


def test_a_rule_may_ignore_headers_of_its_own(tmp_path: Path) -> None:
    found = exact_of(tmp_path, "  rules:\n    - match: {}\n      ignore_headers: [X-Nonce]\n")
    assert found.ignore_headers == ()
    assert found.rules[0].ignore_headers == ("x-nonce",)


@pytest.mark.parametrize(
    "name",
    [
        "anthropic-version",
        "anthropic-beta",
        "anthropic-workspace-id",
        "openai-organization",
        "openai-project",
        "openai-beta",
        "Accept-Language",
        "api-version",
        "x-goog-user-project",
        "x-portkey-config",
    ],
)
def test_what_is_known_to_shape_answers_is_refused(tmp_path: Path, name: str) -> None:
    told = f"{name.lower()} is known to shape answers; it stays in the key."
    assert said(tmp_path, f"  ignore_headers:\n    - {name}\n") == [
        f"a.yaml:4:7: exact.ignore_headers[0]: {told}"
    ]


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-user-id", "x-session-token"])
def test_what_tells_callers_apart_is_refused(tmp_path: Path, name: str) -> None:
    told = f"{name} may tell callers apart; it stays in the key."
    assert said(tmp_path, f"  ignore_headers: [x-nonce, {name}]\n") == [
        f"a.yaml:3:29: exact.ignore_headers[1]: {told}"
    ]


def test_what_is_no_name_of_a_header_is_refused_where_it_stands(tmp_path: Path) -> None:
    lines = "  ignore_headers: ['a b']\n  rules:\n    - match: {}\n      ignore_headers: ['é']\n"
    assert said(tmp_path, lines) == [
        "a.yaml:3:20: exact.ignore_headers[0]: 'a b' is not the name of a header.",
        "a.yaml:6:24: exact.rules[0].ignore_headers[0]: 'é' is not the name of a header.",
    ]


def test_a_header_cannot_be_in_the_key_and_left_out_of_it(tmp_path: Path) -> None:
    assert said(tmp_path, "  key_headers: [X-Flag]\n  ignore_headers: [x-flag]\n") == [
        "a.yaml:4:20: exact.ignore_headers[0]: x-flag is in key_headers too."
    ]


def test_a_rule_may_key_what_is_ignored_elsewhere(tmp_path: Path) -> None:
    lines = "  ignore_headers: [x-flag]\n  rules:\n    - match: {}\n      key_headers: [X-Flag]\n"
    assert exact_of(tmp_path, lines).rules[0].key_headers == ("X-Flag",)


def test_the_schema_for_editors_has_the_setting() -> None:
    parts = json_schema()["$defs"]
    for name in ("ExactPolicy", "ExactRule"):
        assert "ignore_headers" in parts[name]["properties"]
