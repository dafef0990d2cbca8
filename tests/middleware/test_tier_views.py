"""The JSON of the semantic and the prefix page, out of what one process or several told."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import RequestError
from trivet.metric_names import PREFIX_BREAKS, PREFIX_LOST, REPLICA_REQUESTS, REPLICA_TOKENS
from trivet.middleware.admin.control import Control
from trivet.middleware.console.history import History
from trivet.middleware.console.pages import Asked
from trivet.middleware.console.views import prefix, semantic
from trivet.middleware.console.views.replicas import replicas_of
from trivet.middleware.console.views.semantic_counts import (
    counts_by_intent,
    evidence,
    lookups_of,
    meaning,
    worth,
)
from trivet.policies.economics import Economics, margin
from trivet.semantic.confidence import upper
from trivet.semantic.tally import Counts

COSTS = Economics(call_cost=0.02, lookup_cost=0.001, false_hit_cost=1.0)
CELL = ["chat:m", "informational"]


class Told:
    """A control whose processes tell what is in `answers`."""

    draining = False

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {topic.replace("_", "-"): told for topic, told in answers.items()}
        self.asked: list[tuple[str, Any]] = []

    async def tell(self, topic: str, asked: Any = None) -> list[Any]:
        self.asked.append((topic, asked))
        return self.answers.get(topic, [])


def ask(control: Told, **query: str) -> Asked:
    return Asked(cast(Control, control), History(), query)


def send(control: Told, body: dict[str, Any]) -> Asked:
    return Asked(cast(Control, control), History(), {}, body)


def summary(**more: Any) -> dict[str, Any]:
    made = {
        "mode": "replace",
        "acts_as": "replace",
        "reason": "",
        "detail": "",
        "embedder": "default",
        "intents": ["informational"],
        "target": 0.02,
        "closed": {},
        "book": "b",
        "cells": [],
        "rows": {},
    }
    return {**made, **more}


class TestCounts:
    def test_processes_that_share_a_book_are_not_added_up(self) -> None:
        one = {"book": "b", "cells": [[*CELL, 5, 1, 100, 40, 0]]}
        other = {"book": "b", "cells": [[*CELL, 4, 1, 102, 41, 0]]}
        assert counts_by_intent([one, other]) == {"informational": Counts(5, 1, 102, 41, 0)}

    def test_books_of_their_own_add_up(self) -> None:
        told = [{"book": book, "cells": [[*CELL, 5, 1, 100, 40, 0]]} for book in ("a", "b", "", "")]
        assert counts_by_intent(told) == {"informational": Counts(20, 4, 400, 160, 0)}

    def test_models_of_an_intent_add_up(self) -> None:
        cells = [["chat:m", "time", 1, 0, 2, 1, 0], ["chat:n", "time", 2, 1, 3, 2, 1]]
        assert counts_by_intent([{"book": "b", "cells": cells}]) == {"time": Counts(3, 1, 5, 3, 1)}

    def test_the_bound_is_that_of_the_running_measurement(self) -> None:
        told = evidence({"informational": Counts(200, 1, 900, 400, 2)}, 0.02)
        assert told["bound"] == upper(200, 1, 0.05)
        assert evidence({}, 0.02)["bound"] is None


class TestWorth:
    def test_saved_less_risked_is_the_margin_of_all_lookups(self) -> None:
        total = evidence({"i": Counts(500, 2, 1_000, 600, 0)}, 0.02)
        told = worth(total, None, COSTS)
        assert told["source"] == "running"
        expected = 1_000 * margin(0.6, total["bound"], COSTS)
        assert told["saved"] - told["risked"] == pytest.approx(expected)

    def test_few_audits_say_nothing_without_a_calibration(self) -> None:
        told = worth(evidence({"i": Counts(3, 0, 10, 5, 0)}, 0.02), None, COSTS)
        assert (told["rate"], told["risked"], told["saved"]) == (None, None, 0.1)


class TestLookups:
    def test_lookups_are_sorted_by_what_came_of_them(self) -> None:
        rows = [
            ["informational", "hit", "", 3],
            ["informational", "miss", "no-neighbour", 2],
            ["action", "bypass", "intent-action", 4],
            ["action", "bypass", "intent-action", 1],
            ["", "bypass", "tools", 9],
        ]
        told = lookups_of(rows)
        assert [(one["reason"], one["count"]) for one in told["refused"]] == [
            ("tools", 9),
            ("intent-action", 5),
        ]
        assert [one["count"] for one in told["served"]] == [3]
        assert [one["meaning"] for one in told["missed"]] == ["no stored question is near"]

    @pytest.mark.parametrize(
        ("reason", "words"),
        [
            ("veto-number", "a rule objects: the two questions differ in their number"),
            ("unsure-time", "the gate is not sure, and leans to time"),
            ("never-heard-of", ""),
        ],
    )
    def test_reasons_have_words(self, reason: str, words: str) -> None:
        assert meaning(reason) == words


class TestSemantic:
    async def test_a_tenant_stands_as_the_process_says_that_serves_least(self) -> None:
        well, ill = summary(), summary(acts_as="shadow", reason="loading")
        control = Told(semantic=[{"tenants": {"t": one}, "off": 2} for one in (well, ill)])
        told = await semantic.show(ask(control))
        assert (told["workers"], told["off"]) == (2, 2)
        assert [(one["tenant"], one["acts_as"]) for one in told["tenants"]] == [("t", "shadow")]

    async def test_rows_of_all_processes_come_newest_first_and_a_page_at_a_time(self) -> None:
        told = [[{"at": float(at)} for at in range(high, high - 20, -2)] for high in (100, 99)]
        control = Told(semantic_rows=[*told, None])
        rows = await semantic.show_rows(ask(control, tenant="t", before="200"))
        assert [one["at"] for one in rows["rows"]] == list(range(100, 90, -1))
        assert rows["before"] == 91
        assert control.asked == [("semantic-rows", ["t", "hits", 200.0])]

    @pytest.mark.parametrize(
        "query",
        [{}, {"tenant": ""}, {"tenant": "t", "kind": "x"}, {"tenant": "t", "before": "nan"}],
    )
    async def test_a_query_that_cannot_be_read_is_refused(self, query: dict[str, str]) -> None:
        with pytest.raises(RequestError) as caught:
            await semantic.show_rows(ask(Told(), **query))
        assert caught.value.status == 422

    async def test_a_verdict_is_acted_on_by_who_has_the_hit(self) -> None:
        control = Told(semantic_verdict=[None, {"verdict": "wrong"}])
        body = {"tenant": "t", "row": "1-1", "verdict": "wrong"}
        assert await semantic.take_verdict(send(control, body)) == {"verdict": "wrong"}

    async def test_a_verdict_on_nothing_is_refused(self) -> None:
        body = {"tenant": "t", "row": "1-1", "verdict": "wrong"}
        with pytest.raises(RequestError) as caught:
            await semantic.take_verdict(send(Told(semantic_verdict=[None]), body))
        assert caught.value.status == 404
        for wrong in ({**body, "verdict": "maybe"}, {**body, "row": 7}, {}):
            with pytest.raises(RequestError) as caught:
                await semantic.take_verdict(send(Told(), wrong))
            assert caught.value.status == 422


def replica(**more: Any) -> dict[str, Any]:
    made = {
        "replica": "a:1",
        "up": True,
        "weight": 1.0,
        "reason": "",
        "in_flight": 1,
        "others": 4,
        "waiting": 10.0,
        "trust": 1.0,
        "tells": False,
        "routed": 3,
        "held": None,
    }
    return {**made, **more}


def worker(*replicas: dict[str, Any], routes: Any = ()) -> dict[str, Any]:
    counted = {
        REPLICA_REQUESTS.name: [["llm", "a:1", "known"], ["llm", "b:2", "load"]],
        REPLICA_TOKENS.name: [["llm", "a:1", "all"], ["llm", "a:1", "known"]],
    }
    told = {name: [[named, 5] for named in rows] for name, rows in counted.items()}
    return {"replicas": {"llm": list(replicas)}, "routes": list(routes), "counted": told}


class TestPrefix:
    def test_replicas_are_seen_by_all_processes_together(self) -> None:
        told = [worker(replica()), worker(replica(up=False, reason="health", held=7, in_flight=2))]
        (upstream,) = replicas_of(told)
        (one,) = upstream["replicas"]
        assert (one["up"], one["processes"], one["reason"]) == (1, 2, "health")
        assert (one["in_flight"], one["at_server"], one["waiting_tokens"]) == (3, 6, 20.0)
        assert (one["routed_blocks"], one["held_blocks"], one["trust"]) == ([3, 3], 7, None)
        assert (one["requests"], one["tokens"], one["known_tokens"]) == ({"known": 10}, 10, 10)

    def test_a_route_is_the_sum_of_all_processes(self) -> None:
        route = {"tenant": "t", "route": "r", "buckets": [[600, 4, 100, 60]], "breaks": 1}
        (line,) = prefix.overview([worker(routes=[route]), worker(routes=[route])], 1_000)["routes"]
        assert line["hour"] == {"calls": 8, "tokens": 200, "cached": 120, "share": 0.6}
        assert (line["breaks"], line["spark"]) == (2, [[0, 200, 120]])

    def test_what_is_older_than_the_time_shown_is_not_in_it(self) -> None:
        old = {"tenant": "t", "route": "r", "buckets": [[600, 4, 100, 60]], "breaks": 0}
        (line,) = prefix.overview([worker(routes=[old])], 600 + 4_000)["routes"]
        assert line["hour"]["share"] is None
        assert line["day"]["share"] == 0.6

    def test_breaks_of_one_cause_and_place_are_told_once_with_their_times(self) -> None:
        def broke(at: float, cause: str = "uuid", place: str = "system") -> dict[str, Any]:
            return {"at": at, "cause": cause, "place": place, "new": at == 1}

        told = [route_told([broke(3.0), broke(1.0)]), route_told([broke(2.0), broke(4.0, "date")])]
        made = prefix.route_of(told, "1h", 3_000.0)
        assert [(one["cause"], one["at"], one["times"]) for one in made["breaks"]] == [
            ("date", 4.0, [4.0]),
            ("uuid", 3.0, [3.0, 2.0, 1.0]),
        ]
        assert made["breaks"][1]["new"]
        assert made["causes"] == [{"cause": "uuid", "breaks": 4, "lost_tokens": 20}]

    def test_texts_are_said_to_be_kept_only_where_every_process_keeps_them(self) -> None:
        told = [route_told([]), {**route_told([]), "keep_text": False}]
        assert not prefix.route_of(told, "1h", 0.0)["keep_text"]

    async def test_a_route_that_nobody_saw_is_none(self) -> None:
        with pytest.raises(RequestError) as caught:
            await prefix.show_route(ask(Told(prefix_route=[None]), tenant="t", route="r"))
        assert caught.value.status == 404
        queries: list[dict[str, str]] = [{}, {"tenant": "t"}]
        for query in (*queries, {"tenant": "t", "route": "r", "span": "9y"}):
            with pytest.raises(RequestError) as caught:
                await prefix.show_route(ask(Told(), **query))
            assert caught.value.status == 422

    @given(st.integers(0, 2_000_000_000), st.sampled_from(list(prefix.SPANS)))
    def test_the_time_shown_ends_with_the_bucket_of_now(self, now: int, span: str) -> None:
        made = prefix.route_of([route_told([])], span, float(now))
        ends = made["first"] + made["width"] * made["count"]
        assert ends - made["width"] <= now < ends


def route_told(breaks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "keep_text": True,
        "buckets": {"30": [], "600": []},
        "breaks": breaks,
        "seen": None,
        "counted": {PREFIX_BREAKS.name: [["uuid", 2]], PREFIX_LOST.name: [["uuid", 10]]},
    }
