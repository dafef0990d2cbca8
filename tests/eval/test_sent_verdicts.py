"""A person's labels of drawn hits go to the proxy: each until it was taken, and no other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_queue_files import queue, queued
from traffic_rows import row, write

from trivet.cli import main
from trivet.eval.queue_files import read_queues
from trivet.eval.verdicts import SentFile

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def counts(body: dict[str, Any]) -> tuple[int, Any]:
    """Every verdict counts."""
    heard = [
        {"id": one["id"], "outcome": "counted", "removed": not one["same"]}
        for one in body["verdicts"]
    ]
    return 200, {"tenant": body["tenant"], "verdicts": heard}


def each(outcome: str) -> Answer:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        _, told = counts(body)
        return 200, {"verdicts": [{**one, "outcome": outcome} for one in told["verdicts"]]}

    return answer


class Admin:
    """An admin port that answers what a test says."""

    def __init__(self) -> None:
        self.answer: Answer = counts
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        admin = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert self.path == "/trivet/verdicts"
                admin.bodies.append(body)
                admin.keys.append(self.headers["authorization"])
                status, told = admin.answer(body)
                raw = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def said(self) -> list[tuple[str, bool]]:
        return [(one["id"], one["same"]) for body in self.bodies for one in body["verdicts"]]


@pytest.fixture
def admin() -> Iterator[Admin]:
    made = Admin()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def drawn(folder: Path, *texts: str, **more: Any) -> Path:
    """A queue of hits, the draw of each named as its question."""
    return queue(
        folder, *(queued(at, text, f"{text}?", draw=text, **more) for at, text in enumerate(texts))
    )


def run(path: Path, *arguments: object, keys: str = "") -> Result:
    out = path.with_name("pairs.jsonl")
    words = ["eval", "label", path, "-o", out, *arguments]
    return CliRunner().invoke(main, [str(word) for word in words], input=keys)


def test_what_was_said_is_sent_with_the_key_and_told(tmp_path: Path, admin: Admin) -> None:
    path = drawn(tmp_path, "one", "two", "three")
    result = run(path, "--admin", admin.url, "--admin-key", "k", keys="sdq")
    assert result.exit_code == 0, result.output
    assert admin.said == [("one", True), ("two", False)]
    assert admin.bodies[0]["tenant"] == "acme"
    assert admin.keys == ["Bearer k"]
    assert f"2 verdicts sent to {admin.url}: 2 counted.\n" in result.output


def test_what_was_taken_is_not_sent_again(tmp_path: Path, admin: Admin) -> None:
    path = drawn(tmp_path, "one", "two")
    run(path, "--admin", admin.url, keys="sq")
    run(path, "--admin", admin.url, keys="d")
    assert admin.said == [("one", True), ("two", False)]
    result = run(path, "--admin", admin.url)
    assert "No verdict is left to send." in result.output
    assert len(admin.bodies) == 2
    assert (tmp_path / "pairs.jsonl.sent").stat().st_mode & 0o777 == 0o600


def test_labels_that_were_made_before_are_sent_too(tmp_path: Path, admin: Admin) -> None:
    path = drawn(tmp_path, "one", "two")
    run(path, keys="sd")
    result = run(path, "--admin", admin.url, "--count", 0)
    assert result.exit_code == 0, result.output
    assert admin.said == [("one", True), ("two", False)]


def test_a_session_that_was_cut_off_goes_on_where_it_was(tmp_path: Path, admin: Admin) -> None:
    names = [f"n{number}" for number in range(120)]
    path = drawn(tmp_path, *names)
    run(path, "--count", 120, keys="s" * 120)

    def second_fails(body: dict[str, Any]) -> tuple[int, Any]:
        return counts(body) if len(admin.bodies) != 2 else (503, {"error": {"message": "later"}})

    admin.answer = second_fails
    result = run(path, "--admin", admin.url)
    assert result.exit_code == 1
    assert "HTTP 503" in result.stderr
    admin.bodies.clear()
    admin.answer = counts
    assert "70 verdicts sent" in run(path, "--admin", admin.url).output
    assert [name for name, _ in admin.said] == names[50:]


def test_a_pair_that_was_drawn_twice_answers_both_draws(tmp_path: Path, admin: Admin) -> None:
    path = queue(tmp_path, queued(1, draw="first"), queued(2, draw="second"))
    run(path, "--admin", admin.url, keys="d")
    assert admin.said == [("first", False), ("second", False)]


def test_what_the_person_is_unsure_of_is_no_verdict(tmp_path: Path, admin: Admin) -> None:
    result = run(drawn(tmp_path, "one", "two"), "--admin", admin.url, keys="?s")
    assert admin.said == [("two", True)]
    assert "(1 hit with `?` left out): 1 counted." in result.output


def test_what_another_judge_judges_is_not_sent(tmp_path: Path, admin: Admin) -> None:
    path = queue(tmp_path, queued(1, judge="embedder", draw=""))
    result = run(path, "--admin", admin.url, keys="s")
    assert result.exit_code == 0
    assert "its judge is not `person`" in result.stderr
    assert admin.bodies == []


def test_each_tenant_is_told_of_its_own(tmp_path: Path, admin: Admin) -> None:
    one = queue(tmp_path, queued(1, "a", draw="A"))
    other = queue(tmp_path, queued(2, "b", draw="B", tenant="beta"), name="beta.jsonl")
    run(one, other, "--admin", admin.url, keys="ss")
    assert [(body["tenant"], len(body["verdicts"])) for body in admin.bodies] == [
        ("acme", 1),
        ("beta", 1),
    ]


@pytest.mark.parametrize(
    ("outcome", "told", "again"),
    [
        ("repeated", "1 counted before.", False),
        ("expired", "1 too old: not counted.", False),
        ("recalibrated", "1 of hits under an earlier calibration: not counted.", False),
        ("unknown", "1 of hits that this proxy does not know: not counted", True),
    ],
)
def test_what_did_not_count_is_told(
    tmp_path: Path, admin: Admin, outcome: str, told: str, again: bool
) -> None:
    path = drawn(tmp_path, "one")
    admin.answer = each(outcome)
    assert told in run(path, "--admin", admin.url, keys="s").output
    run(path, "--admin", admin.url)
    assert len(admin.bodies) == 1 + again


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (401, {}, "Give --admin-key, or set TRIVET_ADMIN_KEY."),
        (404, {"error": {"message": "No policy declares"}}, "No policy declares"),
        (200, [], "check the port"),
        (200, {"verdicts": [{"id": "one"}]}, "check the port"),
        (200, {"verdicts": [{"id": "two", "outcome": "counted"}]}, "check the port"),
        (200, {"verdicts": [{"id": "one", "outcome": "fine"}]}, "check the port"),
    ],
)
def test_a_proxy_that_says_no_and_what_is_no_proxy_is_a_sentence(
    tmp_path: Path, admin: Admin, status: int, answer: Any, told: str
) -> None:
    path = drawn(tmp_path, "one")
    admin.answer = lambda body: (status, answer)
    result = run(path, "--admin", admin.url, keys="s")
    assert result.exit_code == 1
    assert told in result.stderr
    admin.answer = counts
    assert "1 counted." in run(path, "--admin", admin.url).output


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "http://127.0.0.1:x", "http://127.0.0.1:1"])
def test_a_proxy_that_is_not_there_is_a_sentence_and_the_labels_are_kept(
    tmp_path: Path, url: str
) -> None:
    path = drawn(tmp_path, "one")
    result = run(path, "--admin", url, keys="s")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len((tmp_path / "pairs.jsonl").read_text().splitlines()) == 1


def test_recorded_traffic_has_nothing_to_send(tmp_path: Path) -> None:
    log = write(tmp_path / "log", [row(0, "ab")])
    result = run(log, "--admin", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "--admin goes with the proxy's label queue." in result.stderr


def test_a_line_that_was_cut_off_is_sent_again_and_breaks_no_other(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    SentFile(path).add(["one", "two"])
    path.write_bytes(path.read_bytes()[:-3])
    again = SentFile(path)
    assert "one" in again.draws
    assert "two" not in again.draws
    again.add(["two"])
    assert {"one", "two"} <= SentFile(path).draws


def test_a_hit_that_waits_is_of_its_pair(tmp_path: Path) -> None:
    found = read_queues([queue(tmp_path, queued(1, draw="A"), queued(2, "other"))])
    (waiting,) = found.waiting
    assert (waiting.tenant, waiting.draw, waiting.pair) == ("acme", "A", found.pairs[0].id)
