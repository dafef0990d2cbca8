"""Between a request's arrival and the pipeline: who asks, what, whether, and which upstream.

Authentication comes before any cache, and before the body is read.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from trivet.errors import RequestError
from trivet.exact.entry import Entry
from trivet.exact.key import KeyParts, credential_scope, exact_key, key_headers
from trivet.messages import Api, Request, Scope
from trivet.middleware.arrival.admission import Admission
from trivet.middleware.arrival.headers import RequestHeaders, cache_wishes, to_upstream
from trivet.middleware.arrival.idempotency import bound_to_request, is_idempotent
from trivet.middleware.arrival.intake import Intake
from trivet.middleware.arrival.media import refuse_coded, says_json, sent_as_json
from trivet.middleware.arrival.passing import Passing
from trivet.middleware.arrival.passthrough import refuse_dots
from trivet.middleware.arrival.quick import Identify
from trivet.middleware.arrival.recall import Recall
from trivet.middleware.arrival.routing import Routing, Target
from trivet.middleware.arrival.terms import Terms, TermsMemo, place_of
from trivet.middleware.arrival.visit import Visit
from trivet.middleware.call import Call, Reply, Whole
from trivet.middleware.dialects.embeddings import Batch, decode
from trivet.middleware.dialects.registry import route_of
from trivet.middleware.embeddings import Embeddings
from trivet.middleware.pipeline import CachePipeline
from trivet.middleware.prefix_tier.metering import Metering
from trivet.middleware.prefix_tier.prompt_record import route_of_call
from trivet.middleware.prefix_tier.signed_tenant import tenant_header
from trivet.middleware.prefix_tier.tier import Prefixes
from trivet.middleware.semantic_tier.semantics import FEEDBACK_PATH, Semantics
from trivet.middleware.traffic.log import recorded
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.directives import entry_labels, read_directives, read_purpose
from trivet.policies.eligibility import Eligible, eligibility, end_user, named_user
from trivet.policies.model import TenantPolicy
from trivet.policies.settings import settings_for
from trivet.policies.tenants import Identified
from trivet.prefix.prompts.repairs import active, repair

_LONGEST_ROUTE = 64


class Tiers(NamedTuple):
    """Who answers what was received."""

    pipeline: CachePipeline
    embeddings: Embeddings
    client: UpstreamClient
    recall: Recall
    semantics: Semantics | None = None
    prefixes: Prefixes | None = None
    metering: Metering | None = None


class Reception:
    """Turns a visit into a call, and the call into a reply."""

    def __init__(
        self,
        identify: Identify,
        routing: Routing,
        intake: Intake,
        tiers: Tiers,
        secret: bytes,
        hidden_headers: frozenset[bytes] = frozenset(),
    ) -> None:
        self._identify = identify
        self._routing = routing
        self._intake = intake
        self._pipeline, self._embeddings = tiers.pipeline, tiers.embeddings
        self._recall, self._semantics = tiers.recall, tiers.semantics
        self._secret = secret
        self._hidden = hidden_headers
        self._admission = Admission()
        self._passing = Passing(
            routing,
            intake,
            self._admission,
            (tiers.client, tiers.prefixes, tiers.metering),
            hidden_headers,
        )
        self._memo = TermsMemo()

    def in_flight(self, tenant: str) -> int:
        """How many requests of a tenant are under way."""
        return self._admission.requests(tenant)

    async def serve(self, visit: Visit) -> Reply:
        """The reply. Raises `RequestError` for what the caller has to mend."""
        headers = RequestHeaders(visit.raw_headers)
        caller = visit.caller or self._identify(visit.raw_headers, visit.peer)
        if caller is None:
            self._enter_route(visit)
            raise RequestError(
                401, "The API key is missing or not known here.", code="invalid_api_key"
            )
        visit.caller, policy = caller, caller.policy
        visit.traceparent = headers.get("traceparent")
        visit.tenant = caller.tenant
        refuse_dots(visit.path)
        if visit.path.startswith("/trivet/"):
            if visit.path == FEEDBACK_PATH and self._semantics is not None:
                return await self._judged(visit, policy)
            raise RequestError(
                404, "This is the proxy's port; the admin API is on its own.", code="not_found"
            )
        named = self._enter_route(visit)
        route = visit.route
        if route is None or (visit.method != "POST" and visit.method in route.methods):
            return await self._passing.serve(visit, headers, named)
        if visit.method not in route.methods:
            raise RequestError(
                405, f"{visit.path} takes POST, not {visit.method}.", code="method_not_allowed"
            )
        return await self._cached_path(visit, policy, headers, named)

    async def _judged(self, visit: Visit, policy: TenantPolicy) -> Reply:
        assert self._semantics is not None
        feedback = self._semantics.feedback
        if feedback is None:
            raise RequestError(404, "The semantic tier is not open here.", code="not_found")
        return await feedback.serve(visit, policy)

    def _enter_route(self, visit: Visit) -> Target | None:
        """The upstream that the path names, and the API that it speaks."""
        named = self._routing.by_prefix(visit.path)
        if named is not None:
            self._enter_prefix(visit, named)
        if visit.route is not None and visit.method == "POST":
            visit.api = visit.route.api
        return named

    def _enter_prefix(self, visit: Visit, named: Target) -> None:
        cut = len(named.config.prefix.rstrip("/"))
        visit.path, visit.target = visit.path[cut:], visit.target[cut:]
        visit.route = route_of(visit.path)
        if visit.route is not None:
            visit.dialect, visit.family = visit.route.voice, visit.route.family

    async def _cached_path(
        self, visit: Visit, policy: TenantPolicy, headers: RequestHeaders, named: Target | None
    ) -> Reply:
        self._intake.check_length(headers.get_raw(b"content-length"))
        refuse_coded(headers)
        self._enter(visit, policy)
        raw = await self._intake.whole(visit.receive, visit.direct)
        self._admission.load(policy, len(raw))
        visit.size = len(raw)
        visit.watch.arm()
        if not visit.new and (reply := await self._again(visit, raw)) is not None:
            return reply
        return await self._answer(visit, policy, headers, raw, named)

    async def _again(self, visit: Visit, raw: bytes) -> Reply | None:
        """The reply to a request that came before, if its answer is still there."""
        assert visit.caller is not None
        known = self._recall.find(visit.caller, visit.arrived, visit.raw_headers, raw)
        if known is None:
            return None
        found = await self._pipeline.again(known, visit.note)
        if isinstance(found, Whole):
            visit.model, visit.upstream = known.request.model, known.upstream
            visit.stream, visit.called = known.request.stream, known.route
            return found
        visit.asked = known.question, found
        self._recall.forget(visit.caller, visit.arrived, visit.raw_headers, raw)
        return None

    def _enter(self, visit: Visit, policy: TenantPolicy) -> None:
        self._admission.enter(policy)
        visit.on_end = lambda: self._admission.leave(policy, visit.size)

    async def _answer(
        self,
        visit: Visit,
        policy: TenantPolicy,
        headers: RequestHeaders,
        raw: bytes,
        named: Target | None,
    ) -> Reply:
        visit.purpose = read_purpose(headers)
        batch: Batch | None = None
        if visit.api is Api.EMBEDDINGS:
            batch = await self._intake.decode(decode, raw, headers, visit.tenant)
            request = batch.request
        else:
            sent = await _repaired(visit.dialect.api, raw, policy)
            request = await self._intake.decode(visit.dialect.decode, sent, headers, visit.tenant)
        visit.model, visit.stream = request.model, request.stream
        visit.body = raw
        terms = self._terms(visit, headers, request, named)
        call = self._call(visit, headers, request, terms)
        visit.called = route_of_call(call)
        if batch is None:
            visit.call = call
        if batch is not None and isinstance(call.plan, Eligible):
            return await self._embeddings.answer(call, batch, call.plan)
        return await self._pipeline.answer(call)

    def _terms(
        self, visit: Visit, headers: RequestHeaders, request: Request, named: Target | None
    ) -> Terms:
        caller = visit.caller
        assert caller is not None
        place = place_of(caller, visit.arrived, request.model, visit.raw_headers)
        known = None if request.directives else self._memo.find(place, caller)
        if known is not None:
            visit.upstream = known.target.config.name
            return known
        policy = caller.policy
        target = self._routing.choose(policy, visit.family, request.model, named)
        visit.upstream = target.config.name
        at = (visit.path, headers.get("trivet-route", ""))
        settings = settings_for(policy, request.api, request.model, at)
        directives = read_directives(headers, request.directives)
        terms = Terms(
            caller,
            target,
            settings,
            directives,
            key_headers(headers.end_to_end, settings.key_headers, settings.ignore_headers),
            self._credential(caller, target),
            entry_labels(policy, directives),
            target.config.root + visit.path,
            tuple(sorted(policy.versions.items())),
        )
        if not request.directives:
            self._memo.keep(place, terms)
        return terms

    def _call(self, visit: Visit, headers: RequestHeaders, request: Request, terms: Terms) -> Call:
        caller, target, settings, directives, keyed, credential, labels, *_ = terms
        policy = caller.policy
        user = end_user(settings, request, headers)
        plan = eligibility(request, policy, settings, directives, user)
        eligible = isinstance(plan, Eligible)
        # Of what is not recorded too: what it cost can be read of an answer that is not compressed.
        forwarded = to_upstream(headers, target.credential, self._hidden, plain=True)
        if not says_json(headers):
            forwarded = sent_as_json(forwarded)
        forwarded += tenant_header(target.config, policy.tenant)
        if request.directives:
            forwarded += cache_wishes(directives)
        parts = KeyParts(
            api=request.api,
            upstream=target.config.name,
            base_url=terms.base_url,
            credential=credential,
            headers=keyed,
            scope=Scope(policy.tenant, plan.user if isinstance(plan, Eligible) else None),
            policy_versions=terms.versions,
            request_versions=directives.versions,
            canonical=request.canonical,
            query=visit.query,
        )
        if eligible and is_idempotent(headers):
            forwarded = bound_to_request(forwarded, self._secret, exact_key(parts))
        return Call(
            dialect=visit.dialect,
            request=request,
            policy=policy,
            settings=settings,
            plan=plan,
            upstream=target.config,
            target=visit.target,
            headers=forwarded,
            parts=parts,
            labels=labels,
            remember=partial(self._remember, visit),
            waiting=visit.wait,
            note=visit.note,
            asked=visit.asked,
            principal=named_user(settings, request, headers),
            route=headers.get("trivet-route", "")[:_LONGEST_ROUTE],
            purpose=visit.purpose,
        )

    def _remember(self, visit: Visit, call: Call, entry: Entry) -> None:
        # What is recorded has to come the whole way each time, and so has what warms.
        own = visit.purpose != "request" or recorded(call.policy)
        if visit.caller is not None and not own:
            arrival = (visit.caller, visit.arrived, visit.raw_headers, visit.body)
            self._recall.keep(arrival, call, entry)

    def _credential(self, caller: Identified, target: Target) -> bytes:
        if target.credential is None:
            return caller.credential
        configured = target.credential.decode("latin-1")
        return credential_scope(self._secret, "configured", configured) + caller.others


_LARGE = 1 << 20


async def _repaired(api: Api, raw: bytes, policy: TenantPolicy) -> bytes:
    """The body as the policy repairs it: what is keyed and sent. Recall goes by what came."""
    repairs = policy.prefix.repair
    if not active(repairs):
        return raw
    if len(raw) < _LARGE:
        return repair(api, raw, repairs).body
    return (await asyncio.to_thread(repair, api, raw, repairs)).body
