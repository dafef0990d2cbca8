"""What one process tells people of an upstream's replicas."""

from __future__ import annotations

from typing import Any

from trivet.messages import Api
from trivet.middleware.fleets.replicas import ReplicaSet
from trivet.middleware.fleets.way import Way
from trivet.middleware.running.config import UpstreamConfig
from trivet.prefix.prompts.outline import outline_of
from trivet.prefix.routing.affinity import steps_of
from trivet.prefix.routing.choose import Choice
from trivet.prefix.routing.kv_events_wire import Stored
from trivet.prefix.routing.kv_index import KvIndex
from trivet.prefix.routing.queue_depth import QueueDepth

LONG = "All of this stands in front of every question. " * 100


def pool(**more: Any) -> ReplicaSet:
    given = {"name": "pool", "base_url": "http://a:1", "replicas": ["http://b:2"], **more}
    return ReplicaSet(UpstreamConfig.model_validate(given), clock=lambda: 100.0)


def way(text: str = LONG) -> Way:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return Way(steps_of(outline_of(Api.CHAT, body), b"salt"))


def test_what_was_sent_to_a_replica_is_told_of_it_alone() -> None:
    replicas, sent = pool(), way()
    replicas.began(Choice(1, "home"), sent)
    replicas.depth(0, QueueDepth(3, 2))
    one, other = replicas.told_of()
    assert (one["replica"], one["in_flight"], one["others"], one["routed"]) == ("a:1", 0, 5.0, 0)
    assert (other["replica"], other["in_flight"]) == ("b:2", 1)
    assert other["routed"] == len(sent.steps.digests) > 0
    assert other["waiting"] == sent.steps.total


def test_an_ejected_replica_is_told_with_the_reason() -> None:
    replicas = pool()
    replicas.failed(0, "health", checked=True)
    one, other = replicas.told_of()
    assert (one["up"], one["reason"]) == (False, "health")
    assert (other["up"], other["reason"]) == (True, "")


def test_blocks_are_told_only_of_what_publishes_events() -> None:
    events = {"url": "http://b:2", "kv_events": "tcp://b:5557"}
    replicas = pool(replicas=[events])
    replicas.index.apply(1, Stored((7, 8), None, (1, 2, 3, 4), 2, ((), ()), "GPU"))
    assert [one["held"] for one in replicas.told_of()] == [None, 2]


def test_a_replica_that_told_nothing_holds_nothing() -> None:
    assert KvIndex().blocks(3) == 0
