"""Sends a person's labels of drawn hits to the proxy that runs, each until it was taken."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from trivet.errors import CacheError, ConfigError, EmbedderError, Problem
from trivet.eval.labels import Label
from trivet.eval.queue_files import Waiting
from trivet.semantic.json_client import JsonClient

_AT_ONCE = 50
_TIMEOUT_S = 60.0
_AGAIN = "unknown"
"""The outcome that another proxy, or the same one in a while, may not have."""
_OUTCOMES = {
    "counted": "counted",
    "repeated": "counted before",
    "recalibrated": "of hits under an earlier calibration: not counted",
    "expired": "too old: not counted",
    _AGAIN: "of hits that this proxy does not know: not counted, and sent again next time",
}


class Verdict(NamedTuple):
    """What a person said of one drawn hit."""

    tenant: str
    draw: str
    same: bool


class SentFile:
    """The draws whose verdicts a proxy took, a line each, in `path`. For one process at a time.

    It spares work: a verdict that is sent again counts once all the same.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises `ConfigError` where it cannot be read."""
        self._path = path
        try:
            self.draws = set(path.read_text("ascii", "replace").split("\n"))
        except FileNotFoundError:
            self.draws = set()
        except OSError as error:
            raise self._refused(f"cannot be read: {error.strerror}") from None

    def add(self, draws: Sequence[str]) -> None:
        """Append draws. Raises `ConfigError`."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        # Begins a line of its own: the last write may have been cut off.
        text = "".join(f"\n{draw}" for draw in draws) + "\n"
        try:
            with os.fdopen(os.open(self._path, flags, 0o600), "wb") as file:
                file.write(text.encode())
        except OSError as error:
            raise self._refused(f"cannot be written: {error.strerror}") from None
        self.draws.update(draws)

    def _refused(self, message: str) -> ConfigError:
        return ConfigError(Problem(str(self._path), 0, 0, "", message))


def given(
    waiting: Sequence[Waiting], labels: Mapping[str, Label], sent: SentFile
) -> tuple[list[Verdict], int]:
    """The verdicts that a person gave and no proxy took yet, and how many hits the person was
    unsure of: those are none, as where any other judge cannot tell."""
    found: list[Verdict] = []
    unsure = 0
    for one in waiting:
        label = labels.get(one.pair)
        if label is None or label.by != "person" or one.draw in sent.draws:
            continue
        unsure += label.unsure
        if not label.unsure:
            found.append(Verdict(one.tenant, one.draw, label.same))
    return found, unsure


def send(url: str, key: str, verdicts: Sequence[Verdict], sent: SentFile) -> Counter[str]:
    """Send them to the admin port at `url`. Returns how many met which outcome.

    What was taken is noted after each part, so that the next call goes on from there. Raises
    `CacheError` where the proxy cannot be asked or says no.
    """
    outcomes: Counter[str] = Counter()
    client = _client(url, key)
    try:
        for tenant, part in _parts(verdicts):
            told = _post(client, tenant, part)
            outcomes.update(told.values())
            sent.add([draw for draw, outcome in told.items() if outcome != _AGAIN])
    finally:
        client.close()
    return outcomes


def sentence(outcomes: Mapping[str, int]) -> str:
    """The outcomes for people."""
    named = [f"{outcomes[name]} {told}" for name, told in _OUTCOMES.items() if outcomes.get(name)]
    return "; ".join(named)


def _client(url: str, key: str) -> JsonClient:
    try:
        return JsonClient(f"{url.rstrip('/')}/trivet/verdicts", key, _TIMEOUT_S)
    except EmbedderError as error:
        raise CacheError(f"--admin: {error}") from None


def _parts(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, list[Verdict]]]:
    by_tenant = sorted(verdicts, key=lambda one: one.tenant)
    for tenant, group in groupby(by_tenant, key=lambda one: one.tenant):
        every = list(group)
        for at in range(0, len(every), _AT_ONCE):
            yield tenant, every[at : at + _AT_ONCE]


def _post(client: JsonClient, tenant: str, part: Sequence[Verdict]) -> dict[str, str]:
    body = {"tenant": tenant, "verdicts": [{"id": one.draw, "same": one.same} for one in part]}
    try:
        answer = client.post(body)
        told = {str(one["id"]): str(one["outcome"]) for one in answer["verdicts"]}
    except EmbedderError as error:
        hint = " Give --admin-key, or set TRIVET_ADMIN_KEY." if error.reason == "auth" else ""
        raise CacheError(f"{error}{hint}") from None
    except (KeyError, TypeError):
        raise CacheError("What answered is not Trivet's admin API: check the port.") from None
    if told.keys() != {one.draw for one in part} or not _OUTCOMES.keys() >= set(told.values()):
        raise CacheError("What answered is not Trivet's admin API: check the port.")
    return told
