import builtins
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes
from opentelemetry.trace import SpanKind, StatusCode

from trivet.errors import ConfigError
from trivet.messages import Api, Usage
from trivet.middleware.observe import tracing
from trivet.middleware.observe.tracing import TracingObserver, attributes, otlp_observer
from trivet.telemetry import Event, RequestDone, StoreState

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def done(**changes: Any) -> RequestDone:
    event = RequestDone(
        tenant="acme",
        api=Api.CHAT,
        model="gpt-4o",
        upstream="openai",
        status=200,
        stream=False,
        tier=None,
        outcome="miss",
        reason="",
        total_s=0.5,
        upstream_s=0.25,
        first_byte_s=0.375,
        request_bytes=4096,
        response_bytes=1020,
        usage=Usage(100, 20, 40, 8),
        stored=True,
        received_ns=1_000_000_000,
    )
    return event._replace(**changes)


def spans(*events: Event) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = TracingObserver(provider)
    for event in events:
        observer(event)
    return list(exporter.get_finished_spans())


def span(**changes: Any) -> ReadableSpan:
    (only,) = spans(done(**changes))
    return only


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (tracing.OPERATION_NAME, gen_ai_attributes.GEN_AI_OPERATION_NAME),
        (tracing.PROVIDER_NAME, gen_ai_attributes.GEN_AI_PROVIDER_NAME),
        (tracing.REQUEST_MODEL, gen_ai_attributes.GEN_AI_REQUEST_MODEL),
        (tracing.REQUEST_STREAM, gen_ai_attributes.GEN_AI_REQUEST_STREAM),
        (tracing.RESPONSE_MODEL, gen_ai_attributes.GEN_AI_RESPONSE_MODEL),
        (tracing.TIME_TO_FIRST_CHUNK, gen_ai_attributes.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK),
        (tracing.INPUT_TOKENS, gen_ai_attributes.GEN_AI_USAGE_INPUT_TOKENS),
        (tracing.OUTPUT_TOKENS, gen_ai_attributes.GEN_AI_USAGE_OUTPUT_TOKENS),
        (tracing.CACHE_READ_TOKENS, gen_ai_attributes.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS),
        (tracing.CACHE_WRITE_TOKENS, gen_ai_attributes.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS),
        (tracing.STATUS_CODE, http_attributes.HTTP_RESPONSE_STATUS_CODE),
        (tracing.ERROR_TYPE, error_attributes.ERROR_TYPE),
    ],
)
def test_a_name_is_the_one_of_the_semantic_conventions(ours: str, theirs: str) -> None:
    assert ours == theirs


def test_operations_and_providers_are_values_of_the_conventions() -> None:
    operations = {item.value for item in gen_ai_attributes.GenAiOperationNameValues}
    providers = {item.value for item in gen_ai_attributes.GenAiProviderNameValues}
    for api in Api:
        made = attributes(done(api=api))
        assert made[tracing.OPERATION_NAME] in operations
        assert made[tracing.PROVIDER_NAME] in providers


def test_a_request_is_a_span_with_the_times_that_it_took() -> None:
    made = span()
    assert made.name == "chat gpt-4o"
    assert made.kind is SpanKind.SERVER
    assert (made.start_time, made.end_time) == (1_000_000_000, 1_500_000_000)
    assert made.parent is None
    assert made.status.status_code is StatusCode.UNSET


def test_a_request_of_unknown_arrival_ends_about_now_and_lasted_as_long() -> None:
    made = span(received_ns=0)
    assert made.start_time is not None
    assert made.end_time is not None
    assert made.end_time - made.start_time == 500_000_000
    assert made.start_time > 1_000_000_000


def test_the_callers_trace_is_continued() -> None:
    made = span(traceparent=f"00-{TRACE}-{PARENT}-01")
    assert made.parent is not None
    assert made.context is not None
    assert format(made.context.trace_id, "032x") == TRACE
    assert format(made.parent.span_id, "016x") == PARENT


def test_a_trace_that_the_caller_does_not_sample_is_not_recorded() -> None:
    assert spans(done(traceparent=f"00-{TRACE}-{PARENT}-00")) == []


@pytest.mark.parametrize("traceparent", ["", "garbage", "00-0-0-01", "\ud800", "00" * 10_000])
def test_a_malformed_traceparent_starts_a_trace_of_its_own(traceparent: str) -> None:
    assert span(traceparent=traceparent).parent is None


def test_an_answer_of_the_upstream_carries_its_usage() -> None:
    made = span(response_model="gpt-4o-2024-11-20").attributes
    assert made is not None
    assert made[tracing.INPUT_TOKENS] == 100
    assert made[tracing.OUTPUT_TOKENS] == 20
    assert made[tracing.CACHE_READ_TOKENS] == 40
    assert made[tracing.CACHE_WRITE_TOKENS] == 8
    assert made[tracing.REQUEST_MODEL] == "gpt-4o"
    assert made[tracing.RESPONSE_MODEL] == "gpt-4o-2024-11-20"


@pytest.mark.parametrize("outcome", ["hit", "stale", "collapsed"])
def test_a_hit_reports_no_usage_that_a_backend_would_bill(outcome: str) -> None:
    """K5."""
    made = span(tier="exact", outcome=outcome).attributes
    assert made is not None
    assert not [name for name in made if name.startswith("gen_ai.usage.")]
    assert made["trivet.saved.input_tokens"] == 100
    assert made["trivet.tier"] == "exact"


def test_unknown_usage_is_left_out() -> None:
    made = span(usage=None).attributes
    assert made is not None
    assert not [name for name in made if "tokens" in name]


def test_a_stream_reports_its_time_to_first_chunk() -> None:
    made = span(stream=True).attributes
    assert made is not None
    assert made[tracing.TIME_TO_FIRST_CHUNK] == 0.375
    assert tracing.TIME_TO_FIRST_CHUNK not in attributes(done())


def test_a_server_error_is_an_error_and_a_callers_one_is_not() -> None:
    server = span(status=502, reason="upstream-refused")
    assert server.status.status_code is StatusCode.ERROR
    assert server.attributes is not None
    assert server.attributes[tracing.ERROR_TYPE] == "502"
    assert server.attributes["trivet.reason"] == "upstream-refused"
    caller = span(status=400)
    assert caller.status.status_code is StatusCode.UNSET
    assert caller.attributes is not None
    assert caller.attributes[tracing.ERROR_TYPE] == "400"


def test_other_events_and_unread_requests_have_no_span() -> None:
    assert spans(StoreState("redis", "up", ""), done(api="passthrough")) == []


def test_without_a_tracer_provider_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = TracingObserver()
    made: list[RequestDone] = []
    monkeypatch.setattr(observer, "_span", made.append)
    observer(done())
    assert made == []


def test_opentelemetry_is_not_imported_before_an_observer_is_made() -> None:
    code = (
        "import sys; from trivet.middleware.observe.tracing import TracingObserver; "
        "before = 'opentelemetry' in sys.modules; TracingObserver(); "
        "print(before, 'opentelemetry' in sys.modules, 'opentelemetry.sdk' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_missing_exporter_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'trivet\[otel\]'"):
        otlp_observer()


def test_a_missing_api_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name, name=name)
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'trivet\[otel\]'"):
        TracingObserver()


def test_spans_reach_a_collector_by_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            received.append((self.path, self.rfile.read(size)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        observer = otlp_observer()
        observer(done())
        observer.close()
        server.shutdown()
        thread.join()
    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"gen_ai.request.model" in body
