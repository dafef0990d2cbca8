"""Who gives its blocks back: where a sequence needs one and none is free, or a tenant a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from operator import attrgetter

from trivet.prefix.engine.sequence import Sequence
from trivet.prefix.pool.block_table import BlockTable
from trivet.prefix.pool.free_queue import TenantQueue


def victim(running: Collection[Sequence], account: TenantQueue) -> Sequence:
    """The youngest sequence of the tenant that holds most, where that helps `account`.

    None is chosen twice while there is another. Of those chosen before it is the youngest, so that
    the oldest of all comes to its end. One of the account's own sequences runs.
    """
    held: Counter[TenantQueue] = Counter()
    for each in running:
        held[table_of(each).queue] += len(table_of(each).blocks)

    def rank(each: Sequence) -> tuple[bool, int, int]:
        fresh = not each.preempted
        return fresh, held[table_of(each).queue] if fresh else 0, each.number

    # At its quota a tenant is helped by its own blocks alone; and what a tenant has under its floor
    # stays its own.
    alone = account.quota is not None and account.quota <= account.held - account.idle
    return max(
        (
            each
            for each in running
            if (owner := table_of(each).queue) is account
            or not (alone or owner.held <= owner.floor)
        ),
        key=rank,
    )


def lent(
    running: Collection[Sequence], waiting: Iterable[str], free: int, kept: int
) -> list[Sequence]:
    """Those that give back a place that was lent, for tenants of `waiting` that run nothing.

    `free` places need none. The first of each tenant have the places beyond `kept`; what others
    have of them is lent. The youngest go, of whoever runs most.
    """
    counts = Counter(each.tenant for each in running)
    wanted = sum(tenant not in counts for tenant in waiting) - free
    wanted = min(wanted, len(running) - len(counts) - kept + 1)
    youngest = sorted(running, key=attrgetter("number"))
    given: list[Sequence] = []
    while len(given) < wanted:
        holder = counts.most_common(1)[0][0]
        at = max(at for at, each in enumerate(youngest) if each.tenant == holder)
        given.append(youngest.pop(at))
        counts[holder] -= 1
    return given


def table_of(sequence: Sequence) -> BlockTable:
    """What a running sequence holds."""
    assert sequence.table is not None
    return sequence.table
