"""PLDP-FL: models learn, estimated moves are unbiased for all choices of clients, and costs are
known before a run.
"""

import re

import numpy as np
import pytest
from simulating import ask, begin, finished, fleet_of, rounds, run

from tern import wire
from ternhost import datasets, vectorised
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.datasets import synthetic
from ternhost.errors import RefusedError, UsageError
from ternhost.learn import fedavg, training
from ternhost.learn.base import Population
from ternhost.learn.designs import class_of
from ternhost.learn.fedavg import FINE, MODES, WEIGHTS, FedAvg, Options, range_units, second_moment
from ternhost.learn.schedule import Schedule
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run import costs
from ternhost.run.status import Watcher

FEDAVG = {
    "dataset": "toy",
    "mechanism": "duchi",
    "epsilon": "8",
    "clients": 200,
    "batch": 4,
    "rounds": 5,
    "share": 0.3,
    "local_rate": 2,
}
LOOSE = {"tau": 1.0, "epsilon": "20", "dataset": "line"}


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
    private, optima = [], []
    for seed in range(1, 7):
        algorithm = begin(
            "fedavg", mechanism=mechanism, k=1, rounds=15, share=0.2, seed=seed, **LOOSE
        )
        judged = [algorithm.figures()["accuracy"] for _ in rounds(algorithm, fleet_of(algorithm))]
        result = algorithm.result([{} for _ in judged])
        assert len(judged) == 15
        assert judged[-1] == result["accuracy"] > 0.78
        private.append(result["accuracy"])
        optima.append(result["accuracy_optimum"])
    assert algorithm.clients == int((~LINE.held_out).sum()) // 8
    assert min(optima) == max(optima) > 0.9
    assert least < np.mean(private) < optima[0] + 0.01


# Estimated moves


def _exact_moves(algorithm, clients):
    return vectorised.train_locally(
        wire.LOGISTIC, np.zeros(4, np.int64), -12, algorithm.holdings.rows(clients), 2, 4, 2
    )


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
    options = {"dataset": "line", "choices": "0.5:2:0.5,1:8:0.25,0.75:4:0.25", "mechanism": "duchi"}
    algorithm = begin(
        "fedavg", share=1.0, rounds=1, records=4, k=2, local_rate=2, weights=weights, **options
    )
    clients = np.arange(algorithm.clients)
    moves = _exact_moves(algorithm, clients)
    classes = class_of(clients + 1, [0.5, 0.25, 0.25], 1)
    ranges = np.array([range_units(design) for design in algorithm.designs])
    assert (np.abs(moves) <= ranges[classes][:, None]).all()
    of_class = np.array([moves[classes == i].mean(axis=0) * FINE for i in range(3)])
    each = [
        1.0 if weights == "clients" else 1 / second_moment(design) for design in algorithm.designs
    ]
    exact = np.average(of_class, axis=0, weights=np.bincount(classes) * each)
    estimates = _estimates(algorithm, range(60))
    error = np.std(estimates, axis=0) / 60**0.5
    assert (abs(estimates.mean(axis=0) - exact) < 4.5 * error + 2e-3).all()
    if weights == "clients":
        assert exact == pytest.approx(moves.mean(axis=0) * FINE)


def test_inverse_variance_has_less_noise():
    spread = {}
    for weights in WEIGHTS:
        algorithm = begin(
            "fedavg",
            dataset="line",
            choices="0.5:1:0.5,0.5:8:0.5",
            weights=weights,
            clients=3000,
            share=1.0,
            rounds=1,
            records=4,
            mechanism="duchi",
            k=4,
        )
        spread[weights] = np.std(_estimates(algorithm, range(40)), axis=0).mean()
    assert spread["variance"] < 0.7 * spread["clients"]


def test_a_range_that_is_too_small_clips():
    # A client that moves further reports the end of its range, so that no weight moves further in a
    # round.
    algorithm = begin("fedavg", **{**LOOSE, "tau": 0.001}, rounds=3, k=1, mechanism="duchi")
    clients = np.arange(algorithm.clients)
    moves = _exact_moves(algorithm, clients)
    assert np.mean(np.abs(moves) > range_units(algorithm.designs[0])) > 0.5
    finished(algorithm)
    assert np.abs(algorithm.trainer.weights).max() < 3 * 1.2 * 0.001


# Questions and costs


def test_a_question_states_the_local_training():
    algorithm = begin("fedavg", **FEDAVG)
    (question, clients), *rest = algorithm.cohorts(range(1, 201))
    assert len(clients) == 60
    assert not rest
    assert (question.model, question.exponent, question.batch) == (
        wire.LOCAL + wire.LOGISTIC,
        -12,
        4,
    )
    assert question.local == (2, 2, round(0.25 * 2**20))
    assert set(question.parameters) == {0}
    assert algorithm.modules == ("local",)
    both = begin("fedavg", **{**FEDAVG, "epsilon": Options().epsilon}, choices="both")
    assert [question.local[2] for question, _ in both.cohorts(range(1, 201))] == [
        2**17,
        2**18,
        2**19,
    ]


def test_costs_compose_over_weights_and_rounds():
    algorithm = begin(
        "fedavg",
        dataset="line",
        choices="0.5:2:0.5,0.5:6:0.5",
        rounds=25,
        share=0.1,
        clients=1000,
        k=4,
    )
    # It takes part in 3 of 25 rounds, and reports 4 weights at 0.5 each.
    low, high = (account.user_level for account in costs.accounts(algorithm, None))
    assert 0.999 * 6_000_000 < low <= 6_000_000
    assert 0.999 * 18_000_000 < high <= 18_000_000
    assert costs.costs(algorithm) == [low, high]


def test_a_policy_covers_the_run_unless_a_budget_is_given():
    algorithm = begin("fedavg", **FEDAVG)
    assert algorithm.times == 2  # 5 rounds of 60 of 200 clients
    (policy,) = set(costs.policies(algorithm, np.arange(1, 201), None))
    assert policy.largest == 8_000_000
    assert 0.999 * 16_000_000 < policy.budget <= 16_000_000
    (policy,) = set(costs.policies(algorithm, np.arange(1, 201), 99))
    assert (policy.largest, policy.budget) == (8_000_000, 99)


def test_a_run_beyond_the_budget_does_not_start():
    statuses = []
    watcher = Watcher(status=statuses.append)
    with pytest.raises(RefusedError, match="its budget has"):
        run("fedavg", "simulated:200", watcher, {"budget": "15"}, **FEDAVG)
    with pytest.raises(RefusedError, match="each client would spend epsilon 300"):
        run("fedavg", "simulated:200", watcher, {"budget": "100"}, rounds=30, share=0.5, **LOOSE)
    assert not statuses
    result = run("fedavg", "simulated:200", None, {"budget": "16"}, **FEDAVG)
    assert result["accounting"][0]["epsilon_budget"] == 16


def test_a_run_states_its_cost_before_and_after():
    notes = []
    result = run("fedavg", "simulated:200", Watcher(note=notes.append), **FEDAVG)
    assert notes[0].split(": ", 1)[1] == (
        f"2 reports of {result['k']} weights (tau 0.25), each weight at epsilon {8 / result['k']:g} "
        "(one a round: --rounds sets how many)"
    )
    assert notes[1].startswith("this run protects a device with all of its records with epsilon 16")
    assert (result["rounds"], result["reports"]) == (5, 300)
    (account,) = result["accounting"]
    assert account["epsilon_user_level"] == result["epsilon_paid"] <= 16
    assert result["accuracy_optimum"] > 0.8
    assert result["accuracy"] > result["accuracy_baseline"] + 0.1
    assert result["history"][-1]["accuracy"] == result["accuracy"]


def test_clients_have_training_records_of_their_own():
    algorithm = begin("fedavg", **FEDAVG | {"clients": 0})
    positions = algorithm.holdings.positions(np.arange(algorithm.clients))
    assert positions.shape == (len(TOY.training) // 8, 8)
    assert len(set(positions.reshape(-1).tolist())) == positions.size
    assert not TOY.held_out[positions].any()


@pytest.mark.parametrize(("mode", "most"), [("1", 67.2), ("2", 336), ("3", 336)])
def test_in_a_mode_of_the_paper_clients_report_all_weights_each_at_its_epsilon(mode, most):
    settings = {
        "dataset": "flights",
        "rounds": 12,
        "share": 1.0,
        "mechanism": "duchi",
        "clients": 50,
    }
    algorithm = begin("fedavg", choices=f"epsilon{mode},tau1", **settings)
    drawn = {"1": (0.1, 0.2), "2": [i / 10 for i in range(1, 11)], "3": (0.9, 1.0)}[mode]
    assert (algorithm.d, algorithm.times) == (28, 12)
    assert {design.k for design in algorithm.designs} == {28}
    assert sorted({design.card.epsilon / 10**6 for design in algorithm.designs}) == pytest.approx(
        drawn
    )
    assert max(costs.costs(algorithm)) / 10**6 == most
    assert max(account.user_level for account in costs.accounts(algorithm, None)) / 10**6 == most
    fewer = begin("fedavg", choices=f"epsilon{mode},tau1", k=1, **settings)
    assert max(costs.costs(fewer)) / 10**6 == pytest.approx(most / 28)


@pytest.mark.parametrize("mode", ["1", "2", "3"])
def test_modes_of_the_paper_draw_tau_and_epsilon_independently_and_evenly(mode):
    low, high, every = (0.2, 0.4), (1.8, 2.0), [i / 5 for i in range(1, 11)]
    drawn = {"1": low, "2": every, "3": high}[mode]
    for other in "123":
        chosen = Options(choices=f"epsilon{other},tau{mode}").chosen()
        epsilons = {choice.epsilon for choice in chosen}
        assert sorted({choice.tau for choice in chosen}) == pytest.approx(drawn)
        assert len({(choice.tau, choice.epsilon) for choice in chosen}) == len(chosen)
        assert len(chosen) == len(drawn) * len(epsilons)
        assert {choice.share for choice in chosen} == {1 / len(chosen)}


def test_a_run_of_many_classes_tells_what_the_least_and_the_most_spend():
    notes = []
    choices = {"choices": "epsilon2,tau2", "rounds": 2, "share": 1.0, "mechanism": "duchi"}
    result = run("fedavg", "simulated:200", Watcher(note=notes.append), dataset="line", **choices)
    assert len(result["classes"]) == len(result["accounting"]) == 100
    assert notes[0].endswith(
        "there are 100 classes of clients; these spend the least and the most:"
    )
    assert ["epsilon 0.8 in total" in notes[1], "epsilon 8 in total" in notes[2], len(notes)] == [
        True,
        True,
        5,  # and the life of both
    ]
    lines = FedAvg.summary(result)
    assert [line.strip().split(" of the clients: ")[-1].split(",")[0] for line in lines[-2:]] == [
        "epsilon 0.4 a report",
        "epsilon 4 a report",
    ]
    assert "of which these spend the least and the most" in lines[-3]


@pytest.mark.parametrize("mode", MODES)
def test_a_preset_has_its_classes(mode):
    algorithm = finished(begin("fedavg", dataset="line", choices=mode, rounds=4, share=0.5))
    result = algorithm.result([])
    expected = [(choice.tau, choice.epsilon / 1e6) for choice in MODES[mode]]
    assert [(each["tau"], each["epsilon"]) for each in result["classes"]] == expected
    assert len(costs.accounts(algorithm, None)) == len(MODES[mode])
    assert 0 <= result["accuracy"] <= 1


def test_without_records_keys_or_an_option_give_the_number_of_clients():
    with pytest.raises(UsageError, match="number of clients of this fleet is unknown") as caught:
        FedAvg(Options(dataset="toy"), Population(knows_records=False))
    assert "--clients" in caught.value.hint
    for options, devices in ((Options(dataset="toy"), 30), (Options(dataset="toy", clients=30), 0)):
        algorithm = FedAvg(options, Population(knows_records=False, devices=devices))
        assert (algorithm.clients, algorithm.times, algorithm.reports) == (30, 1, 20)
    without_clients = Population(knows_records=False, schedule=Schedule(rounds=7))
    assert FedAvg(Options(dataset="toy"), without_clients).times == 7  # at most


# The model


def test_the_model_moves_by_the_mean_move_and_is_averaged_over_rounds():
    algorithm = begin("fedavg", dataset="line", rounds=3, share=1.0, clients=100)
    (design,) = algorithm.designs
    moves, weights = [], []
    for result in rounds(algorithm, fleet_of(algorithm)):
        moves.append(
            fedavg.combine([(design, cohort) for cohort in result.cohorts], fedavg.CLIENTS)
        )
        weights.append(algorithm.weights)
    first, second, _ = moves
    assert weights[0] == pytest.approx(first, abs=2**-12)  # the average of one model is that model
    last = np.rint(first / 2.0**-12) * 2.0**-12 + second
    assert weights[1] == pytest.approx(first + 4 / 5 * (last - first), abs=2**-11)


def test_three_rounds_without_a_report_end_a_run():
    algorithm = begin("fedavg", **FEDAVG)
    for number in range(3):
        assert not algorithm.done
        algorithm.learn(RoundResult(number, COMPLETE, 60, 0, {}, []), range(1, 201))
    assert algorithm.trainer.stopped == training.QUORUM
    assert (algorithm.weights == 0).all()


def test_a_weight_without_reports_stays():
    algorithm = begin(
        "fedavg", dataset="line", clients=40, share=0.025, rounds=1, k=1, mechanism="duchi"
    )
    finished(algorithm, SimulatedDriver(algorithm.holdings, 40))
    assert np.count_nonzero(algorithm.trainer.weights) == 1


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 10**6}, "at most --clients 200"),
        ({"clients": 201}, "at most --clients 200"),
        ({"clients": -1}, "--clients must be 0"),
        ({"rounds": 0}, "--rounds must be 1 or more, not 0"),
        ({"share": 0.0}, "--share must be above 0 and at most 1, not 0"),
        ({"share": 1.1}, "--share must be above 0 and at most 1"),
        ({"local_epochs": 0}, "--local-epochs must be 1 to 255"),
        ({"local_rate": 17}, "--local-rate must be 0 to"),
        ({"tau": 0.0}, "--tau must be"),
        ({"tau": 9.0}, "--tau must be"),
        ({"tau": 1e-9}, "--tau must be"),
        ({"tau": float("nan")}, "--tau must be"),
        ({"choices": "nan:1:1"}, "--choices must be of safe ranges .* not nan"),
        ({"choices": "0:1:1"}, "--choices must be of safe ranges .* not 0"),
        ({"choices": "0.5:1:0.5,9:1:0.5"}, "--choices must be of safe ranges .* to 8, not 9"),
        ({"choices": "0.25:1"}, "not a choice"),
        ({"choices": "x:1:1"}, "not a choice"),
        ({"choices": "0.25:1:0.4"}, "must add up to 1"),
        ({"choices": "foo"}, "'foo' is not a class of devices such as 0.25:2:0.5,0.5:8:0.5, or"),
        (
            {"choices": "epsilon4,tau1"},
            "is not a class of devices such as 0.25:2:0.5,0.5:8:0.5, or",
        ),
        (
            {"choices": "epsilon1,tau2,"},
            "is not a class of devices such as 0.25:2:0.5,0.5:8:0.5, or",
        ),
        ({"choices": "epsilon2,tau2", "k": 17}, "--k must be 1 to 16"),
        ({"records": 0}, "--records must be 1 or more"),
        ({"records": 10**6}, "no client gets 1000000"),
        ({"k": 17}, "--k must be 1 to 16"),
        ({"batch": 33}, "--batch must be 0"),
        ({"weights": "size"}, "--weights must be clients or variance, not size"),
    ],
)
def test_invalid_options_are_refused(change, message):
    with pytest.raises(UsageError) as caught:
        run("fedavg", "simulated:200", **FEDAVG | change)
    assert re.search(message, f"{caught.value.message} {caught.value.hint}")


def test_the_command_takes_choices(tern, tmp_path):
    common = ["train", "--dataset", "toy", "--quiet"]
    words = "--algorithm fedavg --fleet simulated:100 --rounds 2 --mechanism duchi --choices tau"
    result = tern(*common, *words.split(), "--json", "--no-report").json
    assert [each["tau"] for each in result["classes"]] == [0.125, 0.25, 0.5]
    (tmp_path / "some.card").write_bytes(b"card")
    refused = tern(*common, "--card", "some.card", "--levels", "3", code=2)
    assert "--card and --levels exclude each other" in refused.err


def test_choices_are_made_from_the_options():
    assert [choice.tau for choice in Options(choices="0.5:4:0.5,1:8:0.5").chosen()] == [0.5, 1]
    assert Options(choices="epsilon1, tau3").chosen() == Options(choices="epsilon1,tau3").chosen()
    (choice,) = Options(tau=0.5, epsilon="3").chosen()
    assert (choice.tau, choice.epsilon, choice.share) == (0.5, 3_000_000, 1)
    assert [choice.tau for choice in Options(epsilons="1:0.5,2:0.5").chosen()] == [0.25, 0.25]
