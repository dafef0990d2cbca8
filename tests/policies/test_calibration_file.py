"""A calibration is taken from a regular file near its policy, and only with thresholds that can
be one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trivet.errors import ConfigError
from trivet.policies.calibration import load_calibration
from trivet.policies.loader import load, load_policy

GIVEN: dict[str, Any] = {
    "format": 1,
    "made": "2026-11-30",
    "fingerprint": {"chain": "cosine", "embedder": "e"},
    "dataset": "0" * 64,
    "target": 0.02,
    "confidence": 0.95,
    "threshold": 0.8,
    "measured": {"pairs": 1, "same": 1, "hits": 1, "false_hits": 0, "upper_bound": 0.5},
}


def written(path: Path, **changed: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**GIVEN, **changed}))
    return path


def policy(directory: Path, calibration: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "acme.yaml"
    file.write_text(f"tenant: acme\nsemantic: {{calibration: '{calibration}'}}\n")
    return file


def refusal(directory: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        load(directory)
    (only,) = raised.value.problems
    assert only.field == "semantic.calibration"
    return only.message


@pytest.mark.parametrize(
    "number", ["NaN", '"NaN"', "Infinity", '"inf"', "-1", "1e400", "0", "1.01"]
)
@pytest.mark.parametrize("field", ["threshold", "intents.informational", "curve.0.threshold"])
def test_a_number_that_is_no_threshold_is_refused_by_name(
    tmp_path: Path, field: str, number: str
) -> None:
    parts: dict[str, Any] = {
        "threshold": "@",
        "intents": {"informational": "@"},
        "curve": [{"threshold": "@", "hits": 1, "false_hits": 0}],
    }
    name = field.partition(".")[0]
    text = json.dumps({**GIVEN, name: parts[name]}).replace('"@"', number)
    (tmp_path / "cal.json").write_text(text)
    if name == "curve" and number in ("-1", "0"):
        assert load_calibration(tmp_path / "cal.json").curve[0].threshold == float(number)
        return
    with pytest.raises(ConfigError, match=f"cal.json: {field}: "):
        load_calibration(tmp_path / "cal.json")
    policy(tmp_path, "cal.json")
    assert f"cal.json: {field}: " in refusal(tmp_path)


def test_a_file_in_the_directory_or_below_is_taken(tmp_path: Path) -> None:
    written(tmp_path / "below" / "cal.json")
    found = load_policy(policy(tmp_path, "below/cal.json")).semantic.measured
    assert found is not None
    assert found.threshold == 0.8


def test_links_within_the_directory_are_followed_as_kubernetes_makes_them(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    policy(mount / "..2026_11_30", "cal.json")
    written(mount / "..2026_11_30" / "cal.json")
    (mount / "..data").symlink_to("..2026_11_30")
    for name in ("acme.yaml", "cal.json"):
        (mount / name).symlink_to(f"..data/{name}")
    assert load(mount).tenants["acme"].semantic.measured is not None


@pytest.mark.parametrize("way", ["up", "absolute", "link"])
def test_a_file_outside_of_the_directory_is_refused_unopened(tmp_path: Path, way: str) -> None:
    outside = written(tmp_path / "secret.json")
    named = {"up": "../secret.json", "absolute": str(outside), "link": "cal.json"}[way]
    policy(tmp_path / "policies", named)
    if way == "link":
        (tmp_path / "policies" / "cal.json").symlink_to(outside)
    outside.chmod(0)
    assert "has to lie in" in refusal(tmp_path / "policies")


def test_a_pipe_does_not_hang_and_a_device_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cal.json")
    policy(tmp_path, "cal.json")
    assert "is not a regular file" in refusal(tmp_path)
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_calibration(Path("/dev/zero"))


def test_a_policy_file_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "acme.yaml")
    with pytest.raises(ConfigError, match="is not a regular file"):
        load(tmp_path)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "cal.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="is larger than 4194304 bytes"):
        load_calibration(tmp_path / "cal.json")


@pytest.mark.parametrize("name", ["none.json", "a\0b", "loop", "x" * 300])
def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_calibration(tmp_path / name)


def test_what_a_file_calls_its_fields_does_not_steer_the_terminal(tmp_path: Path) -> None:
    file = written(tmp_path / "cal.json", slices={"\x1b[2J": 1})
    with pytest.raises(ConfigError) as raised:
        load_calibration(file)
    assert r"slices.\x1b[2J" in str(raised.value)


def test_a_calibration_of_a_cross_encoder_needs_its_name_in_the_policy(tmp_path: Path) -> None:
    written(tmp_path / "cal.json", fingerprint={"chain": "cross-encoder", "embedder": "e"})
    file = policy(tmp_path, "cal.json")
    with pytest.raises(ConfigError) as raised:
        load(tmp_path)
    (problem,) = raised.value.problems
    assert (problem.field, problem.line) == ("semantic.cross_encoder", 2)
    assert problem.message == "name the model: the chain of cal.json is cross-encoder."
    file.write_text("tenant: acme\nsemantic: {calibration: cal.json, cross_encoder: models/mine}\n")
    assert load_policy(file).semantic.cross_encoder == "models/mine"


def test_a_cross_encoder_may_be_named_before_it_is_calibrated(tmp_path: Path) -> None:
    written(tmp_path / "cal.json")
    file = tmp_path / "acme.yaml"
    file.write_text("tenant: acme\nsemantic: {calibration: cal.json, cross_encoder: some/model}\n")
    assert load_policy(file).semantic.cross_encoder == "some/model"
    file.write_text("tenant: acme\nsemantic: {cross_encoder: ''}\n")
    with pytest.raises(ConfigError, match=r"semantic\.cross_encoder"):
        load_policy(file)
