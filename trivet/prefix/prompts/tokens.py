"""How many tokens a piece of a prompt has, estimated without a tokenizer."""

from __future__ import annotations

from typing import Final

_BYTES_PER_TOKEN: Final = 4
"""English text and JSON have three and a half to five bytes a token with the vocabularies in use;
what is counted against a minimum errs to the low side."""

_IMAGE_TOKENS: Final = 1_000
"""An image or a document given by reference or in base64: its bytes tell nothing."""


def estimate_tokens(kind: str, content: bytes) -> int:
    """Tokens of `content` (compact JSON), at least 1."""
    if kind in ("image", "document", "audio"):
        return _IMAGE_TOKENS
    return max(1, len(content) // _BYTES_PER_TOKEN)
