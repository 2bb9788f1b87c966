"""The time from a round to its report depends on the data without a slot, and does not with one.

On the emulated Pico, in simulated time, with opposite data of two clients, and with as much work as a slot admits.
"""

import pytest
from harness import slots

from tern import wire

BATCH = slots.Case("", wire.LINEAR, slots.table, 28, batch=32, anew=False)  # of one record, and of 32
SLOT, ROUNDS = 500, 20


def at_end_of(slot_ms, us):
    """Whether this is the end of the first slot, by a clock of milliseconds."""
    return 1000 * slot_ms - 1000 < us < 1000 * slot_ms + 500


@pytest.fixture(scope="module")
def pico():
    with slots.emulated() as board:
        yield board


def test_without_a_slot_the_time_of_a_report_depends_on_the_data(pico):
    reports = pico.answers(BATCH, 0, 0, ROUNDS)
    assert {kind for kind, _, _ in reports} == {wire.REPORT}
    assert slots.depends_on_data(reports)


@pytest.mark.parametrize("task", [False, True], ids=["serve", "task"])
def test_with_a_slot_every_report_leaves_at_its_end(pico, task):
    """task: a program's task serves the link."""
    reports = pico.answers(BATCH, SLOT, SLOT, ROUNDS, task)
    assert {kind for kind, _, _ in reports} == {wire.REPORT}
    assert not slots.depends_on_data(reports)
    assert all(at_end_of(SLOT, us) for _, _, us in reports), reports


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", slots.CASES, ids=lambda case: case.name)
def test_every_report_leaves_within_the_shortest_slot_that_admits_it(pico, case):
    slot = case.slot
    beat = slot * 15 // 16  # the slowest of 400 reports took 7 / 8 of the slot
    reports = pico.answers(case, slot, beat)
    assert [kind for kind, _, _ in reports] == [wire.REPORT] * 4
    assert all(at_end_of(beat, us) for _, _, us in reports), reports
    refused = pico.answers(case, slot - 1, 1)
    assert [(kind, code) for kind, code, _ in refused] == [(wire.ERROR, wire.ERR_SLOT)] * 4


@pytest.mark.slow
def test_certifying_a_hierarchy_delays_no_report_into_the_second_slot(pico, pytestconfig):
    # It once took up to 740 ms: with the right ranges, reports of some values came a slot later.
    for i in range(30 if pytestconfig.getoption("exhaustive") else 1):
        for ranges in (2, 8, 12, 16):
            micro = slots.AFFORDABLE + 10 * i
            case = slots.Case("", wire.LINEAR, lambda e, n=ranges: slots.hierarchy(e, n), 28, micro=micro)
            for kind, _, us in pico.answers(case, 500, 500):
                assert kind == wire.REPORT and at_end_of(500, us), (ranges, us)


@pytest.mark.slow
def test_the_time_of_a_refusal_does_not_depend_on_the_number_of_records(pico):
    # It once did: the device compared epochs times records with the slot.
    for epochs in (1, 2, 3, 255):
        case = slots.Case("", wire.LOCAL + wire.SVM, slots.table, 28, local=(epochs, 2, 1 << 18))
        one, many = pico.answers(case, 500, 500, 1)
        assert one[:2] == many[:2] == ((wire.REPORT, 0) if case.slot <= 500 else (wire.ERROR, wire.ERR_SLOT))
        assert at_end_of(500, one[2]) and at_end_of(500, many[2])
