"""Errors of means and frequencies are computed exactly from the laws of the mechanisms.

Simulated reports have the same errors. What Zhao et al. say about their Figs. 6, 7 and 11 is
compared with them.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets.base import Table, to_fixed
from ternhost.errors import UsageError
from ternpapers import baseline, experiments, laws
from ternpapers.base import Options
from ternpapers.comparison import frequencies
from ternpapers.comparison.contest import Case
from ternpapers.comparison.means import GAUSSIANS, mean_error
from ternpapers.comparison.reports import reported, variances_of_reports
from ternpapers.experiments.frequencies import unary
from ternpapers.papers.zhao_means import EXISTING, PROPOSED
from ternpapers.perturbing import MECHANISMS, WINDOWED

REPORTS = 200_000
RUNS = 4000
# Errors of so many runs have a relative error of about 1 to 2 %.
BY_CHANCE = 0.08
FEW_OUTPUTS = 5  # so few that rounding adds much to the variance
CONTINUOUS = [(name, None) for name in MECHANISMS]
DISCRETE = [(name, FEW_OUTPUTS) for name in WINDOWED]


@pytest.mark.parametrize(("name", "outputs"), CONTINUOUS + DISCRETE)
@pytest.mark.parametrize("epsilon", [1.0, 6.0], ids=["1 of 4 numbers", "2 of 4 numbers"])
def test_simulated_reports_have_the_exact_mean_and_squared_error(name, outputs, epsilon):
    x = np.array([-1.0, -0.3, 0.0, 0.8])
    rng = baseline.generator(1)
    reports = reported(np.tile(x, (REPORTS, 1)), name, epsilon, rng, outputs)

    variances = variances_of_reports(x, name, epsilon, len(x), outputs)
    standard_errors = (variances / REPORTS) ** 0.5
    assert (np.abs(reports.mean(axis=0) - x) < 5 * standard_errors).all()
    squared_errors = ((reports - x) ** 2).mean(axis=0)
    assert squared_errors == pytest.approx(variances, rel=0.05)


@pytest.mark.parametrize("name", WINDOWED)
def test_many_outputs_have_nearly_the_variance_of_continuous_ones(name):
    x = np.linspace(-1, 1, 9)
    continuous = laws.variances(name, 2.0, x)
    discrete = laws.variances(name, 2.0, x, outputs=2001)
    assert (discrete > continuous).all()
    assert discrete == pytest.approx(continuous, rel=1e-5)


# Tables: a small one of the test, with two numbers and two categorical attributes

CLIENTS = 40
PEOPLE = "people"  # the name of the table


@pytest.fixture
def numbers(monkeypatch):
    """The numbers of the table (40 x 2)."""
    rng = np.random.default_rng(7)
    table = Table(
        PEOPLE,
        numeric_names=("height", "age"),
        numeric=to_fixed(rng.uniform(-1, 1, (CLIENTS, 2))),
        categories=(("red", "green", "blue"), ("small", "large")),
        codes=rng.integers([3, 2], size=(CLIENTS, 2)),
    )
    monkeypatch.setitem(datasets.TABLES, PEOPLE, lambda: table)
    return table.numeric / ONE


def simulated_error(x, name, epsilon, columns):
    """The mean squared error of the means of the first columns of x, from simulated reports.

    columns: how many of them count.
    """
    reports = reported(np.tile(x, (RUNS, 1)), name, epsilon, baseline.generator(3))
    means = reports.reshape(RUNS, *x.shape).mean(axis=1)
    return ((means - x.mean(axis=0)) ** 2)[:, :columns].mean()


@pytest.mark.parametrize("name", ["laplace", "pm", "hm-tp"])
def test_a_mechanism_of_wang_chooses_among_all_attributes(name, numbers):
    """Clients report 4 attributes, or one of them. Zeros stand for the two categorical ones."""
    attributes = np.pad(numbers, ((0, 0), (0, 2)))
    simulated = simulated_error(attributes, name, 2.0, columns=2)
    assert mean_error(Case(PEOPLE, 2.0), name) == pytest.approx(simulated, rel=BY_CHANCE)


def test_duchi_s_tuples_are_of_the_numbers_alone(numbers):
    simulated = simulated_error(numbers, "duchi", 2.0 / 2, columns=2)
    assert mean_error(Case(PEOPLE, 2.0), "duchi") == pytest.approx(simulated, rel=BY_CHANCE)


@pytest.mark.parametrize("name", ["laplace", "duchi", "pm", "hm-tp"])
def test_zhao_et_al_give_the_numbers_their_part_of_epsilon_with_every_mechanism(name, numbers):
    """2 of 4 attributes are numbers, so that they have half of epsilon."""
    simulated = simulated_error(numbers, name, 2.0 / 2, columns=2)
    case = Case(PEOPLE, 2.0, split=True)
    assert mean_error(case, name) == pytest.approx(simulated, rel=BY_CHANCE)


@pytest.mark.parametrize("probability", [1.0, 0.4], ids=["all report", "some report"])
def test_simulated_frequencies_have_the_exact_squared_error(probability):
    """Clients hold one of three categories, and report it by optimised unary encoding."""
    holders = np.array([5, 15, 30])
    frequencies_of_all = holders / holders.sum()
    rng = np.random.default_rng(2)
    squared_errors = []
    for _ in range(20_000):
        estimates = unary(rng.binomial(holders, probability), 2.0, rng)
        squared_errors.append((estimates - frequencies_of_all) ** 2)

    exact = frequencies.frequency_errors(holders, 2.0, probability)
    assert exact == pytest.approx(np.mean(squared_errors, axis=0), rel=0.05)


@pytest.mark.parametrize(("paper", "number"), [("zhao", "6"), ("zhao", "7"), ("wang", "4")])
def test_an_exact_figure_refuses_runs(paper, number):
    with pytest.raises(UsageError) as refusal:
        experiments.figures(paper)[number].cells(Options(runs=3))
    assert "--runs" in refusal.value.hint


def test_a_table_without_numbers_is_refused(monkeypatch):
    colours = Table(
        "colours",
        numeric_names=(),
        numeric=np.zeros((3, 0), np.int16),
        categories=(("red", "green"),),
        codes=np.zeros((3, 1), np.int16),
    )
    monkeypatch.setitem(datasets.TABLES, "colours", lambda: colours)
    for paper, number in [("zhao", "6"), ("wang", "4")]:
        with pytest.raises(UsageError, match="numeric"):
            experiments.figures(paper)[number].cells(Options(data="colours"))


@pytest.mark.parametrize(("paper", "number"), [("zhao", "6"), ("wang", "4"), ("hao", "2")])
def test_a_figure_of_records_that_only_devices_know_is_refused(paper, number):
    with pytest.raises(UsageError) as caught:
        experiments.figures(paper)[number].cells(Options(data="devices:3"))
    assert "my.csv" in caught.value.hint


# The figures of Zhao et al.


def test_vehicle_s_six_features_have_no_category_and_make_a_figure_6(tmp_path):
    path = tmp_path / "vehicle"
    records = ["1 95:0.5 96:-0.25 97:1 98:0.1 99:0.2 100:-1", "2 95:-0.5 100:1", "3 98:0.75"]
    path.write_text("\n".join(records) + "\n")
    options = Options(data=f"vehicle-6:{path}", workers=1)
    rows = experiments.run("zhao", options, figure="6").tables["figure"]
    assert {row["d"] for row in rows} == {6}
    assert {row["curve"] for row in rows} == {*EXISTING, *PROPOSED}


@pytest.fixture(scope="module")
def of_gaussians():
    """The errors of Fig. 7 by mechanism: 4 means x 4 epsilons."""
    errors = {}
    for name in (*EXISTING, *PROPOSED):
        rows = []
        for source in GAUSSIANS:
            rows.append([mean_error(Case(source, e), name) for e in (0.5, 1.0, 2.0, 4.0)])
        errors[name] = np.array(rows)
    return errors


def test_at_mean_0_and_epsilon_1_pm_has_a_smaller_error_than_hm_tp(of_gaussians):
    """As shared_specs/errata.md states them, for 100,000 clients."""
    assert of_gaussians["pm"][0, 1] == pytest.approx(6.14e-4, abs=5e-7)
    assert of_gaussians["hm-tp"][0, 1] == pytest.approx(6.87e-4, abs=5e-7)
    assert of_gaussians["pm-sub"][0, 1] == pytest.approx(6.13e-4, abs=5e-7)


@pytest.mark.parametrize(("name", "cases"), [("pm-sub", 10), ("three-outputs", 1), ("hm-tp", 3)])
def test_so_many_of_16_cases_of_figure_7_are_as_zhao_et_al_say(of_gaussians, name, cases):
    existing = np.minimum.reduce([of_gaussians[each] for each in EXISTING])
    assert (of_gaussians[name] < existing * (1 - 1e-9)).sum() == cases


def test_hm_tp_loses_to_pm_or_hm_in_9_of_12_cases_of_figure_7(of_gaussians):
    best = np.minimum(of_gaussians["pm"], of_gaussians["hm"])
    assert (of_gaussians["hm-tp"] > best)[:, 1:].sum() == 9


def test_hm_tp_is_hm_at_epsilon_one_half_of_figure_7(of_gaussians):
    assert of_gaussians["hm-tp"][:, 0] == pytest.approx(of_gaussians["hm"][:, 0], rel=1e-9)


# How many of the attributes of the paper's data are numbers.
MX, BR, WISDM, VEHICLE = (5, 19), (6, 16), (3, 5), (6, 6)


@pytest.mark.parametrize(
    ("table", "up_to"),
    [
        pytest.param(MX, 2.0, id="MX"),
        pytest.param(BR, 1.0, id="BR"),
        pytest.param(WISDM, 1.0, id="WISDM"),
        pytest.param(VEHICLE, 0.5, id="Vehicle"),
    ],
)
def test_hm_and_hm_tp_are_the_same_mechanism_at_small_epsilons_of_figure_6(table, up_to):
    """Whatever the data are, HM-TP cannot be better there: the numbers have a part of epsilon only.

    So it is in 8 of 16 settings of the paper's four tables.
    """
    numbers, attributes = table
    x = np.linspace(-1, 1, 5)
    epsilons = (0.5, 1.0, 2.0, 4.0)
    are_same = []
    for epsilon in epsilons:
        of_numbers = epsilon * numbers / attributes
        hm, hm_tp = (variances_of_reports(x, name, of_numbers, numbers) for name in ("hm", "hm-tp"))
        are_same.append(np.allclose(hm, hm_tp, rtol=1e-9))
    assert are_same == [epsilon <= up_to for epsilon in epsilons]


@pytest.mark.parametrize(
    ("source", "mean"), list(zip(GAUSSIANS, (0, 1 / 3, 2 / 3, 1), strict=True))
)
def test_figure_7_has_the_errors_of_pm_for_16_gaussian_numbers_within_1(source, mean):
    """By (31) alone, with t = e**(epsilon / 2), where a client reports one of its numbers.

    The paper's numbers have the standard deviation 1/4, and are those from -1 to 1.
    """
    ends = np.array([-1, 1])
    mean_square = scipy.stats.truncnorm(*(4 * (ends - mean)), mean, 1 / 4).moment(2)
    d, epsilon = 16, 4.0
    e, t = math.exp(epsilon), math.exp(epsilon / 2)
    at_0 = (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
    variance = (t + 1) / (e - 1) * mean_square + at_0
    of_a_report = d * (variance + mean_square) - mean_square
    error = mean_error(Case(source, epsilon), "pm")
    assert 100_000 * error == pytest.approx(of_a_report, rel=2e-3)


def test_figure_11_has_the_settings_of_figure_6_with_2001_outputs():
    in_figure = experiments.figures("zhao")
    cases = [cell.arguments["case"] for cell in in_figure["6"].cells(Options())]
    rounded = [cell.arguments["case"] for cell in in_figure["11"].cells(Options())]
    assert rounded == [replace(case, outputs=2001) for case in cases]


def test_rounding_to_2001_outputs_makes_no_mechanism_better_than_another():
    """At epsilon 0.5 Three-Outputs and HM-TP are HM, which has other outputs to be rounded to."""
    options = Options(data="diabetes", workers=1)
    about_all, _ = experiments.run("zhao", options, figure="11").tables["statements"]
    counts = "three-outputs in 0, pm-sub in 3, hm-tp in 1, all three in 0 of 4 cases"
    assert about_all["verdict"] == "not so here"
    assert about_all["detail"] == counts


@pytest.mark.parametrize(
    ("error_of_hm", "holds"),
    [
        pytest.param(1.1, True, id="HM is worse"),
        pytest.param(1.0, True, id="HM is as good in both panels"),
        pytest.param(0.9, False, id="HM is better in one panel"),
    ],
)
def test_three_outputs_is_not_good_where_hm_is_better(error_of_hm, holds):
    """At the smallest epsilon of two tables. HM is as good as Three-Outputs with the other one."""
    rows = []
    for panel, of_hm in (("one", 1.0), ("other", error_of_hm)):
        errors = {"laplace": 9, "duchi": 2, "pm": 2, "hm": of_hm, "three-outputs": 1, "pm-sub": 2}
        for curve, error in errors.items():
            row = {"panel": panel, "epsilon": 0.5, "curve": curve}
            rows.append({**row, "squared_error": float(error)})
    check = experiments.figures("zhao")["6"].statements[
        "Three-Outputs is better at a small epsilon"
    ]
    assert check(rows).holds is holds


@pytest.mark.parametrize(("error", "are_similar"), [(1.001, True), (1.02, False), (0.98, False)])
def test_errors_with_discrete_outputs_are_similar_within_1_percent(error, are_similar):
    check = experiments.figures("zhao")["11"].statements[
        "errors with 2,001 outputs are similar to those before rounding, within 1 %"
    ]
    row = {"curve": "pm", "squared_error": error, "continuous_error": 1.0}
    assert check([row]).holds is are_similar


@pytest.mark.parametrize("number", ["6", "7", "11"])
def test_a_quick_figure_of_means_has_all_cases(number):
    """It is exact, and takes no time."""
    figure = experiments.figures("zhao")[number]
    keys = [cell.key for cell in figure.cells(Options())]
    assert [cell.key for cell in figure.cells(Options(quick=True))] == keys
