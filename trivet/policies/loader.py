"""Policy files: read as a whole, refused as a whole, with every finding named by line and field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from trivet.canonical import digest
from trivet.errors import ConfigError, Problem
from trivet.policies.calibration import load_calibration
from trivet.policies.keygen import trivial_key
from trivet.policies.model import TenantPolicy
from trivet.policies.named_headers import header_problems
from trivet.policies.nodes import Position, Source, read_yaml
from trivet.policies.problems import nearest, problem_of
from trivet.policies.regular_file import read_regular
from trivet.policies.tenants import PolicySet

LARGEST = 1 << 20
"""Bytes of a policy file."""
_SUFFIXES = (".yaml", ".yml")
_VERSION_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VERSION_VALUE = re.compile(r"[^\x00-\x20,](?:[^\x00-\x1f,]{0,126}[^\x00-\x20,])?")


@dataclass(frozen=True, slots=True)
class _Loaded:
    source: Source
    policy: TenantPolicy


def load(
    directory: Path,
    upstreams: Collection[str] | None = None,
    instead: Mapping[Path, str] = MappingProxyType({}),
) -> PolicySet:
    """Read every `*.yaml` and `*.yml` file of `directory` (not below it, and none that begins
    with a dot). `upstreams` are the names that a server config declares, None where none is known.
    `instead` has texts that are taken for files of the directory, whatever is in those by now.

    Raises `ConfigError` with every problem found, in the order of files and lines. A directory
    without a policy file is a problem too: it was given so that unknown callers are turned away,
    and serving without policies would let them in.
    """
    try:
        files = sorted({*policy_files(directory), *instead})
    except OSError as error:
        raise ConfigError(_whole(str(directory), f"cannot be read: {error.strerror}.")) from None
    if not files:
        raise ConfigError(
            _whole(
                str(directory),
                "no policy file (*.yaml) is in it. Add one, or leave the directory out to make "
                "each credential its own tenant.",
            )
        )
    problems: list[Problem] = []
    loaded: list[_Loaded] = []
    contents: list[bytes] = []
    for path in files:
        try:
            text = instead[path] if path in instead else _read(path)
            contents += [path.name.encode(), text.encode()]
            loaded.append(_load_file(str(path), text))
        except ConfigError as error:
            problems.extend(error.problems)
    problems.extend(_clashes(loaded))
    if upstreams is not None:
        problems.extend(found for item in loaded for found in _undeclared(item, upstreams))
    if problems:
        raise ConfigError(*problems)
    return _policy_set(digest(*contents).hex()[:12], loaded)


def policy_files(directory: Path) -> list[Path]:
    """The files that `load` reads, by name. Raises `OSError`."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix in _SUFFIXES and not path.name.startswith(".")
    )


def ignored_files(directory: Path) -> list[Path]:
    """Files that look like policies and are not read: `x.YAML`. Raises `OSError`."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix.lower() in _SUFFIXES
        and path.suffix not in _SUFFIXES
        and not path.name.startswith(".")
    )


def load_policy(path: Path) -> TenantPolicy:
    """Read one policy file by itself, with the calibration that it names. Raises `ConfigError`."""
    return _load_file(str(path), _read(path)).policy


def read_policy(file: str, text: str) -> TenantPolicy:
    """The policy of a text; `file` is what findings call it, and where the calibration that it
    names is looked for. Raises `ConfigError`."""
    return _load_file(file, text).policy


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a policy file, for editors."""
    schema = TenantPolicy.model_json_schema()
    _allow_units(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trivet policy",
        **{name: part for name, part in schema.items() if name != "title"},
    }


def _allow_units(part: Any) -> None:
    # Durations and sizes are numbers to pydantic; files may write them with a unit.
    if isinstance(part, list):
        for item in part:
            _allow_units(item)
    if not isinstance(part, dict):
        return
    for name, item in part.items():
        if name == "versions" and isinstance(item, dict):
            item["additionalProperties"] = {"type": ["string", "number", "boolean"]}
        elif name in _UNITS and isinstance(item, dict):
            _with_unit(item, _UNITS[name])
        else:
            _allow_units(item)


_DURATION = r"^\d+(\.\d+)?\s*[smhd]$"
_SIZE = r"^\d+\s*(B|KiB|MiB|GiB)?$"
_UNITS = {
    "ttl": _DURATION,
    "stale_if_error": _DURATION,
    "max_entry": _SIZE,
    "bytes": _SIZE,
    "bytes_in_flight": _SIZE,
}


def _with_unit(item: dict[str, Any], pattern: str) -> None:
    branches = item.pop("anyOf", None) or [
        {name: item.pop(name) for name in ("type", "minimum", "ge") if name in item}
    ]
    for branch in branches:
        # Where pydantic cannot see through the conversion it leaves its own word.
        if "ge" in branch:
            branch["minimum"] = branch.pop("ge")
    item["anyOf"] = [*branches, {"type": "string", "pattern": pattern}]


def _read(path: Path) -> str:
    raw = read_regular(path, LARGEST)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(_whole(str(path), f"is not UTF-8 at byte {error.start}.")) from None


def _load_file(file: str, text: str) -> _Loaded:
    source = read_yaml(file, text)
    try:
        policy = TenantPolicy.model_validate(source.value)
    except ValidationError as error:
        said = {problem.field for problem in source.problems}
        found = [problem_of(source, item) for item in error.errors(include_url=False)]
        problems = [*source.problems, *(item for item in found if item.field not in said)]
        raise ConfigError(*sorted(problems, key=_place)) from None
    problems = [*source.problems, *_beyond_types(source, policy), *_measured(source, policy)]
    if problems:
        raise ConfigError(*sorted(problems, key=_place))
    return _Loaded(source, policy)


def _measured(source: Source, policy: TenantPolicy) -> list[Problem]:
    """Load the calibration that the policy names; it has to be sound, served from or not."""
    semantic = policy.semantic
    if semantic.calibration is None:
        return []
    directory = Path(source.file).parent
    path = directory / semantic.calibration
    try:
        measured = load_calibration(path, within=directory)
    except ConfigError as error:
        where = ("semantic", "calibration")
        return [
            source.problem(where, f"{path}: {item.field}: {item.message}")
            for item in error.problems
        ]
    semantic.attach(measured)
    if measured.fingerprint.chain == "cross-encoder" and semantic.cross_encoder is None:
        told = f"name the model: the chain of {semantic.calibration} is cross-encoder."
        return [source.problem(("semantic", "cross_encoder"), told)]
    return []


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column


def _beyond_types(source: Source, policy: TenantPolicy) -> list[Problem]:
    problems = _of_judge(source, policy) + [
        source.problem(
            ("credentials", index), "give sha256 or gateway: one of the two, and only one."
        )
        for index, credential in enumerate(policy.credentials)
        if (credential.sha256 is None) == (credential.gateway is None)
    ]
    problems += [
        source.problem(
            ("credentials", index, "sha256"),
            f"is the SHA-256 of {guessed}, which anyone can guess; `trivet keygen` makes a real "
            "key.",
        )
        for index, credential in enumerate(policy.credentials)
        if (guessed := trivial_key(credential.sha256))
    ]
    for name, value in policy.versions.items():
        if not _VERSION_NAME.fullmatch(name):
            problems.append(
                source.problem(
                    ("versions", name),
                    "a version's name has letters, digits, dots, dashes and underscores, "
                    "at most 64.",
                )
            )
        elif not _VERSION_VALUE.fullmatch(value):
            problems.append(
                source.problem(
                    ("versions", name),
                    "a version has 1 to 128 characters, without commas or control characters.",
                )
            )
    return problems + header_problems(source, policy.exact)


def _of_judge(source: Source, policy: TenantPolicy) -> list[Problem]:
    judge = policy.semantic.audit.judge
    if judge.kind != "llm":
        return []
    where = ("semantic", "audit", "judge")
    return [
        source.problem(where, f"a judge of kind llm needs {name}.")
        for name in ("upstream", "model")
        if getattr(judge, name) is None
    ]


def _clashes(loaded: list[_Loaded]) -> list[Problem]:
    problems: list[Problem] = []
    names: dict[str, str] = {}
    credentials: dict[tuple[str, str], str] = {}
    for item in loaded:
        source, tenant = item.source, item.policy.tenant
        first = names.setdefault(tenant, source.file)
        if first is not source.file:
            problems.append(
                source.problem(
                    ("tenant",), f"{first} is tenant {tenant!r} already; each file is one tenant."
                )
            )
        for index, credential in enumerate(item.policy.credentials):
            kind = "sha256" if credential.sha256 else "gateway"
            place = f"{source.file} credentials[{index}]"
            used = credentials.setdefault((kind, str(getattr(credential, kind))), place)
            if used is not place:
                problems.append(
                    source.problem(
                        ("credentials", index, kind),
                        f"{used} has the same credential; a credential is of one tenant.",
                    )
                )
    return problems


def _undeclared(item: _Loaded, upstreams: Collection[str]) -> list[Problem]:
    """Upstreams that the policy names and nobody declares: its tenant would get 404 for all."""
    named: list[tuple[Position, str]] = [
        (("upstreams", index), name) for index, name in enumerate(item.policy.upstreams or ())
    ]
    judge = item.policy.semantic.audit.judge
    if judge.kind == "llm" and judge.upstream is not None:
        named.append((("semantic", "audit", "judge", "upstream"), judge.upstream))
    known = ", ".join(sorted(upstreams))
    return [
        item.source.problem(
            position,
            f"{name!r} is not declared in the server config; it has {known}."
            + nearest(name, upstreams),
        )
        for position, name in named
        if name not in upstreams
    ]


def _policy_set(version: str, loaded: list[_Loaded]) -> PolicySet:
    policies = [item.policy for item in loaded]
    owned = [(credential, policy) for policy in policies for credential in policy.credentials]
    return PolicySet(
        version=version,
        declared=True,
        tenants=MappingProxyType({policy.tenant: policy for policy in policies}),
        by_key=MappingProxyType({item.sha256: policy for item, policy in owned if item.sha256}),
        by_gateway=MappingProxyType(
            {item.gateway: policy for item, policy in owned if item.gateway}
        ),
        sources=MappingProxyType({item.policy.tenant: item.source for item in loaded}),
    )


def _whole(file: str, message: str) -> Problem:
    return Problem(file, 0, 0, "", message)
