"""The time from round to report: with a slot it tells nothing, without one the same test sees the data in it.

On the emulated Pico, in simulated time, also where the host asks for as much work as the slot admits, of clients whose
data are opposite.
"""

import pytest
from harness import slots

from tern import wire

BATCH = slots.Case("", wire.LINEAR, slots.table, 28, batch=32, anew=False)  # of one record, and of 32
SLOT, ROUNDS = 500, 20


@pytest.fixture(scope="module")
def pico():
    with slots.emulated() as board:
        yield board


def test_without_a_slot_the_time_tells_of_the_data(pico):
    reports = pico.answers(BATCH, 0, 0, ROUNDS)
    assert {kind for kind, _, _ in reports} == {wire.REPORT}
    assert slots.depends_on_data(reports)


@pytest.mark.parametrize("task", [False, True], ids=["serve", "task"])
def test_with_a_slot_it_tells_nothing(pico, task):
    """task: by a program's task, which looks now and then."""
    reports = pico.answers(BATCH, SLOT, SLOT, ROUNDS, task)
    assert {kind for kind, _, _ in reports} == {wire.REPORT}
    assert not slots.depends_on_data(reports)
    assert {us // 1000 for _, _, us in reports} == {SLOT}


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
