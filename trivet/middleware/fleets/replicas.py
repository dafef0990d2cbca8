"""Several servers behind one upstream name: which one is asked, and what when it does not answer.

The choice is `trivet.prefix.routing.choose`; here are its facts, of one process: what was sent
where, what is in flight, who failed. Another replica is tried only while nothing of an answer was
handed on.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from trivet.errors import UpstreamError
from trivet.middleware.admin.control import Component
from trivet.middleware.arrival.headers import RawHeaders
from trivet.middleware.fleets.way import Way
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import Arriving, UpstreamResponse
from trivet.prefix.routing.affinity import Affinity, Steps
from trivet.prefix.routing.choose import Choice, ReplicaState, choose
from trivet.prefix.routing.kv_index import KvIndex, Links
from trivet.prefix.routing.queue_depth import QueueDepth
from trivet.prefix.routing.replica_health import ReplicaHealth
from trivet.telemetry import REPLICA_STARTED, Observer, ReplicaAsked, ReplicaChanged, ignore

_TRIES: Final = 3
_UNREACHED: Final = frozenset({"upstream-refused", "upstream-connect"})
"""Nothing of the request was read there."""
_UNANSWERED: Final = _UNREACHED | {"upstream-cut", "upstream-garbage"}
_GONE: Final = frozenset({"upstream-refused", "health"})
"""Reasons after which a server comes back with an empty cache, if it does."""
_NOT_THERE: Final = frozenset({502, 503, 504})
"""Answers of a server that is not there: loading, draining, or behind a proxy of its own."""
_TRUST: Final = 0.1
"""Weight of one answer in what is believed of a replica."""

Once = Callable[[str], Awaitable[UpstreamResponse]]
"""Sends the request to a base URL. Raises `UpstreamError`."""


@dataclass(slots=True)
class _Replica:
    """What this process knows of one server."""

    root: str
    label: str
    """Host and port, for people and metrics."""
    seed: int
    kv_events: str | None = None
    health: ReplicaHealth = field(default_factory=ReplicaHealth)
    in_flight: int = 0
    waiting: float = 0.0
    others: float = 0.0
    """Requests that its metrics told of, less our own at that time."""
    trust: float = 1.0
    tells: bool = False
    """An answer of it has told of cached tokens: from then on none means none."""


class ReplicaSet:
    """The servers of one upstream, `base_url` first. For one event loop."""

    def __init__(
        self,
        upstream: UpstreamConfig,
        observer: Observer = ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = upstream.name
        self.index, self.links = KvIndex(), Links()
        self._policy = upstream.routing
        self._replicas = replicas_of(upstream)
        self._affinity = Affinity()
        self._observer = observer
        self._clock = clock
        self._turn = 0

    @property
    def replicas(self) -> Sequence[_Replica]:
        """The servers, in the order of the config."""
        return self._replicas

    def announce(self) -> None:
        """Tell of every server once at the start, so that metrics know them all."""
        for one in self._replicas:
            self._observer(ReplicaChanged(self.name, one.label, True, REPLICA_STARTED))

    def component(self) -> Component:
        """How many of the servers are asked, for the readiness report."""
        now = self._clock()
        out = [one.label for one in self._replicas if not one.health.up(now)]
        known = len(self._replicas)
        detail = f"{known - len(out)} of {known} replicas are asked" if out else ""
        state = "up" if not out else "degraded" if len(out) < known else "down"
        return Component(f"upstream:{self.name}", len(out) < known, state, detail)

    def told_of(self) -> list[dict[str, Any]]:
        """Each server as this process sees it, for people, as JSON values.

        `others` are requests of other processes at it, `waiting` estimated prompt tokens of this
        process that it has not read yet. `routed` are blocks that this process sent there, `held`
        those that the server's own events told of; None where it publishes none.
        """
        now, routed = self._clock(), self._affinity.held()
        return [
            {
                "replica": one.label,
                "up": one.health.up(now),
                "weight": one.health.weight(now),
                "reason": one.health.reason,
                "in_flight": one.in_flight,
                "others": one.others,
                "waiting": one.waiting,
                "trust": one.trust,
                "tells": one.tells,
                "routed": routed.get(index, 0),
                "held": self.index.blocks(index) if one.kv_events else None,
            }
            for index, one in enumerate(self._replicas)
        ]

    def choose(self, way: Way | None, tried: frozenset[int] = frozenset()) -> Choice:
        """Which server is asked next; one that was not tried, as long as there is one."""
        now = self._clock()
        states = [
            ReplicaState(
                index,
                one.seed,
                one.health.up(now),
                one.health.weight(now),
                one.in_flight + one.others,
                one.waiting,
                one.trust,
            )
            for index, one in enumerate(self._replicas)
            if index not in tried
        ]
        steps = None if way is None else way.steps
        known = {} if steps is None or self._policy != "affinity" else self._known(steps)
        self._turn += 1
        return choose(self._policy, states, steps, known, self._turn)

    async def send(self, once: Once, way: Way | None, *, generates: bool) -> UpstreamResponse:
        """The answer of the server that is chosen; of another one where that one gives none.

        A request that does not generate may be about what one server keeps: it goes to the first
        that is up, and to another only if it was not read there. Raises `UpstreamError` as the
        last one tried.
        """
        tried: frozenset[int] = frozenset()
        most = min(_TRIES, len(self._replicas))
        while True:
            choice = self.choose(way, tried) if generates else self._first(tried)
            tried |= {choice.replica}
            last = len(tried) >= most
            leg = _Leg(self, choice, way)
            try:
                response = await once(self._replicas[choice.replica].root)
            except UpstreamError as error:
                leg.end()
                if error.status != 400:
                    self.failed(choice.replica, error.reason)
                if last or error.reason not in (_UNANSWERED if generates else _UNREACHED):
                    raise
                continue
            except BaseException:
                leg.end()
                raise
            if response.status in _NOT_THERE:
                self.failed(choice.replica, f"status-{response.status}")
                if generates and not last:
                    leg.end()
                    response.close()
                    continue
            else:
                self._replicas[choice.replica].health.answered()
            return leg.taken(response)

    def _first(self, tried: frozenset[int]) -> Choice:
        now = self._clock()
        left = [at for at in range(len(self._replicas)) if at not in tried]
        alive = (at for at in left if self._replicas[at].health.up(now))
        return Choice(next(alive, left[0]), "kept")

    def failed(self, index: int, reason: str, *, checked: bool = False) -> None:
        """A request to a server, or with `checked` a health check, got no answer."""
        one = self._replicas[index]
        if one.health.failed(self._clock(), reason, checked=checked):
            if reason in _GONE:
                self.cleared(index)
            self._observer(ReplicaChanged(self.name, one.label, False, reason))

    def checked(self, index: int) -> None:
        """A health check was passed."""
        one = self._replicas[index]
        one.health.answered()
        if one.health.reason and one.health.up(self._clock()):
            one.health.reason = ""
            self._observer(ReplicaChanged(self.name, one.label, True, ""))

    def depth(self, index: int, told: QueueDepth) -> None:
        """A server's metrics told of its requests: those of others are load too."""
        one = self._replicas[index]
        one.others = max(0.0, told.running + told.waiting - one.in_flight)

    def told(self, way: Way, cached: int) -> None:
        """The answer to a call said how many of its prompt's tokens were cached."""
        if way.replica is None or way.expected <= 0:
            return
        one = self._replicas[way.replica]
        one.tells = one.tells or cached > 0
        if not one.tells:
            return
        share = min(1.0, cached / way.expected)
        one.trust += _TRUST * (share - one.trust)

    def began(self, choice: Choice, way: Way | None) -> float:
        """A request goes to a server. The tokens that it has to compute for it."""
        one = self._replicas[choice.replica]
        one.in_flight += 1
        self._observer(
            ReplicaAsked(
                self.name,
                one.label,
                choice.reason,
                choice.known,
                0 if way is None else way.steps.total,
            )
        )
        if way is None:
            return 0.0
        way.replica, way.expected = choice.replica, choice.known
        self._affinity.learn(choice.replica, way.steps)
        cost = float(way.steps.total - choice.known)
        one.waiting += cost
        return cost

    def computed(self, index: int, cost: float) -> None:
        """A server has read the prompt."""
        one = self._replicas[index]
        one.waiting = max(0.0, one.waiting - cost)

    def ended(self, index: int) -> None:
        """A request is over at a server."""
        self._replicas[index].in_flight -= 1

    def cleared(self, index: int) -> None:
        """A server has thrown away all that it held, or is no more."""
        self._affinity.forget(index)
        self.index.forget(index)

    def _known(self, steps: Steps) -> dict[int, int]:
        known = self._affinity.known(steps)
        for replica in self.index.replicas:
            known[replica] = self.links.corrected(self.index, replica, steps, known.get(replica, 0))
        return known


class _Leg:
    """One request at one server, from when it is chosen to when its answer is let go of."""

    __slots__ = ("_choice", "_cost", "_open", "_set")

    def __init__(self, replicas: ReplicaSet, choice: Choice, way: Way | None) -> None:
        self._set = replicas
        self._choice = choice
        self._cost = replicas.began(choice, way)
        self._open = True

    def taken(self, response: UpstreamResponse) -> UpstreamResponse:
        return _Counted(response.status, response.headers, response._response, self)

    def first_byte(self) -> None:
        cost, self._cost = self._cost, 0.0
        if cost:
            self._set.computed(self._choice.replica, cost)

    def broke(self, reason: str) -> None:
        self._set.failed(self._choice.replica, reason)

    def end(self) -> None:
        self.first_byte()
        if self._open:
            self._open = False
            self._set.ended(self._choice.replica)


class _Counted(UpstreamResponse):
    """An answer of a replica: its first byte and its end are counted."""

    def __init__(self, status: int, headers: RawHeaders, response: Arriving, leg: _Leg) -> None:
        super().__init__(status, headers, response)
        self._leg = leg

    async def read_some(self) -> bytes:
        try:
            chunk = await super().read_some()
        except UpstreamError as error:
            self._leg.broke(error.reason)
            raise
        if chunk:
            self._leg.first_byte()
        return chunk

    def close(self) -> None:
        super().close()
        self._leg.end()


def replicas_of(upstream: UpstreamConfig) -> list[_Replica]:
    """Its servers, each once; `base_url` may be named again to say where its events are."""
    events: dict[str, str | None] = {upstream.base_url: None}
    for one in upstream.replicas:
        events[one.url] = one.kv_events or events.get(one.url)
    return [
        _Replica(url.removesuffix("/v1"), _label(url), _seed(url), kv_events)
        for url, kv_events in events.items()
    ]


def _label(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc + parts.path.removesuffix("/v1")


def _seed(url: str) -> int:
    return int.from_bytes(sha256(url.encode()).digest()[:8], "big")
