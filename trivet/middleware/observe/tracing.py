"""OpenTelemetry spans with the names of the GenAI semantic conventions, one for each request.

A span is made from its `RequestDone`, after the fact. opentelemetry is imported when an observer
is made, and not at all otherwise. Names: https://opentelemetry.io/docs/specs/semconv/gen-ai/
(a test compares them with the package opentelemetry-semantic-conventions).
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any, Final

from trivet.errors import ConfigError, Problem
from trivet.messages import Api
from trivet.telemetry import Event, RequestDone

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
STATUS_CODE: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"

OPERATIONS: Final[dict[str, str]] = {
    Api.CHAT: "chat",
    Api.RESPONSES: "chat",
    Api.MESSAGES: "chat",
    Api.COMPLETIONS: "text_completion",
    Api.EMBEDDINGS: "embeddings",
}
"""Values of `gen_ai.operation.name`. What is passed through unread has no span."""
_SAVED: Final = frozenset({"hit", "stale", "collapsed"})

Attributes = dict[str, str | int | float | bool]


def attributes(event: RequestDone) -> Attributes:
    """The span attributes of one request: pure.

    Where a cache answered, the tokens are `trivet.saved.*` and no `gen_ai.usage.*` is given:
    backends bill what they find under the latter, and nothing was bought.
    """
    made: Attributes = {
        OPERATION_NAME: OPERATIONS.get(event.api, event.api),
        PROVIDER_NAME: "anthropic" if event.api == Api.MESSAGES else "openai",
        REQUEST_MODEL: event.model,
        REQUEST_STREAM: event.stream,
        STATUS_CODE: event.status,
        "trivet.tenant": event.tenant,
        "trivet.upstream": event.upstream,
        "trivet.tier": event.tier or "none",
        "trivet.outcome": event.outcome,
        "trivet.stored": event.stored,
        "trivet.upstream_seconds": event.upstream_s,
    }
    if event.reason:
        made["trivet.reason"] = event.reason
    if event.response_model:
        made[RESPONSE_MODEL] = event.response_model
    if event.stream:
        made[TIME_TO_FIRST_CHUNK] = event.first_byte_s
    if event.status >= 400:
        made[ERROR_TYPE] = str(event.status)
    made.update(_usage(event))
    return made


def _usage(event: RequestDone) -> Attributes:
    usage = event.usage
    if usage is None:
        return {}
    if event.outcome in _SAVED:
        return {
            "trivet.saved.input_tokens": usage.input_tokens,
            "trivet.saved.output_tokens": usage.output_tokens,
        }
    return {
        INPUT_TOKENS: usage.input_tokens,
        OUTPUT_TOKENS: usage.output_tokens,
        CACHE_READ_TOKENS: usage.cache_read_tokens,
        CACHE_WRITE_TOKENS: usage.cache_write_tokens,
    }


class TracingObserver:
    """Makes a span of every `RequestDone`, under the caller's `traceparent` if it sent one.

    Span kind is SERVER: the caller's own SDK makes the client span, and two client spans would
    count the tokens twice. Without a tracer provider (an SDK that was set up) nothing is made.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Use `provider`, or the global one. Raises `ConfigError` without opentelemetry-api."""
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation import tracecontext
        except ImportError as error:
            raise _missing("opentelemetry-api", error) from None
        self._trace = trace
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("trivet", tracer_provider=provider)
        self._provider: Any = provider

    def __call__(self, event: Event, /) -> None:
        """Make the span of a request; other events have none."""
        if isinstance(event, RequestDone) and event.api in OPERATIONS and self._enabled():
            self._span(event)

    def _enabled(self) -> bool:
        trace = self._trace
        if self._provider is not None:
            return True
        return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    def close(self) -> None:
        """Shut down the provider that was given, sending what waits; the global one is left alone.

        Blocks for as long as the exporter needs.
        """
        shutdown = getattr(self._provider, "shutdown", None)
        if shutdown is not None:
            shutdown()

    def _span(self, event: RequestDone) -> None:
        trace = self._trace
        spent_ns = int(event.total_s * 1e9)
        start_ns = event.received_ns or time.time_ns() - spent_ns
        span = self._tracer.start_span(
            f"{OPERATIONS[event.api]} {event.model}",
            context=self._parent(event.traceparent),
            kind=trace.SpanKind.SERVER,
            attributes=attributes(event),
            start_time=start_ns,
        )
        if event.status >= 500:
            # 4xx is the caller's error: a server span leaves its status unset.
            span.set_status(trace.StatusCode.ERROR, event.reason or None)
        span.end(start_ns + spent_ns)

    def _parent(self, traceparent: str | None) -> Context | None:
        if traceparent is None:
            return None
        return self._propagator.extract({"traceparent": traceparent})


def otlp_observer(service: str = "trivet") -> TracingObserver:
    """An observer that exports by OTLP over HTTP, in batches, from a thread of its own.

    The endpoint and the rest come from the standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT`,
    `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, ...). Raises `ConfigError` without the
    extra `otel`.
    """
    try:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        raise _missing("tracing", error) from None
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return TracingObserver(provider)


def _missing(what: str, error: ImportError) -> ConfigError:
    message = (
        f"{what} needs a package that is not installed ({error.name}): pip install 'trivet[otel]'"
    )
    return ConfigError(Problem("config", 0, 0, "tracing", message))
