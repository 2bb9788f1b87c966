"""Quantiles and histograms of numbers that devices hold: the questions, and the estimates."""

import numpy as np
import pytest
from simulating import ask, finished, fleet_of

from tern import wire
from ternhost import datasets, vectorised
from ternhost.datasets import Table
from ternhost.datasets.base import ColumnUnit
from ternhost.learn.base import Population
from ternhost.learn.distributions.quantile_options import Options
from ternhost.learn.distributions.quantile_results import HeldValues, quantile_lines
from ternhost.learn.distributions.quantiles import Quantiles
from ternhost.learn.schedule import Schedule

MICRO = 1_000_000
ONE = 16384  # 1.0 in fixed point
ALMOST_NO_NOISE = "20"  # an epsilon at which one report of 16 in 30 million is a wrong bin

pytestmark = pytest.mark.usefixtures("here")


def table_of(values, names=("delay",), units=()):
    """A table of numbers, a column for each name."""
    fixed = datasets.to_fixed(np.reshape(values, (-1, len(names))))
    return Table("delays", tuple(names), fixed, units=units)


def skewed(clients, seed=1):
    """A table of one number, most of which are small and some are large."""
    return table_of(np.random.default_rng(seed).beta(1.2, 4, clients) * 2 - 1)


def learner(table, clients=None, schedule=None, **options):
    population = Population(clients=clients or len(table.numeric), schedule=schedule)
    return Quantiles(Options(**options), population, table)


def collected(table, **options):
    """The entries of the attributes, at the end of a run of one client for each record."""
    return finished(learner(table, **options)).result([])["attributes"]


# Questions


def test_each_client_answers_about_the_bin_of_one_number_at_one_level():
    table = table_of(np.linspace(-1, 1, 12_000), names=("a", "b"))  # 6,000 clients
    algorithm = learner(table, bins=64, epsilon="1")
    cohorts = algorithm.cohorts(range(1, 6001))
    asked = np.concatenate([devices for _, devices in cohorts])
    assert sorted(asked) == list(range(1, 6001)), "each once"
    for question, _ in cohorts:
        assert (question.model, question.k) == (wire.CATEGORIES, 1)

    clients_of_levels = {2: 0, 4: 0, 6: 0}
    for question, devices in cohorts:
        clients_of_levels[question.exponent] += len(devices)
    deviation = np.sqrt(6000 * 1 / 3 * 2 / 3)
    for clients in clients_of_levels.values():
        assert abs(clients - 2000) < 4.5 * deviation, "equal shares"


def test_a_report_has_the_whole_epsilon():
    for part in learner(skewed(10), bins=256, epsilon="1.5").plan[0]:
        assert 0.998 * 1.5 * MICRO < part.design.cost <= 1.5 * MICRO


def test_the_smallest_question_asks_the_clients_of_one_number_and_level():
    table = table_of(np.zeros(12_000), names=("a", "b"))
    assert learner(table, bins=64, epsilon="0.1").fewest_asked == 6000 // 2 // 3


def test_more_devices_have_more_bins_by_default():
    few, many = learner(skewed(100), epsilon="1"), learner(skewed(100_000), epsilon="1")
    bins = [max(part.categories for part in each.plan[0]) for each in (few, many)]
    assert bins[0] < bins[1]


# Estimates


def test_the_true_quantile_is_the_smallest_value_that_is_reached():
    held = HeldValues(np.array([300, 100, 200, 400], np.int16), np.ones(4))
    quantiles = [0.01, 0.25, 0.26, 0.5, 0.75, 0.99]
    found = [held.quantile(each) * ONE for each in quantiles]
    assert found == pytest.approx([100, 100, 200, 200, 300, 400])


def test_a_client_counts_once_however_many_records_it_has():
    """One client holds -0.5 three times, and another one 0.5 once."""
    held = HeldValues(np.array([-8192, -8192, -8192, 8192], np.int16), np.array([1, 1, 1, 3]) / 3)
    assert held.histogram(4).tolist() == pytest.approx([0, 0.5, 0, 0.5])
    assert held.quantile(0.51) == 0.5


def test_estimates_without_noise_are_what_clients_hold():
    """Quantiles are within a bin, of 1 / 8, and within sampling: levels ask different clients."""
    table = skewed(60_000)
    (entry,) = collected(table, epsilon=ALMOST_NO_NOISE, bins=16, quantiles="0.1,0.5,0.9")
    for share, true in zip(entry["histogram"]["shares"], entry["histogram"]["true"], strict=True):
        assert share == pytest.approx(true, abs=0.012)  # 4.5 deviations of 30,000 clients
    for quantile in entry["quantiles"]:
        assert quantile["value"] == pytest.approx(quantile["true"], abs=1 / 8)


def test_the_true_shares_of_a_result_are_those_of_the_table():
    table = skewed(500)
    (entry,) = collected(table, epsilon="1", bins=64)
    bins = vectorised.bins(table.numeric[:, 0], 6)
    shares = np.bincount(bins, minlength=64) / 500
    assert entry["histogram"]["true"] == pytest.approx(shares)
    assert entry["cumulative"]["true"] == pytest.approx(np.cumsum(shares))
    assert entry["histogram"]["edges"] == pytest.approx(np.linspace(-1, 1, 65))


@pytest.mark.parametrize(("epsilon", "mechanisms"), [("1", {"grr", "olh"}), ("8", {"grr"})])
def test_shares_are_unbiased_and_their_intervals_cover_the_true_ones(epsilon, mechanisms):
    """Of the 16 bins that a small number of clients tell of, in 100 runs.

    The seed says who answers about which level, and the number of the round how each client hashes
    bins.
    """
    table = skewed(900)
    errors, covered = [], []
    for seed in range(100):
        algorithm = learner(table, bins=16, epsilon=epsilon, quantiles="0.5", seed=seed)
        driver = fleet_of(algorithm)
        round_ = ask(driver, algorithm.cohorts(driver.devices), number=seed + 1)
        algorithm.learn(round_, driver.devices)
        (entry,) = algorithm.entries()
        cumulative = entry["cumulative"]
        errors.append(np.subtract(cumulative["shares"], cumulative["true"]))
        low, high = np.array(cumulative["intervals"]).T
        covered.append((low <= cumulative["true"]) & (cumulative["true"] <= high))
    assert {level["mechanism"] for level in entry["levels"]} == mechanisms
    errors = np.array(errors)[:, :-1]  # the last one is 1
    standard_errors = errors.std(axis=0) / np.sqrt(len(errors))
    assert (np.abs(errors.mean(axis=0)) < 4.5 * standard_errors).all()
    assert np.mean(covered) > 0.93


def test_intervals_of_quantiles_cover_the_true_ones():
    table = skewed(3000)
    covered = []
    for seed in range(50):
        (entry,) = collected(table, bins=64, epsilon="2", quantiles="0.25,0.5,0.9", seed=seed)
        for quantile in entry["quantiles"]:
            low, high = quantile["interval"]
            assert low <= quantile["value"] <= high
            covered.append(low <= quantile["true"] <= high)
    assert np.mean(covered) > 0.9, "95 % intervals, of 150 quantiles"


def test_the_quantiles_of_a_constant_are_in_its_bin():
    table = table_of(np.full(20_000, 0.3))
    (entry,) = collected(table, epsilon="4", bins=64)
    for quantile in entry["quantiles"]:
        low, high = quantile["interval"]
        assert low <= 0.3 <= high
        assert high - low < 0.15
        assert quantile["true"] == pytest.approx(0.3, abs=1e-4)


def test_rounds_of_a_served_fleet_add_up():
    """Counts of two rounds are those of both, and the levels of a number have all reports."""
    table = table_of(np.linspace(-1, 1, 800), names=("a", "b"))  # 400 clients
    algorithm = learner(table, schedule=Schedule(rounds=2), bins=16, epsilon="1")
    driver = fleet_of(algorithm, clients=400)
    results = []
    for number in (1, 2):
        result = ask(driver, algorithm.cohorts(driver.devices), number)
        algorithm.learn(result, driver.devices)
        results.append(result)
    assert algorithm.done
    entries = algorithm.result([])["attributes"]
    assert sum(entry["reports"] for entry in entries) == 800
    for entry in entries:
        assert entry["reports"] == sum(level["reports"] for level in entry["levels"])


def test_a_run_that_is_resumed_has_the_result_of_one_that_was_not():
    table = skewed(800)
    one, other = (learner(table, bins=64, epsilon="1") for _ in range(2))
    finished(one)
    other.restore(one.state())
    assert other.done
    assert other.result([]) == one.result([])


def test_a_fleet_that_has_grown_keeps_its_levels():
    few, many = learner(skewed(300), epsilon="1"), learner(skewed(100_000), epsilon="1")
    finished(few)
    many.restore(few.state())
    assert many.result([])["attributes"][0]["levels"] == few.result([])["attributes"][0]["levels"]


def test_an_attribute_without_reports_is_left_out():
    assert learner(skewed(100)).result([])["attributes"] == []


# For people

IN_MINUTES = ColumnUnit("delay", 0.0, 60.0, "min")


def lines_about(values, **options):
    table = table_of(values, units=(IN_MINUTES,))
    return quantile_lines({"attributes": collected(table, epsilon=ALMOST_NO_NOISE, **options)})


def test_lines_are_in_the_unit_of_the_attribute():
    (line,) = lines_about(np.full(4000, 0.5), quantiles="median")  # 45 minutes
    assert line.startswith("delay: median 4")
    assert "true median 45" in line


def test_a_quantile_at_the_upper_bound_may_lie_beyond():
    *_, last = lines_about(np.full(4000, 1.0), quantiles="median")
    assert "delay median (60 min or more)" in last


def test_a_high_quantile_at_the_lower_bound_does_not_lie_below():
    assert len(lines_about(np.full(4000, -1.0), quantiles="median,p90")) == 2
