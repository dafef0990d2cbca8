"""Cuts a recorded text into the pieces of a replayed stream.

The pieces concatenate to the text. A cut is made only before a character that begins a grapheme
cluster of its own (Unicode Standard Annex 29): a client that draws each piece as it comes never
shows half an emoji or a letter without its accent.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_SMALLEST = 48
"""Characters; about the ten tokens that hosted APIs send at a time under load."""
_MOST = 128
"""Pieces of one text: longer texts get longer pieces, so that framing stays cheap."""
_BEGINS = "!-~\u00c0-\u00ff\u0400-\u0481\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
"""Characters that extend no cluster to their left: ASCII, Latin-1 and Cyrillic letters, kana,
Han, Hangul syllables. After a space they begin a word."""


@lru_cache(maxsize=32)
def _cutter(size: int) -> re.Pattern[str]:
    return re.compile(
        rf"(?s:.{{{size},{2 * size}}}?(?<=\s)(?=[{_BEGINS}])"
        rf"|.{{{2 * size},}}?(?<!\u200d)(?=[{_BEGINS}])"
        r"|.+)"
    )


def text_pieces(text: str) -> list[str]:
    """`text` in pieces of 48 to 96 characters, longer in a long text; at word boundaries if it
    has them."""
    if len(text) <= _SMALLEST:
        return [text] if text else []
    size = _SMALLEST
    while size * _MOST < len(text):
        size *= 2
    return _cutter(size).findall(text)


def token_pieces(text: str, tokens: list[Any]) -> list[tuple[str, list[Any]]] | None:
    """`text` in the pieces that `tokens` (logprob entries with `token` and `bytes`) cut it into.

    Tokens that share a character stay together. None if the tokens do not spell the text.
    """
    pieces: list[tuple[str, list[Any]]] = []
    waiting, group = b"", []
    for token in tokens:
        waiting += _bytes_of(token)
        group.append(token)
        try:
            piece = waiting.decode()
        except UnicodeDecodeError:
            if len(waiting) > 256:
                return None
            continue
        pieces.append((piece, group))
        waiting, group = b"", []
    if group or "".join(piece for piece, _ in pieces) != text:
        return None
    return pieces


def _bytes_of(token: Any) -> bytes:
    if type(token) is not dict:
        return b""
    given = token.get("bytes")
    try:
        if type(given) is list:
            return bytes(given)
        return str(token.get("token", "")).encode()
    except (TypeError, ValueError):
        return b""
