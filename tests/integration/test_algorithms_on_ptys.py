"""Algorithms over ptys.

`tern collect`: MicroPython reports values, categories and levels, and its ledgers show their cost.
Then protected inference, and FedAvg.
"""

import numpy as np
import pytest
import rig
from beside import needs_papers

EXTRACT = "AGE,HRSWORK1,SEX,REGION,TOWN\n" + "".join(
    f"{20 + i % 60},{(7 * i) % 90},{1 + i % 2},{i % 6 // 2},{i % 30 // 3 * (i % 3)}\n"
    for i in range(300)
)


pytestmark = pytest.mark.usefixtures("here")


@needs_papers
def test_emulated_boards_report_means_and_frequencies_near_the_truth(tmp_path, micropython):
    (tmp_path / "people.csv").write_text(EXTRACT)
    words = ("--dataset", "ipums:people.csv", "--epsilon", 20, "--fleet", "emulated:2")
    result = rig.tern("collect", *words, "--no-report", "--json").json
    assert sum(part["reports"] for part in result["parts"]) == 300
    assert [part["mechanism"] for part in result["parts"]] == ["three-outputs", "grr", "grr", "grr"]
    assert max(cost for cost, _ in result["epsilon_spent"]) == result["epsilon_paid"] <= 20
    assert sum(devices for _, devices in result["epsilon_spent"]) == 300
    for entry in result["attributes"]:
        estimate = entry["frequencies"] if "frequencies" in entry else entry["mean"]
        assert np.abs(np.subtract(estimate, entry["true"])).max() < 0.3, entry


# Protected inference over ptys: MicroPython classifies, adds noise and reports; an interrupted run
# is resumed


# FedAvg and personalised budgets over ptys, where the ledgers show what each device has paid; and
# refused runs
