"""`trivet check` and `trivet explain`: looking without running."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import ConfigError, Problem, RequestError
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import UNDECLARED, PolicySet
from trivet.terminal import say, say_json

if TYPE_CHECKING:
    from trivet.middleware.arrival.routing import Routing
    from trivet.middleware.explain.sample import Sample
    from trivet.middleware.running.config import ServerConfig
    from trivet.middleware.semantic_tier.effective import Effective

OK, FINDING = 0, 1


def schema() -> str:
    """The JSON Schema of policy files."""
    from trivet.policies.loader import json_schema

    return json.dumps(json_schema(), indent=2)


@dataclass
class _Findings:
    """What `check` found. A warning is no problem: what it is about can be served."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    policies: PolicySet = UNDECLARED
    config: ServerConfig | None = None
    directory: Path | None = None


def check(directory: Path | None, config: Path | None, *, as_json: bool) -> int:
    """Validate a directory of policies, and a server config. Returns the exit code.

    Without `directory`, the policies are those that the config names.
    """
    found = _findings(directory, config)
    tenants = found.policies.tenants
    modes = _modes(tenants)
    code = FINDING if found.problems else OK
    if as_json:
        data = {
            "ok": not found.problems,
            "tenants": sorted(tenants),
            "problems": [asdict(problem) for problem in found.problems],
            "warnings": [asdict(warning) for warning in found.warnings],
            "semantic": {tenant: asdict(mode) for tenant, mode in modes.items()},
        }
        say_json(data)
        return code
    for warning in found.warnings:
        say(f"warning: {warning}", err=True)
    if found.problems:
        told = [*map(str, found.problems), f"{_counted(found.problems, 'problem')} found."]
    else:
        told = [] if found.config is None else ["The server config is fine."]
        if found.directory is not None:
            told.append(f"{_counted(tenants, 'tenant')}: {', '.join(sorted(tenants))}")
        told += [f"semantic tier of {tenant}: {mode.text}" for tenant, mode in modes.items()]
    say("\n".join(told))
    return code


def _findings(directory: Path | None, file: Path | None) -> _Findings:
    from trivet.middleware.arrival.routing import keyless_upstreams, unset_variables
    from trivet.middleware.running.apart import apart
    from trivet.middleware.running.config import server_config
    from trivet.middleware.running.named_users import nameable_users
    from trivet.middleware.running.unreached import unreached
    from trivet.policies.loader import ignored_files, load

    found = _Findings(directory=directory)
    of_config: tuple[Problem, ...] = ()
    try:
        found.config = None if file is None else server_config(file, {})
    except ConfigError as error:
        of_config = error.problems
    config = found.config
    if directory is None and config is not None:
        found.directory = config.policies
    upstreams = None if config is None else [upstream.name for upstream in config.upstreams]
    try:
        if found.directory is not None:
            found.policies = load(found.directory, upstreams)
            found.warnings += [_ignored(path) for path in ignored_files(found.directory)]
    except ConfigError as error:
        found.problems.extend(error.problems)
    found.problems.extend(of_config)
    declared = config is None or config.gateway is not None
    found.warnings += nameable_users(found.policies)
    found.warnings += unreached(found.policies, gateway=declared)
    if config is not None:
        found.warnings += apart(config)
        found.warnings += keyless_upstreams(found.policies.tenants, config.upstreams)
        found.warnings += unset_variables(config.upstreams)
        found.problems += _missing_library(config)
    return found


def _missing_library(config: ServerConfig) -> list[Problem]:
    """What the config asks for and `serve` would refuse to start without."""
    if not config.store.encrypt or find_spec("cryptography") is not None:
        return []
    message = "needs the extra: pip install 'trivet[encryption]'"
    return [Problem("environment", 0, 0, "store.encrypt", message)]


def _ignored(path: Path) -> Problem:
    return Problem(str(path), 0, 0, "", "is not read: policy files end in .yaml or .yml.")


def _modes(policies: Mapping[str, TenantPolicy]) -> dict[str, Effective]:
    """What the semantic modes come to, as far as that is known without the models."""
    from trivet.middleware.semantic_tier.effective import effective

    return {
        tenant: effective(policy.semantic)
        for tenant, policy in sorted(policies.items())
        if policy.semantic.mode != "off"
    }


def _counted(found: Collection[object], noun: str) -> str:
    return f"{len(found)} {noun}{'' if len(found) == 1 else 's'}"


def explain_running(request_file: Path, admin: str, key: str | None, *, as_json: bool) -> int:
    """Ask a running proxy: its policies, its upstreams, and the key under which it stores."""
    from trivet.middleware.admin.client import AdminClient
    from trivet.middleware.explain.explain import explanation_of
    from trivet.middleware.explain.text import render

    sample = _sample(request_file)
    target = f"{sample.path}?{sample.query}" if sample.query else sample.path
    told = AdminClient(admin, key).explain(target, sample.headers, sample.body)
    if as_json:
        say_json(told)
    else:
        say(render(explanation_of(told)))
    return FINDING if told["tenant"] is None else OK


def explain(
    request_file: Path,
    *,
    policies: Path | None,
    tenant: str | None,
    as_json: bool,
    config_file: Path | None = None,
) -> int:
    """Print what would happen to a request, in front of the config's upstreams where one is given.
    Returns the exit code: 1 where it is turned away."""
    from trivet.middleware.explain.explaining import Explainer
    from trivet.middleware.explain.text import render
    from trivet.policies.source import PolicySource

    secret = b"trivet-explain"
    config = _config(config_file)
    names = None if config is None else [upstream.name for upstream in config.upstreams]
    policies = policies or (config.policies if config is not None else None)
    tenants = PolicySource(policies, secret, upstreams=names).tenants
    sample = _sample(request_file)
    who = tenants.identify(sample.raw_headers)
    if tenant is not None:
        who = tenants.chosen(tenant)
        if who is None:
            message = _unknown(tenant, policies, config_file)
            raise ConfigError(Problem("command line", 0, 0, "--tenant", message))
    told = Explainer(_routing(config), secret).of_sample(sample, who)
    if as_json:
        say_json(told.as_json())
    else:
        say(render(told))
        say("Worked out without a proxy: the key is another there (see --admin).", err=True)
    return FINDING if told.tenant is None else OK


def _config(file: Path | None) -> ServerConfig | None:
    from trivet.middleware.running.config import server_config

    return None if file is None else server_config(file, {})


def _routing(config: ServerConfig | None) -> Routing | None:
    """The config's upstreams. Nothing is sent, so what is not set in the environment is made up."""
    from trivet.middleware.arrival.routing import Routing

    if config is None:
        return None
    named = [one.credential_env for one in config.upstreams]
    named += [one.engine_secret_env for one in config.upstreams]
    made_up = {name: "0" * 64 for name in named if name and not os.environ.get(name, "").strip()}
    return Routing(config.upstreams, {**os.environ, **made_up})


def _sample(file: Path) -> Sample:
    from trivet.middleware.explain.sample import read_sample

    try:
        return read_sample(_read(file))
    except RequestError as error:
        raise RequestError(error.status, f"{file}: {error}", field=error.field) from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            Problem(str(file), 0, 0, "", f"cannot be read: {error.strerror}")
        ) from None


def _unknown(tenant: str, policies: Path | None, config_file: Path | None) -> str:
    if policies is None and config_file is not None:
        return f"{config_file} has no `policies:`: add it, or give --policies DIR"
    if policies is None:
        return "goes with --policies DIR"
    return f"no policy file in {policies} declares the tenant {tenant!r}"
