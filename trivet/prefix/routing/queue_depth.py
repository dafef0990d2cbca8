"""How many requests a server has, read out of its metrics.

Names as the servers expose them: vLLM 0.32 and SGLang 0.5.23 (production metrics in their docs),
llama.cpp's server README (`--metrics`), and our engine's `exposition.py`. TensorRT-LLM's
`trtllm-serve` (nvidia.github.io/TensorRT-LLM/commands/trtllm-serve.html) tells its queue as JSON of
iterations at `/metrics`, of which only the newest counts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RUNNING: Final = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "trivet_engine_requests_running",
)
_WAITING: Final = (
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "llamacpp:requests_deferred",
    "trivet_engine_requests_waiting",
)
_SAMPLE: Final = re.compile(
    rf"^({'|'.join((*_RUNNING, *_WAITING))})(?:\{{[^\n]*\}})? ([0-9.eE+-]+)", re.MULTILINE
)
_ACTIVE: Final = re.compile(r'"numActiveRequests": ?([0-9]+)')
_QUEUED: Final = re.compile(r'"numQueuedRequests": ?([0-9]+)')


class QueueDepth(NamedTuple):
    """Requests at a server."""

    running: int
    waiting: int


def queue_depth(text: str) -> QueueDepth | None:
    """What a `/metrics` body tells; series of several engines add up. None if it tells nothing."""
    if text.lstrip()[:1] in ("[", "{"):
        active, queued = _ACTIVE.findall(text), _QUEUED.findall(text)
        return QueueDepth(int(active[-1]), int(queued[-1]) if queued else 0) if active else None
    running = waiting = 0.0
    found = False
    for name, value in _SAMPLE.findall(text):
        try:
            number = float(value)
        except ValueError:
            continue
        if not 0 <= number < 1e9:
            continue
        found = True
        if name in _RUNNING:
            running += number
        else:
            waiting += number
    return QueueDepth(int(running), int(waiting)) if found else None
