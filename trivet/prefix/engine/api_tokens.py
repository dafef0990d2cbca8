"""Tokenizing for callers: vLLM's /tokenize and /detokenize, Anthropic's count_tokens."""

from __future__ import annotations

from typing import Any

from trivet.prefix.engine.api_messages import chat_of, is_begun
from trivet.prefix.engine.fields import Body, flag, refused, section
from trivet.prefix.engine.openai_fields import opening_of
from trivet.prefix.engine.prompts import Prompts, messages_of


def tokenize(body: Body, prompts: Prompts) -> dict[str, Any]:
    """The tokens of `prompt`, or of `messages` through the chat template."""
    if body.get("messages") is not None:
        tokens = prompts.chat(
            messages_of(body["messages"]),
            section(body, "chat_template_kwargs"),
            **opening_of(body),
        )
    else:
        text = body.get("prompt")
        if not isinstance(text, str):
            raise refused("prompt", "is a text; or give 'messages'")
        tokens = prompts.text(text, special=flag(body, "add_special_tokens", True))
    spelled = prompts.pieces(tokens) if flag(body, "return_token_strs") else None
    return {
        "count": len(tokens),
        "max_model_len": prompts.context,
        "tokens": tokens,
        "token_strs": spelled,
    }


def detokenize(body: Body, prompts: Prompts) -> dict[str, Any]:
    """The text of `tokens`."""
    given = body.get("tokens")
    if not isinstance(given, list):
        raise refused("tokens", "is a list of token ids")
    return {"prompt": prompts.decode(prompts.ids(given, "tokens"))}


def count_tokens(body: Body, prompts: Prompts) -> dict[str, Any]:
    """How many tokens the prompt of a Messages request has."""
    messages = chat_of(body)
    return {"input_tokens": len(prompts.chat(messages, continue_final=is_begun(messages)))}
