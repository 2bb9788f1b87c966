"""Measures the figures that the hardware map expects of a board.

`tern hil` runs it after the tests.
"""

import pytest

from ternhost.errors import TernError
from terntools.testing.board_figures import MEASUREMENTS, why_not_measured


@pytest.fixture(scope="module")
def measured(mapped_board):
    """`measured(figure)`: values by the names of figures; each measurement runs once for a board."""
    values_of = {}

    def measured(figure):
        measurement = MEASUREMENTS[figure]
        if measurement not in values_of:
            try:
                values_of[measurement] = measurement(mapped_board)
            except TernError as error:
                pytest.fail(f"{error.message}\n  {error.hint}", pytrace=False)
        return values_of[measurement]

    return measured


def test_figure(mapped_board, expectation, measured, record_property):
    """The hardware map states what is expected of a board, such as a latency of at most 20 ms. A
    figure is measured, recorded for the report and compared with that.
    """
    figure = expectation.figure
    if reason := why_not_measured(figure, mapped_board):
        pytest.skip(reason)
    values = measured(figure)
    if figure not in values:
        pytest.fail(f"{mapped_board.id} gives no {figure}, only {', '.join(values)}", pytrace=False)

    record_property("figure", figure)
    record_property("value", values[figure])
    record_property("expected", str(expectation))
    if not expectation.allows(values[figure]):
        pytest.fail(f"{figure} is {values[figure]:,.6g}, expected {expectation}", pytrace=False)
