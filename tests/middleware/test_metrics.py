import json
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from trivet.messages import Api, Usage
from trivet.metric_names import METRICS
from trivet.middleware.observe.exposition import BOUNDS, exposition, merge
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.observe.pricing import Pricing
from trivet.middleware.observe.series import OTHER
from trivet.telemetry import (
    Collapse,
    EntryRejected,
    Event,
    Flood,
    FloodShed,
    HeadRefused,
    ModelCall,
    PolicyReload,
    PrefixBreak,
    PrefixFailed,
    PrefixPing,
    PrefixProbed,
    PrefixUse,
    ReplicaAsked,
    ReplicaChanged,
    RequestDone,
    SemanticAudit,
    SemanticLookup,
    SemanticState,
    StoreOperation,
    StoreState,
)

USAGE = Usage(1_000, 100, cache_read_tokens=400, cache_write_tokens=50)


class Prices(Pricing):
    """A dollar for each input token of `priced`; nothing else is known."""

    def __init__(self, *, ready: bool = True) -> None:
        super().__init__()
        self.ready = ready
        self.started = 0

    @property
    def loading(self) -> bool:
        return not self.ready

    def start(self) -> None:
        self.started += 1

    def price(self, model: str, provider_hint: str | None, usage: Usage) -> float | None:
        return float(usage.input_tokens) if self.ready and model == "priced" else None


def done(**changes: Any) -> RequestDone:
    event = RequestDone(
        tenant="acme",
        api=Api.CHAT,
        model="priced",
        upstream="openai",
        status=200,
        stream=False,
        tier=None,
        outcome="miss",
        reason="",
        total_s=0.75,
        upstream_s=0.5,
        first_byte_s=0.25,
        request_bytes=4096,
        response_bytes=1020,
        usage=USAGE,
        stored=False,
    )
    return event._replace(**changes)


def hit(**changes: Any) -> RequestDone:
    event = done(tier="exact", outcome="hit", upstream_s=0.0, total_s=0.0002)
    return event._replace(**changes)


def called(**changes: Any) -> ModelCall:
    return ModelCall("acme", "chat", "chat", "priced", "openai", USAGE)._replace(**changes)


def observed(*events: Event, ready: bool = True) -> PrometheusObserver:
    observer = PrometheusObserver(Prices(ready=ready))
    for event in events:
        observer(event)
    return observer


def samples(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(observer: PrometheusObserver, name: str, **labels: str) -> float | None:
    return samples(observer.render()).get((name, frozenset(labels.items())))


def test_every_defined_metric_is_exposed_with_its_help_and_kind() -> None:
    text = PrometheusObserver(Prices()).render().decode()
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind}\n" in text
        assert f"# HELP {metric.name} {metric.help}\n" in text


def test_a_request_is_counted_with_all_its_labels() -> None:
    observer = observed(done(reason="not-json", status=502, outcome="error"))
    labels = {"tenant": "acme", "api": "chat", "tier": "none", "outcome": "error"}
    assert value(observer, "trivet_requests_total", **labels, reason="not-json", status="502") == 1


def test_latency_is_split_into_ours_and_the_upstreams() -> None:
    observer = observed(done())
    assert value(observer, "trivet_own_seconds_sum", api="chat", outcome="miss") == 0.25
    assert value(observer, "trivet_upstream_seconds_sum", api="chat", upstream="openai") == 0.5
    assert value(observer, "trivet_first_byte_seconds_sum", api="chat", outcome="miss") == 0.25


def test_a_hit_has_no_upstream_time() -> None:
    observer = observed(hit())
    assert value(observer, "trivet_upstream_seconds_count", api="chat", upstream="openai") is None


def test_a_followers_wait_is_neither_our_time_nor_an_upstream_call() -> None:
    observer = observed(done(outcome="collapsed", tier="exact", total_s=1.0, upstream_s=0.75))
    labels = {"api": "chat", "outcome": "collapsed"}
    assert value(observer, "trivet_own_seconds_sum", **labels) == 0.25
    assert value(observer, "trivet_upstream_seconds_count", api="chat", upstream="openai") is None


def test_own_time_is_never_negative() -> None:
    observer = observed(done(total_s=0.1, upstream_s=0.2))
    assert value(observer, "trivet_own_seconds_sum", api="chat", outcome="miss") == 0


def test_a_bucket_includes_its_upper_bound() -> None:
    bound = BOUNDS["trivet_own_seconds"][2]
    observer = observed(hit(total_s=bound))
    labels = {"api": "chat", "outcome": "hit"}
    assert value(observer, "trivet_own_seconds_bucket", **labels, le=str(bound)) == 1
    assert value(observer, "trivet_own_seconds_bucket", **labels, le="0.00025") == 0
    assert value(observer, "trivet_own_seconds_bucket", **labels, le="+Inf") == 1


def test_body_bytes_are_summed() -> None:
    observer = observed(done(), hit())
    assert value(observer, "trivet_request_bytes_total", api="chat") == 2 * 4096
    assert value(observer, "trivet_response_bytes_total", api="chat") == 2 * 1020


def test_a_hit_is_billed_nothing_and_saves_what_the_answer_cost() -> None:
    """K5: a response-cache hit is billed 0, saved = stored cost."""
    observer = observed(hit())
    saved = {"tenant": "acme", "tier": "exact"}
    assert value(observer, "trivet_money_saved_usd_total", **saved) == 1_000
    assert value(observer, "trivet_tokens_saved_total", **saved, kind="input") == 1_000
    assert value(observer, "trivet_tokens_saved_total", **saved, kind="output") == 100
    assert b"trivet_upstream_tokens_total{" not in observer.render()
    assert b"trivet_usage_unknown_total{" not in observer.render()


@pytest.mark.parametrize("outcome", ["stale", "collapsed"])
def test_an_answer_without_an_upstream_call_of_its_own_saves_too(outcome: str) -> None:
    observer = observed(hit(outcome=outcome))
    assert value(observer, "trivet_money_saved_usd_total", tenant="acme", tier="exact") == 1_000


def test_what_a_model_answered_is_spent_once_and_saves_nothing() -> None:
    """K1, K2: cache reads and writes lie within the input, and are shown apart."""
    observer = observed(called(), done())
    spent = {"tenant": "acme", "api": "chat"}
    kinds = {"input": 1_000, "output": 100, "cache_read": 400, "cache_write": 50}
    for kind, tokens in kinds.items():
        assert value(observer, "trivet_upstream_tokens_total", **spent, kind=kind) == tokens
    assert b"saved_total{" not in observer.render()
    assert b"trivet_money_saved_usd_total{" not in observer.render()


def test_a_hit_of_unknown_usage_counts_as_unknown_and_not_as_zero() -> None:
    observer = observed(hit(usage=None))
    assert value(observer, "trivet_usage_unknown_total", tenant="acme", what="tokens") == 1
    assert value(observer, "trivet_usage_unknown_total", tenant="acme", what="price") == 1
    assert b"saved_total{" not in observer.render()


def test_a_hit_of_an_unpriced_model_saves_tokens_and_an_unknown_sum() -> None:
    observer = observed(hit(model="mine"))
    assert value(observer, "trivet_usage_unknown_total", tenant="acme", what="price") == 1
    assert value(observer, "trivet_usage_unknown_total", tenant="acme", what="tokens") is None
    assert b"trivet_money_saved_usd_total{" not in observer.render()


def test_the_served_model_decides_the_price() -> None:
    observer = observed(hit(model="alias", response_model="priced"))
    assert value(observer, "trivet_money_saved_usd_total", tenant="acme", tier="exact") == 1_000


def test_hits_before_the_price_list_is_loaded_are_priced_afterwards() -> None:
    observer = observed(hit(), hit(), ready=False)
    assert b"trivet_money_saved_usd_total{" not in observer.render()
    prices = observer.pricing
    assert isinstance(prices, Prices)
    assert prices.started
    prices.ready = True
    assert value(observer, "trivet_money_saved_usd_total", tenant="acme", tier="exact") == 2_000


def test_hits_that_wait_for_prices_are_bounded_and_the_rest_is_unknown() -> None:
    kinds = (hit(usage=Usage(number, 1)) for number in range(1_003))
    observer = observed(*kinds, ready=False)
    assert value(observer, "trivet_usage_unknown_total", tenant="acme", what="price") == 3


def test_hits_that_nobody_looks_at_are_counted_now_and_then() -> None:
    observer = observed(*[hit()] * 1_500)
    assert observer.unsettled == 500
    assert value(observer, "trivet_money_saved_usd_total", tenant="acme", tier="exact") == 1_500_000
    assert observer.unsettled == 0


def test_tenants_beyond_the_bound_share_one_label() -> None:
    observer = observed(*(done(tenant=f"t{number}") for number in range(1_005)))
    labels = {"api": "chat", "tier": "none", "outcome": "miss", "reason": "", "status": "200"}
    assert value(observer, "trivet_requests_total", **labels, tenant="t999") == 1
    assert value(observer, "trivet_requests_total", **labels, tenant="t1000") is None
    assert value(observer, "trivet_requests_total", **labels, tenant=OTHER) == 5


def test_series_stay_bounded_whatever_the_labels_are() -> None:
    statuses = range(100, 600)
    observer = observed(
        *(done(tenant=f"t{t}", status=status) for t in range(50) for status in statuses)
    )
    pairs = observer.snapshot()["counters"]["trivet_requests_total"]
    assert len(pairs) == 20_001
    assert sum(count for _, count in pairs) == 25_000


@pytest.mark.parametrize(
    "text", ["Write me a poem", "sk-secret key", "x" * 65, 'a"b', "line\nbreak", "naïve"]
)
def test_a_text_that_is_no_name_never_becomes_a_label(text: str) -> None:
    observer = observed(
        done(tenant=text, reason=text, upstream=text),
        EntryRejected(text, text),
        StoreOperation(text, "get", text, 0.1, 1),
        StoreState(text, "up", text),
    )
    labels = {
        label
        for figures in observer.snapshot().values()
        for pairs in figures.values()  # type: ignore[attr-defined]
        for names, _ in pairs
        for label in names
    }
    assert text not in labels
    assert OTHER in labels


def test_models_and_usage_of_a_caller_are_no_labels() -> None:
    assert b"secret-model" not in observed(done(model="secret-model")).render()


def test_an_impossible_status_is_other() -> None:
    assert b'status="other"' in observed(done(status=99_999)).render()


def test_a_stores_last_state_holds() -> None:
    observer = observed(StoreState("redis", "down", "timeout"), StoreState("memory", "up", ""))
    assert value(observer, "trivet_store_up", store="redis") == 0
    assert value(observer, "trivet_store_up", store="memory") == 1
    observer(StoreState("redis", "degraded", "slow"))
    assert value(observer, "trivet_store_up", store="redis") == 1


def test_store_calls_rejections_reloads_and_collapses_are_counted() -> None:
    observer = observed(
        StoreOperation("redis", "get", "timeout", 0.05, 0),
        EntryRejected("redis", "mac"),
        PolicyReload(True, "1", 0),
        PolicyReload(False, "1", 2),
        Collapse("follow", "fleet"),
    )
    call = {"store": "redis", "operation": "get"}
    assert value(observer, "trivet_store_operations_total", **call, outcome="timeout") == 1
    assert value(observer, "trivet_store_seconds_sum", **call) == 0.05
    assert value(observer, "trivet_entries_rejected_total", store="redis", reason="mac") == 1
    assert value(observer, "trivet_policy_reloads_total", result="ok") == 1
    assert value(observer, "trivet_policy_reloads_total", result="refused") == 1
    assert value(observer, "trivet_collapse_total", kind="follow", where="fleet") == 1


def test_a_store_is_up_if_every_process_reaches_it() -> None:
    up, down = (observed(StoreState("redis", state, "")).snapshot() for state in ("up", "down"))
    merged = merge([up, down, up])
    assert merged["counters"]["trivet_store_up"] == [[["redis"], 0]]


EVENTS = st.lists(
    st.builds(
        done,
        tenant=st.sampled_from(["a", "b"]),
        outcome=st.sampled_from(["hit", "miss", "stale", "error"]),
        status=st.sampled_from([200, 429]),
        usage=st.sampled_from([None, USAGE]),
        # Sums of powers of two are exact, in any order.
        total_s=st.sampled_from([0.0625, 0.5, 4.0]),
        upstream_s=st.sampled_from([0.0, 0.03125]),
    )
    | st.builds(
        StoreOperation, st.just("s"), st.just("get"), st.just("hit"), st.just(0.5), st.just(1)
    ),
    max_size=30,
)


def figures(snapshot: object) -> object:
    """A snapshot with the order of its series taken out."""
    assert isinstance(snapshot, dict)
    return {
        part: {name: sorted(pairs) for name, pairs in series.items()}
        for part, series in snapshot.items()
    }


@given(EVENTS, st.integers(0, 30))
def test_figures_of_several_processes_add_up_to_those_of_one(events: list[Event], cut: int) -> None:
    parts = [events[:cut], events[cut:]]
    over_the_wire = [json.loads(json.dumps(observed(*part).snapshot())) for part in parts]
    assert figures(merge(over_the_wire)) == figures(observed(*events).snapshot())


def test_a_snapshot_does_not_change_with_later_events() -> None:
    observer = observed(done())
    snapshot = observer.snapshot()
    before = exposition(snapshot)
    observer(done())
    assert exposition(snapshot) == before


def test_merging_nothing_is_an_empty_exposition() -> None:
    assert samples(exposition(merge([]))) == {}


def test_rows_of_another_version_are_not_added_up() -> None:
    one, other = observed(done()).snapshot(), observed(done()).snapshot()
    other["histograms"]["trivet_own_seconds"][0][1].pop()
    with pytest.raises(ValueError, match="zip"):
        merge([one, other])


def test_every_kind_of_event_is_counted() -> None:
    events: list[Event] = [
        done(),
        HeadRefused("fields"),
        StoreState("s", "up", ""),
        StoreOperation("s", "put", "ok", 0.1, 1),
        EntryRejected("s", "mac"),
        PolicyReload(True, "1", 0),
        Collapse("lead", "process"),
        SemanticLookup("t1", "hit", "", "informational", 0.01),
        SemanticAudit("t1", "informational", "equality", True, 0.3),
        SemanticState("t1", "informational", False, "bound"),
        ReplicaAsked("u", "a:1", "known", 256, 300),
        ReplicaChanged("u", "a:1", False, "health"),
        PrefixProbed("u", "a:1", "leaks", "it leaks"),
        PrefixFailed("u", "vllm", "ZeroDivisionError", first=True),
        PrefixBreak("t1", "chat", "system", "date", "a date", "", 9, 90, 0.1, new=True, text=""),
        PrefixUse("t1", "chat", 100, 90, unseen=False),
        PrefixPing("t1", "u", "m", "over-budget", new=True),
        called(),
        Flood(0.1, 0.4, 1.7, True, 3, 2),
        FloodShed("t1", "wait"),
    ]
    assert {type(event) for event in events} == set(get_args(Event))
    for event in events:
        empty = samples(PrometheusObserver(Prices()).render())
        assert samples(observed(event).render()) != empty


def test_what_becomes_of_pings_is_counted_by_reason() -> None:
    pings = [PrefixPing("t1", "u", "m", reason, new=False) for reason in ("ping", "ping", "failed")]
    found = samples(observed(*pings).render())
    counted = {key: value for key, value in found.items() if "keep_warm" in str(key)}
    assert sorted(counted.values()) == [1, 2]


def test_a_hit_of_what_warms_saves_nothing() -> None:
    plain = observed(done(outcome="hit", tier="exact")).snapshot()["counters"]
    warming = observed(done(outcome="hit", tier="exact", purpose="warm")).snapshot()["counters"]
    assert plain["trivet_tokens_saved_total"]
    assert not warming["trivet_tokens_saved_total"]
    assert plain["trivet_requests_total"] == warming["trivet_requests_total"]


@pytest.mark.parametrize(
    ("state", "isolated", "leaks"), [("isolated", 1, 0), ("leaks", 0, 1), ("unverified", 0, 0)]
)
def test_a_server_that_leaks_is_told_apart_from_one_that_was_not_seen_to_isolate(
    state: Literal["isolated", "leaks", "unverified"], isolated: int, leaks: int
) -> None:
    found = observed(PrefixProbed("u", "a:1", state, ""))
    named = {"upstream": "u", "replica": "a:1"}
    assert value(found, "trivet_prefix_isolated", **named) == isolated
    assert value(found, "trivet_prefix_leaks", **named) == leaks
