"""A gateway that names a tenant whom no policy has: the log says so, now and then."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from trivet.middleware.running.strangers import Strangers
from trivet.policies.source import PolicySource
from trivet.policies.tenants import GatewayTrust


class Rig:
    def __init__(self, directory: Path) -> None:
        (directory / "acme.yaml").write_text("tenant: acme\ncredentials: [{gateway: acme}]\n")
        gateway = GatewayTrust("x-tenant", peers=("10.0.0.1",))
        source = PolicySource(directory, b"s", gateway)
        self.now = 0.0
        self.strangers = Strangers(lambda: source.tenants, lambda: self.now)

    def asked(self, named: bytes, peer: str = "10.0.0.1") -> tuple[bool, list[object]]:
        """Whether the caller was known, and whom the log names."""
        with capture_logs() as logged:
            found = self.strangers.identify(((b"x-tenant", named),), peer)
        return found is not None, [line["tenant"] for line in logged]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_tenant_that_is_known_is_no_matter(rig: Rig) -> None:
    assert rig.asked(b"acme") == (True, [])


def test_one_that_no_policy_has_is_logged_once_a_minute(rig: Rig) -> None:
    assert rig.asked(b"acmee") == (False, ["acmee"])
    rig.now = 59.0
    assert rig.asked(b"other") == (False, [])
    rig.now = 60.0
    assert rig.asked(b"other") == (False, ["other"])


def test_what_anybody_else_sends_is_not_logged(rig: Rig) -> None:
    assert rig.asked(b"acmee", peer="10.0.0.2") == (False, [])


def test_a_long_name_is_cut(rig: Rig) -> None:
    assert rig.asked(b"x" * 100) == (False, ["x" * 64])
