"""Which replica of an upstream was asked for a prompt that begins like this one.

A prompt is cut into blocks of 1,024 bytes, each named by a chain of SHA-256 over everything before
it, from a root that holds the tenant's secret salt: no tenant's traffic is found by another's, and
nobody can make two prompts meet. What is kept are 8 bytes a block and a set of replicas, never
text. Blocks of bytes in place of tokens need no tokenizer, as in the proposal 0602 of the Gateway
API Inference Extension.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from trivet.canonical import digest
from trivet.prefix.prompts.outline import Level, Outline, Part

BLOCK: Final = 1024
"""Bytes of a block: about 256 tokens of English."""

KNOWN: Final = 100_000
"""Blocks that are remembered: about 25 million tokens."""

_ATTACHED: Final = ("image", "document", "audio")
_FRESH = sha256()


class Steps(NamedTuple):
    """A prompt as the router sees it."""

    digests: tuple[int, ...]
    """For each full block, 64 bits of the chain up to its end."""
    tokens: tuple[int, ...]
    """Estimated tokens up to the end of each block."""
    total: int
    """Estimated tokens of the whole prompt."""
    key: int
    """64 bits of whose conversation this is: the tenant, the model and all parts up to the end of
    the first user message. Its later turns have the same."""
    settled: int
    """Tokens that the turn before sent; 0 for the first one."""


def steps_of(outline: Outline, owner: bytes) -> Steps:
    """The steps of a prompt of `owner`, the tenant's salt. Pure; about 0.5 ms for 40,000 tokens."""
    root = digest(
        b"trivet-steps", owner, outline.api.encode(), outline.model.encode("utf-8", "surrogatepass")
    )
    opening, settled = _turns(outline.parts)
    texts = [_text(part) for part in outline.parts]
    ends = list(_ends(outline.parts, texts))
    stream = b"".join(texts)
    key = sha256(root + b"".join(texts[:opening])).digest()
    before = sum(part.tokens for part in outline.parts[:settled])
    return Steps(
        _chain(root, stream), _tokens(ends, len(stream)), outline.tokens, _short(key), before
    )


def _text(part: Part) -> bytes:
    """What stands for the part; of an attachment, its digest: two pictures are two prompts."""
    name = f"\x1e{part.kind}\x1f{part.role}\x1f".encode("utf-8", "surrogatepass")
    if part.kind in _ATTACHED:
        return name + sha256(part.content).digest()
    return name + part.content


def _turns(parts: Sequence[Part]) -> tuple[int, int]:
    """How many parts open the conversation, and how many the turn before sent."""
    opening, before, asked, last = 0, 0, False, ""
    for at, part in enumerate(parts):
        if part.level is not Level.MESSAGES:
            continue
        answer = part.role == "assistant"
        if answer and asked and last != "assistant":
            opening, before = opening or at, at
        asked, last = asked or not answer, part.role
    return opening or len(parts), before


def _ends(parts: Sequence[Part], texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """For each part, where its text ends and how many tokens there are until there."""
    at = tokens = 0
    for part, text in zip(parts, texts, strict=True):
        at += len(text)
        tokens += part.tokens
        yield at, tokens


def _tokens(ends: Sequence[tuple[int, int]], size: int) -> tuple[int, ...]:
    """The tokens at the end of each block, as if a part's were spread evenly over its text."""
    found = []
    part, begin, before = 0, 0, 0
    for at in range(BLOCK, size + 1, BLOCK):
        while ends[part][0] < at:
            begin, before = ends[part]
            part += 1
        end, until = ends[part]
        found.append(before + (until - before) * (at - begin) // (end - begin))
    return tuple(found)


def _chain(root: bytes, stream: bytes) -> tuple[int, ...]:
    found = []
    parent, short = root, int.from_bytes
    for at in range(0, len(stream) - BLOCK + 1, BLOCK):
        state = _FRESH.copy()
        state.update(parent)
        state.update(stream[at : at + BLOCK])
        parent = state.digest()
        found.append(short(parent[:8], "big"))
    return tuple(found)


def _short(whole: bytes) -> int:
    return int.from_bytes(whole[:8], "big")


class Affinity:
    """Which replicas were asked for which prefixes, as far as one process knows.

    Bounded: beyond `most` blocks the least recently used one goes, a conversation's newest block
    before its older ones, so that what is known of it stays a prefix. What a replica has thrown
    away itself is not noticed here; see `kv_index`, and `ReplicaState.trust`.
    """

    def __init__(self, most: int = KNOWN) -> None:
        self._most = most
        self._holders: OrderedDict[int, int] = OrderedDict()
        """Of each block, a bit for each replica."""

    def __len__(self) -> int:
        return len(self._holders)

    def held(self) -> dict[int, int]:
        """Blocks by replica. Looks at every block: some milliseconds where there are many."""
        found: dict[int, int] = {}
        for replicas, blocks in Counter(self._holders.values()).items():
            for replica in range(replicas.bit_length()):
                if replicas >> replica & 1:
                    found[replica] = found.get(replica, 0) + blocks
        return found

    def known(self, steps: Steps) -> dict[int, int]:
        """For each replica that was asked for a beginning of this prompt, tokens of the longest."""
        found: dict[int, int] = {}
        holders = self._holders
        alive, before = -1, 0
        for step, tokens in zip(steps.digests, steps.tokens, strict=True):
            still = alive & holders.get(step, 0)
            if before and still != alive:
                _note(found, alive & ~still, before)
            if not still:
                return found
            alive, before = still, tokens
        if before:
            _note(found, alive, before)
        return found

    def learn(self, replica: int, steps: Steps) -> None:
        """The prompt was sent to this replica."""
        bit, holders = 1 << replica, self._holders
        for step in reversed(steps.digests[: self._most]):
            holders[step] = holders.pop(step, 0) | bit
        while len(holders) > self._most:
            holders.popitem(last=False)

    def forget(self, replica: int) -> None:
        """Nothing is left at this replica. Looks at every block."""
        keep = ~(1 << replica)
        holders = self._holders
        for step in [step for step, mask in holders.items() if mask & ~keep]:
            left = holders[step] & keep
            if left:
                holders[step] = left
            else:
                del holders[step]


def _note(found: dict[int, int], replicas: int, tokens: int) -> None:
    while replicas:
        lowest = replicas & -replicas
        found[lowest.bit_length() - 1] = tokens
        replicas ^= lowest
