from __future__ import annotations

import json
from typing import Any

import pytest
from console_parts import Telling, asked, done

from trivet.errors import RequestError
from trivet.middleware.console.views.explain import (
    furthest,
    newest,
    show,
    show_one,
    take_request,
    tiers_of,
)
from trivet.middleware.observe.recent import RecentRequests

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def rows(*requests: Any) -> list[list[Any]]:
    recent = RecentRequests()
    for request in requests:
        recent(request)
    return [list(one) for one in recent.newest(99)]


async def test_the_last_requests_of_all_processes_are_in_the_order_of_time() -> None:
    told = [[["a", 3.0], ["b", 1.0]], [["c", 2.0]]]
    assert [row[0] for row in newest(told, 2)] == ["a", "c"]


async def test_the_page_names_the_columns_of_its_rows() -> None:
    control = Telling({"recent": [rows(done())]})
    told = await show(asked(control))
    row = dict(zip(told["columns"], told["rows"][0], strict=True))
    assert (row["id"], row["tenant"], row["model"]) == ("req_1", "acme", "gpt-4o-mini")


@pytest.mark.parametrize("count", ["0", "-1", "x", "10001", "1.5"])
async def test_a_count_beyond_its_bounds_is_refused(count: str) -> None:
    with pytest.raises(RequestError, match="number from 1 to 10000"):
        await show(asked(Telling(), count=count))


async def test_a_request_is_found_by_its_id() -> None:
    control = Telling({"recent": [rows(done()), rows(done(reply_headers=[]))]})
    told = await show_one(asked(control, id="req_1"))
    assert told["request"]["id"] == "req_1"
    assert told["tiers"] == [{"tier": "exact", "did": "hit", "reason": "", "told": {"ttl": 9}}]
    for unknown in ("req_2", ""):
        with pytest.raises(RequestError):
            await show_one(asked(control, id=unknown))


def test_each_tier_is_read_from_what_the_caller_was_told() -> None:
    found = tiers_of("trivet-exact; fwd=miss; stored, trivet-semantic; fwd=bypass; detail=intent")
    assert [(one["tier"], one["did"], one["reason"]) for one in found] == [
        ("exact", "miss", ""),
        ("semantic", "bypass", "intent"),
    ]
    assert tiers_of("") == tiers_of('"') == []


async def test_a_pasted_request_is_explained_as_a_tenants() -> None:
    control = Telling()
    request = {"path": "/v1/chat/completions", "headers": {"Trivet-Route": "r"}, "body": BODY}
    told = await take_request(asked(control, {"request": json.dumps(request), "tenant": "acme"}))
    ((_, path, headers, body, tenant),) = control.calls
    assert (path, headers, json.loads(body), tenant) == (
        "/v1/chat/completions",
        {"trivet-route": "r"},
        BODY,
        "acme",
    )
    assert (told["chosen"], told["looked"]) == (True, None)


async def test_a_bare_body_is_explained_with_the_api_that_takes_it() -> None:
    told = await take_request(asked(Telling(), {"request": json.dumps(BODY)}))
    assert (told["api_guessed"], told["chosen"]) == (True, False)


async def test_a_similar_question_is_looked_for_only_where_that_is_asked() -> None:
    found = {"gate": {}, "score": 0.9}
    control = Telling({"look": [{"reason": "loading"}, found]})
    told = await take_request(asked(control, {"request": json.dumps(BODY), "look": True}))
    assert told["looked"] == found
    assert [call[0] for call in control.calls] == ["explain", "look"]


async def test_nobody_s_request_is_not_looked_up() -> None:
    control = Telling()
    control.explained = {"tenant": None}
    told = await take_request(asked(control, {"request": json.dumps(BODY), "look": True}))
    assert told["looked"] is None
    assert [call[0] for call in control.calls] == ["explain"]


def test_of_several_processes_the_one_that_got_furthest_is_told() -> None:
    near, far = {"gate": {}, "score": 0.2}, {"gate": {}, "score": 0.8}
    assert furthest([{"reason": "off"}, near, far]) == far
    assert furthest([]) is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"request": ""},
        {"request": 1},
        {"request": "{"},
        {"request": "[]"},
        {"request": json.dumps(BODY), "tenant": 1},
        {"request": json.dumps(BODY), "more": 1},
    ],
)
async def test_what_is_no_request_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        await take_request(asked(Telling(), body))
