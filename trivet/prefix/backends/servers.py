"""What the servers of one's own have in common: the salt is the proxy's, never the caller's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trivet.prefix.backends.base import SERVER_FIELDS, SERVER_HEADERS, Ask, Prepared
from trivet.prefix.backends.draft import Draft

_OVERRULED: Final = "whose prefixes a request reads is not the caller's to say"


def salted(ask: Ask, also: Iterable[str] = ()) -> Prepared:
    """The request with the tenant's `cache_salt`, over whatever the caller sent."""
    draft = Draft(ask)
    draft.drop([name for name in (*SERVER_FIELDS, *also) if name != "cache_salt"], _OVERRULED)
    draft.put("cache_salt", ask.salt, "cache_salt set for the tenant")
    return draft.done(dropped=SERVER_HEADERS)


def unsteered(ask: Ask) -> Draft:
    """A draft without any field that steers prefix reuse."""
    draft = Draft(ask)
    draft.drop(SERVER_FIELDS, _OVERRULED)
    return draft
