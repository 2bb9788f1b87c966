"""The time from round to report: with a slot it tells nothing, without one the same test sees the data in it.

On the emulated Pico also where the host asks for as much work as the slot admits, of clients whose data are opposite.
"""

import tempfile
from pathlib import Path

import pytest
from harness import slots, timing

from tern import wire

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


def test_a_task_that_looks_now_and_then_sends_at_the_same_moments(memory):
    result = timing.measure(memory, N // 4, slot=12, task=True)
    print(result)
    assert not timing.dependent(result)
    assert min(result["us_median"]) >= 12000


@pytest.fixture(scope="module")
def pico():
    with slots.emulated() as board:
        yield board


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", slots.CASES, ids=lambda case: case.name)
def test_a_report_leaves_in_the_shortest_slot_that_admits_it_whatever_the_data(pico, case):
    slot = case.slot
    beat = slot * 15 // 16  # every report takes less than this: of 400 draws up to 7 / 8 of the slot
    reports = pico.answers(case, slot, beat)
    assert [kind for kind, _, _ in reports] == [wire.REPORT] * 4
    assert {us // 1000 for _, _, us in reports} == {beat}, "none in the second"
    refused = pico.answers(case, slot - 1, 1)
    assert [(kind, code) for kind, code, _ in refused] == [(wire.ERROR, wire.ERR_SLOT)] * 4


@pytest.mark.slow
def test_certifying_a_hierarchy_puts_no_report_into_the_second_slot(pico, pytestconfig):
    # It took up to 740 ms, and whoever chose the ranges put a report on the boundary: more with -1 were late.
    for i in range(30 if pytestconfig.getoption("exhaustive") else 1):
        for ranges in (2, 8, 12, 16):
            micro = slots.AFFORDABLE + 10 * i
            case = slots.Case("", wire.LINEAR, lambda e, n=ranges: slots.hierarchy(e, n), 28, micro=micro)
            for kind, _, us in pico.answers(case, 500, 500):
                assert (kind, us // 1000) == (wire.REPORT, 500), ranges


@pytest.mark.slow
def test_what_a_refusal_takes_tells_nothing_of_the_number_of_records(pico):
    # Nine of them once told it: epochs times records were compared with the slot.
    for epochs in (1, 2, 3, 255):
        case = slots.Case("", wire.LOCAL + wire.SVM, slots.table, 28, local=(epochs, 2, 1 << 18))
        one, many = pico.answers(case, 500, 500, 1)
        assert one[:2] == many[:2] == ((wire.REPORT, 0) if case.slot <= 500 else (wire.ERROR, wire.ERR_SLOT))
        assert one[2] // 1000 == many[2] // 1000 == 500
