"""What every prefix cache behind an upstream is to Trivet: how it is asked, how tenants are kept
apart in it, and what it reports.

Facts on fields are cited in the module of each provider. All of it is pure: bytes in, bytes out.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from trivet.messages import Api
from trivet.prefix.prompts.outline import NativeApi, Outline, Place

Isolation = Literal["salt", "key", "account", "slot", "tenant", "none"]
"""What keeps tenants apart: a salt in the block hashes, a key that separates reuse, nothing but
the account, a slot each, the signed tenant; or nothing at all."""


class Marked(NamedTuple):
    """A breakpoint to set: behind the part at `place`, or with the place `()` the one that the
    provider moves along. `ttl` as the provider writes it; empty for its default."""

    place: Place
    ttl: str = ""


class Ask(NamedTuple):
    """One request on its way to an upstream."""

    api: Api | NativeApi
    model: str
    raw: bytes
    """The body that would go."""
    outline: Outline
    salt: str
    """64 hex digits: `tenant_salt(secret, tenant, epoch)`."""
    slot: int | None = None
    """The tenant's own; None where it has none."""
    common_slot: int | None = None
    """Where requests of tenants without one run, each with caching off."""
    common: bool = False
    """Sent with the proxy's credential, which is that of other tenants too."""
    bearer: bool = True
    """Authorised by a token: a body under a signature over it is never changed."""
    marks: tuple[Marked, ...] = ()
    """What placement chose, within the rules and beside the caller's own."""


class Prepared(NamedTuple):
    """What goes upstream in place of an `Ask`."""

    body: bytes
    """The very same object where nothing was to be changed."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """To be added, or to take the place of the caller's."""
    dropped: frozenset[bytes] = frozenset()
    """Headers that must not go on, in lower case."""
    marks: int = 0
    """Breakpoints that were set, the caller's not counted."""
    notes: tuple[str, ...] = ()
    """What was done and why, in words, for `trivet explain`. Never a salt."""
    apart: bool = True
    """False where the request can reach another tenant's prefixes: it has to be kept back from an
    engine that several tenants share, or sent with caching off."""


class PrefixBackend(Protocol):
    """One kind of prefix cache."""

    @property
    def kind(self) -> str:
        """Its name in the config: `anthropic`, `vllm`, ..."""

    @property
    def isolates(self) -> Isolation:
        """What keeps tenants apart."""

    @property
    def takes_marks(self) -> bool:
        """Whether breakpoints can be set (for some models, at least)."""

    def prepare(self, ask: Ask) -> Prepared:
        """The request as this cache wants it. Content is never changed."""


SERVER_FIELDS: Final = (
    *("cache_salt", "extra_key", "id_slot", "cache_prompt", "n_cache_reuse"),
    *("session_id", "session_params", "kv_transfer_params", "routed_dp_rank", "data_parallel_rank"),
    *("bootstrap_host", "bootstrap_port", "bootstrap_room"),
)
"""Fields by which a caller would choose whose prefixes it reads on a server of one's own: in vLLM,
SGLang (their `protocol.py`) and llama.cpp (`tools/server/README.md`). No hosted API knows them."""

SERVER_HEADERS: Final = frozenset((b"x-session-id", b"x-data-parallel-rank"))
"""Headers that choose a replica or rank of a server, and so what is cached there."""

OPENAI_FIELDS: Final = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention")
"""Top-level fields of OpenAI's own caching."""
