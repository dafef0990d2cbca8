"""What a request wants, as far as sharing an answer depends on it."""

from __future__ import annotations

from enum import StrEnum


class Intent(StrEnum):
    """The classes of the gate. Only `informational` is open unless a policy opens another."""

    ACTION = "action"
    """Something is to be done: cancel, book, send."""
    PERMISSION = "permission"
    """The answer depends on what the asker may see or do."""
    TIME = "time"
    """The answer changes with the clock: news, weather, stock, status, "today"."""
    PERSONAL = "personal"
    """The answer depends on who asks: my balance, my order."""
    CREATIVE = "creative"
    """A new answer is wanted each time: a poem, five titles."""
    CONTEXT = "context"
    """It leans on what was said before: "yes", "and the second one?"."""
    INFORMATIONAL = "informational"
    """One answer is right for everybody, today and tomorrow."""
