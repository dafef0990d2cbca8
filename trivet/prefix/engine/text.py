"""Text out of tokens as they come: whole characters, nothing that is taken back, up to a stop.

A token is a piece of bytes or letters, and what it reads as depends on its neighbours: one
character may take several tokens. So the last tokens are decoded together with the new one, and
the end of the text is held back while it may still change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
"""Text of tokens, special ones left out."""

_BROKEN = "\ufffd"
"""What decoders write for bytes that are no character, or none yet."""

_LONGEST = 3
"""Bytes of a character that is not complete, and so the `_BROKEN` that it may read as."""

_WINDOW = 48
"""Tokens decoded at a time at most: beyond, what is broken will not be mended."""


class Detokenizer:
    """The text of one answer, token by token; each token is decoded a bounded number of times."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        """The last tokens: some whose text is out, for context, then those that are held back."""
        self._context = 0
        self._sent = 0
        """Characters that are out, of the text of `_tokens`."""

    def push(self, token: int) -> str:
        """The text that is certain now and was not before."""
        self._tokens.append(token)
        text = self._decode(self._tokens)
        tail = len(text) - len(text.rstrip(_BROKEN))
        if not tail or len(self._tokens) - self._context >= _WINDOW:
            out = text[self._sent :]
            # What was new is context from here on, and what was context is read no more.
            self._tokens = self._tokens[self._context :]
            self._context = len(self._tokens)
            self._sent = len(self._decode(self._tokens))
            return out
        return self._take(text, len(text) - min(tail, _LONGEST))

    def flush(self) -> str:
        """The rest, as it reads: no token follows."""
        text = self._decode(self._tokens)
        return self._take(text, len(text))

    def _take(self, text: str, stop: int) -> str:
        out = text[self._sent : stop]
        self._sent = max(self._sent, stop)
        return out


class StopStrings:
    """Passes text on up to the stop string that is complete first, and swallows that one.

    Where several end at one character, the longest counts. So how the text is cut into pieces
    changes nothing.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(filter(None, stops))
        self._longest = max(map(len, self._stops), default=0)
        self._rest = ""
        self.met: str | None = None
        """The stop string that was found; nothing passes after it."""

    def push(self, text: str) -> str:
        """What may pass of the text so far: not what may be the beginning of a stop string."""
        if self.met is not None:
            return ""
        text = self._rest + text
        ends = [
            (text.find(stop) + len(stop), -len(stop), stop) for stop in self._stops if stop in text
        ]
        if ends:
            end, _, self.met = min(ends)
            self._rest = ""
            return text[: end - len(self.met)]
        held = self._held(text)
        self._rest = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back: no text follows."""
        rest, self._rest = self._rest, ""
        return rest

    def _held(self, text: str) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        for size in range(min(len(text), self._longest - 1), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
