"""The day of the benchmark, in small: its figures hang together."""

from benchmarks.rotation_day import day
from equipoise.rotation.progress import Ending


def test_a_short_day_is_counted_whole() -> None:
    """Every rotation has one ending, every eviction was one of a rotation or is under way, nothing broke."""
    found = day(workloads=20, hours=1.5, seed=1)
    assert found["violated"] == 0
    assert found["cycles"] == 180
    assert found["rotations"] == sum(found[f"ending {ending}"] for ending in Ending) > 0
    assert found["measured"] <= found["rotations"] <= found["evictions"]
    assert 0 < found["loop_cpu_seconds"] < found["cpu_seconds"]
