"""What is decided about a request before its body counts: by its caller, target, head and model.

Most callers send the same head over and over, so this is worked out once for each. A new policy set
makes new callers, so nothing outlives the policies it was decided under.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trivet.exact.key import Pairs
from trivet.middleware.arrival.headers import RawHeaders, deciding, names_transport
from trivet.middleware.arrival.routing import Target
from trivet.policies.directives import Directives
from trivet.policies.header_names import weight
from trivet.policies.model import ExactSettings
from trivet.policies.tenants import Identified

_MOST: Final = 512
_HEAVIEST: Final = 8192
"""Bytes of memory of a place beyond which nothing is remembered: callers choose it."""

_Place = tuple[int, str, str, tuple[tuple[bytes, bytes], ...]]
"""Caller, path and query as they came, model, deciding headers."""


class Terms(NamedTuple):
    """The part of a `Call` that its body has no part in, but for the model and its own wishes."""

    caller: Identified
    """Kept, so that its identity cannot become another's meanwhile."""
    target: Target
    settings: ExactSettings
    directives: Directives
    key_headers: Pairs
    credential: bytes
    labels: frozenset[str]
    base_url: str
    """The URL that is asked, its path included and its query not."""
    versions: Pairs
    """The policy's, sorted."""


def place_of(caller: Identified, arrived: str, model: str, raw: RawHeaders) -> _Place:
    """Under what terms are remembered. Transport headers decide nothing of them."""
    return id(caller), arrived, model, deciding(raw)


class TermsMemo:
    """The terms of the latest heads, at most `_MOST`."""

    def __init__(self) -> None:
        self._known: dict[_Place, Terms] = {}

    def find(self, place: _Place, caller: Identified) -> Terms | None:
        """What was decided for this place."""
        terms = self._known.get(place)
        return terms if terms is not None and terms.caller is caller else None

    def keep(self, place: _Place, terms: Terms) -> None:
        """Remember, unless a policy goes by a header that places are not told apart by."""
        _, arrived, model, headers = place
        if len(arrived) + len(model) + weight(headers) > _HEAVIEST:
            return
        if names_transport(terms.settings.key_headers):
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[place] = terms
