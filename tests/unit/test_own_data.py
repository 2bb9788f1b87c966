"""Runs on tables of the user's own: what they warn of, and what they call classes and labels."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ternhost import datasets
from ternhost.datasets.schemas import findings
from ternhost.errors import USAGE, UsageError
from ternhost.learn.base import Population
from ternhost.learn.one_answer.direct import Direct
from ternhost.options import names_of
from ternhost.run.begin import make_learner
from ternhost.run.device_model import DeviceModel
from ternhost.run.options import RunOptions
from ternhost.statement import gather, sentences
from ternhost.statement.facts import Facts, Kind
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here", "coarse")
TABLE, SCHEMA_FILE = Path("my.csv"), Path("my.toml")
CLASSES = ("run", "sit", "walk")
SCHEMA = """label = "{label}"

[columns.a]
low = -4
high = 4

[columns.t]
low = -5
high = 10
unit = "°C"

[columns.y]
categories = ["run", "sit", "walk"]
"""


def simulated(clients, name="mine"):
    """The options of a run of this name on a simulated fleet."""
    return ("--fleet", f"simulated:{clients}", "--no-report", "--quiet", "--name", name)


SIMULATED = simulated(200)


def write_table(names=CLASSES, scale=1.0, records=300):
    """Write my.csv: two features that tell the classes apart, with these names."""
    rng = np.random.default_rng(1)
    lines = ["a,t,y"]
    for number in range(records):
        code = number % len(names)
        a, t = scale * (code - 1 + rng.normal()), scale * (code + rng.normal())
        lines.append(f"{a:.4f},{t:.4f},{names[code]}")
    TABLE.write_text("\n".join(lines) + "\n")


def write_schema(text="", label="y"):
    """Write my.toml, with more lines before its columns."""
    SCHEMA_FILE.write_text(text + SCHEMA.format(label=label))


def change_schema(part, other):
    """Replace a part of my.toml."""
    SCHEMA_FILE.write_text(SCHEMA_FILE.read_text().replace(part, other))


@pytest.fixture
def table(here):
    """A table of three classes, with its schema."""
    write_table()
    write_schema()


def result_of(run="mine"):
    return json.loads(Path(f"runs/{run}/result.json").read_text())


# Warnings


@pytest.mark.parametrize(
    "words",
    [
        ("train", *SIMULATED),
        ("infer", *simulated(100)),
        ("plan", "--devices", "50", "--runs", "2", "--workers", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_run_on_features_of_few_steps_warns_in_at_most_three_lines(words, here, tern):
    write_table(names=(-1, 1), scale=1e-4)
    warned = tern(words[0], "--data", "my.csv", *words[1:]).err
    assert "column a" in warned
    assert warned.count("\n") <= 4  # with the line that names the command
    assert "tern data describe my.csv" in warned


def test_a_run_names_the_line_of_the_bounds(table, tern):
    change_schema("low = -4", "low = -4000")
    change_schema("high = 4", "high = 4000")
    assert "my.toml, line 4: a uses " in tern("train", "--data", "my.csv", *SIMULATED).err


@pytest.mark.parametrize(
    ("label", "schema", "features"),
    [
        ("label", False, ("x0", "x1")),  # the records of a board
        ("y", False, ("constant", "x0", "x1")),
        ("label", True, ("constant", "x0", "x1")),
    ],
)
def test_only_the_records_of_a_board_get_no_constant(here, tern, label, schema, features):
    rows = np.random.default_rng(1).uniform(-1, 1, (60, 2)).round(3).tolist()
    lines = [f"x0,x1,{label}", *(f"{a},{b},{'1' if a > b else '-1'}" for a, b in rows)]
    TABLE.write_text("\n".join(lines) + "\n")
    if schema:
        tern("data", "describe", str(TABLE))
    assert datasets.load(str(TABLE)).feature_names == features
    tern("train", "--data", str(TABLE), *SIMULATED)
    table = {"x0": [0.5, -0.5], "x1": [0.25, 0.75]}
    assert len(DeviceModel.of_run("mine").predict(table)) == 2


def test_the_name_of_a_data_set_means_that_one_though_a_file_has_its_name(here, tern):
    Path("iris").write_text("a,y\nx,1\n")
    tern("train", "--data", "iris", *SIMULATED)


def test_a_text_in_a_table_without_a_schema_names_the_command_that_describes_it(here):
    TABLE.write_text("home,a,y\nu,0.5,1\nv,0.25,-1\n")
    with pytest.raises(UsageError) as refusal:
        datasets.load(str(TABLE))
    assert "tern data describe my.csv" in refusal.value.hint


def test_a_run_on_good_bounds_warns_of_nothing(table, tern):
    assert tern("train", "--data", "my.csv", *SIMULATED).err == ""


def test_findings_are_kept_in_the_result(here, tern):
    write_table(names=(-1, 1), scale=1e-4)
    tern("train", "--data", "my.csv", *SIMULATED)
    kinds = [finding["kind"] for finding in result_of()["data_findings"]]
    assert kinds == ["few steps", "few steps"]


def test_a_plan_has_the_findings_in_its_result(here, tern):
    write_table(names=(-1, 1), scale=1e-4)
    words = ("--devices", "50", "--runs", "2", "--workers", "1", "--json")
    planned = tern("plan", "--data", "my.csv", *words).json
    assert len(planned["data_findings"]) == 2


def test_a_run_on_rows_with_missing_values_says_how_many_it_leaves_out(table, tern):
    TABLE.write_text(TABLE.read_text() + "1,,sit\n")
    assert "1 row of 301" in tern("train", "--data", "my.csv", *SIMULATED).err


def test_a_long_table_is_judged_by_some_of_its_rows(table, monkeypatch):
    monkeypatch.setattr(findings, "_MOST_ROWS", 50)
    assert findings.of_run("my.csv", datasets.EVERYTHING) == []


@pytest.mark.parametrize("computed", [True, False])
def test_the_privacy_statement_says_whether_bounds_are_not_private(computed, table, tern):
    if computed:
        change_schema("high = 4", "high = 4\ncomputed = true")
    tern("train", "--data", "my.csv", *SIMULATED)
    facts = gather.of_run(gather.run_directory.find("mine"))
    assert facts.has_computed_bounds == computed


def test_the_statement_of_a_plan_says_that_bounds_are_not_private(table, tern):
    change_schema("high = 4", "high = 4\ncomputed = true")
    words = ("--plan", "train", "--data", "my.csv", "--fleet", "simulated:200")
    tern("privacy", "--output", "plan", *words)
    (written,) = Path("plan").glob("*.html")
    assert "computed from the records" in " ".join(written.read_text().split())


@pytest.mark.parametrize("computed", [True, False])
def test_computed_bounds_are_among_what_is_not_protected(computed):
    facts = Facts(Kind.RUN, "mine", 0.0, 0, 1e-6, has_computed_bounds=computed)
    (section,) = [each for each in sentences.sections(facts) if "not protected" in each.title]
    texts = [part.text for part in section.parts]
    assert any("computed from the records" in text for text in texts) == computed


# Devices with different numbers of records


@pytest.fixture
def homes(here):
    """A table of homes with many and with few records in turn."""
    rng = np.random.default_rng(1)
    lines = ["home,a,y"]
    for home in range(8):
        for _ in range(4 if home % 2 else 100):
            lines.append(f"h{home},{rng.uniform(-1, 1):.4f},{rng.choice(['on', 'off'])}")
    TABLE.write_text("\n".join(lines) + "\n")
    bounds = "[columns.a]\nlow = -1\nhigh = 1\n"
    SCHEMA_FILE.write_text(f'label = "y"\n\n{bounds}\n[columns.y]\ncategories = ["off", "on"]\n')
    return ("train", "--data", "my.csv", "--by", "home", "--epsilon", "4", *simulated(8))


def asked_of_run(run="mine"):
    """The settings that the store of a run keeps."""
    files = gather.run_directory.find(run)
    with Store(files.store) as store:
        return store.run(files.name).asked


@pytest.mark.parametrize("classes", [(), ("--ask-by-records",)])
def test_a_resumed_run_asks_devices_by_their_records_as_before(classes, homes, tern):
    tern(*homes, *classes)
    resumed = make_learner(RunOptions.stored(asked_of_run()), Population(clients=8))
    records = {int(number) for number in resumed._records_of(np.arange(8))}
    assert (len(records) > 1) == bool(classes)


def test_the_option_that_sets_how_often_a_device_reports_is_one_of_the_learner(homes, tern):
    words = [word for word in homes if word != "--quiet"]
    printed = tern(*words, "--reports", "16")  # two of each device
    (option,) = re.findall(r"--(\S+) sets how many", printed.err)
    assert option in names_of(Direct.Options)


@pytest.mark.parametrize("classes", [(), ("--ask-by-records",)])
def test_the_privacy_statement_says_whether_questions_show_numbers_of_records(classes, homes, tern):
    tern(*homes, *classes)
    facts = gather.of_run(gather.run_directory.find("mine"))
    assert facts.shows_record_counts == bool(classes)


@pytest.mark.parametrize("shown", [True, False])
def test_numbers_of_records_that_questions_show_are_among_what_is_not_protected(shown):
    facts = Facts(Kind.RUN, "mine", 0.0, 0, 1e-6, shows_record_counts=shown)
    (section,) = [each for each in sentences.sections(facts) if "not protected" in each.title]
    texts = [part.text for part in section.parts]
    assert any("About how many records" in text for text in texts) == shown


# Classes by their names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("1", "2", "3"), ["1", "2", "3"]),
        (("0", "1", "2"), ["0", "1", "2"]),
        (("walk", "sit", "²"), ["sit", "walk", "²"]),
    ],
)
def test_softmax_names_the_classes_of_labels_without_a_schema(names, expected, here, tern):
    write_table(names, scale=0.1)
    result = tern("train", "--data", "my.csv", "--json", *SIMULATED).json
    assert result["class_names"] == result["labels"] == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("-1", "1"), ["-1", "1"]),
        (("0", "1"), ["0", "1"]),
        (("1", "2"), ["1", "2"]),
        (("True", "False"), ["False", "True"]),
        (("no", "yes"), ["no", "yes"]),
    ],
)
def test_two_classes_have_names_without_a_schema(names, expected, here, tern):
    write_table(names, scale=0.1)
    result = tern("train", "--data", "my.csv", "--json", *SIMULATED).json
    assert result["class_names"] == expected


def test_the_positive_class_of_the_schema_is_plus_1(table, tern):
    write_schema('positive = "sit"\n')
    printed = tern("train", "--data", "my.csv", *SIMULATED).out
    assert "label +1 is sit, and -1 is the rest" in printed


def test_a_class_that_never_occurs_is_mentioned(table, tern):
    change_schema('"walk"]', '"walk", "swim"]')
    printed = tern("train", "--data", "my.csv", *SIMULATED)
    assert (printed.err + printed.out).count("swim") == 1


def test_a_class_that_no_record_has_which_judges_the_model_is_mentioned(table, tern):
    """Its only record is the first one, which the fixed split does not hold out."""
    TABLE.write_text(TABLE.read_text().replace("a,t,y\n", "a,t,y\n1,1,swim\n"))
    change_schema('"walk"]', '"walk", "swim"]')
    printed = tern("train", "--data", "my.csv", *SIMULATED)
    assert "that judges the model is of the class swim" in printed.out


def test_the_numbers_of_records_of_each_class_are_in_the_result(table, tern):
    tern("train", "--data", "my.csv", *SIMULATED)
    counts = result_of()["class_records"]
    assert sum(counts["learning"]) + sum(counts["judging"]) == 300


@pytest.mark.parametrize("answer", ["vector", "label"])
def test_shares_and_clusters_have_the_names_of_classes(answer, table, tern):
    words = ("--answer", answer, "--epsilon", "8", *simulated(100))
    tern("infer", "--data", "my.csv", *words)
    result = result_of()
    assert set(result["shares"]) == set(CLASSES)
    assert set(result["clusters"]) <= set(CLASSES)


def test_inference_by_a_run_has_the_names_of_its_classes(table, tern):
    tern("train", "--data", "my.csv", *SIMULATED)
    words = ("--classifier", "runs/mine", "--epsilon", "8", *simulated(20, "second"))
    tern("infer", "--data", "my.csv", *words)
    assert set(result_of("second")["shares"]) == set(CLASSES)


def test_a_model_predicts_classes_by_their_names(table, tern):
    tern("train", "--data", "my.csv", *SIMULATED)
    model = DeviceModel.of_run("mine")
    rows = np.array([[1.0, -0.9, -0.9], [1.0, 0.9, 0.9]])
    expected = [CLASSES[code] for code in model.predict_numbers(rows)]
    assert model.predict(rows).tolist() == expected


def test_a_model_of_two_classes_predicts_them_by_their_names(table, tern):
    write_schema('positive = "sit"\n')
    tern("train", "--data", "my.csv", *SIMULATED)
    model = DeviceModel.of_run("mine")
    rows = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    expected = ["sit" if label > 0 else "the rest" for label in model.predict_numbers(rows)]
    assert model.predict(rows).tolist() == expected


def test_the_model_of_a_run_is_shown_with_the_names_of_its_classes(table, tern):
    write_schema('positive = "sit"\n')
    tern("train", "--data", "my.csv", *SIMULATED)
    assert "label +1 is sit" in tern("runs", "--model-of", "mine").out


def test_the_report_names_the_classes(table, tern):
    write_schema('positive = "sit"\n')
    tern("train", "--data", "my.csv", *(word for word in SIMULATED if word != "--no-report"))
    assert "sit if it is positive, else the rest" in Path("runs/mine/report.html").read_text()


# Numbers in their own unit


@pytest.mark.parametrize(
    "words", [("--epsilon", "8"), ("--run-epsilon", "8", "--unit", "record", "--records", "1")]
)
def test_means_are_said_in_the_unit_of_their_column(words, table, tern):
    """Half of the 15 degrees between the bounds are a 1, and the middle is 2.5 degrees."""
    printed = tern("collect", "--data", "my.csv", *words, *SIMULATED).out
    (entry,) = [each for each in result_of()["attributes"] if each["name"] == "t"]
    assert f"t: {2.5 + 7.5 * entry['mean']:.4g} °C" in printed


def test_means_of_a_table_without_a_schema_have_no_unit(here, tern):
    write_table(names=(-1, 1), scale=0.1)
    tern("collect", "--data", "my.csv", "--epsilon", "8", *SIMULATED)
    assert not any("unit" in entry for entry in result_of()["attributes"])


def test_the_error_of_a_regression_is_said_in_the_unit_of_its_label(table, tern):
    write_schema(label="t")
    printed = tern("train", "--data", "my.csv", *SIMULATED).out
    error = 7.5 * result_of()["squared_error"] ** 0.5  # half of the 15 degrees between the bounds
    assert f"t in °C is {error:.3g} " in printed


def test_a_schema_is_no_table(table):
    with pytest.raises(UsageError, match="schema"):
        datasets.load(str(SCHEMA_FILE))


def test_a_poor_run_that_protects_records_is_not_told_to_protect_them(table, tern):
    words = ("--unit", "record", "--records", "100", "--run-epsilon", "0.05", "--no-report")
    said = tern("train", "--data", str(TABLE), *words, "--fleet", "simulated:2").out
    assert "chance" in said
    assert "--unit record" not in said


@pytest.mark.parametrize("name", ["iris", "iris:my.csv", "flights-table"])
def test_the_name_of_a_data_set_means_that_one_also_if_a_file_has_it(name):
    Path(name).write_text("1,0.5,1\n")
    assert not datasets.is_own(name)


@pytest.mark.parametrize("option", ["--by", "--time"])
def test_a_column_is_refused_of_a_data_set_that_is_collected_from(option, tern):
    words = ["collect", "--data", "flights-table", option, "home", "--fleet", "simulated:9"]
    assert option in tern(*words, code=USAGE).err
