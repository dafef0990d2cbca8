"""Texts that are written to steer a model, not to ask it something: never stored for others."""

from __future__ import annotations

import re

_LONGEST = 100_000
_ORDERS = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override|bypass)\b .{0,40}?
        \b(?:previous|prior|above|earlier|system|your|all|any|these|those)\b .{0,40}?
        \b(?:instructions?|prompts?|rules?|guidelines?|polic(?:y|ies)|messages?|context)\b
    | \b(?:from\ now\ on|henceforth|for\ (?:all|every|any)\ (?:future|other|following))\b
    | \b(?:whenever|if|when|each\ time)\b .{0,30}? \b(?:any(?:one|body)|users?|people|others?|
        some(?:one|body)|you\ are\ asked|they\ ask|asked\ about)\b .{0,80}?
        \b(?:answer|reply|respond|say|tell|claim|recommend|send|give)\b
    | \b(?:answer|reply|respond)\b .{0,20}? \b(?:only\ with|exactly\ with|exactly|with\ the\
        (?:words?|text|phrase|link|url))\b
    | \b(?:you\ are\ now|act\ as|pretend\ (?:to\ be|that)|roleplay\ as|jailbreak|developer\ mode)\b
    | \b(?:system|assistant|developer)\s*(?:prompt|message|:)\s
    | <\s*/?\s*(?:system|assistant|instructions?|\|im_(?:start|end)\|)
    | \[\s*/?\s*(?:inst|system)\s*\]
    | \b(?:reveal|print|repeat|output|show)\b .{0,20}?
        \b(?:system\ prompt|instructions|prompt\ above)\b
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
"""Characters that nobody sees: zero width, direction overrides, tags."""


def instructs(text: str) -> str | None:
    """Why the text may not become an entry that others read: `instructs`, `hidden-text`; else None.

    By pattern: it lowers the chance, it is no proof. See `SemanticPolicy.writers` and `quarantine`.
    """
    head = text[:_LONGEST]
    if _HIDDEN.search(head):
        return "hidden-text"
    return "instructs" if _ORDERS.search(head) else None
