"""Facts judged: one finding or more for each thing that was looked at. Pure."""

from __future__ import annotations

import ipaddress

from trivet.middleware.deployment_doctor.checks_policies import check_policies
from trivet.middleware.deployment_doctor.checks_store import check_secret, check_store
from trivet.middleware.deployment_doctor.checks_upstreams import check_upstreams
from trivet.middleware.deployment_doctor.deployment import Deployment
from trivet.middleware.deployment_doctor.facts import AdminFacts, Facts, MachineFacts
from trivet.middleware.deployment_doctor.findings import Finding, fault, ok, warning
from trivet.middleware.running.apart import apart

_SHORTEST_KEY = 16
_WELL = frozenset({"up", "isolated"})
_PASSING = frozenset({"loading", "building"})


def check_all(facts: Facts, deployment: Deployment) -> list[Finding]:
    """Everything, in the order in which it is mended."""
    return [
        *check_machine(facts.machine),
        *check_secret(facts.secret, facts.store),
        *check_store(facts.store, facts.secret),
        *check_workers(deployment),
        *check_upstreams(facts.upstreams),
        *check_policies(facts.policies, facts.today),
        *check_exposure(deployment),
        *check_proxy(facts.admin, named=deployment.admin_named),
    ]


def check_machine(machine: MachineFacts) -> list[Finding]:
    """Versions, and libraries that the config needs."""
    told = [ok("versions", f"Trivet {machine.trivet} on Python {machine.python}.")]
    for setting, extra in machine.missing:
        said = f"{setting} needs a library that is not installed here."
        told.append(fault("versions", said, f"pip install 'trivet[{extra}]'"))
    return told


def check_workers(deployment: Deployment) -> list[Finding]:
    """Workers that do not share what they store."""
    remedy = "leave --store away, or give --store sqlite:PATH or redis://HOST:PORT/DB"
    return [
        warning("workers", f"Each of the {deployment.config.workers} workers has a memory of its "
                "own: an answer is found only by the one that stored it.", remedy)
        for _ in apart(deployment.config)
    ]  # fmt: skip


def check_exposure(deployment: Deployment) -> list[Finding]:
    """Who can reach the admin port, and what opens it."""
    config, key = deployment.config, deployment.admin_key
    guarded = bool(key or config.admin_key_sha256)
    if key and len(key) < _SHORTEST_KEY:
        remedy = "make a long one: `openssl rand -hex 32`"
        return [fault("admin port", f"The admin key has {len(key)} characters.", remedy)]
    if _is_loopback(config.admin_host):
        return [ok("admin port", f"It listens on {config.admin_host}, for this machine alone.")]
    where = f"It listens on {config.admin_host}, where other machines may reach it"
    if guarded:
        told = f"{where}; /trivet/ needs the admin key, /metrics and /readyz need none."
        return [ok("admin port", told)]
    told = (
        f"{where}, and TRIVET_ADMIN_KEY is not set: /metrics and /readyz name tenants and models."
    )
    remedy = "set TRIVET_ADMIN_KEY, and keep the port away from callers (firewall, network policy)"
    return [warning("admin port", told, remedy)]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_proxy(admin: AdminFacts, *, named: bool) -> list[Finding]:
    """The running proxy. `named`: its admin port was given, so it has to be there."""
    if admin.trouble and not named:
        told = f"None answers at {admin.url}, so nothing is known of one that runs."
        return [ok("proxy", told)]
    if admin.trouble:
        return [fault("proxy", admin.trouble, "start it, or give the --admin URL that it printed")]
    found = []
    if admin.open_to == "anybody":
        said = f"{admin.url}/trivet/ answers without a key, from another address than loopback."
        remedy = (
            "set TRIVET_ADMIN_KEY at the proxy: whoever reaches that address can purge, and read "
            "policies"
        )
        found.append(fault("admin port", said, remedy))
    if admin.refused_key:
        remedy = "give the proxy's own TRIVET_ADMIN_KEY"
        found.append(warning("admin port", admin.refused_key, remedy))
    if not admin.ready:
        remedy = "see the parts below, and its log; load balancers send nothing to it meanwhile"
        found.append(fault("proxy", f"The one at {admin.url} says that it is not ready.", remedy))
    troubles = [_component(*one) for one in admin.components if one[1] not in _WELL]
    if admin.ready and not troubles:
        found.append(ok("proxy", f"The one at {admin.url} is ready, with all its parts."))
    return found + troubles


def _component(name: str, state: str, detail: str) -> Finding:
    end = "" if detail.endswith((".", "?", "!")) else "."
    said = f"{name} is {state}" + (f": {detail}{end}" if detail else ".")
    if state in _PASSING:
        return warning("proxy", said, "wait, and ask again")
    return warning("proxy", said, "its log says since when; what is wrong is among the findings")
