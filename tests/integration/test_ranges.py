"""The range on emulated boards: they report what their simulated twin does, and a run narrows as the twin's would."""

import numpy as np
import pytest
import rig
from simulating import ask

from tern import wire
from tern.fixed import ONE
from ternhost import vectorised
from ternhost.count.questions import Question
from ternhost.datasets import Holdings
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach import fleet
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.store.store import Store

CLIENTS, D = 40, 6
CERTAIN = design("duchi", 20).card  # never wrong at -1 and 1
NARROW = (1, 2, 3, 12)


MODELS = (wire.LINEAR, wire.LOGISTIC, wire.SVM)
OTHERS = [(kind, model) for kind in ("m33-emulated:1", "pico-emulated:1") for model in MODELS]


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        *(("emulated:2", model) for model in MODELS),
        OTHERS[0],
        *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in OTHERS[1:]),
    ],
)
def test_boards_and_their_twin_scale_alike(tmp_path, kind, model):
    """All clients hold one record. Where its gradient reaches beyond the range the symbol is certain; the features
    differ by factors of 2, so that each range has another set of those."""
    rng = np.random.default_rng(model)
    row = np.append([ONE >> j for j in range(D)], ONE).astype(np.int16)
    row[:D] *= rng.choice([-1, 1], D).astype(np.int16)
    rows = np.tile(row, (CLIENTS, 1))
    directories = board_directories(tmp_path, int(kind[-1]))
    reached = []
    with Store(tmp_path / "store.sqlite") as store:
        provision_fleet(store, directories, rows, Policy(20_000_000, 900_000_000))
        boards = fleet.parse(kind).boards(directories, ())
        with BoardsDriver(store, boards, Terms()) as driver:
            twin = SimulatedDriver(Holdings(rows, np.arange(CLIENTS)))
            for number, range_ in enumerate(NARROW, 1):
                weights = rng.integers(-300, 300, D)
                question = Question(model, weights.tolist(), -14, CERTAIN, 1, range=range_)
                (gradient,) = vectorised.gradients(model, weights, -14, rows[:1], range_=range_)
                certain = np.abs(gradient) == ONE
                reached.append(int(certain.sum()))
                for one in (driver, twin):
                    (cohort,) = ask(one, [(question, one.devices)], number).cohorts
                    reports = cohort.counts.sum(axis=1)
                    assert reports.sum() == CLIENTS
                    assert np.array_equal(
                        cohort.counts[certain, 1], np.where(gradient > 0, reports, 0)[certain]
                    )
    assert reached == sorted(reached)
    assert reached[0] < reached[-1] == D


def test_a_run_on_boards_narrows_its_range(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"dataset": "synthetic-linear", "model": "linear", "epsilon": "8", "k": 1}
    result = rig.finish(fleet="emulated:2", reports=400, group=50, **options)
    taus = [entry["tau"] for entry in result["history"]]
    assert taus[0] == 1
    assert min(taus) < 1
    assert result["taus"] == {f"{tau:g}": taus.count(tau) for tau in taus}
    assert result["refusals"] == result["missing"] == 0
