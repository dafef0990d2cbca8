"""The official Node SDKs against the proxy: recorded each way, replayed each way, one answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, serving
from test_sdk_replay import KEY, POLICY, plain

from trivet.policies.keygen import key_hash

FOLDER = Path(__file__).parent / "node"
INSTALLED = shutil.which("node") is not None and (FOLDER / "node_modules" / "openai").exists()

pytestmark = pytest.mark.skipif(
    not INSTALLED and not os.environ.get("CI"),
    reason="needs Node.js and `npm install` in tests/integration/node (make test does it)",
)

USER = [{"role": "user", "content": "hello \U0001f469\u200d\U0001f680 \u2028 data: [DONE]"}]
CALLS = [{"role": "user", "content": "please call a tool"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "parameters": WEATHER}
SCENARIOS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": ("chat", {"messages": USER}, ""),
    "chat tools": (
        "chat",
        {"messages": CALLS, "tools": [{"type": "function", "function": FUNCTION}]},
        "",
    ),
    "chat choices": ("chat", {"messages": USER, "n": 3}, ""),
    "chat refusal": ("chat", {"messages": USER}, "refusal"),
    "responses": ("responses", {"input": "hello"}, ""),
    "responses tools": (
        "responses",
        {
            "input": "please call a tool",
            "tools": [{"type": "function", "strict": False, **FUNCTION}],
            "store": False,
        },
        "",
    ),
    "messages": ("messages", {"messages": USER, "max_tokens": 2048}, ""),
    "messages tools": (
        "messages",
        {
            "messages": CALLS,
            "max_tokens": 2048,
            "tools": [{"name": "weather", "input_schema": WEATHER}],
        },
        "",
    ),
    "messages thinking": (
        "messages",
        {
            "messages": USER,
            "max_tokens": 2048,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        "",
    ),
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder: Path = tmp_path_factory.mktemp("node-policies")
    (folder / "sdk.yaml").write_text(POLICY.format(digest=key_hash(KEY)))
    with serving(None, "--policies", str(folder)) as running:
        yield running


def ask(base: str, cases: list[dict[str, Any]]) -> list[Any]:
    done = subprocess.run(
        ["node", "ask.mjs"],
        input=json.dumps({"base": base, "key": KEY, "cases": cases}),
        capture_output=True,
        text=True,
        cwd=FOLDER,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def upstream_of(proxy: Proxy) -> str:
    command = proxy.process.args
    assert isinstance(command, list)
    return str(command[command.index("--upstream") + 1])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_replay_is_the_answer_that_was_recorded(proxy: Proxy, scenario: str) -> None:
    api, options, mock = SCENARIOS[scenario]
    cases = [
        {
            "name": f"{recorded} {replayed}",
            "api": api,
            "stream": stream == "stream",
            "mock": mock,
            "options": {
                "model": "mock",
                "temperature": 0,
                "x_case": f"node {scenario} {recorded} {replayed}",
                **options,
            },
        }
        for recorded in ("json", "stream")
        for replayed in ("json", "stream")
        for stream in (recorded, replayed)
    ]
    truths = ask(upstream_of(proxy), cases[1::2])
    assert proxy.mock is not None
    proxy.mock.calls.reset()
    replays = ask(proxy.url, cases)[1::2]
    assert proxy.mock.calls.total == 4, "a second request was not a hit"
    assert [plain(replay) for replay in replays] == [plain(truth) for truth in truths]


def test_embeddings_come_back_as_the_sdk_asked_for_them(proxy: Proxy) -> None:
    def case(texts: list[str], encoding: str | None) -> dict[str, Any]:
        options: dict[str, Any] = {"model": "mock", "input": texts, "dimensions": 8}
        if encoding is not None:
            options["encoding_format"] = encoding
        return {"name": "", "api": "embeddings", "stream": False, "mock": "", "options": options}

    cases = [case(["a", "b"], None), case(["c", "b", "a"], "float"), case(["a", "c"], None)]
    truths = ask(upstream_of(proxy), cases)
    assert proxy.mock is not None
    proxy.mock.calls.reset()
    answers = ask(proxy.url, cases)
    assert proxy.mock.calls.total == 2
    for answer, truth in zip(answers, truths, strict=True):
        assert [item["index"] for item in answer["data"]] == list(range(len(truth["data"])))
        vectors = [[item["embedding"] for item in one["data"]] for one in (answer, truth)]
        assert vectors[0] == vectors[1]
