"""The parts that all algorithms share: classes of devices, turns, reports and their cost."""

from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from simulating import ask, begin, fleet_of

from tern import card as cards
from ternhost import datasets
from ternhost.datasets.shipped import synthetic
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.collecting import estimate
from ternhost.learn.collecting.estimate import CategoryReports
from ternhost.learn.designs import DeviceClass, class_of
from ternhost.learn.devices import Turns, most_turns
from ternhost.learn.models.fedsgd import Options
from ternhost.privacy import mechanisms
from ternhost.privacy.mechanisms import design
from ternhost.run import costs

# Classes


@pytest.mark.parametrize("parts", [[0.5, 0.3, 0.2], [0.01, 0.99]])
def test_classes_have_their_shares(parts):
    n = 100_000
    observed = np.bincount(class_of(np.arange(1, n + 1), parts, seed=1), minlength=len(parts)) / n
    error = np.sqrt(np.array(parts) * (1 - np.array(parts)) / n)
    assert (np.abs(observed - parts) < 4.5 * error).all()


def test_a_device_keeps_its_class_when_others_join():
    classes_of_all = class_of(np.arange(1, 100_001), [0.5, 0.3, 0.2], seed=7)
    first = class_of(np.arange(1, 101), [0.5, 0.3, 0.2], seed=7)
    assert (first == classes_of_all[:100]).all()
    assert class_of([50], [0.5, 0.3, 0.2], seed=7) == classes_of_all[49]


# Turns


@pytest.mark.parametrize(("clients", "group"), [(10, 3), (7, 7), (5, 1), (3, 8), (6, 0)])
def test_every_client_takes_part_once_before_any_takes_part_again(clients, group):
    """Groups of clients take turns, round after round. `most_turns` says beforehand how often the
    most-asked client will have been asked.
    """
    turns, times = Turns(clients, group, 3), np.zeros(clients, np.int64)
    group = max(1, min(group, clients))
    for number in range(40):
        taking_part = turns.group(number)
        assert len(set(taking_part.tolist())) == group
        times[taking_part] += 1
        assert times.max() - times.min() <= 1
        assert times.max() == most_turns(clients, group, number + 1)


def test_turns_are_the_same_when_they_are_resumed():
    turns = Turns(23, 5, seed=9)
    groups = [turns.group(number).tolist() for number in range(20)]
    resumed = Turns(23, 5, seed=9)
    for number in (13, 19, 4):  # also back
        assert resumed.group(number).tolist() == groups[number]


# k


# Reports


def test_a_card_that_costs_more_than_epsilon_is_refused():
    options = Options(card=mechanisms.design("three-outputs", "1").card.hex())
    assert options.design(DeviceClass(2_000_000), 2).cost <= 2_000_000
    for epsilon, k in ((999_999, 1), (2_000_000, 3)):
        with pytest.raises(UsageError, match="more than the"):
            options.design(DeviceClass(epsilon), k)


@pytest.mark.parametrize("epsilon", [500_000, 3_300_000, 20_000_000])  # millionths
@pytest.mark.parametrize("k", [1, 7])
def test_k_coordinates_cost_no_more_than_epsilon(epsilon, k):
    design = Options().design(DeviceClass(epsilon), k)
    assert 0.95 * epsilon < design.cost <= epsilon
    assert design.cost == design.k * design.card.epsilon


# Personalised budgets: the card of each class, its cost, and the model


EPSILONS, SHARES = "1:0.5,2:0.3,4:0.2", [0.5, 0.3, 0.2]
SMALL = {
    "fedsgd": {"data": "toy", "reports": 1000, "group": 250},
    "fedavg": {"data": "toy", "mechanism": "duchi", "clients": 200, "rounds": 5, "share": 0.3},
    "values": {"data": "toy", "clients": 1000},
    "infer": {"data": "iris", "clients": 1000},
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
    """Clients are in classes with epsilons of their own. Each round asks each class with its own
    card, and nobody else with it.
    """
    algorithm = begin(name, 1000, epsilons=EPSILONS, **SMALL[name])
    devices = fleet_of(algorithm).devices
    cohorts = algorithm.cohorts(devices)
    cards_of_classes = [design.card.data for design in algorithm.designs]
    assert [question.card for question, _ in cohorts] == cards_of_classes

    classes = class_of(devices, SHARES, algorithm.options.seed)
    class_by_device = dict(zip(devices, classes, strict=True))
    for class_number, (_, members) in enumerate(cohorts):
        classes_of_members = {class_by_device[device] for device in np.asarray(members).tolist()}
        assert classes_of_members == {class_number}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_no_device_takes_part_more_often_than_it_pays_for(name):
    """A run plans how often it will ask each device (`times`), which is what the devices' budgets
    pay for.
    """
    algorithm = begin(name, 1000, epsilons=EPSILONS, **SMALL[name])
    driver = fleet_of(algorithm)
    participants = []
    for number in range(1, algorithm.rounds + 1):
        cohorts = algorithm.cohorts(driver.devices)
        for _, members in cohorts:
            participants += np.asarray(members).tolist()
        algorithm.learn(ask(driver, cohorts, number), driver.devices)
    assert algorithm.done
    assert len(participants) == algorithm.reports
    assert max(np.bincount(participants)) == algorithm.times


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_each_class_pays_its_own_epsilon(name):
    """Clients are in three classes with the epsilons 1, 2 and 4. A run costs each class its own; a
    budget below the largest cost is refused.
    """
    algorithm = begin(name, 1000, epsilons=EPSILONS, **SMALL[name])
    times = 2 if name == "fedavg" else 1  # 5 rounds of 60 of 200 clients
    for cost, epsilon in zip(costs.costs(algorithm), (1, 2, 4), strict=True):
        assert 0.99 * epsilon * times < cost / 1e6 <= epsilon * times
    below_the_largest = 3_500_000 * times
    with pytest.raises(RefusedError, match="its budget has"):
        costs.accounts(algorithm, below_the_largest)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_policy_of_a_device_is_that_of_its_class(name):
    """A policy is what a board enforces: its largest epsilon in a report and its budget for life."""
    algorithm = begin(name, 1000, epsilons=EPSILONS, **SMALL[name])
    devices = np.arange(1, 201)
    classes = class_of(devices, SHARES, algorithm.options.seed)
    costs_of_classes = costs.costs(algorithm)
    for policy, i in zip(costs.policies(algorithm, devices, None), classes, strict=True):
        assert policy.largest == algorithm.designs[i].policy.largest
        assert policy.budget == max(policy.largest, costs_of_classes[i])


class Holder(NamedTuple):
    """A device: the number of its class, and the category that it holds."""

    class_number: int
    category: int


CARDS_OF_CLASSES = [design("grr", "0.5", 3).decode(), design("grr", "2", 3).decode()]


def law_of_report(holder):
    """The probability of each of three symbols: randomised response."""
    same = Fraction(CARDS_OF_CLASSES[holder.class_number].threshold, cards.T)
    law = [(1 - same) / 2] * 3
    law[holder.category] = same
    return law


def test_frequencies_of_classes_are_unbiased_by_enumeration():
    """Every outcome of three devices, two of one class and one of another, with its exact
    probability.
    """
    holders = [Holder(0, category=0), Holder(0, category=2), Holder(1, category=1)]
    laws = [law_of_report(holder) for holder in holders]
    mean = np.zeros(3)
    for symbols in product(range(3), repeat=3):
        probability = Fraction(1)
        counts = [np.zeros(3, np.int64), np.zeros(3, np.int64)]
        for symbol, law, holder in zip(symbols, laws, holders, strict=True):
            probability *= law[symbol]
            counts[holder.class_number][symbol] += 1
        parts = []
        for card, class_counts in zip(CARDS_OF_CLASSES, counts, strict=True):
            parts.append(CategoryReports(card, class_counts, hashed_reports=None))
        mean += float(probability) * np.array(estimate.combine_frequencies(parts).mean)

    weights = []  # of the classes: what a report tells, times their two and one reports
    for card, reports in zip(CARDS_OF_CLASSES, (2, 1), strict=True):
        same, other = estimate.frequency_law(card)
        weights.append(reports * (same - other) ** 2 / (other * (1 - other)))
    frequencies_of_classes = [[0.5, 0, 0.5], [0, 1, 0]]
    truth = np.average(frequencies_of_classes, axis=0, weights=weights)
    assert mean == pytest.approx(truth, abs=1e-9)


# The model


@pytest.mark.parametrize(
    "epsilons", ["1", "1:0.5,2:0.4", "1:nan", "1:-1,2:2", "0:1", "21:1", "1:0.5,1:0.5"]
)
def test_epsilons_with_invalid_classes_are_refused(epsilons):
    with pytest.raises(UsageError):
        begin("fedsgd", 1000, **(SMALL["fedsgd"] | {"epsilons": epsilons}))


def test_a_card_is_for_one_epsilon():
    card = design("three-outputs", "1").card.hex()
    with pytest.raises(UsageError, match="for one epsilon"):
        begin("fedsgd", 1000, data="toy", epsilons=EPSILONS, card=card)
