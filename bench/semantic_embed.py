"""The semantic tier's embedding: a query's vector, as a ratio to the bare model's call."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator

from bench.load import BenchError
from bench.measure import Effort
from bench.processes import Bench
from bench.report import Row


async def embedding(bench: Bench, effort: Effort) -> AsyncIterator[Row]:
    """Target: p50 of a query of 13 tokens under 1.2 times the bare onnxruntime call."""
    count = 20 if effort.quick else 60
    with tempfile.TemporaryDirectory(prefix="trivet-embed-") as state:
        command = [sys.executable, "-m", "bench.embed_speed", str(count), state]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(done.stderr[-500:])
    found: dict[str, float] = json.loads(done.stdout)
    section = "embedding, default model, 13 tokens, one core"
    ms = {name: found[f"{name}_s"] * 1e3 for name in ("bare", "direct", "batched", "seen")}
    detail = f"p50 {ms['batched']:.2f} ms, bare {ms['bare']:.2f} ms, direct {ms['direct']:.2f} ms"
    name = "a new text through queue and thread, to the bare call"
    yield Row(section, name, found["batched_ratio"], "x", "<=", 1.2, detail)
    name = "a text that was seen before, to the bare call"
    yield Row(section, name, found["seen_ratio"], "x", detail=f"p50 {ms['seen'] * 1e3:.0f} us")
