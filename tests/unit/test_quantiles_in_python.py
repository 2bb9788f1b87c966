"""Quantiles and histograms as Python programs get them."""

import dataclasses

import numpy as np
import pytest

import ternhost

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def in_python(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    learner = ternhost.Quantiles(epsilon=4, quantiles=(0.5, 0.9), attributes=("delay",), bins=16)
    random = np.random.default_rng(2)
    records = {"delay": random.exponential(10, 3000), "noise": random.random(3000)}
    schema = ternhost.Schema(
        (ternhost.Numeric("delay", 0, 60, unit="min"), ternhost.Numeric("noise", 0, 1))
    )
    return ternhost.collect(
        learner,
        ternhost.Simulated(3000),
        data=ternhost.Data(records, schema=schema),
        directory=directory,
    )


def test_python_gets_quantiles_in_the_unit_of_the_column(in_python):
    median, p90 = in_python.quantiles
    assert (median.name, median.quantile) == ("delay", 0.5)
    assert median.low <= median.estimate <= median.high
    assert median.true == pytest.approx(10 * np.log(2), rel=0.1)
    assert p90.true == pytest.approx(10 * np.log(10), rel=0.1)


def test_python_gets_a_histogram_of_each_attribute(in_python):
    histogram = in_python.histograms["delay"]
    assert histogram.edges == pytest.approx(np.linspace(0, 60, 17))
    assert histogram.unit == "min"
    assert histogram.cumulative == pytest.approx(np.cumsum(histogram.shares))
    assert histogram.intervals.shape == histogram.cumulative_intervals.shape == (16, 2)
    assert "16 bins of 0 to 60 min" in repr(histogram)


def test_a_table_of_the_result_has_a_row_for_each_quantile(in_python):
    fields = [field.name for field in dataclasses.fields(ternhost.Quantile)]
    assert list(in_python.to_frame().columns) == fields
    assert len(in_python.to_frame()) == 2


def test_a_table_of_a_histogram_has_a_row_for_each_bin(in_python):
    frame = in_python.histograms["delay"].to_frame()
    assert len(frame) == 16
    assert frame["share"].sum() == pytest.approx(1)


def test_a_collection_of_means_has_no_quantiles():
    result = ternhost.collect(ternhost.Values(), ternhost.Simulated(100), data="iris")
    assert not result.quantiles
    assert not result.histograms
    assert len(result.to_frame()) == 4
