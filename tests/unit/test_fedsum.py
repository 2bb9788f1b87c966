"""Training with the record, or a run of records, as the unit of privacy: figures, boards, budgets."""

import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from simulating import ask, begin, finished, fleet_of

import ternhost
from tern import ledger, storage
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.sums import fedsum
from ternhost.privacy import sums
from ternhost.provision.boards import board_directories

pytestmark = pytest.mark.usefixtures("here")
SMALL = {"data": "synthetic-logistic", "records": 60, "run_epsilon": "4"}


def train(fleet, **options):
    return ternhost.train(ternhost.FedSum(**options), fleet)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "epsilon", "figure", "least"),
    [("flights-planned", "1", "auc", 0.685), ("synthetic-logistic", "0.5", "accuracy", 0.838)],
)
def test_twenty_boards_learn_as_much_as_is_claimed(dataset, epsilon, figure, least):
    figures = []
    for seed in range(4):
        learner = finished(begin("fedsum", 20, data=dataset, run_epsilon=epsilon, seed=seed))
        figures.append(learner.figures()[figure])
    standard_error = np.std(figures, ddof=1) / 2  # of four runs
    assert np.mean(figures) + 2 * standard_error > least


@pytest.mark.parametrize(
    ("unit", "records", "protects"),
    [("record", 1, "one record"), ("60", 60, "one run of 60 consecutive records")],
)
def test_boards_pay_in_rho_and_never_more_than_for_life(unit, records, protects):
    """`fedsum` protects one record, or a run of consecutive records, with Gaussian noise. A board's
    ledger keeps what has been spent, in rho, the measure in which Gaussian noise adds up, and its
    budget for life: the rho of the epsilon 4 at the delta 1e-6.
    """
    run = train("inprocess:3", **SMALL, unit=unit)
    assert run["protects"].startswith(protects)
    assert run["epsilon_paid"] <= 4

    (archive,) = Path(run["directory"]).glob("fleet*")
    with tarfile.open(archive) as files:  # what the boards of this process held at the end
        files.extractall(".", filter="data")
    account = ledger.Ledger()
    for i, directory in enumerate(board_directories(Path(), 3)):
        account.load(str(directory / storage.ledger_name(i + 1)))
        life = sums.rho_of(4, 1e-6)
        assert account.measure == ledger.RHO
        assert account.budget == life
        assert account.spent == round(run["rho"] * 1e6) <= life  # in millionths
        *_, records_of_unit = storage.read_fleet(str(directory / storage.FLEET))
        assert records_of_unit == records


def test_boards_and_simulated_clients_learn_the_same_but_for_noise():
    """Boards in this process run the device library; simulated clients are computed together, with
    NumPy. With little noise (an epsilon of 1000), both make the same model of the same
    records.
    """
    nearly_no_noise = {**SMALL, "records": 240, "run_epsilon": "1000"}
    of_boards = train("inprocess:2", **nearly_no_noise)["weights"]
    of_clients = train("simulated:2", **nearly_no_noise)["weights"]
    # Weights are up to 7; the noise that is left moves one by some .03.
    assert np.allclose(of_boards, of_clients, atol=0.3)


def test_a_run_goes_on_exactly_where_it_stopped():
    """A run of eight rounds, and one that stops after four: a new learner takes over its state, as
    JSON, and ends in the same state. Clients draw the same noise in a round of the same number.
    """
    whole, stopped, resumed = (begin("fedsum", 5, **SMALL, public="none") for _ in range(3))
    devices = range(1, 6)

    def run_rounds(learner, numbers):
        fleet = fleet_of(learner, 5, 1)
        for number in numbers:
            learner.learn(ask(fleet, learner.cohorts(devices), number), devices)

    run_rounds(whole, range(1, 9))

    run_rounds(stopped, range(1, 5))
    resumed.restore(json.loads(json.dumps(stopped.state())))
    run_rounds(resumed, range(5, 9))

    assert resumed.state() == whole.state()


def test_public_rows_need_fewer_rounds():
    learner = finished(begin("fedsum", 20, data="flights-planned", run_epsilon="4", public="500"))
    assert learner.rounds < 20
    assert learner.figures()["auc"] > 0.69


def test_rows_that_the_data_set_declares_are_taken_by_default():
    learner = begin("fedsum", 20, data="flights-planned")
    assert [*learner.reserved] == [*learner.dataset.public]
    assert learner.result([])["public_rows"]["suited"]


def test_without_public_rows_a_run_takes_none_of_those_that_are_declared():
    learner = begin("fedsum", 20, data="flights-planned", public="none")
    assert not len(learner.reserved)
    assert learner.result([])["public_rows"] == {"from": "", "suited": False, "misfit": None}


def test_too_few_declared_rows_are_left_alone():
    """The data set wine declares 53 public rows."""
    learner = begin("fedsum", 10, data="wine", records=5, run_epsilon="4")
    assert learner.result([])["public_rows"]["from"] == ""


def test_rows_of_another_population_do_not_suit_and_the_result_says_so(tmp_path):
    """In these rows all features are the same number, and in the records they are independent."""
    learner = begin("fedsum", 20, data="synthetic-logistic", run_epsilon="4", public="none")
    features = learner.dataset.dimension
    numbers = np.random.default_rng(1).uniform(-1, 1, 400)
    rows = np.column_stack([np.ones(400)] + [numbers] * (features - 1))
    file = tmp_path / "rows.csv"
    np.savetxt(file, rows, "%.6f", delimiter=",")

    learner = begin("fedsum", 20, data="synthetic-logistic", run_epsilon="4", public=str(file))
    fleet = fleet_of(learner, 20, 1)
    for number in range(1, 9):
        learner.learn(ask(fleet, learner.cohorts(range(1, 21)), number), range(1, 21))

    assert not learner.result([])["public_rows"]["suited"]
    assert learner.rounds > 60


@pytest.mark.parametrize(
    ("dataset", "number", "of_data_set", "of_training"),
    [
        ("wine", 50, 50, 0),
        ("wine", 400, 53, 107 // 3),  # no more than a third of the records for training
        ("synthetic-linear", 400, 0, 400),
    ],
    ids=["enough of the data set", "all and a third of training", "none in the data set"],
)
def test_a_number_of_public_rows_takes_those_of_the_data_set_and_then_records_that_no_board_gets(
    dataset, number, of_data_set, of_training
):
    """The host may begin with rows that are public. If the data set has too few, records for
    training are reserved as public, at most a third of them, and no board holds a reserved one.
    """
    learner = begin("fedsum", 10, data=dataset, records=5, run_epsilon="4", public=str(number))
    public, on_boards = [*learner.reserved], {*learner.holdings.order}

    assert public[:of_data_set] == [*learner.dataset.public[:of_data_set]]
    further = {*public[of_data_set:]}
    assert len(further) == of_training
    assert further <= {*learner.dataset.training}
    assert not {*public, *learner.dataset.public} & on_boards


@pytest.mark.parametrize(
    "options",
    [
        {"unit": "501"},
        {"run_epsilon": "0"},
        {"run_epsilon": ".001"},
        {"delta": "2"},
        {"records": 10**5},
    ],
)
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(UsageError):
        begin("fedsum", 10, data="synthetic-logistic", **options)


def test_the_summary_counts_the_tally_apart_from_the_sums():
    run = train("simulated:3", **SMALL)
    last_line = fedsum.FedSum.summary(run)[-1]
    assert f"{run['d']} sums and a tally" in last_line


@pytest.mark.parametrize(
    ("most", "measure", "hint"),
    [
        (10**6, ledger.EPSILON, "tern board provision --budget E --delta D"),
        (10, ledger.RHO, "use a cheaper card"),
    ],
    ids=["another measure", "too little for a report"],
)
def test_boards_of_another_measure_or_policy_refuse_and_say_what_to_do(
    monkeypatch, most, measure, hint
):
    monkeypatch.setattr(fedsum.SumDesign, "policy", fedsum.Policy(most, 10**6, measure))
    with pytest.raises(RefusedError) as caught:
        train("inprocess:2", **SMALL)
    assert hint in caught.value.hint


def test_a_run_with_public_rows_says_that_more_reports_may_follow():
    """If the rows turn out not to suit, a descent follows, which takes more rounds."""
    with_rows = begin("fedsum", 20, data="flights-planned")
    without = begin("fedsum", 20, data="flights-planned", public="none")
    assert " or more" in with_rows.designs[0].release(with_rows.times).words
    assert " or more" not in without.designs[0].release(without.times).words


def named_in(error):
    """The epsilon that the hint of an error names."""
    return re.search(r"name ([\d.]+) or more", error.hint)[1]


@pytest.mark.parametrize("dataset", ["flights", "synthetic-logistic"])
def test_a_budget_that_an_error_names_is_enough_for_a_run(dataset):
    with pytest.raises(UsageError) as caught:
        train("inprocess:3", data=dataset, records=60, run_epsilon="0.005")
    run = train("inprocess:3", data=dataset, records=60, run_epsilon=named_in(caught.value))
    assert run["rounds"]
