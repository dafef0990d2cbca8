"""Texts and answers that are written to steer a model: never stored for others.

By pattern: it lowers the chance, it is no proof. See `SemanticPolicy.writers` and `quarantine`.
"""

from __future__ import annotations

import re

_MOST_READ = 1_000
"""Characters of a question that are read; the gate refuses a longer one."""
_HIDDEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ufe00-\ufe0e]"
    # FE0F asks for the coloured form of the symbol before it.
    "|(?<![#*0-9\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])\ufe0f"
)
"""Characters that nobody sees: zero width, fillers, direction overrides, tags."""
_JOINED_EMOJI = re.compile(
    "(?<=[\ufe0f\u203c-\u3299\U0001f000-\U0001faff])\u200d(?=[\u2190-\u3299\U0001f000-\U0001faff])"
)
_STRONG = r"""
      \b(?:ignore|disregard|forget|override|bypass) \s+
        (?:(?:all|any|every|the|your|of|these|those|my) \s+){1,4}
        (?:(?:previous|prior|above|earlier|preceding|former|system) \s+)
        (?:instructions?|prompts?|directions?|guidelines?|directives?|orders?)\b
    | \b(?:ignore|disregard|forget) \s+ (?:previous|prior|all) \s+ (?:instructions|prompts)\b
    | \bfrom \s+ now \s+ on \b
    | \b(?:reveal|leak|disclose|expose) \s+ (?:(?:me|us|the|your|its) \s+){0,3}
        (?:system|hidden|secret) \s+ (?:prompt|instructions|message)\b
    | ^ [\s>*_\#"'`(-]{0,10} (?:system|assistant|developer) [*_`"']{0,3} \s* : [\s*_]{0,4} (?=\S)
    | (?<=[.!?]) [ ] (?:SYSTEM|ASSISTANT|DEVELOPER) \s* :
    | < \s? /? \s? \| \s? (?:im_(?:start|end|sep)|system|assistant|user|endoftext|eot_id
        |start_header_id|end_header_id) \s? \| \s? >
    | \[ \s? /? \s? INST \s? \] | <</?SYS>>
"""
_WEAK = r"""
      \b(?:ignore|disregard|forget|override|bypass|neglect|discard)\b .{0,40}?
        \b(?:previous|prior|above|earlier|system|your|all|any|these|those)\b .{0,40}?
        \b(?:instructions?|prompts?|rules?|guidelines?|polic(?:y|ies)|messages?|context)\b
    | \b(?:ignore|disregard|forget|discard|neglect)\b .{0,20}?
        \b(?:everything|anything|all|whatever|what)\b .{0,30}?
        \b(?:above|before|earlier|previous(?:ly)?|so\ far|told|said|prior)\b
    | \b(?:pay|give)\ no\ (?:attention|heed|regard)\ to\b .{0,40}?
        \b(?:told|said|before|above|earlier|previous(?:ly)?|prior|instructions?|rules?)\b
    | \b(?:do\ not|don't|never)\ (?:follow|obey|listen\ to|heed)\b .{0,40}?
        \b(?:instructions?|prompts?|rules?|guidelines?|told|above|before)\b
    | \b(?:henceforth|for\ (?:all|every|any)\ (?:future|other|following))\b
    | (?:^|[.?!,;:]\s?|\b(?:and|then|please|but|you|to)\s) (?:always|only)\s
        (?:say|answer|reply|respond|claim|state|recommend|mention|tell|write|insist|include)\b
    | (?:^|[.?!,;:]\s?|\b(?:and|then|please|but)\s)
        (?:you\ must|you\ should|you\ will|make\ sure\ to|be\ sure\ to)\s (?:always\s|only\s)?
        (?:say|answer|reply|respond|claim|state|recommend|mention|tell|write|insist|include)\b
    | \b(?:answers?|repl(?:y|ies)|responses?|output|reply)\ (?:must|should|has\ to|shall|needs?\ to|
        will)\ (?:always\ |only\ )?(?:contain|include|say|be|mention|state|end|start|begin|
        recommend|link|have)\b
    | \b(?:end|start|begin|finish|close)\ (?:your|the|each|every)\ (?:answer|reply|response)s?\b
    | \b(?:include|mention|insert|add|put|append)\b .{0,40}?
        \b(?:in|to|into)\ (?:your|the|each|every)\ (?:answer|reply|response)s?\b
    | \b(?:whenever|if|when|each\ time)\b .{0,30}? \b(?:any(?:one|body)|users?|people|others?|
        some(?:one|body)|you\ are\ asked|they\ ask|asked\ about)\b .{0,80}?
        \b(?:answer|reply|respond|say|tell|claim|recommend|send|give)\b
    | \b(?:answer|reply|respond)\b .{0,20}? \b(?:only\ with|exactly\ with|exactly|with\ the\s
        (?:words?|text|phrase|link|url))\b
    | \b(?:you\ are\ now|act\ as|pretend\ (?:to\ be|that)|roleplay\ as|jailbreak|developer\ mode)\b
    | \b(?:system|assistant|developer)\s?(?:prompt|message|:)\s
    | <\s?/?\s?(?:system|assistant|instructions?)\b
    | \[\s?/?\s?system\s?\]
    | \b(?:reveal|print|repeat|output|show)\b .{0,20}?
        \b(?:system\ prompt|instructions|prompt\ above)\b
"""
_FLAGS = re.IGNORECASE | re.VERBOSE | re.DOTALL | re.MULTILINE
_STEERS = re.compile(_STRONG, _FLAGS)
_ORDERS = re.compile(f"{_STRONG} | {_WEAK}", _FLAGS)


def hidden(text: str) -> bool:
    """Whether a text holds characters that nobody sees, joiners within one emoji left aside."""
    if text.isascii():
        return False
    return bool(_HIDDEN.search(_JOINED_EMOJI.sub("", text)))


def instructs(text: str) -> str | None:
    """Why a question may not become an entry that others read: `instructs`, `hidden-text`, or None.

    Reads the first 1,000 characters.
    """
    head = text[:_MOST_READ]
    if hidden(head):
        return "hidden-text"
    return "instructs" if _ORDERS.search(head) else None


def steers(answer: str) -> str | None:
    """Why an answer may not be stored for others: `instructs`, `hidden-text`, or None.

    Reads all of it, in time linear in its length. An answer may explain what an order to a model
    is; only role markers and the plainest orders count here.
    """
    if hidden(answer):
        return "hidden-text"
    return "instructs" if _STEERS.search(answer) else None
