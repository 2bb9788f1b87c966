"""The time from round to report: with a slot it tells nothing, without one the same test sees the data in it."""

import tempfile
from pathlib import Path

import pytest
from harness import timing

N = 10_000


@pytest.fixture
def memory():
    """A directory in memory where there is one: so that the disk adds no noise."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tern-timing-", dir=parent) as directory:
        yield Path(directory, "board")


def test_without_a_slot_the_time_tells_of_the_data(memory):
    for i in range(4):  # a busy machine is hard to hear through: the longer, the clearer
        result = timing.measure(memory.with_name(f"board-{i}"), N << i, slot=0)
        print(result)
        if timing.dependent(result):
            return
    pytest.fail("no difference was seen")


def test_with_a_slot_it_tells_nothing(memory):
    result = timing.measure(memory, N, slot=1)
    print(result)
    assert not timing.dependent(result)
    assert min(result["us_median"]) >= 1000
