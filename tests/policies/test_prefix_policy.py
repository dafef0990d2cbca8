"""The prefix section of a policy says what is wrong with it in one finding each."""

from __future__ import annotations

from pathlib import Path

import pytest

from trivet.errors import ConfigError
from trivet.policies.loader import load


def findings(folder: Path, section: str) -> list[tuple[str, str]]:
    (folder / "a.yaml").write_text(f"tenant: a\nprefix:\n  {section}\n")
    with pytest.raises(ConfigError) as caught:
        load(folder)
    return [(problem.field, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize("mark", ["[tools, sytem]", "nver", "7"])
def test_a_wrong_mark_is_one_finding_that_names_what_there_is(tmp_path: Path, mark: str) -> None:
    ((field, message),) = findings(tmp_path, f"mark: {mark}")
    assert field == "prefix.mark"
    assert message.startswith(
        "has to be auto, never, or a list out of tools, system, history, last"
    )


@pytest.mark.parametrize("mark", ["auto", "never", "[tools, last]", "[]"])
def test_marks_are_auto_never_or_places(tmp_path: Path, mark: str) -> None:
    (tmp_path / "a.yaml").write_text(f"tenant: a\nprefix:\n  mark: {mark}\n")
    assert load(tmp_path).tenants["a"].prefix.enabled


def test_a_pattern_that_does_not_compile_is_told(tmp_path: Path) -> None:
    ((field, _),) = findings(tmp_path, 'repair: {move_lines: ["(["]}')
    assert field.startswith("prefix.repair.move_lines")
