"""Collected distributions as tables, pictures and pages."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from distributions import BINS, HIGH, LOW, QUANTILES, SHARES, SHOWN, TRUE_SHARES, entry

from ternhost.learn.collecting import estimate_rows
from ternhost.learn.collecting.collect import Options
from ternhost.learn.collecting.means import Options as MeansOptions
from ternhost.learn.distributions.bin_tree import Distribution, SummedLevel
from ternhost.learn.distributions.distribution_entries import (
    CollectedDistribution,
    Quantile,
    distributions_of,
    thinned,
)
from ternhost.learn.distributions.quantile_options import Options as QuantileOptions
from ternhost.learn.distributions.quantile_results import liar_lines
from ternhost.plots import distributions
from ternhost.run import tables
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.report import collecting
from ternhost.run.run import Run
from ternhost.store.reader import Reader
from ternhost.watch.page import charts


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
    assert len(CollectedDistribution.of(without).shown.shares) == BINS


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


def test_a_run_of_quantiles_writes_its_tables_beside_its_result(here):
    options = RunOptions("quantiles", QuantileOptions(data="iris", clients=50), "simulated:50")
    with Run.begin(options, Place("r", here)) as run:
        attributes = run.run()["attributes"]

    quantile_rows = read(run.directory / "quantiles.csv")
    bin_rows = read(run.directory / "histogram.csv")
    for attribute in attributes:
        own = [row for row in quantile_rows if row["attribute"] == attribute["name"]]
        values = [quantile["value"] for quantile in attribute["quantiles"]]
        assert column(own, "value") == pytest.approx(values)
        own = [row for row in bin_rows if row["attribute"] == attribute["name"]]
        assert column(own, "share") == pytest.approx(attribute["histogram"]["shares"])


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
    assert np.array(ends) == pytest.approx(collected.shown.interval.T)


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


# The live page


def points_of(picture, name):
    """The data of the series of this name."""
    (series,) = [series for series in picture["series"] if series["name"] == name]
    return series["data"]


def test_the_histogram_of_the_page_has_the_shares_of_the_wide_bins(collected):
    picture = charts.histogram(collected)
    percent = 100 * SHARES.reshape(SHOWN, -1).sum(axis=1)
    assert points_of(picture, "share") == pytest.approx(percent, rel=1e-5)
    whiskers = np.array(points_of(picture, "interval of 95 %"))
    expected = 100 * collected.shown.interval.T
    assert whiskers[:, [0, -1]] == pytest.approx(expected, rel=1e-5)


def test_the_cumulative_distribution_of_the_page_goes_from_edge_to_edge(collected):
    points = points_of(charts.cumulative(collected), "this share or less")
    assert points[0] == [LOW, 0]
    assert points[-1] == pytest.approx([HIGH, 100 * SHARES.sum()])


def test_the_intervals_of_quantiles_are_not_joined_on_the_page(collected):
    ends = points_of(charts.cumulative(collected), "_intervals")
    assert ends[2::3] == ["-"] * len(QUANTILES)
    lows = [low for low, _ in ends[0::3]]
    assert lows == pytest.approx([quantile.low for quantile in collected.quantiles])


def test_what_the_host_does_not_know_is_not_drawn():
    unknown = CollectedDistribution.of(entry(true=False))
    for picture in (charts.histogram(unknown), charts.cumulative(unknown)):
        assert "truly" not in [series["name"] for series in picture["series"]]


def test_a_table_of_estimates_has_means_quantiles_and_frequencies():
    mean = {"name": "age", "reports": 3, "mean": 0.5, "interval": None}
    colour = {
        "name": "colour",
        "reports": 4,
        "categories": ["red", "green", "blue"],
        "frequencies": [0.2, 0.7, None],
        "intervals": [[0.1, 0.3], [0.6, 0.8], None],
    }
    rows = list(estimate_rows.rows_of([mean, entry(), colour]))
    assert [row.what for row in rows] == [
        "age, mean",
        "delay, median",
        "delay, p99.9",
        "colour, green",
        "colour, red",
    ]
    assert [row.interval for row in rows] == [
        None,
        "345 to 375",
        "510 to 540",
        "0.600 to 0.800",
        "0.100 to 0.300",
    ]


@pytest.mark.parametrize("bins", [4, 128, 1000, 1024])
def test_a_page_gets_at_most_128_points_of_a_cumulative_distribution(bins):
    edges, shares = np.linspace(-1, 1, bins + 1), np.linspace(0, 1, bins + 1)[1:]
    histogram = {"edges": edges.tolist(), "shares": [1 / bins] * bins, "intervals": [[0, 1]] * bins}
    cumulative = {"shares": shares.tolist(), "intervals": [[0, 1]] * bins}
    full = {**entry(unit={}, true=False), "histogram": histogram, "cumulative": cumulative}

    shown = CollectedDistribution.of(thinned(full)).cumulative

    assert min(bins, 64) <= len(shown.shares) <= 128
    assert shown.edges[0] == -1
    # The distribution is uniform, so a share belongs to its edge.
    assert shown.shares == pytest.approx((shown.edges[1:] + 1) / 2)
    assert shown.shares[-1] == 1


RUNS = {
    "means and frequencies": ("values", Options(data="iris", clients=50)),
    "means of records": ("means", MeansOptions(data="iris", records=2)),
    "quantiles": ("quantiles", QuantileOptions(data="iris", clients=50)),
    "quantiles of records": ("quantiles", QuantileOptions(data="iris", unit="record", records=2)),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_store_has_what_was_collected(here, name):
    options = RunOptions(*RUNS[name], fleet="simulated:50")
    with Run.begin(options, Place("r", here)) as run:
        result = run.run()
    with Reader(run.files.store) as reader:
        estimates = list(reader.snapshot().estimates)
    assert estimates == list(map(thinned, result["attributes"]))
    assert estimates


def test_the_report_of_quantiles_says_what_lying_devices_can_do(here):
    options = RunOptions("quantiles", QuantileOptions(data="iris", clients=50), "simulated:50")
    with Run.begin(options, Place("r", here)) as run:
        result = run.run()
    (line,) = liar_lines(result)
    rows = collecting.page(result).results
    assert [value for name, value, _ in rows if name == "lying devices"] == [line]


def test_the_terminal_shows_quantiles_with_their_intervals(here, tern):
    tern(
        *[
            "collect",
            "quantiles",
            "--data",
            "iris",
            "--fleet",
            "simulated:50",
            "--no-report",
            "--name",
            "r",
        ]
    )
    attributes = tern("watch", "r", "--once", "--json").json["estimates"]
    shown = tern("watch", "r", "--once").out
    (first, *_) = distributions_of(attributes)
    for quantile in first.quantiles:
        assert f"{first.name}, {quantile.name} {quantile.value:.4g}" in shown
        assert f"95 %: {quantile.low:.4g} to {quantile.high:.4g}" in shown


# The report


def test_the_report_shows_each_quantile_in_its_unit(collected):
    head, *rows = collecting.quantile_table([collected])
    assert len(rows) == len(QUANTILES)
    median = dict(zip(head, rows[0], strict=True))
    assert median["quantile"] == "median"
    assert median["value"] == "360 min"
    assert median["interval of 95 %"] == "345 to 375 min"
    assert median["truly"] == "363 min"


@pytest.mark.parametrize(
    ("names", "pictures"),
    [
        (["age"], ["distribution-age"]),
        (["a/b", "a b", "A-B"], ["distribution-a-b", "distribution-a-b-2", "distribution-a-b-3"]),
        (["../../etc"], ["distribution-etc"]),
        (["<>"], ["distribution"]),
    ],
)
def test_the_report_has_a_picture_for_each_distribution(names, pictures):
    collected = [CollectedDistribution.of(entry(name)) for name in names]
    assert list(collecting.pictures_of_distributions(collected)) == pictures


# Which bins a picture shows


@pytest.mark.parametrize(
    ("bins", "error", "shown"),
    [
        (1024, 1e-6, 64),  # more bars could not be told apart
        (64, 1e-6, 64),
        (64, 1, 4),  # noise hides all others
    ],
)
def test_a_picture_shows_as_many_bins_as_can_be_read(bins, error, shown):
    uniform = SummedLevel(np.full(bins, 1 / bins), error)
    assert Distribution([uniform]).picture_bins() == shown
