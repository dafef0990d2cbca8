"""How two policies differ, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Change(NamedTuple):
    """A setting that is not the same: None on a side stands for one that is not there."""

    name: str
    before: Any
    after: Any


def flat(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their path (`exact.rules[0].ttl`); a list of plain values is one setting."""
    return dict(_flat(policy, ""))


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The settings that differ, in the order of the policy."""
    old, new = flat(before), flat(after)
    names = list(dict.fromkeys((*old, *new)))
    return [
        Change(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _given(item, f"{path}[{index}]")
    else:
        yield path, value


def _given(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A rule's settings: those that it leaves open are not there."""
    return ((name, item) for name, item in _flat(value, path) if item is not None)
