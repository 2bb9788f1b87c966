"""`tern plan`: the number of devices that a curve suggests, and the command on real simulations."""

import pytest

from ternhost.experiments import planning


def curve(*means, half=0.01):
    reports = (1_000, 10_000, 100_000)
    rows = zip(reports, means, strict=True)
    return [{"reports": n, "mean": mean, "low": mean - half, "high": mean + half} for n, mean in rows]


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
    planned = planning.Planned("4", "synthetic-logistic", reports=(300, 30_000, 3000), runs=4, workers=1)
    return planning.plan(planned)


def test_more_devices_give_a_better_model_up_to_the_one_without_privacy(plain):
    means = [row["mean"] for row in plain["curve"]]
    assert [row["reports"] for row in plain["curve"]] == [300, 3000, 30_000]
    assert means == sorted(means)
    assert plain["baseline"] < means[-1] < plain["optimum"]
    assert 300 <= plain["beats_baseline"] <= 30_000
    most_of_the_way = 0.1 * plain["baseline"] + 0.9 * plain["optimum"]
    assert plain["most_of_the_way"]["figure"] == pytest.approx(most_of_the_way)


@pytest.mark.slow
def test_a_smaller_epsilon_needs_more_devices_with_any_number_of_processes(plain):
    less = planning.plan(planning.Planned("1", reports=(300, 3000, 30_000), runs=4, workers=1))
    assert less["curve"][-1]["mean"] < plain["curve"][-1]["mean"]
    beside = planning.plan(planning.Planned("4", reports=(300, 3000, 30_000), runs=4, workers=2))
    assert beside == plain


def test_the_command_answers_a_goal_draws_and_prints_json(tern, tmp_path):
    plot = tmp_path / "plan.png"
    command = "plan --dimension 5 --epsilon 4 --reports 300,3000,30000 --runs 3 --workers 1"
    printed = tern(*command.split(), "--goal", "0.75", "--plot", str(plot)).out
    assert "synthetic records of 5 features (yours may need more devices, or fewer)" in printed
    assert "devices for accuracy 0.75" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "No number of devices" in tern(*command.split(), "--goal", "0.999").out
    result = tern(*command.split(), "--json").json
    assert (result["d"], result["dataset"], result["goal"], len(result["curve"])) == (5, None, None, 3)


def test_a_regression_is_planned_by_its_squared_error(tern):
    command = "plan --dataset diabetes --epsilon 4 --reports 1000,10000 --runs 2 --workers 1"
    printed = tern(*command.split()).out
    assert "linear model of diabetes" in printed
    assert "beats the mean label by more than noise" in printed


def test_an_interval_stays_within_what_a_figure_can_be(tern):
    """Two runs of few devices differ so much that the interval of their mean AUC would leave 0 to 1."""
    command = "plan --dataset flights-planned --epsilon 1 --reports 10,30,100,300 --runs 2 --workers 1 --json"
    curve = tern(*command.split()).json["curve"]
    assert all(point["low"] < point["mean"] < point["high"] for point in curve)
    assert min(point["low"] for point in curve) == 0.0
    assert max(point["high"] for point in curve) == 1.0


def test_several_classes_are_planned_by_softmax_regression():
    planned = {"dataset": "iris", "model": "softmax", "reports": (3000, 30_000)}
    plan = planning.plan(planning.Planned("4", runs=2, workers=1, **planned))
    assert plan["d"] == 5
    assert plan["baseline"] < 0.5  # three classes
    assert plan["curve"][-1]["mean"] > 0.8
