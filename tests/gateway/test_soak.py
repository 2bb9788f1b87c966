"""Gateways, servers and hosts are killed at random moments, and each report is counted once.

`python -m harness` runs the same for any length of time.
"""

import pytest
from benchmarks import gateways as timed
from harness import gateways

from terntools.emulators.micropython import find_micropython

ROUNDS, DEVICES = 6, 16  # at epsilon 1, the 8 devices of a site hide nothing: the bound is 6


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("nodes", [3, 1])
def test_counts_are_right_whatever_is_killed(tmp_path, nodes):
    find_micropython()
    fleet = {"gateways": 2, "devices": DEVICES, "rounds": ROUNDS, "bound": ROUNDS, "pause": 0.8}
    summary = gateways.run(tmp_path, nodes=nodes, kills=1, seconds=0.6, **fleet)
    assert summary["killed"] == {"gateway": 1, "server": 1, "host": 1}
    assert summary["reports"] == ROUNDS * DEVICES


@pytest.mark.exhaustive
def test_a_benchmark_measures_time_and_memory_of_rounds_over_gateways():
    summary = timed.run(300, 2, 2, "iris", tell=str)
    assert summary["reports"] == 600
    assert len(summary["seconds"]) == 2
    assert summary["memory_bytes"][1]["gateway_most"] > 1e6
