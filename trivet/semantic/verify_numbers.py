"""Numbers, units, money, clock times and dates of a text, in one form for each value.

"14 days" and "two weeks" are the same quantity; so are "7am" and "seven in the morning".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trivet.semantic.english import word_list

_ONES = word_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINALS = word_list(
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth"
)
_WORDS: dict[str, float] = {
    **{word: float(at) for at, word in enumerate(_ONES)},
    **{word: 20.0 + 10 * at for at, word in enumerate(_TENS)},
    "dozen": 12.0, "single": 1.0, "double": 2.0, "triple": 3.0, "once": 1.0, "twice": 2.0,
    "half": 0.5, "couple": 2.0,
}  # fmt: skip
_SCALES = {"hundred": 100.0, "thousand": 1e3, "million": 1e6, "billion": 1e9, "k": 1e3, "m": 1e6}
_MONTHS = word_list(
    "january february march april may june july august september october november december"
)
_DAYS = word_list("monday tuesday wednesday thursday friday saturday sunday")

_UNITS: dict[str, tuple[float, str]] = {}
for _names, _factor, _unit in (
    ("second seconds sec secs", 1.0, "s"), ("minute minutes min mins", 60.0, "s"),
    ("hour hours hr hrs h", 3600.0, "s"), ("day days", 86_400.0, "s"),
    ("night nights", 86_400.0, "s"), ("week weeks wk wks", 604_800.0, "s"),
    ("fortnight fortnights", 1_209_600.0, "s"),
    ("month months", 1.0, "month"), ("year years yr yrs", 12.0, "month"),
    ("gbp pound pounds quid £", 1.0, "gbp"), ("usd dollar dollars bucks $", 1.0, "usd"),
    ("eur euro euros €", 1.0, "eur"), ("yen ¥", 1.0, "jpy"), ("% percent percentage pct", 1.0, "%"),
    ("kg kgs kilo kilos kilogram kilograms", 1000.0, "g"), ("g gram grams", 1.0, "g"),
    ("mg milligram milligrams", 0.001, "g"), ("lb lbs", 1.0, "lb"),
    ("km kilometer kilometers kilometre kilometres", 1000.0, "m"),
    ("meter meters metre metres", 1.0, "m"), ("cm centimeter centimeters", 0.01, "m"),
    ("mm millimeter millimeters", 0.001, "m"), ("mile miles", 1.0, "mi"),
    ("foot feet ft", 1.0, "ft"), ("inch inches", 1.0, "inch"),
    ("liter liters litre litres l", 1.0, "l"),
    ("ml milliliter milliliters", 0.001, "l"), ("tb terabyte terabytes", 1e12, "b"),
    ("gb gigabyte gigabytes", 1e9, "b"), ("mb megabyte megabytes", 1e6, "b"),
    ("kb kilobyte kilobytes", 1e3, "b"), ("degree degrees °", 1.0, "deg"),
):  # fmt: skip
    for _name in _names.split():
        _UNITS[_name] = (_factor, _unit)
_PERIODS = {
    "daily": (86_400.0, "s"), "weekly": (604_800.0, "s"), "monthly": (1.0, "month"),
    "yearly": (12.0, "month"), "annual": (12.0, "month"), "annually": (12.0, "month"),
    "fortnightly": (1_209_600.0, "s"), "hourly": (3600.0, "s"), "quarterly": (3.0, "month"),
}  # fmt: skip
_PER = frozenset({"per", "a", "an", "each", "every"})
_CLOCK = {"am": 0.0, "pm": 720.0}


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A value in the base unit of its kind: seconds, months, grams, minutes of the day, ..."""

    value: float
    unit: str
    """`clock`, `weekday`, `month-name`, `th` for ordinals; empty for a bare number."""
    written: float = field(default=0.0, compare=False)
    """The number as it stands in the text: 2 of two weeks."""


def quantities(words: list[str]) -> tuple[list[Quantity], list[bool]]:
    """The quantities in a list of words, and which words they take up."""
    found: list[Quantity] = []
    used = [False] * len(words)
    at = 0
    while at < len(words):
        quantity, taken = _read(words, at)
        if quantity is not None:
            found.append(quantity)
            used[at : at + taken] = [True] * taken
        at += max(1, taken)
    return found, used


def _read(words: list[str], at: int) -> tuple[Quantity | None, int]:
    word = words[at]
    named = _named(words, at)
    if named is not None:
        return named, 1
    value, taken = _number(words, at)
    if not taken:
        return None, 1
    after = words[at + taken] if at + taken < len(words) else ""
    if at and words[at - 1] in "£$€¥":
        factor, unit = _UNITS[words[at - 1]]
        return Quantity(value * factor, unit, value), taken
    if after in _CLOCK or ":" in word:
        noon = _CLOCK.get(after, 0.0)
        return Quantity(_clock(word, value) % 720 + noon, "clock", value), taken + (after in _CLOCK)
    half_of_day = _half_of_day(words[at + taken : at + taken + 3])
    if half_of_day is not None and value <= 12:
        return Quantity(value * 60 % 720 + half_of_day, "clock", value), taken
    if after in _UNITS:
        factor, unit = _UNITS[after]
        return Quantity(round(value * factor, 6), unit, value), taken + 1
    return Quantity(value, "th" if _is_ordinal(word) else "", value), taken


def _named(words: list[str], at: int) -> Quantity | None:
    word = words[at]
    singular = word.removesuffix("s")
    if singular in _DAYS:
        return Quantity(float(_DAYS.index(singular)), "weekday")
    if word in _MONTHS and (word != "may" or _dated(words, at)):
        return Quantity(float(_MONTHS.index(word)), "month-name")
    if word in ("noon", "midday"):
        return Quantity(720.0, "clock")
    if word == "midnight":
        return Quantity(0.0, "clock")
    if word in _PERIODS:
        return Quantity(*_PERIODS[word])
    if word in ("day", "week", "month", "year", "hour") and at and words[at - 1] in _PER:
        return Quantity(*_UNITS[word])
    return None


def _dated(words: list[str], at: int) -> bool:
    """Whether `may` is the month here: "in may", "4th of may"."""
    before = words[at - 1] if at else ""
    return before in ("in", "of", "since", "until", "by", "last", "next") or before[:1].isdigit()


def _number(words: list[str], at: int) -> tuple[float, int]:
    """The number that starts here and how many words it takes; 0 words: none."""
    word = words[at]
    if word[:1].isdigit():
        value = _digits(word)
        if value is None:
            return 0.0, 0
        taken = 1
    elif word in _ORDINALS[1:] and word != "second":
        return float(_ORDINALS.index(word)), 1
    elif word == "second" and (at == 0 or words[at - 1] in ("the", "a", "my", "on")):
        return 2.0, 1
    elif word in _WORDS:
        value, taken = _WORDS[word], 1
        following = words[at + 1] if at + 1 < len(words) else ""
        if word in _TENS and following in _ONES[1:10]:
            value, taken = value + _WORDS[following], 2
    else:
        return 0.0, 0
    while at + taken < len(words) and words[at + taken] in _SCALES:
        value, taken = value * _SCALES[words[at + taken]], taken + 1
    return value, taken


def _digits(word: str) -> float | None:
    text = word.replace(",", "")
    if text[-2:] in ("st", "nd", "rd", "th"):
        text = text[:-2]
    if ":" in text:
        text = text.split(":")[0]
    if not text.isascii() or len(text) > 40:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _clock(word: str, value: float) -> float:
    minutes = word.split(":")[1][:2] if ":" in word else ""
    return value * 60 + (float(minutes) if minutes.isdigit() else 0.0)


def _half_of_day(after: list[str]) -> float | None:
    if "morning" in after:
        return 0.0
    if "evening" in after or "afternoon" in after:
        return 720.0
    return None


def _is_ordinal(word: str) -> bool:
    return word in _ORDINALS or (word[:1].isdigit() and word[-2:] in ("st", "nd", "rd", "th"))
