"""Runs the mock upstream: as a program, or in a thread beside a test."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from trivet.listening import BACKLOG, listen, url_of
from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.simulators import base_urls, routes_of


def run(
    host: str, port: int, delay_ms: int, json_lines: bool = False, provider: str | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; port 0 takes a free one. Blocks. With a `provider`, as the
    simulator of its API and cache.

    Says when it is up, with the base URL for each SDK, in a line of JSON if `json_lines`. Raises
    `ConfigError` when the port cannot be had.
    """
    listener = listen(host, port, "--port", "trivet upstream")
    url = url_of(listener)
    app = MockUpstream(delay_ms, routes_of(provider, delay_ms))
    urls = base_urls(url, provider)
    notice = {"event": "upstream-started", "url": url, "model": False, "notice": app.notice}
    shown = [app.notice, f"Listening on {url}"]
    shown += [f"Base URL for {sdk}: {one}" for sdk, one in urls.items()]
    print(json.dumps({**notice, "base_urls": urls}) if json_lines else "\n".join(shown), flush=True)
    server = uvicorn.Server(_config(app))
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        print("The mock upstream stopped.", file=sys.stderr)
    finally:
        listener.close()


@contextmanager
def running(delay_ms: int = 0, provider: str | None = None) -> Iterator[tuple[str, MockUpstream]]:
    """Serve on a free port of 127.0.0.1, in a thread of its own.

    Yields the base URL without `/v1`, and the application, whose `calls` may be read at any time.
    """
    app = MockUpstream(delay_ms, routes_of(provider, delay_ms))
    listener = listen("127.0.0.1", 0, "--port", "trivet upstream")
    server = uvicorn.Server(_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield url_of(listener), app
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listener.close()


def _config(app: MockUpstream) -> uvicorn.Config:
    # An answer that is cut on command makes uvicorn log an error, which here is none.
    return uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=2,
    )
