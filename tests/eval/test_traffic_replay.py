"""Replay: the real tiers in order of time, nothing of the future, and what it comes to."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_rows import Letters, answer, calibration, chain, policy, row, write

from trivet.cli import main
from trivet.errors import ConfigError, EmbedderError
from trivet.eval import chains
from trivet.eval.memo import Memo
from trivet.eval.remembered import remembered
from trivet.eval.replay import How, replay
from trivet.eval.replay_result import Figures, Played, Tally
from trivet.eval.traffic_files import open_traffic
from trivet.policies.semantic_model import Quarantine
from trivet.policies.traffic import Traffic, write_line
from trivet.semantic.chain import Chain

pytestmark = pytest.mark.filterwarnings("error")


async def play(
    rows: Iterable[Traffic], how: How | None = None, of: Chain | None = None, **given: Any
) -> list[Played]:
    """Play with the chain of the builders; `given` is for its policy."""
    of = of or chain()
    memo = Memo(None, "")
    models = remembered(of, memo)
    try:
        found = replay(rows, how or How(policy(of, **given)), models)
        return [one async for one in found]
    finally:
        memo.close()


async def exactly(rows: Iterable[Traffic], how: How | None = None) -> list[str]:
    """What the exact tier alone makes of each."""
    how = how or How(policy(chain()))
    return [one.exact async for one in replay(rows, how, None)]


def told(played: Sequence[Played]) -> list[str]:
    return [
        "exact" if one.exact == "hit" else one.semantic_reason or one.semantic or one.exact
        for one in played
    ]


class TestExact:
    async def test_a_repeated_request_hits_once_the_first_has_ended(self) -> None:
        rows = [row(0, "a"), row(1, "a"), row(2, "a"), row(3, "b")]
        assert await exactly(rows) == ["miss", "collapsed", "hit", "miss"]

    async def test_lifetimes_are_kept_by_the_clock_of_the_log(self) -> None:
        rows = [row(at, "a", exact={"ttl": 100.0}) for at in (0, 99.9, 100, 199.9, 200.1)]
        assert await exactly(rows) == ["miss", "hit", "miss", "hit", "miss"]
        how = How(policy(chain()), ttl=10.0)
        assert await exactly(rows, how) == ["miss", "miss", "collapsed", "miss", "collapsed"]

    async def test_nothing_crosses_a_tenant(self) -> None:
        rows = [row(0, "a", "t1", key="1" * 64), row(9, "a", "t2", key="1" * 64)]
        assert await exactly(rows) == ["miss", "miss"]

    async def test_what_is_not_stored_is_not_found(self) -> None:
        failed = answer(reason="status-429")
        rows = [row(0, "a", answer=failed), row(1, "a"), row(9, "a", exact={"store": False})]
        assert await exactly(rows) == ["miss", "miss", "hit"]
        assert await exactly([row(0, "a", exact={"store": False}), row(9, "a")]) == ["miss"] * 2

    async def test_a_bypass_neither_finds_nor_stores(self) -> None:
        rows = [row(0, "a", exact={"reason": "sampled"}), row(9, "a"), row(19, "a")]
        rows.append(row(29, "a", exact={"reason": "sampled"}))
        assert await exactly(rows) == ["bypass", "miss", "hit", "bypass"]

    async def test_no_cache_stores_and_does_not_look(self) -> None:
        rows = [row(0, "a", exact={"reason": "no-cache"}), row(9, "a")]
        rows.append(row(19, "a", exact={"reason": "no-cache"}))
        assert await exactly(rows) == ["miss", "hit", "miss"]

    async def test_a_callers_bounds_on_age_hold(self) -> None:
        rows = [row(0, "a"), row(50, "a", exact={"max_age": 10.0})]
        rows.append(row(60, "a", exact={"min_fresh": 3600.0}))
        assert await exactly(rows) == ["miss"] * 3

    async def test_a_pool_is_filled_before_it_answers(self) -> None:
        rows = [row(10.0 * at, "a", exact={"pool": 2}) for at in range(4)]
        assert await exactly(rows) == ["miss", "miss", "hit", "hit"]

    async def test_a_small_store_forgets(self) -> None:
        rows = [row(10.0 * at, text) for at, text in enumerate(["a", "b", "a"])]
        assert await exactly(rows) == ["miss", "miss", "hit"]
        how = How(policy(chain()), capacity=1)
        assert await exactly(rows, how) == ["miss", "miss", "miss"]


class TestSemantic:
    async def test_a_similar_question_gets_the_earlier_answer(self) -> None:
        played = await play([row(0, "aab"), row(9, "aba"), row(19, "aba"), row(29, "bbbc")])
        assert told(played) == ["no-neighbour", "hit", "hit", "below-threshold"]
        assert played[1].saved == played[0].row.answer
        assert played[1].intent == "informational"

    async def test_an_answer_is_there_only_once_its_request_has_ended(self) -> None:
        played = await play([row(0, "aab"), row(1.9, "aba"), row(2, "baa")])
        assert told(played) == ["no-neighbour", "no-neighbour", "hit"]

    async def test_other_partitions_and_tenants_are_not_compared(self) -> None:
        rows = [row(0, "ab"), row(9, "ba", rest="x"), row(19, "ba", "t2")]
        assert told(await play(rows)) == ["no-neighbour"] * 3

    async def test_an_answer_that_expired_answers_nothing(self) -> None:
        rows = [row(0, "ab", exact={"ttl": 5.0}), row(9, "ba")]
        assert told(await play(rows)) == ["no-neighbour", "no-neighbour"]
        rows = [row(0, "ab"), row(9, "ba"), row(109, "bab", rest="r")]
        played = await play(rows, ttl=100.0)
        assert [one.semantic for one in played] == ["miss", "hit", "miss"]

    async def test_an_answer_that_was_evicted_is_no_hit(self) -> None:
        rows = [row(0, "ab"), row(9, "cd", rest="x"), row(19, "ba")]
        played = await play(rows, How(policy(chain()), capacity=1))
        assert told(played)[2] == "no-neighbour"

    async def test_gate_rules_and_what_is_not_asked_are_reasons(self) -> None:
        rows = [
            row(0, "dd"),
            row(9, "ab"),
            row(19, "ba!"),
            row(29, "ba", unasked="tools"),
            row(39, None, named="x"),
            row(49, "ab", exact={"pool": 2}),
        ]
        played = await play(rows)
        assert told(played) == [
            "intent-action",
            "no-neighbour",
            "veto-mark",
            "tools",
            "redacted",
            "miss",
        ]
        assert [one.asked for one in played] == [True, True, True, False, False, False]

    async def test_answers_that_call_tools_and_writers_who_may_not_teach_nothing(self) -> None:
        rows = [row(0, "ab", answer=answer(None, plain=False)), row(9, "ba", may_write=False)]
        assert told(await play([*rows, row(19, "bab")])) == ["no-neighbour"] * 3

    async def test_without_a_calibration_nothing_is_served(self) -> None:
        of = chain()
        how = How(policy(of).model_copy())
        how.policy.attach(calibration(Chain("cosine", Letters())))
        played = await play([row(0, "ab"), row(9, "ba")], how, of)
        assert told(played) == ["no-neighbour", "other-chain"]
        assert played[1].semantic == "shadow"

    async def test_quarantine_holds_until_another_user_asks_the_same(self) -> None:
        rows = [row(9.0 * at, text, principal=f"{at:016x}") for at, text in enumerate(["ab"])]
        rows += [row(9.0 * at, "ba" + "ab" * at, principal=f"{at:016x}") for at in (1, 2)]
        held = Quarantine(users=2, answers=9)
        assert told(await play(rows, quarantine=held)) == ["no-neighbour", "quarantine", "hit"]
        agreeing = Quarantine(users=9, answers=2)
        assert told(await play(rows, quarantine=agreeing)) == ["no-neighbour", "quarantine", "hit"]
        rows[1] = rows[1].model_copy(update={"answer": answer("no")})
        assert told(await play(rows, quarantine=agreeing))[2] == "quarantine"

    async def test_served_answers_are_compared_with_fresh_ones(self) -> None:
        texts = ["Yes,  it IS.", "yes, it is.", "No.", None]
        rows = [
            row(9.0 * at, "ab" * (at + 1), answer=answer(text)) for at, text in enumerate(texts)
        ]
        played = await play(rows)
        assert [one.differs for one in played] == [None, False, True, None]

    async def test_an_answer_that_another_question_gave_is_taken_for_storable(self) -> None:
        served = answer(None, tier="semantic")
        played = await play([row(0, "ab", answer=served), row(9, "ab"), row(19, "ba")])
        assert told(played) == ["no-neighbour", "exact", "hit"]
        figures = Figures()
        for one in played:
            figures.add(one)
        assert figures.of("exact").as_json()["unknown_usage"] == 1
        assert figures.of("semantic").as_json()["usd"] == 0

    async def test_an_answer_that_was_assisted_is_taken_for_storable(self) -> None:
        assisted = answer(None, plain=False, reason="assisted", usage=None)
        played = await play([row(0, "ab", answer=assisted), row(9, "ab"), row(19, "ba")])
        assert told(played) == ["no-neighbour", "exact", "hit"]

    async def test_an_embedder_that_is_broken_ends_the_replay(self) -> None:
        of = chain()

        def embed(texts: Sequence[str]) -> Any:
            raise EmbedderError("endpoint", "gone")

        of.embedder.embed = embed  # type: ignore[method-assign]
        with pytest.raises(EmbedderError, match="gone"):
            await play([row(0, "ab")], of=of)

    async def test_a_text_that_the_embedder_refuses_is_a_miss(self) -> None:
        of = chain()
        usual = of.embedder.embed

        def embed(texts: Sequence[str]) -> Any:
            if "abba" in texts:
                raise EmbedderError("text", "no")
            return usual(texts)

        of.embedder.embed = embed  # type: ignore[method-assign]
        played = await play([row(0, "ab"), row(9, "abba"), row(19, "ba")], of=of)
        assert told(played) == ["no-neighbour", "embedder-text", "hit"]


@st.composite
def logs(draw: st.DrawFn) -> list[Traffic]:
    count = draw(st.integers(1, 25))
    at = 0.0
    made = []
    for _ in range(count):
        at += draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0]))
        text = draw(st.text("abcd", min_size=1, max_size=4))
        took = draw(st.sampled_from([0.0, 0.5, 2.0, 10.0]))
        made.append(
            row(
                at,
                text,
                draw(st.sampled_from(["t1", "t2"])),
                rest=draw(st.sampled_from(["r", "s"])),
                exact={"ttl": draw(st.sampled_from([1.0, 30.0, 3600.0]))},
                answer=answer(text, upstream_s=took),
            )
        )
    return made


@settings(deadline=None, max_examples=60)
@given(rows=logs(), cut=st.integers(0, 25))
async def test_what_comes_later_changes_nothing_of_what_came_before(
    rows: list[Traffic], cut: int
) -> None:
    assert await play(rows[:cut]) == (await play(rows))[:cut]


@settings(deadline=None, max_examples=60)
@given(rows=logs())
async def test_every_served_answer_ended_before_and_has_not_expired(rows: list[Traffic]) -> None:
    for one in await play(rows):
        if one.saved is None or one.exact == "collapsed":
            continue
        asked = one.row
        sources = [
            other
            for other in rows
            if other.answer == one.saved
            and other.tenant == asked.tenant
            and other.rest == asked.rest
            and other.at + other.answer.upstream_s <= asked.at < other.at + other.exact.ttl
        ]
        assert sources
        if one.exact == "hit":
            assert any(other.key == asked.key for other in sources)


class TestFiles:
    def test_rows_come_by_arrival_from_all_files(self, tmp_path: Path) -> None:
        one = write(tmp_path / "1", [row(5, "e"), row(1, "a"), row(3, "c")])
        other = write(tmp_path / "2", [row(3, "d"), row(2, "b")])
        files = open_traffic([one, other])
        assert [found.text for found in files] == ["a", "b", "c", "d", "e"]
        assert (len(files), files.texts) == (5, 5)

    def test_every_wrong_line_is_named(self, tmp_path: Path) -> None:
        path = write(tmp_path / "log", [row(1, "a")])
        path.write_bytes(path.read_bytes() + b"\nx\n{}\n")
        with pytest.raises(ConfigError) as caught:
            open_traffic([path, tmp_path / "none"])
        assert [(one.line, one.field) for one in caught.value.problems] == [
            (3, ""),
            (4, "format"),
            (0, ""),
        ]

    def test_a_line_that_is_being_written_is_left_out(self, tmp_path: Path) -> None:
        path = write(tmp_path / "log", [row(1, "a"), row(2, "b")])
        path.write_bytes(path.read_bytes()[:-9])
        files = open_traffic([path])
        assert [found.text for found in files] == ["a"]
        assert "cut off" in files.notes[0]

    def test_a_file_that_was_set_aside_meanwhile_is_told(self, tmp_path: Path) -> None:
        path = write(tmp_path / "log", [row(1, "a")])
        files = open_traffic([path])
        path.rename(tmp_path / "log.1")
        write(path, [row(2, "b")])
        with pytest.raises(ConfigError, match="set aside"):
            list(files)

    @pytest.mark.parametrize("line", ["{}", "no JSON", "[1]", '{"format": 2}'])
    def test_a_file_of_something_else_is_refused_in_one_sentence(
        self, tmp_path: Path, line: str
    ) -> None:
        path = tmp_path / "log"
        path.write_text(f"{line}\n" * 500)
        with pytest.raises(ConfigError) as caught:
            open_traffic([path])
        assert [one.message for one in caught.value.problems] == [
            "is no recorded traffic: no line of it is a JSON object with `format: 1`"
        ]

    def test_of_many_findings_five_are_told(self, tmp_path: Path) -> None:
        path = write(tmp_path / "log", [row(1, "a")])
        path.write_bytes(path.read_bytes() + b"{}\n" * 500)
        with pytest.raises(ConfigError) as caught:
            open_traffic([path])
        assert [one.line for one in caught.value.problems] == [2, 3, 4, 5, 6, 0]
        assert caught.value.problems[-1].message == "and maybe more"


class TestMemo:
    async def test_what_the_models_said_is_asked_once(self, tmp_path: Path) -> None:
        rows = [row(9.0 * at, "ab" * (at % 7 + 1) + "c" * (at % 3)) for at in range(200)]
        first, second = chain(), chain()
        found = []
        for of in (first, second):
            memo = Memo(tmp_path / "state", "f")
            how = How(policy(of))
            found.append([one async for one in replay(rows, how, remembered(of, memo))])
            memo.close()
        assert found[0] == found[1]
        assert (second.embedder.asked, second.gate.asked, second.verifier.asked) == ([], [], [])  # type: ignore[attr-defined,union-attr]
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600

    def test_the_state_of_another_chain_is_refused(self, tmp_path: Path) -> None:
        Memo(tmp_path / "state", "f").close()
        with pytest.raises(ConfigError, match="another chain"):
            Memo(tmp_path / "state", "g")

    def test_a_file_of_something_else_is_refused_and_kept(self, tmp_path: Path) -> None:
        path = write(tmp_path / "log", [row(0, "a")] * 9)
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="is not the state of a replay"):
            Memo(path, "f")
        assert path.read_bytes() == before

    def test_a_disk_in_trouble_does_not_pass_for_misses(self, tmp_path: Path) -> None:
        memo = Memo(tmp_path / "state", "f")
        memo._rows.execute("DROP TABLE said")
        with pytest.raises(ConfigError):
            memo.intention("a")
        with pytest.raises(ConfigError, match="cannot be read"):
            memo.commit()
        memo.close()

    def test_texts_are_not_in_the_file(self, tmp_path: Path) -> None:
        memo = Memo(tmp_path / "state", "f")
        memo.put_vector("a private question", Letters().embed(["a"])[0])
        memo.close()
        assert b"private" not in (tmp_path / "state").read_bytes()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Chain:
    """The chain that the command opens."""
    of = chain()
    monkeypatch.setattr(chains, "open_eval_chain", lambda embedder, name, **how: of)
    return of


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", "replay", *map(str, arguments)])


def found(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class TestCommand:
    rows = (
        row(0, "ab"),
        row(9, "ab"),
        row(19, "ba", answer=answer("no")),
        row(29, "dd"),
        row(39, "ab", "t2"),
        row(49, "ab", "t2", exact={"reason": "sampled"}),
    )

    def test_it_says_what_each_tier_would_have_hit_saved_and_risked(
        self, tmp_path: Path, opened: Chain
    ) -> None:
        log = write(tmp_path / "log", self.rows)
        cal = tmp_path / "cal.json"
        cal.write_text(calibration(opened).model_dump_json())
        whole = found(log, "--calibration", cal)
        assert (whole["requests"], whole["sent"]) == (6, 4)
        assert whole["exact"]["hits"] == 1
        assert whole["exact"]["reasons"] == {"sampled": 1}
        assert whole["exact"]["saved"]["usd"] == 0.5
        semantic = whole["semantic"]
        assert (semantic["hits"], semantic["asked"]) == (1, 4)
        assert (semantic["hit_rate_of_asked"], semantic["hit_rate_of_all"]) == (0.25, 1 / 6)
        assert semantic["saved"]["input_tokens"] == 100
        assert semantic["saved"]["seconds"] == 2.0
        assert semantic["risk"] == {
            "upper_bound": 0.02,
            "confidence": 0.95,
            "false_hits": 0.02,
            "over_all": 0.02 / 6,
            "differing": 1.0,
        }
        one, two = whole["tenants"]
        assert [part["intent"] for part in one["intents"]] == [
            "(not read)",
            "action",
            "informational",
        ]
        assert (one["semantic"]["hits"], two["semantic"]["hits"]) == (1, 0)
        text = run(log, "--calibration", cal).stdout
        assert "at most 2.00% of hits false" in text
        assert max(map(len, text.splitlines())) <= 80

    def test_a_log_without_texts_plays_the_exact_tier_alone(self, tmp_path: Path) -> None:
        log = write(tmp_path / "log", [row(0, None), row(9, None), row(19, None, named="x")])
        whole = found(log)
        assert (whole["exact"]["hits"], whole["embedder"]) == (1, None)
        assert "exact tier alone" in whole["notes"][0]
        assert "alone was played" in run(log).stdout

    def test_an_empty_log_is_no_error(self, tmp_path: Path) -> None:
        log = write(tmp_path / "log", [])
        whole = found(log)
        assert (whole["requests"], whole["exact"]["hit_rate"], whole["tenants"]) == (0, None, [])
        assert "nothing to replay" in run(log).stdout

    def test_without_a_calibration_it_says_that_nothing_is_served(
        self, tmp_path: Path, opened: Chain
    ) -> None:
        log = write(tmp_path / "log", self.rows)
        assert "without --calibration" in run(log).stdout
        whole = found(log)
        assert (whole["semantic"]["hits"], whole["semantic"]["risk"]) == (0, None)

    def test_a_calibration_of_another_chain_is_told(self, tmp_path: Path, opened: Chain) -> None:
        log = write(tmp_path / "log", self.rows)
        cal = tmp_path / "cal.json"
        cal.write_text(calibration(Chain("cosine", Letters())).model_dump_json())
        (note,) = found(log, "--calibration", cal)["notes"]
        assert "of another chain" in note
        assert found(log, "--calibration", cal)["calibrated"] is False

    def test_models_that_fail_are_told(
        self, tmp_path: Path, opened: Chain, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opened.gate, "classify", None)
        notes = found(write(tmp_path / "log", self.rows))["notes"]
        assert any("4 lookups failed" in note for note in notes)

    def test_a_policy_file_gives_intents_and_economics(self, tmp_path: Path, opened: Chain) -> None:
        log = write(tmp_path / "log", [row(0, "dd"), row(9, "ddd")])
        (tmp_path / "cal.json").write_text(calibration(opened).model_dump_json())
        semantic = {
            "calibration": "cal.json",
            "intents": ["action"],
            "economics": {"call_cost": 1.0, "lookup_cost": 0.1, "false_hit_cost": 10.0},
        }
        owner = tmp_path / "owner.yaml"
        owner.write_text(yaml.safe_dump({"tenant": "t1", "semantic": semantic}))
        whole = found(log, "--policy", owner)
        assert whole["semantic"]["hits"] == 1
        assert whole["margin_per_lookup"] == pytest.approx(0.5 - 0.1 - 0.5 * 0.02 * 10)

    @pytest.mark.parametrize("given", ["1x", "-1", "nan", "inf"])
    def test_a_lifetime_that_is_none_is_refused(self, tmp_path: Path, given: str) -> None:
        log = write(tmp_path / "log", [])
        assert run(log, f"--ttl={given}").exit_code == 2

    def test_lifetimes_are_written_as_in_policies(self, tmp_path: Path) -> None:
        log = write(tmp_path / "log", [row(0, None), row(61, None)])
        assert found(log, "--ttl", "1m")["exact"]["hits"] == 0
        assert found(log, "--ttl", "62")["exact"]["hits"] == 1


_SCRIPT = """
import sys, time
sys.path[:0] = {paths!r}
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from traffic_rows import chain
from trivet.eval import chains
from trivet.cli import main
of = chain()
usual = of.embedder.embed
def embed(texts):
    time.sleep({pause})
    print("embedded", flush=True)
    return usual(texts)
of.embedder.embed = embed
chains.open_eval_chain = lambda embedder, name, **how: of
main(sys.argv[1:])
"""


def start(pause: float, *arguments: object) -> subprocess.Popen[str]:
    script = _SCRIPT.format(paths=[str(Path(__file__).parent)], pause=pause)
    command = [sys.executable, "-c", script, "eval", "replay", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def long_log(tmp_path: Path) -> tuple[Path, Path]:
    rows = [row(9.0 * at, "a" * (at % 60 + 1) + "b" * (at // 60 + 1)) for at in range(1200)]
    cal = tmp_path / "cal.json"
    cal.write_text(calibration(chain(), 0.9999).model_dump_json())
    return write(tmp_path / "log", rows), cal


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_replay_that_was_stopped_goes_on_and_comes_to_the_same(
    tmp_path: Path, long_log: tuple[Path, Path], how: signal.Signals
) -> None:
    log, cal = long_log
    given = (log, "--calibration", cal, "--json")
    whole, _ = start(0, *given).communicate()
    state = tmp_path / "state"
    stopped = start(0.2, *given, "--resume", state)
    assert stopped.stdout is not None
    for _ in range(7):
        assert stopped.stdout.readline() == "embedded\n"
    os.kill(stopped.pid, how)
    _, said = stopped.communicate()
    if how is signal.SIGINT:
        assert stopped.returncode == 130
        assert f"--resume {state}" in said
    again, _ = start(0, *given, "--resume", state).communicate()
    count = whole.count("embedded")
    assert again.replace("embedded\n", "") == whole.replace("embedded\n", "")
    assert 0 < again.count("embedded") < count


async def test_ten_thousand_requests_take_ten_times_as_long_as_a_thousand() -> None:
    took = []
    for count in (1_000, 10_000):
        rng = random.Random(7)
        rows = [
            row(float(at), "".join(rng.choices("abc", k=rng.randint(1, 9))), exact={"ttl": 200.0})
            for at in range(count)
        ]
        began = time.process_time()
        tally = Tally()
        for one in await play(rows):
            tally.add(one)
        took.append(time.process_time() - began)
        assert tally.total.requests == count
    assert took[1] < 25 * took[0]


def test_a_log_is_not_held_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [row(float(at), "x" * 2000) for at in range(2_000)])
    files = open_traffic([path])
    held = sys.getsizeof(files._files) + sys.getsizeof(files._places)
    assert held < 64 * 2_000
    assert sum(len(write_line(one)) for one in files) == path.stat().st_size
