"""A running proxy whose store is in trouble: what it is asked, and what it says about itself."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
from proxy import Proxy, Reply, chat_body, serving
from raw_http import Answer, post

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.run import running
from trivet.middleware.status import parse

SECRET = "0123456789abcdef" * 4
BUDGET_S = 0.3
"""The `store.budget` of a proxy here, unless told otherwise."""
PATIENT_S = 5.0
"""A budget for stores that say at once what is wrong: a busy machine must not add timeouts."""
GENEROUS = 30
"""What a busy machine may make of a budget; far less than a hundred requests that pay it each."""
FRONT, NO_FRONT = 64 << 20, 0
fronts = pytest.mark.parametrize("front", [NO_FRONT, FRONT], ids=["no-front", "front"])
_CONFIG = """\
log_format: json
workers: {workers}
store:
  budget: {budget}
  front_bytes: {front}
  encrypt: {encrypt}
"""


@dataclass(frozen=True)
class Upstream:
    """A mock upstream that several proxies may share."""

    url: str
    mock: MockUpstream


@contextmanager
def mocked() -> Iterator[Upstream]:
    """A mock upstream on a free port."""
    with running() as (url, mock):
        yield Upstream(url, mock)


@contextmanager
def troubled(
    store: str,
    upstream: Upstream | None = None,
    *,
    front: int = NO_FRONT,
    encrypt: bool = False,
    workers: int = 1,
    secret: str = SECRET,
    budget: float = BUDGET_S,
) -> Iterator[Proxy]:
    """A proxy over `store`, in front of `upstream` or of a mock of its own."""
    config = _CONFIG.format(
        budget=budget, front=front, encrypt=str(encrypt).lower(), workers=workers
    )
    with (
        nullcontext(upstream) if upstream else mocked() as behind,
        serving(behind.url, store=store, config=config, env={"TRIVET_SECRET": secret}) as proxy,
    ):
        proxy.mock = behind.mock
        yield proxy


def ask(proxy: Proxy, texts: Sequence[str], **headers: str) -> list[Answer]:
    """One request for each text, all at once; every other one as a stream."""

    async def all_at_once() -> list[Answer]:
        bodies = [chat_body(text, stream=at % 2 == 1) for at, text in enumerate(texts)]
        return await asyncio.gather(*(post(proxy.url, body, **headers) for body in bodies))

    return asyncio.run(all_at_once())


def texts(label: str, count: int) -> list[str]:
    """Distinct prompts."""
    return [f"{label} number {number}" for number in range(count)]


def assert_answered(answers: Sequence[Answer], *, hits: int | None = None) -> None:
    """Every caller got a complete 200; as many of them as `hits` from the store."""
    assert {(answer.status, answer.complete) for answer in answers} == {(200, True)}
    if hits is not None:
        assert sum(exact_of(answer).get("hit") is True for answer in answers) == hits


def exact_of(answer: Answer) -> dict[str, str | int | bool]:
    """What the exact tier said in `Cache-Status`."""
    return parse(answer.headers["cache-status"])["trivet-exact"]


def calls(proxy: Proxy) -> int:
    """Requests that reached the upstream."""
    assert proxy.mock is not None
    return proxy.mock.calls.total


def lines(proxy: Proxy, event: str) -> list[dict[str, Any]]:
    """The log lines of one event."""
    found = (json.loads(line) for line in proxy.lines() if line.startswith("{"))
    return [line for line in found if line["event"] == event]


def states(proxy: Proxy, store: str) -> list[str]:
    """The states of a store in the order in which they were logged."""
    return [line["state"] for line in lines(proxy, "store-state") if line["store"] == store]


def faults(proxy: Proxy) -> list[str]:
    """Lines that no trouble of a store excuses: errors, and tracebacks."""
    bad = [line for line in proxy.lines() if '"level":"error"' in line or "Traceback" in line]
    return bad + [line for line in proxy.lines() if "never retrieved" in line]


def component(proxy: Proxy, name: str) -> dict[str, Any]:
    """A component of a readiness that says ok, with status 200."""
    reply = proxy.get("/readyz", admin=True)
    assert reply.status == 200
    assert reply.json["ok"] is True
    found = {part["name"]: part for part in reply.json["components"]}
    part: dict[str, Any] = found[name]
    assert part["ok"] is True
    return part


def metric(proxy: Proxy, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    text = proxy.get("/metrics", admin=True).body.decode()
    total = 0.0
    for line in text.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found:
            held = dict(re.findall(r'(\w+)="([^"]*)"', found[1] or ""))
            if labels.items() <= held.items():
                total += float(found[2])
    return total


def until(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, f"never happened: {what}"
        time.sleep(0.05)


def until_up(proxy: Proxy, store: str) -> None:
    """Wait until the store is logged as up and ready as well."""
    name = f"store:{store}"
    until(lambda: states(proxy, store)[-1:] == ["up"], f"{store} up in the log")
    until(lambda: component(proxy, name)["state"] == "up", f"{store} up in /readyz")


def text_of(answer: Answer | Reply) -> str:
    """What a chat answer says, streamed or not."""
    if answer.headers["content-type"].startswith("application/json"):
        return str(json.loads(answer.body)["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in answer.body.splitlines() if line[:7] == b"data: {"]
    deltas = (choice["delta"] for event in events for choice in event["choices"])
    return "".join(delta.get("content") or "" for delta in deltas)


def one_by_one(proxy: Proxy, label: str) -> float:
    """Seconds that twenty requests take, one after another; all are answered."""

    def twenty() -> None:
        for text in texts(label, 20):
            assert_answered(ask(proxy, [text]), hits=0)

    return timed(twenty)


def until_stored(proxy: Proxy) -> None:
    """Send requests until an answer is stored: writes are tried by requests only."""
    numbers = iter(range(10_000))

    def stored() -> bool:
        return exact_of(ask(proxy, [f"try {next(numbers)}"])[0]).get("stored") is True

    until(stored, "an answer is stored again")


def operations(proxy: Proxy, store: str, operation: str, outcome: str) -> float:
    """How many calls of a store ended so."""
    return metric(
        proxy,
        "trivet_store_operations_total",
        store=store,
        operation=operation,
        outcome=outcome,
    )


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    started = time.monotonic()
    call()
    return time.monotonic() - started


def assert_works(proxy: Proxy, store: str, label: str) -> None:
    """Answers are stored, and served again."""
    until_up(proxy, store)
    assert metric(proxy, "trivet_store_up", store=store) == 1
    assert_answered(ask(proxy, texts(label, 10)), hits=0)
    assert_answered(ask(proxy, texts(label, 10)), hits=10)
    assert faults(proxy) == []


def assert_stands_aside(proxy: Proxy, store: str, reason: str, label: str = "aside") -> None:
    """While the store is down, 200 requests are answered by the upstream, without a line."""
    until(lambda: states(proxy, store)[-1:] == ["down"], f"{store} down in the log")
    told, before = len(lines(proxy, "store-state")), calls(proxy)
    opened = operations(proxy, store, "get", "open")
    answers: list[Answer] = []
    took = timed(lambda: answers.extend(ask(proxy, texts(label, 200))))
    assert_answered(answers, hits=0)
    assert {exact_of(answer)["detail"] for answer in answers} == {"store-open"}
    assert took < BUDGET_S * GENEROUS
    assert calls(proxy) == before + 200
    assert operations(proxy, store, "get", "open") == opened + 200
    assert len(lines(proxy, "store-state")) == told
    assert_told(proxy, store, "down", reason)


def assert_degraded(proxy: Proxy, store: str, reason: str, warm: Sequence[str]) -> None:
    """What is stored is served; 200 new answers are not, and no line is logged for them."""
    # As many at once as it takes to notice.
    assert_answered(ask(proxy, texts("noticed", 5)), hits=0)
    until(lambda: states(proxy, store)[-1:] == ["degraded"], f"{store} degraded in the log")
    told, failed = len(states(proxy, store)), operations(proxy, store, "put", reason)
    answers = ask(proxy, texts("aside", 200))
    assert_answered(answers, hits=0)
    assert {exact_of(answer).get("stored") for answer in answers} == {None}
    assert_answered(ask(proxy, warm), hits=len(warm))
    assert len(states(proxy, store)) == told
    assert_told(proxy, store, "degraded", reason)
    assert operations(proxy, store, "put", reason) <= failed + 10
    assert operations(proxy, store, "put", "open") >= 190


def assert_told(proxy: Proxy, store: str, state: str, reason: str) -> None:
    """Readiness and metrics say what the store's state is; readiness says why as well."""
    part = component(proxy, f"store:{store}")
    assert part["state"] == state
    assert part["detail"].startswith(f"{reason}: ")
    assert metric(proxy, "trivet_store_up", store=store) == (state != "down")


@dataclass(frozen=True)
class Kept:
    """What a store keeps, seen from behind the proxy."""

    store: str
    url: str
    names: Callable[[], set[str]]
    """The names of all entries."""

    def stored_as(self, proxy: Proxy, text: str, key: str) -> str:
        """The name under which the answer to `text` is stored."""
        before = self.names()
        assert proxy.chat(text, key=key).exact.get("stored") is True
        (name,) = self.names() - before
        return name


def assert_altered_entries_are_misses(
    kept: Kept, encrypt: bool, alterations: Mapping[str, Callable[[Mapping[str, str]], None]]
) -> None:
    """Each alteration is given the names of entries and alters the one that it calls `one`."""
    names: dict[str, dict[str, str]] = {how: {} for how in alterations}
    with mocked() as upstream:
        with troubled(kept.url, upstream, encrypt=encrypt, budget=PATIENT_S) as writer:
            for how, named in names.items():
                named["one"] = kept.stored_as(writer, f"one {how}", "sk-us")
                named["two"] = kept.stored_as(writer, f"two {how}", "sk-us")
                named["theirs"] = kept.stored_as(writer, f"one {how}", "sk-them")
        with troubled(
            kept.url, upstream, encrypt=encrypt, secret="f" * 64, budget=PATIENT_S
        ) as stranger:
            for how, named in names.items():
                named["foreign"] = kept.stored_as(stranger, f"one {how}", "sk-us")
        with troubled(kept.url, upstream, encrypt=encrypt, front=FRONT, budget=PATIENT_S) as proxy:
            for count, (how, alter) in enumerate(alterations.items(), start=1):
                alter(names[how])
                # From the cache alone, so that no new entry takes the altered one's place.
                only = proxy.chat(f"one {how}", key="sk-us", cache_control="only-if-cached")
                assert only.status == 504
                assert names[how]["one"] not in kept.names()
                rejected = metric(proxy, "trivet_entries_rejected_total", store=kept.store)
                assert rejected == count
                reply = proxy.chat(f"one {how}", key="sk-us")
                assert reply.exact == {"fwd": "miss", "stored": True}
                assert proxy.chat(f"one {how}", key="sk-us").exact["hit"] is True
                assert proxy.chat(f"two {how}", key="sk-us").exact["hit"] is True
                assert proxy.chat(f"one {how}", key="sk-them").exact["hit"] is True
            told = [line["reason"] for line in lines(proxy, "entry-rejected")]
            assert len(told) == len(set(told))
            assert states(proxy, kept.store) == ["up"]
