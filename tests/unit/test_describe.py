"""`tern data describe`: the schema that it proposes, and its report on what the bounds do."""

import json
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternhost.cli import main
from ternhost.datasets import own
from ternhost.datasets.schemas import describe, findings
from ternhost.datasets.schemas.schema import Schema
from ternhost.datasets.selection import EVERYTHING
from ternhost.datasets.tables import reading
from ternhost.errors import OK, USAGE, UsageError

RNG = np.random.default_rng(1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table_of(folder, columns):
    """A table of these columns, by name, in a file my.csv."""
    rows = [",".join(columns)]
    rows += [",".join(map(str, cells)) for cells in zip(*columns.values(), strict=True)]
    path = folder / "my.csv"
    path.write_text("\n".join(rows) + "\n")
    return reading.read(path)


def many(values):
    """300 values, chosen at random."""
    return RNG.choice(list(values), 300).tolist()


def amounts(low=0.0, high=10.0):
    return RNG.uniform(low, high, 300).round(3).tolist()


def proposed(folder, chosen="", **columns):
    return describe.propose(table_of(folder, columns), chosen).schema


def found(folder, text, **columns):
    """The findings of a table with a schema of this text, by their kinds."""
    (folder / "my.toml").write_text(text)
    table = table_of(folder, columns)
    records = own.of_table(table, Schema.read(folder / "my.toml"), EVERYTHING)
    uses = findings.uses_of(table, records.schema)
    return {each.kind: each for each in findings.findings_of(records, uses)}


# The proposal


def test_bounds_are_round_numbers_beyond_the_values(folder):
    schema = proposed(folder, a=[-3.7, *amounts(), 38.2], y=[0, *many([0, 1]), 1])
    assert (schema.columns[0].low, schema.columns[0].high) == (-5, 40)


@pytest.mark.parametrize("factor", [1e-4, 1e-3, 1, 1e3, 1e6])
def test_proposed_bounds_hold_all_values(folder, factor):
    values = (RNG.normal(3, 1, 300) * factor).tolist()
    column = proposed(folder, a=values, y=many([0, 1])).columns[0]
    assert column.low <= Decimal(min(values)) < Decimal(max(values)) <= column.high


def test_proposed_bounds_and_categories_are_marked_as_computed(folder):
    schema = proposed(folder, a=amounts(), c=many("xyz"), y=many([0, 1]))
    assert all(column.computed for column in schema.columns)


def test_texts_become_categories(folder):
    assert proposed(folder, a=many("xyz"), y=many([0, 1])).columns[0].categories == ("x", "y", "z")


@pytest.mark.parametrize("name", ["label", "Class", "target", "y"])
def test_a_column_with_the_name_of_a_label_is_the_label(folder, name):
    assert proposed(folder, **{"a": amounts(), name: many([0, 1]), "b": amounts()}).label == name


def test_the_last_column_is_the_label_if_no_name_tells(folder):
    assert proposed(folder, a=amounts(), b=amounts(), c=many([0, 1])).label == "c"


def test_the_user_names_another_label(folder):
    assert proposed(folder, "a", a=amounts(), y=many([0, 1])).label == "a"


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([1, 2, 3], ("1", "2", "3")),
        ([-1, 1], ("-1", "1")),
        (["True", "False"], ("False", "True")),
        (["²", "walk"], ("walk", "²")),
        (["+", "-"], ("-", "+")),
        (["ja", "nein"], ("nein", "ja")),
        (["007", "010"], ("007", "010")),
        (["01", "1", "2"], ("1", "2")),
        (["1_0", "10", "x"], ("10", "1_0", "x")),
    ],
)
def test_labels_of_few_values_are_classes(folder, values, classes):
    assert proposed(folder, a=amounts(), y=many(values)).classes == classes


def test_a_label_of_many_numbers_is_a_regression(folder):
    assert proposed(folder, a=amounts(), y=amounts()).task == "regression"


@pytest.mark.parametrize(
    "values",
    [["3"] * 300, ["1.000"] * 300, [f"text {i}" for i in range(300)], [""] * 300],
    ids=["one value", "the constant", "names", "nothing"],
)
def test_columns_that_tell_nothing_are_left_out(folder, values):
    assert proposed(folder, a=amounts(), b=values, y=many([0, 1])).leave_out == ("b",)


@pytest.mark.parametrize("name", ["id", "Index", "row_number", "record id"])
def test_a_number_of_the_record_is_left_out(folder, name):
    schema = proposed(folder, **{name: range(300), "a": amounts(), "y": many([0, 1])})
    assert schema.leave_out == (name,)


def test_the_device_column_is_a_comment_that_the_user_can_switch_on(folder):
    table = table_of(folder, {"home": many("abc"), "a": amounts(), "y": many([0, 1])})
    text = describe.propose(table).text()
    (folder / "on.toml").write_text(text.replace("# device =", "device ="))
    assert Schema.read(folder / "on.toml").device == "home"


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("t", "17"),
        ("when", "2026-01-01 12:00"),
        ("when", "2026-01-01"),
        ("when", "18:00:00"),
        ("when", "31 Jan 2026"),
    ],
)
def test_the_time_column_is_a_comment_that_the_user_can_switch_on(folder, name, first):
    table = table_of(folder, {name: [first] * 300, "a": amounts(), "y": amounts()})
    text = describe.propose(table).text()
    (folder / "on.toml").write_text(text.replace("# time =", "time ="))
    assert Schema.read(folder / "on.toml").time == name


def test_versions_are_no_times(folder):
    schema = proposed(folder, v=many(["1.2.0", "1.2.1", "10.0.3"]), a=amounts(), y=many([0, 1]))
    assert "v=1.2.0" in schema.feature_names


def test_numbers_that_go_up_and_down_are_no_time_whatever_their_name(folder):
    assert "T" in proposed(folder, T=amounts(), y=many([0, 1])).feature_names


@pytest.mark.parametrize("mark", ["?", "NA", "nan", "-", "n.a.", "#N/A"])
def test_marks_of_missing_values_are_found(folder, mark):
    schema = proposed(folder, a=[mark, *amounts()], y=[0, *many([0, 1])])
    assert mark in schema.missing


def test_a_table_in_which_nothing_is_missing_is_asked_nothing_about_that(folder):
    table = table_of(folder, {"a": amounts(), "y": many([0, 1])})
    assert "missing" not in describe.propose(table).text()


def test_a_number_that_stands_for_missing_ones_is_found(folder):
    schema = proposed(folder, a=[-200] * 9 + amounts(), y=[0] * 9 + many([0, 1]))
    assert (schema.missing, schema.columns[0].low) == (("", "-200"), 0)


def test_a_missing_number_is_found_where_another_column_is_wide(folder):
    """-200 is far from the values of `a`, and nearer to those of `b` than these are to each other."""
    columns = {"a": [-200] * 9 + amounts(), "b": [-200] * 9 + amounts(700, 2000)}
    assert proposed(folder, **columns, y=[0] * 9 + many([0, 1])).missing == ("", "-200")


def test_a_rare_low_number_is_no_missing_one(folder):
    assert proposed(folder, a=[-200, *amounts()], y=[0, *many([0, 1])]).missing == ("",)


def test_a_number_that_is_usual_in_another_column_is_no_missing_one(folder):
    columns = {"a": [-200] * 9 + amounts(), "b": [-200] + [5] * 8 + amounts(-300, 300)}
    assert proposed(folder, **columns, y=[0] * 9 + many([0, 1])).missing == ("",)


def test_a_proposal_of_200_columns_leaves_out_those_that_no_record_has_room_for(folder):
    columns = {f"a{i}": [0, 1, 2] for i in range(200)}
    assert len(proposed(folder, **columns, y=[0, 1, 0]).features) == 127


CELLS = ["", "?", "-200", "1", "1.0", "0", "2.5", "1e308", "-1e308", "1e-320", "²", "nan", "walk"]
CELLS += ["True", "9" * 5000, "2026-01-01", "sit", "x" * 300, '"a', "=", "[b]", "\x7f", "12:30"]


@given(rows=st.lists(st.lists(st.sampled_from(CELLS), min_size=4, max_size=4), min_size=1))
def test_a_proposal_is_for_its_table_whatever_the_cells(rows, tmp_path_factory):
    """It is written, read again, and applied to the table, or something is refused."""
    columns = tuple(map(list, zip(*rows, strict=True)))
    table = reading.RawTable("my.csv", ("a", 'b "', "c\n", "y"), columns, range(1, len(rows) + 1))
    path = tmp_path_factory.getbasetemp() / "any.toml"
    with suppress(UsageError):
        proposal = describe.propose(table)
        path.write_text(proposal.text())
        schema = Schema.read(path)
        assert schema == proposal.schema
        findings.findings_of(
            own.of_table(table, schema, EVERYTHING), findings.uses_of(table, schema)
        )


def test_a_number_is_a_missing_one_though_a_column_has_little_else(folder):
    columns = {"a": [-200] * 9 + amounts(), "b": [-200] * 309, "c": [-200] * 150 + [150] * 159}
    assert proposed(folder, **columns, y=[0] * 9 + many([0, 1])).missing == ("", "-200")


def test_a_column_that_is_mostly_missing_is_left_out(folder):
    columns = {"a": amounts(), "b": [""] * 200 + amounts()[:100], "y": many([0, 1])}
    assert proposed(folder, **columns).leave_out == ("b",)


def test_a_table_without_a_complete_row_takes_the_middle(folder):
    first, second = amounts()[:150], amounts()[:150]
    columns = {"a": first + [""] * 150, "b": [""] * 150 + second, "y": many([0, 1])}
    assert proposed(folder, **columns).rows_with_missing == "middle"


def test_the_index_of_a_data_frame_is_left_out(folder):
    schema = proposed(folder, **{"": range(300), "a": amounts(), "y": many([0, 1])})
    assert schema.leave_out == ("x0",)


def test_the_cell_that_makes_numbers_a_text_is_named_with_its_line(folder):
    table = table_of(
        folder, {"a": [*amounts(), "Total"], "b": [0, *amounts()], "y": [*many("ab"), ""]}
    )
    assert "line 302, column a" in describe.propose(table).problems["a"]


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        ([many("ab"), amounts(), amounts()], "x0"),
        ([many([1, 2, 3]), amounts(), amounts()], "x0"),
        ([amounts(), many("MB"), amounts(), amounts()], "x1"),
        ([many(range(33, 41)), many("ab"), amounts()], "x1"),
        ([many("ab"), amounts(), many([1, 2, 3])], "x2"),
        ([amounts(), amounts(), amounts()], "x2"),
    ],
)
def test_the_label_of_a_table_without_names_is_where_its_classes_are(folder, columns, label):
    path = folder / "my.data"
    path.write_text("\n".join(",".join(map(str, row)) for row in zip(*columns, strict=True)))
    assert describe.propose(reading.read(path)).schema.label == label


def test_the_proposal_says_what_is_missing_and_what_becomes_of_it(folder):
    table = table_of(folder, {"a": ["", *amounts()], "y": [0, *many([0, 1])]})
    text = describe.propose(table).text()
    (folder / "my.toml").write_text(text)
    kinds = found(folder, text, a=["", *amounts()], y=[0, *many([0, 1])])
    line = text.split("\n").index('rows_with_missing = "leave out"') + 1
    assert kinds[findings.MISSING].place == f"my.toml, line {line}"


def test_few_rows_of_different_texts_are_categories(folder):
    assert proposed(folder, a=[1, 2, 3], y=["walk", "sit", "run"]).classes == ("run", "sit", "walk")


def test_a_table_without_features_is_refused(folder):
    with pytest.raises(UsageError, match=r"my\.csv"):
        proposed(folder, y=many([0, 1]))


# What the bounds do

SCHEMA = (
    'label = "y"\n[columns.a]\nlow = {low}\nhigh = {high}\n[columns.y]\ncategories = ["n", "p"]\n'
)


def test_few_used_steps_are_found_with_the_line_of_the_bounds(folder):
    values = [-0.001, 0.001, *amounts(-0.001, 0.001)]
    kinds = found(folder, SCHEMA.format(low=-1, high=1), a=values, y=["n", "p", *many("np")])
    assert kinds["few steps"].place == "my.toml, line 3"
    assert "33 of 32,768" in kinds["few steps"].text


@pytest.mark.parametrize(("low", "high", "line"), [(20, 40, 3), (-40, -20, 4)])
def test_values_beyond_a_bound_are_found_with_its_line(folder, low, high, line):
    values = [0.0, 30.0, -30.0, *amounts()]
    kinds = found(folder, SCHEMA.format(low=low, high=high), a=values, y=["n"] * 3 + many("np"))
    assert kinds["one end"].place == f"my.toml, line {line}"


def test_bounds_that_only_outliers_reach_are_found(folder):
    values = [-1000, 1000, *amounts()]
    kinds = found(folder, SCHEMA.format(low=-1000, high=1000), a=values, y=["n"] * 2 + many("np"))
    assert "narrow middle" in kinds


def test_a_rare_flag_is_not_found(folder):
    kinds = found(folder, SCHEMA.format(low=0, high=1), a=[1] + [0] * 300, y=["n", *many("np")])
    assert kinds == {}


def test_good_bounds_are_not_found(folder):
    assert found(folder, SCHEMA.format(low=0, high=10), a=amounts(), y=many("np")) == {}


def test_a_label_of_few_steps_is_found(folder):
    text = SCHEMA.format(low=0, high=10).replace('categories = ["n", "p"]', "low = 0\nhigh = 1e6")
    assert found(folder, text, a=amounts(), y=amounts())["few steps"].column == "y"


def test_a_class_that_never_occurs_is_found(folder):
    text = SCHEMA.format(low=0, high=10).replace('"p"]', '"p", "q"]')
    assert "q" in found(folder, text, a=amounts(), y=many("np"))["no record"].text


def test_a_rare_class_is_found(folder):
    kinds = found(folder, SCHEMA.format(low=0, high=10), a=amounts(), y=["p"] * 9 + ["n"] * 291)
    assert "p (9 of 300)" in kinds["rare class"].text


def test_classes_that_differ_in_case_only_are_found(folder):
    text = '[columns.a]\nlow = 0\nhigh = 10\n[columns.y]\ncategories = ["No", "Yes", "yes"]\n'
    kinds = found(folder, text, a=amounts(), y=many(["No", "Yes", "yes"]))
    assert kinds[findings.ALIKE].place == "my.toml, line 5"


def test_computed_bounds_are_found_once(folder):
    text = SCHEMA.format(low=0, high=10) + "computed = true\n"
    assert found(folder, text, a=amounts(), y=many("np"))["computed"].place == "my.toml, line 7"


def test_rows_that_are_left_out_are_found(folder):
    kinds = found(folder, SCHEMA.format(low=0, high=10), a=["", *amounts()], y=["n", *many("np")])
    assert "1 row of 301" in kinds["missing"].text


def test_uses_count_shares_at_and_beyond_the_bounds(folder):
    table = table_of(folder, {"a": [-1, 0, 0, 3, 5, 10, 11, 12, 13, ""], "y": "npnpnpnpnp"})
    (folder / "my.toml").write_text(SCHEMA.format(low=0, high=10))
    use = findings.uses_of(table, Schema.read(folder / "my.toml"))[0]
    shares = [round(9 * share) for share in (use.below, use.at_low, use.at_high, use.above)]
    assert shares == [1, 2, 1, 3]
    assert (use.missing, use.steps, use.distinct) == (1, 32_768, 4)


# The command


def described(capsys, *words):
    """The exit code, what is printed, and what is said on standard error."""
    code = main(["data", "describe", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def homes(folder):
    """A table of 300 records of three homes."""
    columns = {"home": ["a"] * 150 + ["b"] * 100 + ["c"] * 50}
    columns |= {"temperature in the living room": amounts(), "w": many("xyz"), "y": many("np")}
    return table_of(folder, columns)


def test_the_schema_is_written_beside_the_table(homes, folder, capsys):
    code, _, _ = described(capsys, "my.csv")
    assert code == OK
    assert Schema.read(folder / "my.toml").label == "y"


def test_a_schema_that_is_there_is_never_changed(homes, folder, capsys):
    text = SCHEMA.format(low=0, high=10).replace(
        "columns.a", 'columns."temperature in the living room"'
    )
    (folder / "my.toml").write_text(text)
    assert described(capsys, "my.csv")[0] == OK
    assert (folder / "my.toml").read_text() == text


def test_a_label_is_refused_if_the_schema_is_there(homes, capsys):
    described(capsys, "my.csv")
    assert described(capsys, "my.csv", "--label", "w")[0] == USAGE


def test_the_schema_is_written_where_the_user_says(homes, folder, capsys):
    described(capsys, "my.csv", "--output", "other.toml")
    assert Schema.read(folder / "other.toml").label == "y"
    assert not (folder / "my.toml").exists()


@pytest.mark.parametrize(
    "words", [["my.toml"], ["no.csv"], ["my.csv", "--label", "z"], ["my.csv", "--output", "my.csv"]]
)
def test_what_cannot_be_described_is_a_usage_error(homes, folder, words, capsys):
    assert described(capsys, *words)[0] == USAGE
    assert not (folder / "my.toml").exists()


def test_the_report_fits_80_columns(homes, capsys):
    described(capsys, "my.csv")
    assert max(map(len, described(capsys, "my.csv")[1].split("\n"))) <= 80


def test_the_report_is_also_data(homes, folder, capsys):
    described(capsys, "my.csv")
    path = folder / "my.toml"
    path.write_text(path.read_text().replace("# device =", "device ="))
    result = json.loads(described(capsys, "my.csv", "--json")[1])
    devices = {"column": "home", "count": 3, "least": 50, "median": 100, "most": 150}
    assert result["devices"] == devices
    assert sum(result["classes"].values()) == 300
    assert result["findings"][-1]["kind"] == "computed"


def test_the_report_has_data_for_every_column(homes, capsys):
    described(capsys, "my.csv")
    result = json.loads(described(capsys, "my.csv", "--json")[1])
    names = [column["column"] for column in result["columns"]]
    assert names == ["temperature in the living room", "w", "y"]


def labelled(folder, missing_of_yes, missing_of_no):
    """The finding on left out rows, of 100 records yes and 900 no, of which so many lack a value."""
    amounts_of_yes = [""] * missing_of_yes + ["1"] * (100 - missing_of_yes)
    amounts_of_no = [""] * missing_of_no + ["2"] * (900 - missing_of_no)
    label = ["yes"] * 100 + ["no"] * 900
    schema = """label = "answer"
[columns.amount]
low = 0
high = 3
[columns.answer]
categories = ["no", "yes"]
"""
    every = found(folder, schema, amount=amounts_of_yes + amounts_of_no, answer=label)
    return every[findings.MISSING].text


def test_a_class_that_loses_more_rows_than_the_others_is_named(folder):
    assert "the class yes" in labelled(folder, missing_of_yes=50, missing_of_no=50)


def test_no_class_is_named_if_values_are_missing_by_chance(folder):
    assert "the class" not in labelled(folder, missing_of_yes=12, missing_of_no=90)
