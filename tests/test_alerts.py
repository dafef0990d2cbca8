"""The alert rules that are shipped: whole, and about metrics and labels that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from trivet.metric_names import METRICS

FILE = Path(__file__).parent.parent / "deploy" / "alerts" / "prefix.yaml"
LABELS = {metric.name: set(metric.labels) for metric in METRICS}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]


def test_each_rule_has_the_members_that_prometheus_knows() -> None:
    for rule in rules():
        kind = {"record"} if "record" in rule else {"alert", "for", "labels", "annotations"}
        assert set(rule) == {"expr", *kind}
        if "alert" in rule:
            assert re.fullmatch(r"\d+[smhd]", rule["for"])


def test_every_metric_is_there_with_its_labels() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        expr = rule["expr"]
        assert expr.count("(") == expr.count(")")
        for name in re.findall(r"\btrivet[:_][a-z_:0-9]+", expr):
            assert name in LABELS or name in recorded
        for name, matchers in re.findall(r"(\btrivet_\w+)\{([^}]*)\}", expr):
            assert set(re.findall(r"(\w+)=", matchers)) <= LABELS[name]
        for labels in re.findall(r"by \(([^)]*)\)", expr):
            used = re.findall(r"\btrivet_\w+", expr)
            assert all(set(labels.split(", ")) <= LABELS[name] for name in used)
