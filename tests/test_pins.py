"""The versions that are shipped: one set, hash by hash, and whole."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
EXTRAS = ("redis", "encryption", "otel", "fleet")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text()
    return {canonicalize_name(name): version for name, version in PIN.findall(text)}


def needed(name: str, extras: tuple[str, ...], found: set[str]) -> set[str]:
    """Names of all that a package needs here, from what is installed."""
    for line in requires(name) or ():
        one = Requirement(line)
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if one.marker is None or any(one.marker.evaluate(each) for each in wanted):
            key = canonicalize_name(one.name)
            if key not in found:
                found.add(key)
                needed(one.name, tuple(one.extras), found)
    return found


def test_the_hashed_pins_are_those_that_the_tests_ran_with() -> None:
    tested = pins("constraints.txt")
    shipped = pins("requirements/proxy.txt")
    assert {name: tested.get(name) for name in shipped} == shipped


def test_every_pin_has_its_hashes() -> None:
    text = (ROOT / "requirements" / "proxy.txt").read_text()
    for block in re.split(r"\n(?=\S)", text):
        if PIN.match(block):
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_what_the_proxy_needs_is_pinned_and_nothing_else() -> None:
    all_needed = needed("trivet", EXTRAS, set())
    assert all_needed - pins("requirements/proxy.txt").keys() == set()
    assert pins("requirements/proxy.txt").keys() - all_needed == set()
