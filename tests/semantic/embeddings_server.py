"""A small OpenAI-compatible embeddings server that can be made to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stand_ins import vector_of

from trivet.semantic.endpoint_embedder import EndpointEmbedder

Reply = Callable[[dict[str, Any]], "tuple[int, Any]"]


def good(body: dict[str, Any]) -> tuple[int, Any]:
    """One item for each text, last first: the index says which is which."""
    data = [
        {
            "index": n,
            "object": "embedding",
            "embedding": [3 * float(v) for v in vector_of(text, 64)],
        }
        for n, text in enumerate(body["input"])
    ]
    return 200, {"object": "list", "data": data[::-1], "model": body["model"]}


class EmbeddingsServer:
    """`reply` makes each answer; `asked` and `headers` hold what came."""

    def __init__(self) -> None:
        self.reply: Reply = good
        self.delay_s = 0.0
        self.close_after = False
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.url = ""
        self.clients: list[EndpointEmbedder] = []
        """Closed with the server."""


@contextmanager
def embeddings_server(port: int = 0) -> Iterator[EmbeddingsServer]:
    """Serve on a port, or on a free one, until the block ends."""
    state = EmbeddingsServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            state.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append(body)
            state.headers.append(dict(self.headers))
            state.paths.append(self.path)
            status, answer = state.reply(body)
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            half = len(raw) // 2
            with suppress(ConnectionError):  # The client may have given up.
                for piece in (raw[:half], raw[half:]):
                    time.sleep(state.delay_s / 2)
                    self.wfile.write(piece)
            # Without saying so first: what an idle timeout looks like to the client.
            self.close_connection = state.close_after

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        for client in state.clients:
            client.close()
        server.shutdown()
        thread.join()
        server.server_close()
