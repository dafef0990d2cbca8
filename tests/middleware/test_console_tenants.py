from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from console_parts import Telling, asked, done

from trivet.errors import RequestError
from trivet.middleware.admin.policy_check import checked
from trivet.middleware.console.views.policy_diff import Change, difference, flat
from trivet.middleware.console.views.tenants import (
    defaults_of,
    lines,
    settings_of,
    show,
    show_one,
    stores_of,
    take_policy,
)
from trivet.middleware.observe.metrics import PrometheusObserver
from trivet.middleware.observe.tenant_sums import tenant_sums
from trivet.policies.model import TenantPolicy
from trivet.policies.source import PolicySource

HASH = "ab" * 32


def policy(**given: Any) -> dict[str, Any]:
    made = {"tenant": "acme", "credentials": [{"sha256": HASH}], **given}
    return TenantPolicy.model_validate(made).model_dump(mode="json")


def test_settings_are_told_by_their_path() -> None:
    rules = {"rules": [{"match": {"model": "gpt-*"}, "ttl": 60}]}
    told = flat(policy(exact=rules))
    assert told["exact.rules[0].match.model"] == "gpt-*"
    assert told["exact.rules[0].ttl"] == 60
    assert "exact.rules[0].sampled" not in told
    assert told["semantic.mode"] == "off"


def test_only_what_differs_is_a_change() -> None:
    found = difference(policy(), policy(exact={"ttl": "1h"}, versions={"docs": "2"}))
    assert found[:1] == [Change("exact.ttl", 86400.0, 3600.0)]
    assert Change("versions.docs", None, "2") in found
    assert difference(policy(), policy()) == []


def test_what_differs_from_the_defaults_is_marked() -> None:
    told = settings_of(policy(exact={"ttl": 60}))
    changed = {one["name"]: one["value"] for one in told if not one["default"]}
    assert changed == {"credentials": ["key abab..."], "exact.ttl": 60.0}


def test_no_page_shows_a_credential() -> None:
    assert HASH not in str(settings_of(policy()))


def test_a_tenant_is_listed_with_a_policy_or_with_requests() -> None:
    metrics = PrometheusObserver()
    metrics(done(tenant="stranger"))
    told = lines({"acme": policy()}, [tenant_sums(metrics), tenant_sums(metrics)])
    assert [(one["tenant"], one["declared"]) for one in told] == [
        ("acme", True),
        ("stranger", False),
    ]
    assert [one["total"]["requests"] for one in told] == [0, 2]


def test_stores_that_processes_share_are_told_once() -> None:
    sqlite = {"name": "sqlite", "entries": 3, "bytes": 10, "evictions": 0}
    memory = {"name": "memory", "entries": 3, "bytes": 10, "evictions": 0}
    found = stores_of([sqlite, sqlite, memory, memory])
    assert [(one["name"], one["entries"], one["bytes"]) for one in found] == [
        ("sqlite", 3, 10),
        ("memory", 6, 20),
    ]


def test_a_store_that_answers_is_told_in_place_of_one_that_does_not() -> None:
    failed = {"name": "redis", "error": "timeout"}
    sound = {"name": "redis", "entries": None, "bytes": 10, "evictions": 0}
    assert stores_of([failed, sound]) == [sound]
    assert stores_of([sound, failed]) == [sound]


async def test_all_tenants_are_told_with_the_policies_version() -> None:
    control = Telling({"tenants": [{}]})
    control.shown = {"version": "v7", "tenants": {"acme": policy()}}
    told = await show(asked(control))
    assert (told["version"], [one["tenant"] for one in told["tenants"]]) == ("v7", ["acme"])


async def test_one_tenant_is_told_with_its_use_of_all_processes() -> None:
    store = {"name": "memory", "entries": 2, "bytes": 5, "evictions": 0}
    usage = {"store": store, "in_flight": 1}
    control = Telling({"usage": [usage, usage], "tenants": [{}]})
    control.shown = {"version": "v1", "tenants": {"acme": policy(limits={"entries": 9})}}
    told = await show_one(asked(control, tenant="acme"))
    assert (told["in_flight"], told["stores"][0]["entries"]) == (2, 4)
    assert told["limits"]["entries"] == 9


async def test_a_tenant_that_nobody_knows_is_404() -> None:
    with pytest.raises(RequestError, match="names the tenant 'x'"):
        await show_one(asked(Telling(), tenant="x"))


async def test_a_pasted_policy_is_told_with_its_difference(tmp_path: Path) -> None:
    text = f"tenant: acme\ncredentials: [{{sha256: {HASH}}}]\n"
    (tmp_path / "acme.yaml").write_text(text)
    source = PolicySource(tmp_path, b"secret")
    control = Telling()
    control.checked = await checked(source, text + "exact: {ttl: 1h}\n")
    told = await take_policy(asked(control, {"text": "as above"}))
    assert (told["ok"], told["replaces"], told["tenant"]) == (True, True, "acme")
    assert told["changes"] == [{"name": "exact.ttl", "before": 86400.0, "after": 3600.0}]


async def test_a_new_tenant_is_compared_with_the_defaults(tmp_path: Path) -> None:
    control = Telling()
    control.checked = await checked(PolicySource(None, b"s"), "tenant: new\nexact: {ttl: 60}\n")
    told = await take_policy(asked(control, {"text": "as above"}))
    assert told["replaces"] is False
    assert [one["name"] for one in told["changes"]] == ["exact.ttl"]


async def test_problems_say_whether_they_are_the_texts_own(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text("tenant: acme\n")
    source = PolicySource(tmp_path, b"secret")
    (tmp_path / "other.yaml").write_text("tenant: [")
    told = await checked(source, "tenant: acme\nexact: {tll: 1}\n")
    assert {(Path(one["file"]).name, one["pasted"]) for one in told["problems"]} == {
        ("acme.yaml", True),
        ("other.yaml", False),
    }
    assert told["tenant"] == "acme"


async def test_a_tenant_that_nobody_can_reach_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text("tenant: acme\n")
    told = await checked(PolicySource(tmp_path, b"secret"), "tenant: acme\n")
    assert told["problems"] == []
    assert "nobody can reach" in told["warnings"][0]["message"]


@pytest.mark.parametrize("body", [{}, {"text": 1}, {"text": "  "}, {"text": "x" * (1 << 21)}])
async def test_what_is_no_text_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        await take_policy(asked(Telling(), body))


def test_defaults_name_their_tenant_alone() -> None:
    assert defaults_of("acme")["credentials"] == []
