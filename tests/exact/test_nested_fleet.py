"""A machine's workers agree among themselves first, and one of them speaks for the machine."""

from __future__ import annotations

from typing import Literal

import pytest
from entries import key

from trivet.exact.fleet import Claim, Lead, Remote
from trivet.exact.flight import Flight, FlightLimits
from trivet.exact.nested_fleet import NestedFleet


class Side:
    """A fleet that claims as it is told, and notes what was undone."""

    where: Literal["machine", "fleet"] = "machine"

    def __init__(self, name: str, said: list[str], remote: bool, broken: bool = False) -> None:
        self.name, self.said, self.remote, self.broken = name, said, remote, broken

    async def claim(self, flight: Flight) -> Claim:
        self.said.append(f"claim {self.name}")
        if self.broken:
            raise KeyboardInterrupt
        return Remote(self.feed, self.undo) if self.remote else Lead(self.undo)

    async def feed(self, flight: Flight) -> None:
        self.said.append(f"feed {self.name}")

    def undo(self) -> None:
        self.said.append(f"undo {self.name}")


def flight() -> Flight:
    return Flight(key("a"), "t1", FlightLimits(1 << 20, 1 << 16))


async def claimed(inner: bool, outer: bool) -> tuple[Claim, list[str]]:
    said: list[str] = []
    fleet = NestedFleet(Side("inner", said, inner), Side("outer", said, outer))
    return await fleet.claim(flight()), said


async def test_who_leads_on_both_sides_leads_and_frees_both() -> None:
    claim, said = await claimed(inner=False, outer=False)
    assert isinstance(claim, Lead)
    claim.undo()
    assert said == ["claim inner", "claim outer", "undo inner", "undo outer"]


async def test_a_follower_within_the_machine_does_not_ask_the_fleet() -> None:
    claim, said = await claimed(inner=True, outer=False)
    assert isinstance(claim, Remote)
    await claim.feed(flight())
    claim.undo()
    assert said == ["claim inner", "feed inner", "undo inner"]


async def test_the_speaker_of_a_machine_follows_the_fleet_and_frees_both() -> None:
    claim, said = await claimed(inner=False, outer=True)
    assert isinstance(claim, Remote)
    await claim.feed(flight())
    claim.undo()
    assert said == ["claim inner", "claim outer", "feed outer", "undo inner", "undo outer"]


async def test_a_claim_that_is_broken_off_frees_the_machine() -> None:
    said: list[str] = []
    fleet = NestedFleet(Side("inner", said, False), Side("outer", said, False, broken=True))
    with pytest.raises(KeyboardInterrupt):
        await fleet.claim(flight())
    assert said == ["claim inner", "claim outer", "undo inner"]
