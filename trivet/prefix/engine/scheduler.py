"""What each step of the model computes, and for whom there are blocks.

    add ─▶ waiting ──plan: admit──▶ running ──done, token──▶ finish
              ▲                        │
              └── token: no block ─────┘   preempted: its blocks go, its tokens stay

Each step holds one token of every sequence that decodes, and parts of prompts within a budget, by
turns of the tenants. Decisions alone: no tensor, no clock, no thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from trivet.errors import OutOfBlocks
from trivet.prefix.engine.preemption import lent, table_of, victim
from trivet.prefix.engine.queues import Turns, WaitingQueues
from trivet.prefix.engine.sequence import Chunk, Finish, Sequence
from trivet.prefix.pool.blocks import BlockPool
from trivet.prefix.pool.free_queue import TenantQueue


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the engine, in sequences but for `step_tokens`."""

    max_running: int = 32
    """The last quarter of these places is for tenants that run nothing yet; it is lent to who has
    the queue to itself."""
    step_tokens: int = 512
    """Prompt tokens of one step, beside the tokens that are decoded in it: they bound how long who
    decodes waits for the next token."""
    prefill_tokens: int = 0
    """Prompt tokens of a step in which nobody decodes, if more: larger steps cost less a token."""
    max_waiting: int = 1024
    max_waiting_per_tenant: int = 256
    max_running_per_tenant: int | None = None

    @property
    def open_places(self) -> int:
        """Of `max_running`, those that a tenant may take which runs something already."""
        return self.max_running - max(self.max_running > 1, self.max_running // 4)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: what to compute, and which sequences have ended without it."""

    chunks: list[Chunk] = field(default_factory=list)
    ended: list[tuple[Sequence, Finish]] = field(default_factory=list)


class Scheduler:
    """Continuous batching over one pool.

    With a `grid` above 1 every token's KV is computed in the same shapes whatever is cached: parts
    of a prompt start and end on the grid, tokens of an answer are computed one by one, and only
    whole cells of prompts are shared. The pool's blocks are whole cells.

    A request that finds too few blocks waits. Others may pass it with as many tokens as the pool
    holds; then they wait behind it, so that small ones cannot keep a large one out for ever.
    They do not while its own tenant's running sequences hold all that it lacks.
    """

    def __init__(self, pool: BlockPool, limits: Limits, grid: int = 1) -> None:
        if pool.block_size % grid:
            raise ValueError("a block has whole cells of the grid")
        self.limits = limits
        self.running: dict[int, Sequence] = {}
        """By number, in the order of admission."""
        self.waiting = WaitingQueues(limits.max_waiting, limits.max_waiting_per_tenant)
        self._pool = pool
        self._grid = grid
        self._turns = Turns()
        self._releases = 0
        self._blocked: Sequence | None = None
        self._passed = 0

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self.running and not len(self.waiting)

    def add(self, sequence: Sequence) -> str:
        """Let a new sequence wait. Returns why not: `too-long`, `queue-full`, `tenant-queue-full`.

        `too-long` is a prompt that no wait makes fit into the tenant's blocks.
        """
        chain = sequence.chain
        if chain.blocks - chain.shared > self._pool.ceiling(sequence.tenant):
            return "too-long"
        reason = self.waiting.refusal(sequence.tenant)
        if not reason:
            self.waiting.add(sequence)
            self._turns.enter(sequence.tenant)
        return reason

    def plan(self, now: float) -> Plan:
        """The next step. `now` is of the clock of the deadlines, in seconds.

        Ended are those past their deadline, and those that cannot grow further (`length`) or start
        (`error`) because no wait brings as many blocks.
        """
        plan = Plan()
        for sequence in (*self.running.values(), *self.waiting.all()):
            if sequence.deadline is not None and sequence.deadline <= now:
                self._end(sequence, "deadline", plan)
        limits = self.limits
        free, kept = limits.max_running - len(self.running), limits.open_places
        for sequence in lent(self.running.values(), self.waiting.tenants(), free, kept):
            self._preempt(sequence)
        prompts: dict[str, list[Sequence]] = {}
        for sequence in self.running.values():
            if sequence.generated and sequence.computed == len(sequence.tokens) - 1:
                self._give(Chunk(sequence, sequence.computed, len(sequence.tokens)), plan)
            else:
                prompts.setdefault(sequence.tenant, []).append(sequence)
        self._share_out(prompts, plan)
        return plan

    def done(self, chunk: Chunk) -> None:
        """The chunk's KV is written and sound: blocks that it fills may be shared.

        Nothing happens for a sequence that lost its blocks meanwhile.
        """
        sequence, table = chunk.sequence, chunk.sequence.table
        if table is None or sequence.computed != chunk.start:
            return
        sequence.computed = chunk.stop
        ready = min(chunk.stop, self._shareable(sequence))
        if ready // self._pool.block_size > table.committed and self._pool.commit(table, ready):
            self._releases += 1

    def token(self, sequence: Sequence, token: int) -> bool:
        """Append a drawn token, with a block for its KV.

        Where none is free, sequences are preempted until one is. False if this one is among them,
        or was preempted before, or has ended: its token is kept.
        """
        sequence.tokens.append(token)
        while sequence.table is not None:
            if self._pool.append(sequence.table, [token]):
                return True
            self._preempt(victim(self.running.values(), sequence.table.queue))
        sequence.chain.extend([token])
        return False

    def finish(self, sequence: Sequence) -> None:
        """The sequence has ended, for whatever reason: its blocks are back. Idempotent."""
        if self.running.get(sequence.number) is sequence:
            self._release(sequence, preempted=False)
        elif not self.waiting.remove(sequence):
            return
        self._turns.leave(sequence.tenant)
        if self._blocked is sequence:
            self._blocked = None

    def _end(self, sequence: Sequence, finish: Finish, plan: Plan) -> None:
        self.finish(sequence)
        plan.ended.append((sequence, finish))

    def _give(self, chunk: Chunk, plan: Plan) -> None:
        plan.chunks.append(chunk)
        self._turns.charge(chunk.sequence.tenant, chunk.stop - chunk.start)

    # Prompts: whose turn, and how much.

    def _share_out(self, prompts: dict[str, list[Sequence]], plan: Plan) -> None:
        """Give the step's budget to running prompts and to new ones, tenant by tenant."""
        limits = self.limits
        more = 0 if plan.chunks else limits.prefill_tokens
        budget = max(limits.step_tokens, more, self._grid)
        candidates = set(prompts)
        if len(self.running) < self.limits.max_running:
            candidates.update(self.waiting.tenants())
        turns = [self._turns.entry(tenant) for tenant in candidates]
        heapify(turns)
        while turns and budget > 0:
            tenant = heappop(turns)[1]
            begun = prompts.get(tenant)
            sequence = begun.pop(0) if begun else self._admit_next(tenant, plan)
            if sequence is None:
                continue
            chunk = self._chunk(sequence, budget)
            budget -= chunk.stop - chunk.start
            if chunk.stop > chunk.start:
                self._give(chunk, plan)
                heappush(turns, self._turns.entry(tenant))

    def _chunk(self, sequence: Sequence, budget: int) -> Chunk:
        """The sequence's next tokens; none where the budget ends before the grid's next line."""
        start, prompt, grid = sequence.computed, sequence.prompt_tokens, self._grid
        stop = min(len(sequence.tokens), start + budget)
        if grid > 1 and start >= prompt:
            stop = start + 1
        elif grid > 1:
            stop = prompt if stop >= prompt else stop // grid * grid
        return Chunk(sequence, start, max(start, stop))

    def _shareable(self, sequence: Sequence) -> int:
        """How many leading tokens' KV others may use once it is computed."""
        if self._grid == 1:
            return len(sequence.tokens)
        return sequence.prompt_tokens // self._grid * self._grid

    # Admission: a place, a prefix worth waiting for, blocks.

    def _admit_next(self, tenant: str, plan: Plan) -> Sequence | None:
        """The tenant's next sequence, with its blocks; None if it has to wait."""
        if not self._has_place(tenant):
            return None
        for sequence in self.waiting.line(tenant):
            if self._is_awaiting(sequence):
                continue
            try:
                return sequence if self._admit(sequence) else None
            except OutOfBlocks:
                self._end(sequence, "length" if sequence.generated else "error", plan)
        return None

    def _has_place(self, tenant: str) -> bool:
        """Whether one more of the tenant's may run."""
        limits, running = self.limits, self.running
        if len(running) >= limits.max_running:
            return False
        own = sum(sequence.tenant == tenant for sequence in running.values())
        most = limits.max_running_per_tenant
        if most is not None and own >= most:
            return False
        if not own or len(running) < limits.open_places:
            return True
        # On a grid it costs too much to take one back: answers are computed anew one by one.
        return self._grid == 1 and all(one == tenant for one in self.waiting.tenants())

    def _is_awaiting(self, sequence: Sequence) -> bool:
        """Whether a running sequence computes and will share what this one begins with.

        What another stopped computing is out of `computing`, and the wait is over.
        """
        pool = self._pool
        if not sequence.reuse:
            return False
        if sequence.awaits is not None and sequence.awaits in pool.computing:
            return True
        sequence.awaits = None
        match = pool.match(sequence.chain)
        first = match.cached_tokens // pool.block_size
        for at in range(first + match.pending_tokens // pool.block_size - 1, first - 1, -1):
            name = sequence.chain.hashes[at]
            table = pool.computing[name]
            owner = next((each for each in self.running.values() if each.table is table), None)
            if owner is not None and (at + 1) * pool.block_size <= self._shareable(owner):
                sequence.awaits = name
                return True
        return False

    def _admit(self, sequence: Sequence) -> bool:
        if sequence.refused_at == self._releases or self._stands_behind(sequence.tenant):
            return False
        resumed = sequence.preempted
        table = self._pool.admit(
            sequence.chain, sequence.tenant, resumed=resumed, reuse=sequence.reuse
        )
        if table is None:
            self._refused(sequence)
            return False
        self.waiting.remove(sequence)
        self.running[sequence.number] = sequence
        sequence.table = table
        sequence.computed = table.cached_tokens
        if not resumed:
            sequence.cached_tokens = table.cached_tokens
        if self._blocked is sequence:
            self._blocked = None
        self._passed += sequence.chain.length
        return True

    def _stands_behind(self, tenant: str) -> bool:
        """Whether enough has passed another tenant's request that does not fit yet.

        Of its own tenant only what stands before it can be asked for, so that goes on. Nor do
        others wait for what its own tenant's running sequences hold.
        """
        blocked = self._blocked
        pool = self._pool.capacity * self._pool.block_size
        if blocked is None or blocked.tenant == tenant or self._passed < pool:
            return False
        return not self._waits_for_its_own(blocked)

    def _waits_for_its_own(self, blocked: Sequence) -> bool:
        """Whether its tenant's running sequences hold at least the blocks that it lacks."""
        queue = self._pool.queue.tenant(blocked.tenant)
        lacks = blocked.chain.blocks - self._pool.queue.available(queue)
        own = {
            block
            for sequence in self.running.values()
            if sequence.tenant == blocked.tenant
            for block in table_of(sequence).blocks
        }
        return 0 < lacks <= len(own)

    def _refused(self, sequence: Sequence) -> None:
        sequence.refused_at = self._releases
        queue = self._pool.queue.tenant(sequence.tenant)
        if self._blocked is None and not self._is_bound_by_quota(queue):
            self._blocked = sequence
            self._passed = 0

    def _is_bound_by_quota(self, queue: TenantQueue) -> bool:
        """Whether the tenant's own quota leaves it less than the pool has: others cannot help."""
        free = self._pool.queue
        return queue.quota is not None and (
            queue.quota - queue.held + queue.idle < free.blank + free.idle
        )

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence, preempted=True)
        sequence.computed = 0
        sequence.preempted = True
        sequence.refused_at = -1
        self.waiting.put_back(sequence)

    def _release(self, sequence: Sequence, *, preempted: bool) -> None:
        del self.running[sequence.number]
        self._pool.release(table_of(sequence), preempted=preempted)
        sequence.table = None
        self._releases += 1
