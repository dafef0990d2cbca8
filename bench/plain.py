"""Which packages a plain install (`pip install trivet`, no extras) does not have."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lacking() -> list[str]:
    """Top-level names that can be imported here, and could not be after a plain install."""
    kept = _plain(tomllib.loads(_PROJECT.read_text())["project"]["dependencies"]) | {"trivet"}
    return sorted(
        name
        for name, owners in packages_distributions().items()
        if name.isidentifier() and kept.isdisjoint(map(canonicalize_name, owners))
    )


def _plain(asked: list[str]) -> set[str]:
    """The distributions that are asked for, and all that they ask for in turn."""
    found: set[str] = set()
    waiting = [(Requirement(text), "") for text in asked]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        wanted = {f"{name}[{each}]" for each in requirement.extras} | {name}
        if wanted <= found:
            continue
        found |= wanted
        try:
            texts = requires(name) or []
        except PackageNotFoundError:
            continue
        for each in ("", *requirement.extras):
            waiting += [(Requirement(text), each) for text in texts]
    return found
