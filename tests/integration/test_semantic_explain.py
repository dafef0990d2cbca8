"""`trivet explain --admin` says what the mode of the running semantic tier comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from parts import calibration
from proxy import Proxy
from semantic_rig import (
    VERBS,
    acme,
    asked,
    learns_something,
    measured,
    models,
    name_of,
    policy,
    semantic_proxy,
    write,
)
from trouble_rig import until

from trivet.cli import main
from trivet.policies.calibration import Calibration, Fingerprint

BODY = {
    "model": "m",
    "temperature": 0,
    "messages": [{"role": "user", "content": "How does osmosis work in practice?"}],
}


def explained(proxy: Proxy, folder: Path, *flags: str) -> str:
    file = folder / "request.json"
    headers = {"authorization": "Bearer sk-acme"}
    file.write_text(json.dumps({"headers": headers, "body": BODY}))
    told = CliRunner().invoke(main, ["explain", str(file), "--admin", proxy.admin, *flags])
    assert told.exit_code == 0, told.output
    return told.stdout


def told(proxy: Proxy, folder: Path) -> tuple[Any, ...]:
    semantic = json.loads(explained(proxy, folder, "--json"))["semantic"]
    return semantic["mode"], semantic["acts_as"], semantic["reason"]


OTHER = calibration(0.7, fingerprint=Fingerprint(chain="cosine", embedder="0" * 64, gate="1"))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("cal", "wanted"),
    [
        (None, ("replace", "shadow", "uncalibrated")),
        (OTHER, ("replace", "shadow", "other-chain")),
        ("own", ("replace", "replace", "")),
    ],
)
def test_the_effective_mode_is_told(
    tmp_path: Path, workers: str, cal: Calibration | str | None, wanted: tuple[str, ...]
) -> None:
    with models() as (_, server):
        section: dict[str, Any] = {"embedder": name_of(server)}
        files = {}
        if cal is None:
            section["calibration"] = None
        else:
            made = measured(server) if isinstance(cal, str) else cal
            files["cal.json"] = made.model_dump_json()
        files["acme.yaml"] = policy("acme", section)
        folder = write(tmp_path / "policies", files)
        store = f"sqlite:{tmp_path / 'cache.sqlite'}"
        flags = ("--workers", workers) if workers != "1" else ()
        with semantic_proxy(folder, *flags, store=store, wait=False) as proxy:
            until(lambda: told(proxy, tmp_path) == wanted, f"it says {wanted}")
            line = next(
                line for line in explained(proxy, tmp_path).splitlines() if "Semantic" in line
            )
            assert line.split()[1].startswith("replace")
            if wanted[2] == "other-chain":
                assert line.endswith(
                    "another chain than the one that runs: another embedder and gate"
                )


def test_models_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with models() as (served, server):
        served.ways["m"] = "errors"
        section = {"embedder": name_of(server), "calibration": None}
        folder = write(tmp_path / "policies", {"acme.yaml": policy("acme", section)})
        with semantic_proxy(folder, wait=False) as proxy:
            wanted = ("replace", "off", "embedder-missing")
            until(lambda: told(proxy, tmp_path) == wanted, f"it says {wanted}")
            assert "its models cannot be opened: openai:" in explained(proxy, tmp_path)


def test_what_the_measurement_closed_is_told_with_its_reason(tmp_path: Path) -> None:
    judged = {"audit": {"share": 1, "judge": {"kind": "equality"}}}
    with models() as (_, server), acme(tmp_path, server, semantic=judged) as proxy:
        topic = learns_something(proxy)

        def closed() -> bool:
            # The mock upstream never says the same twice: every audit finds a false hit.
            for verb in VERBS[1:]:
                proxy.chat(asked(topic, verb))
            return told(proxy, tmp_path) == ("replace", "shadow", "bound")

        until(closed, "it is closed")
        assert "closed by measurement: informational (bound)" in explained(proxy, tmp_path)
