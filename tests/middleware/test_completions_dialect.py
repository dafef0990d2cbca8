"""Completions (legacy): how requests are read, answers judged, streams recorded and replayed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai_bodies import DONE, RULES, chunks, follow, followed, record, refused

from trivet.errors import RequestError
from trivet.messages import Api, Request
from trivet.middleware.dialects.completions import CompletionsDialect

COMPLETIONS = CompletionsDialect()


def raw(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "prompt": "Once", "temperature": 0, **fields})


def decoded(**fields: Any) -> Request:
    return COMPLETIONS.decode(raw(**fields), {})


def key(**fields: Any) -> bytes:
    return decoded(**fields).canonical


def choice(index: int = 0, text: Any = " upon a time.", **fields: Any) -> dict[str, Any]:
    made = {"text": text, "index": index, "logprobs": None, "finish_reason": "stop"}
    return {**made, **fields}


def completion(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1700000000,
        "model": "m-2026",
        "choices": list(choices) or [choice()],
        "usage": {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5},
    }
    return {**made, **fields}


def event(*choices: dict[str, Any], **fields: Any) -> bytes:
    made = completion(*choices, **fields)
    made["choices"] = list(choices)
    if "usage" not in fields:
        del made["usage"]
    return b"data: %b\n\n" % orjson.dumps(made)


def logprobs(*tokens: str) -> dict[str, Any]:
    return {
        "tokens": list(tokens),
        "token_logprobs": [-0.5] * len(tokens),
        "top_logprobs": [{token: -0.5} for token in tokens],
        "text_offset": list(range(len(tokens))),
    }


def test_a_plain_request_is_read() -> None:
    request = decoded(stream=True, user="u")
    assert (request.api, request.model, request.stream) == (Api.COMPLETIONS, "m", True)
    assert (request.user, request.sampled, request.choices) == ("u", False, 1)
    assert request.forward == raw(stream=True, user="u")


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("a", 2),
        (None, 2),
        (["a"], 2),
        (["a", "b", "c"], 6),
        ([1, 2, 3], 2),
        ([[1], [2, 3]], 4),
    ],
)
def test_each_prompt_gets_n_choices(prompt: Any, choices: int) -> None:
    assert decoded(prompt=prompt, n=2).choices == choices


@pytest.mark.parametrize("prompt", [{}, 5, []])
def test_a_prompt_of_another_type_is_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match="'prompt'") as caught:
        decoded(prompt=prompt)
    assert caught.value.field == "prompt"


def test_a_missing_prompt_is_refused_unless_embeddings_stand_for_it() -> None:
    with pytest.raises(RequestError, match="missing"):
        COMPLETIONS.decode(b'{"model":"m"}', {})
    assert COMPLETIONS.decode(b'{"model":"m","prompt_embeds":"AA"}', {}).choices == 1


@pytest.mark.parametrize("field", ["temperature", "best_of", "logprobs", "max_tokens"])
def test_a_number_of_another_type_is_refused(field: str) -> None:
    with pytest.raises(RequestError) as caught:
        decoded(**{field: True})
    assert caught.value.field == field


def test_only_transport_fields_are_left_out_of_the_key() -> None:
    options = {"include_usage": True}
    assert key(stream=True, stream_options=options, user="u", rid="r") == key()
    assert key(temperature=0.0, best_of=None, suffix=None) == key()
    assert key(store=True) != key()
    assert key(metadata={}) != key()
    assert key(suffix="") != key()
    assert key(best_of=1) != key()


def test_a_prompt_is_keyed_as_it_is_given() -> None:
    prompts: list[Any] = ["a", ["a"], [1], [1.5], [[1]], ["a", "b"], ["b", "a"], None]
    assert len({key(prompt=prompt) for prompt in prompts}) == len(prompts)


def test_transfers_of_prefixes_between_servers_are_uncacheable() -> None:
    assert decoded(kv_transfer_params={"do_remote_decode": True}).uncacheable == "kv-transfer"
    assert decoded().uncacheable is None


def test_a_complete_answer_is_stored() -> None:
    value = completion(choice(0), choice(1))
    answer = record(COMPLETIONS, decoded(n=2), value)
    assert (answer.body, answer.ids, answer.model) == (orjson.dumps(value), ("cmpl-1",), "m-2026")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (completion(object="chat.completion"), "wrong-object"),
        (completion(choice(), choice(1)), "choices-mismatch"),
        (completion(choice(finish_reason="length")), "finish-length"),
        (completion(choice(finish_reason="content_filter")), "finish-content-filter"),
        (completion(choice(finish_reason="tool_calls")), "finish-other"),
        (completion(choice(finish_reason=None)), "incomplete"),
        (completion(choice(error={"code": 1})), "upstream-error"),
        (completion(choice(text=None)), "wrong-object"),
        (completion(choice(text="")), "empty"),
        (completion(choice(text="\n ")), "empty"),
    ],
)
def test_an_answer_that_is_not_complete_is_not_stored(value: Any, reason: str) -> None:
    assert refused(COMPLETIONS.record(decoded(), orjson.dumps(value), RULES)) == reason


def test_a_json_answer_has_to_parse() -> None:
    asked = decoded(response_format={"type": "json_object"})
    assert refused(COMPLETIONS.record(asked, orjson.dumps(completion()), RULES)) == "invalid-json"
    record(COMPLETIONS, asked, completion(choice(text="{}")))


def test_a_stream_is_the_answer_that_json_would_have_been() -> None:
    def piece(index: int, text: Any, *tokens: str) -> dict[str, Any]:
        return choice(index, text, logprobs=logprobs(*tokens), finish_reason=None)

    events = [
        event(piece(1, " a", " a"), system_fingerprint="fp"),
        event(piece(0, " u", " u"), piece(1, " b", " b")),
        event(piece(0, "pon", "p", "on")),
        event(choice(0, None, stop_reason=7), choice(1, "", logprobs={"tokens": None})),
        event(usage=completion()["usage"]),
        DONE,
    ]
    spoken = logprobs(" u", "p", "on")
    spoken["text_offset"] = [0, 0, 1]
    other = logprobs(" a", " b")
    other["text_offset"] = [0, 0]
    assert followed(COMPLETIONS, decoded(n=2), events) == completion(
        choice(0, " upon", logprobs=spoken, stop_reason=7),
        choice(1, " a b", logprobs=other),
        system_fingerprint="fp",
    )


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([event(choice())], "no-done"),
        ([event(choice(finish_reason=None)), DONE], "incomplete"),
        ([event(choice(finish_reason="length")), DONE], "finish-length"),
        ([event(choice()), event(choice(finish_reason="length")), DONE], "bad-stream"),
        ([event(choice(1)), DONE], "bad-stream"),
        ([event(choice(text=5)), DONE], "bad-stream"),
        ([event(choice(logprobs=[])), DONE], "bad-stream"),
        ([event(choice(), object="chat.completion.chunk"), DONE], "wrong-object"),
        ([event(choice()), event(choice(text="more")), DONE], "bad-stream"),
        ([event(choice()), event(choice(text="", logprobs=logprobs("a"))), DONE], "bad-stream"),
        ([event(choice(finish_reason=None)), event(choice(), id="cmpl-2"), DONE], "bad-stream"),
        ([event(choice(finish_reason=None)), event(choice(), model="n"), DONE], "bad-stream"),
        ([event(choice()), b'data: {"x":1}\nevent: error\n\n', DONE], "upstream-error"),
        ([event(choice()), b'data: {"object":"error"}\n\n', DONE], "upstream-error"),
        ([event(choice()), b'{"error":{}}\n\n', DONE], "malformed-stream"),
        ([event(choice()), b"data: [DONE] but failed\n\n"], "not-json"),
        ([event(choice(native_finish_reason="error")), DONE], "upstream-error"),
    ],
)
def test_a_stream_that_is_not_complete_is_not_stored(events: Any, reason: str) -> None:
    assert refused(follow(COMPLETIONS, decoded(), events)) == reason


def test_a_choice_that_ends_again_without_more_text_has_ended_once() -> None:
    events = [event(choice()), event(choice(text="")), DONE]
    assert followed(COMPLETIONS, decoded(), events)["choices"] == [choice()]


def test_an_answer_that_parsers_read_apart_is_not_stored() -> None:
    body = orjson.dumps(completion())[:-1] + b',"choices":[]}'
    assert refused(COMPLETIONS.record(decoded(), body, RULES)) == "not-json"


def test_a_follower_gets_no_field_of_the_callers_whom_it_follows() -> None:
    assert COMPLETIONS.follow(event(metadata={"a": "b"}), decoded()) == event()


def test_a_replayed_stream_ends_each_choice_once() -> None:
    asked = decoded(n=2, stream_options={"include_usage": True})
    answer = record(COMPLETIONS, asked, completion(choice(1), choice(0, stop_reason=7)))
    found = chunks(COMPLETIONS.render_stream(answer, asked))
    ends = [(one["choices"][0]["index"], one["choices"][0]["finish_reason"]) for one in found[:-1]]
    assert ends == [(0, None), (0, "stop"), (1, None), (1, "stop")]
    assert found[1]["choices"][0]["stop_reason"] == 7
    assert (found[-1]["choices"], found[-1]["usage"]) == ([], completion()["usage"])
    assert COMPLETIONS.render_json(answer, asked) is answer.body


@pytest.mark.parametrize(
    "given", [logprobs(" upon", " a", " time."), logprobs("x"), {"content": [{"token": " upon"}]}]
)
def test_logprobs_survive_the_way_through_a_stream(given: dict[str, Any]) -> None:
    value = completion(choice(logprobs=given))
    del value["usage"]
    answer = record(COMPLETIONS, decoded(), value)
    found = chunks(COMPLETIONS.render_stream(answer, decoded()))
    events = [b"data: %b\n\n" % orjson.dumps(one) for one in found]
    assert followed(COMPLETIONS, decoded(), [*events, DONE]) == value


def test_an_error_has_the_shape_of_openai() -> None:
    body = COMPLETIONS.error(404, "No.", field=None, code="model_not_found")
    assert orjson.loads(body)["error"] == {
        "message": "No.",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }
