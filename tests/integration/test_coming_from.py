"""The pages for who comes from another cache: each config on them is what it says it is."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from doc_blocks import ROOT, blocks

from trivet.cli import main
from trivet.policies.keygen import key_hash

PAGES = sorted((ROOT / "docs").glob("coming-from-*.md"))
KEY = "sk-proj-0123456789"
FILES = {"trivet.yaml", "policies/app.yaml", "policies/search.yaml"}


def written(page: Path, folder: Path) -> set[str]:
    """The page's files, in a folder."""
    names = set()
    for block in blocks(page):
        if block.file:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(re.sub(r"PUT-THE-SHA256-OF-[\w-]+-HERE", key_hash(KEY), block.text))
            names.add(block.file)
    return names


def test_there_is_a_page_for_each() -> None:
    assert [page.stem for page in PAGES] == [
        f"coming-from-{name}" for name in ("gptcache", "litellm", "portkey")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_trivets_configs_pass_the_check(page: Path, tmp_path: Path) -> None:
    names = written(page, tmp_path)
    assert len(names) == 2
    assert names <= FILES
    arguments = ["check", "--config", str(tmp_path / "trivet.yaml"), "--json"]
    told = json.loads(CliRunner().invoke(main, arguments, env={"OPENAI_API_KEY": KEY}).output)
    assert (told["ok"], len(told["tenants"])) == (True, 1), told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_others_config_is_of_its_language(page: Path) -> None:
    (block,) = [block for block in blocks(page) if block.language == "text"]
    if page.stem == "coming-from-litellm":
        read = yaml.safe_load(block.text)
        assert read["litellm_settings"]["cache_params"]["ttl"] == 600
    elif page.stem == "coming-from-portkey":
        assert json.loads(block.text)["cache"] == {"mode": "simple", "max_age": 3600}
    else:
        calls = [one for one in ast.walk(ast.parse(block.text)) if isinstance(one, ast.Call)]
        assert any(ast.unparse(one.func) == "cache.init" for one in calls)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_init_writes_what_the_page_says_that_it_writes(page: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"`trivet (init [^`]+)`", page.read_text())
    words = [str(tmp_path) if word == "." else word for word in line.split()]
    result = CliRunner().invoke(main, words, env={"OPENAI_API_KEY": KEY})
    assert result.exit_code == 0, result.output
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml")}
    assert names == written(page, tmp_path / "page")
