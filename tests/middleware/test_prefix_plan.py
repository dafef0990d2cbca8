"""`trivet prefix plan`, as it is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from traffic_parts import SECRET, call_of

from bench.agent_trace import Shape, chat_body, trace
from trivet.cli import main
from trivet.messages import Usage
from trivet.middleware.prefix_tier.prompt_record import PromptRecorder
from trivet.middleware.traffic.line import Ended, line_of
from trivet.policies.model import TenantPolicy
from trivet.policies.traffic import write_line

OWNER = TenantPolicy.model_validate({"tenant": "t1", "prefix": {"record": True}})


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["prefix", "plan", *map(str, words)])


def log(folder: Path, requests: list[tuple[float, dict[str, Any]]]) -> Path:
    recorder = PromptRecorder(SECRET)
    rows = []
    for at, body in requests:
        call = call_of(owner=OWNER, **body)
        call.note.usage = Usage(len(json.dumps(body)) // 4, 10)
        rows.append(line_of(call, Ended(at, None, 0.01), SECRET, recorder))
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(map(write_line, rows)))
    return path


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = trace(Shape(steps=14, handed=1))
    folder = tmp_path_factory.mktemp("agent")
    return log(folder, [(one.at, chat_body(one.body, "gpt-6-astra")) for one in asked])


@pytest.mark.parametrize("provider", ["anthropic", "openai", "bedrock", "gemini", "deepseek"])
def test_every_way_is_compared_and_the_best_comes_first(agent: Path, provider: str) -> None:
    found = run(agent, "--provider", provider, "--json")
    assert found.exit_code == 0, found.output
    made = json.loads(found.stdout)
    costs = [way["relative_cost"] for way in made["ways"]]
    assert costs == sorted(costs)
    assert made["best"] == made["ways"][0]["name"]
    assert made["worth_it"]
    for way in made["ways"]:
        tokens = way["uncached_tokens"] + way["read_tokens"] + sum(way["written_tokens"].values())
        assert tokens == pytest.approx(made["input_tokens"], abs=5)
        assert way["refused"] == 0


def test_an_agents_trace_is_best_marked_by_trivet(agent: Path) -> None:
    made = json.loads(run(agent, "--provider", "anthropic", "--json").stdout)
    assert made["best"].startswith("Trivet")
    names = [way["name"] for way in made["ways"]]
    assert names[-1] == "no breakpoints"
    assert {"automatic mode alone", "the system prompt only"} <= set(names)
    assert made["saved_share"] > 0.6
    assert [one["request"] for one in made["models"][0]["lifetimes"]] == [2, 3]


def test_the_arithmetic_is_shown(agent: Path) -> None:
    text = run(agent, "--provider", "anthropic").stdout
    assert "read x 0.1 + " in text
    assert re.search(r"written x (1.25 \(5m\)|2 \(1h\))", text)
    assert "1.25 + 1 x 0.1 = 1.35 < 2" in text
    assert "2 + 2 x 0.1 = 2.2 < 3" in text


def asked(at: int, model: str, **more: Any) -> tuple[float, dict[str, Any]]:
    system = {"role": "system", "content": f"{model} answers shortly. " * 900}
    return 60.0 * at, {
        "model": model,
        "messages": [system, {"role": "user", "content": f"n {at}"}],
        **more,
    }


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ("claude-sonnet-4-5", "claude-opus-5-5")
    requests = [asked(at, names[at % 2]) for at in range(12)]
    return log(tmp_path_factory.mktemp("two"), requests)


def test_each_models_arithmetic_adds_up(two_models: Path) -> None:
    text = run(two_models, "--provider", "anthropic").stdout
    for model, read in (("claude-sonnet-4-5", 0.1), ("claude-opus-5-5", 0.05)):
        (line,) = re.findall(rf"^  {model}: (.*)$", text, re.MULTILINE)
        sums, cost = line.replace(",", "").split(" = ")
        assert f"read x {read:g}" in sums
        terms = re.findall(r"(\d+) (?:uncached|(?:read|written) x ([\d.]+))", sums)
        assert sum(int(n) * float(weight or 1) for n, weight in terms) == pytest.approx(
            int(cost), abs=3
        )
        assert f"Lifetimes of {model}:" in text
    assert "1.25 + 1 x 0.05 = 1.3 < 2" in text
    one, other, whole = re.findall(r"^  ([\d,]+) \+ ([\d,]+) = ([\d,]+), against", text, re.M)[0]
    one, other, whole = (int(value.replace(",", "")) for value in (one, other, whole))
    assert one + other == pytest.approx(whole, abs=1)


def test_the_json_has_the_multipliers_of_each_model(two_models: Path) -> None:
    made = json.loads(run(two_models, "--provider", "anthropic", "--json").stdout)
    assert [(one["models"], one["read_multiplier"]) for one in made["models"]] == [
        (["claude-sonnet-4-5"], 0.1),
        (["claude-opus-5-5"], 0.05),
    ]
    best = made["ways"][0]
    assert sum(one["read_tokens"] for one in best["by_models"]) == pytest.approx(
        best["read_tokens"], abs=1
    )


def test_of_ways_that_cost_the_same_what_trivet_does_is_best(tmp_path: Path) -> None:
    # OpenAI writes the end of the latest message unasked, and reads it of the same prompt again.
    body = asked(0, "gpt-6-astra")[1]
    path = log(tmp_path, [(float(at), body) for at in range(6)])
    text = run(path, "--provider", "openai").stdout
    made = json.loads(run(path, "--provider", "openai", "--json").stdout)
    costs = {way["name"]: way["relative_cost"] for way in made["ways"]}
    assert costs["no breakpoints"] == costs[made["best"]]
    assert made["best"] == "Trivet, lifetimes by the gaps"
    assert "mark: never" not in text


@pytest.mark.parametrize("provider", ["gemini", "deepseek"])
def test_a_provider_without_breakpoints_gets_no_advice(two_models: Path, provider: str) -> None:
    text = run(two_models, "--provider", provider).stdout
    assert "mark: never" not in text
    assert "Lifetimes" not in text
    assert f"{provider} takes no breakpoints" in text


def test_questions_that_share_nothing_are_not_worth_it(tmp_path: Path) -> None:
    requests = [
        (60.0 * n, {"model": "m", "messages": [{"role": "user", "content": f"{n} " * 3_000}]})
        for n in range(8)
    ]
    path = log(tmp_path, requests)
    made = json.loads(run(path, "--provider", "anthropic", "--json").stdout)
    assert not made["worth_it"]
    assert "Not worth it" in run(path, "--provider", "anthropic").stdout


def test_the_calls_can_be_those_of_one_model_route_and_tenant(two_models: Path) -> None:
    def calls(*only: str) -> int:
        found = run(two_models, "--provider", "anthropic", "--json", *only)
        return int(json.loads(found.stdout)["calls"])

    assert calls() == 12
    assert calls("--model", "claude-opus-5-5") == 6
    assert calls("--tenant", "t1", "--route", "chat") == 12
    found = run(two_models, "--provider", "anthropic", "--tenant", "t2")
    assert found.exit_code == 2
    assert "no call of that" in found.output


def test_the_setting_of_the_best_way_is_named(tmp_path: Path) -> None:
    # Asked again every two minutes, and for the last time: the hour is never worth its price.
    path = log(tmp_path, [asked(2 * at, "claude-sonnet-4-5") for at in range(6)])
    made = json.loads(run(path, "--provider", "anthropic", "--json").stdout)
    text = run(path, "--provider", "anthropic").stdout
    settings = {
        "Trivet, lifetimes by the gaps": "prefix.ttl auto",
        "Trivet, the shorter lifetime": "Policy: prefix: {ttl: 5m}.",
        "Trivet, the longer lifetime": "Policy: prefix: {ttl: 1h}.",
        "the system prompt only": "Policy: prefix: {mark: [system]}.",
    }
    assert settings[made["best"]] in text
    assert "0% come again" not in run(path, "--provider", "openai").stdout


def test_an_empty_log_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"")
    found = run(path, "--provider", "anthropic")
    assert found.exit_code == 0
    assert "No call" in found.stdout
    assert not json.loads(run(path, "--provider", "openai", "--json").stdout)["worth_it"]


def test_a_provider_has_to_be_named(agent: Path) -> None:
    assert run(agent).exit_code == 2
