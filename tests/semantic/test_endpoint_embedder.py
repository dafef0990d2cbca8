"""An embeddings endpoint, good and bad."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embeddings_server import EmbeddingsServer, embeddings_server, good
from stand_ins import vector_of

from trivet.errors import EmbedderError
from trivet.semantic.endpoint_embedder import EndpointEmbedder


@pytest.fixture
def server() -> Iterator[EmbeddingsServer]:
    with embeddings_server() as made:
        yield made


def opened(
    server: EmbeddingsServer,
    cache: Path | None = None,
    timeout_s: float = 60.0,
    env: dict[str, str] | None = None,
    path: str = "",
    model: str = "m",
) -> EndpointEmbedder:
    url = server.url + path
    made = EndpointEmbedder(url, model, cache, timeout_s=timeout_s, env=env or {})
    server.clients.append(made)
    return made


def reason(server: EmbeddingsServer, embedder: EndpointEmbedder, texts: str = "ab") -> str:
    with pytest.raises(EmbedderError) as caught:
        embedder.embed(list(texts))
    return caught.value.reason


def test_vectors_come_in_order_and_normalised(server: EmbeddingsServer) -> None:
    embedder = opened(server)
    assert embedder.dimension == 64
    vectors = embedder.embed(["one", "two", "three"])
    assert np.allclose(vectors, [vector_of(text, 64) for text in ("one", "two", "three")])
    assert vectors.dtype == np.float32
    assert embedder.embed([]).shape == (0, 64)


def test_many_texts_go_in_several_calls_over_one_connection(server: EmbeddingsServer) -> None:
    embedder = opened(server)
    server.asked.clear()
    assert embedder.embed([str(n) for n in range(130)]).shape == (130, 64)
    assert [len(asked["input"]) for asked in server.asked] == [64, 64, 2]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("env", "sent"),
    [
        ({}, None),
        ({"OPENAI_API_KEY": "a"}, "Bearer a"),
        ({"OPENAI_API_KEY": "a", "TRIVET_EMBEDDER_KEY": "b"}, "Bearer b"),
    ],
)
def test_the_key_comes_from_the_environment(
    server: EmbeddingsServer, env: dict[str, str], sent: str | None
) -> None:
    opened(server, env=env)
    assert server.headers[0].get("Authorization") == sent


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/embeddings"])
def test_the_url_is_with_or_without_the_closing_v1(server: EmbeddingsServer, path: str) -> None:
    opened(server, path=path)
    assert set(server.paths) == {"/v1/embeddings"}


def test_a_connection_that_the_server_closed_is_opened_again(server: EmbeddingsServer) -> None:
    server.close_after = True
    embedder = opened(server)
    for _ in range(3):
        assert embedder.embed(["a"]).shape == (1, 64)


def test_long_texts_are_cut_and_lone_surrogates_replaced(server: EmbeddingsServer) -> None:
    embedder = opened(server)
    server.asked.clear()
    embedder.embed(["a" * 100_000, "\ud800"])
    assert [len(text) for text in server.asked[0]["input"]] == [8192, 1]


def _with(data: list[Any]) -> dict[str, Any]:
    return {"data": data}


def _item(index: int, vector: Any) -> dict[str, Any]:
    return {"index": index, "embedding": vector}


_UNIT = [1.0] + [0.0] * 63


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (200, _with([_item(0, _UNIT)]), "shape"),
        (200, _with([_item(0, _UNIT)] * 2), "shape"),
        (200, _with([_item(n, _UNIT) for n in range(3)]), "shape"),
        (200, _with([_item(n, _UNIT[:63]) for n in range(2)]), "shape"),
        (200, _with([_item(0, _UNIT), _item(1, _UNIT[:9])]), "shape"),
        (200, _with([_item(n, "AAAA") for n in range(2)]), "shape"),
        (200, _with([_item(n, None) for n in range(2)]), "shape"),
        (200, _with([_item(n, [float("nan")] * 64) for n in range(2)]), "not-finite"),
        (200, _with([_item(n, [float("inf")] * 64) for n in range(2)]), "not-finite"),
        (200, _with([_item(n, [0.0] * 64) for n in range(2)]), "not-finite"),
        (200, _with([_item(n, [10**400] * 64) for n in range(2)]), "shape"),
        (200, _with([_item(n, [1e200] * 64) for n in range(2)]), "not-finite"),
        (200, b'{"data": [{"index": 1e999, "embedding": []}]}', "shape"),
        (200, b"[" * 100_000, "endpoint"),
        (200, {"error": "no"}, "shape"),
        (200, [], "shape"),
        (200, b"<html>", "endpoint"),
        (200, b"", "endpoint"),
        (500, b"oops", "endpoint"),
        (429, b"slow down", "endpoint"),
        (302, b"", "endpoint"),
        (401, b"", "auth"),
        (403, b"", "auth"),
        (400, {"error": "too long"}, "text"),
    ],
)
def test_what_is_not_good_is_an_embedder_error(
    server: EmbeddingsServer, status: int, answer: Any, expected: str
) -> None:
    embedder = opened(server)
    server.reply = lambda body: (status, answer)
    assert reason(server, embedder) == expected
    server.reply = good
    assert embedder.embed(["a"]).shape == (1, 64)


def test_a_slow_endpoint_is_a_timeout(server: EmbeddingsServer) -> None:
    embedder = opened(server, timeout_s=1.0)
    server.delay_s = 1.6
    assert reason(server, embedder) == "timeout"


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with pytest.raises(EmbedderError, match=r"127\.0\.0\.1:1 did not answer") as caught:
        EndpointEmbedder("http://127.0.0.1:1", "m", env={})
    assert caught.value.reason == "endpoint"


@pytest.mark.parametrize("url", ["ftp://host", "host/v1", "http://", "http://host:port"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(EmbedderError) as caught:
        EndpointEmbedder(url, "m", env={})
    assert caught.value.reason == "missing"


def test_the_key_is_in_no_error(server: EmbeddingsServer) -> None:
    embedder = opened(server, env={"OPENAI_API_KEY": "sk-hidden"})
    server.reply = lambda body: (401, b"")
    with pytest.raises(EmbedderError) as caught:
        embedder.embed(["a"])
    assert "sk-hidden" not in str(caught.value)


def nearly(body: dict[str, Any]) -> tuple[int, Any]:
    status, answer = good(body)
    for item in answer["data"]:
        item["embedding"] = [value * 1.5 + 1e-3 for value in item["embedding"]]
    return status, answer


def another(body: dict[str, Any]) -> tuple[int, Any]:
    return good({**body, "input": [f"{text}!" for text in body["input"]]})


def test_rounding_leaves_the_fingerprint_as_it_is(server: EmbeddingsServer, tmp_path: Path) -> None:
    first = opened(server, tmp_path)
    server.reply = nearly
    assert first.fingerprint_now() == first.fingerprint
    assert opened(server, tmp_path).fingerprint == first.fingerprint


def test_a_silently_changed_model_changes_the_fingerprint(
    server: EmbeddingsServer, tmp_path: Path
) -> None:
    first = opened(server, tmp_path)
    server.reply = another
    assert first.fingerprint_now() != first.fingerprint
    assert opened(server, tmp_path).fingerprint != first.fingerprint
    assert opened(server).fingerprint != first.fingerprint


def test_two_machines_have_one_fingerprint(server: EmbeddingsServer, tmp_path: Path) -> None:
    one, other = opened(server, tmp_path / "one"), opened(server, tmp_path / "two")
    assert one.fingerprint == other.fingerprint


def test_another_model_or_url_is_another_fingerprint(server: EmbeddingsServer) -> None:
    three = (opened(server), opened(server, model="n"), opened(server, path="/v1"))
    assert len({embedder.fingerprint for embedder in three}) == 3


def test_one_that_cannot_be_opened_leaves_no_connection(server: EmbeddingsServer) -> None:
    server.reply = lambda body: (200, _with([_item(0, "AAAA")]))
    with pytest.raises(EmbedderError) as caught:
        opened(server)
    assert caught.value.reason == "shape"
