"""What a plan says of its models: two measures, where a single run lies, and what is bad about them."""

from statistics import NormalDist

import numpy as np
import pytest

import ternhost
from ternhost import Direct, FedSGD, FedSum, Simulated, datasets
from ternhost.learn.models import judging
from ternhost.planning import quality, table
from ternhost.planning.existing import Existing
from ternhost.planning.simulation import default
from ternhost.planning.statistics import intervals

ANY = (-np.inf, np.inf)  # the limits of a figure that can be anything

# Statistics


def test_a_single_run_lies_in_the_prediction_interval_of_student():
    """Of four runs with mean 2.5: the 99 % quantile of Student's t with 3 degrees is 4.5407."""
    half = 4.5407 * np.std([1, 2, 3, 4], ddof=1) * np.sqrt(1 + 1 / 4)
    row = intervals([1, 2, 3, 4], ANY)
    assert (row["run_low"], row["run_high"]) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-4)


def test_the_interval_of_a_single_run_holds_that_of_the_mean():
    row = intervals([1, 2, 3, 4], ANY)
    assert row["run_low"] < row["low"] < row["high"] < row["run_high"]


def test_the_interval_of_a_single_run_is_cut_to_possible_values():
    row = intervals([0.1, 0.9], (0.0, 1.0))
    assert (row["run_low"], row["run_high"]) == (0.0, 1.0)


def shares_of_runs_that_plans_hold():
    """The shares of all normal runs that lie in the intervals of 2,000 plans of 8 runs."""
    rng = np.random.default_rng(1)
    runs = NormalDist(0.7, 0.02)
    shares = []
    for _ in range(2000):
        row = intervals(rng.normal(runs.mean, runs.stdev, 8).tolist(), ANY)
        shares.append(runs.cdf(row["run_high"]) - runs.cdf(row["run_low"]))
    return np.array(shares)


def test_the_interval_of_a_single_run_holds_98_percent_of_runs_on_average():
    assert shares_of_runs_that_plans_hold().mean() == pytest.approx(0.98, abs=0.003)


def test_the_interval_of_a_single_run_holds_90_percent_of_runs_in_19_of_20_plans():
    """The standard error of this share of the plans is 0.005."""
    assert np.mean(shares_of_runs_that_plans_hold() >= 0.9) == pytest.approx(0.95, abs=0.015)


# The runs of a plan are those of `tern train`

FLEET = {"data": "synthetic-logistic", "records": 30, "run_epsilon": 2}


@pytest.fixture(scope="module")
def fleet():
    """A plan of 5 boards with 30 records each, of two runs."""
    return ternhost.plan(FedSum(**FLEET, seed=3), 5, runs=2, workers=1)


@pytest.fixture(scope="module")
def new_devices():
    """A plan of 200 devices that report once, of two runs."""
    learner = Direct(data="synthetic-logistic", epsilon=4, seed=3)
    return ternhost.plan(learner, 200, runs=2, workers=1)


def figures_of_runs(learners, devices, folder, monkeypatch):
    """The mean accuracy and the mean log-loss of real runs."""
    monkeypatch.chdir(folder)
    results = [ternhost.train(learner, Simulated(devices)) for learner in learners]
    accuracies = [result["accuracy"] for result in results]
    losses = [result["log_loss"] for result in results]
    return np.mean(accuracies), np.mean(losses)


def test_a_planned_fleet_learns_what_runs_with_the_same_seeds_learn(fleet, tmp_path, monkeypatch):
    learners = [FedSum(**FLEET, unit="record", seed=seed) for seed in (3, 4)]
    last = fleet["units"][0]["curve"][-1]
    expected = figures_of_runs(learners, 5, tmp_path, monkeypatch)
    assert (last["mean"], last["log_loss_mean"]) == pytest.approx(expected)


def test_the_unit_device_learns_what_runs_with_the_same_seeds_learn(fleet, tmp_path, monkeypatch):
    options = {"data": FLEET["data"], "records": FLEET["records"], "epsilon": FLEET["run_epsilon"]}
    learners = [Direct(**options, seed=seed) for seed in (3, 4)]
    last = fleet["units"][1]["curve"][-1]
    expected = figures_of_runs(learners, 5, tmp_path, monkeypatch)
    assert (last["mean"], last["log_loss_mean"]) == pytest.approx(expected)


def test_a_split_budget_learns_what_runs_with_the_same_seeds_learn(tmp_path, monkeypatch):
    """An epsilon of 12 is best split into two reports of 6: ten of five devices."""
    options = {"data": FLEET["data"], "records": FLEET["records"]}
    plan = ternhost.plan(FedSum(**options, run_epsilon=12, seed=3), 5, runs=2, workers=1)
    learners = [Direct(**options, epsilon=6, reports=10, seed=seed) for seed in (3, 4)]
    last = plan["units"][1]["curve"][-1]
    expected = figures_of_runs(learners, 5, tmp_path, monkeypatch)
    assert (last["mean"], last["log_loss_mean"]) == pytest.approx(expected)


def test_a_plan_with_epsilons_has_a_point_of_both_units_for_each():
    plan = ternhost.plan(FedSum(**FLEET), 5, epsilons=True, runs=2, workers=1)
    for unit in plan["units"]:
        assert [row["epsilon"] for row in unit["by_epsilon"]] == [0.5, 1, 2, 4]
    axes = plan.plot().axes[0]
    assert [len(curve[0].get_xdata()) for curve in axes.containers] == [4, 4]


def test_a_plan_of_a_fleet_has_a_verdict_for_each_unit(fleet):
    for unit in ("record", "device"):
        assert sum(line.startswith(f"Unit {unit}:") for line in fleet.lines) == 1


def test_a_plan_of_a_fleet_has_a_model_of_the_public_rows_alone(fleet):
    """synthetic-logistic declares 1,000 public rows, whose labels everybody may read."""
    assert fleet["public_labels"] == 1000
    assert fleet["baseline"] < fleet["public_alone"] <= fleet["optimum"]


def test_a_plan_says_where_public_rows_alone_are_better(fleet):
    """Five devices with 30 records each learn less than the labels of 1,000 public rows tell."""
    figures = [unit["curve"][-1]["high"] for unit in fleet["units"]]
    better = sum(fleet["public_alone"] > figure for figure in figures)
    assert sum("public rows alone give" in line for line in fleet.lines) == better


def test_a_plan_of_a_fleet_has_both_units_in_its_frame(fleet):
    assert set(fleet.to_frame()["unit"]) == {"record", "device"}


def test_new_devices_learn_what_runs_with_the_same_seeds_learn(new_devices, tmp_path, monkeypatch):
    learners = [Direct(data="synthetic-logistic", epsilon=4, seed=seed) for seed in (3, 4)]
    last = new_devices["curve"][-1]
    expected = figures_of_runs(learners, 200, tmp_path, monkeypatch)
    assert (last["mean"], last["log_loss_mean"]) == pytest.approx(expected)


def test_each_run_of_a_fleet_deals_other_records():
    existing = Existing(5, FedSum(**FLEET))
    first, second = (set(existing.learner(seed).holdings.order) for seed in (1, 2))
    assert first != second


def test_each_run_of_new_devices_deals_other_records():
    data = datasets.load("synthetic-logistic")
    dealt = []
    for seed in (1, 2):
        learner = default(data, 200, seed, "logistic", "4")
        dealt.append(set(learner.holdings.order[:200]))
    assert dealt[0] != dealt[1]


# Measures


@pytest.mark.parametrize("kind", ["fleet", "new_devices"])
def test_a_plan_of_two_classes_has_the_log_loss_of_the_class_shares(kind, request):
    plan = request.getfixturevalue(kind)
    data = datasets.load("synthetic-logistic")
    assert plan["log_loss_baseline"] == judging.baselines(data)["log_loss"]


@pytest.mark.parametrize("kind", ["fleet", "new_devices"])
def test_a_plan_of_two_classes_has_the_log_loss_without_privacy(kind, request):
    plan = request.getfixturevalue(kind)
    assert plan["log_loss_optimum"] < plan["log_loss_baseline"]


def test_a_plan_of_two_classes_has_its_log_loss_in_its_frame(new_devices):
    assert new_devices.to_frame()["log_loss_mean"].gt(0).all()


@pytest.mark.parametrize("kind", ["fleet", "new_devices"])
def test_a_plan_of_two_classes_has_a_panel_for_each_measure(kind, request):
    names = [axes.get_ylabel() for axes in request.getfixturevalue(kind).plot().axes]
    assert names == ["accuracy", "log-loss"]


@pytest.mark.parametrize("kind", ["fleet", "new_devices"])
def test_a_plan_of_two_classes_has_the_recall_of_the_rarer_class(kind, request):
    plan = request.getfixturevalue(kind)
    curves = [unit["curve"] for unit in plan.get("units", [plan])]
    assert all(0 < curve[-1]["recall"] <= 1 for curve in curves)


def test_a_plan_of_several_classes_has_a_log_loss():
    plan = ternhost.plan(FedSGD(data="iris"), 50, runs=2, workers=1)
    assert plan["curve"][-1]["log_loss_mean"] > 0


def test_a_plan_of_numbers_has_only_their_squared_error():
    plan = ternhost.plan(FedSGD(data="diabetes"), 50, runs=2, workers=1)
    assert [axes.get_ylabel() for axes in plan.plot().axes] == ["mean squared error"]


@pytest.mark.parametrize("kind", ["fleet", "new_devices"])
def test_the_table_of_a_plan_has_at_most_100_columns(kind, request):
    lines = request.getfixturevalue(kind).lines
    first = next(i for i, line in enumerate(lines) if "log-loss" in line)
    last = next(i for i, line in enumerate(lines) if "class shares" in line)
    assert max(map(len, lines[first : last + 1])) <= 100


# What is bad about models

CLASSES = {
    "model": "logistic",
    "measure": "accuracy",
    "log_loss_baseline": 0.5,
    "rarest": "ill",
    "rarest_share": 0.1,
}


def rows_of_runs(*never_predicted, loss=0.4):
    """The row of a plan, of a run for each list of the classes that its model never predicts."""
    runs = []
    for names in never_predicted:
        run = {"figure": 0.9, "log_loss": loss, "recall": 0.0, "never_predicted": names}
        runs.append(run)
    return [quality.of_runs(runs, "accuracy")]


def warnings(rows):
    """What the table of a plan says of rows with 20 devices."""
    return table.warnings(CLASSES, rows, lambda _: "With 20 devices")


def test_a_model_that_ignores_features_never_predicts_the_rarer_class():
    data = datasets.load("flights-planned")
    weights = np.zeros(data.dimension)
    weights[0] = -1.0  # of the constant
    row = quality.of_model(data, "logistic", weights)
    assert row["never_predicted"] == [quality.rarest_class(data)["rarest"]]


def test_a_low_threshold_predicts_the_rarer_class():
    data = datasets.load("flights-planned")
    weights = np.zeros(data.dimension)
    weights[0] = -1.0  # a probability of 0.27 for all
    row = quality.of_model(data, "logistic", weights, threshold=0.2)
    assert row["recall"] == 1


def test_a_plan_warns_of_a_class_that_most_runs_never_predict():
    (sentence,) = warnings(rows_of_runs(["ill"], ["ill"], []))
    assert "never predicts ill" in sentence


def test_a_plan_does_not_warn_of_a_class_that_half_of_the_runs_predict():
    assert warnings(rows_of_runs(["ill"], [])) == []


def test_the_table_says_never_instead_of_a_recall():
    (row,) = rows_of_runs(["ill"], ["ill"])
    assert table.line_of_runs(CLASSES, "20", row).endswith("never")


def test_a_plan_warns_of_a_log_loss_that_is_worse_than_that_of_the_class_shares():
    (sentence,) = warnings(rows_of_runs([], [], loss=0.6))
    assert "log-loss" in sentence


def test_a_plan_does_not_warn_of_a_better_log_loss():
    assert warnings(rows_of_runs([], [], loss=0.4)) == []


# Whether a fleet that exists learns a model that is better than none


def verdict_of(low, high, run_low, run_high, baseline=0.5):
    """The verdict on a log-loss with these intervals."""
    row = {
        "rounds": 60,
        "log_loss_mean": (low + high) / 2,
        "log_loss_low": low,
        "log_loss_high": high,
        "log_loss_run_low": run_low,
        "log_loss_run_high": run_high,
    }
    result = {"measure": judging.AUC, "baseline": 0.5, "log_loss_baseline": baseline}
    return table.verdict(result, row)


def test_a_run_that_certainly_has_a_smaller_loss_is_better_than_no_model():
    assert "a single run is better" in verdict_of(0.3, 0.32, 0.25, 0.4)


def test_a_run_that_may_have_a_larger_loss_is_better_on_average_only():
    assert "on average better" in verdict_of(0.3, 0.4, 0.1, 0.6)


def test_a_mean_loss_that_is_certainly_larger_is_worse_than_no_model():
    assert "worse than no model" in verdict_of(0.6, 0.7, 0.4, 0.9)


def test_a_mean_loss_that_may_be_either_is_hidden_by_noise():
    assert "noise hides" in verdict_of(0.4, 0.6, 0.1, 0.9)


def test_larger_accuracies_are_better_than_no_model_where_there_is_no_loss():
    row = {"rounds": 60, "mean": 0.8, "low": 0.78, "high": 0.82, "run_low": 0.7, "run_high": 0.9}
    result = {"measure": judging.ACCURACY, "baseline": 0.6}
    assert "a single run is better" in table.verdict(result, row)
