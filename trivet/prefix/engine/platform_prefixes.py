"""System prompts that the platform supplies, as the tokens that prompts begin with.

All tenants share their KV on purpose: whoever sends such a prompt can tell by its time whether it
was sent before, which says nothing of a tenant as long as the platform puts it before everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trivet.errors import ConfigError, Problem, RequestError
from trivet.prefix.engine.prompts import Prompts

_FIRST_WORDS = ("a", "B")
"""Two questions that have nothing in common."""


def platform_prefixes(
    files: Sequence[Path], prompts: Prompts, block_size: int
) -> tuple[tuple[int, ...], ...]:
    """The tokens that chats with these system prompts have in common, whatever is asked.

    For a model without a chat template, the tokens of the text. Raises `ConfigError` for a file
    that cannot be read, or whose tokens fill no block.
    """
    return tuple(_prefix(file, prompts, block_size) for file in files)


def _prefix(file: Path, prompts: Prompts, block_size: int) -> tuple[int, ...]:
    try:
        # Editors end a file with a line's end, which no caller sends.
        text = file.read_text("utf-8").removesuffix("\n")
        tokens = _shared(text, prompts)
    except (OSError, UnicodeDecodeError) as error:
        raise _problem(file, str(error)) from None
    except RequestError as error:
        raise _problem(file, error.message) from None
    if len(tokens) < block_size:
        message = f"has {len(tokens)} tokens; nothing is shared below a block of {block_size}"
        raise _problem(file, message)
    return tuple(tokens)


def _shared(text: str, prompts: Prompts) -> list[int]:
    if not prompts.has_template:
        return prompts.text(text)
    system = {"role": "system", "content": text}
    one, other = (prompts.chat([system, {"role": "user", "content": w}]) for w in _FIRST_WORDS)
    pairs = zip(one, other, strict=False)
    return one[: next((at for at, (a, b) in enumerate(pairs) if a != b), len(one))]


def _problem(file: Path, message: str) -> ConfigError:
    return ConfigError(Problem("trivet engine", 0, 0, "--platform-prefix", f"{file}: {message}"))
