"""The benchmark of a large fleet counts a report of each device, and goes on with a full store."""

import pytest
from benchmarks import served

DEVICES = 60


@pytest.fixture(scope="module")
def figures():
    return served.run(DEVICES, boards=3, rounds=1, stored=4 * DEVICES, tell=lambda line: None)


def reports(figures):
    return [one["reports"] for one in figures["rounds"]]


def test_every_device_reports_in_a_served_round(figures):
    assert reports(figures["served"]) == [DEVICES]


def test_the_store_is_filled_with_as_many_reports_as_were_wanted(figures):
    assert figures["stored"]["reports"] == 4 * DEVICES


def test_every_device_reports_in_a_round_after_the_store_was_filled(figures):
    assert reports(figures["served_full"]) == [DEVICES]
