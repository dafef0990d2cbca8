from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trivet.errors import RequestError
from trivet.prefix.engine import grammar
from trivet.prefix.engine.grammar import Grammars, GrammarState

END = 256
PADDING = 5
"""Rows of the model's output that no token stands for."""


@cache
def tokenizer() -> Any:
    """Byte-level BPE of 256 bytes, one merged token, and an end token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: at for at, letter in enumerate(letters)}
    vocabulary["<end>"] = END
    vocabulary['{"'] = END + 1
    made = Tokenizer(models.BPE(vocabulary, [("{", '"')]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


VOCABULARY = 258 + PADDING


SALT = "acme-salt"


def grammars() -> Grammars:
    return Grammars(tokenizer(), VOCABULARY, {END})


def ids(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text)
    return found


def allowed(state: GrammarState) -> set[int]:
    return set(state.allowed(VOCABULARY).nonzero()[:, 0].tolist())


def accepts(schema: str, text: str) -> bool:
    """Whether every token of the text, and then the end, is allowed when its turn comes."""
    state = grammars().start(schema, SALT)
    for token in [*ids(text), END]:
        if token not in allowed(state):
            return False
        assert state.accept(token)
    return True


PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    ("schema", "text", "good"),
    [
        (PERSON, '{"name": "Zoë", "age": 3}', True),
        (PERSON, '{"name":"x","age":3}', True),
        (PERSON, '{"name": "x"}', False),
        (PERSON, '{"name": "x", "age": "3"}', False),
        (PERSON, '{"name": "x", "age": 3} and more', False),
        ('{"type":"object"}', '{"any": [1, {"thing": null}]}', True),
        ('{"type":"object"}', "[1]", False),
        ("{}", "[1]", True),
        ("{}", '{"a": 1}', True),
        ("{}", "nonsense", False),
    ],
)
def test_an_answer_is_of_its_schema(schema: str, text: str, good: bool) -> None:
    assert accepts(schema, text) == good


def test_the_mask_is_as_wide_as_the_models_output_and_has_no_unknown_token() -> None:
    state = grammars().start(PERSON, SALT)
    mask = state.allowed(VOCABULARY)
    assert (mask.shape, mask.dtype) == ((VOCABULARY,), torch.bool)
    assert allowed(state) <= set(range(258)) - {END}


def test_a_complete_answer_has_nothing_behind_it() -> None:
    state = grammars().start(PERSON, SALT)
    for token in ids('{"name": "x", "age": 3'):
        assert state.accept(token)
    assert not state.complete
    assert state.accept(ids("}")[0])
    assert state.complete


def test_blanks_without_end_are_not_json_here() -> None:
    state = grammars().start('{"type":"object"}', SALT)
    assert state.accept(ids("{")[0])
    blank = ids(" ")[0]
    count = 0
    while blank in allowed(state):
        assert state.accept(blank)
        count += 1
    assert count == 32


def test_a_token_that_is_not_allowed_is_not_accepted() -> None:
    assert not grammars().start(PERSON, SALT).accept(ids("x")[0])


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "strin"}',
        '{"$ref": "https://example.org/schema"}',
        '{"properties": {"a": {"not": {"type": "string"}}}}',
        '{"type": "string", "pattern": "(?=a)b"}',
        "{not json",
        "[1]",
        '{"enum": []}',
        json.dumps({"enum": ["x" * 300_000]}),
    ],
)
def test_a_schema_that_cannot_be_compiled_names_response_format(schema: str) -> None:
    with pytest.raises(RequestError) as refused:
        grammars().start(schema, SALT)
    assert (refused.value.status, refused.value.field) == (400, "response_format")
    assert len(refused.value.message) < 500


def test_a_schema_is_compiled_once_and_its_answers_are_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = grammars()
    compiled: list[str] = []
    whole = Grammars._compile

    def counting(self: Grammars, schema: str) -> Any:
        compiled.append(schema)
        return whole(self, schema)

    monkeypatch.setattr(Grammars, "_compile", counting)
    first, second = made.start(PERSON, SALT), made.start(PERSON, SALT)
    assert first.accept(ids("{")[0])
    assert allowed(second) != allowed(first)
    assert compiled == [PERSON]


def test_the_schemas_that_are_kept_are_bounded_in_all_and_by_salt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar, "_MOST_KEPT", 3)
    monkeypatch.setattr(grammar, "_MOST_KEPT_BY_SALT", 2)
    made = grammars()
    made.start('{"const": 0}', "b")
    for value in ("1", "2", "1", "3"):
        made.start(f'{{"const": {value}}}', "a")
    kept = [("b", '{"const": 0}'), ("a", '{"const": 1}'), ("a", '{"const": 3}')]
    assert [*made._compiled] == kept
    made.start('{"const": 4}', "c")
    assert [*made._compiled] == [*kept[1:], ("c", '{"const": 4}')]


def test_a_schema_that_another_salt_used_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = grammars()
    compiled: list[str] = []
    whole = Grammars._compile

    def counting(self: Grammars, schema: str) -> Any:
        compiled.append(schema)
        return whole(self, schema)

    monkeypatch.setattr(Grammars, "_compile", counting)
    made.start(PERSON, "a-salt")
    made.start(PERSON, "b-salt")
    assert compiled == [PERSON, PERSON]


def test_once_warm_no_schema_reads_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    made = grammars()
    made.warm()
    monkeypatch.setattr(Grammars, "_read_vocabulary", None)
    assert not made.start(PERSON, SALT).complete


def test_a_schema_beyond_a_bound_is_refused_before_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = grammars()
    monkeypatch.setattr(Grammars, "_vocabulary_table", None)
    with pytest.raises(RequestError, match=r"JSON schema.*multipleOf.*1000") as refused:
        made.start('{"type":"integer","multipleOf":99991}', SALT)
    assert (refused.value.status, refused.value.field) == (400, "response_format")
