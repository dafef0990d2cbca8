"""The worked examples as labelled figures, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trivet.eval.counted import counted
from trivet.eval.economics import (
    Step,
    Worth,
    break_even_request,
    kv_bytes_per_token,
    load_after_flush,
)
from trivet.policies.economics import Economics


@dataclass(frozen=True, slots=True)
class Worked:
    """One example: a title, lines of label and figure, and the same figures as data."""

    name: str
    title: str
    lines: tuple[tuple[str, str], ...]
    data: dict[str, Any]


def agent_step(step: Step, steps: int) -> Worked:
    """Input cost of an agent's step, and of a task of so many alike."""
    new = step.tokens - step.unchanged
    lines = (
        ("without prefix caching", f"${step.plain:.4f} per step"),
        (f"{_tokens(step.unchanged)} read at {step.read:g} times", f"${step.reads:.4f}"),
        (f"{_tokens(new)} written at {step.write:g} times", f"${step.writes:.4f}"),
        ("with prefix caching", f"${step.cached:.4f} per step ({_less(step.saved)})"),
        (counted(steps, "step"), f"${steps * step.plain:.2f} against ${steps * step.cached:.2f}"),
    )
    data = {
        "plain": step.plain,
        "reads": step.reads,
        "writes": step.writes,
        "cached": step.cached,
        "saved": step.saved,
        "steps": steps,
        "plain_task": steps * step.plain,
        "cached_task": steps * step.cached,
    }
    title = f"An agent step of {_tokens(step.tokens)} at ${step.price:g} per million"
    return Worked("agent-step", title, lines, data)


def _tokens(count: int) -> str:
    return f"{count:,} {'token' if count == 1 else 'tokens'}"


def _less(share: float) -> str:
    return f"{share:.0%} less" if share >= 0 else f"{-share:.0%} more"


def break_even(writes: Sequence[float], read: float) -> Worked:
    """From which request of one prefix on caching is cheaper."""
    found = [(write, break_even_request(write, read)) for write in writes]
    lines = tuple(
        (
            f"written at {write:g} times, read at {read:g}",
            "never" if request is None else f"cheaper from request {request} on",
        )
        for write, request in found
    )
    data = {"read": read, "writes": [{"write": w, "request": request} for w, request in found]}
    return Worked("break-even", "When a cached prefix pays for its write", lines, data)


def kv(shape: tuple[int, int, int], bits: int, tokens: int) -> Worked:
    """Memory of keys and values; `shape` is layers, KV heads and head dimension."""
    each = kv_bytes_per_token(*shape, bits)
    layers, heads, dimension = shape
    lines = (
        ("one token", f"{each:,} bytes ({_kib(each)})"),
        (f"a prefix of {_tokens(tokens)}", f"{each * tokens / 1e9:.1f} GB"),
    )
    sizes = f"{counted(layers, 'layer')}, {counted(heads, 'KV head')}"
    title = f"Keys and values: {sizes} of {dimension}, {bits} bits"
    data = {"bytes_per_token": each, "tokens": tokens, "bytes": each * tokens}
    return Worked("kv", title, lines, data)


def _kib(size: int) -> str:
    return f"{size / 1024:g} KiB"


def flush(absorbed: float) -> Worked:
    """The load on a model whose cache was emptied."""
    times = load_after_flush(absorbed)
    lines = (("load on the model, cache empty", f"{times:.1f} times the usual"),)
    title = f"A flush of a cache that absorbs {absorbed:.0%} of the requests"
    return Worked("flush", title, lines, {"absorbed": absorbed, "times": times})


def worth_it(worth: Worth) -> Worked:
    """Whether a semantic cache pays: h * c > l + h * f * w."""
    costs = worth.costs
    limit = worth.highest_false_hit_rate
    verdict = "worth it" if worth.worth_it else "not worth it"
    lines = (
        ("saved per request, h * c", f"${worth.saved:.6f}"),
        ("risked per request, l + h * f * w", f"${worth.risked:.6f}"),
        ("left over per request", f"{_money(worth.margin)}: {verdict}"),
        ("pays up to a false-hit rate of", _limit(limit)),
    )
    title = (
        f"Semantic cache: h {worth.hit_rate:g}, f {worth.false_hit_rate:g}, "
        f"c ${costs.call_cost:g}, l ${costs.lookup_cost:g}, w ${costs.false_hit_cost:g}"
    )
    data = {
        "saved": worth.saved,
        "risked": worth.risked,
        "margin": worth.margin,
        "worth_it": worth.worth_it,
        "highest_false_hit_rate": limit,
    }
    return Worked("worth-it", title, lines, data)


def _money(value: float) -> str:
    return f"-${-value:.6f}" if value < 0 else f"${value:.6f}"


def _limit(rate: float | None) -> str:
    if rate is None or rate >= 1:
        return "100%"
    return "none: the lookups cost more than the hits save" if rate < 0 else f"{rate:.2%}"


def examples() -> list[Worked]:
    """All of them with the figures of the design."""
    faq = Economics(call_cost=0.01, lookup_cost=0.0002, false_hit_cost=0.1)
    support = Economics(call_cost=0.01, lookup_cost=0.0002, false_hit_cost=5.0)
    return [
        agent_step(Step(), 30),
        break_even((1.25, 2.0), 0.1),
        kv((80, 8, 128), 16, 32_000),
        kv((32, 32, 128), 16, 32_000),
        flush(0.4),
        worth_it(Worth(0.3, 0.02, faq)),
        worth_it(Worth(0.3, 0.02, support)),
    ]


def as_text(worked: Sequence[Worked]) -> str:
    """A table: under each title, what and how much."""
    width = max(len(label) for one in worked for label, _ in one.lines)
    blocks = [
        "\n".join([one.title, *(f"  {label:<{width}}  {told}" for label, told in one.lines)])
        for one in worked
    ]
    return "\n\n".join(blocks)
