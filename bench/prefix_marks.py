"""`python -m bench.prefix_marks`: what our breakpoints save on an agent's trace, beside the best.

All against the models of the providers' documented caches; no network, no clock, a minute at most.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bench.agent_trace import Shape, claude, gpt, trace
from bench.best_marks import Timed, bound, cost
from bench.report import Row, line, summary, write
from trivet.policies.prefix_model import PrefixPolicy
from trivet.prefix.backends.base import Marked
from trivet.prefix.caches import Billed, make_cache
from trivet.prefix.markers.placement import as_sent, place_breakpoints
from trivet.prefix.markers.rules import CacheRules, rules_for
from trivet.prefix.markers.stability import Stability, level_end, prompt_of
from trivet.prefix.prompts.outline import Level, Mark, Outline

RESULTS = Path(__file__).with_name("results_prefix_marks.json")
_SEEDS = (1, 2, 3, 4, 5)
_GPT = "gpt-6-astra"
Marker = Callable[[float, Outline], Outline]


class Outcome(NamedTuple):
    """Of a whole trace, in uncached tokens."""

    plain: float
    paid: float
    refused: int

    @property
    def saved(self) -> float:
        """Share of the input cost."""
        return 1 - self.paid / self.plain


def played(requests: Sequence[Timed], rules: CacheRules, mark: Marker) -> Outcome:
    """What a provider bills for the trace, marked so."""
    cache = make_cache(rules.provider)
    plain = paid = 0.0
    refused = 0
    for at, outline in requests:
        billed = cache.ask("tenant", mark(at, outline), at)
        plain += outline.tokens
        if isinstance(billed, Billed):
            paid += cost(billed, rules)
        else:
            refused += 1
            paid += outline.tokens
    return Outcome(plain, paid, refused)


def ours(rules: CacheRules, policy: PrefixPolicy | None = None) -> Marker:
    """Placement as the proxy does it, beginning without any knowledge."""
    stability = Stability()
    wanted = policy or PrefixPolicy()

    def mark(at: float, outline: Outline) -> Outline:
        prompt = prompt_of("tenant", "route", outline, at)
        marks = place_breakpoints(outline, rules, stability.view(prompt), wanted, at)
        stability.see(prompt, rules, marks)
        return as_sent(outline, marks)

    return mark


def system_only(rules: CacheRules) -> Marker:
    """A client that marks its system prompt and nothing else."""

    def mark(_: float, outline: Outline) -> Outline:
        at = level_end(outline.parts, Level.SYSTEM)
        made = as_sent(outline, [Marked(outline.parts[at].place)])
        return made._replace(mode="explicit") if rules.provider == "openai" else made

    return mark


def automatic(rules: CacheRules) -> Marker:
    """What the provider does by itself, if asked to: one breakpoint at the end."""

    def mark(_: float, outline: Outline) -> Outline:
        return outline if rules.provider == "openai" else outline._replace(automatic=Mark())

    return mark


def requests_of(shape: Shape, provider: str) -> list[Timed]:
    """The trace as that provider reads it."""
    seen = claude if provider == "anthropic" else gpt
    return [(asked.at, seen(asked)) for asked in trace(shape)]


def compared(shape: Shape, provider: str) -> dict[str, float]:
    """Shares of the input cost that are saved, by marker; `best` is what none exceeds."""
    requests = requests_of(shape, provider)
    rules = rules_for(provider, shape.model if provider == "anthropic" else _GPT)
    plain = sum(outline.tokens for _, outline in requests)
    mine = played(requests, rules, ours(rules))
    return {
        "requests": len(requests),
        "tokens": plain,
        "best": 1 - bound(requests, rules) / plain,
        "ours": mine.saved,
        "refused": mine.refused,
        "5m": played(requests, rules, ours(rules, PrefixPolicy(ttl="5m"))).saved,
        "1h": played(requests, rules, ours(rules, PrefixPolicy(ttl="1h"))).saved,
        "system": played(requests, rules, system_only(rules)).saved,
        "automatic": played(requests, rules, automatic(rules)).saved,
    }


def rows() -> Iterator[Row]:
    """The table."""
    for provider in ("anthropic", "openai"):
        found = [compared(replace(Shape(), seed=seed), provider) for seed in _SEEDS]
        section = (
            f"{provider}: agent of 60 steps with sub-agents, {len(found)} seeds, "
            f"{sum(one['requests'] for one in found):,.0f} requests"
        )
        pinned = ("5m", "1h") if provider == "anthropic" else ()
        for name in ("best", "ours", *pinned, "automatic", "system"):
            shares = [100 * one[name] for one in found]
            spread = f"{min(shares):.1f} to {max(shares):.1f}"
            yield Row(section, _NAMES[name], sum(shares) / len(shares), "%", detail=spread)
        ratio = min(one["ours"] / one["best"] for one in found)
        yield Row(section, "ours by the bound, the worst seed", ratio, "", ">=", 0.97)
        for name in ("automatic", "system"):
            least = min(one["ours"] - one[name] for one in found)
            yield Row(section, f"ours ahead of {_NAMES[name]}", 100 * least, "pt", ">=", 0.01)
        yield Row(section, "answered 400", sum(one["refused"] for one in found), "", "==", 0)


_SHAPES = {
    "a person is never waited for": Shape(waits=0.0),
    "a quarter of the steps wait 6 to 20 minutes": Shape(waits=0.25),
    "nine of ten steps wait 6 to 20 minutes": Shape(waits=0.9),
    "half of the steps call 12 tools at once": Shape(wide=0.5),
    "8 steps": Shape(steps=8),
    "8 steps, three of ten wait": Shape(steps=8, waits=0.3),
    "a minimum of 4,096 tokens": Shape(model="claude-opus-4-5"),
    "small prompts: steps of 300 tokens": Shape(system=100, tool=20, step=300),
}


def shapes() -> Iterator[Row]:
    """How far from the bound on other traces, at Anthropic."""
    section = (
        "anthropic, other traces: ours by the bound (mean of 5 seeds), the worst seed behind it"
    )
    for name, shape in _SHAPES.items():
        found = [compared(replace(shape, seed=seed), "anthropic") for seed in _SEEDS]
        ratios = [one["ours"] / one["best"] for one in found]
        yield Row(section, name, sum(ratios) / len(ratios), "", detail=f"{min(ratios):.3f}")


_NAMES = {
    "best": "a bound that no marking exceeds",
    "ours": "ours",
    "5m": "ours, lifetime pinned to 5 minutes",
    "1h": "ours, lifetime pinned to an hour",
    "automatic": "automatic mode alone",
    "system": "the system prompt marked only",
}


def main() -> int:
    """Exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.prefix_marks", description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--shapes", action="store_true", help="Other traces too.")
    asked = parser.parse_args()
    found: list[Row] = []
    for row in chain(rows(), shapes() if asked.shapes else ()):
        if not found or found[-1].section != row.section:
            print(row.section, flush=True)
        print(line(row), flush=True)
        found.append(row)
    write(found, asked.output, quick=False)
    print(summary(found))
    return 0 if all(row.met is not False for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
