"""Options of quantiles and histograms, on the command line and in Python."""

import numpy as np
import pytest

from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.distributions.quantile_options import Options, name_of

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("written", "quantiles"),
    [
        ("0.5,0.9", (0.5, 0.9)),
        ("p99.9, median", (0.5, 0.999)),
        ((0.9, 0.5, "p90"), (0.5, 0.9)),
        (np.array([0.25, 0.75]), (0.25, 0.75)),
        (0.5, (0.5,)),
    ],
    ids=str,
)
def test_quantiles_are_numbers_or_percentiles_each_once_in_order(written, quantiles):
    assert Options(quantiles=written).parsed_quantiles() == quantiles


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "1",
        "0",
        "p100",
        "p",
        "nan",
        "sNaN",
        "1e-999999",
        "1e9999999",
        "often",
        "0.5,,0.9",
        '"0.5',
    ],
)
def test_what_is_no_quantile_is_refused(wrong):
    with pytest.raises(UsageError, match="--quantiles"):
        Options(quantiles=wrong)


@pytest.mark.parametrize("written", ["90", "90%", "90 %"])
def test_a_percentile_without_its_letter_gets_the_hint_to_write_one(written):
    with pytest.raises(UsageError) as refused:
        Options(quantiles=written)
    assert "p90" in refused.value.hint


@pytest.mark.parametrize(
    ("quantile", "name"), [(0.5, "median"), (0.9, "p90"), (0.999, "p99.9"), (0.25, "p25")]
)
def test_a_quantile_has_a_name_for_people(quantile, name):
    assert name_of(quantile) == name
    assert Options(quantiles=name).parsed_quantiles() == (quantile,)


PEOPLE = Table(
    "people",
    ("age", "net income", "a, b"),
    np.zeros((20, 3), np.int16),
    ("sex",),
    np.zeros((20, 1), np.int16),
    (("f", "m"),),
)


@pytest.mark.parametrize(
    ("attributes", "columns"),
    [
        ("", (0, 1, 2)),
        ("net income, age", (0, 1)),
        ("net income", (1,)),
        (("a, b", "age"), (0, 2)),
        ('"a, b"', (2,)),
    ],
)
def test_attributes_are_named_in_any_order(attributes, columns):
    assert Options(attributes=attributes).columns_of(PEOPLE) == columns


def test_an_attribute_that_is_not_there_is_refused_with_the_most_similar_one():
    with pytest.raises(UsageError) as refused:
        Options(attributes="net incomme").columns_of(PEOPLE)
    assert "did you mean net income?" in refused.value.hint


def test_a_categorical_attribute_has_no_quantiles():
    with pytest.raises(UsageError, match="sex"):
        Options(attributes="sex").columns_of(PEOPLE)


@pytest.mark.parametrize("bins", [0, 4, 32, 4096, -16])
def test_other_numbers_of_bins_are_refused(bins):
    with pytest.raises(UsageError, match="--bins"):
        Options(bins=bins)


@pytest.mark.parametrize(
    "words",
    [
        "--unit record --epsilon 1",
        "--unit 60 --clients 10",
        "--run-epsilon 1",
        "--unit device --records 4",
    ],
)
def test_options_of_another_unit_are_refused(tern, words):
    refused = tern("collect", "quantiles", "--fleet", "simulated:20", *words.split(), code=2)
    assert words.split()[-2] in refused.err


def test_an_option_of_quantiles_chooses_them(tern):
    words = "collect --quantiles median,p90 --data iris --fleet simulated:500 --json --no-report"
    result = tern(*words.split()).json
    assert result["algorithm"] == "quantiles"
    assert len(result["attributes"]) == 4
    assert [each["quantile"] for each in result["attributes"][0]["quantiles"]] == [0.5, 0.9]
