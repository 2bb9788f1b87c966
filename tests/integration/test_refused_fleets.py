"""A run that all devices refuse for good leaves nothing, on every kind of fleet."""

import pytest
import rig

from ternhost.errors import RefusedError
from ternhost.run import costs
from ternhost.run import directory as run_directory
from ternhost.store.store import Store

OTHER = {
    "dataset": "synthetic-logistic",
    "rounds": 40,
    "epsilon": "1",
}  # records of another dimension


def assert_nothing_is_left(path):
    assert run_directory.list_runs() == []
    with Store(path) as store:
        assert store.runs() == []
        assert store.last_round() == 1, "its number stays used"
        assert not costs.earlier_disclosures(store, "another")


def test_boards_on_a_broker(here, tmp_path, micropython):
    with rig.OnBroker(tmp_path, micropython, 2, 4) as fleet:
        with pytest.raises(RefusedError, match=r"4 of 4 devices refuse: .* another dimension"):
            rig.finish(**OTHER, fleet=fleet.name, store=fleet.path)
        assert_nothing_is_left(fleet.path)
