"""The documentation: what it shows is run, or at least read by what it is for."""

from __future__ import annotations

import ast
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from doc_blocks import PAGES, ROOT, RUN, Block, Place, blocks, script
from proxy import free_port

from trivet.cli import main
from trivet.middleware.running.config import ServerConfig
from trivet.policies.keygen import key_hash
from trivet.policies.model import TenantPolicy
from trivet.policies.nodes import read_yaml

BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN_PAGES = [page for page in PAGES if page.name in RUN]
UPSTREAM = {"name": "u", "base_url": "http://127.0.0.1:9"}
LANGUAGES = {"sh", "yaml", "json", "python", "text"}


def place() -> Place:
    key = f"sk-{secrets.token_hex(16)}"
    return Place(free_port(), free_port(), key, key_hash(key), key_hash(key + "2"))


def of(*languages: str) -> list[Any]:
    return [pytest.param(one, id=one.place) for one in BLOCKS if one.language in languages]


def test_the_pages_that_are_run_are_there() -> None:
    assert {page.name for page in RUN_PAGES} == RUN


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_each_block_of_a_page_that_is_run_says_what_it_is(page: Path) -> None:
    wrong = [block.place for block in blocks(page) if block.language not in LANGUAGES]
    assert wrong == []


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_a_page_can_be_followed_from_its_first_block_to_its_last(
    page: Path, tmp_path: Path
) -> None:
    here = place()
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "OPENAI_API_KEY": here.key,
        "ANTHROPIC_API_KEY": here.key,
    }
    done = subprocess.run(
        ["bash", "-c", script(page, here)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("block", of("sh"))
def test_shell_blocks_are_shell(block: Block) -> None:
    subprocess.run(["bash", "-n", "-c", block.text], check=True)


@pytest.mark.parametrize("block", of("python"))
def test_python_blocks_are_python(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", of("json"))
def test_json_blocks_are_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:
        for line in block.text.splitlines():
            json.loads(line)


def yaml_blocks() -> list[Any]:
    """Those that say so, and indented ones that look like it."""
    return [
        pytest.param(one, id=one.place)
        for one in BLOCKS
        if one.language == "yaml" or (not one.language and re.match(r"[a-z_]+:\n", one.text))
    ]


@pytest.mark.parametrize("block", yaml_blocks())
def test_yaml_blocks_are_policies_or_configs_or_parts_of_them(block: Block) -> None:
    read = read_yaml(block.place, place().put_into(block.text))
    written: Any = read.value
    assert not read.problems
    of_server = isinstance(written.get("upstreams", [""])[0], dict) or "flood" in written
    if of_server:
        ServerConfig.model_validate({"upstreams": [UPSTREAM]} | written)
    else:
        TenantPolicy.model_validate({"tenant": "t"} | written)


def commands() -> list[Any]:
    """Command lines of `trivet` in any block; `[` is of a synopsis, `...` stands for more."""
    found = []
    for block in BLOCKS:
        if block.page.parent.name == "reference":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            line = re.sub(r"^\s*\$ ", "", line).strip()
            if line.startswith("trivet ") and "[" not in line and "..." not in line:
                found.append(pytest.param(line, id=f"{block.place} {line[:60]}"))
    return found


@pytest.mark.parametrize("line", commands())
def test_commands_have_the_options_that_they_are_given(line: str) -> None:
    words = shlex.split(re.split(r"\s[|<>&;]|\s#|\s{3,}", line)[0])[1:]
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    assert not isinstance(command, click.Group) or words
    try:
        command.make_context("trivet", words).close()
    except click.exceptions.Exit:
        pass  # --help and --version end here.
    except click.BadParameter as error:
        # Files that a page speaks of are not here.
        if not isinstance(error.param and error.param.type, click.Path | click.File):
            raise


def test_the_tests_that_the_threat_model_names_are_there() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).exists() or f"def {test}" not in (ROOT / file).read_text("utf-8")
    ]
    assert len(named) > 20
    assert missing == []


def test_files_that_pages_name_are_there() -> None:
    named = re.compile(r"\b(?:deploy|tests|examples|requirements)/[\w./-]+\.[a-z]+")
    missing = {
        f"{page.name}: {file}"
        for page in PAGES
        for file in named.findall(page.read_text("utf-8"))
        if not (ROOT / file).exists()
    }
    assert missing == set()


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    built = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "docs", str(built)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outside = re.compile(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"')
    assert [page.name for page in built.glob("**/*.html") if outside.search(page.read_text())] == []
