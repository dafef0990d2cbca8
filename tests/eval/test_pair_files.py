"""Files of labelled pairs: what is read, and what is told about what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.errors import ConfigError
from trivet.eval.pair_files import PairFile, load_pairs
from trivet.eval.pairs import Contexts, LabelledPair

ROW = {"a": "how to open it", "b": "opening it", "same": True}


def jsonl(tmp_path: Path, *rows: Any) -> PairFile:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return load_pairs(file)


def csv(tmp_path: Path, text: str) -> PairFile:
    file = tmp_path / "pairs.csv"
    file.write_bytes(text.encode())
    return load_pairs(file)


def problems(tmp_path: Path, *rows: Any) -> list[tuple[int, str, str]]:
    with pytest.raises(ConfigError) as raised:
        jsonl(tmp_path, *rows)
    return [(one.line, one.field, one.message) for one in raised.value.problems]


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


class TestJsonl:
    def test_a_row_with_everything(self, tmp_path: Path) -> None:
        row = {**ROW, "slice": "paraphrase", "group": 7, "id": "x-1", "context": "tenant a"}
        (found,) = jsonl(tmp_path, row).pairs
        assert found == LabelledPair(
            "how to open it",
            "opening it",
            True,
            "paraphrase",
            "7",
            Contexts("tenant a", "tenant a"),
            "x-1",
        )

    def test_columns_that_are_not_known_are_ignored(self, tmp_path: Path) -> None:
        assert jsonl(tmp_path, {**ROW, "source": "mine"}).pairs == jsonl(tmp_path, ROW).pairs

    @pytest.mark.parametrize("value", [True, 1, "1", "true", "Yes", " TRUE "])
    def test_ways_to_say_same(self, tmp_path: Path, value: Any) -> None:
        assert jsonl(tmp_path, {**ROW, "same": value}).pairs[0].same

    @pytest.mark.parametrize("value", [False, 0, "0", "false", "No"])
    def test_ways_to_say_different(self, tmp_path: Path, value: Any) -> None:
        assert not jsonl(tmp_path, {**ROW, "same": value}).pairs[0].same

    @pytest.mark.parametrize("mark", [True, "could be either", 1])
    def test_an_ambiguous_row_counts_as_different_and_that_is_said(
        self, tmp_path: Path, mark: Any
    ) -> None:
        file = jsonl(tmp_path, {**ROW, "ambiguous": mark})
        assert not file.pairs[0].same
        assert file.notes == ("1 row marked ambiguous: taken as different.",)

    @pytest.mark.parametrize("mark", [False, "", "no", None, 0])
    def test_a_row_marked_as_not_ambiguous_counts_as_it_says(
        self, tmp_path: Path, mark: Any
    ) -> None:
        file = jsonl(tmp_path, {**ROW, "ambiguous": mark})
        assert (file.pairs[0].same, file.notes) == (True, ())

    def test_a_row_that_repeats_another_is_noted(self, tmp_path: Path) -> None:
        file = jsonl(tmp_path, ROW, ROW)
        assert len(file.pairs) == 2
        assert file.notes[0].startswith("1 row repeats an earlier one")

    def test_empty_lines_and_a_byte_order_mark_are_no_rows(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text(f"\ufeff{json.dumps(ROW)}\r\n\n   \n")
        assert len(load_pairs(file).pairs) == 1

    def test_a_context_of_each_side(self, tmp_path: Path) -> None:
        (found,) = jsonl(tmp_path, {**ROW, "context_a": "u1", "context_b": {"user": 2}}).pairs
        assert found.context == Contexts("u1", '{"user":2}')
        assert not found.comparable

    def test_every_finding_names_its_line_and_field(self, tmp_path: Path) -> None:
        rows = [{"a": "x"}, {**ROW, "same": "perhaps"}, {**ROW, "a": 5}, [1]]
        assert problems(tmp_path, *rows) == [
            (1, "b", "is missing"),
            (1, "same", "is missing"),
            (2, "same", "has to be true or false, 1 or 0, yes or no"),
            (3, "a", "has to be a text or a list of messages"),
            (4, "", "each line has to be one JSON object"),
        ]

    def test_a_text_without_a_letter_is_empty(self, tmp_path: Path) -> None:
        assert problems(tmp_path, {**ROW, "b": " "}) == [(1, "b", "is empty")]

    @pytest.mark.parametrize("value", [True, [1], {}, 1.5])
    def test_a_name_is_a_text_or_a_whole_number(self, tmp_path: Path, value: Any) -> None:
        wanted = [(1, "group", "has to be a text or a whole number")]
        assert problems(tmp_path, {**ROW, "group": value}) == wanted

    def test_half_a_surrogate_pair_is_no_text(self, tmp_path: Path) -> None:
        wanted = [(1, "a", "has half of a surrogate pair in it")]
        assert problems(tmp_path, {**ROW, "a": "\ud83d"}) == wanted

    def test_a_line_that_is_not_json(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_text('{"a": 1,\n' + "[" * 100_000)
        with pytest.raises(ConfigError) as raised:
            load_pairs(file)
        first, second = map(str, raised.value.problems)
        assert first.startswith(f"{file}:1:1: is not JSON: ")
        assert second.startswith(f"{file}:2:1: is not JSON: ")

    @pytest.mark.parametrize(("count", "told"), [(50, "45 more findings"), (6, "1 more finding")])
    def test_findings_are_counted_after_the_first_five(
        self, tmp_path: Path, count: int, told: str
    ) -> None:
        found = problems(tmp_path, *[[]] * count)
        assert len(found) == 6
        assert found[-1] == (0, "", f"{told} like these")

    @pytest.mark.parametrize(
        ("row", "told"),
        [
            (
                {"question": "x", "reply": "y"},
                "no row has the columns a, b and same; there are 'question', 'reply'",
            ),
            ({"a": "x", "b": "y"}, "no row has the column same; there are 'a', 'b'"),
            ({"a": "x", "same": True}, "no row has the column b; there are 'a', 'same'"),
            ({}, "no row has the columns a, b and same"),
            (
                {"a": "x", "b": "y", "same": None},
                "no pair in it is labelled: `same` is empty in every row (see trivet eval label)",
            ),
        ],
    )
    def test_a_file_of_another_kind_is_told_in_one_sentence(
        self, tmp_path: Path, row: dict[str, Any], told: str
    ) -> None:
        assert problems(tmp_path, *[row] * 30) == [(0, "", told)]

    def test_of_many_other_columns_the_first_eight_are_named(self, tmp_path: Path) -> None:
        row = {f"c{at}" + "x" * 99: at for at in range(20)}
        ((_, _, message),) = problems(tmp_path, row, row)
        assert message.count("'c") == 8
        assert message.endswith(", ...")
        assert len(message) < 500

    def test_a_file_without_pairs(self, tmp_path: Path) -> None:
        assert problems(tmp_path) == [(0, "", "has no pairs in it")]

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.jsonl: cannot be read: No such file"):
            load_pairs(tmp_path / "none.jsonl")

    def test_a_file_that_is_not_text(self, tmp_path: Path) -> None:
        file = tmp_path / "p.jsonl"
        file.write_bytes(b"ab\xff")
        with pytest.raises(ConfigError, match="is not UTF-8 at byte 2"):
            load_pairs(file)


class TestConversations:
    def test_the_last_user_message_is_compared_and_the_rest_is_context(
        self, tmp_path: Path
    ) -> None:
        before = [user("i have a lamp"), {"role": "assistant", "content": "which one?"}]
        row = {**ROW, "a": [*before, user("the red one")], "b": [*before, user("that red one")]}
        (found,) = jsonl(tmp_path, row).pairs
        assert (found.a, found.b) == ("the red one", "that red one")
        assert found.comparable
        assert len(found.context.a) == 64

    def test_another_history_is_another_context(self, tmp_path: Path) -> None:
        row = {**ROW, "a": [user("lamp"), user("yes")], "b": [user("sofa"), user("yes")]}
        assert not jsonl(tmp_path, row).pairs[0].comparable

    def test_one_message_alone_is_the_same_as_its_text(self, tmp_path: Path) -> None:
        row = {**ROW, "a": [user("how to open it")]}
        assert jsonl(tmp_path, row).pairs == jsonl(tmp_path, ROW).pairs

    def test_a_context_beside_the_history_counts_too(self, tmp_path: Path) -> None:
        talk = [user("lamp"), user("yes")]
        row = {**ROW, "a": talk, "b": talk, "context_a": "u1", "context_b": "u2"}
        assert not jsonl(tmp_path, row).pairs[0].comparable

    @pytest.mark.parametrize(
        ("messages", "told"),
        [
            ([], "the last message has to be the user's, as a text"),
            ([{"role": "assistant", "content": "hi"}], "the last message has to be the user's"),
            ([user(" ")], "the last message is empty"),
            ([user([{"type": "image_url"}])], "the last message has to be one text"),
            ([7], "the last message has to be the user's"),
        ],
    )
    def test_what_cannot_be_compared_is_told(
        self, tmp_path: Path, messages: list[Any], told: str
    ) -> None:
        ((line, field, message),) = problems(tmp_path, {**ROW, "b": messages})
        assert (line, field) == (1, "b")
        assert message.startswith(told)


class TestCsv:
    def test_rows_and_quotes(self, tmp_path: Path) -> None:
        text = 'same,b,a,slice,note\r\nyes,"one, ""two""",x,s,hm\r\n0,y,"two\nlines",,\r\n'
        assert csv(tmp_path, text).pairs == (
            LabelledPair("x", 'one, "two"', True, "s"),
            LabelledPair("two\nlines", "y", False),
        )

    def test_both_formats_name_one_set_alike(self, tmp_path: Path) -> None:
        text = "a,b,same\nhow to open it,opening it,true\n"
        assert csv(tmp_path, text).digest == jsonl(tmp_path, ROW).digest

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("a,b\n1,2\n", ":1:1: the header does not have the column same, but 'a', 'b'"),
            ("a,b,same\nx,y,1,z\n", ":2:1: has more cells than the header"),
            ("a,b,same\nx,y\n", ":2:1: same: is missing"),
            ("a,b,same\nx,y,maybe\n", ":2:1: same: has to be true or false"),
            ('a,b,same\n"x,y,1\n', "is not CSV: unexpected end of data"),
            ("", ":1:1: the header does not have the columns a, b and same"),
            ("a,b,same\n", "has no pairs in it"),
        ],
    )
    def test_findings(self, tmp_path: Path, text: str, told: str) -> None:
        with pytest.raises(ConfigError) as raised:
            csv(tmp_path, text)
        assert told in str(raised.value)


def test_a_number_of_five_thousand_digits_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"a": "x", "b": "y", "same": true, "id": ' + "9" * 5000 + "}\n")
    with pytest.raises(ConfigError, match="is not JSON: a number is too long") as raised:
        load_pairs(file)
    assert [one.line for one in raised.value.problems] == [1]
