from __future__ import annotations

import json
from typing import Any

import pytest

from trivet.errors import RequestError
from trivet.middleware.arrival.routing import Routing
from trivet.middleware.explain.considered import Case
from trivet.middleware.explain.explaining import Explainer
from trivet.middleware.explain.trial import asking_of, trial
from trivet.middleware.running.config import UpstreamConfig
from trivet.policies.intents import Intent
from trivet.policies.model import TenantPolicy
from trivet.policies.tenants import PolicySet, TenantDirectory
from trivet.semantic.decide import Decision
from trivet.semantic.tier import Asking, Looked
from trivet.semantic.types import Intention, Neighbour, Partition, Record

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Where is it?"}]
BODY = {"model": "m", "temperature": 0, "messages": MESSAGES}
EXPLAINER = Explainer(Routing([UpstreamConfig(name="llm", base_url="http://llm")]), b"secret")


def policy(**given: Any) -> TenantPolicy:
    return TenantPolicy.model_validate({"tenant": "acme", "semantic": {"mode": "shadow"}, **given})


def directory(of: TenantPolicy) -> TenantDirectory:
    return TenantDirectory(PolicySet("v", True, {of.tenant: of}, {}, {}), b"secret")


def case(of: TenantPolicy, body: dict[str, Any] = BODY, tenant: str | None = "acme") -> Case | None:
    raw = json.dumps(body).encode()
    found = EXPLAINER.considered(directory(of), CHAT, {}, raw, tenant=tenant)
    return None if found is None else found[0]


def asking(of: TenantPolicy, body: dict[str, Any] = BODY) -> Asking | str:
    found = case(of, body)
    assert found is not None
    return asking_of(found, of)


def test_the_compared_text_is_the_last_user_message() -> None:
    found = asking(policy())
    assert isinstance(found, Asking)
    assert (found.text, found.tenant, found.may_write) == ("Where is it?", "acme", False)


def test_another_system_prompt_is_another_partition() -> None:
    system = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    one, other = asking(policy()), asking(policy(), {**BODY, "messages": system})
    assert isinstance(one, Asking)
    assert isinstance(other, Asking)
    assert one.rest != other.rest


@pytest.mark.parametrize(
    ("given", "body", "reason"),
    [
        ({"semantic": {"mode": "off"}}, BODY, "off"),
        ({}, {**BODY, "temperature": 1}, "no-lookup"),
        ({}, {**BODY, "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ],
)
def test_what_is_not_looked_up_says_why(
    given: dict[str, Any], body: dict[str, Any], reason: str
) -> None:
    assert asking(policy(**given), body) == reason


def test_a_request_of_nobody_is_no_case() -> None:
    assert case(policy(), tenant=None) is None


def test_an_operator_explains_as_a_declared_tenant_and_no_other() -> None:
    raw = json.dumps(BODY).encode()
    told = EXPLAINER.explain(directory(policy()), CHAT, {}, raw, tenant="acme")
    assert (told["tenant"], told["identified_by"]) == ("acme", "chosen")
    with pytest.raises(RequestError, match="declares the tenant 'x'"):
        EXPLAINER.explain(directory(policy()), CHAT, {}, raw, tenant="x")


def looked(kind: Any = "hit") -> Looked:
    found = asking(policy())
    assert isinstance(found, Asking)
    intent = Intent("informational")
    record = Record(
        "ab", "acme", Partition(b"p"), b"k", "Where was it?", b"", intent, created=1.0, expires=9.0
    )
    decision = Decision(kind, "", Neighbour(record, 0.9), 0.8, 0.7)
    return Looked(decision, found, intention=Intention(intent, True))


def test_a_lookup_is_told_with_gate_neighbour_and_decision() -> None:
    told = trial(looked(), text=True)
    assert told["gate"] == {
        "intent": "informational",
        "admitted": True,
        "reason": "",
        "score": 1.0,
    }
    assert told["neighbour"]["text"] == "Where was it?"
    assert (told["kind"], told["score"], told["threshold"]) == ("hit", 0.8, 0.7)


def test_a_stored_text_is_shown_only_where_the_policy_lets_it() -> None:
    told = trial(looked(), text=False)
    assert told["neighbour"]["text"] is None
    assert "Where was it?" not in str(told)


def test_a_text_that_was_not_read_has_neither_gate_nor_neighbour() -> None:
    found = asking(policy())
    assert isinstance(found, Asking)
    told = trial(Looked(Decision("miss", "loading"), found), text=True)
    assert (told["gate"], told["neighbour"], told["reason"]) == (None, None, "loading")
