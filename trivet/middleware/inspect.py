"""`trivet check` and `trivet explain`: looking without running."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from trivet.errors import ConfigError, Problem
from trivet.policies.model import TenantPolicy

OK, FINDING = 0, 1


def schema() -> str:
    """The JSON Schema of policy files."""
    from trivet.policies.loader import json_schema

    return json.dumps(json_schema(), indent=2)


def check(directory: Path | None, config: Path | None, *, as_json: bool) -> int:
    """Validate a directory of policies, and a server config. Returns the exit code.

    A warning is no finding: what it is about can be served.
    """
    from trivet.middleware.config import server_config
    from trivet.middleware.named_users import nameable_users
    from trivet.middleware.routing import keyless_upstreams, unknown_upstreams
    from trivet.policies.loader import load

    problems: list[Problem] = []
    warnings: list[Problem] = []
    policies: Mapping[str, TenantPolicy] = {}
    try:
        if directory is not None:
            policies = load(directory).tenants
            warnings.extend(nameable_users(policies))
    except ConfigError as error:
        problems.extend(error.problems)
    try:
        if config is not None:
            upstreams = server_config(config, {}).upstreams
            problems.extend(unknown_upstreams(policies, upstreams))
            warnings.extend(keyless_upstreams(policies, upstreams))
    except ConfigError as error:
        problems.extend(error.problems)
    tenants = sorted(policies)
    if as_json:
        told = {
            "ok": not problems,
            "tenants": tenants,
            "problems": [asdict(problem) for problem in problems],
            "warnings": [asdict(warning) for warning in warnings],
        }
        click.echo(json.dumps(told))
        return FINDING if problems else OK
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if problems:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{len(problems)} problem{'s' if len(problems) != 1 else ''} found.")
    elif directory is None:
        click.echo("The server config is fine.")
    else:
        click.echo(f"{len(tenants)} tenant{'s' if len(tenants) != 1 else ''}: {', '.join(tenants)}")
    return FINDING if problems else OK


def explain_running(request_file: Path, admin: str, key: str | None, *, as_json: bool) -> int:
    """Ask a running proxy: its policies, its upstreams, and the key under which it stores."""
    from trivet.middleware.admin_client import AdminClient
    from trivet.middleware.explain import explanation_of
    from trivet.middleware.explain_text import render
    from trivet.middleware.sample import read_sample

    sample = read_sample(_read(request_file))
    target = f"{sample.path}?{sample.query}" if sample.query else sample.path
    told = AdminClient(admin, key).explain(target, sample.headers, sample.body)
    click.echo(json.dumps(told) if as_json else render(explanation_of(told)), nl=as_json)
    return FINDING if told["tenant"] is None else OK


def explain(request_file: Path, *, policies: Path | None, tenant: str | None, as_json: bool) -> int:
    """Print what would happen to a request. Returns the exit code: 1 where it is turned away."""
    from trivet.middleware.explain_text import render
    from trivet.middleware.explaining import Explainer
    from trivet.middleware.sample import read_sample
    from trivet.policies.source import PolicySource

    secret = b"trivet-explain"
    tenants = PolicySource(policies, secret).tenants
    sample = read_sample(_read(request_file))
    who = tenants.identify(sample.raw_headers)
    if tenant is not None:
        who = tenants.chosen(tenant)
        if who is None:
            raise ConfigError(Problem("command line", 0, 0, "--tenant", _unknown(tenant, policies)))
    told = Explainer(None, secret).of_sample(sample, who)
    click.echo(json.dumps(told.as_json()) if as_json else render(told), nl=as_json)
    if not as_json:
        click.echo("Worked out without a proxy: the key is another there (see --admin).", err=True)
    return FINDING if told.tenant is None else OK


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            Problem(str(file), 0, 0, "", f"cannot be read: {error.strerror}")
        ) from None


def _unknown(tenant: str, policies: Path | None) -> str:
    if policies is None:
        return "goes with --policies DIR"
    return f"no policy file in {policies} declares the tenant {tenant!r}"
