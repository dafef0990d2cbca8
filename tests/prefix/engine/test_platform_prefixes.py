"""System prompts of the platform, from files to tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trivet.errors import ConfigError
from trivet.prefix.engine.platform_prefixes import platform_prefixes
from trivet.prefix.engine.prompts import Prompts

LINES = (
    "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}|{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
NO_SYSTEM = "{{ raise_exception('no system message here') }}"


def prompts_of(template: str | None, context: int = 512) -> Prompts:
    """One token a byte."""
    names = {name: at for at, name in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=names, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, clean_up_tokenization_spaces=False, eos_token=None
    )
    fast.chat_template = template
    return Prompts(fast, context, len(fast))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "system.txt"
    place.write_text("Be brief, whoever asks.\n")
    return place


def test_it_is_what_chats_with_it_begin_with(file: Path) -> None:
    prompts = prompts_of(LINES)
    (prefix,) = platform_prefixes([file], prompts, 16)
    assert prompts.decode(prefix) == "system:Be brief, whoever asks.|user:"
    chat = prompts.chat(
        [
            {"role": "system", "content": "Be brief, whoever asks."},
            {"role": "user", "content": "Why?"},
        ]
    )
    assert tuple(chat[: len(prefix)]) == prefix


def test_without_a_template_it_is_the_text(file: Path) -> None:
    prompts = prompts_of(None)
    (prefix,) = platform_prefixes([file], prompts, 16)
    assert prompts.decode(prefix) == "Be brief, whoever asks."


def test_what_cannot_be_a_prefix_is_told_with_its_file(file: Path) -> None:
    def refused(prompts: Prompts, told: str, size: int = 16) -> None:
        with pytest.raises(ConfigError, match=f"--platform-prefix: {file}: .*{told}"):
            platform_prefixes([file], prompts, size)

    refused(prompts_of(LINES), "36 tokens; nothing is shared below a block of 64", 64)
    refused(prompts_of(NO_SYSTEM), "no system message here")
    file.write_bytes(b"\xff")
    refused(prompts_of(LINES), "utf-8")
    file.unlink()
    refused(prompts_of(LINES), "No such file")
