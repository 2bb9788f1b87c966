"""Public rows in another unit than the records of the run are refused before the run."""

from dataclasses import replace

import numpy as np
import pytest

from ternhost import datasets
from ternhost.datasets import own
from ternhost.datasets.schemas.schema import Numeric, Schema
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.models import public
from ternhost.learn.sums.fedsum import FedSum

pytestmark = pytest.mark.usefixtures("here")
DATA = datasets.load("synthetic-logistic")
ROWS = DATA.features[:300] / 16384  # features from -1 to 1, after the constant


def parsed(rows, dataset=DATA, form="%.6f"):
    """The public rows of a file with these rows, for records of the data set."""
    np.savetxt("public.csv", rows, form, delimiter=",")
    return public.parse("public.csv", dataset, d=rows.shape[1], seed=1)


def scaled(factor, *columns):
    """The rows with another scale of these columns; of none named: of all but the constant."""
    rows = ROWS.copy()
    rows[:, list(columns) or slice(1, None)] *= factor
    return rows


@pytest.mark.parametrize("form", ["%.6f", "%g"])
def test_rows_in_the_unit_of_the_records_are_taken_as_they_are(form):
    assert np.allclose(parsed(ROWS, form=form).rows, ROWS, atol=1e-4)


@pytest.mark.parametrize("factor", [0, 1e-4])
@pytest.mark.parametrize("columns", [(), (3,)], ids=["all columns", "one column"])
def test_a_column_in_another_unit_is_refused_by_its_name(factor, columns):
    first = DATA.feature_names[min(columns, default=1)]
    with pytest.raises(UsageError, match=rf"\b{first}\b"):
        parsed(scaled(factor, *columns))


@pytest.mark.parametrize("columns", [(), (3,)], ids=["all columns", "one column"])
def test_a_column_that_is_clipped_to_its_bounds_is_refused_by_its_name(columns):
    """Values a thousand times too large lie beyond the bounds of the schema, which become them."""
    first = DATA.feature_names[min(columns, default=1)]
    with pytest.raises(UsageError, match=rf"\b{first}\b"):
        parsed(np.clip(scaled(1000, *columns), -1, 1))


def test_a_column_of_two_values_may_have_both_in_public_rows():
    records = DATA.features.copy()
    records[:, -1] = np.where(np.arange(len(records)) % 2, -16384, 16384)
    data = replace(DATA, features=records)
    assert parsed(records[:300] / 16384, data).rows is not None


def test_a_public_row_with_a_missing_value_is_left_out():
    """The column has the bounds -1 and 1, so that its values are taken as they are."""
    schema = Schema((Numeric("a", -1, 1), Numeric("y", 0, 9)), label="y")
    table = RawTable("public.csv", ("a",), (["0.5", ""],), lines=(2, 3))
    features = own.public_features_by(schema, table, constant=False)
    assert features.tolist() == [[8192]]  # 0.5 in Q1.14


def test_a_rare_category_may_be_missing_in_public_rows():
    """Of the records a hundredth has 1 in the last column, all others -1; the rows have only -1."""
    records = DATA.features.copy()
    records[:, -1] = np.where(np.arange(len(records)) % 100, -16384, 16384)
    data = datasets.Dataset(
        name="rare",
        task=DATA.task,
        feature_names=DATA.feature_names,
        features=records,
        labels=DATA.labels,
        held_out=DATA.held_out,
    )
    rows = ROWS.copy()
    rows[:, -1] = -1
    assert parsed(rows, data).rows is not None


def test_without_records_to_compare_with_rows_of_nearly_zero_are_refused():
    with pytest.raises(UsageError):
        parsed(scaled(1e-4), dataset=None)


def test_without_records_to_compare_with_one_narrow_column_is_taken():
    assert parsed(scaled(1e-4, 3), dataset=None).rows is not None


def test_a_run_with_rows_in_another_unit_does_not_begin(tern):
    np.savetxt("public.csv", scaled(1e-4), "%.6f", delimiter=",")
    words = "train direct --fleet simulated:100 --data synthetic-logistic --public public.csv"
    tern(*words.split(), code=2)


def test_sums_with_rows_in_another_unit_do_not_begin():
    np.savetxt("public.csv", scaled(1e-4), "%.6f", delimiter=",")
    options = FedSum.Options(data="synthetic-logistic", records=60, public="public.csv")
    with pytest.raises(UsageError):
        FedSum(options, Population(clients=10))
