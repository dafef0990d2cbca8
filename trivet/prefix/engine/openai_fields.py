"""What chat and text completions have alike: how tokens are drawn, and which prompts are asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson

from trivet.prefix.engine.fields import (
    MOST_CHOICES,
    Body,
    flag,
    integer,
    number,
    refuse_others,
    refused,
    section,
    stops,
)
from trivet.prefix.engine.sampling_params import SamplingParams

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (),
    "skip_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "lora": (),
    "lora_request": (),
}
"""Fields of OpenAI and vLLM that change the answer and are not done here; with these values, and
without any, they change nothing."""

UNLIMITED = 1 << 30
"""`SamplingParams.max_tokens` of who names no bound: the model's context is one."""


@dataclass(frozen=True, slots=True)
class Order:
    """One request, read and checked: `choices` answers to each of `prompts`."""

    prompts: list[list[int]]
    params: SamplingParams
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    echo: tuple[str, ...] = ()
    """Texts of the prompts, to be repeated before the answers."""
    field: str = "messages"
    """Where the prompts stand in the body."""
    schema_field: str = "response_format"
    """Where the JSON schema stands."""

    def drawn(self, choice: int, room: int) -> SamplingParams:
        """The parameters of one choice, which has `room` tokens left in the model's context.

        Choices of one seed are different draws that come again.
        """
        seed = self.params.seed
        return replace(
            self.params,
            max_tokens=min(self.params.max_tokens, room),
            seed=None if seed is None else seed + choice,
        )


def params_of(body: Body, most: int, logprobs: int | None, schema: str | None) -> SamplingParams:
    """How to draw. Raises `RequestError` 400 naming the field."""
    refuse_others(body, _NEUTRAL)
    top_k = integer(body, "top_k", -1, 1 << 30) or 0
    return SamplingParams(
        max_tokens=most,
        temperature=number(body, "temperature", 1.0, 0, 2),
        top_p=_share(body, "top_p", 1.0),
        top_k=max(0, top_k),
        min_p=number(body, "min_p", 0.0, 0, 1),
        seed=integer(body, "seed", -(2**63), 2**63 - 1),
        stop=stops(body, "stop"),
        ignore_eos=flag(body, "ignore_eos"),
        logprobs=logprobs,
        json_schema=schema,
    )


def _share(body: Body, name: str, default: float) -> float:
    value = number(body, name, default, 0, 1)
    if value == 0:
        raise refused(name, "is more than 0")
    return value


def opening_of(body: Body) -> dict[str, bool]:
    """How the prompt of a chat ends, for `Prompts.chat`: by vLLM's fields."""
    generation_prompt = flag(body, "add_generation_prompt", True)
    continue_final = flag(body, "continue_final_message")
    if continue_final and generation_prompt:
        raise refused("continue_final_message", "needs 'add_generation_prompt': false")
    return {"generation_prompt": generation_prompt, "continue_final": continue_final}


def choices_of(body: Body) -> int:
    """How many answers to each prompt."""
    return integer(body, "n", 1, MOST_CHOICES) or 1


def schema_of(body: Body) -> str | None:
    """The JSON Schema that `response_format` asks for, as JSON text."""
    form = section(body, "response_format")
    kind = form.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return '{"type":"object"}'
    if kind != "json_schema":
        raise refused("response_format.type", "is text, json_object or json_schema")
    return schema_text(section(form, "json_schema").get("schema"), "response_format.json_schema")


def schema_text(schema: Any, field: str) -> str:
    """A JSON Schema as JSON text."""
    if not isinstance(schema, dict):
        raise refused(f"{field}.schema", "is a JSON Schema: an object")
    try:
        return orjson.dumps(schema).decode()
    except TypeError:
        raise refused(f"{field}.schema", "has a text or number that is no plain JSON") from None


def usage_wanted(body: Body) -> bool:
    """Whether a stream ends with a chunk of usage."""
    return flag(section(body, "stream_options"), "include_usage")
