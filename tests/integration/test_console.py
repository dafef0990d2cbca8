"""The console's shell, overview, tenants and explain pages in a browser, over two workers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_tiers_rig import Look, looking, needs_chromium
from playwright.sync_api import Page
from proxy import Proxy, request, serving
from trouble_rig import until

pytestmark = needs_chromium

KEY = "console-admin"
HOSTILE = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
ACME = f"""tenant: acme
credentials:
  - sha256: {hashlib.sha256(b"sk-acme").hexdigest()}
versions: {{prompt: "7"}}
limits: {{entries: 50}}
"""
SAME = 4
"""Times that each question is asked."""


class Console:
    """The proxy, and a browser that is logged in to it."""

    def __init__(self, proxy: Proxy, look: Look) -> None:
        self.proxy, self.look = proxy, look

    @property
    def page(self) -> Page:
        return self.look.page

    def at(self, path: str) -> str:
        """The text of a page of the console, drawn."""
        self.look.at(path)
        return self.look.text


def told(proxy: Proxy, path: str) -> Any:
    headers = {"authorization": f"Bearer {KEY}"}
    reply = request("GET", f"{proxy.admin}/trivet/ui/api/{path}", None, headers, 30)
    assert reply.status == 200, reply.body
    return reply.json


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder: Path = tmp_path_factory.mktemp("policies")
    (folder / "acme.yaml").write_text(ACME)
    (folder / "quiet.yaml").write_text("tenant: quiet\n")
    arguments = ("--workers", "2", "--policies", str(folder))
    with serving(None, *arguments, store="sqlite", env={"TRIVET_ADMIN_KEY": KEY}) as proxy:
        for number in range(SAME):
            for text in ("One", "Two", HOSTILE):
                reply = proxy.chat(text, key="sk-acme", trivet_route="support")
                assert (reply.status, bool(number)) == (200, bool(reply.exact.get("hit")))
        assert proxy.chat("Bad", model="mock+status=503", key="sk-acme").status == 503
        until(lambda: told(proxy, "overview")["total"]["requests"] == 13, "13 are counted", 20)
        with looking(proxy) as look:
            log_in(proxy, look)
            yield Console(proxy, look)


def log_in(proxy: Proxy, look: Look) -> None:
    look.page.goto(f"{proxy.admin}/trivet/ui/overview")
    look.page.fill("#key", "wrong")
    look.page.click("text=Log in >> nth=-1")
    look.page.wait_for_selector("text=That is not the admin key.")
    look.troubles.clear()  # The browser notes the 401.
    look.page.fill("#key", KEY)
    look.page.keyboard.press("Enter")
    look.page.wait_for_selector(".figures")


def test_the_overview_counts_what_all_workers_answered(console: Console) -> None:
    text = console.at("overview")
    assert "9 of 13 that a cache may answer" in text
    assert "Of the last 13 requests 1 failed." in text
    assert "2 of 2 ready" in text
    assert console.look.troubles == []


def test_the_overview_is_live(console: Console) -> None:
    console.at("overview")
    console.proxy.chat("Three", key="sk-acme")
    console.page.wait_for_selector(".figure:first-child dd:text-is('14')", timeout=20_000)
    assert console.page.inner_text("#live").startswith("Live")


def test_a_range_is_chosen_and_stays_in_the_address(console: Console) -> None:
    console.at("overview")
    console.page.click("text=6 h")
    console.page.wait_for_selector("text=Over the last 6 h.")
    assert console.page.url.endswith("?range=6h")
    assert console.page.get_attribute("text=6 h", "aria-pressed") == "true"


def test_a_chart_is_read_with_the_arrow_keys(console: Console) -> None:
    console.at("overview")
    console.page.focus(".chart svg")
    console.page.keyboard.press("ArrowLeft")
    assert " to " in console.page.inner_text(".chart .tip")
    console.page.keyboard.press("Escape")
    assert not console.page.is_visible(".chart .tip")


def test_a_tenant_is_shown_with_its_policy_and_what_it_holds(console: Console) -> None:
    console.at("tenants")
    console.page.click("button.link:text('acme')")
    console.page.wait_for_selector("text=Quotas and what is used")
    text = console.look.text
    assert "versions.prompt" in text
    assert "limits.entries" in text
    assert "Entries in sqlite" in text
    assert hashlib.sha256(b"sk-acme").hexdigest() not in console.page.content()


def test_a_pasted_policy_is_checked_and_compared(console: Console) -> None:
    console.at("tenants?tenant=acme")
    console.page.fill("#policy", ACME.replace('"7"', '"8"') + "exact: {ttl: 2h}\n")
    console.page.click("button:text-is('Check')")
    console.page.wait_for_selector("text=The policy is fine.")
    shown = console.page.inner_text(".diff").split()
    assert "7200" in shown
    assert shown[shown.index("versions.prompt") + 1 :][:2] == ["7", "8"]


def test_a_wrong_policy_is_told_by_line_and_leads_there(console: Console) -> None:
    console.at("tenants")
    console.page.fill("#policy", f"{ACME}exact:\n  tll: 1h\nname: '{HOSTILE}'\n")
    console.page.click("button:text-is('Check')")
    console.page.click("text=line 7, column 3")
    assert console.page.evaluate("getSelection().toString()") == "  tll: 1h"
    assert console.page.evaluate("window.hurt") is None


def test_a_pasted_request_passes_the_tiers_without_being_run(console: Console) -> None:
    console.at("explain")
    console.page.fill(
        "#request",
        '{"model": "mock", "temperature": 0, "user": "u", "messages": [{"role": "user", "content": '
        f'"{HOSTILE}"}}]}}',
    )
    console.page.select_option("#tenant", "acme")
    console.page.click("button:text-is('Explain')")
    console.page.wait_for_selector("text=In the key:")
    for summary in console.page.query_selector_all("summary"):
        summary.click()
    text = console.look.text
    assert "acme (chosen on this page)" in text
    assert "prompt=7 (policy)" in text
    assert "says who asks" in text
    assert "takes no part: off" in text
    assert console.page.evaluate("window.hurt") is None


def test_a_wrong_request_is_told_in_words(console: Console) -> None:
    console.at("explain")
    console.page.fill("#request", "{")
    console.page.click("button:text-is('Explain')")
    console.page.wait_for_selector(".notice.bad")
    assert "JSON" in console.page.inner_text(".notice.bad")
    console.look.troubles.clear()  # The browser notes the 400.


def test_a_recent_request_is_picked_and_its_way_shown(console: Console) -> None:
    console.at("explain?outcome=failed")
    assert console.page.locator("tbody tr").count() == 1
    console.page.click("tbody button.link")
    text = console.page.inner_text(".way")
    assert "503" in text
    assert "mock+status=503" in text
    address = console.page.url
    assert "?id=" in address
    console.page.reload()
    console.page.wait_for_selector(".way")
    assert "mock+status=503" in console.page.inner_text(".way")


def test_ten_thousand_rows_draw_as_fifty(console: Console) -> None:
    console.at("explain")
    counted = console.page.evaluate(
        """async () => {
          const { table } = await import("/trivet/ui/static/table.js");
          const rows = Array.from({ length: 10000 }, (_, at) => ({ at }));
          const at = (row) => row.at;
          const columns = [{ name: "At", number: true, cell: at, by: at }];
          const node = table({ columns, rows, caption: "Rows" });
          const cells = () => [...node.querySelectorAll("td")].map((cell) => cell.textContent);
          const seen = () => [cells().length, cells()[0]];
          const first = seen();
          node.querySelector(".pager button:last-child").click();
          const second = seen();
          node.querySelector(".sort").click();
          return [first, second, seen()];
        }"""
    )
    assert counted == [[50, "0"], [50, "50"], [50, "9999"]]


@pytest.mark.parametrize("path", ["overview", "tenants", "tenants?tenant=acme", "explain"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_each_page_without_scrolling_sideways(
    console: Console, path: str, scheme: Any
) -> None:
    console.page.set_viewport_size({"width": 390, "height": 800})
    console.page.emulate_media(color_scheme=scheme)
    try:
        console.at(path)
        assert console.page.evaluate("document.documentElement.scrollWidth") == 390
        assert console.look.troubles == []
    finally:
        console.page.set_viewport_size({"width": 1280, "height": 900})


def test_entries_are_purged_after_a_second_word(console: Console) -> None:
    console.at("tenants?tenant=acme")
    console.page.click("text=Purge all entries")
    console.page.click("button:text-is('Purge')")
    console.page.wait_for_selector("text=entries purged")
    reply = console.proxy.chat("One", key="sk-acme", trivet_route="support")
    assert "hit" not in reply.exact


def test_a_session_that_ended_leads_to_the_login(console: Console) -> None:
    console.at("tenants")
    console.page.context.clear_cookies()
    console.page.wait_for_selector("text=The session has ended.", timeout=20_000)
    console.look.troubles.clear()  # The browser notes the 401.
    console.page.fill("#key", KEY)
    console.page.keyboard.press("Enter")
    console.page.wait_for_selector("text=Check a policy")
    console.page.click("text=Log out")
    console.page.wait_for_selector("text=Admin key")
    console.page.goto(f"{console.proxy.admin}/trivet/ui/overview")
    console.page.wait_for_selector("#key")
