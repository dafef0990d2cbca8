import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
import pytest

from trivet.errors import RequestError, StoreError
from trivet.middleware.admin import port as module
from trivet.middleware.admin.control import Component, Heard, Readiness, Said, Verdict
from trivet.middleware.admin.port import AdminApp, is_admin_path
from trivet.telemetry import PolicyReload

KEY = "admin-key"
SHA256 = hashlib.sha256(KEY.encode()).hexdigest()
AUTH = {"Authorization": f"Bearer {KEY}"}
REMOTE = ("203.0.113.9", 40000)
LOCAL = ("127.0.0.1", 40000)


class FakeControl:
    """A `Control` that remembers what it was asked, and fails on command."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.readiness = Readiness(True, (Component("exact", True, "up"),))
        self.fails: Exception | None = None
        self.slow = 0.0
        self.reloaded = PolicyReload(True, "v2", 0)
        self.draining = False
        self.told: dict[str, list[Any]] = {}

    async def ready(self) -> Readiness:
        await asyncio.sleep(self.slow)
        self._act("ready")
        return self.readiness

    async def stats(self) -> dict[str, Any]:
        self._act("stats")
        return {"entries": 3}

    async def purge(
        self, tenant: str, *, tag: str | None, version: str | None, key: str | None
    ) -> int:
        self._act("purge", tenant, tag, version, key)
        return 7

    async def feedback(self, tenant: str, hit: str, verdict: Verdict) -> dict[str, Any]:
        self._act("feedback", tenant, hit, verdict)
        return {"id": hit, "verdict": verdict, "removed": verdict == "wrong"}

    async def verdicts(self, tenant: str, said: Sequence[Said]) -> list[Heard]:
        self._act("verdicts", tenant, list(said))
        return [Heard(one.id, "counted", not one.same) for one in said]

    async def reload(self) -> PolicyReload:
        self._act("reload")
        return self.reloaded

    async def explain(
        self, path: str, headers: Mapping[str, str], body: bytes, tenant: str | None = None
    ) -> dict[str, Any]:
        self._act("explain", path, dict(headers), body, *filter(None, [tenant]))
        return {"tenant": "acme"}

    async def check_policy(self, text: str) -> dict[str, Any]:
        self._act("check_policy", text)
        return {"file": "pasted.yaml", "problems": [], "warnings": []}

    async def tell(self, topic: str, asked: Any = None) -> list[Any]:
        self._act("tell", topic, asked)
        return self.told.get(topic, [])

    async def metrics(self) -> bytes:
        self._act("metrics")
        return b"# HELP x y\n"

    def policies(self) -> dict[str, Any]:
        return {
            "version": "v1",
            "tenants": {"acme": {"tenant": "acme", "credentials": [{"sha256": "ab" * 32}]}},
        }

    def _act(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails


def client(
    control: FakeControl | None = None,
    *,
    key: str | None = SHA256,
    peer: tuple[str, int] = REMOTE,
    host: str = "admin.example",
) -> httpx2.AsyncClient:
    app = AdminApp(control or FakeControl(), key)
    transport = httpx2.ASGITransport(app=app, client=peer, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}")


def error(response: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["error"]
    return found


async def test_health_needs_no_credential_and_asks_nothing() -> None:
    control = FakeControl()
    response = await client(control).get("/healthz")
    assert (response.status_code, response.text) == (200, "ok\n")
    assert control.calls == []


async def test_readiness_shows_each_component() -> None:
    response = await client().get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "ok": True,
        "components": [{"name": "exact", "ok": True, "state": "up", "detail": ""}],
    }


async def test_not_ready_is_503_with_the_reason() -> None:
    control = FakeControl()
    detail = "Upstream openai refused the connection."
    control.readiness = Readiness(False, (Component("upstream", False, "down", detail),))
    response = await client(control).get("/readyz")
    assert response.status_code == 503
    assert response.json()["components"][0]["detail"] == detail


async def test_a_readiness_check_that_fails_is_not_ready() -> None:
    control = FakeControl()
    control.fails = OSError("secret path")
    response = await client(control).get("/readyz")
    assert response.status_code == 503
    assert response.json()["components"][0]["detail"] == "The readiness check failed: OSError."


async def test_a_readiness_check_that_hangs_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_READY_S", 0.01)
    control = FakeControl()
    control.slow = 30.0
    response = await client(control).get("/readyz")
    assert response.status_code == 503
    assert "took longer than" in response.json()["components"][0]["detail"]


async def test_metrics_are_prometheus_text_without_a_credential() -> None:
    response = await client().get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert response.content == b"# HELP x y\n"


async def test_head_has_the_headers_and_no_body() -> None:
    response = await client().head("/healthz")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == "3"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_probe_answers_get_only(path: str) -> None:
    response = await client().post(path)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
    assert error(response)["message"] == f"{path} answers GET only."


async def test_an_unknown_path_is_a_sentence() -> None:
    response = await client().get("/v1/models")
    assert response.status_code == 404
    assert error(response)["message"] == "There is nothing at /v1/models."


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": KEY},
        {"Authorization": f"Bearer {SHA256}"},
        {"Authorization": "Bearer "},
        {"X-Api-Key": KEY},
    ],
)
async def test_without_the_admin_key_nothing_is_done(headers: dict[str, str]) -> None:
    control = FakeControl()
    response = await client(control).post("/trivet/purge", json={"tenant": "acme"}, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert error(response)["field"] == "Authorization"
    assert control.calls == []


async def test_two_keys_are_refused() -> None:
    headers = [("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer other")]
    response = await client().get("/trivet/stats", headers=headers)
    assert response.status_code == 401


async def test_being_on_this_machine_does_not_replace_a_configured_key() -> None:
    async with client(peer=LOCAL, host="127.0.0.1") as here:
        assert (await here.get("/trivet/stats")).status_code == 401


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1", "127.0.0.1:8081"),
        ("127.0.0.9", "localhost:8081"),
        ("::1", "[::1]:8081"),
        ("::ffff:127.0.0.1", "LOCALHOST"),
    ],
)
async def test_with_no_key_configured_this_machine_may_ask(peer: str, host: str) -> None:
    async with client(key=None, peer=(peer, 1), host=host) as here:
        assert (await here.get("/trivet/stats")).json() == {"entries": 3}


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("203.0.113.9", {}),
        ("10.0.0.1", {}),
        ("::ffff:10.0.0.1", {}),
        ("not-an-address", {}),
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.9"}),
        ("127.0.0.1", {"Forwarded": "for=203.0.113.9"}),
        ("127.0.0.1", {"Host": "evil.example"}),
        ("127.0.0.1", {"Host": "127.0.0.1.evil.example"}),
        ("127.0.0.1", {"Origin": "https://evil.example"}),
        ("127.0.0.1", {"Origin": "http://127.0.0.1:3000"}),
        ("127.0.0.1", {"Origin": "null"}),
        ("127.0.0.1", {"Origin": "https://127.0.0.1"}),
        ("127.0.0.1", {"Origin": "http://[::1"}),
        ("127.0.0.1", {"Host": "[::1"}),
        ("127.0.0.1", {"Host": "[not-an-address]:8081"}),
        ("127.0.0.1", {"Host": "localhost.:8081"}),
        ("127.0.0.1", {"Host": "localhost@evil.example"}),
        ("127.0.0.1", {"Host": "rebound.example:8081", "Origin": "http://rebound.example:8081"}),
        ("127.0.0.1", {"Host": ""}),
        ("127.0.0.1", {"X-Real-IP": "203.0.113.9"}),
        ("127.0.0.1", {"X-Real-IP": "127.0.0.1"}),
        ("127.0.0.1", {"Via": "1.1 proxy"}),
        ("127.0.0.1", {"Sec-Fetch-Site": "cross-site"}),
        ("127.0.0.1", {"Sec-Fetch-Site": "same-site"}),
        ("127.0.0.1", {"Sec-Fetch-Site": ""}),
    ],
)
async def test_with_no_key_configured_others_may_not(peer: str, headers: dict[str, str]) -> None:
    control = FakeControl()
    async with client(control, key=None, peer=(peer, 1), host="127.0.0.1:8081") as there:
        response = await there.post("/trivet/purge", json={"tenant": "a"}, headers=headers)
    assert response.status_code == 403
    assert error(response)["code"] == "loopback-only"
    assert control.calls == []


async def test_a_caller_whose_address_is_not_known_is_not_of_this_machine() -> None:
    """A connection that is reset right behind its request has no peer any more."""
    control, statuses = FakeControl(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"tenant": "a"}'}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/trivet/purge", "headers": headers}
    await AdminApp(control, None)({**scope, "client": None}, receive, send)
    assert statuses[0] == 403
    assert control.calls == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:8081"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_a_page_of_the_admin_port_itself_may_ask(headers: dict[str, str]) -> None:
    async with client(key=None, peer=LOCAL, host="127.0.0.1:8081") as here:
        assert (await here.get("/trivet/stats", headers=headers)).status_code == 200


@pytest.mark.parametrize("name", [b"host", b"origin", b"sec-fetch-site"])
def test_what_is_said_twice_proves_nothing(name: bytes) -> None:
    said = {b"host": b"127.0.0.1", b"origin": b"http://127.0.0.1", b"sec-fetch-site": b"none"}
    other = {b"host": b"localhost", b"origin": b"http://evil.example", b"sec-fetch-site": b"none"}
    headers = list(said.items())
    scope = {"client": LOCAL, "headers": headers}
    assert module.refusal(scope, None) is None
    refused = module.refusal({**scope, "headers": [*headers, (name, other[name])]}, None)
    assert refused is not None
    assert refused[0] == 403


def test_a_request_without_a_host_proves_nothing() -> None:
    refused = module.refusal({"client": LOCAL, "headers": []}, None)
    assert refused is not None
    assert refused[0] == 403


async def test_feedback_names_a_tenant_a_hit_and_a_verdict() -> None:
    control = FakeControl()
    body = {"tenant": "acme", "id": "ab" * 16, "verdict": "wrong"}
    response = await client(control).post("/trivet/semantic/feedback", json=body, headers=AUTH)
    assert response.json() == {"id": "ab" * 16, "verdict": "wrong", "removed": True}
    assert control.calls == [("feedback", "acme", "ab" * 16, "wrong")]


@pytest.mark.parametrize(
    ("field", "value"), [("tenant", ""), ("id", "AB" * 16), ("id", "ab"), ("verdict", "bad")]
)
async def test_wrong_feedback_names_the_field(field: str, value: str) -> None:
    body = {"tenant": "acme", "id": "ab" * 16, "verdict": "wrong", field: value}
    response = await client().post("/trivet/semantic/feedback", json=body, headers=AUTH)
    assert response.status_code == 422
    assert error(response)["field"] == field


async def test_verdicts_name_a_tenant_and_hits_and_are_answered_one_by_one() -> None:
    control = FakeControl()
    said = [{"id": "one", "same": True}, {"id": "two", "same": False}]
    body = {"tenant": "acme", "verdicts": said}
    response = await client(control).post("/trivet/verdicts", json=body, headers=AUTH)
    assert response.json() == {
        "tenant": "acme",
        "verdicts": [
            {"id": "one", "outcome": "counted", "removed": False},
            {"id": "two", "outcome": "counted", "removed": True},
        ],
    }
    assert control.calls == [("verdicts", "acme", [("one", True), ("two", False)])]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("tenant", {"tenant": ""}),
        ("verdicts", {"verdicts": []}),
        ("verdicts", {"verdicts": [{"id": str(n), "same": True} for n in range(101)]}),
        ("verdicts", {"verdicts": [{"id": "a", "same": True}, {"id": "a", "same": False}]}),
        ("verdicts.0.same", {"verdicts": [{"id": "a", "same": 1}]}),
        ("verdicts.0.same", {"verdicts": [{"id": "a", "same": None}]}),
        ("verdicts.0.same", {"verdicts": [{"id": "a"}]}),
        ("verdicts.0.id", {"verdicts": [{"id": "", "same": True}]}),
        ("verdicts.0.judge", {"verdicts": [{"id": "a", "same": True, "judge": "me"}]}),
    ],
)
async def test_wrong_verdicts_name_the_field(field: str, change: dict[str, Any]) -> None:
    control = FakeControl()
    body = {"tenant": "acme", "verdicts": [{"id": "a", "same": True}], **change}
    response = await client(control).post("/trivet/verdicts", json=body, headers=AUTH)
    assert response.status_code == 422
    assert error(response)["field"] == field
    assert control.calls == []


async def test_verdicts_need_the_admin_key() -> None:
    control = FakeControl()
    body = {"tenant": "acme", "verdicts": [{"id": "a", "same": True}]}
    assert (await client(control).post("/trivet/verdicts", json=body)).status_code == 401
    assert control.calls == []


async def test_a_purge_names_a_tenant_and_says_how_many_went() -> None:
    control = FakeControl()
    response = await client(control).post(
        "/trivet/purge", json={"tenant": "acme", "tag": "doc-1"}, headers=AUTH
    )
    assert response.json() == {"tenant": "acme", "deleted": 7}
    assert control.calls == [("purge", "acme", "doc-1", None, None)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": 5}, "tenant"),
        ({"tenant": "acme", "tga": "x"}, "tga"),
        ({"tenant": "acme", "version": "no-value"}, "version"),
        ({"tenant": "acme", "key": "xyz"}, "key"),
        ({"tenant": "acme", "tag": "x", "key": "ab"}, None),
        ([], None),
    ],
)
async def test_a_wrong_purge_names_the_field(body: object, field: str | None) -> None:
    control = FakeControl()
    response = await client(control).post("/trivet/purge", json=body, headers=AUTH)
    assert response.status_code == 422
    assert error(response)["field"] == field
    assert error(response)["message"].endswith(".")
    assert control.calls == []


async def test_a_body_that_is_no_json_is_a_sentence() -> None:
    headers = {**AUTH, "Content-Type": "application/json"}
    response = await client().post("/trivet/purge", content=b'{"tenant":', headers=headers)
    assert response.status_code == 422
    assert error(response)["message"].startswith("The body is not valid JSON")


@pytest.mark.parametrize("content", [b"", b'{"tenant":"acme"}', b"[]"])
async def test_a_body_without_its_content_type_is_told_so(content: bytes) -> None:
    response = await client().post("/trivet/purge", content=content, headers=AUTH)
    assert response.status_code == 422
    assert error(response)["message"] == (
        "The body has to be a JSON object, sent with Content-Type: application/json."
    )


async def test_a_reload_tells_the_version() -> None:
    response = await client().post("/trivet/reload", headers=AUTH)
    assert (response.status_code, response.json()) == (
        200,
        {"ok": True, "version": "v2", "problems": 0, "detail": ""},
    )


async def test_a_refused_reload_is_422_and_names_the_kept_version() -> None:
    control = FakeControl()
    control.reloaded = PolicyReload(False, "v1", 2, "a.yaml:1:1: ...")
    response = await client(control).post("/trivet/reload", headers=AUTH)
    assert (response.status_code, response.json()) == (
        422,
        {"ok": False, "version": "v1", "problems": 2, "detail": "a.yaml:1:1: ..."},
    )


async def test_explain_judges_the_exact_text_where_a_string_is_given() -> None:
    control = FakeControl()
    text = '{"a": 1.0, "a": NaN}'
    asked = {"path": "/v1/messages", "headers": {"X-API-Key": "k"}, "body": text}
    response = await client(control).post("/trivet/explain", json=asked, headers=AUTH)
    assert response.json() == {"tenant": "acme"}
    assert control.calls == [("explain", "/v1/messages", {"x-api-key": "k"}, text.encode())]


async def test_explain_keeps_the_order_and_kind_of_a_json_body() -> None:
    control = FakeControl()
    asked = {"body": {"z": 1.0, "a": [1, None]}}
    await client(control).post("/trivet/explain", json=asked, headers=AUTH)
    assert control.calls == [("explain", "/v1/chat/completions", {}, b'{"z":1.0,"a":[1,null]}')]


async def test_a_wrong_request_is_told_with_its_field() -> None:
    control = FakeControl()
    control.fails = RequestError(400, "messages is not a list.", field="messages", code="type")
    response = await client(control).post("/trivet/explain", json={"body": "x"}, headers=AUTH)
    assert response.status_code == 400
    assert error(response) == {
        "message": "messages is not a list.",
        "field": "messages",
        "code": "type",
    }


async def test_a_store_in_trouble_is_503() -> None:
    control = FakeControl()
    control.fails = StoreError("partial", "not every worker confirmed the purge; run it again")
    response = await client(control).post("/trivet/purge", json={"tenant": "a"}, headers=AUTH)
    assert response.status_code == 503
    assert error(response)["code"] == "partial"
    assert error(response)["message"] == (
        "The store is in trouble: not every worker confirmed the purge; run it again."
    )


async def test_an_unforeseen_failure_tells_nothing_of_the_inside() -> None:
    control = FakeControl()
    control.fails = KeyError("secret")
    response = await client(control).get("/trivet/stats", headers=AUTH)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert error(response)["code"] == "internal"


async def test_policies_show_no_credential() -> None:
    response = await client().get("/trivet/policies", headers=AUTH)
    assert response.json() == {
        "version": "v1",
        "tenants": {"acme": {"tenant": "acme", "credentials": 1}},
    }


async def test_one_tenants_policy_can_be_asked_for() -> None:
    response = await client().get("/trivet/tenants/acme", headers=AUTH)
    assert response.json() == {
        "tenant": "acme",
        "version": "v1",
        "policy": {"tenant": "acme", "credentials": 1},
    }
    missing = await client().get("/trivet/tenants/none", headers=AUTH)
    assert missing.status_code == 404
    assert error(missing)["field"] == "tenant"


@pytest.mark.parametrize(("method", "status"), [("GET", 405), ("DELETE", 405)])
async def test_a_wrong_method_is_a_sentence(method: str, status: int) -> None:
    response = await client().request(method, "/trivet/purge", headers=AUTH)
    assert response.status_code == status
    assert error(response)["message"].startswith(f"{method} /trivet/purge")


@pytest.mark.parametrize("path", ["/trivet/nothing", "/trivet/", "/trivet/docs/../purge"])
async def test_an_unknown_admin_route_needs_the_key_to_be_told_so(path: str) -> None:
    assert (await client().post(path)).status_code == 401


async def test_the_description_is_open_and_lists_every_route() -> None:
    spec = (await client().get("/trivet/openapi.json")).json()
    assert set(spec["paths"]) == {
        "/trivet/stats",
        "/trivet/policies",
        "/trivet/tenants/{tenant}",
        "/trivet/purge",
        "/trivet/semantic/feedback",
        "/trivet/verdicts",
        "/trivet/reload",
        "/trivet/explain",
    }


async def test_the_docs_page_needs_no_script_and_nothing_from_elsewhere() -> None:
    response = await client().get("/trivet/docs")
    assert response.status_code == 200
    assert "POST /trivet/purge" in response.text
    assert "<code>tenant</code>" in response.text
    assert "<script" not in response.text
    assert "http://" not in response.text
    assert "https://" not in response.text
    assert response.headers["content-security-policy"].startswith("default-src 'none'")


async def test_concurrent_first_requests_build_one_app(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    original = module._import_api

    def counting(control: Any) -> Any:
        built.append(control)
        return original(control)

    monkeypatch.setattr(module, "_import_api", counting)
    async with client() as many:
        answers = await asyncio.gather(*(many.get("/trivet/stats", headers=AUTH) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(built) == 1


def test_the_probes_import_no_web_framework() -> None:
    code = """
import asyncio, sys
from trivet.middleware.admin.port import AdminApp
async def main():
    app = AdminApp(None, "00" * 32)
    sent = []
    async def send(message): sent.append(message)
    for path in ("/healthz", "/trivet/stats"):
        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "client": None}
        await app(scope, None, send)
    print([m["status"] for m in sent if "status" in m], "fastapi" in sys.modules)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[200, 401] False"


async def test_a_server_that_runs_the_lifespan_is_answered() -> None:
    said: list[str] = []
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(asked)}

    async def send(message: Any) -> None:
        said.append(message["type"])

    await AdminApp(FakeControl(), SHA256)({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_only_its_own_paths_belong_to_the_admin_app() -> None:
    assert [is_admin_path(path) for path in ("/healthz", "/readyz", "/metrics", "/trivet/x")] == [
        True
    ] * 4
    assert not any(
        is_admin_path(path) for path in ("/", "/healthz/", "/trivet", "/v1/trivet/x", "/metricsx")
    )


def test_the_answers_are_json_that_any_client_reads() -> None:
    assert json.loads(module.error_body('a "quoted" sentence', "f"))["error"]["field"] == "f"
