"""Whether a calibration says anything about a text: pairs in English measure nothing in Thai."""

from __future__ import annotations

from trivet.policies.calibration import Calibration
from trivet.semantic.language import language_of
from trivet.semantic.scripts import letters_of

REASONS = frozenset({"script-unseen", "language-unseen"})


def unseen(text: str, calibration: Calibration | None) -> str:
    """Why not, one of `REASONS`; empty where it does, or where nothing was certified.

    `script-unseen`: at least half of the letters are of writing systems that the pairs did not
    use. `language-unseen`: the calibration names languages, and the text is clearly in another.
    """
    if calibration is None or calibration.threshold is None:
        return ""
    letters = letters_of(text)
    seen = sum(count for script, count in letters.items() if script in calibration.scripts)
    if 2 * seen <= letters.total() and letters:
        return "script-unseen"
    if calibration.languages:
        language = language_of(text)
        if language and language not in calibration.languages:
            return "language-unseen"
    return ""
