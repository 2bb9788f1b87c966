"""PLDP-FL: models learn, estimated moves are unbiased for all choices of clients, and costs are
known before a run.
"""

import numpy as np
import pytest
from simulating import ask, begin, finished, fleet_of, rounds, run

from tern import wire
from ternhost import datasets, vectorised
from ternhost.datasets.shipped import synthetic
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.designs import class_of
from ternhost.learn.models import fedavg
from ternhost.learn.models.fedavg import FINE, WEIGHTS, range_units, second_moment
from ternhost.run import costs

FEDAVG = {
    "data": "toy",
    "mechanism": "duchi",
    "epsilon": "8",
    "clients": 200,
    "batch": 4,
    "rounds": 5,
    "share": 0.3,
    "local_rate": 2,
}
LOOSE = {"tau": 1.0, "epsilon": "20", "data": "line"}


def _line(n=24_000, seed=5):
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, 3))], axis=1)
    labels = np.where(x @ [0.2, 1, -1, 0.5] + rng.normal(0, 0.2, n) > 0, 1, -1)
    return datasets.Dataset(
        "line",
        datasets.CLASSIFICATION,
        ("1", "a", "b", "c"),
        datasets.to_fixed(x),
        datasets.to_fixed(labels),
        datasets.held_out(n),
    )


LINE, TOY = _line(), synthetic.logistic(8000)


@pytest.fixture(autouse=True)
def toys(monkeypatch, tmp_path):
    real, own = datasets.load, {"line": LINE, "toy": TOY}
    monkeypatch.setattr(datasets, "load", lambda name, **of: own.get(name) or real(name, **of))
    monkeypatch.chdir(tmp_path)


# Accuracy


@pytest.mark.parametrize(("mechanism", "least"), [("duchi", 0.86), ("three-outputs", 0.89)])
def test_models_learn(mechanism, least):
    """Federated averaging with little noise (epsilon 20) reaches these accuracies on two classes
    that a line divides, and not more than the best model without privacy.
    """
    accuracies = []
    for seed in (1, 2):
        # Each client reports one of the weights, in a fifth of the 15 rounds.
        options = {"mechanism": mechanism, "k": 1, "rounds": 15, "share": 0.2, "seed": seed}
        algorithm = finished(begin("fedavg", **options, **LOOSE))
        result = algorithm.result([{}] * 15)
        accuracies.append(result["accuracy"])
    assert least < np.mean(accuracies) < result["accuracy_optimum"] + 0.01


# Estimated moves


def _exact_moves(algorithm, clients):
    start = vectorised.ModelParameters(wire.LOGISTIC, np.zeros(4, np.int64), exponent=-12)
    records = algorithm.holdings.rows(clients)
    return vectorised.train_locally(start, records, epochs=2, batch=4, rate=2)


def _estimates(algorithm, seeds):
    """The estimated mean move of each weight in the first round: a row for each seed."""
    estimates = []
    for seed in seeds:
        driver = fleet_of(algorithm, seed=seed)
        result = ask(driver, algorithm.cohorts(driver.devices))
        parts = [(algorithm._design_of(cohort), cohort) for cohort in result.cohorts]
        estimates.append(fedavg.combine(parts, algorithm.options.weights))
    return np.array(estimates)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_estimated_moves_are_unbiased_for_all_choices_of_clients(weights):
    """A client trains the model on its own records, and reports by how much each weight has moved:
    within a range and with an epsilon that its class has chosen. Over 40 runs of the first round,
    the host's estimate of the mean move, in which classes count by their clients or by the variance
    of their reports, is on average the exact one.
    """
    # Three classes of clients, each as range : epsilon : share of the clients.
    choices, shares = "0.5:2:0.5,1:8:0.25,0.75:4:0.25", [0.5, 0.25, 0.25]
    options = {"data": "line", "mechanism": "duchi", "records": 4, "local_rate": 2, "k": 2}
    algorithm = begin("fedavg", epsilons=choices, weights=weights, share=1.0, rounds=1, **options)
    clients = np.arange(algorithm.clients)
    class_of_client = class_of(clients + 1, shares, 1)
    moves = _exact_moves(algorithm, clients)
    ranges = np.array([range_units(design) for design in algorithm.designs])
    assert (np.abs(moves) <= ranges[class_of_client][:, None]).all(), "nothing is clipped"

    # The exact mean of moves, from the records themselves.
    mean_moves, weight_of_class = [], []
    for i, design in enumerate(algorithm.designs):
        of_class = moves[class_of_client == i]
        mean_moves.append(of_class.mean(axis=0) * FINE)
        weight = 1 / second_moment(design) if weights == "variance" else 1.0
        weight_of_class.append(len(of_class) * weight)
    exact = np.average(mean_moves, axis=0, weights=weight_of_class)

    runs = 40
    estimates = _estimates(algorithm, range(runs))
    standard_error = np.std(estimates, axis=0) / runs**0.5
    error = np.abs(estimates.mean(axis=0) - exact)
    assert (error < 4.5 * standard_error + 2e-3).all()  # by rounding on the devices, up to 2e-3


# Questions and costs


def test_costs_compose_over_weights_and_rounds():
    """What a client spends is known before the run. At a share of 0.1, it takes part in 3 of 25
    rounds (2.5, rounded up); the 4 weights that it reports in a round share an epsilon, of 2 or of
    6 by its class. Costs are in millionths of epsilon.
    """
    two_classes = {"epsilons": "0.5:2:0.5,0.5:6:0.5", "k": 4}  # of epsilon 2, and of 6
    plan = {"data": "line", "clients": 1000, "rounds": 25, "share": 0.1}
    algorithm = begin("fedavg", **plan, **two_classes)
    low, high = (account.user_level for account in costs.accounts(algorithm, None))
    # The cards keep a little less than the epsilon that they are designed for.
    assert 0.999 * 3 * 2_000_000 < low <= 3 * 2_000_000
    assert 0.999 * 3 * 6_000_000 < high <= 3 * 6_000_000
    assert costs.costs(algorithm) == [low, high]


def test_a_run_beyond_the_budget_does_not_start():
    cost = 16  # two reports of each client, at epsilon 8
    with pytest.raises(RefusedError, match="its budget has"):
        run("fedavg", "simulated:200", where={"budget": str(cost - 1)}, **FEDAVG)
    result = run("fedavg", "simulated:200", where={"budget": str(cost)}, **FEDAVG)
    assert result["epsilon_paid"] <= cost


def test_clients_have_training_records_of_their_own():
    algorithm = begin("fedavg", **FEDAVG | {"clients": 0})
    positions = algorithm.holdings.positions(np.arange(algorithm.clients))
    assert positions.shape == (len(TOY.training) // 8, 8)
    assert len(set(positions.reshape(-1).tolist())) == positions.size
    assert not TOY.held_out[positions].any()


# The model


def test_the_model_moves_by_the_mean_move_and_is_averaged_over_rounds():
    """In each round clients report how far training moves the model, and the host moves it by the
    mean of that. The weights of a run are an average of the models of all rounds, in which later
    ones count more.
    """
    algorithm = begin("fedavg", data="line", rounds=3, share=1.0, clients=100)
    (design,) = algorithm.designs

    moves, weights = [], []
    for result in rounds(algorithm, fleet_of(algorithm)):
        parts = [(design, cohort) for cohort in result.cohorts]
        moves.append(fedavg.combine(parts, fedavg.CLIENTS))
        weights.append(algorithm.weights)

    first_move, second_move, _ = moves
    average_of_one, average_of_two, _ = weights
    assert average_of_one == pytest.approx(first_move, abs=2**-12)
    unit = 2.0**-12  # of the parameters of a question: the second move begins at whole ones
    second_model = np.rint(first_move / unit) * unit + second_move
    # The i-th model has the share 4 / (i + 3) of the average: the first all, the second 4/5.
    expected = first_move + 4 / 5 * (second_model - first_move)
    assert average_of_two == pytest.approx(expected, abs=2 * unit)


# Refusals


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("clients", 201),  # there are 200
        ("share", 1.1),
        ("local_rate", 17),  # up to 16
        ("tau", float("nan")),
        ("records", 10**6),
        ("k", 17),  # of 16 weights
        ("weights", "size"),
        ("epsilons", "nan:1:1"),
    ],
)
def test_invalid_options_are_refused(option, value):
    with pytest.raises(UsageError):
        run("fedavg", "simulated:200", **FEDAVG | {option: value})
