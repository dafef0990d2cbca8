"""What a worker answers when the supervisor asks over the hub, and how a refusal is told there."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

import orjson

from trivet.errors import RequestError
from trivet.middleware.admin.control import Said
from trivet.middleware.admin.operations import Operations

_REFUSED: Final = "refused"
_Handler = Callable[[bytes], Awaitable[bytes]]


def refusal_of(error: RequestError) -> dict[str, Any]:
    """What a worker answers in place of what it was asked for."""
    return {_REFUSED: [error.status, error.message, error.field, error.code]}


def is_refusal(answer: Any) -> bool:
    """Whether `refusal_of` made it."""
    return isinstance(answer, dict) and answer.keys() == {_REFUSED}


def error_of(refusal: dict[str, Any]) -> RequestError:
    """The error that `refusal_of` was given."""
    status, message, about, code = refusal[_REFUSED]
    return RequestError(status, message, field=about, code=code)


def _refusing(handler: _Handler) -> _Handler:
    """The handler, with the errors that are the asker's told as answers."""

    async def answer(payload: bytes) -> bytes:
        try:
            return await handler(payload)
        except RequestError as error:
            return orjson.dumps(refusal_of(error))

    return answer


def handlers_of(operations: Operations) -> dict[str, _Handler]:
    """What a worker answers when the supervisor asks over the hub."""

    async def ready(_: bytes) -> bytes:
        return orjson.dumps(asdict(await operations.ready()))

    async def stats(_: bytes) -> bytes:
        return orjson.dumps(await operations.stats())

    async def metrics(_: bytes) -> bytes:
        return orjson.dumps([os.getpid(), operations.snapshot()])

    async def reload(_: bytes) -> bytes:
        return orjson.dumps(asdict(await operations.reload()))

    async def purge(payload: bytes) -> bytes:
        asked = orjson.loads(payload)
        count = await operations.purge(asked.pop("tenant"), **asked)
        return orjson.dumps(count)

    async def tell(payload: bytes) -> bytes:
        topic, asked = orjson.loads(payload)
        told = await operations.tell(topic, asked)
        return orjson.dumps(told[0] if told else None)

    return {
        "ready": ready,
        "stats": stats,
        "metrics": metrics,
        "reload": reload,
        "purge": _refusing(purge),
        "tell": _refusing(tell),
        **_knowing(operations),
        **_hearing(operations),
    }


def _knowing(operations: Operations) -> dict[str, _Handler]:
    async def knows(payload: bytes) -> bytes:
        tenant, hit = orjson.loads(payload)
        found = operations.similar is not None and operations.similar.knows(tenant, hit)
        return orjson.dumps(os.getpid() if found else None)

    async def running(payload: bytes) -> bytes:
        policy = operations.tenants.get(orjson.loads(payload))
        found = None if policy is None else operations.running(policy)
        return orjson.dumps(None if found is None else asdict(found))

    async def feedback(payload: bytes) -> bytes:
        worker, tenant, hit, verdict = orjson.loads(payload)
        if worker != os.getpid():
            return b"null"
        return orjson.dumps(await operations.feedback(tenant, hit, verdict))

    return {"knows": knows, "running": running, "feedback": _refusing(feedback)}


def _hearing(operations: Operations) -> dict[str, _Handler]:
    async def hears(_: bytes) -> bytes:
        semantics = operations.semantics
        is_open = semantics is not None and semantics.verdicts is not None
        return orjson.dumps(os.getpid() if is_open else None)

    async def verdicts(payload: bytes) -> bytes:
        worker, tenant, said = orjson.loads(payload)
        if worker != os.getpid():
            return b"null"
        heard = await operations.verdicts(tenant, [Said(*one) for one in said])
        return orjson.dumps([list(one) for one in heard])

    return {"hears": hears, "verdicts": _refusing(verdicts)}
