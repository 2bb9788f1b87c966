"""The estimate of the time that a bench still takes, from the work that it has done."""

import pytest

from ternbench import time_left
from ternbench.cases import Case
from ternbench.time_left import TimeLeft, Work

MANY_RECORDS = Case(records=500)


def test_nothing_is_said_before_each_kind_of_work_was_measured():
    left = TimeLeft(planned=Work(installing=4, reporting=10))
    left.note(Work(installing=1), seconds=3.0)
    assert left.seconds() is None


def test_work_takes_as_long_as_work_of_its_kind_has_taken_so_far():
    """This device installs three times as slowly as the emulated Pico, and reports twice as fast."""
    left = TimeLeft(planned=Work(installing=4, reporting=10))
    left.note(Work(installing=1), seconds=3.0)
    left.note(Work(reporting=2), seconds=1.0)
    assert left.seconds() == pytest.approx(3 * 3.0 + 8 * 0.5)


def test_an_estimate_follows_what_is_measured_later():
    """The first report was slow: each of the others takes a tenth of its time."""
    left = TimeLeft(planned=Work(reporting=101))
    left.note(Work(reporting=1), seconds=10.0)
    assert left.seconds() == pytest.approx(1000)
    left.note(Work(reporting=50), seconds=50.0)
    assert left.seconds() == pytest.approx(50 * 60 / 51)


def test_more_work_than_was_planned_leaves_no_time():
    left = TimeLeft(planned=Work(reporting=1))
    left.note(Work(reporting=2), seconds=2.0)
    assert left.seconds() == 0


@pytest.mark.parametrize(
    "work",
    [time_left.installation, lambda case: time_left.reports(case, 10)],
    ids=["installing", "reporting"],
)
def test_many_records_are_more_work(work):
    few, many = work(Case()), work(MANY_RECORDS)
    assert many.installing + many.reporting > 2 * (few.installing + few.reporting)
