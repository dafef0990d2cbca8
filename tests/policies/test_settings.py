"""Rules resolve field by field, and the first that matches wins."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from trivet.messages import Api
from trivet.policies import settings
from trivet.policies.model import ExactSettings, TenantPolicy
from trivet.policies.settings import (
    exact_settings,
    matching_rules,
    may_use_model,
    may_use_upstream,
    settings_for,
    wildcard,
)

PATH = "/v1/chat/completions"


def policy(*rules: dict[str, Any], **fields: Any) -> TenantPolicy:
    return TenantPolicy.model_validate(
        {"tenant": "acme", "exact": {"ttl": 100, "rules": rules}, **fields}
    )


def resolved(made: TenantPolicy, model: str = "gpt-5", route: str = PATH) -> ExactSettings:
    return exact_settings(made, Api.CHAT, model, route)


def test_without_rules_the_policy_itself_is_the_settings() -> None:
    made = policy()
    assert resolved(made) is made.exact


def test_the_first_matching_rule_wins() -> None:
    made = policy({"match": {"model": "gpt-*"}, "ttl": 1}, {"match": {}, "ttl": 2})
    assert resolved(made).ttl == 1
    assert resolved(made, "claude").ttl == 2


def test_a_later_rule_gives_the_fields_that_the_first_leaves_open() -> None:
    made = policy({"match": {}, "ttl": 1}, {"match": {}, "ttl": 2, "sampled": "cache"})
    found = resolved(made)
    assert (found.ttl, found.sampled, found.k) == (1, "cache", 4)


def test_a_rule_can_set_a_field_to_false_and_zero() -> None:
    found = resolved(policy({"match": {}, "enabled": False, "ttl": 0}))
    assert (found.enabled, found.ttl) == (False, 0)


def test_every_given_field_of_a_match_has_to_match() -> None:
    made = policy({"match": {"model": "gpt-*", "route": "docs", "api": "chat"}, "ttl": 1})
    assert resolved(made, route="docs").ttl == 1
    assert resolved(made, route=PATH).ttl == 100
    assert resolved(made, "claude", "docs").ttl == 100
    assert exact_settings(made, Api.MESSAGES, "gpt-5", "docs").ttl == 100


def test_every_setting_can_be_set_by_a_rule() -> None:
    rule = {
        "enabled": False,
        "ttl": 1.0,
        "sampled": "pool",
        "k": 3,
        "tool_calls": "never",
        "refusals": True,
        "user_scope": True,
        "user_from": "header:X-User",
        "stale_if_error": 5.0,
        "remote_images": True,
        "key_headers": ("X-A",),
        "ignore_headers": ("x-b",),
        "max_entry": 10,
    }
    assert rule.keys() == ExactSettings.model_fields.keys()
    assert resolved(policy({"match": {}, **rule})) == ExactSettings.model_validate(rule)


def test_settings_are_remembered() -> None:
    made = policy({"match": {}, "ttl": 1})
    assert resolved(made) is resolved(made)


def test_long_names_are_not_remembered() -> None:
    made = policy({"match": {}, "ttl": 1})
    assert resolved(made, "m" * 600) == resolved(made)
    assert len(settings._memos[id(made.exact)]) == 1


def test_what_is_remembered_is_bounded() -> None:
    made = policy({"match": {}, "ttl": 1})
    for number in range(1100):
        resolved(made, f"model-{number}")
    assert len(settings._memos[id(made.exact)]) <= 512


def test_what_is_remembered_goes_with_its_policy() -> None:
    made = policy({"match": {}, "ttl": 1})
    resolved(made)
    identity = id(made.exact)
    assert identity in settings._memos
    del made
    gc.collect()
    assert identity not in settings._memos


def test_matching_rules_are_told_by_position() -> None:
    made = policy({"match": {"model": "a"}}, {"match": {}}, {"match": {"model": "gpt-?"}})
    assert matching_rules(made, Api.CHAT, "gpt-5", PATH) == (1, 2)


def test_only_star_and_question_mark_are_wildcards() -> None:
    assert wildcard("ft:gpt[1]", "ft:*[1]")
    assert not wildcard("ft:gpt1", "ft:*[1]")
    assert wildcard("abc", "a?c")
    assert not wildcard("ABC", "abc")
    assert wildcard("a\nb", "a*")


def test_many_wildcards_do_not_blow_up() -> None:
    assert not wildcard("a" * 5000, "*a" * 40 + "b")


def test_a_tenant_may_name_the_models_that_its_policy_lists() -> None:
    assert may_use_model(policy(), "anything")
    made = policy(models=["gpt-*"])
    assert may_use_model(made, "gpt-5")
    assert not may_use_model(made, "claude")
    assert not may_use_model(policy(models=[]), "gpt-5")


def test_a_tenant_may_use_the_upstreams_that_its_policy_lists() -> None:
    assert may_use_upstream(policy(), "main")
    assert may_use_upstream(policy(upstreams=["main"]), "main")
    assert not may_use_upstream(policy(upstreams=["main"]), "other")


class TestNamedRoutes:
    def settings(self, named: str) -> ExactSettings:
        policy = TenantPolicy.model_validate(
            {
                "tenant": "acme",
                "exact": {
                    "user_scope": True,
                    "user_from": "header:X-User",
                    "rules": [
                        {"match": {"route": "/open"}, "user_scope": False, "ttl": 9},
                        {"match": {"route": "/body"}, "user_from": "body"},
                        {"match": {"route": "/short"}, "ttl": 5},
                    ],
                },
            }
        )
        return settings_for(policy, Api.CHAT, "m", ("/v1/chat/completions", named))

    def test_without_one_the_path_decides(self) -> None:
        assert self.settings("").ttl == 86400

    def test_a_named_route_picks_its_rule(self) -> None:
        assert self.settings("/short").ttl == 5

    @pytest.mark.parametrize("named", ["/open", "/body"])
    def test_a_named_route_never_ends_or_moves_the_paths_user_scope(self, named: str) -> None:
        found = self.settings(named)
        assert (found.user_scope, found.user_from) == (True, "header:X-User")

    def test_the_rest_of_such_a_rule_holds(self) -> None:
        assert self.settings("/open").ttl == 9
