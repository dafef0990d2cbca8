"""Where a request's base URL ends and the API's path begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.library.address import Address, address_of, declared_at, name_of
from trivet.middleware.running.config import UpstreamConfig

ORIGIN = "https://api.example.com"


CLOUDFLARE = "/v1/account/gateway/openai"
AZURE = "/openai/deployments/gpt"


@pytest.mark.parametrize(
    ("root", "rest"),
    [
        ("", "/v1/chat/completions"),
        ("", "/chat/completions"),
        ("", "/messages"),
        ("/openai", "/v1/responses"),
        ("/v1beta/openai", "/chat/completions"),
        (AZURE, "/chat/completions"),
        (AZURE, "/embeddings"),
        (CLOUDFLARE, "/chat/completions"),
        ("/anthropic", "/v1/messages"),
        ("", "/v1/models"),
        ("/openai", "/v1/files/f"),
        ("", "/v1beta/models/gemini:generateContent"),
        ("", "/"),
        ("", ""),
    ],
)
def test_the_base_url_is_what_stands_before_the_api(root: str, rest: str) -> None:
    assert address_of(ORIGIN, root + rest) == Address(ORIGIN + root, rest)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/threads/thread_1/messages",
        "/openai/threads/thread_1/messages",
        "/v1/agents/completions",
        "/v1/fim/completions",
    ],
)
def test_another_api_whose_path_ends_in_a_known_word_stays_whole(path: str) -> None:
    assert address_of(ORIGIN, path) == Address(ORIGIN, path)


@given(st.lists(st.sampled_from(["v1", "chat", "completions", "messages", "responses", "x", ""])))
def test_root_and_path_are_always_the_url(words: list[str]) -> None:
    path = "/" + "/".join(words)
    root, rest = address_of(ORIGIN, path)
    assert root + rest == ORIGIN + path
    assert rest.startswith("/")


def upstream(name: str, url: str) -> UpstreamConfig:
    return UpstreamConfig(name=name, base_url=url)


def test_the_longest_declared_base_url_wins() -> None:
    short, long = upstream("a", "https://h/x"), upstream("b", "https://h/x/y/v1")
    found = declared_at(Address("https://h", "/x/y/v1/models"), (short, long))
    assert found == (long, "/v1/models")


def test_a_base_url_ends_at_a_slash() -> None:
    assert (
        declared_at(Address("https://h", "/xy/v1/models"), (upstream("a", "https://h/x"),)) is None
    )


def test_a_declared_base_url_is_compared_as_url_not_as_text() -> None:
    one = upstream("a", "https://API.Example.com:443/v1")
    assert declared_at(Address("https://api.example.com", "/v1/models"), (one,)) == (
        one,
        "/v1/models",
    )


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("https://api.openai.com", "openai"),
        ("https://api.anthropic.com", "anthropic"),
        ("http://127.0.0.1:9000", "127.0.0.1"),
        ("http://[::1]:9000", "1"),
        ("http://" + "a" * 99, "a" * 64),
    ],
)
def test_an_upstream_is_named_after_its_host(root: str, name: str) -> None:
    assert name_of(root) == name
    UpstreamConfig(name=name_of(root), base_url=root)
