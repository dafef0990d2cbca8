"""The prefix tier's shell: what is sent in place of a call, and what never is."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest

from trivet.errors import UpstreamError
from trivet.messages import Api
from trivet.middleware.prefix_tier.asks import Asked
from trivet.middleware.prefix_tier.slots import SlotBook
from trivet.middleware.prefix_tier.tier import Prefixes, Sent
from trivet.middleware.running.config import UpstreamConfig
from trivet.middleware.upstream import UpstreamClient
from trivet.policies.model import TenantPolicy
from trivet.policies.prefix_model import PrefixPolicy
from trivet.policies.tenants import UNDECLARED, PolicySet
from trivet.prefix.backends.base import Ask, Prepared
from trivet.prefix.pool.hashing import tenant_salt
from trivet.prefix.prompts.outline import NativeApi
from trivet.telemetry import Event, PrefixFailed

SECRET = b"s" * 32
HEADERS = [(b"authorization", b"Bearer k"), (b"x-session-id", b"theirs")]


class _Client:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    async def send(self, *sent: Any) -> Any:
        self.sent.append(sent)
        return None


class Rig:
    """The tier in front of one upstream."""

    def __init__(self, path: Path, *tenants: str, **upstream: Any) -> None:
        given = {"name": "up", "base_url": "http://127.0.0.1:1", **upstream}
        self.upstream = UpstreamConfig.model_validate(given)
        self.client = _Client()
        self.events: list[Event] = []
        known = {name: TenantPolicy(tenant=name) for name in tenants}
        nothing: MappingProxyType[str, TenantPolicy] = MappingProxyType({})
        policies = PolicySet("1", True, known, nothing, nothing) if tenants else UNDECLARED
        self.tier = Prefixes(
            cast("UpstreamClient", self.client),
            [self.upstream],
            SECRET,
            lambda: policies,
            SlotBook(path / "slots", SECRET),
            self.events.append,
        )

    async def prepared(
        self,
        body: dict[str, Any] | bytes,
        tenant: str = "a",
        *,
        api: Api | NativeApi = Api.CHAT,
        policy: PrefixPolicy | None = None,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> Sent:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = Asked(
            *(api, "m", tenant, policy or PrefixPolicy(), self.upstream, "/v1/x"),
            *(HEADERS if headers is None else headers, raw),
        )
        return await self.tier.prepare(asked)

    async def body(self, *given: Any, **more: Any) -> Any:
        return json.loads((await self.prepared(*given, **more)).body)


async def test_an_upstream_of_which_nothing_is_known_gets_the_same_bytes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "a", "b")
    raw = b'{"model": "m", "cache_salt": "x"}'
    await rig.tier.send(rig.upstream, "POST", "/v1/x", HEADERS, raw)
    ((_, method, target, headers, body),) = rig.client.sent
    assert (method, target) == ("POST", "/v1/x")
    assert body is raw
    assert headers is HEADERS


async def test_a_tenants_salt_is_stable_and_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "a", "b", cache="vllm")
    first, second, other = [
        (await rig.body({"model": "m"}, tenant))["cache_salt"] for tenant in ("a", "a", "b")
    ]
    assert first == second == tenant_salt(SECRET, "a")
    assert other == tenant_salt(SECRET, "b") != first


async def test_a_new_epoch_is_a_new_salt(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "a", "b", cache="vllm")
    flushed = await rig.body({"model": "m"}, policy=PrefixPolicy(epoch=1))
    assert flushed["cache_salt"] == tenant_salt(SECRET, "a", 1)


async def test_salts_are_sent_where_asking_for_caching_is_off(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "a", "b", cache="vllm")
    sent = await rig.body({"model": "m"}, policy=PrefixPolicy(enabled=False))
    assert sent["cache_salt"] == tenant_salt(SECRET, "a")


async def test_session_headers_of_the_caller_stay_behind(tmp_path: Path) -> None:
    sent = await Rig(tmp_path, "a", cache="vllm").prepared({"model": "m"})
    assert sent.headers == [(b"authorization", b"Bearer k")]


async def test_requests_of_the_proxys_own_have_a_salt_of_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "a", "b", cache="vllm")
    await rig.tier.send(rig.upstream, "POST", "/v1/x", [], b'{"model":"m"}')
    body = json.loads(rig.client.sent[0][4])
    assert body["cache_salt"] == tenant_salt(SECRET, "(proxy)")


class _Broken:
    kind = "vllm"
    takes_marks = False

    def __init__(self, isolates: str) -> None:
        self.isolates = isolates

    def prepare(self, ask: Ask) -> Prepared:
        raise ZeroDivisionError


class TestABackendThatRaises:
    def _rig(self, path: Path, isolates: str) -> Rig:
        rig = Rig(path, "a", "b", cache="vllm")
        rig.tier._backends["up"] = cast("Any", _Broken(isolates))
        return rig

    async def test_costs_caching_and_is_counted(self, tmp_path: Path) -> None:
        rig = self._rig(tmp_path, "account")
        raw = b'{"model": "m"}'
        sent = [await rig.prepared(raw) for _ in range(2)]
        assert all(one.body is raw for one in sent)
        assert rig.events == [
            PrefixFailed("up", "vllm", "ZeroDivisionError: ", first) for first in (True, False)
        ]

    async def test_never_sends_unsalted(self, tmp_path: Path) -> None:
        """A salt that nobody else has is caching off."""
        rig = self._rig(tmp_path, "salt")
        salts = {(await rig.body({"cache_salt": "theirs"}))["cache_salt"] for _ in range(3)}
        assert len(salts) == 3
        assert "theirs" not in salts
        assert (await rig.prepared({"model": "m"})).headers == [(b"authorization", b"Bearer k")]

    async def test_turns_caching_off_on_a_slot(self, tmp_path: Path) -> None:
        sent = await self._rig(tmp_path, "slot").body({"id_slot": 7})
        assert sent == {"id_slot": 0, "cache_prompt": False}


class TestLlamaCpp:
    async def test_each_tenant_has_its_slot(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", "b", cache="llamacpp", slots=2)
        assert await rig.body({}, "a") == {"id_slot": 0}
        assert await rig.body({}, "b") == {"id_slot": 1}

    async def test_a_server_that_leaks_gets_requests_with_caching_off(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", "b", cache="llamacpp", slots=2)
        rig.tier.unsafe = {"up": "start it with --cache-ram 0"}
        assert await rig.body({}, "a") == {"id_slot": 1, "cache_prompt": False}

    async def test_messages_are_refused_where_tenants_could_meet(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", "b", cache="llamacpp", slots=2)
        with pytest.raises(UpstreamError) as caught:
            await rig.prepared({}, api=Api.MESSAGES)
        assert (caught.value.reason, caught.value.status) == ("prefix-not-apart", 400)

    async def test_messages_pass_for_a_tenant_that_is_alone(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="llamacpp", slots=2)
        assert await rig.body({"model": "m"}, api=Api.MESSAGES) == {"model": "m"}

    async def test_without_policies_they_never_pass_for_another_caller_may_come(
        self, tmp_path: Path
    ) -> None:
        rig = Rig(tmp_path, cache="llamacpp", slots=2)
        with pytest.raises(UpstreamError):
            await rig.prepared({}, "key-1", api=Api.MESSAGES)


async def test_a_server_that_ignores_salts_is_refused_for_several_tenants(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "a", "b", cache="vllm")
    rig.tier.unsafe = {"up": "update it"}
    with pytest.raises(UpstreamError, match="update it"):
        await rig.prepared({"model": "m"})
    alone = Rig(tmp_path, "a", cache="vllm")
    alone.tier.unsafe = {"up": "update it"}
    assert (await alone.body({"model": "m"}))["cache_salt"]


def _long() -> dict[str, Any]:
    return {
        "model": "claude-opus-5",
        "system": "Rules. " * 800,
        "messages": [{"role": "user", "content": "hi"}],
    }


class TestMarks:
    async def test_the_stable_part_is_marked(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="anthropic")
        sent = await rig.prepared(_long(), api=Api.MESSAGES)
        assert sent.prepared is not None
        assert sent.prepared.marks == 1
        assert json.loads(sent.body)["system"][0]["cache_control"] == {"type": "ephemeral"}

    async def test_a_prefix_below_the_minimum_goes_as_it_came(self, tmp_path: Path) -> None:
        """Case L9: it would not be cached, and nobody would say so."""
        rig = Rig(tmp_path, "a", cache="anthropic")
        raw = json.dumps({**_long(), "system": "short"}).encode()
        assert (await rig.prepared(raw, api=Api.MESSAGES)).body is raw

    async def test_the_policy_can_switch_it_off(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="anthropic")
        raw = json.dumps(_long()).encode()
        for policy in (PrefixPolicy(enabled=False), PrefixPolicy(mark="never")):
            assert (await rig.prepared(raw, api=Api.MESSAGES, policy=policy)).body is raw

    async def test_a_large_body_is_prepared_all_the_same(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="anthropic")
        body = {**_long(), "system": "Rules. " * 200_000}
        sent = await rig.prepared(body, api=Api.MESSAGES)
        assert sent.prepared is not None
        assert sent.prepared.marks == 1


@pytest.mark.parametrize(
    ("tenants", "shared", "goes"),
    [(("a", "b"), True, False), (("a", "b"), False, True), (("a",), True, True)],
)
async def test_a_content_at_gemini_is_read_by_nobody_elses_tenant(
    tmp_path: Path, tenants: tuple[str, ...], shared: bool, goes: bool
) -> None:
    rig = Rig(tmp_path, *tenants, cache="gemini", credential_env="KEY" if shared else None)
    content = {"google": {"cached_content": "cachedContents/1"}}
    body = {"model": "gemini-2.5-pro", "messages": [], "extra_body": content}
    if goes:
        assert json.loads((await rig.prepared(body)).body) == body
        return
    with pytest.raises(UpstreamError, match="several tenants") as refused:
        await rig.prepared(body)
    assert (refused.value.reason, refused.value.status) == ("prefix-not-apart", 400)


class TestNative:
    CONVERSE = b'{"system": [{"text": "%s"}], "messages": []}' % (b"Rules. " * 2000)

    async def _sent(self, rig: Rig, body: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
        asked = Asked(
            *(NativeApi.CONVERSE, "anthropic.claude-opus-5", "a", PrefixPolicy(), rig.upstream),
            *("/model/m/converse", headers, body),
        )
        return (await rig.tier.prepare_native(asked)).body

    async def test_converse_gets_cache_points(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="bedrock")
        body = json.loads(await self._sent(rig, self.CONVERSE, HEADERS))
        assert body["system"][1] == {"cachePoint": {"type": "default"}}

    async def test_a_claude_behind_invoke_gets_breakpoints(self, tmp_path: Path) -> None:
        """The path names the model, so the body says no more than the prompt."""
        rig = Rig(tmp_path, "a", cache="bedrock")
        given = {
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 9,
            "system": "Rules. " * 2000,
            "messages": [{"role": "user", "content": "x"}],
        }
        for headers, marks in ((HEADERS, 1), ([(b"authorization", b"AWS4-HMAC-SHA256 C=x")], 0)):
            asked = Asked(
                *(Api.MESSAGES, "anthropic.claude-opus-5", "a", PrefixPolicy(), rig.upstream),
                *("/model/m/invoke", headers, json.dumps(given).encode()),
            )
            sent = await rig.tier.prepare_native(asked)
            assert sent.body.count(b"cache_control") == marks
            assert (sent.body is asked.body) is (marks == 0)

    async def test_a_signed_request_goes_as_it_came(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="bedrock")
        signed = [(b"authorization", b"AWS4-HMAC-SHA256 Credential=x")]
        assert await self._sent(rig, self.CONVERSE, signed) is self.CONVERSE

    async def test_what_is_no_json_goes_as_it_came(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, "a", cache="bedrock")
        raw = b'{"a": 1, "a": 2}'
        assert await self._sent(rig, raw, HEADERS) is raw
