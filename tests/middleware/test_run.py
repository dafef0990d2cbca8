"""How the process that serves is set up."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from trivet.middleware.running.run import ease_collector


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_a_collection_does_not_look_at_what_was_there_at_the_start() -> None:
    there = [object()]
    assert any(one is there for one in gc.get_objects())
    ease_collector()
    assert gc.get_freeze_count() > 1000
    assert not any(one is there for one in gc.get_objects())


def test_garbage_that_came_since_is_collected() -> None:
    ease_collector()
    loop: list[object] = []
    loop.append(loop)
    del loop
    assert gc.collect() >= 1


def test_the_youngest_generation_is_collected_less_often() -> None:
    ordinary = gc.get_threshold()
    ease_collector()
    youngest, *older = gc.get_threshold()
    assert youngest > ordinary[0]
    assert older == list(ordinary[1:])
