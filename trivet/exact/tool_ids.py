"""Tool-call ids of replayed answers: new on every hit, and traceable to the id they stand for.

Agents look tool calls up by id, so two hits in one conversation must not bring the same one. Yet a
conversation that carries a minted id asks the same as one that carries the original, and has to
share its key. A minted id is therefore the original and a suffix that says so:

    call_9xF2...Qk-h3Zt0Kx1p   original, "-", 5 characters of nonce, 4 check characters

The check is a MAC under a constant key: it tells minted ids from ids that happen to look alike,
and being constant it works across processes, machines, and one proxy in front of another. It is no
defence: who forges a suffix only merges requests of his own tenant that differ in call ids.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

from trivet.canonical import mac

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_CHECK_KEY = b"trivet-tool-id-check-v1"
_SHAPE_KEY = b"trivet-tool-id-shape-v1"
_NONCE, _CHECK = 5, 4
_SUFFIX = 1 + _NONCE + _CHECK
_LIMIT = 40
"""OpenAI's chat API refuses longer call ids. Anthropic's 30 characters and a suffix fill it."""
_LONGEST = 128
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_MISTRAL = re.compile(r"[A-Za-z0-9]{9}")
"""Mistral's API refuses ids of any other form."""
_TAIL = re.compile(r"[A-Za-z0-9]{8,}\Z")
_BEHIND_PREFIX = re.compile(r"(?<=[_-])[A-Za-z0-9_-]{8,}\Z")


def mint(original: str, nonce: bytes) -> str:
    """A new id for the tool call `original`: the same for the same nonce, else another.

    `nonce` is 8 random bytes or more, new for each hit. Ids with room get the suffix that
    `restore` undoes; Mistral's and those between 31 and 40 characters change within their shape.
    Ids of other characters are kept: they are built by rule (`functions.name:0`), the model reads
    them, and the upstream gives the same one to the same conversation itself.
    """
    root = restore(original)
    if not _PLAIN.fullmatch(root):
        return original
    if _MISTRAL.fullmatch(root):
        return _reshape(root, 0, nonce)
    if not _has_room(len(root)):
        found = _TAIL.search(root) or _BEHIND_PREFIX.search(root)
        return _reshape(root, found.start() if found else 0, nonce)
    stem = f"{root}-{_letters(mac(_SHAPE_KEY, nonce), _NONCE)}"
    return stem + _check(stem)


def restore(minted: str) -> str:
    """The original that `mint` was given, or the id itself if it was not minted with a suffix."""
    size = len(minted)
    if size <= _SUFFIX or minted[-_SUFFIX] != "-" or not _has_room(size - _SUFFIX):
        return minted
    if not _PLAIN.fullmatch(minted) or _check(minted[:-_CHECK]) != minted[-_CHECK:]:
        return minted
    return minted[:-_SUFFIX]


def restore_ids(ids: Iterable[str]) -> dict[str, str]:
    """`restore` for all call ids of one request, injectively.

    Where two distinct ids stand for one original, each stays as it is: merging them would make
    one request of two.
    """
    found = {minted: restore(minted) for minted in ids}
    # At most one id of a group is its own original already, so every round settles one more.
    while len(set(found.values())) < len(found):
        claims = Counter(found.values())
        found = {
            minted: original if claims[original] == 1 else minted
            for minted, original in found.items()
        }
    return found


def _has_room(size: int) -> bool:
    # An id beyond the limit comes from an upstream that has no such limit.
    return size + _SUFFIX <= _LIMIT or _LIMIT < size <= _LONGEST - _SUFFIX


def _check(stem: str) -> str:
    return _letters(mac(_CHECK_KEY, stem.encode()), _CHECK)


def _letters(drawn: bytes, count: int) -> str:
    number = int.from_bytes(drawn, "big")
    letters = []
    for _ in range(count):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def _reshape(root: str, start: int, nonce: bytes) -> str:
    tail = root[start:]
    if _MISTRAL.fullmatch(root):
        kinds: tuple[str, ...] = (_ALPHABET,)
    elif re.fullmatch(r"[0-9a-f_-]*[a-f][0-9a-f_-]*", tail):
        kinds = ("0123456789abcdef",)
    else:
        kinds = (string.digits, string.ascii_uppercase, string.ascii_lowercase)
    drawn = mac(_SHAPE_KEY, nonce, root.encode())
    while len(drawn) < len(tail):
        drawn += mac(_SHAPE_KEY, drawn)
    made = []
    for letter, byte in zip(tail, drawn, strict=False):
        kind = next((kind for kind in kinds if letter in kind), letter)
        made.append(kind[byte % len(kind)])
    return root[:start] + "".join(made)
