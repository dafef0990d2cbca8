"""Random arrivals, steps, cancellations and failures, in little memory."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from loop_builders import SIZE, FakeRunner, answer, request

from trivet.prefix.engine.kv_movers import host_mover
from trivet.prefix.engine.runner import Piece
from trivet.prefix.engine.scheduler import Limits, Plan, Scheduler
from trivet.prefix.engine.sequence import Sequence
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.offload import OffloadTier
from trivet.prefix.pool.shares import Share, Shares

TENANTS = ("acme", "globex", "initech")

PROMPTS = st.builds(
    lambda kinds, tail: [kind for kind in kinds for _ in range(SIZE)] + [9] * tail,
    st.lists(st.sampled_from([5, 6, 7]), min_size=1, max_size=6),
    st.integers(0, SIZE),
)

SHARES = st.fixed_dictionaries(
    {},
    optional={
        "acme": st.sampled_from([Share(floor=2), Share(quota=5), Share(quota=6, floor=3)]),
        "globex": st.sampled_from([Share(floor=3), Share(quota=4)]),
    },
)

LIMITS = st.builds(
    Limits,
    max_running=st.integers(1, 5),
    step_tokens=st.integers(1, 20),
    max_waiting=st.just(12),
    max_waiting_per_tenant=st.just(6),
    max_running_per_tenant=st.sampled_from([None, 2]),
)


class SchedulerMachine(RuleBasedStateMachine):
    live: dict[int, Sequence]

    @initialize(
        capacity=st.integers(6, 14),
        shares=SHARES,
        limits=LIMITS,
        grid=st.sampled_from([1, 1, SIZE]),
        slots=st.sampled_from([0, 0, 6]),
    )
    def start(
        self, capacity: int, shares: dict[str, Share], limits: Limits, grid: int, slots: int
    ) -> None:
        self.runner = FakeRunner(capacity, grid)
        mover = host_mover(self.runner.memory, slots)
        self.pool = BlockPool(
            capacity,
            SIZE,
            shares=Shares(shares),
            offload=OffloadTier(slots, mover) if slots else None,
        )
        self.scheduler = Scheduler(self.pool, limits, grid)
        self.limits, self.grid = limits, grid
        self.live = {}
        self.number = 0
        self.now = 0.0

    @rule(
        tenant=st.sampled_from(TENANTS),
        tokens=PROMPTS,
        most=st.integers(1, 12),
        patience=st.sampled_from([None, None, 3.0, 10.0]),
        reuse=st.sampled_from([True, True, True, False]),
    )
    def arrive(
        self, tenant: str, tokens: list[int], most: int, patience: float | None, reuse: bool
    ) -> None:
        self.number += 1
        one = request(self.number, tokens, tenant, most=most)
        one.reuse = reuse
        one.deadline = None if patience is None else self.now + patience
        waiting = [each for each in self.live.values() if each in self.scheduler.waiting]
        fresh = [each for each in waiting if not each.preempted]
        own = [each for each in fresh if each.tenant == tenant]
        reason = self.scheduler.add(one)
        if one.chain.blocks > self.pool.ceiling(tenant):
            assert reason == "too-long"
        elif len(fresh) >= self.limits.max_waiting:
            assert reason == "queue-full"
        elif len(own) >= self.limits.max_waiting_per_tenant:
            assert reason == "tenant-queue-full"
        else:
            assert reason == ""
            self.live[one.number] = one

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._finish(self.live[data.draw(st.sampled_from(sorted(self.live)))])

    @rule(steps=st.integers(1, 4), fate=st.sampled_from(["fine"] * 6 + ["raises", "cancelled"]))
    def run(self, steps: int, fate: str) -> None:
        for _ in range(steps):
            self.now += 1.0
            self._step(fate)
            self.hold()

    def _step(self, fate: str = "fine") -> Plan:
        before = set(self.scheduler.running)
        decoding = [one for one in self.scheduler.running.values() if self._decodes(one)]
        plan = self.scheduler.plan(self.now)
        for one, finish in plan.ended:
            del self.live[one.number]
            if finish == "deadline":
                assert one.deadline is not None
                assert one.deadline <= self.now
            else:
                # Only what grew beyond all that its tenant can have ends so.
                assert (finish, one.generated > 0) == ("length", True)
        self._check_plan(plan, decoding, before)
        if fate == "raises":
            for chunk in plan.chunks:
                self._finish(chunk.sequence)
        elif plan.chunks:
            self._compute(plan, fate)
        return plan

    def _decodes(self, one: Sequence) -> bool:
        alive = one.deadline is None or one.deadline > self.now
        return alive and one.generated > 0 and one.computed == len(one.tokens) - 1

    def _check_plan(self, plan: Plan, decoding: list[Sequence], before: set[int]) -> None:
        planned = [chunk.sequence for chunk in plan.chunks]
        assert len(set(map(id, planned))) == len(planned), "a sequence twice in a step"
        assert planned[: len(decoding)] == decoding, "a decode that waits"
        prompts = plan.chunks[len(decoding) :]
        spent = sum(chunk.stop - chunk.start for chunk in prompts)
        assert spent <= max(self.limits.step_tokens, self.grid)
        for chunk in prompts:
            if self.grid > 1 and chunk.start < chunk.sequence.prompt_tokens:
                assert chunk.start % self.grid == 0
                assert chunk.stop % self.grid == 0 or chunk.stop == chunk.sequence.prompt_tokens
            elif self.grid > 1:
                assert chunk.stop == chunk.start + 1
        for number in set(self.scheduler.running) - before:
            self._check_order(self.scheduler.running[number])

    def _check_order(self, one: Sequence) -> None:
        if one.preempted:
            return
        for other in self.scheduler.waiting.line(one.tenant):
            if other.number < one.number:
                assert other.awaits is not None, "an older one of the tenant was passed"

    def _compute(self, plan: Plan, fate: str) -> None:
        pieces = [
            Piece(
                one.sequence.tokens[one.start : one.stop],
                one.start,
                cast(Any, one.sequence.table).blocks,
                True,
            )
            for one in plan.chunks
        ]
        logits = self.runner.run(pieces)
        if fate == "cancelled":
            # While the model was running its client left.
            self._finish(plan.chunks[0].sequence)
        sampled = [chunk.sampled for chunk in plan.chunks]
        for chunk in plan.chunks:
            self.scheduler.done(chunk)
        for chunk, row, wanted in zip(plan.chunks, logits, sampled, strict=True):
            one = chunk.sequence
            if not wanted or one.number not in self.live:
                continue
            token = int(row.argmax())
            if one.generated + 1 == one.params.max_tokens:
                prompt = one.tokens[: one.prompt_tokens]
                made = [*one.tokens[one.prompt_tokens :], token]
                assert made == answer(prompt, len(made)), "KV of another place"
                self._finish(one)
            else:
                self.scheduler.token(one, token)

    def _finish(self, one: Sequence) -> None:
        self.scheduler.finish(one)
        self.scheduler.finish(one)
        self.live.pop(one.number, None)

    @invariant()
    def hold(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        running, waiting = self.scheduler.running, self.scheduler.waiting
        lines = waiting.all()
        assert len(lines) == len(waiting)
        assert sorted([*running, *(one.number for one in lines)]) == sorted(self.live)
        assert self.pool.tables == {one.table for one in running.values()}
        assert all(one.table is None for one in lines)
        assert len(running) <= self.limits.max_running
        for one in self.live.values():
            assert one.chain.length == len(one.tokens)
        for one in running.values():
            assert one.computed < len(one.tokens)
        assert self.pool.state().used == len(
            {block for one in running.values() for block in cast(Any, one.table).blocks}
        )

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        # With no more arrivals everybody comes to an end, and every step computes something.
        for _ in range(2000):
            if self.scheduler.idle:
                break
            plan = self._step()
            assert plan.chunks or plan.ended
            self.hold()
        assert self.scheduler.idle
        assert not self.live
        assert self.pool.state().used == 0


TestSchedulerMachine: Any = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
