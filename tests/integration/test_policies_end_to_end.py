"""Tenants and their policy files against the running proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from proxy import Proxy, Reply, serving

from trivet.middleware.mock_upstream.app import MockUpstream
from trivet.middleware.mock_upstream.commands import in_baggage
from trivet.policies.keygen import key_hash

ACME = "sk-acme"
GLOBEX = "sk-globex"


def policy(tenant: str, key: str, more: str = "") -> str:
    return f"tenant: {tenant}\ncredentials:\n  - sha256: {key_hash(key)}\n{more}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "policies"
    made.mkdir()
    return made


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Proxy]]:
    from contextlib import ExitStack

    with ExitStack() as stack:

        def begin(*arguments: str, **files: str) -> Proxy:
            for name, text in files.items():
                (folder / f"{name}.yaml").write_text(text)
            proxy = stack.enter_context(serving(None, "--policies", str(folder), *arguments))
            proxy.key = ACME
            return proxy

        yield begin


def await_reply(ask: Callable[[], Reply], until: Callable[[Reply], bool]) -> Reply:
    deadline = time.monotonic() + 15
    while True:
        reply = ask()
        if until(reply) or time.monotonic() > deadline:
            return reply
        time.sleep(0.1)


def await_calls(mock: MockUpstream, count: int) -> None:
    deadline = time.monotonic() + 15
    while mock.calls.total < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_unknown_key_is_401_in_the_callers_dialect(start: Callable[..., Proxy]) -> None:
    proxy = start(acme=policy("acme", ACME))
    reply = proxy.chat("hello", key="sk-nobody")
    assert reply.status == 401
    assert reply.json["error"]["code"] == "invalid_api_key"
    assert proxy.mock is not None
    assert proxy.mock.calls.total == 0


def test_a_revoked_key_is_401_although_the_answer_is_cached(
    start: Callable[..., Proxy], folder: Path
) -> None:
    proxy = start(acme=policy("acme", ACME), globex=policy("globex", GLOBEX))
    proxy.chat("cached")
    assert proxy.chat("cached").exact["hit"] is True
    (folder / "acme.yaml").unlink()
    assert proxy.get("/v1/models", authorization=f"Bearer {GLOBEX}").status == 200
    reply = await_reply(lambda: proxy.chat("cached"), lambda reply: reply.status == 401)
    assert reply.status == 401


def test_tenants_share_nothing(start: Callable[..., Proxy]) -> None:
    proxy = start(acme=policy("acme", ACME), globex=policy("globex", GLOBEX))
    proxy.chat("ours")
    assert proxy.chat("ours", key=GLOBEX).exact == {"fwd": "miss", "stored": True}


def test_a_policy_version_opens_a_new_key_space(start: Callable[..., Proxy], folder: Path) -> None:
    proxy = start(acme=policy("acme", ACME, "versions:\n  prompt: '1'\n"))
    proxy.chat("versioned")
    assert proxy.chat("versioned").exact["hit"] is True
    (folder / "acme.yaml").write_text(policy("acme", ACME, "versions:\n  prompt: '2'\n"))
    reply = await_reply(lambda: proxy.chat("versioned"), lambda reply: "hit" not in reply.exact)
    assert reply.exact == {"fwd": "miss", "stored": True}


def test_a_bad_file_keeps_the_old_policies_and_says_so(
    start: Callable[..., Proxy], folder: Path
) -> None:
    proxy = start(acme=policy("acme", ACME))
    (folder / "acme.yaml").write_text("tenant: acme\nexact:\n  tttl: 5\n")
    ready = await_reply(
        lambda: proxy.get("/readyz", admin=True),
        lambda reply: any(part["state"] == "stale" for part in reply.json["components"]),
    )
    detail = next(part for part in ready.json["components"] if part["name"] == "policies")
    assert detail["state"] == "stale"
    assert "tttl" in detail["detail"]
    assert proxy.chat("still served").status == 200


def test_models_and_upstreams_that_are_not_allowed_are_refused_by_name(
    start: Callable[..., Proxy],
) -> None:
    proxy = start(acme=policy("acme", ACME, "models: ['gpt-*']\n"))
    reply = proxy.chat("not mine")
    assert reply.status == 403
    assert reply.json["error"]["param"] == "model"
    assert proxy.chat("mine", model="gpt-9").status == 200


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions/", "/v1//chat/completions", "/v1/chat%2Fcompletions", "/v1/audio"],
)
def test_a_tenant_with_limited_models_cannot_go_round_the_check(
    start: Callable[..., Proxy], path: str
) -> None:
    proxy = start(acme=policy("acme", ACME, "models: ['gpt-*']\n"))
    reply = proxy.post(path, {"model": "mock", "messages": [{"role": "user", "content": "x"}]})
    assert reply.status == 403
    assert proxy.mock is not None
    assert proxy.mock.calls.total == 0


def test_a_pool_collects_its_answers_and_then_draws_among_them(
    start: Callable[..., Proxy],
) -> None:
    proxy = start(acme=policy("acme", ACME, "exact:\n  sampled: pool\n  k: 3\n"))
    assert proxy.mock is not None
    collected = [proxy.chat("five titles", temperature=1) for _ in range(3)]
    assert proxy.mock.calls.total == 3
    texts = {reply.json["choices"][0]["message"]["content"] for reply in collected}
    assert len(texts) == 3
    drawn = [proxy.chat("five titles", temperature=1) for _ in range(30)]
    assert proxy.mock.calls.total == 3
    assert all(reply.exact["hit"] is True for reply in drawn)
    assert {reply.json["choices"][0]["message"]["content"] for reply in drawn} == texts


def test_a_user_scope_keeps_users_of_one_tenant_apart(start: Callable[..., Proxy]) -> None:
    more = "exact:\n  user_scope: true\n  user_from: header:X-User\n"
    proxy = start(acme=policy("acme", ACME, more))
    assert proxy.chat("my balance").exact == {"fwd": "bypass", "detail": "user-missing"}
    assert proxy.chat("my balance", x_user="a").exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("my balance", x_user="b").exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("my balance", x_user="a").exact["hit"] is True


def test_rules_give_routes_and_models_a_ttl_of_their_own(start: Callable[..., Proxy]) -> None:
    rules = """\
exact:
  ttl: 1h
  rules:
    - match: {route: /prices}
      ttl: 1s
    - match: {model: volatile-*}
      enabled: false
"""
    proxy = start(acme=policy("acme", ACME, rules))
    proxy.chat("price", trivet_route="/prices")
    hit = proxy.chat("price", trivet_route="/prices")
    assert int(hit.exact["ttl"]) <= 1
    time.sleep(1.1)
    expired = proxy.chat("price", trivet_route="/prices")
    assert expired.exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("x", model="volatile-1").exact == {"fwd": "bypass", "detail": "policy"}


def test_a_stale_answer_stands_in_for_an_upstream_error_where_the_policy_says(
    start: Callable[..., Proxy],
) -> None:
    proxy = start(acme=policy("acme", ACME, "exact:\n  ttl: 1s\n  stale_if_error: 1h\n"))
    proxy.chat("stale")
    time.sleep(1.1)
    reply = proxy.chat("stale", baggage=in_baggage("status=503"))
    assert reply.status == 200
    assert reply.exact["hit"] is True
    assert reply.exact["detail"] == "stale-if-error"
    assert int(reply.exact["ttl"]) <= 0
    assert proxy.chat("stale", baggage=in_baggage("status=400")).status == 400


def test_a_header_that_the_policy_ignores_makes_no_difference(start: Callable[..., Proxy]) -> None:
    proxy = start(acme=policy("acme", ACME, "exact:\n  ignore_headers: [X-Nonce]\n"))
    proxy.chat("nonce", x_nonce="1")
    for nonce in ("1", "2"):
        assert proxy.chat("nonce", x_nonce=nonce).exact["hit"] is True
    assert proxy.chat("nonce", x_nonce="1", x_flag="on").exact == {"fwd": "miss", "stored": True}
    assert proxy.mock is not None
    assert (b"x-nonce", b"1") in proxy.mock.calls.last[-1]["headers"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_answer_that_was_purged_while_it_was_made_is_not_said_to_be_stored(
    start: Callable[..., Proxy], tmp_path: Path, store: str, workers: int
) -> None:
    url = "memory" if store == "memory" else f"sqlite:{tmp_path}/cache.db"
    proxy = start("--store", url, "--workers", str(workers), acme=policy("acme", ACME))
    assert proxy.mock is not None
    with ThreadPoolExecutor(1) as pool:
        slow = in_baggage("delay=4000")
        asked = pool.submit(proxy.chat, "purged", trivet_tag="doc-1", baggage=slow)
        await_calls(proxy.mock, 1)
        assert purge(proxy, "--tenant", "acme", "--tag", "doc-1") == 0
        assert asked.result().exact == {"fwd": "miss", "detail": "purged"}
    assert proxy.chat("purged").exact == {"fwd": "miss", "stored": True}


def test_tool_calls_are_never_stored_where_the_policy_says(start: Callable[..., Proxy]) -> None:
    proxy = start(acme=policy("acme", ACME, "exact:\n  tool_calls: never\n"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    first = proxy.chat("please call a tool", tools=tools)
    assert first.exact == {"fwd": "miss", "detail": "tool-calls"}


def test_requests_in_flight_are_limited_by_tenant(start: Callable[..., Proxy]) -> None:

    proxy = start(acme=policy("acme", ACME, "limits:\n  requests_in_flight: 2\n"))
    with ThreadPoolExecutor(6) as pool:
        asked = [
            pool.submit(proxy.chat, f"busy {at}", baggage=in_baggage("delay=800"))
            for at in range(6)
        ]
        replies = [one.result() for one in asked]
    statuses = sorted(reply.status for reply in replies)
    assert statuses == [200, 200, 429, 429, 429, 429]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.headers["retry-after"] == "1"
    assert proxy.chat("calm again").status == 200


def test_usage_on_a_hit_is_zeroed_where_the_policy_says(start: Callable[..., Proxy]) -> None:
    proxy = start(acme=policy("acme", ACME, "usage_on_hit: zero\n"))
    assert proxy.chat("usage").json["usage"]["total_tokens"] > 0
    assert proxy.chat("usage").json["usage"]["total_tokens"] == 0


def purge(proxy: Proxy, *arguments: str) -> int:
    command = [sys.executable, "-m", "trivet.cli", "purge", "--json", "--admin", proxy.admin]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count: int = json.loads(done.stdout)["purged"]
    return count


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_purge_reaches_every_process_and_outlives_them(
    start: Callable[..., Proxy], tmp_path: Path, workers: str
) -> None:
    store = f"sqlite:{tmp_path / 'cache.sqlite'}"
    proxy = start("--store", store, "--workers", workers, acme=policy("acme", ACME))
    await_reply(
        lambda: proxy.get("/readyz", admin=True),
        lambda reply: workers == "1" or "2 of 2" in reply.json["components"][0]["detail"],
    )
    for text in ("one", "two", "three"):
        proxy.chat(text, trivet_tag=f"doc-{text}", trivet_version=f"docs={text}")
    for _ in range(4):
        proxy.chat("one", trivet_version="docs=one")
    assert purge(proxy, "--tenant", "acme", "--tag", "doc-one") == 1
    first = proxy.chat("one", trivet_version="docs=one", cache_control="only-if-cached")
    assert first.status == 504
    assert proxy.chat("two", trivet_version="docs=two").exact["hit"] is True
    assert purge(proxy, "--tenant", "acme", "--version", "docs=two") == 1
    gone = proxy.chat("two", trivet_version="docs=two", cache_control="only-if-cached")
    assert gone.status == 504
    assert proxy.chat("three", trivet_version="docs=three").exact["hit"] is True
    assert purge(proxy, "--tenant", "acme") >= 1
    rest = proxy.chat("three", trivet_version="docs=three", cache_control="only-if-cached")
    assert rest.status == 504


def test_a_purge_by_the_key_that_explain_prints_forgets_one_answer(
    start: Callable[..., Proxy],
) -> None:
    proxy = start(acme=policy("acme", ACME))
    proxy.chat("by key")
    proxy.chat("another")
    body = {"model": "mock", "temperature": 0, "messages": [{"role": "user", "content": "by key"}]}
    asked = {
        "path": "/v1/chat/completions",
        "headers": {"authorization": f"Bearer {ACME}"},
        "body": body,
    }
    from proxy import request

    told = request(
        "POST",
        proxy.admin + "/trivet/explain",
        json.dumps(asked).encode(),
        {"content-type": "application/json"},
        30,
    )
    assert told.status == 200, told.body
    key = told.json["keys"][0]
    assert purge(proxy, "--tenant", "acme", "--key", key) == 1
    assert proxy.chat("by key").exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("another").exact["hit"] is True


def test_a_declared_gateway_names_the_tenant_and_nobody_else_can(tmp_path: Path) -> None:
    config = """\
upstreams:
  - {name: mock, base_url: "%s"}
gateway:
  header: X-Tenant
  secret_header: X-Gateway-Secret
  secret_env: GATEWAY_SECRET
"""
    with serving() as plain:
        command = plain.process.args
        assert isinstance(command, list)
        upstream = command[command.index("--upstream") + 1]
        with serving(config=config % upstream, env={"GATEWAY_SECRET": "s" * 40}) as proxy:
            trusted = {"x_tenant": "acme", "x_gateway_secret": "s" * 40}
            proxy.chat("gateway", **trusted)
            assert proxy.chat("gateway", key="another", **trusted).status == 200
            forged = proxy.chat("gateway", x_tenant="acme", x_gateway_secret="wrong")
            assert forged.exact["fwd"] == "miss"
            assert plain.mock is not None
            names = {name for name, _ in plain.mock.calls.last[-1]["headers"]}
            assert b"x-tenant" not in names
            assert b"x-gateway-secret" not in names


def test_tenants_that_share_the_proxys_upstream_key_cannot_read_each_others_files() -> None:
    config = 'upstreams:\n  - {name: mock, base_url: "%s", credential_env: UPSTREAM_KEY}\n'
    with serving() as plain:
        command = plain.process.args
        assert isinstance(command, list)
        upstream = command[command.index("--upstream") + 1]
        with serving(config=config % upstream, env={"UPSTREAM_KEY": "sk-shared"}) as proxy:
            assert proxy.get("/v1/models", authorization="Bearer a").status == 200
            for path in ("/v1/files/file-1", "/v1/responses/resp_1", "/v1/chat/completions"):
                reply = proxy.get(path, authorization="Bearer a")
                assert reply.status == 403
                assert reply.json["error"]["code"] == "passthrough_closed"
            assert proxy.chat("still cached").exact == {"fwd": "miss", "stored": True}
            assert plain.mock is not None
            sent = dict(plain.mock.calls.last[-1]["headers"])
            assert sent[b"authorization"] == b"Bearer sk-shared"


def test_what_a_caller_got_under_a_tag_is_found_by_a_purge_of_it(
    start: Callable[..., Proxy],
) -> None:
    proxy = start(acme=policy("acme", ACME))
    for _ in range(2):
        proxy.chat("tagged later")
        first = proxy.chat("tagged later", trivet_tag="doc-17")
        assert first.exact == {"fwd": "miss", "stored": True, "detail": "tags"}
        for _ in range(3):
            assert proxy.chat("tagged later", trivet_tag="doc-17").exact["hit"] is True
            assert proxy.chat("tagged later").exact["hit"] is True
        assert purge(proxy, "--tenant", "acme", "--tag", "doc-17") == 1
        assert proxy.chat("tagged later").exact == {"fwd": "miss", "stored": True}


def test_a_route_that_the_caller_names_never_opens_one_users_answers_to_another(
    start: Callable[..., Proxy],
) -> None:
    rules = """\
exact:
  user_scope: true
  user_from: header:X-User
  rules:
    - match: {route: /faq}
      user_scope: false
      ttl: 7d
"""
    proxy = start(acme=policy("acme", ACME, rules))
    asked = {"trivet_route": "/faq"}
    assert proxy.chat("mine", x_user="u1", **asked).exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("mine", x_user="u2", **asked).exact == {"fwd": "miss", "stored": True}
    assert proxy.chat("mine", x_user="u1", **asked).exact["hit"] is True


def test_a_purge_of_an_unknown_tenant_is_an_error(start: Callable[..., Proxy]) -> None:
    proxy = start(acme=policy("acme", ACME))
    command = [sys.executable, "-m", "trivet.cli", "purge", "--admin", proxy.admin]
    done = subprocess.run(
        [*command, "--tenant", "acm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "acm" in done.stderr
