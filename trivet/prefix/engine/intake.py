"""What a request has to be before it may wait: checked, bounded, hashed, its grammar compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from trivet.errors import RequestError
from trivet.prefix.engine.composer import Composer
from trivet.prefix.engine.grammar import Grammars
from trivet.prefix.engine.loaded_model import LoadedModel
from trivet.prefix.engine.sampling_params import SamplingParams
from trivet.prefix.engine.settings import EngineSettings, namespace
from trivet.prefix.pool.hashing import BlockChain, BlockHasher, pack


class Asked(NamedTuple):
    """One request, ready to wait."""

    chain: BlockChain
    params: SamplingParams
    """`max_tokens` is what fits the model's context and the tenant's blocks."""
    composer: Composer


class Intake:
    """For several threads: it keeps nothing of a request."""

    def __init__(self, loaded: LoadedModel, settings: EngineSettings, blocks: int) -> None:
        facts = loaded.facts
        self.grammars = Grammars(loaded.tokenizer, facts.vocabulary, facts.end_tokens)
        self._tokenizer = loaded.tokenizer
        self._facts = facts
        self._settings = settings
        self._blocks = blocks
        self._namespace = namespace(facts, settings)
        self._platform = [pack(prefix) for prefix in settings.platform]

    def read(self, prompt: list[int], params: SamplingParams, tenant: str, salt: str) -> Asked:
        """Raises `RequestError` 400 for what can never be answered here."""
        facts, size = self._facts, self._settings.block_size
        if not prompt:
            raise RequestError(400, "The prompt is empty.", code="empty_prompt")
        if min(prompt) < 0 or max(prompt) >= facts.vocabulary:
            message = f"Token ids of this model are from 0 to {facts.vocabulary - 1}."
            raise RequestError(400, message, code="invalid_token")
        if len(prompt) >= facts.context:
            message = (
                f"The prompt has {len(prompt)} tokens; this model takes {facts.context},"
                " the answer's among them."
            )
            raise RequestError(400, message, code="context_length_exceeded")
        hasher = BlockHasher(self._namespace, salt, block_size=size, platform=self._platform)
        chain = hasher.chain(prompt)
        most = self._settings.ceiling(tenant, self._blocks) + chain.shared
        if chain.blocks > most:
            message = (
                f"The prompt's {len(prompt)} tokens take {chain.blocks} blocks of {size};"
                f" {most} are the most that one request can have here."
            )
            raise RequestError(400, message, code="context_length_exceeded")
        # The last token of an answer needs no block: nothing is computed from it.
        room = min(facts.context, most * size + 1) - len(prompt)
        params = replace(params, max_tokens=max(1, min(params.max_tokens, room)))
        schema = params.json_schema
        grammar = None if schema is None else self.grammars.start(schema, salt)
        return Asked(chain, params, Composer(params, facts.end_tokens, self._decode, grammar))

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text
