"""`tern plan`: the number of devices that a curve suggests, and the command on real simulations."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

from ternhost import datasets
from ternhost.cli import main
from ternhost.errors import UsageError
from ternhost.learn.models import projections
from ternhost.planning import one_report as planning
from ternhost.planning import years as lasting
from ternhost.planning.simulation import figure_of, sgd, simulate
from ternhost.planning.statistics import mean_and_error
from ternhost.privacy import composing, mechanisms, sums


def curve(means, half_width=0.01):
    """The figures of 1,000, 10,000 and 100,000 devices, with their intervals."""
    rows = []
    for devices, mean in zip((1_000, 10_000, 100_000), means, strict=True):
        interval = {"low": mean - half_width, "high": mean + half_width}
        rows.append({"devices": devices, "mean": mean, **interval})
    return rows


LARGER_IS_BETTER, SMALLER_IS_BETTER = 1, -1


@pytest.mark.parametrize(
    ("means", "goal", "better", "devices"),
    [
        # Halfway between 10,000 and 100,000 reports on a logarithmic scale.
        ((0.5, 0.6, 0.8), 0.7, LARGER_IS_BETTER, 32_000),
        ((0.8, 0.6, 0.5), 0.7, SMALLER_IS_BETTER, 3_200),
        ((0.5, 0.6, 0.8), 0.4, LARGER_IS_BETTER, 1_000),
        ((0.5, 0.6, 0.8), 0.9, LARGER_IS_BETTER, None),
        # Halfway from 10,000 again: that 1,000 reports reached it was luck.
        ((0.75, 0.6, 0.8), 0.7, LARGER_IS_BETTER, 32_000),
    ],
    ids=["accuracy", "loss", "already at first", "never", "by luck"],
)
def test_a_plan_gives_the_devices_that_a_goal_needs(means, goal, better, devices):
    """The means are those of 1,000, 10,000 and 100,000 devices."""
    assert planning.reached(curve(means), goal, better)["devices"] == devices


@pytest.mark.parametrize("ends_early", [True, False])
def test_fleets_are_left_out_once_a_smaller_one_reaches_all_goals(ends_early, monkeypatch):
    monkeypatch.setattr(planning, "_MOST_REPORTS_TOGETHER", 1000)
    devices = (500, 1000, 20_000, 21_000)
    planned = planning.Planned("8", devices=devices, ends_early=ends_early, runs=4, workers=1)
    result = planning.plan(planned)

    tried = [row["devices"] for row in result["curve"]]
    assert tried == ([500, 1000, 20_000] if ends_early else list(devices))
    assert result["most_of_the_way"]["most"] <= 20_000


def test_more_devices_give_a_better_model_up_to_the_one_without_privacy():
    """`tern plan` simulates training with several numbers of reports. Its curve rises, from better
    than a model that predicts the most frequent label (baseline) to below the best without privacy
    (optimum).
    """
    devices = (300, 30_000, 3000)
    planned = planning.Planned("4", "synthetic-logistic", devices=devices, runs=2, workers=1)
    result = planning.plan(planned)

    means = [row["mean"] for row in result["curve"]]  # accuracies
    assert [row["devices"] for row in result["curve"]] == [300, 3000, 30_000]
    assert means == sorted(means)
    assert result["baseline"] < means[-1] < result["optimum"]
    assert 300 <= result["beats_baseline"] <= 30_000, "so many reports beat it"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A CSV file of 400 records of a known rule, with names."""
    random = np.random.default_rng(1)
    features = random.uniform(-1, 1, (400, 3))
    labels = np.where(features @ [1, -1, 0.5] > 0, 1, -1)
    records = np.column_stack([np.ones(400), features, labels])
    path = tmp_path_factory.mktemp("plan") / "sample.csv"
    np.savetxt(path, records, delimiter=",", header="one,a,b,c,label", comments="")
    return path


@pytest.fixture(scope="module")
def planned_fleet(sample):
    """The plan of a fleet of 20 boards with 60 records each, by rounds."""
    words = f"plan --devices 20 --records 60 --run-epsilon 2 --runs 2 --workers 1 --data {sample} --json"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(words.split()) == 0
    return json.loads(printed.getvalue())


def test_a_fleet_that_exists_is_planned_by_rounds(planned_fleet):
    curve = planned_fleet["units"][0]["curve"]
    assert [row["rounds"] for row in curve][:5] == [1, 2, 3, 4, 8]
    first, *_, last = [row["mean"] for row in curve]
    assert planned_fleet["baseline"] - 0.2 < first < last
    # 400 records, of which 20 boards share those for training.
    assert 300 < planned_fleet["distinct"] <= 360  # nine tenths of 400


def test_the_model_of_a_fleet_without_privacy_is_good(planned_fleet):
    assert planned_fleet["without_privacy"]["mean"] > 0.95


def test_with_a_record_as_unit_a_fleet_is_near_no_privacy(planned_fleet):
    of_records, _ = planned_fleet["units"]
    assert of_records["curve"][-1]["mean"] > 0.85


def test_both_units_of_a_fleet_have_the_same_keys(planned_fleet):
    of_records, of_device = planned_fleet["units"]
    assert of_records.keys() == of_device.keys()


def test_both_units_of_a_fleet_have_the_same_columns(planned_fleet):
    of_records, of_device = planned_fleet["units"]
    assert of_records["curve"][-1].keys() == of_device["curve"][-1].keys()


def test_the_unit_device_of_a_fleet_has_no_delta(planned_fleet):
    assert [unit["delta"] for unit in planned_fleet["units"]] == [1e-6, 0]


def test_all_records_of_a_device_are_protected_less_than_one_record(planned_fleet):
    """60 records with (2, 1e-6) each, by their rho: 60**2 times as much."""
    of_records, _ = planned_fleet["units"]
    rho = sums.rho_of(2, 1e-6)
    assert of_records["device_epsilon"] == sums.epsilon_of(60**2 * rho, 1e-6)


def test_with_the_unit_device_the_epsilon_is_that_of_all_its_records(planned_fleet):
    _, of_device = planned_fleet["units"]
    assert of_device["device_epsilon"] == 2


def test_a_device_answers_better_about_many_records_than_about_one(tern):
    words = "plan --data synthetic-logistic --devices 30 --epsilon 4 --runs 4 --workers 1 --json"
    of_one = json.loads(tern(*words.split()).out)
    of_many = json.loads(tern(*words.split(), "--records", "100").out)
    assert of_many["curve"][-1]["low"] > of_one["curve"][-1]["high"]


def test_new_devices_with_many_records_are_planned_by_their_number(tern):
    words = "plan --data synthetic-logistic --devices 5,10 --records 20 --epsilon 4"
    result = json.loads(tern(*words.split(), "--runs", "2", "--workers", "1", "--json").out)
    assert [row["devices"] for row in result["curve"]] == [5, 10]
    assert result["held"] == 200  # the records of 10 devices


# The best split of a budget for life

FEATURES = 31


@pytest.mark.parametrize(
    ("epsilon", "reports"), [(1, 1), (4, 1), (8, 1), (12, 2), (16, 2), (24, 4)]
)
def test_a_larger_epsilon_is_best_split_into_several_reports(epsilon, reports):
    assert projections.best_split(epsilon * 1_000_000, FEATURES).reports == reports


@pytest.mark.parametrize("epsilon", [4, 10, 20, 40])
def test_the_best_split_has_the_least_variance_of_all(epsilon):
    budget = epsilon * 1_000_000
    best = projections.best_split(budget, FEATURES)
    variances = [projections.split(budget, FEATURES, k).variance for k in range(1, 11)]
    assert best.variance == min(variances)


@pytest.mark.parametrize("epsilon", [4, 40])
def test_the_best_split_in_rho_has_the_least_variance_of_all(epsilon):
    budget = sums.rho_of(epsilon, 1e-6)
    best = projections.best_split(budget, FEATURES, in_rho=True)
    variances = []
    for reports in range(1, 11):
        variances.append(projections.split(budget, FEATURES, reports, in_rho=True).variance)
    assert best.variance == min(variances)


def test_the_reports_of_a_split_keep_the_budget_in_epsilon():
    best = projections.best_split(25_000_001, FEATURES)
    assert best.reports * best.epsilon <= 25_000_001


def test_the_reports_of_a_split_keep_the_budget_in_rho():
    budget = sums.rho_of(40, 1e-6)
    best = projections.best_split(budget, FEATURES, in_rho=True)
    assert best.reports * sums.rho_of_pure(best.epsilon) <= budget


# Rounds over years

TWO_YEARS = lasting.RoundsForYears(2, "1h", "10")
ROUNDS = 17_532  # hours of two years


def composed(epsilon_micro, rounds):
    """The epsilon of so many reports at delta 1e-6."""
    design = mechanisms.design(
        "three-outputs", epsilon_micro=epsilon_micro, use=mechanisms.GRADIENTS
    )
    kind = composing.ReportKind.of(design.decode())
    return composing.compose({kind: rounds}, 1e-6).exact


def test_rounds_of_years_share_a_budget_by_each_ledger():
    assert TWO_YEARS.rounds == ROUNDS
    of_rho, of_pure = TWO_YEARS.costs
    budget = sums.rho_of(10, 1e-6)
    assert ROUNDS * sums.rho_of_pure(of_rho) <= budget < ROUNDS * sums.rho_of_pure(of_rho + 1)
    assert of_pure == 10_000_000 // ROUNDS


def test_rounds_of_years_share_a_budget_by_exact_composition():
    result = TWO_YEARS.cost_summary(datasets.load("synthetic-logistic"), "logistic")
    exact = round(result["epsilon_exact"] * 1e6)
    assert composed(exact, ROUNDS) <= 10 < composed(exact + 1, ROUNDS)
    of_rho, of_pure = TWO_YEARS.costs
    assert result["told_rho"] == composed(of_rho, ROUNDS)
    assert result["told_pure"] == composed(of_pure, ROUNDS)


@pytest.mark.exhaustive
def test_fewer_reports_with_the_same_noise_learn_as_much(monkeypatch):
    """`tern plan` simulates the 300 rounds of a device by 6 reports of a larger epsilon, since both
    have the same noise: they learn as much, within 2.5 standard errors. A third of the devices
    learn less, so this test would see a difference.
    """
    # Rounds of a year, one in 105,192 s (29 hours), with epsilon 10 for life: 300 rounds.
    data, rounds = datasets.load("synthetic-logistic"), lasting.RoundsForYears(1, "105192", "10")

    def learned(devices, reports_of_a_device):
        monkeypatch.setattr(lasting, "MOST_OF_A_DEVICE", reports_of_a_device)
        equivalent = rounds.fewer_equivalent_reports(data, "logistic", devices)
        options = {"clients": devices, "group": 0, "epsilon": equivalent.epsilon}
        figures = []
        for seed in range(1, 9):
            learner = sgd(data, equivalent.count, seed, **options)
            figures.append(figure_of(simulate(learner, seed)))
        return mean_and_error(figures)

    all_reports, error = learned(3000, 300)
    fewer_reports, other_error = learned(3000, 6)
    fewer_devices, _ = learned(1000, 6)
    noise = np.hypot(error, other_error)
    assert abs(all_reports - fewer_reports) < 2.5 * noise
    assert all_reports - fewer_devices > 2.5 * noise


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--records 60", "--devices"),
        ("--records 60 --devices 20,30", "--devices"),
        ("--records 60 --devices 20 --goal .8", "--goal"),
        ("--devices many", "--devices"),
        ("--years 2 --every 1h --records 60", "--records"),
        ("--devices 20 --epsilon 1 --run-epsilon 4", "--epsilon"),
        ("--devices 20 --records 60 --epsilon 1 --unit record", "--epsilon"),
        ("--devices 20000 --records 600 --epsilon 1", "--devices"),
    ],
)
def test_options_of_different_kinds_of_plans_are_refused_together(tern, words, option):
    assert option in tern("plan", *words.split(), code=UsageError.exit_code).err


def test_the_command_plans_rounds_of_years_as_the_guide_shows(tern):
    """The privacy account that the planning guide shows for two years of hourly rounds is, line by
    line, what its command prints.
    """
    words = "plan --years 2 --every 1h --run-epsilon 10 --runs 2 --workers 1 --devices 30,300"
    printed = tern(*words.split(), "--goal", "0.6").out
    guide = (Path(__file__).parents[2] / "docs/guides/planning.md").read_text()
    # The guide shows the account from this line (2 years of hours) up to that one.
    shown = guide[guide.index("17,532 rounds") : guide.index("many reports are simulated")]
    account = shown.splitlines()
    assert printed.splitlines()[: len(account)] == account
    assert "devices for accuracy 0.6" in printed


@pytest.mark.parametrize(
    "words",
    [
        "--years 2",
        "--years 2 --every 1h --epsilon 3",
        "--years .1 --every 8w",
        "--years 40 --every 1s",
        "--years 2 --every 1h --run-epsilon .1",
    ],
    ids=[
        "no interval",
        "an epsilon of a report",
        "no round",
        "more rounds than a device counts",
        "less than a millionth for each",
    ],
)
def test_rounds_that_no_device_can_answer_are_refused(tern, words):
    tern("plan", *words.split(), code=UsageError.exit_code)
