"""The examples, and the snippets of docs/library.md, as they stand, against the mock upstream."""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # LiteLLM fetches prices when it is imported.

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "library.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
CALLS = {
    "anthropic_client": 1,
    "fastapi_app": 0,
    "langchain_cache": 2,
    "litellm_cache": 1,
    "openai_agents": 1,
    "openai_client": 1,
    "pydantic_ai_agent": 1,
}
"""How often each example asks the upstream: a second time would be a cache that does nothing."""

# Pydantic warns of types of LiteLLM's when those are first looked at.
pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly.*:UserWarning")


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, MockUpstream]]:
    with running() as up:
        yield up


@pytest.fixture(autouse=True)
def _environment(
    upstream: tuple[str, MockUpstream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_BASE_URL", upstream[0] + "/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", upstream[0])
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")


def test_every_example_is_run() -> None:
    demo = {"demo", "run_demo"}  # `make demo` is these two.
    assert {file.stem for file in EXAMPLES.glob("*.py")} - demo == set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_an_example_asks_the_upstream_as_often_as_it_has_to(
    name: str, upstream: tuple[str, MockUpstream], capsys: pytest.CaptureFixture[str]
) -> None:
    before = upstream[1].calls.total
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert upstream[1].calls.total - before == CALLS[name]
    assert capsys.readouterr().out


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_page_runs_as_it_stands(number: int) -> None:
    exec(compile(SNIPPETS[number], f"docs/library.md, snippet {number + 1}", "exec"), {})
