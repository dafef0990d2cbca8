"""Replicas of an engine, simulated: a queue of prompts, a block cache, answers that share steps.

A replica computes one prompt after the other at `prefill` tokens a second, slowed by the answers
that run beside it; an answer takes `decode_s` a token. Its cache holds `blocks` blocks and throws
the least recently used away, a chain's end first, as our engine and vLLM do. What the router is
told is what a proxy would see; it sends, learns and forgets by the product's own code.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, quantiles
from typing import Protocol

from bench.fleet_trace import Turn
from trivet.middleware.fleets.replicas import ReplicaSet
from trivet.middleware.fleets.way import Way
from trivet.middleware.running.config import UpstreamConfig
from trivet.prefix.routing.affinity import Steps
from trivet.prefix.routing.choose import Choice, ReplicaState, choose
from trivet.prefix.routing.queue_depth import QueueDepth


@dataclass(frozen=True)
class Engine:
    """One replica's speed and size. The defaults are of an 8B model on one GPU, roughly."""

    prefill: float = 8_000.0
    decode_s: float = 0.02
    blocks: int = 20_000
    block: int = 16
    slowed: float = 0.02
    """How much each running answer slows a prompt down."""


@dataclass
class Replica:
    """One server, at a time of the simulation."""

    engine: Engine
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    free_at: float = 0.0
    running: int = 0
    waiting: float = 0.0
    tokens: int = 0
    """Prompt tokens that it computed."""

    def cached(self, blocks: Sequence[int], tokens: int) -> int:
        """Cached tokens of a prompt."""
        held = next((at for at, one in enumerate(blocks) if one not in self.cache), len(blocks))
        return min(held, (tokens - 1) // self.engine.block) * self.engine.block

    def keep(self, blocks: Sequence[int]) -> None:
        """The prompt was computed."""
        for block in reversed(blocks):
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > self.engine.blocks:
            self.cache.popitem(last=False)


class Router(Protocol):
    """Chooses, and is told when a prompt was read and when an answer is over."""

    def choose(self, turn: Turn) -> int: ...

    def read(self, turn: Turn, replica: int, cached: int) -> None: ...

    def ended(self, turn: Turn, replica: int) -> None: ...


@dataclass
class Outcome:
    """What one policy made of a trace."""

    cached: int = 0
    total: int = 0
    first_token_s: list[float] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the prompt tokens that came out of a cache."""
        return self.cached / self.total

    def percentile(self, of: int) -> float:
        """Of the seconds to the first token."""
        return quantiles(self.first_token_s, n=100)[of - 1]

    @property
    def imbalance(self) -> float:
        """The busiest replica's computed tokens over the mean's."""
        return max(self.computed) / mean(self.computed)


class Simulation:
    """`replicas` servers under one router; `clock` is the time of the simulation."""

    def __init__(self, engine: Engine, replicas: int) -> None:
        self.replicas = [Replica(engine) for _ in range(replicas)]
        self.engine = engine
        self.now = 0.0

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def run(self, turns: Sequence[Turn], router: Router) -> Outcome:
        """Send all turns when they are due."""
        outcome = Outcome()
        events: list[tuple[float, int, Callable[[], None]]] = []
        number = 0

        def later(at: float, act: Callable[[], None]) -> None:
            nonlocal number
            number += 1
            heapq.heappush(events, (at, number, act))

        for turn in turns:
            while events and events[0][0] <= turn.at:
                self.now, _, act = heapq.heappop(events)
                act()
            self.now = turn.at
            self._send(turn, router, outcome, later)
        while events:
            self.now, _, act = heapq.heappop(events)
            act()
        outcome.computed = [one.tokens for one in self.replicas]
        return outcome

    def _send(
        self,
        turn: Turn,
        router: Router,
        outcome: Outcome,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        index = router.choose(turn)
        one = self.replicas[index]
        blocks = turn.blocks(self.engine.block)
        begins = max(self.now, one.free_at)
        # What is ahead in the queue is computed by then, so it is in the cache.
        cached = one.cached(blocks, turn.tokens)
        one.keep(blocks)
        work = turn.tokens - cached
        took = work / self.engine.prefill * (1 + self.engine.slowed * one.running)
        one.free_at = begins + took
        one.waiting += work
        one.running += 1
        one.tokens += work
        outcome.cached += cached
        outcome.total += turn.tokens
        outcome.first_token_s.append(one.free_at - self.now)

        def read() -> None:
            one.waiting -= work
            router.read(turn, index, cached)

        def ended() -> None:
            one.running -= 1
            router.ended(turn, index)

        later(one.free_at, read)
        later(one.free_at + turn.answer * self.engine.decode_s, ended)


class Trivet:
    """The product's own replica set, as one proxy runs it."""

    def __init__(
        self,
        simulation: Simulation,
        policy: str,
        urls: Sequence[str] = (),
        steps: Callable[[Turn], Steps] = Turn.steps,
    ) -> None:
        urls = urls or [f"http://replica-{at}:8000" for at in range(len(simulation.replicas))]
        config = UpstreamConfig.model_validate(
            {"name": "sim", "base_url": urls[0], "replicas": urls[1:], "routing": policy}
        )
        self._set = ReplicaSet(config, clock=simulation.clock)
        self._open: dict[tuple[int, int], tuple[Way, float]] = {}
        self._steps = steps

    def choose(self, turn: Turn) -> int:
        """The replica."""
        way = Way(self._steps(turn))
        choice = self._set.choose(way)
        cost = self._set.began(choice, way)
        self._open[turn.conversation, turn.number] = way, cost
        return choice.replica

    def look(self, replicas: Sequence[Replica]) -> None:
        """Read the queues of all replicas."""
        for index, one in enumerate(replicas):
            self._set.depth(index, QueueDepth(one.running, 0))

    def read(self, turn: Turn, replica: int, cached: int) -> None:
        """The first byte came."""
        way, cost = self._open[turn.conversation, turn.number]
        self._set.computed(replica, cost)
        self._set.told(way, cached)

    def ended(self, turn: Turn, replica: int) -> None:
        """The last byte came."""
        del self._open[turn.conversation, turn.number]
        self._set.ended(replica)


class Proxies:
    """Several proxies that share nothing: each turn of a conversation may come to any of them.

    Every two seconds each reads the queues of all replicas, as from their metrics.
    """

    def __init__(self, simulation: Simulation, count: int) -> None:
        self._simulation = simulation
        self._proxies = [Trivet(simulation, "affinity") for _ in range(count)]
        self._read_at = 0.0

    def choose(self, turn: Turn) -> int:
        """The replica."""
        if self._simulation.now >= self._read_at:
            self._read_at = self._simulation.now + 2.0
            for proxy in self._proxies:
                proxy.look(self._simulation.replicas)
        return self._of(turn).choose(turn)

    def read(self, turn: Turn, replica: int, cached: int) -> None:
        """The first byte came."""
        self._of(turn).read(turn, replica, cached)

    def ended(self, turn: Turn, replica: int) -> None:
        """The last byte came."""
        self._of(turn).ended(turn, replica)

    def _of(self, turn: Turn) -> Trivet:
        return self._proxies[hash((turn.conversation, turn.number)) % len(self._proxies)]


class Oracle:
    """The product's choice, told every block and every queue of every replica."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def choose(self, turn: Turn) -> int:
        """The replica."""
        blocks = turn.blocks(self._simulation.engine.block)
        states, known = [], {}
        for index, one in enumerate(self._simulation.replicas):
            known[index] = one.cached(blocks, turn.tokens)
            states.append(ReplicaState(index, index, load=float(one.running), waiting=one.waiting))
        found: Choice = choose("affinity", states, turn.steps(), known, 0)
        return found.replica

    def read(self, turn: Turn, replica: int, cached: int) -> None:
        """It knows."""

    def ended(self, turn: Turn, replica: int) -> None:
        """It knows."""
