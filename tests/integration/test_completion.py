"""Completion in a shell: bash itself completes with the script that is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trivet.cli import USAGE, main

ASK = """
source <(trivet completion bash)
complete -p trivet | grep -q -- '-F _trivet_completion trivet'
COMP_WORDS=(trivet $1)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[ "${1: -1}" = ' ' ] && { COMP_WORDS+=(''); COMP_CWORD=$((COMP_CWORD + 1)); }
_trivet_completion trivet
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("do", {"doctor"}),
        ("eval ca", {"calibrate"}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("doctor --st", {"--store"}),
    ],
)
def test_bash_offers_commands_arguments_and_options(typed: str, offered: set[str]) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", ASK, "bash", typed],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize(
    ("shell", "words"),
    [("zsh", "#compdef trivet"), ("fish", "complete --no-files --command trivet")],
)
def test_the_other_shells_get_scripts_of_theirs(shell: str, words: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, words in result.output) == (0, True)


def test_another_shell_is_a_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["completion", "csh"]).exit_code == USAGE
