"""A real nginx in front of the proxy."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from proxy import Proxy, free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
_CONFIG = """\
user root;
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {http}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      {location}
    }}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, proxy: Proxy, location: str, http: str = "") -> Iterator[Proxy]:
    """nginx with these lines in its `location /`, and in `http` before it, as the proxy's callers
    see it. The lines name the proxy themselves."""
    assert NGINX is not None
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port, location=location, http=http))
    command = [NGINX, "-c", str(config), "-p", str(folder), "-e", str(folder / "error.log")]
    with subprocess.Popen(command) as process:
        try:
            _await(port, process)
            yield replace(proxy, url=f"http://127.0.0.1:{port}")
        finally:
            process.terminate()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 15
    while True:
        assert process.poll() is None, "nginx ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)
