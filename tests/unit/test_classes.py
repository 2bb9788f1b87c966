"""What all algorithms share: classes of devices, who takes part in a round, what a report is and what it may cost."""

from fractions import Fraction

import numpy as np
import pytest

from ternhost.errors import UsageError
from ternhost.learn import base
from ternhost.learn.base import Turns, clients_of, most_turns, take
from ternhost.learn.designs import class_of, coordinates_by_rule, shares
from ternhost.learn.fedsgd import Options
from ternhost.privacy import certify, mechanisms

# Shares


def test_shares():
    assert shares("1:0.5,2:0.5") == [("1", 0.5), ("2", 0.5)]
    assert shares("0.25:8:1") == [("0.25:8", 1.0)]
    for wrong in ("", "1", "1:", ":1", "1:x", "1:0.5,2:0.4", "1:-1,2:2", "1:0,2:1", "1:nan"):
        with pytest.raises(UsageError):
            shares(wrong)


def test_shares_that_are_rounded_add_up_to_1():
    found = [share for _, share in shares("1:0.3333333,2:0.3333333,3:0.3333333")]
    assert sum(found) == pytest.approx(1, abs=1e-12)


# Classes


@pytest.mark.parametrize("parts", [[0.5, 0.3, 0.2], [0.01, 0.99], [1 / 3] * 3])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_classes_have_their_shares(parts, seed):
    n = 100_000
    found = np.bincount(class_of(np.arange(1, n + 1), parts, seed), minlength=len(parts)) / n
    error = np.sqrt(np.array(parts) * (1 - np.array(parts)) / n)
    assert (np.abs(found - parts) < 4.5 * error).all()


def test_a_device_keeps_its_class_whoever_joins():
    parts = [0.5, 0.3, 0.2]
    few, many = np.arange(1, 101), np.arange(1, 100_001)
    of_few, of_many = class_of(few, parts, 7), class_of(many, parts, 7)
    assert (of_few == of_many[:100]).all()
    dealt = np.random.default_rng(1).permutation(many)
    assert (class_of(dealt, parts, 7) == of_many[dealt - 1]).all()
    assert (class_of([50], parts, 7) == of_many[49]).all()


def test_another_seed_makes_other_classes_that_do_not_depend_on_the_first():
    devices = np.arange(1, 50_001)
    one, other = (class_of(devices, [0.5, 0.5], seed) for seed in (1, 2))
    assert np.mean(one == other) == pytest.approx(0.5, abs=0.01)
    # nor do those of devices whose ids are neighbours
    assert np.mean(one[1:] == one[:-1]) == pytest.approx(0.5, abs=0.01)
    assert np.mean(one[::2]) == pytest.approx(0.5, abs=0.015)


def test_one_class_is_everybody_s():
    assert class_of([3, 4, 2**40], [1.0], 5).tolist() == [0, 0, 0]


def test_ids_of_any_size_have_a_class():
    assert set(class_of([0, 1, 2**31, 2**32 - 1], [0.5, 0.5], 2**31)) <= {0, 1}


def test_devices_and_clients_are_each_other_s_inverse():
    rng = np.random.default_rng(2)
    dealt = rng.permutation(np.arange(10, 5000, 7))
    clients = rng.permutation(len(dealt))[:100]
    assert (clients_of(dealt, take(dealt, clients)) == clients).all()
    asked = range(100, 5000)
    assert (clients_of(asked, take(asked, clients)) == clients).all()
    assert (take(asked, clients) == clients + 100).all()
    assert take(list(dealt), clients).tolist() == dealt[clients].tolist()


# Turns


@pytest.mark.parametrize(("clients", "group", "rounds"), [(10, 3, 17), (1000, 100, 25), (7, 7, 3), (5, 1, 4)])
def test_everybody_takes_part_once_before_anybody_again(clients, group, rounds):
    turns = Turns(clients, group, 3)
    times = np.zeros(clients, np.int64)
    for number in range(rounds):
        asked = turns.asked(number)
        assert len(set(asked.tolist())) == group
        times[asked] += 1
        assert times.max() - times.min() <= 1
    assert times.max() <= most_turns(clients, group, rounds)


@pytest.mark.parametrize(("clients", "group"), [(10, 3), (100, 30), (7, 7), (5, 1), (3, 8), (6, 0)])
def test_most_turns_are_what_somebody_has(clients, group):
    group = max(1, min(group, clients))
    turns, times = Turns(clients, group, 5), np.zeros(clients, np.int64)
    for number in range(40):
        times[turns.asked(number)] += 1
        assert times.max() == most_turns(clients, group, number + 1)


def test_turns_that_are_resumed_are_those_from_the_start():
    whole = Turns(23, 5, 9)
    dealt = [whole.asked(number).tolist() for number in range(20)]
    for start in range(20):
        again = Turns(23, 5, 9)
        assert [again.asked(number).tolist() for number in range(start, 20)] == dealt[start:]
    assert whole.asked(19).tolist() == dealt[19]  # once more
    assert whole.asked(4).tolist() == dealt[4]  # and back
    assert whole.asked(5).tolist() == dealt[5]
    assert Turns(23, 5, 10).asked(0).tolist() != dealt[0]


def test_a_group_is_one_client_or_more_and_no_more_than_there_are():
    assert len(Turns(4, 9, 1).asked(0)) == 4
    assert len(Turns(4, 0, 1).asked(0)) == 1


# k


@pytest.mark.parametrize(
    ("rule", "epsilon", "k"),
    [
        ("paper", 100_000, 1), ("paper", 4_999_999, 1), ("paper", 5_000_000, 2), ("paper", 20_000_000, 8),
        ("wide", 3_499_999, 1), ("wide", 3_500_000, 2), ("wide", 6_000_000, 3), ("wide", 8_499_999, 3),
    ],
)  # fmt: skip
def test_rules_for_k(rule, epsilon, k):
    assert coordinates_by_rule(rule, epsilon, 100) == k
    assert coordinates_by_rule(rule, epsilon, 1) == 1


def test_k_of_classes_is_that_of_the_least_epsilon():
    classes = [("12", 0.5), ("5", 0.5)]
    assert Options().k_of(classes, 28) == 2
    assert Options(k=3).k_of(classes, 28) == 3
    for k in (0, 29):
        with pytest.raises(UsageError, match=f"--k must be 1 to 28, the number of coordinates, not {k}"):
            Options(k=k).k_of(classes, 28)
    with pytest.raises(UsageError, match="no rule 'own'"):
        coordinates_by_rule("own", 1, 1)


# What a report is


def test_a_card_never_costs_more_than_was_asked():
    card = mechanisms.design("three-outputs", "1").card.hex()
    options = Options(card=card)
    assert options.design("2", 2).epsilon == 2_000_000
    assert options.design("2", 2).cost <= 2_000_000
    for epsilon, k in (("0.999999", 1), ("2", 3)):
        with pytest.raises(UsageError, match="more than the"):
            options.design(epsilon, k)
    with pytest.raises(UsageError, match="this is no card"):
        Options(card="00ff").design("2", 1)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3.3", "20"])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_k_coordinates_cost_no_more_than_epsilon(epsilon, k):
    design = Options().design(epsilon, k)
    assert 0.95 * float(epsilon) * 1e6 < design.cost <= float(epsilon) * 1e6
    assert design.cost == design.k * design.card.epsilon
    assert design.variance == float(certify.moments(design.card).variance(Fraction(0)))


def test_a_hierarchy_is_for_other_commands():
    card = mechanisms.design("lhp", "2").card.hex()
    for options in (Options(card=card), Options(mechanism="lhp")):
        with pytest.raises(UsageError, match="a level and a sign") as refused:
            options.design("2", 1, of_gradients=True)
        assert "--algorithm hiera" in str(refused.value.hint)


def test_a_share_below_a_millionth_is_refused():
    with pytest.raises(UsageError, match="below a millionth"):
        Options().design("0.000001", 3)


@pytest.mark.slow
def test_an_optimal_card_for_training_is_one_for_gradients():
    gradients = mechanisms.design("optimal", 2, 4, objective="mean-second-moment", prior="small")
    worst = mechanisms.design("optimal", 2, 4).decode()
    for mechanism in ("optimal", "auto"):
        report = Options(mechanism=mechanism, levels=4).design("2", 1, of_gradients=True)
        assert report.card.data == gradients.card
        assert report.variance < float(certify.moments(worst).variance(Fraction(0)))


def test_an_algorithm_that_nobody_registered():
    with pytest.raises(UsageError, match="no algorithm 'adam'") as caught:
        base.ALGORITHMS.named("adam")
    assert "fedsgd, fedavg, hiera, collect, infer" in caught.value.hint
