"""The engine behind HTTP: which route does what, and how each request ends.

A raw ASGI application. What it generates is the engine's matter, what it says that of the `api_`
modules; here a request is read, named, submitted, watched, and its failures are told.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from trivet import canonical
from trivet.errors import RequestError
from trivet.prefix.engine import api_tokens, http_io
from trivet.prefix.engine.access import Access
from trivet.prefix.engine.answers import FAILURES, Choice, Generation, Writer, gathered, streamed
from trivet.prefix.engine.api_chat import ChatWriter, read_chat
from trivet.prefix.engine.api_completions import CompletionsWriter, read_completions
from trivet.prefix.engine.api_errors import refuse, report
from trivet.prefix.engine.api_messages import MessagesWriter, read_messages
from trivet.prefix.engine.exposition import CONTENT_TYPE, exposition
from trivet.prefix.engine.fields import Body, refused
from trivet.prefix.engine.http_io import EVENTS, JSON, ASGIMessage, ClientGone, Receive, Send
from trivet.prefix.engine.openai_fields import Order
from trivet.prefix.engine.prompts import Prompts
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.tenants import HEADER, Caller, Epochs, caller_of
from trivet.prefix.engine.timings import Stopwatch, Timings


class Submitting(Protocol):
    """What the server needs of the engine; see `engine.Engine`."""

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        tenant: str,
        salt: str,
        deadline_s: float | None,
    ) -> Generation: ...

    def stats(self) -> Any: ...

    @property
    def alive(self) -> bool: ...


@dataclass(slots=True)
class Serving:
    """One model, and how it is served."""

    engine: Submitting
    prompts: Prompts
    names: tuple[str, ...]
    """What requests may call the model; the first is its own name."""
    aliases: frozenset[str] = frozenset()
    """Further names, which are not listed."""
    block_size: int = 16
    secret: bytes | None = None
    """Shared with the proxy that signs `X-Trivet-Tenant`."""
    signed_only: bool = False
    """Whether callers without the proxy's signature are refused; needs the secret."""
    deadline_s: float | None = None
    clock: Callable[[], float] = time.time
    draining: bool = False
    started: int = field(default_factory=lambda: int(time.time()))


Handle = Callable[[ASGIMessage, Receive, Send], Awaitable[None]]
Read = Callable[[Body, Prompts], Order]
Tell = Callable[[Body, Prompts], dict[str, Any]]

_GENERATE: dict[str, Read] = {
    "/v1/chat/completions": read_chat,
    "/v1/completions": read_completions,
    "/v1/messages": read_messages,
}
_TELL: dict[str, Tell] = {
    "/tokenize": api_tokens.tokenize,
    "/detokenize": api_tokens.detokenize,
    "/v1/messages/count_tokens": api_tokens.count_tokens,
}
_SMALL_BODY = 256 * 1024
"""Bytes that are parsed on the event loop."""
_METHOD = "method_not_allowed"
_LORA = ("lora", "lora_name", "lora_request", "adapter")


class EngineApp:
    """A caller that leaves ends its generations; each request ends with all of them ended."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.timings = Timings()
        self.refused: Counter[str] = Counter()
        """Requests that were turned away, by code: all codes are of this package."""
        self._access = Access(serving.secret, serving.signed_only, serving.clock)
        self._bodies = http_io.Bodies()
        self._epochs = Epochs()
        self._posted: dict[str, Handle] = {
            **dict.fromkeys(_GENERATE, self._generate),
            **dict.fromkeys(_TELL, self._tell),
            "/trivet/purge": self._purge,
        }

    async def __call__(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        try:
            await self._route(scope)(scope, receive, send)
        except ClientGone:
            return
        except RequestError as error:
            if error.code not in FAILURES:
                self.refused[error.code or "invalid_request"] += 1
            await self._refuse(send, scope["path"], error)
        except _BrokenOff:
            # uvicorn closes the connection of a reply that is left unfinished: a part of an answer
            # must not look like a whole one.
            return
        except Exception as defect:
            # The last boundary before the server.
            report(defect)
            told = RequestError(500, "The engine failed on this request; its log says where.")
            await self._refuse(send, scope["path"], told)

    async def _refuse(self, send: Send, path: str, error: RequestError) -> None:
        allow = b"POST" if path in self._posted else b"GET"
        await refuse(send, error, anthropic=path.startswith("/v1/messages"), allow=allow)

    def _route(self, scope: ASGIMessage) -> Handle:
        path, method = scope["path"], scope["method"]
        posted = self._posted.get(path)
        if posted is not None:
            if method != "POST":
                raise RequestError(405, f"{path} takes POST, not {method}.", code=_METHOD)
            return posted
        if path not in ("/health", "/healthz", "/metrics", "/v1/models") and not (
            path.startswith("/v1/models/")
        ):
            raise RequestError(404, f"This engine has no {path}.", code="not_found")
        if method != "GET":
            raise RequestError(405, f"{path} takes GET, not {method}.", code=_METHOD)
        return self._show

    async def _generate(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        began = self.timings.clock()
        read, serving = _GENERATE[scope["path"]], self.serving
        raw, body = await self._read(receive)
        signed = http_io.header(scope, HEADER)
        self._access.check_signed(scope, raw)
        caller = caller_of(
            signed, body.get("cache_salt"), raw, serving.secret, serving.clock(), self._epochs
        )
        model = self._model(body.get("model"))
        watch = asyncio.create_task(http_io.gone(receive))
        try:
            order = await asyncio.to_thread(read, body, serving.prompts)
            if not watch.done():
                writer = _writer(read, model, order, serving)
                await self._answer(_Asked(order, writer, caller, began), send, watch)
        finally:
            watch.cancel()

    async def _answer(self, asked: _Asked, send: Send, watch: asyncio.Task[None]) -> None:
        choices: list[Choice] = []
        writer = asked.writer
        try:
            self._submit(asked, choices)
            watch.add_done_callback(lambda _: _cancel(choices))
            headers = [(writer.id_header.encode(), f"req_{secrets.token_hex(12)}".encode())]
            if asked.order.stream:
                await _stream(choices, writer, send, headers)
            else:
                await gathered(choices)
                # Thousands of log probabilities take their time.
                whole = await asyncio.to_thread(writer.whole, choices)
                await http_io.reply(send, 200, whole, [*JSON, *headers])
        finally:
            _cancel(choices)

    def _submit(self, asked: _Asked, choices: list[Choice]) -> None:
        serving, order = self.serving, asked.order
        if serving.draining:
            raise RequestError(503, "The engine is shutting down.", code="draining")
        for number, prompt in enumerate(order.prompts):
            room = serving.prompts.context - len(prompt)
            for choice in range(order.choices):
                try:
                    generation = serving.engine.submit(
                        prompt,
                        order.drawn(choice, room),
                        tenant=asked.caller.tenant,
                        salt=asked.caller.salt,
                        deadline_s=serving.deadline_s,
                    )
                except RequestError as error:
                    if error.status == 400 and error.field is None:
                        error.field = order.field
                    elif error.field == "response_format":
                        error.field = order.schema_field
                    raise
                timed = Stopwatch(self.timings, asked.began)
                choices.append(Choice(len(choices), number, generation, timed))

    async def _tell(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        raw, body = await self._read(receive)
        # The proxy may pass such a body on as it comes, and signs it as an empty one then.
        self._access.check_signed(scope, raw, b"")
        if body.get("model") is not None:
            self._model(body["model"])
        told = await asyncio.to_thread(_TELL[scope["path"]], body, self.serving.prompts)
        await http_io.reply(send, 200, canonical_json(told), JSON)

    async def _purge(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        """The signed tenant never again finds what it kept."""
        raw, _ = await self._read(receive)
        signed = http_io.header(scope, HEADER)
        if signed is None:
            raise RequestError(401, f"{HEADER} is missing.", field=HEADER, code="invalid_signature")
        serving = self.serving
        tenant = caller_of(signed, None, raw, serving.secret, serving.clock()).tenant
        self._epochs.purge(tenant)
        told = {"tenant": tenant, "purges": self._epochs.of(tenant)}
        await http_io.reply(send, 200, canonical_json(told), JSON)

    async def _show(self, scope: ASGIMessage, receive: Receive, send: Send) -> None:
        path, serving = scope["path"], self.serving
        if path == "/metrics":
            if http_io.header(scope, HEADER) is not None:
                # A tenant asks through the proxy: the figures name the other tenants.
                raise RequestError(404, f"This engine has no {path}.", code="not_found")
            self._access.check_bearer(scope)
            text = await asyncio.to_thread(
                exposition, serving.engine.stats(), self.timings, self.refused
            )
            await http_io.reply(send, 200, text, [(b"content-type", CONTENT_TYPE.encode())])
        elif path.startswith("/health"):
            status = "draining" if serving.draining else "ok" if serving.engine.alive else "failed"
            told = {"status": status, "model": serving.names[0]}
            headers = [*JSON, *self._access.proven(scope)]
            await http_io.reply(send, 200 if status == "ok" else 503, orjson.dumps(told), headers)
        elif path == "/v1/models":
            self._access.check_signed(scope, b"")
            models = {"object": "list", "data": [self._shown(name) for name in serving.names]}
            await http_io.reply(send, 200, orjson.dumps(models), JSON)
        else:
            self._access.check_signed(scope, b"")
            name = self._model(path.removeprefix("/v1/models/"))
            await http_io.reply(send, 200, orjson.dumps(self._shown(name)), JSON)

    def _shown(self, name: str) -> dict[str, Any]:
        serving = self.serving
        told = {"id": name, "object": "model", "created": serving.started, "owned_by": "trivet"}
        return {**told, "root": serving.names[0], "max_model_len": serving.prompts.context}

    async def _read(self, receive: Receive) -> tuple[bytes, dict[str, Any]]:
        raw = await self._bodies.read(receive)
        if len(raw) <= _SMALL_BODY:
            body = canonical.parse(raw)
        else:
            body = await asyncio.to_thread(canonical.parse, raw)
        if not isinstance(body, dict):
            raise RequestError(400, "The body must be a JSON object.")
        for name in _LORA:
            if body.get(name) is not None:
                raise refused(name, "is not known here: this engine has no LoRA adapters")
        return raw, body

    def _model(self, name: Any) -> str:
        if not isinstance(name, str):
            raise refused("model", "is the name of the model, a text")
        if name not in self.serving.names and name not in self.serving.aliases:
            served = ", ".join(self.serving.names)
            message = f"The model {name!r} is not served here; {served} is."
            raise RequestError(404, message, field="model", code="model_not_found")
        return name


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request to generate: what, how it is told, for whom, and when it came."""

    order: Order
    writer: Writer
    caller: Caller
    began: float


class _BrokenOff(Exception):  # noqa: N818 - an event
    """A stream ended before its answer did."""


def _writer(read: Read, model: str, order: Order, serving: Serving) -> Writer:
    if read is read_messages:
        return MessagesWriter(model, serving.block_size)
    made = ChatWriter if read is read_chat else CompletionsWriter
    return made(model, order, serving.prompts.spell)


async def _stream(
    choices: Sequence[Choice], writer: Writer, send: Send, headers: http_io.Headers
) -> None:
    async with aclosing(streamed(choices, writer)) as events:
        first = await anext(events)
        await http_io.start(send, 200, [*EVENTS, *headers])
        await http_io.piece(send, first, more=True)
        try:
            async for event in events:
                await http_io.piece(send, event, more=True)
        except RequestError as failed:
            await http_io.piece(send, writer.broken(failed), more=True)
            raise _BrokenOff from None
        await http_io.piece(send, b"", more=False)


def _cancel(choices: Sequence[Choice]) -> None:
    for choice in choices:
        choice.generation.cancel()


def canonical_json(value: Any) -> bytes:
    """JSON, also of texts that orjson cannot write: what a vocabulary spells may be no UTF-8."""
    return canonical.dump(value).removeprefix(b"\x00")
