"""`trivet prefix lint` and `trivet prefix report`, as they are run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from traffic_parts import SECRET, call_of

from trivet.cli import main
from trivet.messages import Api, Usage
from trivet.middleware.prefix_commands.log import read_log
from trivet.middleware.prefix_commands.report import report
from trivet.middleware.prefix_commands.report_text import render
from trivet.middleware.prefix_tier.prompt_record import PromptRecorder
from trivet.middleware.prefix_tier.tier import Sent
from trivet.middleware.traffic.line import Ended, line_of
from trivet.policies.model import TenantPolicy
from trivet.policies.traffic import Traffic, write_line
from trivet.prefix.prompts.outline import outline_of

RULES = "Answer in the language of the question, in short sentences. " * 120
OWNER = TenantPolicy.model_validate({"tenant": "t1", "prefix": {"record": True}})


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["prefix", *map(str, words)])


def body(system: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "model": "claude-sonnet-5",
        "max_tokens": 9,
        "system": system,
        "messages": messages,
        **more,
    }


def file(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


class TestLint:
    def test_it_says_where_and_why_two_requests_part(self, tmp_path: Path) -> None:
        files = [file(tmp_path, f"{at}.json", body(f"It is 15:09:2{at}. {RULES}")) for at in (0, 1)]
        found = run("lint", *files, "--json")
        assert found.exit_code == 1
        told = json.loads(found.stdout)
        assert told["where"] == {
            "level": "system",
            "place": ["system"],
            "char": 13,
            "shown": "system, character 13",
        }
        assert (told["cause"], told["shared_tokens"], told["ok"]) == ("timestamp", 3, False)
        assert told["fix"]

    def test_requests_that_share_enough_are_fine(self, tmp_path: Path) -> None:
        files = [file(tmp_path, f"{text}.json", body(RULES, text)) for text in ("hi", "ho")]
        found = run("lint", *files)
        assert found.exit_code == 0
        assert "the newest message is another one" in found.stdout
        assert run("lint", *files, "--at-least", "9000").exit_code == 1

    def test_l9_a_prefix_below_the_models_minimum_is_noted(self, tmp_path: Path) -> None:
        files = [file(tmp_path, f"{text}.json", body("word " * 720, text)) for text in ("a", "b")]
        told = json.loads(run("lint", *files, "--json").stdout)
        assert [one["cause"] for one in told["notes"]] == ["below-minimum"]

    def test_a_break_below_the_models_minimum_is_noted_with_what_it_loses(
        self, tmp_path: Path
    ) -> None:
        intro = "Be polite to all who ask. " * 100
        model = {"model": "claude-opus-4-5"}
        files = [
            file(tmp_path, f"{at}.json", body(f"{intro} It is 15:09:2{at}. {RULES}", **model))
            for at in (0, 1)
        ]
        told = json.loads(run("lint", *files, "--json").stdout)
        assert (told["cause"], told["notes"][0]["cause"]) == ("timestamp", "below-minimum")
        assert told["lost_tokens"] > 1_700
        text = run("lint", *files).stdout
        assert f"Lost by it: about {told['lost_tokens']:,} tokens" in text
        assert "below the minimum of 4,096 (below-minimum)" in text

    def test_unless_told_the_models_minimum_has_to_be_shared(self, tmp_path: Path) -> None:
        def files(model: str) -> list[Path]:
            made = [body(f"{RULES} It is 15:09:2{at}.", model=model) for at in (0, 1)]
            return [file(tmp_path, f"{model}-{at}.json", one) for at, one in enumerate(made)]

        assert run("lint", *files("claude-sonnet-5")).exit_code == 0
        found = run("lint", *files("claude-opus-4-5"))
        assert found.exit_code == 1
        assert "4,096 (--at-least)" in found.stdout
        assert run("lint", *files("claude-opus-4-5"), "--at-least", "1000").exit_code == 0

    def test_what_passes_says_by_which_figures(self, tmp_path: Path) -> None:
        made = [body(f"{RULES} It is 15:09:2{at}. {RULES}") for at in (0, 1)]
        files = [file(tmp_path, f"{at}.json", one) for at, one in enumerate(made)]
        told = json.loads(run("lint", *files, "--json").stdout)
        shared, lost = told["shared_tokens"], told["lost_tokens"]
        found = run("lint", *files, "--max-lost", str(lost))
        assert found.exit_code == 0
        verdict = f"{shared:,} shared >= 1,024 (--at-least), {lost:,} lost"
        assert f"  passes: {verdict} <= {lost:,} (--max-lost)\n" in found.stdout
        found = run("lint", *files, "--max-lost", str(lost - 1))
        assert found.exit_code == 1
        assert f"  fails: {verdict} > {lost - 1:,} (--max-lost)\n" in found.stdout

    def test_no_more_is_lost_than_the_prompt_has(self, tmp_path: Path) -> None:
        tools = [
            {"name": f"tool_{at}", "description": "Looks something up. " * 40, "input_schema": {}}
            for at in range(8)
        ]
        made = [body(RULES, tools=order) for order in (tools, tools[::-1])]
        files = [file(tmp_path, f"{at}.json", one) for at, one in enumerate(made)]
        told = json.loads(run("lint", *files, "--json").stdout)
        assert told["cause"] == "tools-reordered"
        whole = outline_of(Api.MESSAGES, made[1]).tokens
        assert 0 < told["lost_tokens"] <= whole - told["shared_tokens"]

    def test_more_blocks_than_a_breakpoint_looks_back_are_noted(self, tmp_path: Path) -> None:
        def marked(count: int) -> dict[str, Any]:
            blocks = [{"type": "text", "text": f"block {n}"} for n in range(count)]
            last = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
            message = {"role": "user", "content": [*blocks[:-1], last]}
            return body(RULES, messages=[message])

        files = [file(tmp_path, f"{n}.json", marked(n)) for n in (1, 22)]
        told = json.loads(run("lint", *files, "--json").stdout)
        assert told["where"] is None
        assert [one["detail"] for one in told["notes"]] == [
            "21 blocks since the last breakpoint: one looks back 20"
        ]

    def test_three_files_are_two_pairs(self, tmp_path: Path) -> None:
        files = [file(tmp_path, f"{text}.json", body(RULES, text)) for text in "abc"]
        assert len(json.loads(run("lint", *files, "--json").stdout)["pairs"]) == 2

    def test_one_file_is_looked_through_for_a_clock(self, tmp_path: Path) -> None:
        volatile = file(tmp_path, "a.json", body(f"It is 15:09:20. {RULES}"))
        found = run("lint", volatile, "--json")
        assert found.exit_code == 1
        (warned,) = json.loads(found.stdout)["warnings"]
        assert (warned["kind"], warned["text"]) == ("timestamp", "15:09:20")
        assert run("lint", file(tmp_path, "b.json", body(RULES))).exit_code == 0

    def test_one_file_says_whether_it_passes(self, tmp_path: Path) -> None:
        late = file(tmp_path, "a.json", body(f"{RULES} It is 15:09:20."))
        found = run("lint", late)
        assert found.exit_code == 0
        assert "passes: none of it within the first 1,024 tokens (--at-least)" in found.stdout
        assert "fails: some of it" in run("lint", late, "--at-least", "9000").stdout
        assert run("lint", late, "--max-lost", "9").exit_code == 2

    @pytest.mark.parametrize(
        ("native", "place"),
        [
            ({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}, "parts"),
            ({"inferenceConfig": {}, "messages": [{"role": "user", "content": [{"text": "hi"}]}]},
             "content"),
        ],
    )  # fmt: skip
    def test_native_bodies_are_read_too(
        self, tmp_path: Path, native: dict[str, Any], place: str
    ) -> None:
        first = file(tmp_path, "a.json", native)
        second = file(tmp_path, "b.json", json.loads(json.dumps(native).replace("hi", "ho")))
        told = json.loads(run("lint", first, second, "--json").stdout)
        assert place in told["where"]["place"]
        assert told["where"]["char"] == 1

    def test_what_is_no_request_is_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text("{")
        found = run("lint", path)
        assert found.exit_code == 2
        assert "a.json" in found.output
        assert run("lint", tmp_path / "absent.json").exit_code == 2


def row(at: float, recorder: PromptRecorder, system: str, usage: Usage) -> Traffic:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"n {at}"}]
    call = call_of(owner=OWNER, messages=messages)
    call.note.usage = usage
    return line_of(call, Ended(at, None, 0.01), SECRET, recorder)


def log(folder: Path, *systems: str, read: int = 0) -> Path:
    recorder = PromptRecorder(SECRET)
    rows = [
        row(float(at), recorder, system, Usage(2_000, 10, read if at else 0))
        for at, system in enumerate(systems)
    ]
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(map(write_line, rows)))
    return path


def marked_log(folder: Path, provider: str, model: str) -> Path:
    """Calls whose messages are strings, sent with a breakpoint on the block of each question."""
    recorder = PromptRecorder(SECRET)
    name = "prompt_cache_breakpoint" if provider == "openai" else "cache_control"
    rows = []
    for at in range(4):
        turns = [("user", f"{RULES} first"), ("assistant", "yes"), ("user", "and then?")]
        messages = [{"role": role, "content": text} for role, text in turns[: 1 + 2 * (at > 1)]]
        system = {"role": "system", "content": RULES}
        call = call_of(owner=OWNER, model=model, messages=[system, *messages])
        upstream = call.upstream.model_copy(update={"cache": provider})
        block = {"type": "text", "text": messages[-1]["content"], name: {"type": "ephemeral"}}
        wrapped = [system, *messages[:-1], {**messages[-1], "content": [block]}]
        sent = Sent(json.dumps({"model": model, "messages": wrapped}).encode(), [])
        call = replace(call, upstream=upstream, sent=sent)
        call.note.usage = Usage(4_000, 10)
        rows.append(line_of(call, Ended(float(at), None, 0.01), SECRET, recorder))
    path = folder / "log.jsonl"
    path.write_bytes(b"".join(map(write_line, rows)))
    return path


class TestReport:
    def test_it_tells_the_share_that_was_read_and_what_it_cost(self, tmp_path: Path) -> None:
        path = log(tmp_path, RULES, RULES, RULES, RULES, read=1_500)
        made = report(read_log([path]), lambda model, upstream, tokens: 1e-6).data()
        (route,) = made["routes"]
        assert (route["tenant"], route["route"], route["calls"]) == ("t1", "chat", 4)
        assert route["hit_rate"] == 4_500 / 8_000
        assert route["cost_without_cache"]["usd"] == 0.008
        assert made["worst"] == []

    def test_what_was_written_for_an_hour_is_billed_as_such(self, tmp_path: Path) -> None:
        call = call_of(owner=OWNER, model="claude-sonnet-5")
        call.note.usage = Usage(4_000, 10, 1_000, 3_000, 1_000)
        line = line_of(call, Ended(1.0, None, 0.01), SECRET, PromptRecorder(SECRET))
        path = tmp_path / "log.jsonl"
        path.write_bytes(write_line(line))
        (route,) = report(read_log([path]), lambda model, upstream, tokens: 1e-6).data()["routes"]
        # 1,000 read x 0.1, 2,000 written x 1.25, 1,000 for an hour x 2.
        assert route["cost"]["relative_cost"] == 4_600 / 4_000

    def test_each_providers_rules_are_played(self, tmp_path: Path) -> None:
        path = log(tmp_path, *[RULES] * 4)
        made = report(read_log([path]), lambda model, upstream, tokens: 1e-6).data()
        under = made["routes"][0]["cost_under"]
        assert set(under) == {"anthropic", "openai", "gemini", "bedrock", "deepseek"}
        # One write at 1.25, three reads at 0.1, and the question each time.
        assert 0.38 < under["anthropic"]["relative_cost"] < 0.42
        assert under["anthropic"]["read_tokens"] > 5_000
        assert under["gemini"]["relative_cost"] == 1.0  # below the minimum of 4,096

    @pytest.mark.parametrize("provider", ["anthropic", "openai", "bedrock"])
    def test_nothing_is_refused_for_breakpoints_that_trivet_set_on_strings(
        self, tmp_path: Path, provider: str
    ) -> None:
        models = {"anthropic": "claude-sonnet-5", "openai": "gpt-6-astra",
                  "bedrock": "us.anthropic.claude-sonnet-5"}  # fmt: skip
        path = marked_log(tmp_path, provider, models[provider])
        (route,) = report(read_log([path]), lambda model, upstream, tokens: None).data()["routes"]
        assert {one["refused"] for one in route["cost_under"].values()} == {0}
        made = json.loads(run("plan", path, "--provider", provider, "--json").stdout)
        assert {way["name"]: way["refused"] for way in made["ways"]}[
            "the breakpoints that were sent"
        ] == 0

    def test_the_worst_break_is_told_with_its_fix_and_what_it_saves(self, tmp_path: Path) -> None:
        systems = [f"It is 15:09:{second}. {RULES}" for second in range(10, 30)]
        made = report(
            read_log([log(tmp_path, *systems)]), lambda model, upstream, tokens: 1e-6
        ).data()
        (worst,) = made["worst"]
        assert (worst["cause"], worst["times"]) == ("timestamp", 19)
        assert worst["place"] == "system (messages[0]), character 6"
        assert worst["lost_tokens"] > 19 * 1_800
        # By the model's name it is taken for OpenAI's, which reads at a tenth of the price.
        assert worst["saving_usd"] == pytest.approx(worst["lost_tokens"] * 0.9e-6)

    def test_a_prompt_below_the_minimum_promises_no_saving(self, tmp_path: Path) -> None:
        path = log(tmp_path, *["Be brief. " * 200] * 3)
        made = report(read_log([path]), lambda model, upstream, tokens: 1e-6)
        (worst,) = made.worst
        assert (worst.cause, worst.saving_usd) == ("below-minimum", None)
        text = render(made)
        assert "a fix saves" not in text
        assert "too short for the cache" in text

    def test_why_a_provider_reads_nothing_is_said(self, tmp_path: Path) -> None:
        path = log(tmp_path, *[RULES] * 4)
        made = report(read_log([path]), lambda model, upstream, tokens: 1e-6)
        assert made.data()["routes"][0]["cost_under"]["gemini"]["unread"] == {"below-minimum": 4}
        text = render(made)
        assert "gemini reads nothing: 4 calls below the minimum of 4,096 tokens." in text
        assert "anthropic reads nothing" not in text

    def test_calls_without_a_price_are_told(self, tmp_path: Path) -> None:
        path = log(tmp_path, *[RULES] * 4)
        made = report(read_log([path]), lambda model, upstream, tokens: None)
        assert "4 calls are not in USD: their model's price is not known." in render(made)

    @pytest.mark.parametrize(
        ("model", "million"),
        [("claude-sonnet-4-5", 3.0), ("gpt-5.4", 2.5), ("gemini-2.5-pro", 1.25)],
    )
    def test_a_call_is_priced_by_its_own_length(
        self, tmp_path: Path, model: str, million: float
    ) -> None:
        rows = [json.loads(line) for line in log(tmp_path, RULES, RULES).read_bytes().splitlines()]
        for row in rows:
            row["model"] = model
        path = tmp_path / "priced.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        usd = 4_000 * million / 1e6
        (route,) = json.loads(run("report", path, "--json").stdout)["routes"]
        assert route["cost_without_cache"]["usd"] == pytest.approx(usd)
        planned = run("plan", path, "--provider", "anthropic", "--json")
        assert json.loads(planned.stdout)["usd_uncached"] == pytest.approx(usd)

    def test_it_runs_as_a_command(self, tmp_path: Path) -> None:
        path = log(tmp_path, f"It is 15:09:20. {RULES}", f"It is 15:09:21. {RULES}")
        told = json.loads(run("report", path, "--json").stdout)
        assert told["causes"] == {"timestamp": 1}
        text = run("report", path).stdout
        assert "a timestamp (timestamp)" in text
        assert "as billed" in text

    def test_a_log_without_shapes_is_told_so(self, tmp_path: Path) -> None:
        path = log(tmp_path, RULES)
        value = {**json.loads(path.read_bytes()), "prompt": None}
        path.write_text(json.dumps(value) + "\n" + "half a li")
        found = run("report", path)
        assert found.exit_code == 0
        assert "1 calls have no shape" in found.stdout

    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_request_is_told_to_be_no_log(self, tmp_path: Path, indent: int | None) -> None:
        path = tmp_path / "request.json"
        path.write_text(json.dumps(body(RULES), indent=indent))
        found = run("report", path)
        assert found.exit_code == 2
        assert "this is no traffic log" in found.output

    def test_what_is_no_log_is_refused_by_line(self, tmp_path: Path) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text("{}\n")
        found = run("report", path)
        assert found.exit_code == 2
        assert "x.jsonl:1" in found.output


STEERS = "\x1b[2J\x9b31m\nforged: \u202e"


class TestHostileWords:
    @pytest.fixture
    def hostile(self, tmp_path: Path) -> Path:
        path = log(tmp_path, *(f"It is 15:09:2{at}. {RULES}" for at in range(4)))
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        for row in rows:
            row["tenant"] = row["model"] = row["prompt"]["route"] = f"a{STEERS}b"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    @pytest.mark.parametrize("words", [["report"], ["plan", "--provider", "anthropic"]])
    def test_names_in_a_log_neither_steer_the_terminal_nor_forge_a_line(
        self, hostile: Path, words: list[str]
    ) -> None:
        found = run(*words, hostile)
        assert found.exit_code == 0
        assert all(line.isprintable() for line in found.output.split("\n"))
        assert not re.search("^forged", found.output, re.MULTILINE)
        assert (r"a\x1b[2J\x9b31m\nforged: \u202eb" in found.output) is (words == ["report"])

    @pytest.mark.parametrize("words", [["report"], ["plan", "--provider", "anthropic"]])
    def test_a_finding_in_such_a_log_is_as_plain(self, hostile: Path, words: list[str]) -> None:
        rows = hostile.read_text().replace('"prompt"', json.dumps(STEERS))
        hostile.write_text(rows)
        found = run(*words, hostile)
        assert found.exit_code == 2
        assert all(line.isprintable() for line in found.output.split("\n"))

    def test_names_in_a_request_do_neither(self, tmp_path: Path) -> None:
        def tools(last: str) -> list[dict[str, Any]]:
            given = {"type": "object", "properties": {f"a{STEERS}b": {"description": last}}}
            return [{"name": f"c{STEERS}d", "input_schema": given}]

        files = [file(tmp_path, f"{at}.json", body(RULES, tools=tools(at))) for at in ("x", "y")]
        found = run("lint", *files)
        assert all(line.isprintable() for line in found.output.split("\n"))
        assert not re.search("^forged", found.output, re.MULTILINE)
        assert r"\x1b" in found.output
