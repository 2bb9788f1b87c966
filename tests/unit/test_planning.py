"""`tern plan`: the number of devices that a curve suggests, and the command on real simulations."""

import numpy as np
import pytest

from ternhost.errors import UsageError
from ternhost.experiments import existing, planning
from ternhost.learn.fedsum import Options


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


def test_a_fleet_that_exists_is_planned_by_rounds_beside_no_privacy_and_the_device(tern, sample, tmp_path):
    plot, command = tmp_path / "plan.png", "plan --devices 20 --records 60 --life 2 --runs 3 --workers 1"
    result = tern(*command.split(), "--data", str(sample), "--plot", str(plot), "--json").json
    assert plot.read_bytes().startswith(b"\x89PNG")
    figures = [row["mean"] for row in result["curve"]]
    assert [row["rounds"] for row in result["curve"]][:5] == [1, 2, 3, 4, 8]
    assert result["curve"][-1]["rounds"] >= 60
    assert result["baseline"] < figures[0] + 0.2 < figures[-1] + 0.2
    # 1,200 dealt records, of 360; a record as unit is near no privacy, where the device's is chance.
    assert 300 < result["distinct"] <= 360
    assert figures[-1] > 0.85
    assert result["without_privacy"]["mean"] > 0.95
    assert result["device_unit"]["mean"] < 0.75
    assert all(row["low"] <= row["mean"] - row["standard_error"] for row in result["curve"])


def test_one_device_is_planned_and_longer_units_and_smaller_budgets_cost(sample):
    def last(**asked):
        planned = existing.Existing(1, Options(records=200, **asked), str(sample), runs=3, workers=1)
        result = existing.plan(planned)
        lines = existing.words(result)
        assert any("with replacement" in line for line in lines) == (result["distinct"] < 200)
        return result["curve"][-1]["mean"]

    assert last(life="8") > last(life="8", unit="50")
    assert last(life="8") > last(life="0.05")


def test_public_rows_are_no_boards_and_both_ways_are_shown(tern):
    command = (
        "plan --devices 1 --records 100 --dataset flights-planned --life 4 --runs 2 --workers 1 --public 400"
    )
    printed = tern(*command.split()).out
    ways = printed.partition("with public rows (400)")
    assert ways[0].count("\n          60 ") == 1
    assert ways[2].count("\n           4 ") == 1
    planned = existing.Existing(2, Options(dataset="flights-planned", records=200))
    learner = planned.learner(1, "400")
    assert not set(learner.holdings.order) & set(learner.reserved)


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        ("1,0.5\n" * 9, None, "too few records"),
        ("1,2,1\n" * 60, None, "out of range"),
        ("1,nan,1\n" * 60, None, "out of range"),
        ("1,0.5,1\n1,0.5,0\n" * 30, None, "labels of 0 and 1"),
        ("1,0.5,-1\n" * 60, "softmax", "out of range"),
        ("1,a,1\n" * 60, None, "no CSV file of records"),
    ],
)
def test_a_file_that_is_no_sample_is_refused(tmp_path, text, model, message):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        planning.data_of("", None, model, str(path))


def test_a_file_of_ones_own_says_what_its_labels_are(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("1,0.5,0\n1,-0.5,2\n" * 40)
    several = planning.data_of("", None, "softmax", str(path))
    assert (several.task, several.classes, several.labels[1]) == ("multiclass", ("0", "1", "2"), 2)
    path.write_text("one,b,label\n" + "1,0.5,0.25\n1,-0.5,-1\n" * 40)
    numbers = planning.data_of("", None, None, str(path))
    assert (numbers.task, numbers.feature_names, numbers.labels[0]) == ("regression", ("one", "b"), 4096)
