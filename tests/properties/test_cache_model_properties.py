"""What holds for every cache model on every trace: tokens are billed once, and a naive model that
remembers whole histories agrees with Anthropic's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.messages import Api
from trivet.prefix.caches import PROVIDERS, Billed, Refused, make_cache
from trivet.prefix.markers.rules import CacheRules, rules_for
from trivet.prefix.prompts.outline import Outline, outline_of

Trace = list[tuple[Outline, float]]
SIZES = (40, 700, 1300, 2300)
MODELS = {"anthropic": "claude-opus-5", "openai": "gpt-5.6", "gemini": "gemini-2.5-pro",
          "bedrock": "us.anthropic.claude-opus-5-v1:0", "deepseek": "deepseek-chat"}  # fmt: skip


def _block(name: int, size: int, ttl: str | None, marker: dict[str, Any], field: str) -> Any:
    made: dict[str, Any] = {"type": "text", "text": f"{name}".ljust(size * 4 - 25, "x")}
    if ttl is not None:
        made[field] = marker | ({"ttl": ttl} if ttl else {})
    return made


@st.composite
def traces(draw: st.DrawFn, provider: str) -> Trace:
    """Up to 12 requests: growing, branching, repeated prompts of up to 30 blocks, some marked."""
    openai = provider == "openai"
    marker = {"mode": "explicit"} if openai else {"type": "ephemeral"}
    named = "prompt_cache_breakpoint" if openai else "cache_control"
    ttls = ["", "30m"] if openai else ["", "5m", "1h"]
    api = Api.CHAT if provider in ("openai", "deepseek", "gemini") else Api.MESSAGES
    marks = st.none() if provider in ("gemini", "deepseek") else st.none() | st.sampled_from(ttls)
    at, made = 0.0, []
    path: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0.0, 1.0, 100.0, 299.0, 300.0, 3600.0]))
        path = path[: draw(st.integers(0, len(path)))] if draw(st.booleans()) else path
        path = [
            *path,
            *draw(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(SIZES)), max_size=9)),
        ]
        path = path[:30] or [(0, 700)]
        marked = {
            at_: draw(marks) for at_ in draw(st.sets(st.integers(0, len(path) - 1), max_size=5))
        }
        blocks = [
            _block(name, size, marked.get(at_), marker, named)
            for at_, (name, size) in enumerate(path)
        ]
        messages = [{"role": "user", "content": [block]} for block in blocks]
        made.append((outline_of(api, {"model": MODELS[provider], "messages": messages}), at))
    return made


@pytest.mark.parametrize("provider", PROVIDERS)
@given(data=st.data())
def test_the_bill_is_the_prompt(provider: str, data: st.DataObject) -> None:
    cache = make_cache(provider)
    for outline, at in data.draw(traces(provider)):
        found = cache.ask("acme", outline, at, first_byte_s=data.draw(st.sampled_from([0.0, 2.0])))
        if isinstance(found, Billed):
            assert found.total == outline.tokens
            assert min(found.uncached, found.read, *(n for _, n in found.writes), 0) == 0
            assert all(tokens > 0 for _, tokens in found.writes)
        else:
            assert found.status == 400


@pytest.mark.parametrize("provider", PROVIDERS)
@given(data=st.data())
def test_nobody_reads_what_others_wrote(provider: str, data: st.DataObject) -> None:
    alone, shared = make_cache(provider), make_cache(provider)
    for outline, at in data.draw(traces(provider)):
        shared.ask("other", outline, at)
        assert alone.ask("acme", outline, at) == shared.ask("acme", outline, at)


@dataclass
class Naive:
    """Anthropic's rules by brute force: every write is kept as the list of blocks it covers, and
    every question is answered by going through all of them."""

    rules: CacheRules
    written: list[tuple[tuple[bytes, ...], float, float, float]] = field(default_factory=list)
    """Blocks, lifetime, when readable, when it ends. One row a prefix."""

    def ask(self, outline: Outline, at: float, first_byte_s: float) -> tuple[int, int, int, int]:
        """Tokens uncached, read, written for 5m, written for 1h."""
        blocks = tuple(part.content for part in outline.parts)
        sums = [sum(part.tokens for part in outline.parts[: n + 1]) for n in range(len(blocks))]
        marks = [
            (n, "1h" if part.mark.ttl == "1h" else "5m")
            for n, part in enumerate(outline.parts)
            if part.mark is not None and sums[n] >= self.rules.min_tokens
        ]
        seen = {
            n - back for n, _ in marks for back in range(20)
            if n - back >= 0 and self._readable(blocks[: n - back + 1], at)
        }  # fmt: skip
        a = max(seen, default=-1)
        self._renew(blocks[: a + 1], at)
        for n, _ in marks:
            if n < a:
                self._split(blocks[: n + 1], blocks[: a + 1], at)
        b = max((n for n, ttl in marks if ttl == "1h" and n > a), default=a)
        c = max((n for n, _ in marks if n > a), default=a)
        for n, ttl in marks:
            if n > a:
                self._write(blocks[: n + 1], 3600.0 if ttl == "1h" else 300.0, at, first_byte_s)
        upto = [0, *sums]
        return (
            upto[-1] - upto[c + 1],
            upto[a + 1],
            upto[c + 1] - upto[b + 1],
            upto[b + 1] - upto[a + 1],
        )

    def _readable(self, blocks: tuple[bytes, ...], at: float) -> bool:
        return any(row[0] == blocks and row[2] <= at < row[3] for row in self.written)

    def _renew(self, hit: tuple[bytes, ...], at: float) -> None:
        for n, (blocks, lives, readable, ends) in enumerate(self.written):
            if blocks == hit[: len(blocks)] and readable <= at < ends:
                self.written[n] = (blocks, lives, readable, max(ends, at + lives))

    def _split(self, blocks: tuple[bytes, ...], source: tuple[bytes, ...], at: float) -> None:
        if not any(row[0] == blocks and at < row[3] for row in self.written):
            self.written = [row for row in self.written if row[0] != blocks]
            self.written += [(blocks, *row[1:]) for row in self.written if row[0] == source]

    def _write(self, blocks: tuple[bytes, ...], lives: float, at: float, first: float) -> None:
        made = (blocks, lives, at + first, at + lives)
        for n, old in enumerate(self.written):
            if old[0] == blocks:
                if at < old[3]:
                    longer = max(old, made, key=lambda row: row[3])
                    made = (*longer[:2], min(old[2], made[2]), longer[3])
                self.written[n] = made
                return
        self.written.append(made)


@given(data=st.data())
def test_a_naive_model_of_anthropics_rules_agrees(data: st.DataObject) -> None:
    cache, naive = make_cache("anthropic"), Naive(rules_for("anthropic", MODELS["anthropic"]))
    for outline, at in data.draw(traces("anthropic")):
        first = data.draw(st.sampled_from([0.0, 2.0]))
        found = cache.ask("acme", outline, at, first_byte_s=first)
        if isinstance(found, Refused):
            continue
        writes = dict(found.writes)
        billed = (found.uncached, found.read, writes.get("5m", 0), writes.get("1h", 0))
        assert billed == naive.ask(outline, at, first)
