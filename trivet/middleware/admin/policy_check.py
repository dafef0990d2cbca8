"""The check of a pasted policy, as the console and `trivet check` tell it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from trivet.errors import Problem
from trivet.middleware.running.named_users import nameable_users
from trivet.middleware.running.unreached import unreached
from trivet.policies.pasted import Pasted
from trivet.policies.source import PolicySource


async def checked(source: PolicySource, text: str) -> dict[str, Any]:
    """See `Control.check_policy`."""
    # Reading YAML holds the event loop too long.
    found = await asyncio.to_thread(source.check, text)
    named = found.policy or found.before
    return {
        "file": found.file,
        "tenant": named.tenant if named is not None else None,
        "before": None if found.before is None else found.before.model_dump(mode="json"),
        "policy": None if found.policy is None else found.policy.model_dump(mode="json"),
        "problems": [_told(problem, found) for problem in found.problems],
        "warnings": [_told(problem, found) for problem in _warnings(found, source.has_gateway)],
    }


def _warnings(found: Pasted, has_gateway: bool) -> list[Problem]:
    if found.policies is None:
        return []
    said = [*nameable_users(found.policies), *unreached(found.policies, gateway=has_gateway)]
    return [problem for problem in said if problem.file == found.file]


def _told(problem: Problem, found: Pasted) -> dict[str, Any]:
    """A finding, and whether it is about the pasted text: others are in files that are there."""
    return {**asdict(problem), "pasted": problem.file == found.file}
