"""Policies and calibrations, judged. Pure."""

from __future__ import annotations

from datetime import date

from trivet.middleware.deployment_doctor.facts import CalibrationFacts, PolicyFacts
from trivet.middleware.deployment_doctor.findings import Finding, fault, ok, warning

_OLD_DAYS = 180
"""Half a year: questions and answers have moved on by then, and nobody has looked."""
_NO_MODELS = frozenset({"embedder-missing", "verifier-missing", "unavailable"})


def check_policies(seen: PolicyFacts, today: date) -> list[Finding]:
    """What `trivet check` says, who may alter the files, and what each calibration is worth."""
    told = [
        fault("policies", f"{one}", "mend it: `trivet check` tells when all is well")
        for one in seen.problems
    ]
    told += [
        warning("policies", f"{one}", "see whether that is meant: `trivet check` names it too")
        for one in seen.warnings
    ]
    if seen.tenants:
        count = len(seen.tenants)
        named = ", ".join(seen.tenants[:5]) + (", ..." if count > 5 else "")
        told.append(ok("policies", f"{count} tenant{'' if count == 1 else 's'}: {named}."))
    elif not seen.problems:
        told.append(ok("policies", "There are none: each credential is a tenant of its own."))
    for file in seen.loose:
        said = f"Others than its owner may write {file.path} ({file.mode:o})."
        remedy = f"chmod go-w {file.path}: who writes it decides who gets whose answers"
        told.append(warning("policies", said, remedy))
    return told + [found for one in seen.calibrations for found in check_calibration(one, today)]


def check_calibration(seen: CalibrationFacts, today: date) -> list[Finding]:
    """Whether the tier does what the policy says, and how old the measurement is."""
    check, mode = f"semantic tier of {seen.tenant}", seen.effective
    if mode.reason in _NO_MODELS:
        remedy = "install the extra (pip install 'trivet[semantic]') and name models that are here"
        return [fault(check, f"{mode.text}.", remedy)]
    if mode.reason:
        remedy = (
            "calibrate with the models that run: `trivet eval calibrate`, then name its file"
            if mode.reason in ("other-chain", "uncalibrated")
            else "label more pairs and calibrate again, or leave the tier off"
        )
        return [warning(check, f"{mode.text}.", remedy)]
    told = f"{mode.mode}"
    if seen.made is None:
        return [ok(check, f"{told}.")]
    age = (today - seen.made).days
    told += f", calibrated {age} day{'' if age == 1 else 's'} ago"
    if age > _OLD_DAYS:
        remedy = "label pairs of recent questions, and calibrate again"
        return [warning(check, f"{told}.", remedy)]
    with_models = "with the models that run here" if seen.compared else "the models were not loaded"
    return [ok(check, f"{told}; {with_models}.")]
