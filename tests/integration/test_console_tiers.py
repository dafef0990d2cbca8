"""The console's semantic and prefix pages in a browser, over a proxy with real traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_tiers_rig import (
    HOSTILE,
    Look,
    console_proxy,
    fleet_call,
    hit,
    labels,
    looking,
    message,
    needs_chromium,
    page,
    steady,
    teach,
)
from proxy import Proxy, request
from semantic_rig import asked, learns_something, models, similar, topics
from trouble_rig import until

pytestmark = needs_chromium

POST = {"content-type": "application/json", "x-trivet-console": "1"}


class Shown:
    """The proxy, where it keeps its state, and a browser that looks at its console."""

    def __init__(self, proxy: Proxy, folder: Path, look: Look) -> None:
        self.proxy, self.folder, self.look = proxy, folder, look


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("console")
    with models() as (_, server), console_proxy(folder, server) as proxy:
        for tenant, topic in zip(("acme", "initech"), topics(), strict=False):
            teach(proxy, topic, tenant)
            hit(proxy, topic, tenant=tenant)
        proxy.chat(asked(topics()[0]), key="sk-globex")
        for text in (f"Cancel my order {HOSTILE}", "What is my balance?"):
            proxy.chat(text, key="sk-acme")
            proxy.chat(text, key="sk-globex")
        for number in range(6):
            assert steady(proxy, number).status == 200
        for tenant in ("acme", "globex"):
            for number in range(6):
                assert message(proxy, f"15:09:{20 + number}", tenant).status == 200
        for number in range(4):
            assert fleet_call(proxy, number).status == 200
        until(lambda: broken(proxy, "acme") and broken(proxy, "globex"), "breaks are told", 20)
        until(lambda: rows(proxy, "initech")[0]["drawn"], "a hit is drawn for a person", 20)
        with looking(proxy) as look:
            yield Shown(proxy, folder, look)


def rows(proxy: Proxy, tenant: str, kind: str = "hits") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page(proxy, f"semantic/rows?tenant={tenant}&kind={kind}")["rows"]
    return found


def calls(proxy: Proxy) -> int:
    told = page(proxy, "prefix/route?tenant=acme&route=support")
    return int(told["all"]["calls"])


def broken(proxy: Proxy, tenant: str) -> bool:
    told = page(proxy, f"prefix/route?tenant={tenant}&route=support")
    return any(one["cause"] == "timestamp" for one in told["breaks"])


def test_the_semantic_page_shows_both_texts_and_runs_none_of_them(shown: Shown) -> None:
    look = shown.look
    look.at("semantic?tenant=acme")
    text = look.text
    assert f"How does {topics()[0]} work in practice?" in text
    assert f"How can {topics()[0]} work in practice?" in text
    assert "n = 150 of 400 pairs, 0 false" in text
    assert "target 2.0 %" in text
    assert HOSTILE in text
    assert "intent-action" in text
    assert look.page.evaluate("window.hurt") is None
    assert look.troubles == []


def test_a_tenant_whose_texts_are_not_kept_is_shown_without_them(shown: Shown) -> None:
    look = shown.look
    look.at("semantic?tenant=globex")
    assert "store_text" in look.text
    assert "not kept" in look.text
    assert "balance" not in look.page.content()
    assert all(one["asked"] is None for one in rows(shown.proxy, "globex", "refused"))
    look.at("prefix?tenant=globex&route=support")
    assert "keep_text" in look.text
    assert "system, character" in look.text
    assert "You help people" not in look.page.content()
    assert "You help people" not in json.dumps(
        page(shown.proxy, "prefix/route?tenant=globex&route=support")
    )


def test_wrong_takes_the_answer_out_and_is_kept_as_a_label(shown: Shown) -> None:
    look, topic = shown.look, topics()[3]
    teach(shown.proxy, topic)
    hit(shown.proxy, topic)
    look.at("semantic?tenant=acme")
    card = look.page.locator("article.hit").first
    card.get_by_role("button", name="Wrong").click()
    card.get_by_text("is served for no similar question any more").wait_for()
    assert card.get_by_role("button", name="Wrong").count() == 0
    assert not similar(shown.proxy, asked(topic, "would"))
    assert labels(shown.folder, "acme")[-1]["same"] is False
    look.at("semantic?tenant=acme")
    assert "Called wrong." in look.page.locator("article.hit").first.inner_text()
    assert look.troubles == []


def test_right_on_a_hit_that_was_drawn_counts_in_the_bound(shown: Shown) -> None:
    look = shown.look
    before = page(shown.proxy, "semantic/tenant?tenant=initech")
    assert (before["audits"], before["bound"]) == (0, None)
    look.at("semantic?tenant=initech")
    card = look.page.locator("article.hit").first
    card.get_by_role("button", name="Right").click()
    card.get_by_text("It counts in the bound").wait_for()
    after = page(shown.proxy, "semantic/tenant?tenant=initech")
    assert (after["audits"], after["false_hits"]) == (1, 0)
    assert similar(shown.proxy, asked(topics()[1], "would"), "initech")


def test_no_verdict_reaches_another_tenant_or_comes_from_another_page(shown: Shown) -> None:
    row = rows(shown.proxy, "initech")[0]["id"]
    url = f"{shown.proxy.admin}/trivet/ui/api/semantic/verdict"
    told = json.dumps({"tenant": "acme", "row": row, "verdict": "wrong"}).encode()
    assert request("POST", url, told, POST, 30).status == 404
    evil = {**POST, "origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    body = json.dumps({"tenant": "initech", "row": row, "verdict": "wrong"}).encode()
    assert request("POST", url, body, evil, 30).status == 403


def test_the_prefix_page_shows_where_two_prompts_part(shown: Shown) -> None:
    look = shown.look
    look.at("prefix?tenant=acme&route=support")
    card = look.page.locator("article.break", has_text="timestamp").first
    assert "system, character" in card.inner_text()
    assert card.locator("del").count() >= 1
    assert card.locator("ins").count() >= 1
    assert HOSTILE in card.inner_text()
    assert look.page.evaluate("window.hurt") is None
    bar = card.locator("figure.prompt-bar svg")
    assert bar.locator("rect.part").count() >= 3
    assert bar.locator("g.broken").count() == 1
    assert bar.locator("g.breakpoint").count() >= 1
    look.page.get_by_role("button", name="24 h", exact=True).click()
    look.page.get_by_text("each 10 minutes").wait_for()
    assert look.troubles == []


def test_the_prefix_page_shows_the_replicas(shown: Shown) -> None:
    (upstream,) = page(shown.proxy, "prefix/replicas")["upstreams"]
    assert upstream["upstream"] == "fleet"
    assert sum(sum(one["requests"].values()) for one in upstream["replicas"]) == 4
    assert any(one["routed_blocks"][0] > 0 for one in upstream["replicas"])
    shown.look.at("prefix")
    assert all(one["replica"] in shown.look.text for one in upstream["replicas"])


@pytest.mark.parametrize("path", ["semantic?tenant=acme", "prefix?tenant=acme&route=support"])
def test_nothing_is_wider_than_a_phone(shown: Shown, path: str) -> None:
    shown.look.page.set_viewport_size({"width": 390, "height": 800})
    try:
        shown.look.at(path)
        assert shown.look.page.evaluate("document.documentElement.scrollWidth") == 390
    finally:
        shown.look.page.set_viewport_size({"width": 1280, "height": 900})


def test_a_tenant_that_is_not_there_is_said_to_be_none(shown: Shown) -> None:
    reply = shown.proxy.get("/trivet/ui/api/semantic/tenant?tenant=nobody", admin=True)
    assert reply.status == 404
    shown.look.at("semantic?tenant=nobody", waiting=".empty")
    assert "No policy declares the tenant 'nobody'" in shown.look.text


def test_a_purged_tenant_leaves_no_text_in_the_console(shown: Shown) -> None:
    body = json.dumps({"tenant": "acme"}).encode()
    kind = {"content-type": "application/json"}
    url = f"{shown.proxy.admin}/trivet/purge"
    assert request("POST", url, body, kind, 30).status == 200
    assert rows(shown.proxy, "acme") == []
    assert rows(shown.proxy, "acme", "refused") == []
    gone = shown.proxy.get("/trivet/ui/api/prefix/route?tenant=acme&route=support", admin=True)
    assert gone.status == 404


def test_two_workers_are_shown_as_one(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'cache.sqlite'}"
    marks = ("?" * number for number in range(200))
    with models() as (_, server), console_proxy(tmp_path, server, workers=2, store=store) as proxy:
        topic = learns_something(proxy)
        until(
            lambda: (
                proxy.chat(asked(topic, "can") + next(marks), key="sk-acme").status == 200
                and len({str(one["id"]).split("-")[0] for one in rows(proxy, "acme")}) == 2
            ),
            "both workers have served it",
            20,
        )
        for number in range(8):
            steady(proxy, number)
        until(lambda: page(proxy, "prefix")["workers"] == 2, "both workers tell", 10)
        until(lambda: calls(proxy) == 8, "both workers' calls are counted", 10)
        assert page(proxy, "semantic")["workers"] == 2
        ours = rows(proxy, "acme")
        url = f"{proxy.admin}/trivet/ui/api/semantic/verdict"
        body = json.dumps({"tenant": "acme", "row": ours[-1]["id"], "verdict": "wrong"}).encode()
        reply = request("POST", url, body, POST, 30)
        assert (reply.status, reply.json["removed"]) == (200, True)
        assert request("POST", url, body, POST, 30).status == 409
        until(lambda: not similar(proxy, asked(topic, "should")), "it is served no more", 10)
