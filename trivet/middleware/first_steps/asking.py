"""Three questions, each of which a flag answers too: which API, which tenant, whose key."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import click
from pydantic import TypeAdapter, ValidationError

from trivet.middleware.first_steps.templates import (
    PROVIDERS,
    Answers,
    Sampled,
    Whose,
    provider_of,
)
from trivet.middleware.running.config import BaseUrl
from trivet.policies.keygen import key_hash, trivial_key

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLAIN = re.compile(r"[!-~]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAGS = {
    "upstream": "--upstream openai|anthropic|URL",
    "tenant": "--tenant NAME",
    "whose": "--key own|new",
}


@dataclass(frozen=True, slots=True)
class Given:
    """The flags; None is asked for."""

    upstream: str | None
    tenant: str | None
    whose: Whose | None
    key_env: str | None
    sampled: Sampled | None
    port: int


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answers_of(given: Given) -> Answers:
    """The flags, and the answers to what they leave open. Raises `click.UsageError`."""
    missing = [flag for name, flag in _FLAGS.items() if getattr(given, name) is None]
    if missing and not at_terminal():
        told = (
            f"Nobody can be asked here (standard input is no terminal): give {', '.join(missing)}."
        )
        raise click.UsageError(told)
    provider = provider_of(_upstream(given.upstream))
    tenant = _tenant(given.tenant)
    whose: Whose = given.whose or _whose(provider.name)
    key_env = given.key_env or provider.key_env
    if key_env is not None and not _VARIABLE.fullmatch(key_env):
        raise click.UsageError(f"--key-env: {key_env!r} is not the name of a variable.")
    return Answers(provider, tenant, whose, key_env, given.sampled or provider.sampled, given.port)


def own_key(key_env: str | None, env: Mapping[str, str] = os.environ) -> str:
    """SHA-256, in hex, of the key that the callers have. Raises `click.UsageError`."""
    key = env.get(key_env, "").strip() if key_env else ""
    if not key and not at_terminal():
        told = f"${key_env} is not set" if key_env else "no variable with the callers' key is named"
        raise click.UsageError(f"--key own: {told}: set it, or name another by --key-env.")
    if not key:
        asked = "The key that the callers send (it is hashed, not kept)"
        key = str(click.prompt(asked, hide_input=True, err=True)).strip()
    found = key_hash(key)
    guessed = trivial_key(found)
    if guessed:
        raise click.UsageError(
            f"--key own: it is {guessed}, which anyone can guess: try --key new."
        )
    return found


def _upstream(given: str | None) -> str:
    if given is None:
        named = ", ".join(PROVIDERS)
        question = f"Which API do your apps call? ({named}, or a URL)"
        given = str(click.prompt(question, default="openai", err=True))
    given = given.strip()
    if given in PROVIDERS:
        return given
    try:
        if not _PLAIN.fullmatch(given):
            raise ValueError("has characters that no URL has")
        return TypeAdapter(BaseUrl).validate_python(given)
    except ValueError as error:
        told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        named = ", ".join(PROVIDERS)
        told = told.removeprefix("Value error, ")
        raise click.UsageError(f"--upstream: {given!r} is none of {named}, and: {told}.") from None


def _tenant(given: str | None) -> str:
    if given is None:
        question = "Name of the first tenant (an app, a team, a customer)"
        given = str(click.prompt(question, default="main", err=True))
    if not _TENANT.fullmatch(given):
        told = "has letters, digits, dots, dashes and underscores, at most 64, and begins with one"
        raise click.UsageError(f"--tenant: a tenant's name {told} of the first two: {given!r}.")
    return given


def _whose(provider: str) -> Whose:
    question = (
        f"Which key will callers send? own: the one for {provider} that they have; "
        "new: one made for this tenant"
    )
    choice = click.Choice(["own", "new"])
    return "new" if click.prompt(question, type=choice, default="own", err=True) == "new" else "own"
