"""Files that are written from code: current, and of one piece with what Trivet counts and reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from generate.alerts import ALERTS
from generate.dashboard import dashboard, unshown
from generate.fields import undescribed
from generate.files import FILES, ROOT
from generate.promql import grew, increase, rate, selected
from trivet.metric_names import METRICS, OWN_SECONDS, REQUESTS
from trivet.middleware.running.config import ServerConfig
from trivet.policies.model import TenantPolicy

LABELS = {metric.name: set(metric.labels) for metric in METRICS}
RULES = ROOT / "deploy" / "alerts" / "trivet.yaml"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed"
)


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_current(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == FILES[name](), "run: python -m generate"


def test_every_setting_is_explained() -> None:
    assert undescribed(TenantPolicy) == []
    assert undescribed(ServerConfig) == []


def test_every_metric_is_on_the_dashboard() -> None:
    text = dashboard()
    assert [metric.name for metric in METRICS if metric.name not in text] == []


def test_a_metric_that_no_row_has_is_shown_last() -> None:
    unplaced = unshown()
    titles = [panel["title"] for panel in json.loads(dashboard())["panels"]]
    assert titles[len(titles) - len(unplaced) :] == [metric.name for metric in unplaced]


def queries() -> list[str]:
    panels = json.loads(dashboard())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = json.loads(dashboard())["panels"]
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_each_rule_has_the_members_that_prometheus_knows() -> None:
    for rule in rules():
        kind = {"record"} if "record" in rule else {"alert", "for", "labels", "annotations"}
        assert set(rule) == {"expr", *kind}


def test_queries_are_about_metrics_and_labels_that_there_are() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for expr in [*queries(), *(rule["expr"] for rule in rules())]:
        for name in re.findall(r"\btrivet[:_][a-z_:0-9]+", expr):
            base = re.sub(r"_(bucket|count)$", "", name)
            assert base in LABELS or name in recorded
        for name, matchers in re.findall(r"(\btrivet_\w+)\{([^}]*)\}", expr):
            assert set(re.findall(r"(\w+)=", matchers)) <= LABELS[name]


@pytest.mark.parametrize("labels", [{"tenants": "a"}, {"kind": "~.*"}])
def test_a_label_that_a_metric_does_not_have_is_refused(labels: dict[str, str]) -> None:
    for write in (selected, partial(rate, by=()), partial(increase, by=(), window="5m")):
        with pytest.raises(ValueError, match="has no label"):
            write(REQUESTS, **labels)
    with pytest.raises(ValueError, match="has no label"):
        grew(REQUESTS, tuple(labels), "5m", 0)


def test_a_histogram_is_counted_or_cut_into_buckets() -> None:
    assert rate(OWN_SECONDS, (), "5m") == "sum (rate(trivet_own_seconds_count[5m]))"
    by_bucket = "sum by (le) (rate(trivet_own_seconds_bucket[5m]))"
    assert rate(OWN_SECONDS, ("le",), "5m") == by_bucket


def test_what_an_alert_says_to_do_is_in_the_docs() -> None:
    for alert in ALERTS:
        for target in re.findall(r"\]\(([^)#]+)", alert.todo):
            assert (ROOT / "docs" / "reference" / target).exists(), alert.name


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_promtool_takes_the_rules_and_the_dashboards_queries(tmp_path: Path) -> None:
    recorded = [
        {"record": f"panel:{place}", "expr": query.replace("$__rate_interval", "5m")}
        for place, query in enumerate(queries())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    assert f"{len(recorded)} rules found" in promtool("check", "rules", str(file))
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(RULES))


def series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}


FIRING = [
    ("TrivetStoreDown", "trivet_store_up{store='redis'}", "0x20", True),
    ("TrivetStoreDown", "trivet_store_up{store='redis'}", "1x20", False),
    ("TrivetSemanticClosed", "trivet_semantic_open{tenant='a',intent='x'}", "0x20", True),
    ("TrivetPrefixLeaks", "trivet_prefix_leaks{replica='r'}", "1x20", True),
    ("TrivetPrefixLeaks", "trivet_prefix_isolated{replica='r'}", "0x20", False),
    ("TrivetPrefixUnverified", "trivet_prefix_isolated{replica='r'}", "0x20", True),
    ("TrivetPrefixUnverified", "trivet_prefix_isolated{replica='r'}", "1x20", False),
    (
        "TrivetPrefixCosts",
        "trivet_money_usd_total{tenant='a',route='r',post='prefix-writes'}",
        "0+0.01x200",
        True,
    ),
    (
        "TrivetPrefixCosts",
        "trivet_money_usd_total{tenant='a',route='r',post='saved-prefix'}",
        "0+0.01x200",
        False,
    ),
    ("TrivetFlooded", "trivet_flooded", "1x20", True),
    ("TrivetPolicyRefused", "trivet_policy_reloads_total{result='refused'}", "0 0 1x18", True),
    ("TrivetPolicyRefused", "trivet_policy_reloads_total{result='refused'}", "_x4 1x16", True),
    ("TrivetPolicyRefused", "trivet_policy_reloads_total{result='ok'}", "0 0 1x18", False),
    ("TrivetEntriesRejected", "trivet_entries_rejected_total{reason='mac'}", "_x4 50x16", True),
    ("TrivetEntriesRejected", "trivet_entries_rejected_total{reason='mac'}", "8x30", False),
    ("TrivetServerErrors", "trivet_requests_total{status='503'}", "0+10x20", True),
    ("TrivetServerErrors", "trivet_requests_total{status='200'}", "0+10x20", False),
]


@needs_promtool
def test_alerts_fire_by_what_they_are_about_and_by_nothing_else(tmp_path: Path) -> None:
    cases = [
        {
            "interval": "1m",
            "input_series": [series(name, values)],
            "promql_expr_test": [
                {
                    "expr": f"count(ALERTS{{alertname='{alert}',alertstate='firing'}})",
                    "eval_time": "110m" if alert == "TrivetPrefixCosts" else "14m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for alert, name, values, fires in FIRING
    ]
    file = tmp_path / "firing.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": cases}))
    promtool("test", "rules", str(file))
