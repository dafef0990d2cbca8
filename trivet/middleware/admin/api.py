"""The admin API proper: FastAPI over a `Control`. Imported by `port` only."""

from __future__ import annotations

import html
from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator
from starlette.exceptions import HTTPException

from trivet import __version__
from trivet.errors import RequestError, StoreError
from trivet.middleware.admin.control import Control, Outcome, Said, Verdict
from trivet.middleware.admin.port import error_body


class Purge(BaseModel):
    """What to forget: everything of a tenant, or what carries one tag, version or key."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(min_length=1, max_length=128)
    tag: str | None = Field(default=None, min_length=1, max_length=256)
    version: str | None = Field(
        default=None, pattern=r"^[^=]+=.*$", max_length=256, description="`name=value`"
    )
    key: str | None = Field(
        default=None, pattern=r"^[0-9a-fA-F]+$", max_length=64, description="In hex."
    )

    @model_validator(mode="after")
    def _one_of(self) -> Purge:
        if sum(value is not None for value in (self.tag, self.version, self.key)) > 1:
            raise ValueError("give one of tag, version and key, or none of them")
        return self


class Purged(BaseModel):
    """How many entries were deleted now; what was sent before the purge is not served later."""

    tenant: str
    deleted: int


class Feedback(BaseModel):
    """What the operator says of a similar answer that a tenant got."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(min_length=1, max_length=128)
    id: str = Field(pattern=r"^[0-9a-f]{32}$", description="What `Trivet-Hit-Id` said.")
    verdict: Verdict


class Heard(BaseModel):
    """`removed`: the answer is served for no similar question any more."""

    id: str
    verdict: Verdict
    removed: bool


class Judged(BaseModel):
    """What a person says of one hit."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=4096, description="`draw` in the label queue.")
    same: StrictBool


class Verdicts(BaseModel):
    """What a person says of hits that were drawn for the label queue of one tenant."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(min_length=1, max_length=128)
    verdicts: list[Judged] = Field(
        min_length=1, max_length=100, description="A list of `id` (`draw` in the queue) and `same`."
    )

    @field_validator("verdicts")
    @classmethod
    def _each_once(cls, verdicts: list[Judged]) -> list[Judged]:
        if len({one.id for one in verdicts}) < len(verdicts):
            raise ValueError("name each id once")
        return verdicts


class HeardOne(BaseModel):
    """`removed`: the answer is served for no similar question any more."""

    id: str
    outcome: Outcome
    removed: bool


class HeardAll(BaseModel):
    """What became of each verdict, in the order given; only `counted` changed the bounds now."""

    tenant: str
    verdicts: list[HeardOne]


class Reloaded(BaseModel):
    """`ok` is false when a file is wrong: then the set `version` was kept; `detail` says why."""

    ok: bool
    version: str
    problems: int
    detail: str = ""


class Explain(BaseModel):
    """A request as it would be sent to the proxy."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(default="/v1/chat/completions", pattern="^/")
    headers: dict[str, str] = Field(default_factory=dict)
    body: dict[str, Any] | str = Field(description="The JSON body, or its exact text as a string.")
    tenant: str | None = Field(
        default=None,
        max_length=128,
        description="A declared tenant that the request is taken to be of, whatever its headers.",
    )


def build(control: Control) -> FastAPI:
    """The app, its routes under `/trivet/`. It checks no credential: `AdminApp` does."""
    app = FastAPI(
        title="Trivet admin API",
        version=__version__,
        summary="Purge, explain, statistics, policies of a running Trivet proxy.",
        description="Every route but this description needs `Authorization: Bearer <admin key>`; "
        "with no key configured only this machine is answered.",
        openapi_url="/trivet/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    _add_errors(app)
    _add_reading(app, control)
    _add_acting(app, control)

    @app.get("/trivet/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """The routes on one page, without scripts."""
        policy = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(_page(app.openapi()), headers=policy)

    return app


def _add_reading(app: FastAPI, control: Control) -> None:
    @app.get("/trivet/stats", summary="What the stores hold, and what was saved.")
    async def stats() -> dict[str, Any]:
        return await control.stats()

    @app.get("/trivet/policies", summary="The effective policies, without credentials.")
    async def policies() -> dict[str, Any]:
        return _without_credentials(control.policies())

    @app.get("/trivet/tenants/{tenant}", summary="One tenant's effective policy.")
    async def tenant(tenant: str) -> dict[str, Any]:
        known = _without_credentials(control.policies())
        if tenant not in known["tenants"]:
            raise RequestError(404, f"No policy names the tenant {tenant!r}.", field="tenant")
        return {
            "tenant": tenant,
            "version": known.get("version"),
            "policy": known["tenants"][tenant],
        }


def _add_acting(app: FastAPI, control: Control) -> None:
    @app.post("/trivet/purge", summary="Forget entries of one tenant, durably.")
    async def purge(body: Annotated[Purge, Body()]) -> Purged:
        deleted = await control.purge(body.tenant, tag=body.tag, version=body.version, key=body.key)
        return Purged(tenant=body.tenant, deleted=deleted)

    @app.post("/trivet/semantic/feedback", summary="A similar answer was wrong, or right.")
    async def feedback(body: Annotated[Feedback, Body()]) -> Heard:
        return Heard(**await control.feedback(body.tenant, body.id, body.verdict))

    @app.post("/trivet/verdicts", summary="A person judged hits of the label queue.")
    async def verdicts(body: Annotated[Verdicts, Body()]) -> HeardAll:
        said = [Said(one.id, one.same) for one in body.verdicts]
        heard = await control.verdicts(body.tenant, said)
        found = [HeardOne(**one._asdict()) for one in heard]
        return HeardAll(tenant=body.tenant, verdicts=found)

    @app.post(
        "/trivet/reload",
        summary="Read the policy directory again, once its files are at rest.",
        responses={422: {"model": Reloaded, "description": "A file is wrong; the old set holds."}},
    )
    async def reload(response: Response) -> Reloaded:
        result = await control.reload()
        response.status_code = 200 if result.ok else 422
        return Reloaded(**asdict(result))

    @app.post("/trivet/explain", summary="What would happen to a request, and why.")
    async def explain(body: Annotated[Explain, Body()]) -> dict[str, Any]:
        raw = body.body.encode() if isinstance(body.body, str) else orjson.dumps(body.body)
        headers = {name.lower(): value for name, value in body.headers.items()}
        return await control.explain(body.path, headers, raw, body.tenant)


def _without_credentials(policies: dict[str, Any]) -> dict[str, Any]:
    """The same, with the number of each tenant's credentials in their place."""
    tenants = {}
    for name, policy in policies.get("tenants", {}).items():
        tenants[name] = dict(policy)
        if "credentials" in policy:
            tenants[name]["credentials"] = len(policy["credentials"])
    return {**policies, "tenants": tenants}


def _add_errors(app: FastAPI) -> None:
    def answer(status: int, body: bytes) -> Response:
        return Response(body, status, media_type="application/json")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        field, message = _first_problem(error)
        return answer(422, error_body(message, field=field, code="invalid"))

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        return answer(error.status, error_body(error.message, field=error.field, code=error.code))

    @app.exception_handler(StoreError)
    async def store(request: Request, error: StoreError) -> Response:
        said = str(error)
        message = f"The store is in trouble: {said[:-1] if said.endswith('.') else said}."
        if "purge" in request.url.path and "again" not in message:
            message += " Whether it purged anything is not known: purge again once it is up."
        return answer(503, error_body(message, code=error.reason))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}."
        return answer(error.status_code, error_body(message))

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        message = f"Trivet failed to answer ({type(error).__name__}); its log says more."
        return answer(500, error_body(message, code="internal"))


def _first_problem(error: RequestValidationError) -> tuple[str | None, str]:
    found = error.errors()[0]
    place = [str(part) for part in found["loc"] if part != "body"]
    if found["type"] == "json_invalid":
        return None, f"The body is not valid JSON: {found.get('ctx', {}).get('error', '')}."
    if not place and found["type"] in ("missing", "model_attributes_type", "dict_type"):
        return None, "The body has to be a JSON object, sent with Content-Type: application/json."
    field = ".".join(place) or None
    said = str(found["msg"]).removeprefix("Value error, ")
    return field, f"{field}: {said}." if field else f"The body: {said}."


def _page(spec: dict[str, Any]) -> str:
    rows = []
    for path, methods in spec["paths"].items():
        for method, route in methods.items():
            rows.append(
                f"<tr><td><code>{method.upper()} {html.escape(path)}</code></td>"
                f"<td>{html.escape(route.get('summary', ''))}</td>"
                f"<td>{_fields(spec, route)}</td></tr>"
            )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<title>{html.escape(spec["info"]["title"])}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}}
table{{border-collapse:collapse;width:100%}}td,th{{border-top:1px solid #bbb;padding:.5rem;
text-align:left;vertical-align:top}}:root{{color-scheme:light dark}}</style>
<h1>{html.escape(spec["info"]["title"])}</h1>
<p>{html.escape(spec["info"]["summary"])} Version {html.escape(spec["info"]["version"])}.</p>
<p>{html.escape(spec["info"]["description"])}
Machine-readable: <a href="/trivet/openapi.json">openapi.json</a>.</p>
<table><thead><tr><th>Route</th><th>What it does</th><th>JSON body</th></tr></thead>
<tbody>{"".join(rows)}</tbody></table></html>"""


def _fields(spec: dict[str, Any], route: dict[str, Any]) -> str:
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    model = spec.get("components", {}).get("schemas", {}).get(name, {})
    needed = model.get("required", ())
    return "<br>".join(
        f"<code>{html.escape(field)}</code>{'' if field in needed else ' (optional)'} "
        f"{html.escape(about.get('description', ''))}"
        for field, about in model.get("properties", {}).items()
    )
