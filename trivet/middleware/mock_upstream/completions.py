"""OpenAI's legacy completions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.middleware.dialects import sse
from trivet.middleware.mock_upstream import answers, chat
from trivet.middleware.mock_upstream.answers import Asked, Body
from trivet.middleware.mock_upstream.commands import Commands

TRANSPORT = frozenset({"stream", "stream_options", "user"})


def ask(body: Body) -> Asked:
    """Read a request. Raises `RequestError` 400 naming the field."""
    prompts = _prompts(body.get("prompt"))
    return Asked(
        model=body["model"],
        digest=answers.digest_of(body, TRANSPORT),
        text=prompts[-1] if isinstance(prompts[-1], str) else "",
        sampled=answers.is_sampled(body),
        choices=len(prompts) * (body.get("n") or 1),
        prompt_tokens=1 + len(canonical.dump(prompts)) // 4,
    )


def _prompts(prompt: Any) -> list[Any]:
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise RequestError(400, "'prompt' must be a string or an array.", field="prompt")
    return [prompt] if isinstance(prompt[0], int) else prompt


def answer(body: Body, asked: Asked, commands: Commands) -> Body:
    """The `text_completion` object."""
    drafts = answers.compose(asked, commands)
    prompts = _prompts(body["prompt"])
    each = body.get("n") or 1
    choices = []
    for index, draft in enumerate(drafts):
        prompt = prompts[index // each]
        text = f"{prompt}{draft.text}" if body.get("echo") and isinstance(prompt, str) else None
        choices.append(
            {
                "text": draft.text if text is None else text,
                "index": index,
                "logprobs": _logprobs(draft.text if text is None else text, body.get("logprobs")),
                "finish_reason": commands.finish or chat.FINISH[draft.finish],
            }
        )
    made: Body = {
        "id": answers.fresh("cmpl-"),
        "object": "text_completion",
        "created": int(time.time()),
        "model": commands.served or asked.model,
        "choices": choices,
        "usage": chat.usage_of(asked, drafts, commands),
        "system_fingerprint": "fp_not_a_model",
    }
    if commands.no_usage:
        del made["usage"]
    return made


def _logprobs(text: str, top: int | None) -> Body | None:
    if top is None:
        return None
    tokens = answers.pieces(text)
    return {
        "tokens": tokens,
        "token_logprobs": [-0.25] * len(tokens),
        "top_logprobs": [
            {token if rank == 0 else f"alt{rank}": -0.25 - rank for rank in range(max(top, 1))}
            for token in tokens
        ],
        "text_offset": [0, *itertools.accumulate(len(token) for token in tokens)][: len(tokens)],
    }


def events(made: Body, body: Body) -> Iterator[bytes]:
    """The stream whose accumulation is `made`: choices interleaved, `[DONE]` last."""
    head = {key: made[key] for key in ("id", "object", "created", "model", "system_fingerprint")}
    with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    tail: Body = {"usage": None} if with_usage and "usage" in made else {}
    streams = [list(_parts(choice)) for choice in made["choices"]]
    for level in itertools.zip_longest(*streams):
        for part in level:
            if part is not None:
                yield sse.frame(orjson.dumps({**head, "choices": [part], **tail}))
    if tail:
        yield sse.frame(orjson.dumps({**head, "choices": [], "usage": made["usage"]}))
    yield sse.frame(b"[DONE]")


def _parts(choice: Body) -> Iterator[Body]:
    logprobs = choice["logprobs"]
    base = {"index": choice["index"], "finish_reason": None}
    for at, piece in enumerate(answers.pieces(choice["text"])):
        entry = {key: [values[at]] for key, values in logprobs.items()} if logprobs else None
        yield {**base, "text": piece, "logprobs": entry}
    yield {**base, "text": "", "logprobs": None, "finish_reason": choice["finish_reason"]}
