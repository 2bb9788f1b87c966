"""The parts that all algorithms share: classes of devices, turns, reports and their cost."""

from fractions import Fraction
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from designing import shipped_card
from simulating import ask, begin, finished, fleet_of, run

from tern import card as cards
from ternhost import datasets
from ternhost.datasets import synthetic
from ternhost.errors import RefusedError, UsageError
from ternhost.learn import base, estimate
from ternhost.learn.designs import DeviceClass, class_of, coordinates_by_rule, shares
from ternhost.learn.devices import Turns, clients_of, most_turns, take
from ternhost.learn.fedsgd import Options
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import design
from ternhost.reach.simulated.driver import SimulatedDriver
from ternhost.run import costs

# Shares


def test_shares_are_read_and_add_up_to_1():
    assert shares("1:0.5,2:0.5") == [("1", 0.5), ("2", 0.5)]
    assert shares("0.25:8:1") == [("0.25:8", 1.0)]
    thirds = [share for _, share in shares("1:0.3333333,2:0.3333333,3:0.3333333")]
    assert sum(thirds) == pytest.approx(1, abs=1e-12)  # rounded ones, too
    for wrong in ("", "1", "1:", ":1", "1:x", "1:0.5,2:0.4", "1:-1,2:2", "1:0,2:1", "1:nan"):
        with pytest.raises(UsageError):
            shares(wrong)


# Classes


@pytest.mark.parametrize("parts", [[0.5, 0.3, 0.2], [0.01, 0.99], [1 / 3] * 3])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_classes_have_their_shares(parts, seed):
    n = 100_000
    observed = np.bincount(class_of(np.arange(1, n + 1), parts, seed), minlength=len(parts)) / n
    error = np.sqrt(np.array(parts) * (1 - np.array(parts)) / n)
    assert (np.abs(observed - parts) < 4.5 * error).all()


def test_a_device_keeps_its_class_when_others_join():
    parts = [0.5, 0.3, 0.2]
    few, many = np.arange(1, 101), np.arange(1, 100_001)
    of_few, of_many = class_of(few, parts, 7), class_of(many, parts, 7)
    assert (of_few == of_many[:100]).all()
    shuffled = np.random.default_rng(1).permutation(many)
    assert (class_of(shuffled, parts, 7) == of_many[shuffled - 1]).all()
    assert (class_of([50], parts, 7) == of_many[49]).all()
    assert set(class_of([0, 1, 2**31, 2**32 - 1], [0.5, 0.5], 2**31)) <= {0, 1}  # ids of any size


def test_classes_of_two_seeds_and_of_neighbouring_ids_are_independent():
    devices = np.arange(1, 50_001)
    first, second = (class_of(devices, [0.5, 0.5], seed) for seed in (1, 2))
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.01)
    assert np.mean(first[1:] == first[:-1]) == pytest.approx(0.5, abs=0.01)
    assert np.mean(first[::2]) == pytest.approx(0.5, abs=0.015)


def test_devices_and_clients_are_each_other_s_inverse():
    rng = np.random.default_rng(2)
    dealt = rng.permutation(np.arange(10, 5000, 7))
    clients = rng.permutation(len(dealt))[:100]
    assert (clients_of(dealt, take(dealt, clients)) == clients).all()
    ids = range(100, 5000)
    assert (clients_of(ids, take(ids, clients)) == clients).all()
    assert (take(ids, clients) == clients + 100).all()
    assert take(list(dealt), clients).tolist() == dealt[clients].tolist()


# Turns


@pytest.mark.parametrize(("clients", "group"), [(10, 3), (100, 30), (7, 7), (5, 1), (3, 8), (6, 0)])
def test_every_client_takes_part_once_before_any_takes_part_again(clients, group):
    turns, times = Turns(clients, group, 3), np.zeros(clients, np.int64)
    group = max(1, min(group, clients))
    for number in range(40):
        taking_part = turns.group(number)
        assert len(set(taking_part.tolist())) == group
        times[taking_part] += 1
        assert times.max() - times.min() <= 1
        assert times.max() == most_turns(clients, group, number + 1)


def test_turns_are_the_same_when_they_are_resumed():
    turns = Turns(23, 5, 9)
    groups = [turns.group(number).tolist() for number in range(20)]
    for start in range(20):
        resumed = Turns(23, 5, 9)
        assert [resumed.group(number).tolist() for number in range(start, 20)] == groups[start:]
    for number in (19, 4, 5):  # once more, and back
        assert turns.group(number).tolist() == groups[number]
    assert Turns(23, 5, 10).group(0).tolist() != groups[0]


# k


@pytest.mark.parametrize(
    ("rule", "epsilon", "k"),
    [
        ("paper", 100_000, 1),
        ("paper", 4_999_999, 1),
        ("paper", 5_000_000, 2),
        ("paper", 20_000_000, 8),
        ("wide", 3_499_999, 1),
        ("wide", 3_500_000, 2),
        ("wide", 6_000_000, 3),
        ("wide", 8_499_999, 3),
    ],
)
def test_a_rule_gives_k_for_an_epsilon(rule, epsilon, k):
    assert coordinates_by_rule(rule, epsilon, 100) == k
    assert coordinates_by_rule(rule, epsilon, 1) == 1


def test_classes_share_the_k_of_the_least_epsilon():
    classes = [DeviceClass(12_000_000, 0.5), DeviceClass(5_000_000, 0.5)]
    assert Options().k_for(classes, 28) == 2
    assert Options(k=3).k_for(classes, 28) == 3
    for k in (0, 29):
        with pytest.raises(
            UsageError, match=f"--k must be 1 to 28, the number of coordinates, not {k}"
        ):
            Options(k=k).k_for(classes, 28)
    with pytest.raises(UsageError, match="unknown rule 'own'"):
        coordinates_by_rule("own", 1, 1)


# Reports


def test_a_card_that_costs_more_than_epsilon_is_refused():
    card = mechanisms.design("three-outputs", "1").card.hex()
    options = Options(card=card)
    assert options.design(DeviceClass(2_000_000), 2).epsilon == 2_000_000
    assert options.design(DeviceClass(2_000_000), 2).cost <= 2_000_000
    for epsilon, k in ((999_999, 1), (2_000_000, 3)):
        with pytest.raises(UsageError, match="more than the"):
            options.design(DeviceClass(epsilon), k)
    with pytest.raises(UsageError, match="this is not a card"):
        Options(card="00ff").design(DeviceClass(2_000_000), 1)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3.3", "20"])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_k_coordinates_cost_no_more_than_epsilon(epsilon, k):
    design = Options().design(DeviceClass(round(float(epsilon) * 1e6)), k)
    assert 0.95 * float(epsilon) * 1e6 < design.cost <= float(epsilon) * 1e6
    assert design.cost == design.k * design.card.epsilon
    assert design.variance == float(certify.moments(design.card).variance(Fraction(0)))


def test_gradients_are_not_reported_with_a_hierarchy():
    options = Options(card=shipped_card("lhp", 2).data.hex())
    with pytest.raises(UsageError, match="a level and a sign"):
        options.design(DeviceClass(2_000_000), 1, of_gradients=True)


def test_a_share_below_a_millionth_is_refused():
    with pytest.raises(UsageError, match="below a millionth"):
        Options().design(DeviceClass(1), 3)


def test_an_unknown_algorithm_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="no algorithm 'adam'") as caught:
        base.ALGORITHMS.named("adam")
    assert "fedsgd, fedavg, fedsum, direct, collect, means, infer" in caught.value.hint


# Personalised budgets: the card of each class, its cost, and the model


EPSILONS, SHARES = "1:0.5,2:0.3,4:0.2", [0.5, 0.3, 0.2]
SMALL = {
    "fedsgd": {"dataset": "toy", "reports": 1000, "group": 250},
    "fedavg": {"dataset": "toy", "mechanism": "duchi", "clients": 200, "rounds": 5, "share": 0.3},
    "collect": {"dataset": "toy", "clients": 1000},
    "infer": {"dataset": "iris", "cluster_client_num": 1000},
}


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    data = synthetic.logistic(8000, 6, seed=2)
    real = datasets.load
    monkeypatch.setattr(
        datasets, "load", lambda name, **of: data if name == "toy" else real(name, **of)
    )
    monkeypatch.chdir(tmp_path)
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_classes_are_asked_in_cohorts_of_their_own_cards(name):
    algorithm = begin(name, 1000, epsilons=EPSILONS, **SMALL[name])
    driver, designs = fleet_of(algorithm), algorithm.designs
    assert [design.epsilon for design in designs] == [1_000_000, 2_000_000, 4_000_000]
    # Each class has its own means, but a gradient's coordinates have to be as many in every class.
    assert name == "collect" or len({design.k for design in designs}) == 1
    assert [design.share for design in designs] == SHARES
    classes = dict(
        zip(driver.devices, class_of(driver.devices, SHARES, algorithm.options.seed), strict=True)
    )
    number, taking_part = 0, []
    while not algorithm.done:
        number += 1
        cohorts = algorithm.cohorts(driver.devices)
        assert [question.card for question, _ in cohorts] == [
            design.card.data for design in designs
        ]
        for i, (_, devices) in enumerate(cohorts):
            assert {classes[device] for device in np.asarray(devices).tolist()} == {i}
            taking_part += np.asarray(devices).tolist()
        algorithm.learn(ask(driver, cohorts, number), driver.devices)
    assert number == algorithm.rounds
    assert len(taking_part) == algorithm.reports
    assert max(np.bincount(taking_part)) == algorithm.times  # no device more often than is paid for
    assert [account.user_level for account in costs.accounts(algorithm, None)] == costs.costs(
        algorithm
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_each_class_pays_its_own_epsilon(name):
    algorithm = begin(name, 1000, epsilons=EPSILONS, **SMALL[name])
    times = 2 if name == "fedavg" else 1  # 5 rounds of 60 of 200 clients
    assert algorithm.times == times
    for cost, epsilon in zip(costs.costs(algorithm), (1, 2, 4), strict=True):
        assert 0.99 * epsilon * times < cost / 1e6 <= epsilon * times
    with pytest.raises(RefusedError, match="its budget has"):
        costs.accounts(algorithm, 3_500_000 * times)
    budget = 4_000_000 * times
    assert [account.budget for account in costs.accounts(algorithm, budget)] == [budget] * 3
    policies = costs.policies(algorithm, np.arange(1, 201), None)
    of_class = class_of(np.arange(1, 201), SHARES, algorithm.options.seed)
    for policy, i in zip(policies, of_class, strict=True):
        assert policy.largest == algorithm.designs[i].policy.largest
        assert policy.budget == max(policy.largest, costs.costs(algorithm)[i])
        assert policy.largest <= algorithm.designs[i].epsilon


def test_an_inference_has_the_budget_of_each_class():
    algorithm = finished(begin("infer", 1000, epsilons=EPSILONS, **SMALL["infer"]))
    result = algorithm.result([])
    assert [budget["epsilon"] for budget in result["budgets"]] == [1, 2, 4]
    assert result["clients"] == 1000
    assert result["epsilon_true"] == 4  # of the class that pays most
    assert result["laplace_eval_eps"] == 2


def test_a_collection_has_the_share_of_each_class_and_intervals_around_the_truth():
    result = finished(begin("collect", 60_000, dataset="toy", epsilons="2:0.5,8:0.5")).result([])
    assert [part["share"] for part in result["parts"]] == [0.5, 0.5]
    assert result["mean_squared_error"] < 1e-3
    for entry in result["attributes"]:
        low, high = entry["interval"]
        assert low - 0.01 < entry["true"] < high + 0.01


def test_frequencies_of_classes_are_unbiased_by_enumeration():
    # Every outcome of three devices, two of one class and one of another, with its exact
    # probability.
    of = [design("grr", "0.5", 3).decode(), design("grr", "2", 3).decode()]
    inputs = [(0, 0), (0, 2), (1, 1)]  # class and category of each device

    def law(card, category):
        same = Fraction(card.threshold, cards.T)
        return [same if symbol == category else (1 - same) / 2 for symbol in range(3)]

    laws = [(c, law(of[c], category)) for c, category in inputs]
    mean = [Fraction(0)] * 3
    for outcome in product(range(3), repeat=3):
        counts = [np.zeros(3, np.int64) for _ in of]
        p = Fraction(1)
        for symbol, (c, probabilities) in zip(outcome, laws, strict=True):
            counts[c][symbol] += 1
            p *= probabilities[symbol]
        estimated = estimate.combine_frequencies(
            list(zip(of, counts, [None, None], strict=True))
        ).mean
        mean = [m + p * Fraction(float(share)) for m, share in zip(mean, estimated, strict=True)]
    weights = []
    for card, n in zip(of, (2, 1), strict=True):
        same, other = estimate.frequency_law(card)
        weights.append(n * (same - other) ** 2 / (other * (1 - other)))
    truth = np.average([[0.5, 0, 0.5], [0, 1, 0]], axis=0, weights=weights)
    assert [float(m) for m in mean] == pytest.approx(truth.tolist(), abs=1e-9)


def test_a_class_without_reports_changes_no_frequency_and_without_any_report_all_are_nan():
    strict, loose = design("grr", "0.5", 4).decode(), design("grr", "2", 4).decode()
    counts = np.array([5, 9, 2, 1])
    both = estimate.combine_frequencies([(strict, np.zeros(4), None), (loose, counts, None)])
    assert both.mean == pytest.approx(estimate.combine_frequencies([(loose, counts, None)]).mean)
    assert both.reports.tolist() == [17] * 4
    empty = estimate.combine_frequencies([(strict, np.zeros(4), None), (loose, np.zeros(4), 0)])
    assert np.isnan([empty.mean, empty.low, empty.high]).all()


# The model


def test_small_budgets_do_not_spoil_the_others():
    # With weights of inverse variance, many clients at a tiny epsilon do not make the model worse.
    few, mixed = [], []
    for seed in range(4):
        common = {"dataset": "toy", "seed": seed}
        few.append(run("fedsgd", "simulated:2000", epsilon="8", reports=2000, **common))
        both = {"epsilons": "0.05:0.5,8:0.5", "reports": 4000, "group": 1000}
        mixed.append(run("fedsgd", "simulated:40000", **common, **both))
        assert mixed[-1]["epsilon_paid"] == pytest.approx(8)
    assert (
        fmean(result["accuracy"] for result in mixed)
        > fmean(result["accuracy"] for result in few) - 0.04
    )


@pytest.mark.parametrize("name", ["fedsgd", "fedavg"])
def test_a_card_is_for_one_epsilon(name):
    card = design("three-outputs", "1").card.hex()
    with pytest.raises(UsageError, match="for one epsilon"):
        begin(name, 1000, dataset="toy", epsilons=EPSILONS, card=card)


@pytest.mark.parametrize("name", SMALL)
def test_epsilons_with_invalid_classes_are_refused(name):
    for wrong in ("1", "1:0.5,2:0.4", "x:1", "0:1", "21:1", "1:0.5,1:0.5"):
        with pytest.raises(UsageError):
            begin(name, 1000, **(SMALL[name] | {"epsilons": wrong}))


def test_a_class_without_devices_is_not_asked():
    algorithm = begin("fedsgd", 4, dataset="toy", reports=4, group=1, epsilons="1:0.999,2:0.001")
    assert len(algorithm.cohorts(range(1, 5))) == 1
    assert finished(algorithm, SimulatedDriver(algorithm.holdings, 4)).trainer.round == 4


def test_commands_take_classes_and_state_the_cost_of_each(tern):
    common = [
        "--dataset",
        "toy",
        "--epsilons",
        "1:0.5,2:0.5",
        "--fleet",
        "simulated:100",
        "--no-report",
    ]
    printed = tern("train", *common, "--reports", "100")
    assert "each client of the class at epsilon 2 (50 %) spends epsilon 2 in total" in printed.err
    assert "50 % of the clients: epsilon 1 a report" in printed.out
    assert (
        "50 % of the devices: this run protects a device with all of its records with epsilon 1"
        in printed.out
    )
    for command in ("collect", "infer"):
        result = tern(command, *common[2:], "--dataset", "iris", "--json", "--quiet").json
        assert 1.98 < result["epsilon_paid"] <= 2
        assert len(result["accounting"]) == 2
    for command in ("train", "collect", "infer"):
        assert (
            "exclude each other" in tern(command, "--epsilons", "1:1", "--epsilon", "1", code=2).err
        )
