"""What a block of tokens is called: a chain of SHA-256 digests (FIPS 180-4).

    root      = SHA-256 over tagged, length-prefixed facts: whose prompt, which model, which layout
    content_i = the tokens of block i, 4 bytes each, little-endian | the extras of the block
    h_i       = SHA-256(h_{i-1} | content_i),  h_{-1} = root

Tokens have a fixed length and each extra stands behind its tag and length, so two different
prefixes never have one text to hash. A tenant's salt enters the root under a tag of its own: no
salt equals a LoRA name or another tenant's block hash. Only full blocks have a hash.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NewType, cast

from trivet.canonical import digest, join, mac

BlockHash = NewType("BlockHash", bytes)
"""32 bytes: one block and everything before it."""

RootHash = NewType("RootHash", bytes)
"""32 bytes: what a chain starts from."""

_DOMAIN = b"trivet-prefix-v1"
_TOKEN = 4
_MIN_DIGEST = 16
_FRESH = sha256()


@dataclass(frozen=True, slots=True)
class Namespace:
    """All that shapes a block's KV beside its tokens. Two of them share no block.

    `tokenizer` and `layout` (dtype, heads, paging) tell apart what one model name may stand for;
    `lora` names the adapter by path and content digest, because a name can be loaded anew.
    """

    model: str
    revision: str = ""
    tokenizer: str = ""
    lora: str = ""
    layout: str = ""

    def root(self, owner: bytes, salt: bytes, block_size: int) -> RootHash:
        """The root of the chains that `owner` (`tenant` or `platform`) keeps under `salt`."""
        return RootHash(
            digest(
                _DOMAIN,
                *(b"owner", owner, b"salt", salt),
                *(b"model", self.model.encode(), b"revision", self.revision.encode()),
                *(b"tokenizer", self.tokenizer.encode(), b"lora", self.lora.encode()),
                *(b"layout", self.layout.encode(), b"block-size", str(block_size).encode()),
            )
        )


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of a prompt whose tokens do not tell its content: an image's placeholders.

    `start` and `length` count tokens. Without a digest nothing tells two images apart, so no block
    from there on is shared.
    """

    kind: str
    start: int
    length: int
    digest: bytes | None

    def __post_init__(self) -> None:
        if self.start < 0 or self.length < 1:
            raise ValueError("a part of a prompt starts at 0 or later and has a token")
        if self.digest is not None and len(self.digest) < _MIN_DIGEST:
            raise ValueError(f"a part's digest has {_MIN_DIGEST} bytes or more")


def tenant_salt(secret: bytes, tenant: str, epoch: int = 0) -> str:
    """A salt that nobody can guess: 64 hex digits. A new epoch makes a new key space."""
    return mac(secret, b"prefix-salt", tenant.encode(), str(epoch).encode()).hex()


def pack(tokens: Sequence[int]) -> bytes:
    """4 bytes a token, little-endian. Raises `ValueError` for what is not in 0..2^32-1."""
    try:
        packed = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids are integers from 0 to 2^32-1: {error}") from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def hash_blocks(parent: bytes, contents: Iterable[bytes]) -> list[BlockHash]:
    """The hashes of consecutive blocks behind `parent` (32 bytes: a root or a block's hash)."""
    hashes: list[bytes] = []
    for content in contents:
        # To copy a fresh state costs half of what OpenSSL takes to set one up.
        state = _FRESH.copy()
        state.update(parent + content)
        parent = state.digest()
        hashes.append(parent)
    return cast("list[BlockHash]", hashes)


class BlockChain:
    """The tokens of one sequence, cut into blocks and hashed as far as blocks are full.

    Grows by `extend` while an answer is decoded. `hashes` and `contents` are for reading, one for
    each full block that may be shared; `shared` leading blocks belong to the platform.
    """

    __slots__ = ("_marks", "_stop", "_tail", "block_size", "contents", "hashes", "length", "root",
                 "shared")  # fmt: skip

    def __init__(self, root: RootHash, block_size: int) -> None:
        self.root = root
        self.block_size = block_size
        self.length = 0
        self.shared = 0
        self.hashes: list[BlockHash] = []
        self.contents: list[bytes] = []
        self._tail = b""
        self._marks: dict[int, bytes] = {}
        self._stop: int | None = None

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens; hash the blocks that they fill. Raises `ValueError` as `pack` does."""
        self._extend(pack(tokens))

    def _extend(self, added: bytes) -> None:
        self.length += len(added) // _TOKEN
        first = len(self.hashes)
        if self._stop is not None and first >= self._stop:
            return
        packed = self._tail + added
        width = self.block_size * _TOKEN
        whole = len(packed) // width * width
        self._tail = packed[whole:]
        contents = [packed[at : at + width] for at in range(0, whole, width)]
        if self._marks:
            marks = self._marks
            contents = [text + marks.get(at, b"") for at, text in enumerate(contents, first)]
        if self._stop is not None:
            del contents[self._stop - first :]
        self.hashes += hash_blocks(self.hashes[-1] if first else self.root, contents)
        self.contents += contents

    @property
    def blocks(self) -> int:
        """Blocks that the tokens take, the last one full or not."""
        return -(-self.length // self.block_size)

    @property
    def matchable(self) -> int:
        """Leading blocks that a cache may provide: never the one with the last token.

        The model has to compute that token, or there are no logits to go on from.
        """
        return max(0, min(len(self.hashes), (self.length - 1) // self.block_size))


class BlockHasher:
    """Makes chains for one tenant, model and adapter.

    `platform` are prefixes (`pack`ed tokens) that the platform itself supplies: a prompt that
    starts with one shares its full blocks with all tenants, on purpose. The tenant's root joins
    the first block after them. Raises `ValueError` for an empty salt.
    """

    def __init__(
        self,
        namespace: Namespace,
        salt: str,
        *,
        block_size: int = 16,
        platform: Iterable[bytes] = (),
    ) -> None:
        if not salt or block_size < 1:
            raise ValueError("chains need a salt and a block size of at least 1")
        width = block_size * _TOKEN
        whole = [prefix[: len(prefix) // width * width] for prefix in platform]
        self._platform = sorted(filter(None, whole), key=len, reverse=True)
        self._block_size = block_size
        self._own = namespace.root(b"tenant", salt.encode(), block_size)
        self._common = namespace.root(b"platform", b"", block_size)

    def chain(self, tokens: Sequence[int], parts: Sequence[PromptPart] = ()) -> BlockChain:
        """The chain of a prompt. Raises `ValueError` as `pack` does."""
        packed = pack(tokens)
        shared = self._shared(packed, parts)
        chain = BlockChain(self._common if shared else self._own, self._block_size)
        chain.shared = shared
        if shared:
            chain._marks[shared] = join(b"tenant", self._own)
        for part in parts:
            _mark(chain, part)
        chain._extend(packed)
        return chain

    def _shared(self, packed: bytes, parts: Sequence[PromptPart]) -> int:
        found = next(filter(packed.startswith, self._platform), b"")
        tokens = len(found) // _TOKEN
        # What a tenant put into a placeholder is not the platform's, whatever the tokens say.
        if any(part.start < tokens for part in parts):
            return 0
        return tokens // self._block_size


def _mark(chain: BlockChain, part: PromptPart) -> None:
    first, last = (at // chain.block_size for at in (part.start, part.start + part.length - 1))
    if part.digest is None:
        chain._stop = first if chain._stop is None else min(chain._stop, first)
        return
    place = (part.start.to_bytes(8, "big"), part.length.to_bytes(8, "big"))
    mark = join(b"part", part.kind.encode(), *place, part.digest)
    for block in range(first, last + 1):
        chain._marks[block] = chain._marks.get(block, b"") + mark
