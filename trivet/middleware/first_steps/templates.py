"""What `trivet init` writes and says: text out of answers, and nothing read or written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from trivet.middleware.running.config import DialectFamily

_PLAIN_URL = re.compile(r"https?://[A-Za-z0-9._-]+(?::[0-9]+)?[A-Za-z0-9._/-]*")
Sampled = Literal["bypass", "cache", "pool"]
Whose = Literal["own", "new"]


@dataclass(frozen=True, slots=True)
class Provider:
    """An API that apps call today."""

    name: str
    base_url: str
    dialects: tuple[DialectFamily, ...]
    key_env: str | None
    """Where its SDK reads the key; None: not known."""
    sampled: Sampled = "bypass"


PROVIDERS = {
    "openai": Provider("openai", "https://api.openai.com", ("openai",), "OPENAI_API_KEY"),
    # Its API has no temperature, so every request samples.
    "anthropic": Provider(
        "anthropic", "https://api.anthropic.com", ("anthropic",), "ANTHROPIC_API_KEY", "cache"
    ),
}


def provider_of(upstream: str) -> Provider:
    """The provider of that name, or a server of one's own at that URL."""
    return PROVIDERS.get(upstream) or Provider(
        "upstream", upstream, ("openai", "anthropic"), key_env=None
    )


@dataclass(frozen=True, slots=True)
class Answers:
    """What was asked, or given by flags."""

    provider: Provider
    tenant: str
    whose: Whose
    key_env: str | None
    """own: the variable that the key was read from; new: the one with the provider's key."""
    sampled: Sampled
    port: int


def policy_text(answers: Answers, sha256: str) -> str:
    """A policy file, in YAML. `sha256` is of the callers' key, in hex."""
    return f"""\
# The policy of one tenant: what may be cached for whom. It is read again when it changes.
# `trivet check --config trivet.yaml` validates it, `trivet check --schema` lists every setting.
tenant: {answers.tenant}

# Who it is for: callers prove to be this tenant by a key. Only its SHA-256 is kept here.
credentials:
  # {_whose_key(answers)}
  - sha256: {sha256}

# Change a value, and every earlier answer is outdated: a new prompt, new documents, a new flag.
versions:
  prompt: "1"

exact:
  ttl: 1d  # from when the answer was made; a hit never renews it
{_sampled(answers)}
  stale_if_error: 0  # 1h: an answer may stand in for an error that long past its ttl

limits:
  entries: 100000  # answers of this tenant that are kept at most
  bytes: 512MiB

# Similar questions are answered from the cache once that was measured, and not before:
# `trivet eval calibrate` on pairs of your own, then name its file here (docs/semantic.md).
semantic:
  mode: "off"
"""


def _whose_key(answers: Answers) -> str:
    if answers.whose == "new":
        return "Of the key that `trivet init` showed once."
    named = f" (${answers.key_env})" if answers.key_env else ""
    return f"Of the key that the callers have already{named}."


def _sampled(answers: Answers) -> str:
    if answers.sampled == "bypass":
        return (
            "  # A request that draws its answer at random (its temperature is not 0 or is not\n"
            "  # named, and it has no seed) goes to the model each time. cache: the first answer\n"
            "  # stands for its ttl; pool: k answers are kept, and one of them is drawn.\n"
            "  sampled: bypass"
        )
    why = (
        "Every request to this API samples: by bypass none would be cached.\n  # "
        if answers.provider.sampled == "cache"
        else ""
    )
    told = {
        "cache": "The first answer to a request stands for its ttl, also where the\n"
        "  # answer is drawn at random. pool: k answers are kept, and one of them is drawn.",
        "pool": "Of k answers to a request that draws its answer at random, one is drawn.",
    }[answers.sampled]
    return f"  # {why}{told}\n  sampled: {answers.sampled}"


def config_text(answers: Answers) -> str:
    """A server config, in YAML."""
    provider = answers.provider
    lines = [
        "# What `trivet serve --config trivet.yaml` runs (docs/guide.md).",
        "upstreams:",
        f"  - name: {provider.name}",
        f"    base_url: {_scalar(provider.base_url)}",
        f"    dialects: [{', '.join(provider.dialects)}]",
        *_credential(answers),
        f"port: {answers.port}",
        "policies: policies  # beside this file",
        "store:",
        "  url: 'sqlite:'  # in the state directory; redis://HOST:PORT/DB for several machines",
    ]
    return "\n".join(lines) + "\n"


def _scalar(url: str) -> str:
    """The URL in YAML: as it is where nothing in it could be read as syntax."""
    return url if _PLAIN_URL.fullmatch(url) else json.dumps(url)


def _credential(answers: Answers) -> list[str]:
    if answers.whose == "own":
        return ["    # The callers' own key goes on to it: no credential_env."]
    if answers.key_env is None:
        return ["    # credential_env: VARIABLE  # where the upstream wants a key"]
    return [f"    credential_env: {answers.key_env}  # its key; the callers' own never leaves here"]


def base_urls(answers: Answers) -> dict[DialectFamily, str]:
    """The base URL that each SDK is given, by API family."""
    root = f"http://127.0.0.1:{answers.port}"
    urls: dict[DialectFamily, str] = {"openai": f"{root}/v1", "anthropic": root}
    return {family: urls[family] for family in answers.provider.dialects}


_SDKS: dict[DialectFamily, tuple[str, str]] = {
    "openai": ("OpenAI", "OPENAI_BASE_URL"),
    "anthropic": ("Anthropic", "ANTHROPIC_BASE_URL"),
}


def next_steps(answers: Answers, config: str, key: str | None) -> str:
    """What is left to do, for people. `key` is the new key; None: the callers keep theirs."""
    set_env = f"{answers.key_env}=... " if answers.whose == "new" and answers.key_env else ""
    lines = [
        "Start it:",
        f"  {set_env}trivet serve --config {config}",
        "Change one line in the app:",
    ]
    for family, url in base_urls(answers).items():
        sdk, variable = _SDKS[family]
        lines += [f'  {sdk}(base_url="{url}")', f"  or in its environment: {variable}={url}"]
    if key is not None:
        lines += ["The callers' new API key, shown once and kept nowhere:", f"  {key}"]
    else:
        lines.append("The callers keep their key.")
    lines += ["Then see that all is well:", f"  trivet doctor --config {config}"]
    return "\n".join(lines)
