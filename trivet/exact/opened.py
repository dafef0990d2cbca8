"""Sealed entries that were opened before: the same bytes are not opened again.

For a store without memory in front. It is still asked each time, so a purge holds at once; what it
returns is compared, byte for byte, with what was opened then.
"""

from __future__ import annotations

from collections import OrderedDict

from trivet.exact.codec import Rejected, decode
from trivet.exact.entry import Entry
from trivet.exact.seal import Seal
from trivet.messages import ExactKey

_SHARE = 8
"""No entry takes more than this part of the bound."""


class Opened:
    """The entries read last, up to about `most_bytes`; 0 keeps none. For one thread."""

    def __init__(self, seal: Seal, most_bytes: int = 0) -> None:
        self._seal = seal
        self._most = most_bytes
        self._bytes = 0
        self._found: OrderedDict[tuple[str, ExactKey], tuple[bytes, Entry]] = OrderedDict()
        """Values: the sealed bytes, and what they hold."""

    def find(self, raw: bytes, tenant: str, key: ExactKey) -> Entry | None:
        """The entry that these bytes were opened as; None says nothing about them."""
        known = self._found.get((tenant, key))
        if known is None or known[0] != raw:
            return None
        self._found.move_to_end((tenant, key))
        return known[1]

    def decode(self, raw: bytes, tenant: str, key: ExactKey) -> Entry | Rejected:
        """See `codec.decode`."""
        found = self.find(raw, tenant, key)
        if found is not None:
            return found
        made = decode(raw, tenant, key, self._seal)
        if isinstance(made, Entry):
            self.keep(raw, made)
        return made

    def keep(self, raw: bytes, entry: Entry) -> None:
        """Remember what these bytes were opened as."""
        weight = _weight(raw, entry)
        if weight * _SHARE > self._most:
            return
        name = (entry.tenant, entry.key)
        old = self._found.pop(name, None)
        if old is not None:
            self._bytes -= _weight(*old)
        self._found[name] = (raw, entry)
        self._bytes += weight
        while self._bytes > self._most:
            _, oldest = self._found.popitem(last=False)
            self._bytes -= _weight(*oldest)


def _weight(raw: bytes, entry: Entry) -> int:
    """Bytes of an entry, sealed and opened, and of a rendering of its answer."""
    return len(raw) + entry.size + len(entry.body)
