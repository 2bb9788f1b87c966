"""HierA on emulated boards: each device pays what the result says, for a level and a sign."""

import pytest
import rig

from ternhost.store.store import Store
from terntools.emulators.micropython import find_micropython


@pytest.fixture(scope="module")
def micropython():
    return find_micropython()


@pytest.mark.usefixtures("here", "micropython")
def test_hiera_costs_each_device_what_the_result_says(tmp_path):
    """A collection by HierA of Hao et al. from the devices of two emulated boards.

    The privacy budget in their ledgers is what the result says was paid, and their reports are of
    3 levels with 2 signs: 0 to 5.
    """
    options = {"data": "wine", "epsilon": "18", "proportions": "4,3,2"}
    result = rig.finish("levels", fleet="emulated:2", **options)

    assert result["epsilon_spent"] == [[result["epsilon_paid"], 125]]  # by 125 devices
    assert result["epsilon_stated"] < result["epsilon_paid"] <= 18
    # 0.08 is usual, at 14 reports an attribute; 0.3 a rare chance.
    assert result["mean_squared_error"] < 0.4

    ledgers = rig.ledgers_of_run(tmp_path / result["directory"])
    with Store(tmp_path / result["store"]) as store:
        reports = dict(store.reports(1))
    assert {device: ledgers[device][2] for device in reports} == reports
    assert {payload[0] for payload in reports.values()} <= set(range(6))
