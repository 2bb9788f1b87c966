"""Records that a program hands to a run: frames, arrays and columns, which stay in its memory."""

import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import ternhost
from ternhost import Categorical, Data, FedSGD, Numeric, Protection, Schema, Simulated, UsageError
from ternhost.datasets import in_memory, own, rows

pytestmark = pytest.mark.usefixtures("here")

LEARNER = FedSGD(epsilon=8)
COUNT = 400


@pytest.fixture
def columns():
    """Records of four homes: temperatures in their own unit, and which of them are warm."""
    random = np.random.default_rng(1)
    temperature = random.uniform(-10, 40, COUNT).round(1)
    return {
        "home": [f"home {number}" for number in random.integers(0, 4, COUNT)],
        "temperature": temperature,
        "sunny": random.random(COUNT) < 0.5,
        "state": np.where(temperature > 15, "warm", "cold"),
    }


SCHEMA = Schema(
    (
        Numeric("temperature", Decimal(-10), Decimal(40)),
        Categorical("sunny", ("True", "False")),
        Categorical("state", ("cold", "warm")),
    ),
    label="state",
)


@pytest.fixture
def frame(columns):
    """The same records as a data frame of pandas, which comes with an extra."""
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(columns)


def trained(data, devices=COUNT // 2):
    return ternhost.train(LEARNER, Simulated(devices), data=data)


# Forms of records


def test_a_frame_is_learned_from_as_its_file_is(frame):
    frame.to_csv("homes.csv", index=False)
    SCHEMA.write("homes.toml")
    of_file = trained("homes.csv")
    of_path = trained(Path("homes.csv"))
    of_frame = trained(Data(frame, schema=SCHEMA))
    for name in ("features", "class_names", "accuracy_optimum", "schema"):
        assert of_frame[name] == of_path[name] == of_file[name]


def test_a_schema_may_be_named_by_its_file(columns):
    SCHEMA.write("mine.toml")
    assert Data(columns, schema="mine.toml").options() == Data(columns, schema=SCHEMA).options()


def test_columns_by_name_are_a_table(columns):
    assert trained(Data(columns, schema=SCHEMA)).features == (
        "constant",
        "temperature",
        "sunny=True",
    )


def test_a_pair_of_arrays_is_features_and_labels(columns):
    features = np.stack([columns["temperature"] / 40, columns["sunny"]], axis=1)
    result = trained((features, columns["state"]))
    assert result.features == ("constant", "feature0", "feature1")
    assert result["class_names"] == ["cold", "warm"]


def test_without_a_schema_bools_and_texts_are_categories(columns):
    del columns["home"]
    columns["temperature"] /= 40
    assert trained(columns).features == ("constant", "temperature", "sunny=True")


def test_a_column_of_names_says_how_a_table_is_described(columns):
    columns = {"name": [f"name {number}" for number in range(COUNT)], **columns}
    with pytest.raises(UsageError) as refused:
        trained(columns)
    assert "ternhost.describe" in refused.value.hint


def test_without_a_schema_numbers_must_lie_between_minus_1_and_1(columns):
    with pytest.raises(UsageError, match="row 1, column temperature"):
        trained({**columns, "home": columns["sunny"], "temperature": columns["temperature"] + 60})


def test_the_label_may_be_named(columns):
    result = trained(Data({"state": columns["state"], "sunny": columns["sunny"]}, label="state"))
    assert result.features == ("constant", "sunny=True")


def test_a_missing_value_is_an_empty_cell(columns):
    columns["temperature"] = [None, float("nan"), *columns["temperature"][2:]]
    name = Data(columns, schema=SCHEMA).options()["data"]
    assert len(own.load(name).table) == COUNT - 2


def test_a_value_that_pandas_reads_as_missing_is_so_whatever_the_mark_in_the_schema(columns):
    columns["temperature"] = [None, *columns["temperature"][1:]]
    of_a_file = replace(SCHEMA, missing=("NA",))
    name = Data(columns, schema=of_a_file).options()["data"]
    assert len(own.load(name).table) == COUNT - 1


def test_the_columns_of_devices_and_times_are_options_of_the_run(columns):
    result = trained(Data(columns, by="home", held_out=0.25, schema=SCHEMA), devices=4)
    assert (result["options"]["by"], result["options"]["held_out"]) == ("home", 0.25)


def test_a_column_that_names_devices_is_no_feature(columns):
    columns["temperature"] /= 40
    assert "home" not in " ".join(trained(Data(columns, by="home"), devices=4).features)


def test_a_frame_is_collected_from(columns):
    collected = ternhost.collect(fleet=Simulated(100), data=Data(columns, schema=SCHEMA))
    names = {attribute.name for attribute in collected.attributes}
    assert names == {"temperature", "sunny", "state"}


def test_a_collected_mean_is_in_the_unit_of_its_column(columns):
    collected = ternhost.collect(fleet=Simulated(100), data=Data(columns, schema=SCHEMA))
    means = {attribute.name: attribute.true for attribute in collected.attributes}
    assert means["temperature"] > 1, "it would be below if it were scaled to [-1, 1]"


def test_means_are_collected_by_the_unit_of_the_protection(columns):
    result = ternhost.collect(
        fleet=Simulated(4),
        data=Data(columns, by="home", schema=SCHEMA),
        protection=Protection(unit="record"),
    )
    assert result.learner == "means"


def test_collecting_holds_out_no_records(columns):
    with pytest.raises(UsageError, match="--held-out"):
        ternhost.collect(fleet=Simulated(4), data=Data(columns, held_out=0.5, schema=SCHEMA))


def test_a_frame_is_planned_with(columns):
    data = Data(columns, schema=SCHEMA)
    assert ternhost.plan(LEARNER, [100], data=data, runs=2, workers=1)["d"] == 3


def test_other_processes_of_a_plan_have_the_data(columns):
    data = Data(columns, schema=SCHEMA)
    assert ternhost.plan(LEARNER, [50, 60, 70], data=data, runs=2, workers=2)["d"] == 3


def test_a_plan_refuses_data_that_its_learner_states_otherwise(columns):
    with pytest.raises(UsageError, match="iris"):
        ternhost.plan(FedSGD(data="iris"), [100], data=Data(columns, schema=SCHEMA), runs=2)


def test_data_show_what_they_are_and_not_their_records(columns):
    assert repr(Data(columns, by="home")) == "Data(<4 columns>, by='home')"


# The memory of the process


@pytest.mark.slow
def test_emulated_boards_get_the_records_of_a_program(columns):
    data = Data(columns, by="home", schema=SCHEMA)
    learner = ternhost.FedSum(run_epsilon=4, records=200)
    result = ternhost.train(learner, ternhost.Emulated(2), data=data)
    assert result.reports == 4 * result.rounds  # of four homes on two boards


def test_no_record_is_written_to_disk(columns):
    marked = {**columns, "home": ["a secret name"] * COUNT}
    trained(Data(marked, by="home", schema=SCHEMA), devices=1)
    written = [path.read_bytes() for path in Path().rglob("*") if path.is_file()]
    assert written
    assert not any(b"a secret name" in data for data in written)


def test_the_same_data_have_the_same_name(columns):
    assert Data(columns).options() == Data(dict(columns)).options()


def test_other_data_have_another_name(columns):
    other = {**columns, "sunny": ~columns["sunny"]}
    assert Data(columns).options() != Data(other).options()


def test_the_privacy_statement_of_a_run_needs_its_data_no_more(columns, monkeypatch):
    result = trained(Data(columns, schema=SCHEMA))
    monkeypatch.setattr(in_memory, "_BY_NAME", {})
    statement = ternhost.write_statement(result.name)["md"].read_text()
    assert "a table in memory" in statement


@pytest.fixture
def interrupted(columns):
    """A run with data in memory that was stopped after its first round."""
    learner = FedSGD(epsilon=8, rounds=3, reports=150)
    with ternhost.Run(
        learner, Simulated(COUNT), data=Data(columns, schema=SCHEMA), name="mine"
    ) as run:
        next(iter(run))
    return "mine"


@pytest.fixture
def forgotten(interrupted, monkeypatch):
    """The same run, as another process finds it."""
    monkeypatch.setattr(in_memory, "_BY_NAME", {})
    return interrupted


def test_a_run_goes_on_in_the_process_that_has_its_data(interrupted):
    assert ternhost.resume(interrupted).rounds == 3


def test_a_run_without_its_data_asks_for_them(forgotten):
    with pytest.raises(UsageError) as caught:
        ternhost.resume(forgotten)
    assert "data=" in caught.value.hint


def test_a_run_goes_on_with_data_that_are_handed_over_again(forgotten, columns):
    assert ternhost.resume(forgotten, data=Data(columns, schema=SCHEMA)).rounds == 3


def test_a_run_of_a_data_set_takes_no_other_data(columns):
    learner = FedSGD(epsilon=8, rounds=3, reports=150)
    with ternhost.Run(learner, Simulated(COUNT), data="iris", name="of iris") as run:
        next(iter(run))
    with pytest.raises(UsageError):
        ternhost.resume("of iris", data=columns)


def served(rounds, data=None):
    """The result of a fleet that was served until it has made so many rounds."""
    schedule = ternhost.Schedule(rounds=rounds, every=0)
    return ternhost.serve(
        LEARNER, Simulated(200), data=data, schedule=schedule, store="fleet.sqlite"
    )


@pytest.fixture
def served_and_forgotten(here, columns, monkeypatch):
    """The name of a run that was served for a round, as another process finds it."""
    name = served(1, Data(columns, schema=SCHEMA)).name
    monkeypatch.setattr(in_memory, "_BY_NAME", {})
    return name


def test_a_served_run_goes_on_with_data_that_are_handed_over_again(served_and_forgotten, columns):
    again = served(2, Data(columns, schema=SCHEMA))
    assert (again.name, again.rounds) == (served_and_forgotten, 2)


@pytest.mark.usefixtures("served_and_forgotten")
def test_a_served_run_does_not_go_on_without_its_data():
    with pytest.raises(UsageError):
        served(1)


def test_pandas_is_not_imported_for_columns_by_name():
    program = (
        "import sys, ternhost; from ternhost import *;"
        "train(FedSGD(epsilon=8), Simulated(50), data={'a': [.5, -.5] * 50, 'y': [1, -1] * 50});"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Descriptions


def test_the_proposed_schema_is_that_of_the_command(tern, frame):
    frame.to_csv("homes.csv", index=False)
    tern("data", "describe", "homes.csv")
    assert ternhost.describe(frame) == ternhost.describe("homes.csv") == Schema.read("homes.toml")


# Predictions


@pytest.fixture
def model(columns):
    """A model that was trained on a table with a schema, loaded from the result of its run."""
    result = trained(Data(columns, schema=SCHEMA))
    return ternhost.DeviceModel.of_run(result.name)


def test_a_model_predicts_classes_by_name_from_a_table_in_its_own_units(model, frame):
    is_right = model.predict(frame) == frame["state"]
    assert is_right.mean() > 0.8


def test_a_model_predicts_from_a_file_that_pandas_has_read(model, frame):
    pandas = pytest.importorskip("pandas")
    frame.to_csv("new.csv", index=False)
    assert (model.predict(pandas.read_csv("new.csv")) == model.predict(frame)).all()


@pytest.mark.parametrize("labels", [[2, 1], [1, -1], [True, False], ["b", "a"]])
def test_predicted_classes_have_the_type_of_the_labels(labels):
    records = {"a": [0.9, -0.9] * 100, "label": labels * 100}
    model = trained(records, devices=150).device_model
    assert (model.predict(records) == np.array(labels * 100)).all()


def test_a_linear_model_predicts_in_the_unit_of_the_label(columns):
    schema = Schema(
        (
            Categorical("sunny", ("True", "False")),
            Numeric("temperature", Decimal(-10), Decimal(40)),
        ),
        label="temperature",
    )
    model = trained(Data(columns, schema=schema)).device_model
    (number,) = model.predict_numbers({"sunny": [True]})
    (prediction,) = model.predict({"sunny": [True]})
    assert prediction == pytest.approx(15 + 25 * number / 2**14)


def test_columns_are_found_in_any_order_and_without_the_label(model, columns):
    fewer = {name: columns[name] for name in ("sunny", "temperature")}
    assert (model.predict(fewer) == model.predict(columns)).all()


@pytest.fixture
def features(columns):
    """The features of the records in Q1.14, the constant among them."""
    return own.load(Data(columns, schema=SCHEMA).options()["data"]).features


def test_a_table_and_its_features_are_predicted_alike(model, columns, features):
    assert (model.score(features) == model.score(columns)).all()


def test_features_without_the_constant_are_predicted_alike(model, features):
    assert (model.score(features[:, 1:]) == model.score(features)).all()


def test_features_as_floats_are_predicted_alike(model, features):
    assert (model.score(features / 16384) == model.score(features)).all()


def test_a_column_without_a_value_is_not_unknown(model, columns):
    empty = {**columns, "Unnamed: 4": [None] * COUNT}
    assert (model.predict(empty) == model.predict(columns)).all()


def test_an_array_in_the_units_of_a_schema_is_refused(model):
    with pytest.raises(UsageError, match="units"):
        model.predict(np.array([[30.0, 1.0]]))


def test_a_missing_column_is_named(model, columns):
    del columns["temperature"]
    with pytest.raises(UsageError, match="temperature"):
        model.predict(columns)


def test_an_unknown_column_is_named(model, columns):
    columns["pressure"] = columns["temperature"]
    with pytest.raises(UsageError, match="pressure"):
        model.predict(columns)


def test_a_missing_value_has_no_prediction(model, columns):
    columns["temperature"][3] = float("nan")
    with pytest.raises(UsageError, match="row 4"):
        model.predict(columns)


def test_a_value_that_pandas_reads_as_missing_gets_the_middle_for_a_prediction(model, columns):
    of_a_file = replace(model.schema, missing=("NA",), rows_with_missing="middle")
    low, high = (float(bound) for bound in (SCHEMA.columns[0].low, SCHEMA.columns[0].high))
    columns["temperature"][3] = (low + high) / 2
    with_middle = model.predict(columns)
    columns["temperature"][3] = float("nan")
    assert (replace(model, schema=of_a_file).predict(columns) == with_middle).all()


# Whole numbers: 16,384 is 1 in Q1.14

NAMED = rows.RowForm(3, ("constant", "a", "b"))
UNNAMED = rows.RowForm(3)


@pytest.mark.parametrize("form", [NAMED, UNNAMED])
@pytest.mark.parametrize(
    "flags", [[[1, 0, 1]], np.array([[1, -1, 0]]), np.array([[1, 0, 1]], np.uint8)]
)
def test_whole_numbers_between_minus_1_and_1_are_unclear(form, flags):
    with pytest.raises(UsageError) as caught:
        form.fixed(flags)
    assert "int16" in caught.value.hint
    assert "float" in caught.value.hint


@pytest.mark.parametrize("flags", [[[True, False, True]], [[1.0, 0.0, 1.0]], [[1, False, 1.0]]])
def test_bools_and_floats_are_numbers(flags):
    assert UNNAMED.fixed(flags).tolist() == [[16384, 0, 16384]]


def test_an_array_of_int16_is_in_fixed_point():
    assert UNNAMED.fixed(np.array([[1, 0, -1]], np.int16)).tolist() == [[1, 0, -1]]


def test_whole_numbers_that_can_only_be_in_fixed_point_are():
    assert NAMED.fixed([[16384, 100, -16384]]).tolist() == [[16384, 100, -16384]]


@pytest.mark.parametrize("row", [[16384, 16385, 0], [16384, -16385, 0], [1, 20, 3], [20, 3]])
def test_whole_numbers_that_are_no_records_in_fixed_point_are_refused(row):
    with pytest.raises(UsageError):
        NAMED.fixed([row])


def test_columns_of_flags_are_unclear_without_a_schema():
    with pytest.raises(UsageError):
        NAMED.fixed({"a": [1, 0], "b": [0, 1]})


def test_a_column_of_flags_beside_floats_has_numbers():
    assert NAMED.fixed({"b": [0.5], "a": [1]}).tolist() == [[16384, 16384, 8192]]


def test_a_column_in_fixed_point_beside_floats_is_refused():
    with pytest.raises(UsageError, match="a"):
        NAMED.fixed({"a": [8192], "b": [0.5]})


def test_named_columns_need_a_model_that_knows_its_features():
    with pytest.raises(UsageError, match="names"):
        UNNAMED.fixed({"a": [0.5], "b": [0.5]})
