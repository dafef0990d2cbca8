"""YAML with positions: plain values, and where in the file each of them stands.

Scalars follow YAML 1.2's core schema, so that `on`, `no`, `07` and `1:30` stay text. Where the
model wants text (`versions`, names, hashes), a scalar is the characters as written: `1.10` is not
the number 1.1. Anchors, aliases and foreign tags are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from trivet.errors import ConfigError, Problem
from trivet.policies.yaml_words import syntax_problem

Position = tuple[str | int, ...]
"""A path into the file: field names and list indexes."""

_TEXT = frozenset(
    [
        "tenant",
        "sha256",
        "gateway",
        "upstreams",
        "models",
        "model",
        "route",
        "key_headers",
        "ignore_headers",
    ]
)
"""Fields whose scalars are text, whatever they look like; `versions` is handled with them."""
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE, _FALSE = frozenset(("true", "True", "TRUE")), frozenset(("false", "False", "FALSE"))
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,19}|[0-9]{1,19}(?:\.[0-9]{0,19})?)(?:[eE][-+]?[0-9]{1,2})?")
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed file."""

    file: str
    value: Any
    marks: dict[Position, tuple[int, int]]
    """Line and column, from 1, of each value; of its key where it has one."""
    problems: tuple[Problem, ...] = ()
    """What was refused on the way; the rest was read."""

    def problem(self, position: Position, message: str) -> Problem:
        """A finding about `position`, or about the nearest thing around it that is there."""
        place = position
        while place and place not in self.marks:
            place = place[:-1]
        line, column = self.marks.get(place, (1, 1))
        return Problem(self.file, line, column, field_path(position), message)


def field_path(position: Position) -> str:
    """`exact.rules[0].ttl`."""
    path = ""
    for part in position:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def read_yaml(file: str, text: str) -> Source:
    """Parse one document. Raises `ConfigError` if nothing can be read of it."""
    try:
        aliases = [token for token in yaml.scan(text) if isinstance(token, yaml.AliasToken)]
        if aliases:
            mark = aliases[0].start_mark
            raise ConfigError(
                Problem(
                    file,
                    mark.line + 1,
                    mark.column + 1,
                    "",
                    "aliases (*name) are not read here; write the value out.",
                )
            )
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(syntax_problem(file, text, error)) from None
    except RecursionError:
        raise ConfigError(Problem(file, 1, 1, "", "is nested too deeply.")) from None
    if node is None:
        raise ConfigError(
            Problem(
                file, 1, 1, "", "is empty; a policy names a tenant, a server config an upstream."
            )
        )
    reader = _Reader(file)
    value = reader.read(node, ())
    return Source(file, value, reader.marks, tuple(reader.problems))


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.marks: dict[Position, tuple[int, int]] = {}

    def read(self, node: yaml.Node, position: Position) -> Any:
        self.marks.setdefault(position, _mark(node))
        if not node.tag.startswith("tag:yaml.org,2002:"):
            return self._refuse(node, position, f"the tag {node.tag} is not read here.")
        if len(position) > _DEEPEST:
            return self._refuse(node, position, "is nested too deeply.")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node.value, node.style is None, position)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, position)
        return [self.read(item, (*position, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, position: Position) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, position, "a field's name has to be plain text.")
                continue
            place = (*position, key.value)
            if key.value in made:
                line = self.marks[place][0]
                self._refuse(key, place, f"is given twice; the first is in line {line}.")
                continue
            self.marks[place] = _mark(key)
            made[key.value] = self.read(value, place)
        return made

    def _refuse(self, node: yaml.Node, position: Position, message: str) -> None:
        line, column = _mark(node)
        self.problems.append(Problem(self.file, line, column, field_path(position), message))


def _mark(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(text: str, plain: bool, position: Position) -> Any:
    if not plain:
        return text
    if text in _NULLS:
        return None
    names = [part for part in position if isinstance(part, str)]
    if "versions" in names or _TEXT.intersection(names[-1:]):
        return text
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
