"""Names of hits that were drawn for a person to judge.

A name says all that its verdict will be counted by, sealed under the tenant's key: nothing has to
be kept about a hit while it waits, and nobody but this deployment makes a name.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from typing import NamedTuple

from trivet.semantic.records import Sealer

GOOD_S = 90 * 86400.0
"""How long a verdict on a drawn hit is taken."""
_USE = b"trivet/draw/1"
_LONGEST_FAMILY = 256


class Draw(NamedTuple):
    """A hit that was drawn at random, and where its verdict counts."""

    nonce: str
    """32 hex digits that no other draw has: by them a verdict is counted once."""
    book: str
    """Where it is counted: see `Monitor.book`."""
    calibration: str
    """What `digest_of` says of the one that the hit was served under."""
    family: str
    intent: str
    record: str
    """Id of the record whose answer was served."""
    at: float
    """When it was drawn, in Unix seconds."""


def drawn(book: str, calibration: str, at: tuple[str, str], record: str, now: float) -> Draw:
    """A new draw. `at` is family and intent; a family too long for a name counts as not known."""
    family = at[0] if len(at[0]) <= _LONGEST_FAMILY else ""
    return Draw(secrets.token_hex(16), book, calibration, family, at[1], record, now)


class DrawNames:
    """Makes names and reads them."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def name(self, tenant: str, draw: Draw) -> str:
        """The draw in letters, digits, `-` and `_`: some hundreds of them."""
        data = json.dumps(draw, separators=(",", ":")).encode()
        sealed = self._sealer.seal(tenant, _USE, data)
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def read(self, tenant: str, name: str) -> Draw | None:
        """What a name says; None where it is none of this deployment's for this tenant."""
        try:
            sealed = base64.b64decode(name + "=" * (-len(name) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        data = self._sealer.unseal(tenant, _USE, sealed)
        return None if data is None else Draw(*json.loads(data))
