"""Policy files are taken whole or refused whole, and each finding says where and what to do."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ConfigError, Problem
from trivet.messages import Api
from trivet.policies.keygen import key_hash
from trivet.policies.loader import json_schema, load
from trivet.policies.nodes import read_yaml
from trivet.policies.tenants import UNDECLARED, PolicySet

KEY = key_hash("k1")


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text)
    return directory


def problems(directory: Path) -> list[Problem]:
    with pytest.raises(ConfigError) as raised:
        load(directory)
    return list(raised.value.problems)


def said(directory: Path, text: str) -> list[tuple[int, int, str, str]]:
    """Line, column, field and message of each finding in a directory with one file."""
    found = problems(write(directory, a=text))
    return [(one.line, one.column, one.field, one.message) for one in found]


def loaded(directory: Path, text: str) -> PolicySet:
    return load(write(directory, a=text))


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        f"""
tenant: acme
credentials:
  - sha256: {KEY}
  - gateway: team-acme
upstreams: [main]
models: [gpt-*]
exact:
  ttl: 1h
  sampled: pool
  key_headers: [X-Flag]
  rules:
    - match: {{api: chat, model: gpt-*}}
      ttl: 90
      max_entry: 64KiB
versions: {{prompt: 7}}
limits:
  bytes: 1GiB
  entries: 10
""",
    )
    acme = found.tenants["acme"]
    assert acme.exact.ttl == 3600
    assert acme.exact.rules[0].match.api is Api.CHAT
    assert (acme.exact.rules[0].ttl, acme.exact.rules[0].max_entry) == (90, 65536)
    assert acme.limits.bytes == 1 << 30
    assert found.by_key == {KEY: acme}
    assert found.by_gateway == {"team-acme": acme}
    assert found.declared


def test_the_version_changes_with_content_and_names_only(tmp_path: Path) -> None:
    one = loaded(tmp_path, "tenant: acme\n").version
    assert len(one) == 12
    os.utime(tmp_path / "a.yaml", (1, 1))
    assert load(tmp_path).version == one
    assert loaded(tmp_path, "tenant: acme2\n").version != one


def test_a_set_cannot_be_altered(tmp_path: Path) -> None:
    found = loaded(tmp_path, "tenant: acme\n")
    with pytest.raises(TypeError):
        found.tenants["other"] = found.tenants["acme"]  # type: ignore[index]


def test_other_files_and_hidden_ones_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, a="tenant: acme\n")
    (tmp_path / "b.yml").write_text("tenant: other\n")
    (tmp_path / "README.md").write_text("not yaml: [")
    (tmp_path / ".b.yaml").write_text("not yaml: [")
    (tmp_path / "c.yaml~").write_text("not yaml: [")
    assert sorted(load(tmp_path).tenants) == ["acme", "other"]


def test_files_behind_symlinks_are_read(tmp_path: Path) -> None:
    """Kubernetes mounts a ConfigMap like this."""
    data = tmp_path / "..2026"
    data.mkdir()
    (data / "a.yaml").write_text("tenant: acme\n")
    (tmp_path / "..data").symlink_to(data)
    (tmp_path / "a.yaml").symlink_to(tmp_path / "..data" / "a.yaml")
    assert list(load(tmp_path).tenants) == ["acme"]


def test_a_directory_without_policies_is_a_finding(tmp_path: Path) -> None:
    (only,) = problems(tmp_path)
    assert only.file == str(tmp_path)
    assert "no policy file (*.yaml) is in it" in only.message


def test_a_missing_directory_is_a_finding(tmp_path: Path) -> None:
    (only,) = problems(tmp_path / "nowhere")
    assert only.message == "cannot be read: No such file or directory."


def test_an_unreadable_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    (only,) = problems(tmp_path)
    assert only.message == "is not a regular file."


def test_a_huge_file_is_a_finding(tmp_path: Path) -> None:
    (only,) = problems(write(tmp_path, a="#" * (1 << 21)))
    assert "is larger than" in only.message


def test_a_file_that_is_not_utf_8_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"tenant: \xff\n")
    (only,) = problems(tmp_path)
    assert only.message == "is not UTF-8 at byte 8."


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    assert list(loaded(tmp_path, "\ufefftenant: acme\n").tenants) == ["acme"]


def test_every_finding_of_every_file_is_told(tmp_path: Path) -> None:
    write(tmp_path, a="tenant: acme\nttl: 5\nexact: {k: 1}\n", b="tenant: [\n", c="{}\n")
    found = [(Path(one.file).name, one.field) for one in problems(tmp_path)]
    assert found == [
        ("a.yaml", "ttl"),
        ("a.yaml", "exact.k"),
        ("b.yaml", ""),
        ("c.yaml", "tenant"),
    ]


def test_an_unknown_field_suggests_the_nearest(tmp_path: Path) -> None:
    text = "tenant: acme\nexact:\n  rules:\n    - match: {modle: x}\n      sampeld: pool\n"
    assert said(tmp_path, text) == [
        (4, 15, "exact.rules[0].match.modle", "is not a known field. Did you mean `model`?"),
        (5, 7, "exact.rules[0].sampeld", "is not a known field. Did you mean `sampled`?"),
    ]


def test_an_unknown_field_like_no_other_lists_the_known(tmp_path: Path) -> None:
    ((line, column, field, message),) = said(tmp_path, "tenant: a\nexact:\n  zzzzzz: 1\n")
    assert (line, column, field) == (3, 3, "exact.zzzzzz")
    assert message.startswith("is not a known field. Known here: enabled, ttl, sampled, k,")


def test_a_field_given_twice_is_a_finding_beside_the_others(tmp_path: Path) -> None:
    text = "tenant: acme\nexact:\n  ttl: 1h\n  k: 99\n  ttl: 2h\n"
    assert said(tmp_path, text) == [
        (4, 3, "exact.k", "has to be 64 or less."),
        (5, 3, "exact.ttl", "is given twice; the first is in line 3."),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exact: {ttl: 1 hour}", "a duration is a number of seconds, or a number with s, m, h"),
        ("exact: {ttl: -1}", "has to be 0 or more."),
        ("exact: {ttl: [1]}", "has to be a number."),
        ("exact: {sampled: maybe}", "has to be 'bypass', 'cache' or 'pool', not 'maybe'."),
        ("exact: {k: two}", "has to be a whole number."),
        ("exact: {k: 2.5}", "has to be a whole number."),
        ("exact: {enabled: maybe}", "has to be true or false."),
        ("exact: {user_from: cookie}", "has to be `body`, or `header:` and the name of a header."),
        ("exact: {key_headers: X-A}", "has to be a list: [a, b], or one item a line"),
        ("exact: {key_headers: ['a b']}", "'a b' is not the name of a header."),
        ("exact: {rules: [{match: {}, key_headers: ['']}]}", "'' is not the name of a header."),
        ("exact: {rules: [{ttl: 5}]}", "is missing; say which requests the rule is for"),
        ("exact: {rules: [{match: {api: soap}}]}", "has to be 'chat', 'responses', 'completions'"),
        ("exact: 5", "has to be a section: name: value pairs"),
        ("limits: {bytes: 4 KB}", "a size is a number of bytes, or a number with KiB, MiB or GiB"),
        ("limits: {requests_in_flight: 0}", "has to be 1 or more."),
        ("versions: [a]", "has to be name: value pairs."),
        ("versions: {prompt: }", "has to be text."),
        ("versions: {a b: 1}", "a version's name has letters, digits, dots"),
        ("versions: {a: 'x,y'}", "a version has 1 to 128 characters"),
        ("versions: {a: ''}", "a version has 1 to 128 characters"),
        ("credentials: [{}]", "give sha256 or gateway: one of the two, and only one."),
        (
            "credentials: [{sha256: ABC}]",
            "an API key, 64 hex digits in lower case: run `trivet keygen`",
        ),
        (f"credentials: [{{sha256: {KEY}, gateway: a}}]", "one of the two, and only one."),
        (f"credentials: [{{sha256: {key_hash('')}}}]", "is the SHA-256 of an empty key"),
        (f"credentials: [{{sha256: {key_hash('1')}}}]", "the key '1', which anyone can guess"),
        ("credentials: [{sha256: THE-HASH}]", "run `trivet keygen` and put the sha256"),
        ("a: &x 1\nb: *x", "aliases (*name) are not read here"),
        ("? [a]\n: 1", "a field's name has to be plain text."),
        ("models: !!set {a}", "has to be a list"),
        ("models: !ruby/object {}", "the tag !ruby/object is not read here."),
        ("a: b: c", "is not valid YAML: no colon was expected here; each field begins a line"),
        ("---\ntenant: b", "is not valid YAML: expected the end of the file"),
    ],
)
def test_each_mistake_has_its_sentence(tmp_path: Path, text: str, message: str) -> None:
    found = problems(write(tmp_path, a=f"tenant: acme\n{text}\n"))
    assert any(message in one.message for one in found), [str(one) for one in found]
    assert all(one.line >= 1 and one.column >= 1 for one in found)


def test_a_raw_key_in_place_of_its_hash_is_not_repeated_in_the_finding(tmp_path: Path) -> None:
    found = problems(write(tmp_path, a="tenant: a\ncredentials: [{sha256: tvt_secret}]\n"))
    assert "tvt_secret" not in "".join(map(str, found))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_is_a_finding(tmp_path: Path, text: str) -> None:
    (only,) = said(tmp_path, text)
    assert only[3].startswith(("is empty", "has to be a section"))


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "5\n"])
def test_a_file_that_is_no_mapping_is_a_finding(tmp_path: Path, text: str) -> None:
    (only,) = said(tmp_path, text)
    assert only[3] == "has to be a section: name: value pairs, indented below it."


def test_control_characters_are_a_finding(tmp_path: Path) -> None:
    (only,) = said(tmp_path, "tenant: a\x00\n")
    assert "is not valid YAML" in only[3]


def test_deep_nesting_is_a_finding(tmp_path: Path) -> None:
    found = said(tmp_path, "tenant: " + "[" * 100 + "]" * 100)
    assert found[-1][3] == "is nested too deeply."
    (only,) = said(tmp_path, "[" * 5000 + "]" * 5000)
    assert only[3] == "is nested too deeply."


def test_two_files_of_one_tenant_are_a_finding(tmp_path: Path) -> None:
    (only,) = problems(write(tmp_path, a="tenant: acme\n", b="\ntenant: acme\n"))
    assert (Path(only.file).name, only.line, only.field) == ("b.yaml", 2, "tenant")
    assert "a.yaml is tenant 'acme' already" in only.message


def test_a_credential_of_two_tenants_is_a_finding(tmp_path: Path) -> None:
    shared = f"credentials:\n  - sha256: {KEY}\n  - gateway: g\n"
    found = problems(write(tmp_path, a="tenant: a\n" + shared, b="tenant: b\n" + shared))
    assert [(Path(one.file).name, one.line, one.field) for one in found] == [
        ("b.yaml", 3, "credentials[0].sha256"),
        ("b.yaml", 4, "credentials[1].gateway"),
    ]
    assert "a.yaml credentials[0] has the same credential" in found[0].message


def test_a_credential_listed_twice_is_a_finding(tmp_path: Path) -> None:
    text = f"tenant: a\ncredentials: [{{sha256: {KEY}}}, {{sha256: {KEY}}}]\n"
    ((line, _, field, _),) = said(tmp_path, text)
    assert (line, field) == (2, "credentials[1].sha256")


def test_versions_are_the_characters_as_written(tmp_path: Path) -> None:
    text = (
        "tenant: a\nversions: {a: 1.10, b: 007, c: 2026-11-30, d: no, e: 0x1F, f: 1e3, g: true}\n"
    )
    assert loaded(tmp_path, text).tenants["a"].versions == {
        "a": "1.10",
        "b": "007",
        "c": "2026-11-30",
        "d": "no",
        "e": "0x1F",
        "f": "1e3",
        "g": "true",
    }


def test_names_are_the_characters_as_written(tmp_path: Path) -> None:
    text = "tenant: on\nmodels: [1.10, yes]\nexact: {rules: [{match: {model: 4.0, route: 12}}]}\n"
    found = loaded(tmp_path, text).tenants["on"]
    assert found.models == ("1.10", "yes")
    match = found.exact.rules[0].match
    assert (match.model, match.route) == ("4.0", "12")


def test_scalars_follow_yaml_1_2(tmp_path: Path) -> None:
    text = "tenant: a\nusage_on_hit: zero\nexact: {enabled: no, refusals: true, ttl: .5, k: '3'}\n"
    found = loaded(tmp_path, text).tenants["a"]
    assert found.usage_on_hit == "zero"
    assert (found.exact.enabled, found.exact.refusals) == (False, True)
    assert (found.exact.ttl, found.exact.k) == (0.5, 3)


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read_yaml("a.yaml", text)


def test_the_schema_takes_what_the_loader_takes(tmp_path: Path) -> None:
    validator = jsonschema_rs.validator_for(json_schema())
    policy = {
        "tenant": "acme",
        "credentials": [{"sha256": KEY}],
        "exact": {"ttl": "1h", "max_entry": "64KiB", "rules": [{"match": {}, "ttl": 5}]},
        "versions": {"prompt": 7, "on": True},
        "limits": {"bytes": "1GiB", "bytes_in_flight": None},
    }
    assert validator.is_valid(policy)
    assert loaded(tmp_path, json.dumps(policy)).tenants["acme"].exact.ttl == 3600
    refused: tuple[dict[str, Any], ...] = (
        {"exact": {}},
        {"tenant": "acme", "exact": {"ttl": "1 hour"}},
        {"tenant": "acme", "exact": {"ttl": -1}},
        {"tenant": "acme", "unknown": 1},
        {"tenant": "acme", "limits": {"bytes": "4 KB"}},
        {"tenant": "acme", "limits": {"bytes": -1}},
    )
    for wrong in refused:
        assert not validator.is_valid(wrong), wrong


def test_a_set_knows_where_in_its_files_a_policy_stands(tmp_path: Path) -> None:
    found = loaded(tmp_path, "tenant: acme\nsemantic:\n  writers: [bot]\n")
    problem = found.problem("acme", ("semantic", "writers"), "is told.")
    assert str(problem) == f"{tmp_path}/a.yaml:3:3: semantic.writers: is told."


def test_a_policy_that_comes_from_no_file_is_named_by_its_tenant() -> None:
    problem = UNDECLARED.problem("acme", ("credentials", 0), "is told.")
    assert str(problem) == "policy of acme: credentials[0]: is told."
