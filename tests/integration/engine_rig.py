"""A scripted engine behind the real server: it says what it was told to say, token by token."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai
import uvicorn
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from uvicorn_thread import in_thread

from trivet.errors import RequestError
from trivet.prefix.engine.prompts import Prompts
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.sequence import Finish
from trivet.prefix.engine.server import EngineApp, Serving
from trivet.prefix.engine.stall_guard import StallGuard

WORDS = ("One", "Two", "Three", "Four", "system", "user", "assistant")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('the system message comes first') }}{% endif %}"
    "{{ message['role'] }}:{{ message['content'] }}|{% endfor %}"
    "{% if shout is defined and shout %}SHOUT{% endif %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)

PROMPT = 11
"""Tokens of `user:Count.|assistant:`."""


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and one for each of `WORDS`; none is special."""
    names = {name: at for at, name in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=names, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, clean_up_tokenization_spaces=False, eos_token=None
    )
    fast.chat_template = TEMPLATE
    return fast


@dataclass(frozen=True)
class Drawn:
    token: int
    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Output:
    text: str
    tokens: tuple[int, ...] = ()
    logprobs: list[Drawn] | None = None
    finish: Finish | None = None
    output_tokens: int = 0
    stopped_by: str | None = None


@dataclass
class Asked:
    """One submitted sequence."""

    prompt: list[int]
    params: SamplingParams
    tenant: str
    salt: str
    deadline_s: float | None
    cancelled: bool = False
    ended: bool = False


class Generation:
    def __init__(self, engine: ScriptedEngine, asked: Asked) -> None:
        self.prompt_tokens = len(asked.prompt)
        self.cached_tokens = engine.cached(asked)
        self._engine = engine
        self._asked = asked
        self._stopping = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Output]:
        engine, asked = self._engine, self._asked
        words = engine.words[: asked.params.max_tokens]
        try:
            for count, word in enumerate(words, 1):
                while not engine.gate.is_set() and not asked.cancelled:
                    await asyncio.sleep(0.005)
                if asked.cancelled:
                    yield Output("", finish="cancelled", output_tokens=count - 1)
                    return
                if count > engine.fails_after:
                    yield Output("", finish=engine.failure, output_tokens=count - 1)
                    return
                last = count == len(words)
                yield Output(
                    word,
                    (engine.ids[word],),
                    self._logprobs(word),
                    engine.finish(asked) if last else None,
                    count,
                    engine.stopped_by if last else None,
                )
        finally:
            asked.ended = True

    def _logprobs(self, word: str) -> list[Drawn] | None:
        most = self._asked.params.logprobs
        if most is None:
            return None
        own = self._engine.ids[word]
        others = [(own, -0.25), (own + 1, -1.5), (own + 2, float("-inf"))]
        return [Drawn(own, -0.25, others[:most])]

    def cancel(self) -> None:
        self._asked.cancelled = self._asked.cancelled or not self._asked.ended


@dataclass
class ScriptedEngine:
    """Says `words`; waits before each while `gate` is closed."""

    words: list[str] = field(default_factory=lambda: ["One", "Two", "Three", "Four"])
    refuses: RequestError | None = None
    most: int = 1 << 30
    """Requests that it takes before it refuses."""
    fails_after: int = 1 << 30
    failure: Finish = "error"
    stopped_by: str | None = None
    asked: list[Asked] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    alive: bool = True
    ids: Mapping[str, int] = field(default_factory=lambda: tokenizer().get_vocab())

    def __post_init__(self) -> None:
        self.gate.set()

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        tenant: str,
        salt: str,
        deadline_s: float | None,
    ) -> Generation:
        if self.refuses is not None and len(self.asked) >= self.most:
            raise self.refuses
        asked = Asked(prompt, params, tenant, salt, deadline_s)
        self.asked.append(asked)
        return Generation(self, asked)

    def cached(self, asked: Asked) -> int:
        """Full blocks of 16 tokens that came before under that salt."""
        before = [one for one in self.asked[:-1] if one.salt == asked.salt]
        full = (len(asked.prompt) - 1) // 16
        found = (
            at
            for at in range(full, 0, -1)
            if any(one.prompt[: 16 * at] == asked.prompt[: 16 * at] for one in before)
        )
        return 16 * next(found, 0)

    def finish(self, asked: Asked) -> Finish:
        """Why the answer ends with its last word."""
        return "length" if asked.params.max_tokens < len(self.words) else "stop"

    def stats(self) -> Any:
        raise NotImplementedError


@contextmanager
def served(engine: ScriptedEngine, context: int = 512, **options: Any) -> Iterator[str]:
    """The server of a scripted engine; its model is called `scripted`. Yields the base URL."""
    made = tokenizer()
    serving = Serving(engine, Prompts(made, context, len(made)), ("scripted",), **options)
    config = uvicorn.Config(
        EngineApp(serving), port=0, http=StallGuard, lifespan="off", log_level="critical"
    )
    with in_thread(config) as url:
        try:
            yield url
        finally:
            # The server's thread ends once its requests have.
            engine.gate.set()


def openai_client(url: str) -> Any:
    """The official SDK, which tries nothing again."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=10)


def anthropic_client(url: str) -> Any:
    """The official SDK, which tries nothing again."""
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=10)


def body(**more: Any) -> dict[str, Any]:
    """A chat of `PROMPT` tokens."""
    return {"model": "scripted", "messages": [{"role": "user", "content": "Count."}], **more}


def post(url: str, path: str, sent: Any, **headers: str) -> httpx2.Response:
    """Send it as it is, or as JSON."""
    data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    named = {"content-type": "application/json", **headers}
    return httpx2.post(url + path, content=data, headers=named, timeout=10)
