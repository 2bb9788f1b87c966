"""Collected distributions as tables, pictures and pages."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from distributions import BINS, HIGH, LOW, QUANTILES, SHARES, SHOWN, TRUE_SHARES, entry

from ternhost.learn.distribution_entries import CollectedDistribution, Quantile
from ternhost.plots import distributions
from ternhost.run import tables
from ternhost.run.report import collecting


def in_minutes(scaled):
    return (LOW + HIGH) / 2 + np.asarray(scaled) * (HIGH - LOW) / 2


@pytest.fixture
def collected():
    return CollectedDistribution.of(entry())


# Entries


@pytest.mark.parametrize(
    ("level", "name"), [(0.5, "median"), (0.9, "p90"), (0.999, "p99.9"), (0.29, "p29")]
)
def test_a_quantile_has_the_name_that_people_give_it(level, name):
    assert Quantile(level, value=0.0, low=0.0, high=0.0).name == name


def test_edges_and_quantiles_are_in_the_unit_of_the_attribute(collected):
    assert collected.histogram.edges == pytest.approx(in_minutes(np.linspace(-1, 1, BINS + 1)))
    for quantile, (level, value, interval, true) in zip(
        collected.quantiles, QUANTILES, strict=True
    ):
        assert quantile.level == level
        expected = in_minutes([value, *interval, true])
        assert [quantile.value, quantile.low, quantile.high, quantile.true] == pytest.approx(
            expected
        )


def test_an_attribute_without_known_bounds_stays_scaled():
    scaled = CollectedDistribution.of(entry(unit={}))
    assert scaled.is_scaled
    assert (scaled.histogram.edges[0], scaled.histogram.edges[-1]) == (-1, 1)


def test_a_picture_has_the_finest_bins_if_no_others_are_chosen_for_it():
    without = entry()
    del without["shown_histogram"]
    assert len(CollectedDistribution.of(without).shown.bins.shares) == BINS


# Tables


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def column(rows, name):
    return [float(row[name]) for row in rows]


@pytest.fixture
def written(tmp_path):
    """The paths of the tables of a result with two attributes."""
    result = {"attributes": [entry(), entry('a, "b"', unit={}, true=False)]}
    tables.write(result, tmp_path, afterwards="")
    return tmp_path


def test_a_table_has_every_bin_of_every_attribute(written):
    rows = read(written / "histogram.csv")
    assert [row["attribute"] for row in rows] == ["delay"] * BINS + ['a, "b"'] * BINS
    of_delay = rows[:BINS]
    assert column(of_delay, "share") == pytest.approx(SHARES)
    assert column(of_delay, "share_true") == pytest.approx(TRUE_SHARES)
    assert column(of_delay, "cumulative") == pytest.approx(np.cumsum(SHARES))
    assert column(of_delay, "bin_high")[:-1] == column(of_delay, "bin_low")[1:]
    assert (of_delay[0]["bin_low"], of_delay[-1]["bin_high"]) == (str(LOW), str(HIGH))


def test_every_interval_of_the_table_has_its_estimate_inside(written):
    for row in read(written / "histogram.csv"):
        for name in ("share", "cumulative"):
            low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
            inside_what_is_possible = min(1.0, max(0.0, float(row[name])))
            assert low <= inside_what_is_possible <= high


def test_what_nobody_knows_is_an_empty_cell(written):
    for row in read(written / "histogram.csv")[BINS:]:
        assert row["share_true"] == row["cumulative_true"] == row["unit"] == ""


def test_a_table_has_every_quantile_with_its_interval(written):
    rows = read(written / "quantiles.csv")[: len(QUANTILES)]
    for row, (level, value, interval, true) in zip(rows, QUANTILES, strict=True):
        assert (row["attribute"], row["unit"], float(row["quantile"])) == ("delay", "min", level)
        numbers = [float(row[name]) for name in ("value", "low", "high", "true")]
        assert numbers == pytest.approx(in_minutes([value, *interval, true]))


def test_a_result_without_distributions_has_no_tables(tmp_path):
    assert tables.write({"attributes": [{"name": "a", "mean": 0.1}]}, tmp_path, "") == []
    assert list(tmp_path.iterdir()) == []


# Pictures


def test_the_bars_of_a_picture_are_the_shares_of_the_wide_bins(collected):
    upper, _ = distributions.distribution(collected).axes
    heights = [bar.get_height() for bar in upper.patches[:SHOWN]]
    assert heights == pytest.approx(SHARES.reshape(SHOWN, -1).sum(axis=1))


def test_the_error_bars_of_a_picture_are_the_intervals(collected):
    upper, _ = distributions.distribution(collected).axes
    (lines,) = upper.collections
    ends = [(low, high) for (_, low), (_, high) in lines.get_segments()]
    assert np.array(ends) == pytest.approx(collected.shown.bins.interval.T)


def test_quantiles_are_marked_on_the_cumulative_distribution(collected):
    _, lower = distributions.distribution(collected).axes
    marks = [line for line in lower.lines if line.get_label().startswith("quantile")]
    assert [mark.get_xydata().tolist() for mark in marks] == [
        [[quantile.value, quantile.level] for quantile in collected.quantiles]
    ]


def test_a_picture_shows_what_is_true_only_if_it_is_known(collected):
    def texts(shown):
        (legend,) = distributions.distribution(shown).legends
        return [text.get_text() for text in legend.texts]

    assert "truly" in texts(collected)
    assert "truly" not in texts(CollectedDistribution.of(entry(true=False)))


def test_a_name_that_looks_like_a_formula_is_drawn_as_it_is(collected):
    figure = distributions.distribution(replace(collected, name="a$b^$"))
    figure.draw_without_rendering()
    assert figure.axes[-1].get_xlabel() == r"a\$b^\$ in min"


# The report


def test_the_report_shows_each_quantile_in_its_unit(collected):
    head, *rows = collecting.quantile_table([collected])
    assert len(rows) == len(QUANTILES)
    median = dict(zip(head, rows[0], strict=True))
    assert median["quantile"] == "median"
    assert median["value"] == "360 min"
    assert median["interval of 95 %"] == "345 to 375 min"
    assert median["truly"] == "363 min"


def test_the_report_has_a_picture_for_each_distribution():
    shown = [CollectedDistribution.of(entry(name)) for name in ("a/b", "a b")]
    pictures = collecting.pictures_of_distributions(shown)
    assert len(pictures) == len(shown)
    assert all("/" not in name for name in pictures)
