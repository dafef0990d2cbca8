"""A calibration keeps the weights of a fitted chain, and takes no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.errors import ConfigError
from trivet.policies.calibration import Calibration, load_calibration

WEIGHTS: dict[str, Any] = {
    "features": "few",
    "pairs": 240,
    "intercept": -0.1,
    "trust": 1.0234567,
    "contradicted": -12.5,
    "weights": [0.5, 1.25],
    "means": [0.4, 0.81],
    "scales": [0.5, 0.12345678],
}


def written(path: Path, chain: str = "fitted", fitted: Any = WEIGHTS) -> Path:
    values = {
        "made": "2026-11-30",
        "fingerprint": {"chain": chain, "embedder": "e"},
        "fitted": fitted,
        "dataset": "0" * 64,
        "target": 0.02,
        "confidence": 0.95,
        "threshold": 0.8,
        "measured": {"pairs": 1, "same": 1, "hits": 1, "false_hits": 0, "upper_bound": 0.5},
    }
    path.write_text(json.dumps(values))
    return path


def refused(path: Path) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as raised:
        load_calibration(path)
    return [(one.field, one.message) for one in raised.value.problems]


def test_weights_come_back_as_they_were_written(tmp_path: Path) -> None:
    found = load_calibration(written(tmp_path / "cal.json"))
    assert found.fitted is not None
    assert found.fitted.model_dump(mode="json") == WEIGHTS
    assert Calibration.model_validate_json(found.model_dump_json()) == found
    assert hash(found.fitted) == hash(found.fitted.model_copy())


@pytest.mark.parametrize("field", ["means", "scales"])
@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_them_is_refused_by_name(tmp_path: Path, field: str, size: int) -> None:
    cal = written(tmp_path / "cal.json", fitted={**WEIGHTS, field: [1.0] * size})
    ((name, told),) = refused(cal)
    assert name == f"fitted.{field}"
    assert f"{size} numbers for 2 weights" in told


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("intercept", "NaN"),
        ("trust", "Infinity"),
        ("weights.1", "NaN"),
        ("means.0", "-Infinity"),
        ("scales.1", "0"),
        ("scales.0", "-1"),
        ("pairs", "0"),
    ],
)
def test_a_number_that_weighs_nothing_is_refused_by_name(
    tmp_path: Path, field: str, value: str
) -> None:
    head, _, at = field.partition(".")
    given = dict(WEIGHTS)
    given[head] = [*given[head][: int(at)], "@", *given[head][int(at) + 1 :]] if at else "@"
    cal = written(tmp_path / "cal.json", fitted=given)
    cal.write_text(cal.read_text().replace('"@"', value))
    assert [name for name, _ in refused(cal)] == [f"fitted.{field}"]


@pytest.mark.parametrize(("chain", "fitted"), [("fitted", None), ("verifier", WEIGHTS)])
def test_weights_are_there_just_where_the_chain_is_fitted(
    tmp_path: Path, chain: str, fitted: Any
) -> None:
    ((name, told),) = refused(written(tmp_path / "cal.json", chain, fitted))
    assert name == "fitted"
    assert chain in told
