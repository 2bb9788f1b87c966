"""Measures the figures that the hardware map expects of a board.

`tern hil` runs it after the tests.
"""

import pytest


def test_figure(expectation, measured, record_property):
    """The hardware map states what is expected of a board, such as a latency of at most 20 ms. A
    figure is measured, recorded for the report and compared with that.
    """
    figure = expectation.figure
    record_property("figure", figure)
    record_property("value", measured)
    record_property("expected", str(expectation))
    if not expectation.allows(measured):
        pytest.fail(f"{figure} is {measured:,.6g}, expected {expectation}", pytrace=False)
