"""Training with the record, or a run of records, as the unit of privacy: figures, boards, budgets,
refusals.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N

import ternhost
from tern import ledger, storage
from ternhost import datasets
from ternhost.errors import RefusedError
from ternhost.learn import fedsum
from ternhost.privacy import sums
from ternhost.provision.boards import board_directories

pytestmark = pytest.mark.usefixtures("here")
SMALL = {"dataset": "synthetic-logistic", "records": 200, "life": "4"}


def train(fleet, **options):
    return ternhost.train("fedsum", fleet=fleet, **options)


@pytest.mark.parametrize(
    ("dataset", "life", "figure", "least"),
    [("flights-planned", "1", "auc", 0.685), ("synthetic-logistic", "0.5", "accuracy", 0.838)],
)
def test_twenty_boards_learn_as_much_as_is_claimed(dataset, life, figure, least):
    runs = [train("simulated:20", dataset=dataset, life=life, seed=seed) for seed in range(4)]
    values = np.array([run[figure] for run in runs])
    assert values.mean() + 2 * values.std(ddof=1) / 2 > least
    assert values.mean() < runs[0][f"{figure}_optimum"]


@pytest.mark.parametrize("unit", ["record", "60"])
def test_boards_pay_in_rho_and_never_more_than_for_life(unit):
    run = train("inprocess:3", **{**SMALL, "records": 60}, unit=unit)
    life = sums.rho_of(4, 1e-6)
    with tarfile.open(next(Path(run["directory"]).glob("fleet*"))) as archive:
        archive.extractall(".", filter="data")
    account = ledger.Ledger()
    for i, directory in enumerate(board_directories(Path(), 3)):
        account.load(str(directory / storage.ledger_name(i + 1)))
        assert (account.measure, account.budget) == (ledger.RHO, life)
        assert account.spent == round(run["rho"] * 1e6) <= life
        assert storage.read_fleet(str(directory / storage.FLEET))[-1] == (
            1 if unit == "record" else 60
        )
    assert run["epsilon_paid"] <= 4
    what = "one record" if unit == "record" else "one run of 60 consecutive records"
    assert run["protects"].startswith(what)
    assert run["accuracy"] > (0.6 if unit == "record" else 0.3)


def test_boards_and_simulated_clients_learn_the_same_but_for_noise():
    """With little noise, the sums of real boards and those of the vectorised twin make the same
    model.
    """
    runs = [train(f"{kind}:3", **{**SMALL, "life": "1000"}) for kind in ("inprocess", "simulated")]
    assert np.allclose(*(run["weights"] for run in runs), atol=0.1)


def test_a_run_goes_on_exactly_where_it_stopped():
    population = fedsum.Population(clients=5)
    whole, first, second = (
        fedsum.FedSum(fedsum.Options(**SMALL), population, datasets.load("synthetic-logistic"))
        for _ in range(3)
    )
    driver = ternhost.reach.simulated.driver.SimulatedDriver

    def rounds(learner, start, end):
        fleet = driver(learner.holdings, 5, 1)
        for number in range(start, end):
            fleet.open(number, learner.cohorts(range(1, 6)))
            learner.learn(fleet.collect(number), range(1, 6))

    rounds(whole, 1, 9)
    rounds(first, 1, 5)
    second.restore(first.state())
    rounds(second, 5, 9)
    assert second.state() == whole.state()


def test_public_rows_need_fewer_rounds():
    run = train("simulated:20", dataset="flights-planned", life="4", public="500")
    assert run["rounds"] == 4
    assert run["auc"] > 0.69


def test_a_number_of_public_rows_takes_those_of_the_data_set_and_then_records_that_no_board_gets():
    def made(dataset, number):
        options = fedsum.Options(**SMALL | {"dataset": dataset, "records": 5}, public=str(number))
        learner = fedsum.FedSum(options, fedsum.Population(clients=10))
        assert not {*learner.reserved} & {*learner.holdings.order}
        assert not {*learner.dataset.public} & {*learner.holdings.order}
        return learner.dataset, learner.reserved

    wine, rows = made("wine", 50)
    assert (rows == wine.public[:50]).all()
    wine, rows = made("wine", 400)
    assert (rows[:53] == wine.public).all()
    assert set(rows[53:]) < set(wine.training)
    assert len(rows) == 53 + 107 // 3
    linear, rows = made("synthetic-linear", 400)
    assert len(set(rows) & set(linear.training)) == 400


def test_the_named_unit_chooses_the_algorithm(tern):
    words = [
        "train",
        "--dataset",
        "synthetic-logistic",
        "--fleet",
        "simulated:4",
        "--records",
        "50",
    ]
    words += ["--no-report", "--quiet"]
    assert "protects one record of a device" in tern(*words, "--unit", "record").out
    refused = tern(*words, "--unit", "device", code=2)  # --records is of units
    assert "--records belongs to fedavg and fedsum" in refused.err


@pytest.mark.parametrize(
    ("most", "measure", "message", "hint"),
    [
        (
            10**6,
            ledger.EPSILON,
            "their ledgers count epsilon, and this report costs rho",
            "tern provision --budget E --delta D",
        ),
        (10, ledger.RHO, "would cost more than they allow for one, 1e-05", "use a cheaper card"),
    ],
)
def test_boards_of_another_measure_or_policy_refuse(monkeypatch, most, measure, message, hint):
    """They say why, and what to do."""
    monkeypatch.setattr(fedsum.SumDesign, "policy", fedsum.Policy(most, 10**6, measure))
    with pytest.raises(RefusedError, match=message) as caught:
        train("inprocess:2", **SMALL)
    assert hint in caught.value.hint
