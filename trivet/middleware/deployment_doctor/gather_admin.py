"""Facts that the running proxy tells over its admin port."""

from __future__ import annotations

import ipaddress
from typing import Literal
from urllib.parse import urlsplit

from trivet.middleware.admin.client import AdminClient, AdminError
from trivet.middleware.deployment_doctor.facts import AdminFacts

_WAIT_S = 5.0
_ASKED = "/trivet/policies"


def gather_admin(url: str, key: str | None) -> AdminFacts:
    """How the proxy is, and whom its admin port answers. Blocks for seconds at most."""
    try:
        anybody = AdminClient(url, None, timeout_s=_WAIT_S)
        told = anybody.call("GET", "/readyz", accept=(200, 503))
        parts = told["components"]
        components = tuple((one["name"], one["state"], one["detail"]) for one in parts)
    except AdminError as error:
        return AdminFacts(url, trouble=str(error))
    except (KeyError, TypeError):
        return AdminFacts(url, trouble=f"What answers at {url} is not Trivet's admin port.")
    where: Literal["nobody", "loopback", "anybody"] = "nobody"
    if _refusal(anybody) is None:
        where = "loopback" if _is_loopback(url) else "anybody"
    refused = ""
    if key is not None:
        refused = _refusal(AdminClient(url, key, timeout_s=_WAIT_S)) or ""
    return AdminFacts(url, "", refused, where, components, told.get("ok") is True)


def _refusal(client: AdminClient) -> str | None:
    """Why it does not answer; None where it does."""
    try:
        client.call("GET", _ASKED)
    except AdminError as error:
        return str(error)
    return None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
