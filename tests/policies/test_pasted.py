from __future__ import annotations

from pathlib import Path

import pytest

from trivet.policies.loader import LARGEST
from trivet.policies.source import PolicySource

ACME = "tenant: acme\ncredentials:\n  - sha256: " + "ab" * 32 + "\n"
GLOBEX = "tenant: globex\ncredentials:\n  - sha256: " + "cd" * 32 + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.yaml").write_text(ACME)
    (tmp_path / "two.yaml").write_text(GLOBEX)
    return tmp_path


def source(folder: Path | None) -> PolicySource:
    return PolicySource(folder, b"secret", None, ["llm"])


def test_a_text_takes_the_place_of_the_file_whose_tenant_it_names(folder: Path) -> None:
    found = source(folder).check(ACME + "exact: {ttl: 1h}\n")
    assert found.problems == ()
    assert found.file == str(folder / "one.yaml")
    assert found.before is not None
    assert found.policy is not None
    assert (found.before.exact.ttl, found.policy.exact.ttl) == (86400.0, 3600.0)
    assert found.policies is not None
    assert sorted(found.policies.tenants) == ["acme", "globex"]


def test_a_new_tenant_replaces_nobody(folder: Path) -> None:
    found = source(folder).check("tenant: initech\n")
    assert (found.before, found.problems) == (None, ())
    assert found.policies is not None
    assert sorted(found.policies.tenants) == ["acme", "globex", "initech"]


def test_a_check_changes_nothing(folder: Path) -> None:
    policies = source(folder)
    before = {path: path.read_text() for path in folder.iterdir()}
    current = policies.current
    policies.check(ACME + "exact: {ttl: 1h}\n")
    assert policies.current is current
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_a_problem_names_its_line_and_field(folder: Path) -> None:
    (problem,) = source(folder).check(ACME + "exact:\n  tll: 4\n").problems
    assert (problem.line, problem.column, problem.field) == (5, 3, "exact.tll")


def test_a_credential_of_another_tenant_is_found(folder: Path) -> None:
    (problem,) = source(folder).check(ACME.replace("ab", "cd")).problems
    assert "a credential is of one tenant" in problem.message


def test_an_upstream_that_nobody_declares_is_found(folder: Path) -> None:
    (problem,) = source(folder).check(ACME + "upstreams: [lm]\n").problems
    assert "'lm' is not declared" in problem.message


def test_a_broken_file_beside_it_is_told_with_its_own_name(folder: Path) -> None:
    policies = source(folder)
    (folder / "two.yaml").write_text("tenant: [")
    found = policies.check(ACME)
    assert found.policy is not None
    assert {problem.file for problem in found.problems} == {str(folder / "two.yaml")}


def test_without_a_directory_the_text_is_checked_alone() -> None:
    found = source(None).check("tenant: acme\nexact: {ttl: 5m}\n")
    assert found.problems == ()
    assert found.policy is not None
    assert found.policies is None


@pytest.mark.parametrize("text", ["", "[", "- a", "tenant: {}", "\ud800", "a: &x [*x]"])
def test_what_is_no_policy_is_told_in_findings(folder: Path, text: str) -> None:
    found = source(folder).check(text)
    assert found.problems
    assert found.policy is None


def test_a_text_beyond_the_bound_of_files_is_refused(folder: Path) -> None:
    (problem,) = source(folder).check("#" * (LARGEST + 1)).problems
    assert "larger than" in problem.message
