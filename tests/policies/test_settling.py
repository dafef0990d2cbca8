"""Policy files are read when they have come to rest, and not in the pause of a write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trivet.policies.settling import PAUSE_S, Settling, state_of


class Clock:
    """A clock that goes when it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A directory with one policy file, and what follows it."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "acme.yaml"
        self.file.write_text("tenant: acme\n")
        self.clock = Clock()
        self.settling = Settling(directory, self.clock)

    def after(self, seconds: float) -> bool:
        self.clock.now += seconds
        return self.settling.settled()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_nothing_is_read_that_was_not_changed(rig: Rig) -> None:
    assert not any(rig.after(PAUSE_S) for _ in range(5))


def test_a_change_is_read_once_after_two_looks_that_find_the_same(rig: Rig) -> None:
    rig.settling.stir()
    assert [rig.after(step) for step in (0.1, 0.5, 0.4, 0.1, 5.0)] == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_each_further_change_starts_the_pause_anew(rig: Rig) -> None:
    rig.settling.stir()
    for _ in range(5):
        with rig.file.open("a") as file:
            file.write("# more\n")
        assert not rig.after(PAUSE_S)
    assert rig.after(PAUSE_S)


def test_a_later_change_is_read_too(rig: Rig) -> None:
    for _ in range(2):
        rig.settling.stir()
        assert [rig.after(PAUSE_S) for _ in range(2)] == [False, True]


def test_another_file_that_changes_all_the_time_delays_nothing(rig: Rig, tmp_path: Path) -> None:
    found = []
    for size in range(2):
        (tmp_path / "notes.log").write_text("x" * size)
        rig.settling.stir()
        found.append(rig.after(PAUSE_S))
    assert found == [False, True]


def test_names_sizes_times_and_inodes_tell_states_apart(rig: Rig, tmp_path: Path) -> None:
    states = [state_of(tmp_path)]
    rig.file.write_text("tenant: acme\nversions: {}\n")
    states.append(state_of(tmp_path))
    os.utime(rig.file, ns=(1, 1))
    states.append(state_of(tmp_path))
    (tmp_path / "next").write_text("tenant: acme\nversions: {}\n")
    os.utime(tmp_path / "next", ns=(1, 1))
    (tmp_path / "next").rename(rig.file)
    states.append(state_of(tmp_path))
    rig.file.rename(tmp_path / "other.yaml")
    states.append(state_of(tmp_path))
    (tmp_path / "other.yaml").unlink()
    states.append(state_of(tmp_path))
    assert len(set(states)) == 6
    assert states[-1] == ()


def test_a_link_that_leads_nowhere_and_no_directory_are_states_too(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").symlink_to("nowhere")
    assert state_of(tmp_path) == (("acme.yaml", ()),)
    assert state_of(tmp_path / "nowhere") is None
