"""Which replica is asked. Pure: the state of the replicas is given, and so is whose turn it is.

Affinity is a price, not a rule: each replica is charged the tokens that it would have to compute
of this prompt, and those that it has to compute before them. The cheapest is asked, so a replica
with a long known prefix is preferred for as long as it is worth its queue. (NVIDIA Dynamo's router
weighs the same two; SGLang's leaves prefixes aside for all as soon as two replicas are far apart,
see sgl-project/sglang#32195.)

Where several cost about the same, rendezvous hashing over the conversation decides (Thaler and
Ravishankar 1998, "Using name-based mappings to increase hit rates"): proxies that share nothing
choose alike, and a replica that goes moves only its own conversations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from trivet.prefix.routing.affinity import BLOCK, Steps

RoutingPolicy = Literal["affinity", "least-load", "round-robin"]
Reason = Literal["known", "home", "load", "turn", "kept"]

RUNNING_TOKENS: Final = 96
"""Prompt tokens that one running request costs a new one beside it: it shares the steps."""

OVERLOAD_RATIO, OVERLOAD_MORE = 1.5, 8
"""A replica with more requests than this many times the mean and this many on top is not asked for
its prefixes. The others are."""

_MASK: Final = (1 << 64) - 1


class ReplicaState(NamedTuple):
    """One server, as it is now."""

    replica: int
    """Its place in the config."""
    seed: int
    """64 bits of its URL: what proxies call it."""
    up: bool = True
    weight: float = 1.0
    """Share of its full load that it takes; less than 1 in slow start."""
    load: float = 0.0
    """Requests that it has: those of this process, and others that its metrics tell of."""
    waiting: float = 0.0
    """Prompt tokens that were sent there and are not computed yet."""
    trust: float = 1.0
    """Of the tokens that were thought to be there, the share that it said it had."""


class Choice(NamedTuple):
    """`known` are tokens of the prompt that the replica is thought to hold."""

    replica: int
    reason: Reason
    known: int = 0


def choose(
    policy: RoutingPolicy,
    replicas: Sequence[ReplicaState],
    steps: Steps | None,
    known: Mapping[int, int],
    turn: int,
) -> Choice:
    """The replica for a prompt. `replicas` has one at least; if none is up, all are asked.

    `known` are tokens of the prompt by replica; `turn` counts the choices so far. Without `steps`
    nothing is known of the prompt, and load decides.
    """
    alive = [one for one in replicas if one.up] or list(replicas)
    if policy == "round-robin":
        return Choice(alive[turn % len(alive)].replica, "turn")
    if policy == "least-load" or steps is None:
        return Choice(_least(alive, turn).replica, "load")
    return _cheapest(alive, steps, known)


def _least(replicas: Sequence[ReplicaState], turn: int) -> ReplicaState:
    count = len(replicas)
    first = turn % count
    order = (replicas[(first + at) % count] for at in range(count))
    return min(order, key=lambda one: ((one.load + 1) / one.weight, one.waiting))


def _cheapest(replicas: Sequence[ReplicaState], steps: Steps, known: Mapping[int, int]) -> Choice:
    ranks = [rank(steps.key, one.seed) for one in replicas]
    home = replicas[ranks.index(max(ranks))]
    mean = sum(one.load for one in replicas) / len(replicas)
    most = OVERLOAD_RATIO * mean + OVERLOAD_MORE
    presumed = 0 if _followed(steps, known) else steps.settled
    costs = []
    for one in replicas:
        here = known.get(one.replica, 0) * one.trust
        if one is home:
            here = max(here, presumed)
        if one.load > most * one.weight:
            here = 0.0
        busy = (one.waiting + RUNNING_TOKENS * one.load) / one.weight
        costs.append(steps.total - here + busy)
    bound = min(costs) + max(BLOCK // 8, steps.total // 32)
    near = [at for at, cost in enumerate(costs) if cost <= bound]
    chosen = replicas[max(near, key=ranks.__getitem__)]
    tokens = known.get(chosen.replica, 0)
    if tokens:
        return Choice(chosen.replica, "known", tokens)
    return Choice(chosen.replica, "home" if chosen is home else "load")


def _followed(steps: Steps, known: Mapping[int, int]) -> bool:
    """Whether this proxy sent the turn before. If not, another one did, and it chose by the same
    rule: the conversation's home is presumed to hold it."""
    blocks = bisect_right(steps.tokens, steps.settled)
    return blocks == 0 or max(known.values(), default=0) >= steps.tokens[blocks - 1]


def rank(key: int, seed: int) -> int:
    """64 well mixed bits of both (the finaliser of splitmix64, Steele, Lea and Flood 2014)."""
    mixed = key ^ seed
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)
