"""Embeddings requests taken apart, and vectors kept as they came."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError
from trivet.messages import NotStored, Usage
from trivet.middleware.dialects.embeddings import (
    Vectors,
    decode,
    dimensions,
    pack,
    read_answer,
    remainder,
    render,
    write_answer,
)


def asked(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "a", **fields}).encode()


def answer(*vectors: Any, **fields: Any) -> bytes:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return json.dumps({"data": data, "model": "m-1", "usage": usage, **fields}).encode()


def encoded(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


class TestDecode:
    def test_a_text_asks_for_the_same_item_alone_and_in_any_batch(self) -> None:
        alone = decode(asked(input="a"), {}).canonicals
        batch = decode(asked(input=["b", "a", "a"]), {}).canonicals
        assert batch[1] == batch[2] == alone[0]
        assert batch[0] != batch[1]

    def test_an_array_of_tokens_is_one_item(self) -> None:
        one, also_one = decode(asked(input=[1, 2]), {}), decode(asked(input=[[1, 2]]), {})
        assert one.inputs == also_one.inputs == ([1, 2],)
        assert one.canonicals == also_one.canonicals

    def test_tokens_and_the_text_of_tokens_are_not_one_item(self) -> None:
        assert decode(asked(input=[1]), {}).canonicals != decode(asked(input="[1]"), {}).canonicals

    def test_encoding_and_user_are_no_part_of_the_question(self) -> None:
        plain = decode(asked(), {})
        other = decode(asked(encoding_format="base64", user="u"), {})
        assert other.canonicals == plain.canonicals
        assert (other.encoding, other.request.user) == ("base64", "u")

    @pytest.mark.parametrize("field", ["output_dtype", "embed_dtype", "endianness"])
    def test_where_numbers_may_be_of_another_kind_the_encoding_is_keyed(self, field: str) -> None:
        more = {field: "int8"}
        forms = {
            decode(asked(encoding_format=e, **more), {}).canonicals for e in ("float", "base64")
        }
        assert len(forms) == 2
        assert decode(asked(**more), {}).canonicals in forms

    def test_another_encoding_is_not_cached_and_not_refused(self) -> None:
        batch = decode(asked(encoding_format="bytes"), {})
        assert batch.request.uncacheable == "encoding-format"
        assert decode(asked(encoding_format=None), {}).request.uncacheable is None

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"model": ""}, "model"),
            ({"model": 7}, "model"),
            ({"input": None}, "input"),
            ({"input": []}, "input"),
            ({"input": {}}, "input"),
            ({"input": ["a", 7]}, "input[1]"),
            ({"input": ["a", []]}, "input[1]"),
            ({"input": [[1], [True]]}, "input[1]"),
            ({"input": [[1, "a"]]}, "input[0]"),
            ({"encoding_format": 7}, "encoding_format"),
        ],
    )
    def test_what_is_wrong_is_named(self, fields: dict[str, Any], field: str) -> None:
        with pytest.raises(RequestError) as caught:
            decode(asked(**fields), {})
        assert (caught.value.status, caught.value.field) == (400, field)


class TestRemainder:
    def test_all_of_a_batch_is_the_body_as_it_came(self) -> None:
        raw = b'{ "input": ["a", "b"], "model": "m" }'
        assert remainder(decode(raw, {}), [0, 1]) == raw

    def test_some_of_a_batch_keeps_every_other_field(self) -> None:
        batch = decode(asked(input=["a", "b", "c"], dimensions=8, user="u"), {})
        assert json.loads(remainder(batch, [2, 0])) == {
            "model": "m",
            "input": ["c", "a"],
            "dimensions": 8,
            "user": "u",
        }


class TestReadAnswer:
    def test_vectors_are_put_into_the_order_of_the_items(self) -> None:
        data = [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}]
        found = read_answer(answer(data=data), 2)
        assert found == Vectors((pack([2.0]) or b"", pack([1.0]) or b""), "m-1", Usage(3, 0))

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"<html>", "not-json"),
            (b"[]", "error-body"),
            (b'{"data":{}}', "error-body"),
            (answer([1.0], error={"message": "x"}), "error-body"),
            (answer([1.0], errors=["x"]), "error-body"),
            (answer([1.0], detail="x"), "error-body"),
            (answer([1.0], [1.0])[:-1] + b',"data":[]}', "duplicate-key"),
            (answer([1.0], [1.0])[:-1] + b',"model":"n"}', "duplicate-key"),
            (
                answer([1.0], [1.0]).replace(b'"embedding":', b'"embedding" :[9.0],"embedding":'),
                "duplicate-key",
            ),
            (answer([1.0]), "missing-vector"),
            (answer([1.0], [2.0], [3.0]), "missing-vector"),
            (answer(data=[{"index": 0, "embedding": [1.0]}] * 2), "missing-vector"),
            (answer(data=[{"index": i, "embedding": [1.0]} for i in (0, 2)]), "missing-vector"),
            (answer(data=[{"index": i, "embedding": [1.0]} for i in (0, 0, 1)]), "missing-vector"),
            (answer(data=[{"embedding": [1.0]}, 7]), "bad-vector"),
            (answer(data=[{"index": True, "embedding": [1.0]}]), "bad-vector"),
            (answer([1.0], []), "bad-vector"),
            (answer([1.0], [1.0, 2.0]), "uneven-vectors"),
            (answer([0.1], encoded(1.0, 2.0)), "uneven-vectors"),
        ],
    )
    def test_what_is_no_complete_answer_is_not_stored(self, body: bytes, reason: str) -> None:
        assert read_answer(body, 2) == NotStored(reason)

    @pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -1}, {"prompt_tokens": 1.5}, 7])
    def test_usage_that_is_not_known_is_none(self, usage: Any) -> None:
        found = read_answer(answer([1.0], usage=usage, model=None), 1)
        assert found == Vectors((pack([1.0]) or b"",), "", None)


class TestPack:
    @pytest.mark.parametrize(
        "bad",
        [
            None,
            [],
            {},
            7,
            "",
            "A",
            "AAA",
            "AAAA=",
            "caf\xe9",
            base64.b64encode(b"12345").decode(),
            encoded(1.0, math.nan),
            encoded(math.inf),
            [True],
            [1.0, None],
            ["1"],
            [[1.0]],
            [10**400],
            [1e308, 1e308],
        ],
    )
    def test_what_is_no_vector_is_none(self, bad: Any) -> None:
        assert pack(bad) is None

    def test_whole_numbers_are_numbers(self) -> None:
        packed = pack([0, 1, -1.0])
        assert packed is not None
        assert render(packed, "float") == [0.0, 1.0, -1.0]

    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1))
    def test_32_bit_floats_are_kept_exactly_in_both_encodings(self, numbers: list[float]) -> None:
        packed = pack(numbers)
        assert packed is not None
        assert packed == pack(encoded(*numbers))
        assert packed[:1] == b"f"
        assert dimensions(packed) == len(numbers)
        assert repr(render(packed, "float")) == repr(numbers)
        assert render(packed, "base64") == encoded(*numbers)

    @given(st.lists(st.floats(-1e300, 1e300), min_size=1))
    def test_64_bit_floats_are_kept_exactly(self, numbers: list[float]) -> None:
        packed = pack(numbers)
        assert packed is not None
        assert dimensions(packed) == len(numbers)
        assert repr(render(packed, "float")) == repr(numbers)

    def test_64_bit_floats_are_narrowed_for_base64_as_the_api_does(self) -> None:
        packed = pack([0.1])
        assert packed is not None
        assert render(packed, "base64") == encoded(0.1)


def test_the_answer_has_the_apis_shape() -> None:
    written = json.loads(write_answer([pack([0.5]) or b"", pack([0.1]) or b""], "float", "m", 7))
    assert written == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5]},
            {"object": "embedding", "index": 1, "embedding": [0.1]},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
