"""Shapes as the servers expose them: vLLM 0.32 and llama.cpp 11434 read from running servers,
SGLang's from docs/advanced_features/observability.md of 0.5.23, TensorRT-LLM's from
docs/source/commands/trtllm-serve, our engine's from its own exposition."""

from __future__ import annotations

import pytest

from trivet.prefix.engine.engine_stats import EngineStats
from trivet.prefix.routing.queue_depth import QueueDepth, queue_depth

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 9.0
"""
SGLANG = """sglang:num_running_reqs{model_name="m"} 162.0
sglang:num_used_tokens{model_name="m"} 123859.0
sglang:num_queue_reqs{model_name="m"} 2826.0
"""
LLAMA = """llamacpp:requests_processing 1
llamacpp:requests_deferred 4
"""
TENSORRT = '[{"gpuMemUsage": 1, "numActiveRequests": 2, "numQueuedRequests": 5}]'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (VLLM, (5, 7)),
        (SGLANG, (162, 2826)),
        (LLAMA, (1, 4)),
        (TENSORRT, (2, 5)),
        ("trivet_engine_requests_running 2.0\ntrivet_engine_requests_waiting 1.0\n", (2, 1)),
    ],
)
def test_each_server_is_read(text: str, told: tuple[int, int]) -> None:
    assert queue_depth(text) == QueueDepth(*told)


@pytest.mark.parametrize("text", ["", "up 1\n", "[]", "{}", "vllm:num_requests_running e\n", "\0"])
def test_what_tells_nothing_is_none(text: str) -> None:
    assert queue_depth(text) is None


def test_figures_that_no_queue_has_are_left_out() -> None:
    assert queue_depth("llamacpp:requests_processing 1e300\n") is None
    assert queue_depth("llamacpp:requests_processing -1\n") is None


def test_our_engine_has_the_figures_it_is_read_by() -> None:
    assert {"running", "waiting"} <= set(EngineStats.__dataclass_fields__)
