"""Gateways, their servers and their host are killed at random moments, and each report is counted
once.

`python -m harness` runs the same for any length of time.
"""

import pytest
from benchmarks import gateways as timed
from harness import gateways

from terntools.emulators.micropython import find_micropython


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 3])
def test_counts_are_right_whatever_is_killed(tmp_path, nodes):
    find_micropython()
    few = {
        "gateways": 2,
        "devices": 16,
        "rounds": 8,
        "kills": 2,
        "bound": 8,
    }  # at epsilon 1, 8 devices hide nothing
    summary = gateways.run(tmp_path, nodes=nodes, seconds=0.6, pause=0.8, **few)
    assert summary["killed"] == {"gateway": 2, "server": 2, "host": 2}
    assert summary["reports"] == 8 * 16


def test_a_benchmark_measures_time_and_memory_of_rounds_over_gateways():
    summary = timed.run(300, 2, 2, "iris", tell=str)
    assert summary["reports"] == 600
    assert len(summary["seconds"]) == 2
    assert summary["memory_bytes"][1]["gateway_most"] > 1e6
