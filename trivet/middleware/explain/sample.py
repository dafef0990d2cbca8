"""A request out of a file, for `trivet explain`: a bare body, or path, headers and body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.messages import Api

PATHS = {
    Api.CHAT: "/v1/chat/completions",
    Api.RESPONSES: "/v1/responses",
    Api.COMPLETIONS: "/v1/completions",
    Api.EMBEDDINGS: "/v1/embeddings",
    Api.MESSAGES: "/v1/messages",
}
_MEMBERS = frozenset(("path", "headers", "body"))
_ANTHROPIC = frozenset(("system", "stop_sequences", "thinking", "output_config", "top_k"))
_EMBEDDINGS = frozenset(("encoding_format", "dimensions"))


@dataclass(frozen=True, slots=True)
class Sample:
    """One request as it would arrive."""

    api: Api
    guessed: bool
    """The file gave no path: `api` was told by the body's fields."""
    path: str
    query: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers as ASGI gives them."""
        return tuple(
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in self.headers.items()
        )


def read_sample(raw: bytes) -> Sample:
    """Read a request file. Raises `RequestError` for what is neither of the two forms."""
    given = canonical.parse(raw)
    if type(given) is not dict:
        raise RequestError(400, "A request file holds a JSON object.")
    if type(given.get("body")) is not dict:
        api = _guess(given, {})
        return Sample(api, True, PATHS[api], "", {}, raw)
    unknown = sorted(given.keys() - _MEMBERS)
    if unknown:
        raise RequestError(
            400,
            f"{unknown[0]!r} is not known in a request file: it has path, headers and body.",
            field=unknown[0],
        )
    headers = _headers(given.get("headers"))
    body = canonical.dump(given["body"]).removeprefix(b"\x00")
    path = given.get("path")
    if path is None:
        api = _guess(given["body"], headers)
        return Sample(api, True, PATHS[api], "", headers, body)
    where, _, query = _path(path).partition("?")
    return Sample(_api_of(where), False, where, query, headers, body)


def _headers(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if type(given) is not dict or not all(type(value) is str for value in given.values()):
        raise RequestError(400, "'headers' has to map names to text.", field="headers")
    return {name.lower(): value for name, value in given.items()}


def _path(given: Any) -> str:
    if type(given) is not str:
        raise RequestError(400, "'path' has to be text.", field="path")
    return given


def _api_of(path: str) -> Api:
    for api, known in PATHS.items():
        if path in (known, known.removeprefix("/v1")):
            return api
    raise RequestError(
        400,
        f"{path} passes through without a cache. Cached paths: {', '.join(PATHS.values())}.",
        field="path",
    )


def _guess(body: dict[str, Any], headers: dict[str, str]) -> Api:
    model = str(body.get("model"))
    if "messages" in body:
        anthropic = (
            "anthropic-version" in headers
            or bool(_ANTHROPIC & body.keys())
            or (model.startswith("claude") and "max_tokens" in body)
        )
        return Api.MESSAGES if anthropic else Api.CHAT
    if "input" in body:
        embeds = "embed" in model.lower() or bool(_EMBEDDINGS & body.keys())
        return Api.EMBEDDINGS if embeds else Api.RESPONSES
    if type(body.get("prompt")) is dict or "previous_response_id" in body:
        return Api.RESPONSES
    if "prompt" in body:
        return Api.COMPLETIONS
    raise RequestError(
        400, "No API takes this body: it has neither messages, input nor prompt.", field="body"
    )
