"""Gateways and their host are killed at random moments, and each report is counted once.

`python -m harness` runs the same over Flower for any length of time.
"""

import importlib.util

import pytest
from bench import gateways as timed
from harness import gateways

from terntools.emulators.micropython import find_micropython


@pytest.mark.slow
def test_counts_are_right_whatever_is_killed(tmp_path):
    find_micropython()
    summary = gateways.run(
        tmp_path, way="local", gateways=2, devices=16, boards=1, rounds=5, kills=2, seconds=0.6, pause=0.8
    )
    assert summary["killed"] == {"gateway": 2, "host": 2}
    assert summary["reports"] == 5 * 16


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="the extra flower is not installed")
def test_counts_are_right_whatever_is_killed_over_flower(tmp_path):
    find_micropython()
    summary = gateways.run(
        tmp_path, way="flower", gateways=2, devices=12, rounds=10, kills=1, seconds=0.3, pause=1.0, apart=True
    )
    assert summary["reports"] == 10 * 12
    assert summary["killed"] == dict.fromkeys(gateways.Flower.victims, 1)


def test_a_benchmark_measures_time_and_memory_of_rounds_over_gateways():
    summary = timed.run(300, 2, 2, "iris", tell=str)
    assert summary["reports"] == 600
    assert len(summary["seconds"]) == 2
    assert summary["memory_bytes"][1]["gateway_most"] > 1e6
