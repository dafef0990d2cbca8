"""Prompts out of requests: a chat through the model's own template, a text, or token ids."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trivet import canonical
from trivet.errors import RequestError
from trivet.prefix.engine.fields import refused

Message = Mapping[str, str]
"""`role` and `content`, both text."""

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_OWN_OPTIONS = frozenset(
    {"messages", "conversation", "tools", "documents", "chat_template", "tokenize", "return_dict",
     "sanitize_control_tokens",
     "add_generation_prompt", "continue_final_message", "return_tensors", "padding", "truncation",
     "max_length", "return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs"}
)  # fmt: skip


_MOST_TOLD = 500
"""Characters of what a template says."""

_TOKEN_BYTES = 32
"""Bytes of UTF-8 that the tokens of a whole context may have on the average. Texts have 3 to 6."""


class Prompts:
    """Texts to tokens and back for one model. May be called from several threads.

    It has two copies of the tokenizer of its own: the engine's thread decodes with the given one,
    and spelling a token never waits until another caller's prompt is read.
    """

    def __init__(self, tokenizer: Any, context: int, vocabulary: int) -> None:
        self.context = context
        """Tokens that prompt and answer may have together."""
        self._vocabulary = vocabulary
        self._tokenizer = copy.deepcopy(tokenizer)
        self._lock = threading.Lock()
        self._speller = copy.deepcopy(tokenizer)
        self._spell_lock = threading.Lock()
        self._spelled: dict[int, str] = {}
        longest = max(map(len, self._tokenizer.get_vocab()), default=1)
        self._most_characters = context * max(1, longest)
        self._most_bytes = context * _TOKEN_BYTES

    @property
    def has_template(self) -> bool:
        """Whether the model has a chat template."""
        return bool(self._tokenizer.chat_template)

    def chat(
        self,
        messages: Sequence[Message],
        options: Mapping[str, Any] | None = None,
        *,
        generation_prompt: bool = True,
        continue_final: bool = False,
    ) -> list[int]:
        """The tokens of a chat, by the model's template with the caller's `options` for it.

        With `continue_final` the last message stays open, so that the answer goes on with it, and
        no `generation_prompt` is written.
        Raises `RequestError` 400 for what the template refuses.
        """
        given = dict(options or {})
        if wrong := sorted(_OWN_OPTIONS & given.keys()):
            raise refused("chat_template_kwargs", f"may not set {wrong[0]!r}")
        if not self.has_template:
            raise RequestError(
                400, "This model has no chat template; use /v1/completions.", field="messages"
            )
        if len(messages) > self.context:
            raise _too_long(f"has {len(messages)} messages", self.context, "messages")
        self._check_size((message["content"] for message in messages), "messages")
        self._check_size([canonical.dump(given).decode("latin-1")], "chat_template_kwargs")
        from jinja2 import TemplateError

        try:
            text: str = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                add_generation_prompt=generation_prompt and not continue_final,
                continue_final_message=continue_final,
                tokenize=False,
                **given,
            )
            # What the template adds to each message counts too.
            self._check_size([text], "messages")
            with self._lock:
                # The template writes the special tokens itself.
                tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        except (TemplateError, TypeError, ValueError) as error:
            # Beyond its first line transformers shows the whole chat.
            told = str(error).partition("\n")[0][:_MOST_TOLD]
            message = f"The model's chat template refuses this: {told}"
            raise RequestError(400, message, field="messages") from None
        return tokens

    def text(self, text: str, *, special: bool = True, field: str = "prompt") -> list[int]:
        """The tokens of a text; `special` adds what the model begins a text with."""
        _encodable(text, field)
        self._check_size([text], field)
        with self._lock:
            tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=special)
        return tokens

    def ids(self, tokens: Sequence[Any], field: str = "prompt") -> list[int]:
        """Token ids that a caller names. Raises `RequestError` 400 for one that is none."""
        if len(tokens) > self.context:
            raise _too_long(f"has {len(tokens)} tokens", self.context, field)
        for token in tokens:
            if type(token) is not int or not 0 <= token < self._vocabulary:
                raise refused(field, f"has token ids from 0 to {self._vocabulary - 1}")
        return list(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        with self._lock:
            text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text

    def spell(self, token: int) -> str:
        """The text of one token, without waiting for prompts that are read."""
        text = self._spelled.get(token)
        if text is None:
            with self._spell_lock:
                text = self._speller.decode([token], skip_special_tokens=False)
            self._spelled[token] = text
        return text

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it."""
        with self._lock:
            spelled: list[str] = self._tokenizer.convert_ids_to_tokens(list(tokens))
        return spelled

    def fitting(self, tokens: list[int], field: str) -> list[int]:
        """The same tokens. Raises `RequestError` 400 where they leave no room for an answer."""
        if not tokens:
            raise RequestError(400, "The prompt has no token.", field=field)
        if len(tokens) >= self.context:
            raise _too_long(f"has {len(tokens)} tokens", self.context, field)
        return tokens

    def _check_size(self, texts: Iterable[str], field: str) -> None:
        characters = size = 0
        for text in texts:
            characters += len(text)
            size += len(text.encode("utf-8", "replace"))
        if characters > self._most_characters or size > self._most_bytes:
            # The tokenizer, which others wait for, need not be asked.
            raise _too_long(f"has {characters} characters", self.context, field)


def messages_of(given: Any, field: str = "messages") -> list[Message]:
    """Chat messages of text. Raises `RequestError` 400 naming the place."""
    if not isinstance(given, list) or not given:
        raise refused(field, "holds at least one message")
    read: list[Message] = []
    for at, message in enumerate(given):
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or role not in _ROLES:
            raise refused(f"{field}[{at}].role", "is system, developer, user or assistant")
        if message.get("tool_calls") or message.get("function_call"):
            raise refused(f"{field}[{at}].tool_calls", "is not supported: this engine has no tools")
        name = "system" if role == "developer" else role
        read.append({"role": name, "content": text_of(message.get("content"), f"{field}[{at}]")})
    return read


def text_of(content: Any, place: str) -> str:
    """The text of a message's content: a text, or parts that are all text."""
    if isinstance(content, str):
        return _encodable(content, f"{place}.content")
    if isinstance(content, list) and all(
        isinstance(part, Mapping)
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
        for part in content
    ):
        return _encodable("".join(part["text"] for part in content), f"{place}.content")
    raise refused(f"{place}.content", "is text or parts of text: this engine reads text only")


def _encodable(text: str, field: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise refused(field, "has half of a surrogate pair, which is no character") from None
    return text


def _too_long(what: str, context: int, field: str) -> RequestError:
    return RequestError(
        400,
        f"The prompt {what}; this model takes {context} tokens, the answer's first included.",
        field=field,
        code="context_length_exceeded",
    )
