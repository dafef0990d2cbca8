"""The index of the semantic tier at size: memory and speed beside a small one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_FILLS = """
import json, time
from dataclasses import replace
from index_parts import NOW, entry, partition, vectors
from trivet.semantic.partitions import PartitionedIndex

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def median(name, stored):
    taken = []
    for vector in stored[:201]:
        began = time.perf_counter()
        found = index.nearest(partition(name), vector, 1, NOW)
        taken.append(time.perf_counter() - began)
        assert found[0].cosine > 0.999
    return sorted(taken)[len(taken) // 2]

some, base = vectors(100_000, 32), entry(vector=vectors(1, 32)[0].tobytes())
index = PartitionedIndex(lambda tenant: 1_000_000, clock=lambda: NOW)
places = {}

def fill(tenant, name, at):
    place, vector = places.get(name), some[at].tobytes()
    if place is None:
        place = places[name] = partition(name)
    made = replace(base, tenant=tenant, id=f"{tenant}/{at}", partition=place, vector=vector)
    assert index.add(made)

for at in range(1000):
    fill("small", "small", at)
small = median("small", some[:1000])
before, held = resident(), index.stats().bytes
for at in range(100_000):
    TENANT
while (job := index.due()) is not None:
    job()()
grown, counted = resident() - before, index.stats().bytes - held
print(json.dumps([small, median(NAMED, some[PLACES]), grown, counted, len(index)]))
"""
FILLED = {
    "one-partition": ('fill("large", "large", at)', '"large"', "::400"),
    "10,000-tenants": ('fill(f"t{at // 10}", f"t{at // 10}", at)', '"t7"', "70:80"),
}


@pytest.mark.alone
@pytest.mark.parametrize("how", FILLED)
def test_a_hundred_thousand_entries_take_the_memory_they_are_counted_as(how: str) -> None:
    """In one partition, and ten of each of 10,000 tenants; a lookup stays as fast, about."""
    tenant, named, places = FILLED[how]
    script = _FILLS.replace("TENANT", tenant).replace("NAMED", named).replace("PLACES", places)
    tests = Path(__file__).parents[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tests / "semantic")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True
    )
    small, large, grown, counted, held = json.loads(done.stdout)
    assert held == 101_000
    assert large < 20 * small
    assert grown < 1.5 * counted
