"""The doctor's judgements, on facts alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trivet.errors import EmbedderError, Problem
from trivet.middleware.deployment_doctor.checks import (
    check_exposure,
    check_machine,
    check_proxy,
    check_workers,
)
from trivet.middleware.deployment_doctor.checks_policies import check_calibration, check_policies
from trivet.middleware.deployment_doctor.checks_store import (
    check_clock,
    check_redis,
    check_secret,
    check_store,
)
from trivet.middleware.deployment_doctor.checks_upstreams import check_upstream, check_upstreams
from trivet.middleware.deployment_doctor.deployment import Deployment, Given, deployment_of
from trivet.middleware.deployment_doctor.facts import (
    AdminFacts,
    CalibrationFacts,
    FileFacts,
    MachineFacts,
    PolicyFacts,
    RedisFacts,
    SecretFacts,
    StoreFacts,
    UpstreamFacts,
)
from trivet.middleware.deployment_doctor.findings import (
    Finding,
    as_data,
    as_text,
    exit_code,
    fault,
    ok,
    warning,
)
from trivet.middleware.deployment_doctor.gather_policies import calibration_facts
from trivet.middleware.deployment_doctor.gather_upstreams import speaks
from trivet.middleware.running.config import DialectFamily
from trivet.middleware.semantic_tier.effective import Effective
from trivet.policies.calibration import Calibration, Fingerprint, Measured
from trivet.policies.model import TenantPolicy
from trivet.policies.semantic_model import SemanticPolicy

SECRET = FileFacts(Path("/state/secret"), 0o600)
TODAY = date(2026, 11, 30)
URL = "http://127.0.0.1:8081"


def levels(found: list[Finding]) -> list[str]:
    return [one.level for one in found]


def redis(**seen: Any) -> list[Finding]:
    return check_redis(RedisFacts(**seen), "ours")


class TestFindings:
    @pytest.mark.parametrize(
        ("found", "code"),
        [
            ([], 0),
            ([ok("a", "b")], 0),
            ([ok("a", "b"), warning("a", "b", "c")], 1),
            ([fault("a", "b", "c"), warning("a", "b", "c")], 2),
        ],
    )
    def test_the_exit_code_is_that_of_the_worst(self, found: list[Finding], code: int) -> None:
        assert exit_code(found) == code
        assert as_data(found)["exit_code"] == code

    def test_the_text_fits_80_columns_and_ends_with_the_count(self) -> None:
        long = "word " * 60
        found = [ok("a", long), warning("b", long, long), fault("c", long, long)]
        lines = as_text([*found, found[1]]).splitlines()
        assert max(map(len, lines)) < 80
        assert lines[-1] == "1 fault, 2 warnings."
        assert as_text([ok("a", "b")]).endswith("\nAll is well.")


class TestSecret:
    @pytest.mark.parametrize(
        ("origin", "kind", "level"),
        [
            ("environment", "redis", "ok"),
            ("environment", "sqlite", "ok"),
            ("file", "sqlite", "ok"),
            ("none", "sqlite", "ok"),
            ("file", "redis", "warning"),
            ("none", "redis", "warning"),
        ],
    )
    def test_machines_that_share_a_redis_need_one_in_the_environment(
        self, origin: Any, kind: Any, level: str
    ) -> None:
        (found,) = check_secret(SecretFacts(origin, SECRET), StoreFacts(kind, "x"))
        assert found.level == level

    def test_one_that_serve_would_refuse_is_a_fault(self) -> None:
        facts = SecretFacts("file", SECRET, trouble="others can read the secret: chmod 600")
        (found,) = check_secret(facts, StoreFacts("sqlite", "x"))
        assert (found.level, "chmod 600" in found.told) == ("fault", True)


class TestMarks:
    def secrets(self, marks: dict[str, float], mark: str | None = "ours") -> list[Finding]:
        found = check_redis(RedisFacts(marks=marks), mark)
        return [one for one in found if one.check == "secret"]

    @pytest.mark.parametrize(
        ("marks", "level", "words"),
        [
            ({}, "ok", "No process has used"),
            ({"ours": 5.0}, "ok", "the one that this Redis is used with"),
            ({"ours": 5.0, "old": 4000.0}, "ok", "is used with"),
            ({"ours": 9000.0, "theirs": 5.0}, "fault", "another secret than the one here"),
            ({"theirs": 5.0}, "fault", "another secret than the one here"),
            ({"ours": 5.0, "theirs": 6.0, "more": 7.0}, "fault", "3 different secrets"),
            ({"theirs": 172800.0}, "warning", "2.0 days ago"),
        ],
    )
    def test_a_secret_that_is_not_everybodys_is_found_out(
        self, marks: dict[str, float], level: str, words: str
    ) -> None:
        (found,) = self.secrets(marks)
        assert (found.level, words in found.told) == (level, True), found

    def test_without_a_secret_here_nothing_is_said(self) -> None:
        assert self.secrets({"theirs": 1.0}, None) == []


class TestStore:
    def test_memory_is_no_trouble(self) -> None:
        assert levels(check_store(StoreFacts("memory", "memory"), SecretFacts("none", SECRET))) == [
            "ok"
        ]

    @pytest.mark.parametrize("kind", ["redis", "sqlite"])
    def test_one_that_cannot_be_read_or_written_is_a_fault(self, kind: Any) -> None:
        secret = SecretFacts("environment", SECRET)
        for facts in (
            StoreFacts(kind, "x", trouble="refused: no"),
            StoreFacts(kind, "x", unwritable="readonly: no", redis=RedisFacts()),
        ):
            first, *_ = check_store(facts, secret)
            assert first.level == "fault"
            assert ": no." in first.told

    @pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o640, "warning")])
    def test_a_database_that_others_may_read_is_a_warning(self, mode: int, level: str) -> None:
        facts = StoreFacts("sqlite", "x", file=FileFacts(Path("/d"), mode), free_bytes=1 << 40)
        assert check_store(facts, SecretFacts("file", SECRET))[-1].level == level

    def test_a_disk_that_is_nearly_full_is_a_warning(self) -> None:
        facts = StoreFacts("sqlite", "x", file=FileFacts(Path("/d"), None), free_bytes=1 << 20)
        assert levels(check_store(facts, SecretFacts("file", SECRET))) == ["ok", "warning"]

    def test_a_redis_that_may_evict_purges_or_is_far_away_is_told(self) -> None:
        found = redis(evicts="allkeys-lru", round_trip_s=0.04)
        assert [one.level for one in found if one.check == "store"] == ["fault", "warning"]

    @pytest.mark.parametrize(
        ("ahead", "level"),
        [(0.2, "ok"), (-0.9, "ok"), (1.5, "warning"), (-29.0, "warning"), (31.0, "fault")],
    )
    def test_clocks_that_differ_are_told_by_how_much(self, ahead: float, level: str) -> None:
        (found,) = check_clock("clock", ahead)
        assert found.level == level
        assert f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'}" in found.told


@pytest.mark.parametrize(
    ("family", "status", "body", "spoken"),
    [
        ("openai", 400, b'{"error": {"message": "you must provide a model"}}', True),
        ("openai", 422, b'{"detail": [{"loc": ["body", "messages"]}]}', True),
        ("openai", 400, b'{"object": "error", "message": "no model"}', True),
        ("openai", 401, b'{"type": "error", "error": {"type": "authentication_error"}}', False),
        ("openai", 404, b'{"error": {"message": "no such path"}}', False),
        ("openai", 200, b'{"hello": "world"}', False),
        ("openai", 400, b"<html>Bad Request</html>", False),
        ("openai", 400, b"[]", False),
        ("anthropic", 401, b'{"type": "error", "error": {"type": "authentication_error"}}', True),
        ("anthropic", 404, b'{"type": "error", "error": {"type": "not_found_error"}}', False),
        ("anthropic", 401, b'{"error": {"message": "no key"}}', False),
    ],
)
def test_an_api_is_known_by_how_it_refuses(
    family: DialectFamily, status: int, body: bytes, spoken: bool
) -> None:
    assert speaks(family, status, body) is spoken


UPSTREAM = UpstreamFacts(
    "openai",
    "https://api.openai.com",
    ("openai", "anthropic"),
    dialects_named=False,
    statuses={"openai": 400, "anthropic": 404},
    spoken=frozenset({"openai"}),
    ahead_s=0.3,
)


class TestUpstreams:
    def test_one_of_the_two_dialects_is_enough_where_none_was_named(self) -> None:
        assert check_upstream(UPSTREAM) == [
            ok("upstream openai", "https://api.openai.com answers as openai.")
        ]

    def test_a_dialect_that_was_named_and_is_not_spoken_is_a_warning(self) -> None:
        (found,) = check_upstream(replace(UPSTREAM, dialects_named=True))
        assert (found.level, found.remedy) == ("warning", "leave anthropic out of its `dialects`")

    @pytest.mark.parametrize(
        "change",
        [
            {"trouble": "The upstream 'openai' cannot be reached: Connection refused."},
            {"spoken": frozenset()},
            {"spoken": frozenset(), "statuses": {"openai": 503, "anthropic": 503}},
            {"key_env": "KEY", "key_set": True, "statuses": {"openai": 401, "anthropic": 404}},
        ],
        ids=["not reached", "no API", "broken", "key refused"],
    )
    def test_one_that_would_answer_no_caller_is_a_fault(self, change: dict[str, Any]) -> None:
        assert "fault" in levels(check_upstream(replace(UPSTREAM, **change)))

    def test_one_that_wants_the_callers_key_says_so(self) -> None:
        seen = replace(UPSTREAM, statuses={"openai": 401, "anthropic": 404})
        (found,) = check_upstream(seen)
        assert (found.level, "callers send its key" in found.told) == ("ok", True)

    def test_a_native_api_need_speak_neither(self) -> None:
        assert levels(check_upstream(replace(UPSTREAM, native=True, spoken=frozenset()))) == ["ok"]

    def test_a_clock_that_is_off_is_a_warning(self) -> None:
        assert levels(check_upstream(replace(UPSTREAM, ahead_s=-60.0))) == ["ok", "warning"]

    def test_none_is_told(self) -> None:
        assert levels(check_upstreams(())) == ["ok"]


def calibration(mode: Effective, made: date | None = TODAY) -> Finding:
    (found,) = check_calibration(CalibrationFacts("acme", mode, made, True), TODAY)
    return found


class TestPolicies:
    def test_what_check_says_is_told_with_its_place(self) -> None:
        wrong = Problem("p.yaml", 3, 1, "exact.tttl", "is not a setting.")
        found = check_policies(PolicyFacts(problems=(wrong,), warnings=(wrong,)), TODAY)
        assert levels(found) == ["fault", "warning"]
        assert found[0].told.startswith("p.yaml:3:1: exact.tttl")

    def test_files_that_others_may_write_are_a_warning(self) -> None:
        loose = FileFacts(Path("/p/acme.yaml"), 0o664)
        found = check_policies(PolicyFacts(("acme",), loose=(loose,)), TODAY)
        assert levels(found) == ["ok", "warning"]
        assert found[1].remedy.startswith("chmod go-w /p/acme.yaml")

    def test_a_calibration_of_the_models_that_run_is_well(self) -> None:
        assert calibration(Effective("replace", "replace")).level == "ok"

    @pytest.mark.parametrize(
        ("reason", "level"),
        [
            ("other-chain", "warning"),
            ("uncalibrated", "warning"),
            ("not-certified", "warning"),
            ("embedder-missing", "fault"),
        ],
    )
    def test_one_that_serves_nothing_says_why(self, reason: str, level: str) -> None:
        found = calibration(Effective("replace", "shadow", reason, "because"))
        assert (found.level, "because" in found.told) == (level, True)

    def test_one_of_last_year_is_a_warning(self) -> None:
        found = calibration(Effective("replace", "replace"), date(2025, 11, 30))
        assert (found.level, "365 days ago" in found.told) == ("warning", True)


class TestCalibrationFacts:
    """The fingerprint of what runs is compared with the one that was measured."""

    RUNS = Fingerprint(chain="cosine", embedder="e1")

    def facts(self, runs: Fingerprint | Exception | None) -> CalibrationFacts:
        measured = Measured(pairs=100, same=50, hits=40, false_hits=0, upper_bound=0.01)
        calibration = Calibration(
            made=TODAY,
            fingerprint=self.RUNS,
            dataset="0" * 64,
            target=0.02,
            confidence=0.95,
            threshold=0.9,
            measured=measured,
        )
        semantic = SemanticPolicy(mode="replace", calibration=Path("cal.json"))
        semantic.attach(calibration)
        tenants = {"acme": TenantPolicy(tenant="acme", semantic=semantic)}

        def opened(_: SemanticPolicy) -> Fingerprint:
            if isinstance(runs, Fingerprint):
                return runs
            raise runs or AssertionError

        (found,) = calibration_facts(tenants, None if runs is None else opened)
        return found

    def test_the_same_models_serve(self) -> None:
        found = self.facts(self.RUNS)
        assert (found.effective.acts_as, found.made, found.compared) == ("replace", TODAY, True)

    def test_other_models_do_not(self) -> None:
        other = Fingerprint(chain="cosine", embedder="e2")
        assert self.facts(other).effective.reason == "other-chain"

    def test_models_that_cannot_be_opened_are_told(self) -> None:
        for error in (EmbedderError("missing", "There is no folder x."), OSError("x")):
            assert self.facts(error).effective.reason == "embedder-missing"

    def test_without_the_models_the_files_alone_are_judged(self) -> None:
        found = self.facts(None)
        assert (found.effective.acts_as, found.compared) == ("replace", False)


def deployment(admin_key: str | None = None, **config: Any) -> Deployment:
    made = deployment_of(None, Given(admin_key=admin_key), {})
    return replace(made, config=made.config.model_copy(update=config))


class TestTheProxy:
    def test_libraries_that_the_config_needs_are_named_with_their_extra(self) -> None:
        found = check_machine(MachineFacts("1", "3.11", (("store.encrypt", "encryption"),)))
        assert levels(found) == ["ok", "fault"]
        assert found[1].remedy == "pip install 'trivet[encryption]'"

    @pytest.mark.parametrize(("workers", "expected"), [(1, []), (2, ["warning"])])
    def test_workers_with_a_memory_each_are_a_warning(
        self, workers: int, expected: list[str]
    ) -> None:
        made = deployment()
        memory = made.config.store.model_copy(update={"url": "memory"})
        config = made.config.model_copy(update={"workers": workers, "store": memory})
        assert levels(check_workers(replace(made, config=config))) == expected

    @pytest.mark.parametrize(
        ("host", "key", "level"),
        [
            ("127.0.0.1", None, "ok"),
            ("localhost", None, "ok"),
            ("::1", None, "ok"),
            ("0.0.0.0", None, "warning"),
            ("0.0.0.0", "k" * 32, "ok"),
            ("127.0.0.1", "short", "fault"),
        ],
    )
    def test_an_admin_port_that_others_reach_wants_a_key(
        self, host: str, key: str | None, level: str
    ) -> None:
        assert levels(check_exposure(deployment(key, admin_host=host))) == [level]

    def test_one_that_is_ready_with_all_its_parts_is_well(self) -> None:
        parts = (("server", "up", ""), ("prefix:a", "isolated", ""))
        admin = AdminFacts(URL, components=parts, ready=True)
        assert levels(check_proxy(admin, named=True)) == ["ok"]

    @pytest.mark.parametrize("detail", ["is caching on?", "is caching on.", "is caching on"])
    def test_a_sentence_ends_once(self, detail: str) -> None:
        admin = AdminFacts(URL, components=(("prefix:a", "unverified", detail),), ready=True)
        (found,) = check_proxy(admin, named=True)
        end = "?" if detail.endswith("?") else "."
        assert found.told == f"prefix:a is unverified: is caching on{end}"

    def test_each_part_in_trouble_is_told(self) -> None:
        parts = (("store:redis", "down", "refused: no"), ("semantic", "loading", ""))
        found = check_proxy(AdminFacts(URL, components=parts, ready=False), named=True)
        assert levels(found) == ["fault", "warning", "warning"]
        assert "store:redis is down: refused: no." in found[1].told

    @pytest.mark.parametrize(("named", "level"), [(True, "fault"), (False, "ok")])
    def test_one_that_does_not_run_is_a_fault_where_it_was_named(
        self, named: bool, level: str
    ) -> None:
        assert levels(check_proxy(AdminFacts(URL, trouble="no"), named=named)) == [level]

    def test_an_admin_api_that_is_open_to_anybody_is_a_fault(self) -> None:
        anybody = AdminFacts(URL, open_to="anybody", ready=True)
        assert levels(check_proxy(anybody, named=True)) == ["fault", "ok"]
        loopback = AdminFacts(URL, open_to="loopback", ready=True)
        assert levels(check_proxy(loopback, named=True)) == ["ok"]

    def test_every_finding_but_a_good_one_says_what_to_do(self) -> None:
        parts = (("store:redis", "down", "refused: no"), ("semantic", "loading", ""))
        admin = AdminFacts(URL, refused_key="401", open_to="anybody", components=parts)
        found = [
            *check_proxy(admin, named=True),
            *redis(evicts="allkeys-lru", round_trip_s=1.0, ahead_s=5.0, marks={"x": 1.0}),
            *check_upstream(replace(UPSTREAM, spoken=frozenset(), ahead_s=90.0)),
        ]
        assert len(found) >= 9
        assert all(one.remedy for one in found if one.level != "ok")
