"""Times in the cells of tables are put in order, however people write them."""

import numpy as np
import pytest

from ternhost.datasets.tables.reading import RawTable
from ternhost.datasets.tables.times import times_of
from ternhost.errors import UsageError


def order(*texts):
    """The order of the rows of a table with these times."""
    table = RawTable("log.csv", ("when",), (list(texts),), range(2, 2 + len(texts)))
    return np.argsort(times_of(table, "when"), kind="stable").tolist()


@pytest.mark.parametrize(
    "texts",
    [
        ("9", "100", "1000.5"),
        ("2026-03-09", "2026-03-10", "2026-11-01"),
        ("2026-03-09 18:00", "2026-03-10T07:30", "2026-03-10T08:00:01"),
        ("2026-03-10T08:00+02:00", "2026-03-10T07:00Z"),
        ("31/01/2004", "09/02/2004", "10/02/2004"),
        ("01/31/2004", "02/09/2004", "02/10/2004"),
        ("31.1.2004", "9.2.2004", "10.2.2004"),
        ("31 Jan 2004", "9 Feb 2004", "10 Feb 2004"),
        ("31-JAN-2004 09:00", "09-FEB-2004 08:00", "10-FEB-2004 07:00"),
        ("January 31, 2004", "February 9, 2004", "February 10, 2004"),
        ("2004-01", "2004-02", "2004-11"),
        ("31/01/2004 18.00.00", "01/02/2004 09.00.00"),
        ("09:59", "10:00", "23:01"),
        ("9:59 AM", "10:00 AM", "1:00 PM"),
    ],
)
def test_times_are_in_order(texts):
    assert order(*texts) == list(range(len(texts)))


def test_equal_times_keep_the_order_of_their_rows():
    assert order("2026-03-10", "2026-03-09", "2026-03-10", "2026-03-09") == [1, 3, 0, 2]


def test_a_cell_that_is_no_number_is_named_among_numbers():
    with pytest.raises(UsageError, match="line 4"):
        order("1", "2", "x", "4")


def test_dates_that_could_be_in_two_orders_are_refused():
    with pytest.raises(UsageError, match="when"):
        order("02/01/2004", "01/03/2004")


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (("yesterday", "today"), 2),
        (("2026-03-10", "2026-03-11", ""), 4),
        (("31/01/2004", "2004-02-09"), 3),
        (("31/01/2004", "12/31/2004"), 3),
    ],
)
def test_a_cell_that_is_no_time_is_refused_with_its_line(texts, line):
    with pytest.raises(UsageError, match=f"log.csv, line {line}, column when"):
        order(*texts)
