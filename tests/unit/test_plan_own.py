"""`tern plan` with a table of the user's own: which records it uses, and what it says of few ones."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

import ternhost
from ternhost import FedSGD, FedSum, datasets
from ternhost.cli import main
from ternhost.errors import UsageError
from ternhost.learn.models import public
from ternhost.learn.models.projections import Split
from ternhost.planning import records
from ternhost.planning.existing import Existing

FEW_RUNS = "--runs 2 --workers 1"
ROWS = 60


def written(folder, labels, name="my.csv"):
    """A table of a few records with these labels, in turns, and a schema beside it."""
    rng = np.random.default_rng(1)
    temperatures = rng.uniform(0, 40, ROWS)
    lines = ["home,temperature,state"]
    for row, temperature in enumerate(temperatures):
        lines.append(f"h{row % 3},{temperature:.1f},{labels[row % len(labels)]}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def described(table, label, extra=""):
    """The schema of such a table; `label` is the text of the label's table."""
    table.with_suffix(".toml").write_text(
        f'label = "state"\nleave_out = ["home"]\n{extra}\n'
        f"[columns.temperature]\nlow = 0\nhigh = 40\n\n[columns.state]\n{label}\n"
    )
    return str(table)


@pytest.fixture
def two_classes(tmp_path):
    """A table of two classes, by name."""
    return described(written(tmp_path, ["open", "shut"]), 'categories = ["open", "shut"]')


@pytest.fixture
def three_classes(tmp_path):
    """A table of three classes, none of which is named as the positive one."""
    return described(written(tmp_path, ["a", "b", "c"]), 'categories = ["a", "b", "c"]')


@pytest.fixture
def numbers(tmp_path):
    """A table whose label is a number."""
    return described(written(tmp_path, ["1", "2", "7"]), "low = 0\nhigh = 10")


def planned(words):
    """The result of `tern plan` as JSON."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["plan", *words.split(), *FEW_RUNS.split(), "--json"]) == 0
    return json.loads(printed.getvalue())


def test_a_plan_for_new_devices_says_how_to_plan_for_those_of_the_table(two_classes, tern):
    described(Path(two_classes), 'categories = ["open", "shut"]', 'device = "home"')
    said = tern("plan", "--data", two_classes, "--devices", "10", *FEW_RUNS.split()).out
    assert "the 3 devices of the table, add --run-epsilon" in said


def test_a_plan_for_new_devices_takes_a_table(two_classes):
    result = planned(f"--data {two_classes} --devices 10,100")
    assert [row["devices"] for row in result["curve"]] == [10, 100]


def test_a_plan_tells_how_many_different_records_it_used(two_classes):
    result = planned(f"--data {two_classes} --devices 10,20000")
    assert result["distinct"] + result["judged"] == ROWS


def test_fewer_devices_than_records_use_a_record_each(two_classes):
    assert planned(f"--data {two_classes} --devices 10")["distinct"] == 10


def test_the_held_out_share_of_a_plan_is_that_of_the_option(two_classes):
    result = planned(f"--data {two_classes} --devices 10 --held-out 0.5")
    assert result["judged"] == pytest.approx(ROWS / 2, abs=1)


def test_a_plan_from_few_records_says_how_far_its_figures_may_be_off(two_classes):
    result = planned(f"--data {two_classes} --devices 1000")
    low, high = result["optimum_interval"]
    assert low < result["optimum"] <= high
    assert len(records.doubts(result)) == 2


def test_a_plan_from_many_records_has_no_doubts():
    result = planned("--data synthetic-logistic --devices 100")
    assert records.doubts(result) == []


def test_three_classes_are_planned_with_softmax_regression(three_classes):
    assert planned(f"--data {three_classes} --devices 30")["model"] == "softmax"


def test_a_model_of_two_classes_asks_which_of_three_is_positive(three_classes, tern):
    words = f"plan --data {three_classes} --devices 30 --model logistic"
    assert "positive" in tern(*words.split(), code=UsageError.exit_code).err


def test_a_numeric_label_is_planned_with_linear_regression(numbers):
    result = planned(f"--data {numbers} --devices 30")
    assert (result["model"], result["measure"]) == ("linear", "squared_error")


@pytest.mark.parametrize("model", ["logistic", "softmax"])
def test_a_model_of_classes_refuses_a_numeric_label(numbers, model, tern):
    words = f"plan --data {numbers} --devices 30 --model {model}"
    assert "--model" in tern(*words.split(), code=UsageError.exit_code).err


@pytest.mark.parametrize("kind", ["--devices 30", "--devices 5 --records 6"])
def test_a_single_class_is_nothing_to_learn(tmp_path, kind, tern):
    table = described(written(tmp_path, ["open"]), 'categories = ["open", "shut"]')
    refused = tern("plan", "--data", table, *kind.split(), code=UsageError.exit_code)
    assert "open" in refused.err


def test_a_fleet_that_exists_needs_a_number_of_devices_or_their_column(two_classes, tern):
    words = f"plan --data {two_classes} --run-epsilon 2"
    refused = tern(*words.split(), code=UsageError.exit_code)
    assert "--devices" in refused.err
    assert "--by" in refused.err


FLEET = "--by home --run-epsilon 8"


def test_a_fleet_of_the_table_has_its_devices(two_classes):
    result = planned(f"--data {two_classes} {FLEET}")
    assert result["devices"] == 3


def test_a_fleet_of_the_table_holds_each_record_once(two_classes):
    result = planned(f"--data {two_classes} {FLEET}")
    assert result["held"] == result["distinct"] == result["available"]


def test_the_unit_device_of_a_fleet_of_the_table_is_that_of_its_devices(two_classes):
    """Each of the three homes answers once, about all that it holds."""
    fleet = Existing(None, FedSum(data=two_classes, by="home", run_epsilon=8))
    data, model = fleet.loaded
    one_report = Split(reports=1, epsilon=8_000_000, variance=1.0)
    learner = fleet.whole_devices(one_report).learner(data, model, seed=1)
    assert learner.holdings.names == ("h0", "h1", "h2")
    assert (learner.reports, learner.once) == (3, True)


def test_the_schema_names_the_devices_of_a_fleet(tmp_path):
    label = 'categories = ["open", "shut"]'
    table = described(written(tmp_path, ["open", "shut"]), label, extra='device = "home"')
    assert planned(f"--data {table} --run-epsilon 8")["devices"] == 3


def test_another_number_of_devices_deals_the_records_anew(tmp_path):
    label = 'categories = ["open", "shut"]'
    table = described(written(tmp_path, ["open", "shut"]), label, extra='device = "home"')
    result = planned(f"--data {table} --run-epsilon 8 --devices 5 --records 20")
    assert (result["devices"], result["held"]) == (5, 100)


def test_a_fleet_of_a_column_cannot_have_another_number_of_devices(two_classes, tern):
    words = f"plan --data {two_classes} {FLEET} --devices 5"
    assert "--devices" in tern(*words.split(), code=UsageError.exit_code).err


def test_a_named_column_of_devices_is_enough_for_a_plan_of_a_fleet(two_classes):
    assert planned(f"--data {two_classes} --by home")["devices"] == 3


@pytest.mark.parametrize("option", ["--by", "--time"])
def test_new_devices_are_dealt_records_so_that_no_column_tells_whose(two_classes, option, tern):
    words = f"plan --data {two_classes} {option} home --devices 30 --epsilon 2"
    refused = tern(*words.split(), code=UsageError.exit_code)
    assert option in refused.err


def test_a_plan_in_python_has_the_devices_of_the_table(two_classes):
    result = ternhost.plan(FedSum(data=two_classes, by="home", run_epsilon=4), runs=2, workers=1)
    assert result["devices"] == 3


def test_a_changed_schema_is_read_again(two_classes, tmp_path):
    before, _ = records.load(two_classes)
    schema = tmp_path / "my.toml"
    schema.write_text(schema.read_text().replace("high = 40", "high = 80"))
    after, _ = records.load(two_classes)
    assert (before.features[:, 1] > after.features[:, 1]).all()


def test_a_schema_alone_is_planned_with_synthetic_records(numbers):
    schema = numbers.replace(".csv", ".toml")
    result = planned(f"--data {schema} --devices 30")
    assert (result["d"], result["model"]) == (2, "linear")


def test_a_plan_in_python_takes_the_records_of_its_learner(two_classes):
    learner = FedSGD(data=two_classes, held_out=0.5)
    result = ternhost.plan(learner, [10, 30], runs=2, workers=1)
    assert result["judged"] == pytest.approx(ROWS / 2, abs=1)


@pytest.mark.parametrize("rows", [2, 3, 5, 11])
@pytest.mark.parametrize("kind", ["--devices 1,50", "--devices 4 --records 3 --run-epsilon 8"])
def test_a_table_of_few_rows_is_planned_or_refused(tmp_path, rows, kind):
    """Neither ends in an exception of another kind, whatever the labels are."""
    labels = ["open", "shut", "shut"]
    table = described(written(tmp_path, labels), 'categories = ["open", "shut"]')
    text = (tmp_path / "my.csv").read_text()
    (tmp_path / "my.csv").write_text("\n".join(text.splitlines()[: rows + 1]))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main(["plan", "--data", table, *kind.split(), *FEW_RUNS.split()])
    assert code in (0, UsageError.exit_code)


def test_a_plan_in_python_needs_the_devices_of_a_fleet_or_their_column(two_classes):
    with pytest.raises(UsageError, match="number of its devices"):
        ternhost.plan(FedSum(data=two_classes, records=5, run_epsilon=4), runs=2, workers=1)


def test_public_rows_with_the_columns_of_a_schema_are_scaled_by_it(two_classes, tmp_path):
    """The rows have the columns of the table, in another order, and no label."""
    (tmp_path / "rows.csv").write_text("noise,temperature\n" + "x,10\nx,20\nx,30\n" * 10)
    schema = datasets.schema_of(two_classes)
    rows = public.read(tmp_path / "rows.csv", 2, schema=schema)
    assert rows[:3].tolist() == [[1, -0.5], [1, 0], [1, 0.5]]


def test_a_plan_takes_public_rows_in_the_units_of_the_table(two_classes, tmp_path):
    temperatures = np.random.default_rng(2).uniform(0, 40, 300)
    lines = ["temperature", *(f"{value:.1f}" for value in temperatures)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    words = f"--data {two_classes} --devices 4 --records 20 --run-epsilon 8"
    result = planned(f"{words} --public {tmp_path / 'rows.csv'}")
    assert result["units"][0]["curve_without_rows"]


def test_public_rows_beyond_the_bounds_of_scaled_columns_are_refused(tmp_path):
    """Without a schema, the columns of the table are scaled already, and so must be the rows."""
    (tmp_path / "my.csv").write_text("a,b,y\n" + "0.5,-0.5,1\n-0.5,0.25,-1\n" * 30)
    (tmp_path / "rows.csv").write_text("a,b\n" + "0.5,7\n" * 30)
    schema = datasets.schema_of(str(tmp_path / "my.csv"))
    with pytest.raises(UsageError, match="column b"):
        public.read(tmp_path / "rows.csv", 3, schema=schema)


def test_public_rows_without_names_are_taken_in_their_order(two_classes, tmp_path):
    (tmp_path / "rows.csv").write_text("0.5\n-0.5\n" * 30)
    rows = public.read(tmp_path / "rows.csv", 2, schema=datasets.schema_of(two_classes))
    assert rows[:2].tolist() == [[1, 0.5], [1, -0.5]]
