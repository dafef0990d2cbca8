"""What would become of the policies if a text were one of their files: nothing is written."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from trivet.errors import ConfigError, Problem
from trivet.policies.loader import LARGEST, load, read_policy
from trivet.policies.model import TenantPolicy
from trivet.policies.nodes import read_yaml
from trivet.policies.tenants import PolicySet

_NAME = "pasted.yaml"
"""What a text is called that names no tenant."""


class Pasted(NamedTuple):
    """What a pasted policy comes to."""

    file: str
    """The file that it would be."""
    before: TenantPolicy | None
    """The policy in use that it would replace."""
    policy: TenantPolicy | None = None
    """The policy that it is; None where it is none."""
    policies: PolicySet | None = None
    """All policies with it; None where there is a problem, or no directory of policies."""
    problems: tuple[Problem, ...] = ()


def check_pasted(
    text: str, current: PolicySet, directory: Path | None, upstreams: Collection[str] | None
) -> Pasted:
    """Check a text as the loader checks files, with all the other files of `directory`.

    It takes the place of the file whose tenant it names. Reads files.
    """
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST:
        told = f"is larger than {LARGEST} bytes."
        return Pasted(_NAME, None, problems=(Problem(_NAME, 0, 0, "", told),))
    try:
        tenant = _tenant_of(text)
    except ConfigError as error:
        return Pasted(_NAME, None, problems=error.problems)
    before = current.tenants.get(tenant)
    path = _path_of(tenant, current, directory)
    policy: TenantPolicy | None = None
    policies: PolicySet | None = None
    problems: tuple[Problem, ...] = ()
    try:
        policy = read_policy(str(path), text)
    except ConfigError as error:
        problems = error.problems
    try:
        if directory is not None:
            policies = load(directory, upstreams, {path: text})
    except ConfigError as error:
        problems = error.problems
    return Pasted(str(path), before, policy, policies, problems)


def _tenant_of(text: str) -> str:
    value = read_yaml(_NAME, text).value
    tenant = value.get("tenant") if isinstance(value, dict) else None
    return tenant if isinstance(tenant, str) else ""


def _path_of(tenant: str, current: PolicySet, directory: Path | None) -> Path:
    source = current.sources.get(tenant)
    if source is not None:
        return Path(source.file)
    return (directory or Path()) / _NAME
