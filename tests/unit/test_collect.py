"""Collecting means and frequencies: the questions, their cost, and the estimates."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from simulating import PEOPLE, begin, finished, fleet_of, rounds, run

from tern import card as cards
from tern import wire
from ternhost import datasets
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn import collect, estimate
from ternhost.learn.base import Population
from ternhost.learn.collect import Collect, Options
from ternhost.learn.designs import K_RULES, DeviceClass
from ternhost.learn.means import Means, fieller
from ternhost.learn.schedule import Schedule
from ternhost.planning.simulation import simulate
from ternhost.privacy import certify, mechanisms
from ternhost.run import costs
from ternhost.run.report import collecting

SIZES = (2, 5, 16)

pytestmark = pytest.mark.usefixtures("here")


def _table(n, numeric=5, sizes=SIZES, seed=1):
    """A table of n records with `numeric` numbers and with categorical attributes of these sizes."""
    rng = np.random.default_rng(seed)
    means = np.array([0, 1 / 3, 2 / 3, -0.5, 0.9])[:numeric]
    numbers = datasets.to_fixed(np.clip(rng.normal(means, 0.25, (n, numeric)), -1, 1))
    codes = [np.minimum(rng.geometric(0.4, n) - 1, size - 1) for size in sizes]
    return Table(
        "people",
        tuple(f"n{i}" for i in range(numeric)),
        numbers,
        tuple(f"c{i}" for i in range(len(sizes))),
        np.stack(codes, axis=1).astype(np.int16) if sizes else None,
        tuple(tuple(str(value) for value in range(size)) for size in sizes),
    )


@pytest.fixture
def table(monkeypatch):
    """Uses a table instead of the data set."""

    def use(*args, **kwargs):
        made = _table(*args, **kwargs)
        monkeypatch.setattr(collect, "load", lambda name: (made, 0))
        return made

    return use


def _parts(options, table):
    (parts,) = collect.plan(options, table)
    return parts


@pytest.mark.parametrize("rule", K_RULES)
def test_every_part_has_the_whole_budget(rule):
    parts = _parts(Options(epsilon="8", k_rule=rule), _table(3))
    assert [part.columns for part in parts] == [(0, 1, 2, 3, 4), (5,), (6,), (7,)]
    assert [part.design.card.symbols for part in parts] == [3, *SIZES]
    assert [part.design.k for part in parts] == [3, 1, 1, 1]
    for part in parts:
        assert 0.998 * 8_000_000 < part.design.cost <= 8_000_000


def test_attributes_of_one_size_are_asked_for_together():
    parts = _parts(Options(epsilon="12", k_rule="wide"), _table(3, 0, (3, 3, 3, 4)))
    assert [part.columns for part in parts] == [(0, 1, 2), (3,)]
    assert parts[0].design.k == 3  # by the wide rule 5, of 3 that there are
    assert max(part.design.cost for part in parts) <= 12_000_000


def test_rules_differ_just_below_five():
    numbers = _table(3, 5, ())
    chosen = [
        _parts(Options(epsilon="4.9", k_rule=rule), numbers)[0].design.k
        for rule in ("wide", "paper")
    ]
    assert chosen == [2, 1]
    (part,) = _parts(Options(epsilon="4.9", k=5), numbers)
    assert part.design.card.epsilon <= 980_000
    with pytest.raises(UsageError, match="--k must be 1 to 5"):
        _parts(Options(k=6), numbers)


@pytest.mark.parametrize("mechanism", ["three-outputs", "duchi", "pm-sub", "laplace"])
@pytest.mark.parametrize("epsilon", ["1", "3.2", "4.5", "6", "8"])
def test_the_default_k_has_the_least_variance_for_uniform_values(mechanism, epsilon):
    options = Options(mechanism=mechanism, epsilon=epsilon)
    xs = [Fraction(i, 64) for i in range(-64, 65)]
    (device_class,) = options.classes()

    def variance(k):
        moments = certify.moments(options.design(device_class, k).card)
        return (
            np.trapezoid([float(moments.second_moment(x)) for x in xs], [float(x) for x in xs])
            / 2
            / k
        )

    cost = {k: variance(k) for k in range(1, 8)}
    assert options.k_for([device_class], 16) == min(cost, key=cost.get)
    assert options.k_for([device_class], 1) == 1


def test_with_a_card_k_is_as_large_as_the_budget_allows():
    card = mechanisms.design("three-outputs", "1").card.hex()
    assert Options(card=card, epsilon="3").k_for([DeviceClass(3_000_000)], 16) == 3
    assert Options(card=card, epsilon="3").k_for([DeviceClass(3_000_000)], 2) == 2


@pytest.mark.parametrize(
    ("epsilon", "grr", "olh"),
    [("0.5", 6, 7), ("1", 9, 10), ("2", 20, 21), ("4", 134, 135), ("5", 256, 1000)],
)
def test_many_categories_are_hashed_and_few_are_not(epsilon, grr, olh):
    # Wang et al. (2017) hash from 3 e**epsilon + 2 on, for frequencies of 0; here frequencies are
    # equal.
    few, many = _parts(Options(epsilon=epsilon), _table(3, 0, (grr, olh)))
    assert (few.hashed, few.design.mechanism, few.design.card.symbols) == (False, "grr", grr)
    assert (many.hashed, many.design.mechanism, many.categories) == (True, "olh", olh)
    assert abs(many.design.card.symbols - min(256, math.exp(float(epsilon)) + 1)) <= 1
    assert (many.design.k, many.question(2).range, few.question(2).range) == (1, 1, 0)
    assert cards.certify(many.design.card, int(float(epsilon) * 1e6))


def test_clients_are_divided_among_the_parts(monkeypatch):
    monkeypatch.setitem(datasets.TABLES, "people", lambda: PEOPLE)
    algorithm = begin("collect", 6000, dataset="people", epsilon="10", k=1)
    (parts,) = algorithm.plan
    assert [part.columns for part in parts] == [(0, 1), (2, 3), (4,)]
    assert [part.design.card.symbols for part in parts] == [3, 2, 3]
    assert [part.categories for part in parts] == [0, 2, 3]
    assert costs.costs(algorithm) == [max(part.design.cost for part in parts)]
    assert costs.costs(algorithm)[0] <= 10_000_000
    (policy,) = set(costs.policies(algorithm, np.arange(1, 6001), None))
    assert policy.largest == policy.budget == costs.costs(algorithm)[0]
    cohorts = algorithm.cohorts(range(1, 6001))
    assert [(question.model, list(question.parameters)) for question, _ in cohorts] == [
        (wire.VALUES, [1, 1, 0, 0, 0]),
        (wire.CATEGORIES, [0, 0, 1, 1, 0]),
        (wire.CATEGORIES, [0, 0, 0, 0, 1]),
    ]
    every_device = np.concatenate([devices for _, devices in cohorts])
    assert sorted(every_device) == list(range(1, 6001))  # each is asked once
    for (_, devices), share in zip(cohorts, (0.4, 0.4, 0.2), strict=True):
        assert abs(len(devices) - 6000 * share) < 4.5 * np.sqrt(6000 * share * (1 - share))
    list(rounds(algorithm, fleet_of(algorithm)))
    after = algorithm.cohorts(range(1, 6001))  # in another round, other clients
    assert 0.3 < np.isin(cohorts[0][1], after[0][1]).mean() < 0.5


@pytest.mark.slow
def test_the_part_of_a_device_is_independent_of_its_class():
    algorithm = begin("collect", 9000, dataset="flights-table", epsilons="1:0.5,4:0.5", seed=3)
    cohorts = algorithm.cohorts(range(1, 9001))
    numeric = [devices for question, devices in cohorts if question.model == wire.VALUES]
    assert [abs(len(devices) / 9000 - 5 / 38) < 0.02 for devices in numeric] == [True, True]


def test_boards_that_hold_the_constant_are_not_asked_for_it():
    algorithm = Collect(Options(dataset="iris"), Population(knows_records=False))
    ((question, devices),) = algorithm.cohorts([7, 8, 9])
    assert list(question.parameters) == [0, 1, 1, 1, 1]
    assert list(devices) == [7, 8, 9]
    assert (algorithm.holdings, algorithm.clients) == (None, None)
    ((question, _),) = begin("collect", 50, dataset="iris").cohorts(range(1, 51))
    assert list(question.parameters) == [1, 1, 1, 1]


def test_clients_choose_a_safe_range_with_their_epsilon():
    held = Table(
        "held",
        ("a", "b", "c", "d"),
        np.tile(np.array([3000, -4000, 0, 12000], np.int16), (40_000, 1)),
    )

    def collected(**options):
        return Collect(Collect.Options(k=4, seed=3, **options), Population(clients=40_000), held)

    algorithm = collected(choices="0.25:1:0.5,1:4:0.5")
    assert [parts[0].question(4).range for parts in algorithm.plan] == [2, 0]
    assert [design.cost / 1e6 for design in algorithm.designs] == pytest.approx([1, 4], abs=1e-4)
    assert [design.release(1).what for design in algorithm.designs] == [
        "attribute (tau 0.25)",
        "attribute (tau 1)",
    ]
    *inside, beyond = simulate(algorithm, 3).result([])["attributes"]
    assert all(entry["interval"][0] < entry["true"] < entry["interval"][1] for entry in inside)
    assert 0.25 < beyond["mean"] < beyond["true"], "half of the clients clip it"
    widths = []
    for options in ({"epsilon": "1"}, {"choices": "0.25:1:1"}):
        low, high = simulate(collected(**options), 3).result([])["attributes"][2]["interval"]
        widths.append(high - low)
    assert widths[1] / widths[0] == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize(
    ("choices", "clipped"), [("0.25:1:0.5,1:4:0.5", [0.25]), ("1:1:0.5,1:4:0.5", [])]
)
def test_intervals_that_do_not_cover_clipped_numbers_say_so(choices, clipped):
    result = run("collect", "simulated:500", dataset="iris", choices=choices)
    assert [result[key] for key in result if key == "clipped_at"] == clipped
    words = "safe range, from 0.25, are clipped; intervals do not cover that"
    assert [words in line for line in Collect.summary(result)].count(True) == len(clipped)
    assert (words in collecting.page(result).pictures["means"][1]) == bool(clipped)


@pytest.mark.parametrize("choices", ["same", "1:0.5,x"])
def test_the_hint_about_a_wrong_choice_is_a_right_one(choices):
    with pytest.raises(UsageError) as caught:
        Collect.Options(choices=choices)
    assert Collect.Options(choices=caught.value.hint.removeprefix("such as ")).chosen()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ("0.3:1:1", "safe ranges"),
        ("2:1:1", "safe ranges"),
        ("0:1:1", "safe ranges"),
        ("nan:1:1", "safe ranges"),
        ("0.5:1", "not a c"),
        ("x:1:1", "not a choice"),
        ("0.5:x:1", "not a choice"),
        ("0.5:1:0.5", "add up"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(choices, message):
    with pytest.raises(UsageError, match=message):
        Collect.Options(choices=choices)


@pytest.mark.parametrize("sizes", [(1,), (9000,), ()])
def test_tables_that_cannot_be_collected_are_refused(sizes):
    message = "has 2 to 8191" if sizes else "no attribute"
    with pytest.raises(UsageError, match=message):
        collect.plan(Options(), _table(3, 0, sizes))


@pytest.mark.parametrize("mechanism", ["three-outputs", "duchi", "pm-sub"])
def test_means_and_frequencies_are_near_the_true_ones(table, mechanism):
    n = 150_000
    people = table(n)
    algorithm = finished(begin("collect", n, epsilon="4", mechanism=mechanism))
    result = algorithm.result([])
    by_name = {entry["name"]: entry for entry in result["attributes"]}
    assert result["clients"] == n
    numeric = [by_name[name] for name in people.numeric_names]
    parts, (reports,) = algorithm.plan[0], algorithm._reports
    assert sum(reports) == n
    assert sum(entry["reports"] for entry in numeric) == reports[0] * parts[0].design.k
    for j, entry in enumerate(numeric):
        truth = people.numeric[:, j].mean() / 16384
        assert entry["true"] == pytest.approx(truth)
        error = (entry["interval"][1] - entry["interval"][0]) / 2 / 1.96
        assert abs(entry["mean"] - truth) < 4.5 * error
    for j, (part, size) in enumerate(zip(parts[1:], SIZES, strict=True)):
        entry = by_name[f"c{j}"]
        truth = np.bincount(people.codes[:, j], minlength=size) / n
        assert entry["true"] == pytest.approx(truth.tolist())
        same, other = estimate.frequency_law(part.design.card)
        error = 1 / (same - other) / np.sqrt(entry["reports"])
        assert np.abs(np.array(entry["frequencies"]) - truth).max() < 4.5 * error
        assert sum(entry["frequencies"]) == pytest.approx(1)


def test_hashed_frequencies_are_right_and_their_intervals_cover_them(table):
    size, n = 500, 20_000
    inside, errors = [], []
    for seed in range(12):
        people = table(n, 1, (size, 3), seed=seed)
        algorithm = begin("collect", n, epsilon="1", seed=seed)
        assert [part.hashed for part in algorithm.plan[0]] == [False, False, True]
        entry = finished(algorithm).result([])["attributes"][1]
        truth = np.bincount(people.codes[:, 0], minlength=size) / n
        assert entry["true"] == pytest.approx(truth.tolist())
        low, high = np.array(entry["intervals"]).T
        inside.append((low <= truth) & (truth <= high))
        errors.append(np.array(entry["frequencies"]) - truth)
    assert 0.93 < np.mean(inside) < 0.97
    variance = estimate.frequency_variance(algorithm.plan[0][2].design.card, 10**9, hashed=True)
    assert np.mean(np.square(errors)) == pytest.approx(variance / (n / 3), rel=0.1)
    assert abs(np.mean(errors)) < 4.5 * np.std(np.mean(errors, axis=1)) / np.sqrt(12)
    unary = 4 * math.e / (math.e - 1) ** 2  # optimised unary encoding
    assert unary == pytest.approx(variance, rel=0.01)


def test_classes_may_hash_an_attribute_or_not(table):
    people = table(60_000, 0, (20,))
    algorithm = begin("collect", 60_000, epsilons="1:0.5,4:0.5")
    assert [[part.hashed for part in parts] for parts in algorithm.plan] == [[True], [False]]
    state = json.loads(json.dumps(finished(algorithm).state()))
    resumed = begin("collect", 60_000, epsilons="1:0.5,4:0.5")
    resumed.restore(state)
    (entry,) = resumed.result([])["attributes"]
    assert (entry, entry["reports"]) == (algorithm.result([])["attributes"][0], 60_000)
    truth = np.bincount(people.codes[:, 0], minlength=20) / 60_000
    assert np.abs(np.array(entry["frequencies"]) - truth).max() < 0.012


def test_a_data_set_without_a_table_gives_its_features():
    result = run(
        "collect", "simulated:50000", dataset="iris", epsilon="8", mechanism="pm-sub", levels=15
    )
    assert len(result["attributes"]) == 4  # not the constant
    assert result["mean_squared_error"] < 1e-3
    (part,) = result["parts"]
    assert (part["d"], part["k"]) == (4, 2)


def test_an_attribute_without_reports_is_left_out(table):
    table(3, 5, ())
    entries = finished(begin("collect", 3, epsilon="1")).result([])["attributes"]
    assert 1 <= len(entries) <= 3
    assert sum(entry["reports"] for entry in entries) == 3


def test_the_command_prints_intervals(tern):
    out = tern("collect", "--dataset", "iris", "--fleet", "simulated:5000", "--epsilon", "4").out
    assert "95 % interval" in out
    assert "mean squared error" in out


@pytest.mark.slow
def test_frequencies_are_printed_and_drawn(tern):
    words = [
        "collect",
        "--dataset",
        "flights-table",
        "--fleet",
        "simulated:50000",
        "--epsilon",
        "2",
    ]
    out = tern(*words, "--name", "x").out
    assert "origin: " in out
    assert "99 more" in out  # of 104 destinations
    assert "mean squared error of the frequencies" in out
    page = Path("runs/x/report.html").read_text()
    assert Path("runs/x/frequencies.png").stat().st_size > 20_000
    assert "optimised local hashing" in page
    assert "randomised response" in page


# Means and histograms as sums over units


def _means(table, devices, **options):
    return Means(Means.Options(**options), Population(clients=devices), table)


def _numbers(values):
    fixed = datasets.to_fixed(values)
    return Table("numbers", tuple(f"x{i}" for i in range(fixed.shape[1])), fixed)


def test_intervals_of_sums_cover_what_the_boards_hold():
    algorithm = _means(_table(500, 5, (3, 7, 3)), 5, records=100, life="4")
    initial, covered, shares, widths = algorithm.state(), [], [], []
    for seed in range(120):
        algorithm.restore(initial)
        finished(algorithm, fleet_of(algorithm, seed=seed + 1))
        result = algorithm.result([])
        for entry in result["attributes"][:5]:
            low, high = entry["interval"]
            covered.append(low <= entry["true"] <= high)
            widths.append(high - low)
        for entry in result["attributes"][5:]:
            bounds = zip(entry["intervals"], entry["true"], strict=True)
            shares += [low <= true <= high for (low, high), true in bounds]
    assert 0.91 < np.mean(covered) < 0.985
    assert 0.93 < np.mean(shares) < 0.97
    assert [entry["name"] for entry in result["attributes"]] == [
        *(f"n{i}" for i in range(5)),
        "c0",
        "c1",
        "c2",
    ]
    assert [part["name"] for part in result["parts"]] == [
        "numbers",
        "of 3 categories",
        "of 7 categories",
    ]
    assert result["rho"] * 1e6 <= algorithm.options.budget_in_rho() == costs.costs(algorithm)[0]
    # sqrt(5 boards (1 + 1 / sqrt(5)) 5 / (2 rho)) / 500, for a mean of 0: two numbers cost what one
    # costs, and more.
    expected = (
        2 * 1.96 * math.sqrt(5 * (1 + 5**-0.5) * 5 / (2 * algorithm.designs[0].cost / 1e6)) / 500
    )
    assert expected < np.mean(widths) < 1.25 * expected


@pytest.mark.parametrize("more", [{}, {"unit": "10"}])
def test_equal_records_at_the_bounds_are_neither_clipped_nor_rounded_away(more):
    """And the last, shorter run of a device counts as what it is: 2,005 records are 201 runs of 10."""
    values = np.tile([1.0, -1.0, 0.01, 0.0031, 0.5], (4 * 2005, 1))
    result = finished(
        _means(_numbers(values), 4, records=2005, life="900", delta="0.5", **more)
    ).result([])
    for entry in result["attributes"]:
        assert entry["mean"] == pytest.approx(entry["true"], abs=0.002)


def test_sums_of_many_records_stay_within_the_symbols():
    """Nor is the sum of a long run cut off at 2**29: half of 4,000 ones would be."""
    for d, life, unit, near in (
        (1, "20", "record", 0.002),
        (2, "900", "record", 0.002),
        (1, "900", "4000", 0.15),
    ):
        algorithm = _means(_numbers(np.ones((65535, d))), 1, records=65535, life=life, unit=unit)
        for entry in finished(algorithm).result([])["attributes"]:
            assert entry["mean"] == pytest.approx(1, abs=near)
        assert costs.costs(algorithm)[0] <= algorithm.options.budget_in_rho()


def test_categories_of_all_records_and_of_long_runs_are_counted():
    for categories, unit in ((128, "record"), (2, "4000"), (64, "7")):
        codes = np.arange(65535).reshape(-1, 1) % categories // 2 * 2
        table = Table(
            "codes",
            (),
            np.empty((65535, 0), np.int16),
            ("c",),
            codes.astype(np.int16),
            (tuple(map(str, range(categories))),),
        )
        entry = finished(_means(table, 1, records=65535, life="900", unit=unit)).result([])[
            "attributes"
        ][0]
        assert entry["frequencies"] == pytest.approx(
            entry["true"], abs=0.1 if unit == "4000" else 0.002
        )
        assert entry["frequencies"][1] < 0.1
        assert entry["intervals"]


def test_a_quotient_has_no_interval_where_its_divisor_may_be_zero():
    assert fieller(1.0, 1.0, 1.9, 1.0) is None
    assert fieller(1.0, 1.0, -5.0, 1.0) is None
    low, high = fieller(0.5, 0.1, 1.0, 1e-9)
    assert (low, high) == pytest.approx((0.5 - 0.196, 0.5 + 0.196), abs=1e-4)
    rng = np.random.default_rng(1)
    found = [fieller(a, 1.0, b, 1.0) for a, b in rng.normal((3.0, 6.0), 1.0, (4000, 2))]
    assert np.mean([low <= 0.5 <= high for low, high in filter(None, found)]) == pytest.approx(
        0.95, abs=0.012
    )


def test_the_command_collects_means_of_runs_and_says_what_it_protects(tern):
    command = "collect --dataset flights-table --fleet simulated:20 --unit 10 --life 2 --json"
    result = tern(*command.split()).json
    assert (result["algorithm"], result["protects"]) == (
        "means",
        "one run of 10 consecutive records of a device",
    )
    assert 0 < result["rho"] <= result["accounting"][0]["rho_user_level"] + 1e-9
    assert result["epsilon_paid"] <= 2
    assert (
        sum("frequencies" in entry for entry in result["attributes"])
        == 14
        == len(result["attributes"]) - 5
    )
    assert result["frequency_squared_error"] < 0.01
    report = (Path(result["directory"]) / "report.html").read_text()
    assert "This run protects one run of 10 consecutive records of a device with epsilon " in report


def test_means_as_sums_are_refused_where_they_cannot_be():
    with pytest.raises(UsageError, match="need 600, and numbers has 500"):
        _means(_numbers(np.zeros((500, 2))), 6, records=100)
    with pytest.raises(UsageError, match="count 2 to 128 categories of an attribute, not 129"):
        _means(_table(50, 0, (129,)), 1, records=50)
    with pytest.raises(UsageError, match="in a planned number of rounds"):
        Means(Means.Options(), Population(schedule=Schedule(), devices=5), _table(600))
