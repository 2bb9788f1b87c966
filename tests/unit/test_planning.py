"""`tern plan`: the number of devices that a curve suggests, and the command on real simulations."""

from pathlib import Path

import numpy as np
import pytest

from ternhost import datasets
from ternhost.planning import one_report as planning
from ternhost.planning import years as lasting
from ternhost.planning.simulation import figure_of, sgd, simulate
from ternhost.planning.statistics import mean_and_error
from ternhost.privacy import composing, mechanisms, sums


def curve(*means, half=0.01):
    reports = (1_000, 10_000, 100_000)
    rows = zip(reports, means, strict=True)
    return [
        {"reports": n, "mean": mean, "low": mean - half, "high": mean + half} for n, mean in rows
    ]


def test_a_plan_gives_the_reports_that_a_goal_needs():
    # Interpolated over the logarithm, rounded to two digits; a smaller loss is better.
    for means, sign, reports in (((0.5, 0.6, 0.8), 1, 32_000), ((0.8, 0.6, 0.5), -1, 3_200)):
        plan = planning.reached(curve(*means), 0.7, sign)
        assert plan["reports"] == reports
        assert plan["least"] < plan["reports"] < plan["most"]
    assert planning.reached(curve(0.75, 0.6, 0.8), 0.7, 1)["reports"] > 10_000, "luck is not enough"
    assert planning.reached(curve(0.5, 0.6, 0.8), 0.4, 1)["reports"] == 1_000
    beyond = planning.reached(curve(0.5, 0.6, 0.8), 0.9, 1)
    assert (beyond["reports"], beyond["least"], beyond["most"]) == (None, None, None)


@pytest.fixture(scope="module")
def plain():
    planned = planning.Planned(
        "4", "synthetic-logistic", reports=(300, 30_000, 3000), runs=4, workers=1
    )
    return planning.plan(planned)


def test_more_devices_give_a_better_model_up_to_the_one_without_privacy(plain):
    means = [row["mean"] for row in plain["curve"]]
    assert [row["reports"] for row in plain["curve"]] == [300, 3000, 30_000]
    assert means == sorted(means)
    assert plain["baseline"] < means[-1] < plain["optimum"]
    assert 300 <= plain["beats_baseline"] <= 30_000
    most_of_the_way = 0.1 * plain["baseline"] + 0.9 * plain["optimum"]
    assert plain["most_of_the_way"]["figure"] == pytest.approx(most_of_the_way)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A CSV file of 400 records of a known rule, with names."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (400, 3))
    labels = np.where(x @ [1, -1, 0.5] > 0, 1, -1)
    rows = [f"1,{','.join(map(str, row))},{label}" for row, label in zip(x, labels, strict=True)]
    path = tmp_path_factory.mktemp("plan") / "sample.csv"
    path.write_text("one,a,b,c,label\n" + "\n".join(rows) + "\n")
    return path


def test_a_fleet_that_exists_is_planned_by_rounds_beside_no_privacy_and_the_device(
    tern, sample, tmp_path
):
    plot, command = (
        tmp_path / "plan.png",
        "plan --devices 20 --records 60 --life 2 --runs 3 --workers 1",
    )
    result = tern(*command.split(), "--data", str(sample), "--plot", str(plot), "--json").json
    assert plot.read_bytes().startswith(b"\x89PNG")
    figures = [row["mean"] for row in result["curve"]]
    assert [row["rounds"] for row in result["curve"]][:5] == [1, 2, 3, 4, 8]
    assert result["curve"][-1]["rounds"] >= 60
    assert result["baseline"] < figures[0] + 0.2 < figures[-1] + 0.2
    # 1,200 dealt records, of 360; a record as unit is near no privacy, where the device's is
    # chance.
    assert 300 < result["distinct"] <= 360
    assert figures[-1] > 0.85
    assert result["without_privacy"]["mean"] > 0.95
    assert result["device_unit"]["mean"] < 0.75
    assert all(row["low"] <= row["mean"] - row["standard_error"] for row in result["curve"])


TWO_YEARS = lasting.Lasting(2, "1h", "10")


def told(epsilon, rounds):
    design = mechanisms.design("three-outputs", epsilon_micro=epsilon, use=mechanisms.GRADIENTS)
    return composing.compose({composing.ReportKind.of(design.decode()): rounds}, 1e-6)


def test_rounds_of_years_share_a_budget_by_each_ledger_and_by_exact_composition():
    assert TWO_YEARS.rounds == 17_532
    rho, pure = TWO_YEARS.costs
    budget = sums.rho_of(10, 1e-6)
    assert 17_532 * sums.rho_of_pure(rho) <= budget < 17_532 * (sums.rho_of_pure(rho + 1))
    assert (rho, pure, TWO_YEARS.epsilon) == (13_191, 570, "0.013191")
    result = TWO_YEARS.reckoned(datasets.load("synthetic-logistic"), "logistic")
    exact = round(result["epsilon_exact"] * 1e6)
    assert told(exact, 17_532).exact <= 10 < told(exact + 1, 17_532).exact
    assert [result[f"told_{name}"] for name in ("rho", "pure")] == [
        told(e, 17_532).exact for e in (rho, pure)
    ]
    assert result["told_pure"] < result["told_rho"] < 10
    assert pure < rho < exact


def test_one_round_spends_the_whole_budget():
    once = lasting.Lasting(0.001, "8h", "2.5")
    assert (once.rounds, once.costs[1]) == (1, 2_500_000)
    result = once.reckoned(datasets.load("synthetic-logistic"), "logistic")
    assert result["epsilon_exact"] == 2.5
    assert result["told_exact"] == pytest.approx(2.5, abs=1e-6)


@pytest.mark.slow
def test_fewer_reports_with_the_same_noise_learn_as_much(monkeypatch):
    """300 rounds of epsilon .1, beside 5 reports a device of epsilon .8; a third of the devices
    would learn less.
    """
    data, rounds = datasets.load("synthetic-logistic"), lasting.Lasting(1, "105192", "10")

    def learned(devices, epsilon, reports):
        options = {"clients": devices, "group": 0, "epsilon": epsilon}
        runs = [
            figure_of(simulate(sgd(data, reports, seed, **options), seed)) for seed in range(1, 9)
        ]
        return mean_and_error(runs)

    monkeypatch.setattr(lasting, "MOST_OF_A_DEVICE", 300)
    epsilon, number = rounds.simulated(data, "logistic", 3000)
    assert (epsilon, number) == (rounds.epsilon, 900_000)
    real, error = learned(3000, epsilon, number)
    monkeypatch.setattr(lasting, "MOST_OF_A_DEVICE", 6)
    (fewer, other), (less, _) = (
        learned(devices, *rounds.simulated(data, "logistic", devices)) for devices in (3000, 1000)
    )
    assert float(rounds.simulated(data, "logistic", 3000)[0]) == pytest.approx(8 * float(epsilon))
    noise = np.hypot(error, other)
    assert abs(real - fewer) < 2.5 * noise
    assert real - less > 2.5 * noise


def test_the_command_plans_rounds_of_years(tern, tmp_path):
    plot, command = (
        tmp_path / "plan.png",
        "plan --years 2 --every 1h --life 10 --runs 3 --workers 1",
    )
    words = (*command.split(), "--reports", "30,3000", "--goal", "0.7")
    printed = tern(*words, "--plot", str(plot)).out
    assert plot.read_bytes().startswith(b"\x89PNG")
    guide = (Path(__file__).parents[2] / "docs/guides/planning.md").read_text()
    account = guide[
        guide.index("17,532 rounds") : guide.index("many reports are simulated")
    ].splitlines()
    assert printed.splitlines()[: len(account)] == account
    assert "many reports are simulated by fewer, up to epsilon" in printed
    assert "devices for accuracy 0.7" in printed
    result = tern(*words, "--json").json
    assert (result["rounds"]["rounds"], result["epsilon"], result["rounds"]["delta"]) == (
        17_532,
        0.013191,
        1e-6,
    )
    few, many = result["curve"]
    assert many["mean"] > 0.7 > few["mean"]
    assert few["simulated"]["reports"] <= 3000 < many["simulated"]["reports"] <= 300_000
    assert (
        tern("plan", "--reports", "100", "--runs", "2", "--workers", "1", "--json").json["rounds"]
        is None
    )


def test_the_guide_to_batteries_has_what_reports_cost_and_tell():
    guide = (Path(__file__).parents[2] / "docs/guides/battery.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in guide.splitlines() if line.startswith("| ")]
    data = datasets.load("synthetic-logistic")
    for begins, every in (("hourly", "1h"), ("daily", "1d"), ("60 in all", "525960")):
        ((_, reports, *cells),) = [row for row in rows if row[0] == begins]
        result = lasting.Lasting(1, every, "10").reckoned(data, "logistic")
        assert reports == f"{result['rounds']:,}"
        wanted = [
            result[f"{what}_{name}"] for name in ("pure", "rho") for what in ("epsilon", "told")
        ]
        assert cells == [f"{number:.3g}".removeprefix("0") for number in wanted], begins
