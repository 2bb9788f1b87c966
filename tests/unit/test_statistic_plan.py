"""`tern plan --statistic`: the intervals that it expects are those that collecting gives."""

import contextlib
import io
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from matplotlib.figure import Figure

import ternhost
from ternhost import datasets
from ternhost.cli import main
from ternhost.datasets import Table
from ternhost.datasets.base import ColumnUnit, to_fixed
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.collecting.collect import Values
from ternhost.learn.collecting.means import Means
from ternhost.learn.distributions.quantiles import Quantiles
from ternhost.planning import lying, statistic_plan
from ternhost.planning.assumed import Assumed, assumptions_of, dealt
from ternhost.planning.expected import expected
from ternhost.planning.simulation import default, simulate
from ternhost.planning.statistic_options import (
    HISTOGRAM,
    MEAN,
    QUANTILE,
    SHARE,
    STATISTICS,
    Options,
    parse_liars,
)
from ternhost.terminal import Progress

CLOSE = 0.15  # the planned intervals are that close to those of collecting
SEEDS = range(1, 9)
RANGE = 2  # from -1 to 1
DEVICES = 3000


def planned(**options):
    """What a plan expects of the first of the distributions that it assumes, by name."""
    if options["statistic"] == QUANTILE and "liars" in options:
        options["runs"] = 2  # on which the bound of liars does not depend
    asked = Options(**options)
    estimates = expected(asked, assumptions_of(asked)[0], DEVICES)
    return {(each.attribute, each.statistic): each for each in estimates}


def collected(learner_class, options, assumed):
    """The entries of attributes of several collections, from devices that hold other values each."""
    for seed in SEEDS:
        table = dealt(assumed.table, DEVICES, seed)
        learner = learner_class(replace(options, seed=seed), Population(clients=DEVICES), table)
        yield simulate(learner, seed).result([])["attributes"]


def mean_half(intervals):
    """Half the mean length of intervals."""
    ends = np.array(intervals)
    return (ends[:, 1] - ends[:, 0]).mean() / 2


def command(line):
    """The JSON that a command line prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(line.split()) == 0
    return json.loads(printed.getvalue())


# Against collecting


@pytest.mark.parametrize("data", ["", "iris"])
def test_the_planned_interval_of_a_mean_is_that_of_collecting(data):
    expectations = planned(statistic=MEAN, epsilon=1, data=data)
    assumed = assumptions_of(Options(statistic=MEAN, data=data))[0]
    halves = {}
    for entries in collected(Values, Values.Options(epsilon=1), assumed):
        for entry in entries:
            halves.setdefault(entry["name"], []).append(mean_half([entry["interval"]]) / RANGE)
    for name, of_name in halves.items():
        assert expectations[name, MEAN].half == pytest.approx(np.mean(of_name), rel=CLOSE)


@pytest.mark.parametrize("categories", [2, 40])  # by randomised response, and hashed
def test_the_planned_interval_of_a_share_is_that_of_collecting(categories):
    asked = Options(statistic=SHARE, categories=categories, epsilon=1)
    (expectation,) = expected(asked, assumptions_of(asked)[0], DEVICES)
    halves = []
    for (entry,) in collected(Values, Values.Options(epsilon=1), assumptions_of(asked)[0]):
        halves.append(mean_half(entry["intervals"]))
    assert expectation.half == pytest.approx(np.mean(halves), rel=CLOSE)


def test_the_planned_interval_of_a_median_is_that_of_collecting():
    expectations = planned(statistic=QUANTILE, epsilon=2, quantiles="median")
    halves = []
    options = Quantiles.Options(epsilon=2, quantiles="median")
    for (entry,) in collected(Quantiles, options, assumptions_of(Options())[0]):
        halves.append(mean_half([entry["quantiles"][0]["interval"]]) / RANGE)
    assert expectations["number", "median"].half == pytest.approx(np.mean(halves), rel=CLOSE)


def test_the_planned_interval_of_a_histogram_is_that_of_collecting():
    expectations = planned(statistic=HISTOGRAM, epsilon=1)
    halves = []
    options = Quantiles.Options(epsilon=1, bins=16)
    for (entry,) in collected(Quantiles, options, assumptions_of(Options())[0]):
        halves.append(mean_half(entry["histogram"]["intervals"]))
    half = expectations["number", "share of 16 bins"].half
    assert half == pytest.approx(np.mean(halves), rel=CLOSE)


def test_the_planned_interval_of_a_mean_of_records_is_that_of_collecting():
    asked = Options(statistic=MEAN, unit="record", records=50)
    assumed = assumptions_of(asked)[0]
    (expectation,) = expected(asked, assumed, 20)
    table = dealt(assumed.table, 20 * 50, seed=3)
    means = Means(Means.Options(records=50, seed=3), Population(clients=20), table)
    (entry,) = simulate(means, 3).result([])["attributes"]
    assert expectation.half == pytest.approx(mean_half([entry["interval"]]) / RANGE, rel=CLOSE)


def test_the_worst_interval_of_a_mean_is_at_least_the_one_to_expect():
    assert (
        planned(statistic=MEAN)["number", MEAN].worst
        >= planned(statistic=MEAN)["number", MEAN].half
    )


# What a plan finds


def test_four_times_the_devices_halve_the_interval_of_a_mean():
    result = statistic_plan.plan(Options(statistic=MEAN), [1000])
    assert result["estimates"][0]["curve"][0]["halved_by"] == 4000


def test_so_many_devices_as_a_goal_needs_reach_it():
    options = Options(statistic=MEAN, goal=0.02)
    needed = statistic_plan.plan(options, [100])["estimates"][0]["goal_devices"]
    assumed = assumptions_of(options)[0]
    assert expected(options, assumed, needed)[0].half <= 0.02
    assert expected(options, assumed, round(0.9 * needed))[0].half > 0.02


def test_a_quiet_plan_shows_no_progress(tern, monkeypatch):
    said = []

    class Recorded(Progress):
        def __init__(self, *words, quiet=False, **options):
            said.append(quiet)
            super().__init__(*words, quiet=quiet, **options)

    monkeypatch.setattr("ternhost.cli.plan.Progress", Recorded)
    tern("plan", "--statistic", "mean", "--devices", "100", "--quiet")
    assert said == [True]


def test_a_share_of_liars_may_be_written_in_percent():
    assert parse_liars("1.5%") == parse_liars("0.015")


@pytest.mark.parametrize("wrong", ["0%", "50%", "%", "1%%"])
def test_no_other_share_of_liars_in_percent_is_taken(wrong):
    with pytest.raises(UsageError):
        parse_liars(wrong)


def test_from_so_many_devices_on_liars_do_more_than_noise():
    options = Options(statistic=MEAN, liars="0.01")
    number = statistic_plan.plan(options, [100])["estimates"][0]["liars_matter_from"]
    assumed = assumptions_of(options)[0]
    (after,) = expected(options, assumed, number)
    (before,) = expected(options, assumed, round(0.9 * number))
    assert after.half <= after.moved
    assert before.half > before.moved


def test_a_goal_that_no_plan_reaches_has_no_number_of_devices():
    options = Options(statistic=MEAN, goal=1e-9)
    assert statistic_plan.plan(options, [100])["estimates"][0]["goal_devices"] is None


def test_without_a_table_a_plan_says_which_distributions_it_assumes():
    result = statistic_plan.plan(Options(statistic=MEAN), [1000])
    assert [assumed["name"] for assumed in result["assumed"]] == ["uniform", "normal"]


def test_an_interval_has_the_unit_of_its_column():
    unit = ColumnUnit("delay", low=0, high=200, unit="min")
    minutes = to_fixed(np.linspace(-1, 1, 1000))[:, None]
    table = Table("delays", ("delay",), minutes, units=(unit,))
    estimate = expected(Options(statistic=MEAN), Assumed("delays", "delays", table), 1000)[0]
    assert estimate.half_in_unit == pytest.approx(200 * estimate.half)


# Liars


@pytest.mark.parametrize("statistic", STATISTICS)
def test_more_liars_move_a_statistic_farther(statistic):
    def moved(share):
        return [each.moved for each in planned(statistic=statistic, liars=share).values()]

    assert all(few < many for few, many in zip(moved("0.01"), moved("0.05"), strict=True))


@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_larger_epsilon_leaves_less_to_liars(statistic):
    def moved(epsilon):
        asked = planned(statistic=statistic, liars="0.01", epsilon=epsilon)
        return max(each.moved for each in asked.values())

    assert moved(4) < moved(1)


def test_liars_move_a_mean_by_their_share_of_the_distance_to_the_largest_symbol():
    # Reports at epsilon 1 by an unbiased card stand for numbers beyond [-1, 1].
    moved = planned(statistic=MEAN, liars="0.01", epsilon=1)["number", MEAN].moved
    assert moved > 0.01 * 1 / RANGE


def test_a_share_of_liars_is_exact():
    assert parse_liars("0.29") == Fraction(29, 100)


@pytest.mark.parametrize("model", ["logistic", "svm"])  # by direct, and by fedsgd
def test_the_first_round_of_a_training_has_a_bound_for_liars(model):
    data = datasets.load("synthetic-logistic")
    learner = default(data, 1000, 1, model, "1")
    bound = lying.first_round(learner, 1, Fraction(1, 100))
    assert bound["relative"] == pytest.approx(bound["moved"] / bound["noise"])
    assert math.isfinite(bound["relative"])


def test_more_devices_make_liars_matter_more_beside_noise():
    data = datasets.load("synthetic-logistic")

    def relative(devices):
        learner = default(data, devices, 1, "logistic", "1")
        return lying.first_round(learner, 1, Fraction(1, 100))["relative"]

    assert relative(1000) < relative(10_000)


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"statistic": MEAN, "quantiles": "0.5"},
        {"statistic": SHARE, "attributes": "a"},
        {"statistic": QUANTILE, "categories": 3},
        {"statistic": MEAN, "bins": 16},
        {"statistic": MEAN, "runs": 3},
        {"statistic": MEAN, "run_epsilon": 2},
        {"statistic": MEAN, "unit": "record", "epsilon": 1},
        {"attributes": "a"},
        {"by": "home"},
        {"data": "iris", "statistic": SHARE, "categories": 3},
        {"unit": "record", "liars": "0.1"},
        {"data": "devices:3"},
    ],
    ids=str,
)
def test_an_option_that_would_change_nothing_is_refused(options):
    with pytest.raises(UsageError):
        Options(**options)


@pytest.mark.parametrize("liars", ["0", "0.5", "-1", "x", "1/0", "nan"])
def test_a_share_of_liars_that_is_none_is_refused(liars):
    with pytest.raises(UsageError, match="--liars"):
        Options(liars=liars)


@pytest.mark.parametrize(
    "line",
    [
        "--statistic mean --quantiles 0.5,0.9,0.99",  # the default, but named
        "--statistic quantile --model svm",
        "--statistic quantile --years 2 --every 1h",
        "--statistic quantile --epsilon 1 --run-epsilon 1",
        "--statistic mean --unit device --records 5",
        "--quantiles median",
        "--devices 20 --records 500 --run-epsilon 4 --liars 0.01",
        "--years 2 --every 1h --run-epsilon 10 --liars 0.01",
    ],
)
def test_a_command_with_an_option_that_would_change_nothing_fails(line, capsys):
    assert main(["plan", *line.split()]) == 2


def test_a_table_without_numbers_has_no_quantile(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("name\n" + "a\nb\n" * 20)
    options = Options(data=str(path))
    with pytest.raises(UsageError):
        statistic_plan.plan(options, [100])


# The command and Python


def test_the_command_plans_for_a_quantile(tmp_path):
    picture = tmp_path / "plan.png"
    line = f"plan --statistic quantile --devices 500 --epsilon 1 --runs 2 --plot {picture} --json"
    result = command(line)
    names = {(each["assumed"], each["statistic"]) for each in result["estimates"]}
    assert names == {
        (law, name) for law in ("uniform", "normal") for name in ("median", "p90", "p99")
    }
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_plans_for_records_if_their_number_is_named():
    result = command("plan --statistic mean --devices 20 --records 50 --json")
    assert (result["unit"], result["records"]) == (1, 50)


def test_the_command_says_what_liars_do_to_a_model():
    line = "plan --data devices:5 --devices 100,1000 --runs 2 --workers 1 --liars 0.01 --json"
    first_rounds = command(line)["first_rounds"]
    assert [row["devices"] for row in first_rounds] == [100, 1000]
    assert all(row["liars"] == max(1, row["reports"] // 100) for row in first_rounds)


def test_a_plan_for_a_statistic_is_a_frame():
    plan = ternhost.plan(ternhost.Statistic(statistic="mean"), [100, 1000])
    assert plan.to_frame()["devices"].tolist() == [100, 1000] * 2  # for both distributions


def test_a_plan_for_a_statistic_is_a_picture():
    plan = ternhost.plan(ternhost.Statistic(statistic="mean", liars=0.01, goal=0.1), 100)
    assert isinstance(plan.plot(), Figure)


def test_a_plan_for_a_statistic_refuses_what_only_models_have():
    with pytest.raises(UsageError, match="workers"):
        ternhost.plan(ternhost.Statistic(statistic="mean"), 100, workers=2)
