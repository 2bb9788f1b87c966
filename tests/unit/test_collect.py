"""Collecting means and frequencies: the questions, their cost, and the estimates."""

import math

import numpy as np
import pytest
from simulating import PEOPLE, begin, finished, fleet_of, rounds

from tern import wire
from ternhost import datasets
from ternhost.datasets import Table
from ternhost.errors import USAGE, UsageError
from ternhost.learn.base import Population
from ternhost.learn.collecting import collect, estimate
from ternhost.learn.collecting.attribute_results import unit_of
from ternhost.learn.collecting.collect import Options, Values
from ternhost.learn.collecting.means import Means
from ternhost.learn.designs import K_RULES
from ternhost.planning.simulation import simulate

MICRO = 1_000_000
ONE = 16384  # 1.0 in fixed point
CATEGORIES = (2, 5, 16)  # of the three categorical attributes of people

pytestmark = pytest.mark.usefixtures("here")


def people(n, numeric=5, sizes=CATEGORIES, seed=1):
    """A table of n records with so many numbers and with categorical attributes of these sizes."""
    random = np.random.default_rng(seed)
    means = np.array([0, 1 / 3, 2 / 3, -0.5, 0.9])[:numeric]
    numbers = datasets.to_fixed(np.clip(random.normal(means, 0.25, (n, numeric)), -1, 1))
    codes = np.empty((n, len(sizes)), np.int16)
    for column, size in enumerate(sizes):
        codes[:, column] = np.minimum(random.geometric(0.4, n) - 1, size - 1)
    return Table(
        "people",
        tuple(f"number {i}" for i in range(numeric)),
        numbers,
        tuple(f"category {i}" for i in range(len(sizes))),
        codes if sizes else None,
        tuple(tuple(str(value) for value in range(size)) for size in sizes),
    )


def parts_of(options, table):
    """The questions to the one class of clients."""
    (parts,) = collect.plan(options, table)
    return parts


# Questions


@pytest.mark.parametrize("rule", K_RULES)
def test_every_part_has_the_whole_budget(rule):
    parts = parts_of(Options(epsilon="8", k=rule), people(3))
    assert [part.columns for part in parts] == [(0, 1, 2, 3, 4), (5,), (6,), (7,)]
    assert [part.design.card.symbols for part in parts] == [3, *CATEGORIES]  # three-outputs first
    for part in parts:
        assert 0.998 * 8 * MICRO < part.design.cost <= 8 * MICRO


def test_the_values_of_a_report_share_the_budget_and_are_no_more_than_the_attributes():
    (part,) = parts_of(Options(epsilon="4.9", k=5), people(3, sizes=()))
    assert part.design.card.epsilon <= 4.9 * MICRO / 5
    with pytest.raises(UsageError, match="--k must be 1 to 5"):
        parts_of(Options(k=6), people(3, sizes=()))


@pytest.mark.parametrize(("epsilon", "few", "many"), [(0.5, 6, 7), (2, 20, 21)])
def test_many_categories_are_hashed_and_few_are_not(epsilon, few, many):
    """Randomised response has the smaller variance up to a number of categories that grows with
    epsilon; beyond it each device hashes its category into about e**epsilon + 1 buckets (Wang et
    al. 2017).
    """
    table = people(3, numeric=0, sizes=(few, many))
    plain, hashed = parts_of(Options(epsilon=str(epsilon)), table)
    assert (plain.hashed, hashed.hashed) == (False, True)
    assert plain.design.card.symbols == few
    assert hashed.design.card.symbols == pytest.approx(math.exp(epsilon) + 1, abs=1)


def test_clients_are_divided_among_the_parts_by_chance_in_each_round(monkeypatch):
    """Attributes are divided into parts, and each client reports one: two numbers, two categories
    of one size, and one of another. Shares are those of the attributes, and chance decides anew in
    every round.
    """
    monkeypatch.setitem(datasets.TABLES, "people", lambda: PEOPLE)
    algorithm = begin("values", 6000, data="people", epsilon="10", k=1)
    cohorts = algorithm.cohorts(range(1, 6001))
    assert [(question.model, list(question.parameters)) for question, _ in cohorts] == [
        (wire.VALUES, [1, 1, 0, 0, 0]),
        (wire.CATEGORIES, [0, 0, 1, 1, 0]),
        (wire.CATEGORIES, [0, 0, 0, 0, 1]),
    ]
    asked = np.concatenate([devices for _, devices in cohorts])
    assert sorted(asked) == list(range(1, 6001)), "each once"
    for (_, devices), share in zip(cohorts, (2 / 5, 2 / 5, 1 / 5), strict=True):
        deviation = np.sqrt(6000 * share * (1 - share))
        assert abs(len(devices) - 6000 * share) < 4.5 * deviation

    list(rounds(algorithm, fleet_of(algorithm)))
    again = algorithm.cohorts(range(1, 6001))
    assert 0.3 < np.isin(cohorts[0][1], again[0][1]).mean() < 0.5  # about 2/5


# Safe ranges

CONSTANTS = Table(
    "constants",
    ("a", "b", "c", "d"),
    np.tile(np.array([3000, -4000, 0, 12000], np.int16), (40_000, 1)),
)


def test_clients_choose_a_safe_range_with_their_epsilon():
    """Half of the clients clip their numbers to +-0.25 at epsilon 1, the others to +-1 at epsilon
    4.
    """
    choices = Options(k="4", seed=3, epsilons="0.25:1:0.5,1:4:0.5")  # range, epsilon and share
    algorithm = Values(choices, Population(clients=40_000), CONSTANTS)
    ranges = [part.question(4).range for (part,) in algorithm.plan]
    assert ranges == [2, 0]  # 0.25 is 2**-2, and 1 is 2**0
    assert [design.cost / MICRO for design in algorithm.designs] == pytest.approx([1, 4], abs=1e-4)

    *inside, beyond = simulate(algorithm, 3).result([])["attributes"]
    for entry in inside:
        low, high = entry["interval"]
        assert low < entry["true"] < high
    assert 0.25 < beyond["mean"] < beyond["true"], "half of the clients clip it"


# Estimates


def collected(table, **options):
    """An algorithm that collects a table from clients of one record each, at its end."""
    algorithm = Values(Options(**options), Population(clients=len(table.numeric)), table)
    return finished(algorithm)


@pytest.fixture(scope="module")
def collection():
    """A table of 150,000 clients, the algorithm that collected it, and its entries by name."""
    table = people(150_000)
    algorithm = collected(table, epsilon="4")
    return table, algorithm, {entry["name"]: entry for entry in algorithm.result([])["attributes"]}


def test_means_are_near_the_true_ones(collection):
    """Within 4.5 standard errors, which chance exceeds once in 100,000 means."""
    table, _, entries = collection
    for column, name in enumerate(table.numeric_names):
        entry, truth = entries[name], table.numeric[:, column].mean() / ONE
        assert entry["true"] == pytest.approx(truth)
        low, high = entry["interval"]
        standard_error = (high - low) / 2 / 1.96  # of an interval of 95 %
        assert abs(entry["mean"] - truth) < 4.5 * standard_error


def test_hashed_frequencies_are_right_and_their_intervals_cover_them():
    """Of 500 categories, in six collections."""
    clients, errors, covered = 20_000, [], []
    for seed in range(6):
        table = people(clients, numeric=0, sizes=(500,), seed=seed)
        algorithm = collected(table, epsilon="1", seed=seed)
        (entry,) = algorithm.result([])["attributes"]
        truth = np.bincount(table.codes[:, 0], minlength=500) / clients
        low, high = np.array(entry["intervals"]).T
        covered.append((low <= truth) & (truth <= high))
        errors.append(np.array(entry["frequencies"]) - truth)
    assert 0.93 < np.mean(covered) < 0.97, "95 % intervals"

    (part,) = algorithm.plan[0]
    variance = estimate.frequency_variance(part.design.card, 10**9, hashed=True)
    assert np.square(errors).mean() == pytest.approx(variance / clients, rel=0.1)
    # Optimised unary encoding has the same variance (Wang et al. 2017), at epsilon 1.
    unary_encoding = 4 * math.e / (math.e - 1) ** 2
    assert variance == pytest.approx(unary_encoding, rel=0.01)


# Means and histograms as sums over units


def means_of(table, devices, **options):
    return Means(Means.Options(**options), Population(clients=devices), table)


def numbers(values):
    fixed = datasets.to_fixed(values)
    return Table("numbers", tuple(f"x{i}" for i in range(fixed.shape[1])), fixed)


def test_intervals_of_sums_cover_what_the_boards_hold():
    """Five boards with 100 records each report noisy sums. Over 60 runs, the intervals of 95 %
    contain the true means and shares as often as that.
    """
    numeric, runs = 5, 60
    algorithm = means_of(people(500, sizes=(3, 7, 3)), devices=5, records=100, run_epsilon="4")
    initial_state = algorithm.state()
    means_covered, shares_covered = [], []
    for seed in range(1, runs + 1):
        algorithm.restore(initial_state)
        finished(algorithm, fleet_of(algorithm, seed=seed))
        entries = algorithm.result([])["attributes"]
        for entry in entries[:numeric]:
            low, high = entry["interval"]
            means_covered.append(low <= entry["true"] <= high)
        for entry in entries[numeric:]:
            for (low, high), true in zip(entry["intervals"], entry["true"], strict=True):
                shares_covered.append(low <= true <= high)
    # Intervals of 95 %: of 300 means and of 780 shares, within three standard deviations.
    assert 0.91 < np.mean(means_covered) < 0.985
    assert 0.93 < np.mean(shares_covered) < 0.97


@pytest.mark.parametrize("unit", ["record", "10"])
def test_equal_records_at_the_bounds_are_neither_clipped_nor_rounded_away(unit):
    """The last run of a device may be shorter: 2,005 records are 201 runs of 10."""
    values = np.tile([1.0, -1.0, 0.01, 0.0031, 0.5], (4 * 2005, 1))
    nearly_no_noise = {"run_epsilon": "900", "delta": "0.5"}
    algorithm = means_of(numbers(values), 4, records=2005, unit=unit, **nearly_no_noise)
    for entry in finished(algorithm).result([])["attributes"]:
        assert entry["mean"] == pytest.approx(entry["true"], abs=0.002)


@pytest.mark.parametrize(
    ("d", "epsilon", "unit", "error"),
    [(1, "20", "record", 0.002), (2, "900", "record", 0.002), (1, "900", "4000", 0.15)],
)
def test_sums_of_many_ones_stay_within_the_symbols(d, epsilon, unit, error):
    """A sum is cut off at 2**29: half of the 4,000 ones of a long run would be."""
    ones = numbers(np.ones((65535, d)))
    algorithm = means_of(ones, 1, records=65535, run_epsilon=epsilon, unit=unit)
    for entry in finished(algorithm).result([])["attributes"]:
        assert entry["mean"] == pytest.approx(1, abs=error)


def test_the_command_collects_means_of_runs_and_says_what_it_protects(tern):
    words = "collect --data flights-table --fleet simulated:20 --unit 10 --run-epsilon 2 --json --no-report"
    result = tern(*words.split()).json
    assert result["algorithm"] == "means"
    assert result["protects"] == "one run of 10 consecutive records of a device"
    assert result["epsilon_paid"] <= 2
    assert result["frequency_squared_error"] < 0.01


# Records that only the devices know

COLUMNS = """
[columns.temperature]
low = -5
high = 12.5
unit = "C"
[columns.weather]
categories = ["rain", "sun", "snow"]
[columns.late]
categories = ["no", "yes"]
"""


@pytest.fixture
def schema(here):
    """Write a schema without a table, and return its name: `schema(label)`."""

    def write(label):
        (here / "my.toml").write_text(f'label = "{label}"\n{COLUMNS}' if label else COLUMNS)
        return "my.toml"

    return write


def test_without_a_label_the_columns_of_a_schema_are_the_attributes(schema):
    table, before = collect.load(schema(""), gives_records=False)
    assert before == 0, "programs put no constant into records to collect from"
    assert table.numeric_names == ("temperature",)
    assert table.categorical_names == ("weather", "late")
    assert table.categories == (("rain", "sun", "snow"), ("no", "yes"))


def test_with_a_label_the_features_of_a_schema_are_the_attributes(schema):
    table, before = collect.load(schema("late"), gives_records=False)
    assert before == 1, "the constant"
    assert table.numeric_names == ("temperature", "weather=rain", "weather=sun")
    assert table.categorical_names == ()


def test_attributes_of_a_schema_have_its_units(schema):
    table, _ = collect.load(schema("late"), gives_records=False)
    assert unit_of("temperature", table) == {"low": -5, "high": 12.5, "unit": "C"}


def test_the_attributes_of_unnamed_records_are_numbered(here):
    table, before = collect.load("devices:3", gives_records=False)
    assert (table.numeric_names, before) == (("feature 1", "feature 2"), 1)


@pytest.mark.parametrize("data", ["devices:1", "devices:many", "no.toml"])
def test_records_without_an_attribute_are_refused(here, data):
    with pytest.raises(UsageError):
        collect.load(data, gives_records=False)


def test_clients_that_are_given_records_need_a_data_set(tern):
    tern("collect", "--data", "devices:3", "--fleet", "simulated:9", code=USAGE)
