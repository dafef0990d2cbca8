"""Requests that came before, byte for byte: what was decided about them is not worked out again.

All that lies between a request's bytes and its question to the cache is a pure function of the
caller, the target, the headers and the body. They are compared in full, the body by its SHA-256,
so what is remembered stands for no other request; the caller is among them, so no tenant learns
from another's timing.
A new policy set makes new callers, so nothing outlives the policies it was decided under.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from trivet.canonical import sha256
from trivet.exact.entry import Entry
from trivet.exact.tier import Question
from trivet.messages import Request
from trivet.middleware.arrival.headers import RawHeaders, deciding, names_transport
from trivet.middleware.call import Call
from trivet.middleware.dialects.base import Dialect
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.policies.eligibility import Eligible
from trivet.policies.header_names import weight
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import Identified

_MOST_BYTES = 8 << 20
_MOST = 4096
_HEAVIEST_HEAD = 8 << 10
"""Bytes of memory of target and headers beyond which a request is not remembered."""
_OBJECTS = 1 << 10
"""Bytes of memory of what is remembered, beside the head and the canonical bytes."""
_LONGEST = 64 << 10
"""Larger bodies are not remembered: decoding them costs little beside receiving them."""
_MOST_SOUGHT = 64

Arrival = tuple[Identified, str, RawHeaders, bytes]
"""Caller, path and query as they came, headers, body."""
_Asked = tuple[int, str, tuple[tuple[bytes, bytes], ...], bytes]
"""Caller, path and query, deciding headers, SHA-256 of the body."""


class Known(NamedTuple):
    """What was decided about a request. Only what a hit needs: a miss decides afresh."""

    caller: Identified
    dialect: Dialect
    request: Request
    policy: TenantPolicy
    question: Question
    upstream: str
    labels: frozenset[str]
    """What the entry has to be purged by: one without them is not this request's yet."""
    route: str = ""
    """What the request's route is called in figures."""
    size: int = 0
    """Bytes of memory that it counts for."""


class Recall:
    """The latest requests with a stored answer: at most `_MOST`, and about `_MOST_BYTES`."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Asked, Known] = OrderedDict()
        self._bytes = 0
        self._sought: dict[int, tuple[Arrival, _Asked]] = {}
        """Requests that were not known, by identity of the body: most are to be kept next."""

    def find(
        self, caller: Identified, target: str, headers: RawHeaders, body: bytes
    ) -> Known | None:
        """What was decided when this very request came before."""
        if len(body) > _LONGEST:
            return None
        asked = (id(caller), target, deciding(headers), sha256(body))
        known = self._known.get(asked)
        if known is None or known.caller is not caller:
            if len(self._sought) >= _MOST_SOUGHT:
                self._sought.clear()
            self._sought[id(body)] = (caller, target, headers, body), asked
            return None
        self._known.move_to_end(asked)
        return known

    def forget(self, caller: Identified, target: str, headers: RawHeaders, body: bytes) -> None:
        """The request's answer is gone: it is to be decided afresh."""
        asked = (id(caller), target, deciding(headers), sha256(body))
        old = self._known.pop(asked, None)
        if old is not None:
            self._bytes -= old.size

    def keep(self, arrival: Arrival, call: Call, entry: Entry) -> None:
        """Remember a request that has a stored answer."""
        caller, _, _, body = arrival
        question, plan = call.question, call.plan
        if question is None or not isinstance(plan, Eligible) or not plan.lookup or plan.pool:
            return
        if (entry.tenant, entry.canonical) != (question.tenant, question.canonical):
            return
        settings = call.settings
        named = (*settings.key_headers, settings.user_from.removeprefix("header:"))
        if len(body) > _LONGEST or names_transport(named):
            return
        asked = self._asked(arrival)
        head = len(asked[1]) + weight(asked[2])
        if asked in self._known or head > _HEAVIEST_HEAD:
            return
        size = _OBJECTS + head + len(entry.canonical)
        self._known[asked] = Known(
            # Kept, so that its identity cannot become another's meanwhile.
            caller,
            call.dialect,
            call.request._replace(forward=b"", canonical=b""),
            call.policy,
            # The entry's own bytes: while it is in memory they cost nothing more.
            question
            if question.canonical is entry.canonical
            else question._replace(canonical=entry.canonical),
            call.upstream.name,
            call.labels,
            route_of_call(call),
            size,
        )
        self._bytes += size
        while self._bytes > _MOST_BYTES or len(self._known) > _MOST:
            self._bytes -= self._known.popitem(last=False)[1].size

    def _asked(self, arrival: Arrival) -> _Asked:
        """What `find` looked for when this very arrival was not known, or the same made anew."""
        caller, target, headers, body = arrival
        sought = self._sought.pop(id(body), None)
        if sought is not None:
            (who, where, told, said), asked = sought
            # The body is held there, so its identity is no other's; the rest may be another's.
            if said is body and told is headers and who is caller and where == target:
                return asked
        return id(caller), target, deciding(headers), sha256(body)
