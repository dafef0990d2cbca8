"""Requests and bytes in flight, by tenant."""

from __future__ import annotations

import pytest

from trivet.errors import RequestError
from trivet.middleware.arrival.admission import Admission
from trivet.policies.model import Limits, TenantPolicy


def tenant(name: str = "acme", **limits: int) -> TenantPolicy:
    return TenantPolicy(tenant=name, limits=Limits(**limits))


def test_a_request_beyond_the_limit_is_a_429_and_is_not_counted() -> None:
    admission, policy = Admission(), tenant(requests_in_flight=2)
    admission.enter(policy)
    admission.enter(policy)
    with pytest.raises(RequestError) as caught:
        admission.enter(policy)
    assert (caught.value.status, caught.value.code) == (429, "requests_in_flight")
    assert admission.requests("acme") == 2
    admission.leave(policy, 0)
    admission.enter(policy)
    assert admission.requests("acme") == 2


def test_bytes_beyond_the_limit_are_a_429_and_are_not_counted() -> None:
    admission, policy = Admission(), tenant(bytes_in_flight=100)
    admission.enter(policy)
    admission.load(policy, 60)
    admission.enter(policy)
    with pytest.raises(RequestError) as caught:
        admission.load(policy, 41)
    assert (caught.value.status, caught.value.code) == (429, "bytes_in_flight")
    admission.load(policy, 40)


def test_tenants_do_not_use_up_each_others_room() -> None:
    admission = Admission()
    admission.enter(tenant("acme", requests_in_flight=1))
    admission.enter(tenant("globex", requests_in_flight=1))
    assert admission.requests("globex") == 1


def test_a_tenant_at_rest_costs_no_memory() -> None:
    admission, policy = Admission(), tenant()
    admission.enter(policy)
    admission.load(policy, 10)
    admission.leave(policy, 10)
    assert admission.requests("acme") == 0
    assert admission._by_tenant == {}


def test_a_policy_that_was_reloaded_meanwhile_counts_the_same_tenant_out() -> None:
    admission = Admission()
    admission.enter(tenant(requests_in_flight=5))
    admission.leave(tenant(requests_in_flight=1), 0)
    assert admission.requests("acme") == 0


def test_the_limit_is_told_in_its_number() -> None:
    admission, policy = Admission(), tenant(requests_in_flight=1)
    admission.enter(policy)
    with pytest.raises(RequestError, match="already has 1 request in flight, its limit"):
        admission.enter(policy)
