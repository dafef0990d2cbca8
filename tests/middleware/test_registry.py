"""Which path speaks which API."""

from __future__ import annotations

import pytest

from trivet.messages import Api
from trivet.middleware.dialects.registry import dialect_of, route_of, voice_of


@pytest.mark.parametrize(
    ("path", "api", "family"),
    [
        ("/chat/completions", Api.CHAT, "openai"),
        ("/completions", Api.COMPLETIONS, "openai"),
        ("/responses", Api.RESPONSES, "openai"),
        ("/embeddings", Api.EMBEDDINGS, "openai"),
        ("/messages", Api.MESSAGES, "anthropic"),
    ],
)
def test_each_api_has_its_path_with_or_without_v1(path: str, api: Api, family: str) -> None:
    for written in (path, "/v1" + path):
        route = route_of(written)
        assert route is not None
        assert (route.api, route.family) == (api, family)


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/",
        "",
        "/v1/v1/messages",
        "/v2/messages",
        "/v1/messages/",
        "/v1/messages/count_tokens",
    ],
)
def test_any_other_path_passes_through(path: str) -> None:
    assert route_of(path) is None


@pytest.mark.parametrize(
    ("path", "header", "family"),
    [
        ("/v1/models", False, "openai"),
        ("/v1/models", True, "anthropic"),
        ("/v1/messages/batches", False, "anthropic"),
        ("/messages/count_tokens", False, "anthropic"),
    ],
)
def test_a_path_without_a_route_is_answered_as_its_caller_speaks(
    path: str, header: bool, family: str
) -> None:
    voice, found = voice_of(path, header)
    assert found == family
    assert voice.api is (Api.MESSAGES if family == "anthropic" else Api.CHAT)


def test_every_api_has_a_dialect() -> None:
    assert {api: dialect_of(api).api for api in Api} == {
        **{api: api for api in Api},
        Api.EMBEDDINGS: Api.CHAT,
    }
