"""Rows of running counts as bytes, sealed, under names that tell nobody what they are of.

A name is four pseudonyms: of the tenant, and of calibration, family and intent within it. A row is
bound to its name, so that no row passes for another's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from trivet.semantic.monitor_store import REASONS, Row, Update, applied, replaced
from trivet.semantic.records import Sealer
from trivet.semantic.tally import Cell, Counts

_ROW = b"trivet/monitor/1"
_COUNTS = len(Counts._fields)


class RowCodec:
    """Names, seals and unseals what a store keeps."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def name(self, cell: Cell) -> str:
        """The cell as a store's key."""
        tenant = cell.tenant
        parts = [self._sealer.pseudonym(tenant)]
        for kind, value in zip("cfi", cell[1:], strict=True):
            parts.append(self._sealer.pseudonym(tenant, f"monitor-{kind}:{value}"))
        return ":".join(part.hex() for part in parts)

    def seal(self, cell: Cell, row: Row) -> bytes:
        """The cell with its row. Under the server's own key: a reader learns the tenant by it."""
        data = json.dumps([*cell, *row.counts, row.closed], separators=(",", ":")).encode()
        return self._sealer.seal("", self._context(self.name(cell)), data)

    def unseal(self, name: str, sealed: object) -> tuple[Cell, Row] | str:
        """What was stored under this name, or why it is nothing: `format` or `mac`."""
        if not isinstance(sealed, bytes):
            return "format"
        data = self._sealer.unseal("", self._context(name), sealed)
        return "mac" if data is None else _read(data)

    def sealed_after(self, cell: Cell, sealed: object | None, update: Update) -> bytes:
        """A row after an update; `sealed` is what is stored of it, None for nothing."""
        if sealed is None:
            return self.seal(cell, applied(None, update))
        found = self.unseal(self.name(cell), sealed)
        row = replaced(cell, update) if isinstance(found, str) else applied(found[1], update)
        return self.seal(cell, row)

    def unseal_all(
        self, stored: Iterable[tuple[str, object]]
    ) -> tuple[dict[Cell, Row], dict[str, str]]:
        """The rows by cell; and why others are none, by name."""
        rows: dict[Cell, Row] = {}
        bad: dict[str, str] = {}
        for name, sealed in stored:
            found = self.unseal(name, sealed)
            if isinstance(found, str):
                bad[name] = found
            else:
                rows[found[0]] = found[1]
        return rows, bad

    def _context(self, name: str) -> bytes:
        return b"%b:%b" % (_ROW, name.encode("utf-8", "surrogatepass"))


def _read(data: bytes) -> tuple[Cell, Row] | str:
    try:
        values = json.loads(data)
    except ValueError:
        return "format"
    if type(values) is not list or len(values) != len(Cell._fields) + _COUNTS + 1:
        return "format"
    texts, counts, closed = values[:4], values[4:-1], values[-1]
    if any(type(text) is not str for text in texts) or closed not in REASONS:
        return "format"
    if any(type(count) is not int or count < 0 for count in counts):
        return "format"
    return Cell(*texts), Row(Counts(*counts), closed)
