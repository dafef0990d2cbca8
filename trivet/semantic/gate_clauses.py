"""The clauses of a text, and whether one of them is a command that follows something else.

A question may carry a command behind it: after a sentence end, a comma, or a word such as `then`.
The rules of `gate_rules` see a text as one line of words; here its punctuation still counts.
"""

from __future__ import annotations

import re
import unicodedata

from trivet.canonical import digest
from trivet.policies.intents import Intent
from trivet.semantic.gate_features import FUNCTION_WORDS, normalised
from trivet.semantic.gate_rules import COMMAND, NEVER, Rule, find_rule

VERSION = 1
"""To be raised when `sentences` or `joined_command` reads a text in another way."""

_SENTENCE_END = re.compile(
    r"[?!;\n\r\u2028\u2029…。？！]+|\.{2,}|"
    r"(?<!\b\w)(?<!\b(?:dr|mr|ms|st|vs|no))(?<!\b(?:mrs|etc|inc|ltd))\.(?!\d)(?=\s|$)",
    re.IGNORECASE,
)
_PAUSE = re.compile(
    r"[^\w\s'’.$%#@/+&*~-]+|(?<!\d)\.|\.(?!\d)|(?<!\S)[-/+&*~_#]+|[-/+&*~_#]+(?!\S)|--+|\s{2,}|/|"
    r"(?<=\w\w\w)-(?=\w+ (?:the|my|our|all|every|it|this|that)\b)"
)
_VERB = (
    rf"(?:{COMMAND}|run|execute|move|copy|grant|charge|sell|trade|publish|commit|push|hire|invite|"
    "ban|kick|mark|sign|issue|ship|deliver|generate|create|notify|alert|log|drop|wipe|destroy|"
    "purge|format|encrypt|donate|bill|credit|debit|fetch|mail|tag|follow|unfollow|vote|bid|bet|"
    r"invest|fix|bring|write|draft|move|rotate|give(?= (?:him|her|them|it|[a-z]+ [\d$]))|hit|"
    r"tell (?!me|us|you)[a-z]+|need an?|i'd like(?= (?!to ))|"
    "i (?:want|need|would like)(?= (?!to ))|"
    r"make (?:me|the|my|an?)\b(?! long)|get (?:me|rid|the|my)|find (?:me|my)|hand|"
    "order|hang|power|switch|flip|start|begin|quit|exit|fire|dismiss|promote|terminate|suspend)"
)
_POLITE = (
    "(?:please|just|kindly|now|also|then|and|so|or|but|quickly|immediately|instantly|promptly|"
    "go ahead|go|do|first|next|finally|lastly|afterwards|afterward|plus|oh|ah|btw|by the way|"
    "actually|instead|meanwhile|additionally|furthermore|moreover|besides|thanks|thank you|great|"
    "good|fine|cool|right|sure|yes|no|ok|okay|after (?:that|this|which)|in addition|if so|"
    "in that case|otherwise|(?:once|when|as soon as) (?:(?:you|it|that|this)(?:'re|'s)? )?(?:are |"
    "is )?(?:done|finished|ready|complete|over|answered)|while (?:you are|you're) at it|"
    "(?:can|could|would|will|won't|can't) you|would you mind|you (?:should|must|can|may|need to|"
    "have to|will)|i (?:want|need|would like|expect|ask|order|command) (?:you )?to|i'd like "
    "(?:you )?to|i'll need you to|make sure (?:to|you|that you)|be sure to|(?:do not|don't) forget "
    "to|remember to|feel free to|let's|let us|be so kind (?:as to|and)|try to|help me(?: to)?|"
    "i (?:want|need) (?:it|that|this) to|your (?:task|job) is to|proceed to|hurry and|someone)"
)
_JOINER = (
    "(?:then|also|please|plus|kindly|afterwards?|after (?:that|this|which)|(?:once|when) (?:you "
    "are |you're |it is |it's |that is |that's |this is )?(?:done|finished|ready|complete|over)|"
    "while (?:you are|you're) at it|btw|by the way|meanwhile|additionally|furthermore|moreover|"
    "go ahead and|in addition|(?:can|could|would|will) you|i (?:want|need) you to|i'd like you to)"
)
_OBJECT = (
    r"(?:my|our|his|her|their|the|an?|it|this|that|these|those|all|every|me|him|them|us|"
    r"everyone|everything|\$?\d\S*|"
    r"\w+ \w+ (?:to|from|for|rights?|access|dollars?)|"
    r"\w+ \$?\d\S*|\w+ (?:to|from|for|at|by|an?|the|off|on|in))\b"
)
_LATER = re.compile(rf"^(?:{_POLITE} )*{_VERB}\b(?= )(?! of\b)")
_LATER_ALONE = re.compile(rf"^(?:{_POLITE} )+{_VERB}$")
_WITHIN = re.compile(rf"\S \b{_JOINER} (?:{_POLITE} )*{_VERB}\b(?! (?:of|or)\b)")
_BESIDE = re.compile(rf"\S \band (?:{_POLITE} )*{_VERB} {_OBJECT}")
_UNLISTED = re.compile(
    rf"^(?:{_POLITE} )*(?!explain|describe|define|compare|summari[sz]e|clarify|elaborate|outline|"
    "illustrate|given|during|under|above|below|across|within|without|inside|outside|behind|along|"
    "among|since|like|unlike|near|against|despite|per|via|considering|regarding|concerning|"
    r"including|except|beyond|toward|towards|throughout|[a-z]+(?:ing|'s|ly) )([a-z]+) "
    "(?:the|my|our|all|it|this|that|him|her|them|every|these|those|me|us)\\b"
)
"""An order by a verb that no list has: a word that is no function word, before its object."""
_SERIES = re.compile(
    r"\b(?:to (?!\w+ ?$)|i|we|one|they|people|users?|customers?|(?:how|where|when|what|can|could|"
    r"would|should) (?:\w+ )?you)\b"
)
_ASKS = re.compile(
    rf"^(?:{_POLITE} )*(?:what|how|why|when|where|which|who|whose|whom|(?:what|how|where|who)'s|"
    "is|are|was|were|do|does|did|has|have|had|can|could|should|would|will|may|might|must|isn't|"
    "aren't|wasn't|doesn't|don't|didn't|if|for|in|at|on|with|without|under|from|to what|explain|"
    "describe|define|compare|summari[sz]e|clarify|elaborate|outline|illustrate|say more|"
    "tell me (?:what|how|why|when|where|who|which|more|about)|show me (?:how|why|an example)|"
    "give (?:me |us )?(?:an?|some|one) (?:\\w+ )?(?:examples?|reasons?|definition|overview|"
    "explanation)|help me understand|it|this|that|these|those|they|both|there|i'm|i am|i (?:know|"
    "heard|read|think|thought|wonder|ask|guess|see|understand|don't (?:know|understand|get)|do not "
    "(?:know|understand|get)|keep|can't|cannot|only|just|always|never|have (?:a|no|heard|read|"
    "always|been|never))|we are|we're|welcome|morning|evening|afternoon|everyone|all|again|cheers|"
    "any (?:idea|ideas|help|tips|thoughts|advice)|curious|asking|wondering|question)\\b"
)
"""A sentence that asks, or a remark that asks for nothing."""
_PERSON_IS_ASKED = re.compile(
    r"^(?:\w+ ){0,3}(?:can|could|would|will) you (?!(?:please |also |kindly )*(?:explain|describe|"
    r"define|compare|clarify|elaborate|outline|summari[sz]e|tell me|show me (?:how|why|an)|give |"
    r"help me understand|expand|spell|say|be more|use)\b)"
)
_GREETING = re.compile(
    r"^(?:hi|hello|hey|there|thanks|thank you|please|yes|no|ok|sorry|excuse me|good day|"
    r"many thanks|(?:(?:a|one|quick) )+question|just curious|interesting|great|cool|nice|hi all)"
    r"(?: in advance| a lot| so much| very much)?$"
)
_THEN = re.compile(r"^(?!.*\b(?:if|when|whenever|since|before|until)\b.* then ).*?\S then (.+)")
_ENDS_IN_VERB = re.compile(rf"\b{COMMAND.join(('(?:', ')'))}$")

_REMARK = Rule("remark", Intent.CONTEXT, re.compile("(?!)"))
_JOINED = Rule("joined-command", Intent.ACTION, re.compile("(?!)"))
_GRAVEST = (Intent.ACTION, Intent.PERMISSION, Intent.PERSONAL, Intent.CONTEXT, Intent.CREATIVE)


def version() -> str:
    """Hex, of everything that decides what a clause and a joined command are."""
    read = (
        _SENTENCE_END,
        _PAUSE,
        _LATER,
        _LATER_ALONE,
        _WITHIN,
        _BESIDE,
        _UNLISTED,
        _SERIES,
        _ASKS,
        _PERSON_IS_ASKED,
        _GREETING,
        _THEN,
        _ENDS_IN_VERB,
    )
    return digest(str(VERSION).encode(), *(one.pattern.encode() for one in read)).hex()


def sentences(text: str) -> list[list[str]]:
    """Normalised words of each sentence, in order; none is empty."""
    return [words for part in _SENTENCE_END.split(text) if (words := normalised(part))]


def gravest_rule(text: str, words: list[str]) -> Rule | None:
    """The rule that a text or one of its sentences meets; of several, the least harmless one.

    `words` are the text's normalised words.
    """
    found = [find_rule(words)]
    parts = sentences(text)
    if len(parts) > 1:
        found += [one for part in parts if (one := find_rule(part)) and _refuses(one)]
        if not all(_asks(" ".join(part)) for part in parts):
            found.append(_REMARK)
    if joined_command(text):
        found.append(_JOINED)
    return min((one for one in found if one), key=_gravity, default=None)


def _refuses(rule: Rule) -> bool:
    return rule.intent is not Intent.INFORMATIONAL


def _gravity(rule: Rule) -> int:
    if rule.name in NEVER:
        return -1
    return (
        _GRAVEST.index(rule.intent)
        if rule.intent in _GRAVEST
        else len(_GRAVEST) + (rule.intent is Intent.INFORMATIONAL)
    )


def asking(text: str) -> list[list[str]]:
    """Normalised words of each sentence that is more than a greeting; all where none is."""
    every = sentences(text)
    return [words for words in every if not _GREETING.search(" ".join(words))] or every


def joined_command(text: str) -> bool:
    """Whether a command stands behind something else: a sentence, a pause or a joining word."""
    plain = unicodedata.normalize("NFKD", text)
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    parts = [
        (" ".join(words), at == 0)
        for sentence in _SENTENCE_END.split(letters)
        for at, part in enumerate(_PAUSE.split(sentence))
        if (words := normalised(part))
    ]
    before = ""
    for line, opens in parts:
        if before and _unlisted(line):
            return True
        if before and (opens or not _ENDS_IN_VERB.search(before)) and _later(line):
            return True
        if _inside(line):
            return True
        before = line
    return False


def _later(line: str) -> bool:
    return bool(_LATER.search(line) or _LATER_ALONE.search(line))


def _asks(line: str) -> bool:
    plain = _GREETING.search(line) or _ASKS.search(line)
    return bool(plain) and not _PERSON_IS_ASKED.search(line)


def _unlisted(line: str) -> bool:
    found = _UNLISTED.search(line)
    return found is not None and found[1] not in FUNCTION_WORDS


def _inside(line: str) -> bool:
    if _WITHIN.search(line):
        return True
    then = _THEN.search(line)
    if then is not None and not _asks(then[1]):
        return True
    return any(not _SERIES.search(line[: one.start() + 1]) for one in _BESIDE.finditer(line))
