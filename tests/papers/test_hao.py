"""The figures of Hao et al. 2023: reuse of reports, exact errors of means, and linear regression."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tern.fixed import ONE
from ternhost.datasets import Table, held_out
from ternhost.errors import UsageError
from ternhost.privacy import certify
from ternpapers import baseline, levels
from ternpapers.base import Options
from ternpapers.datasets import one_column_each
from ternpapers.mechanisms import lhp
from ternpapers.papers.hao import FIGURES, budgets, means, noise, records, regression
from ternpapers.perturbing import MECHANISMS

PAPERS_SHAPES = ("uniform", "Gaussian(0.3, 0.2)", "exponential(0.3)")
OTHER_SHAPES = ("Gaussian, mean -0.5", "Gaussian, mean 0", "Gaussian, mean 0.5", "power law")
LEAST = tuple(budgets.LEAST_RIVALS)

# Fig. 1: by how much the error is larger than at mu = 1, in per cent, over all units and shapes.
LARGER_ERRORS = {2: (2.87, 10.6), 3: (6.12, 11.2), 4: (4.46, 12.1), 5: (3.29, 28.6)}


def reused_rows():
    rows = []
    for unit, source in product(budgets.UNITS, (*PAPERS_SHAPES, *OTHER_SHAPES)):
        rows += means.reused(unit, source, seed=1)
    return rows


def test_the_error_of_a_mean_is_larger_at_each_mu_above_1():
    """Hao et al. let each report count mu times, converted to other levels."""
    rows = reused_rows()
    for mu, (least, most) in LARGER_ERRORS.items():
        larger = [100 * (row["over_mu_1"] - 1) for row in rows if row["mu"] == mu]
        assert min(larger) == pytest.approx(least, rel=5e-3)
        assert max(larger) == pytest.approx(most, rel=5e-3)


def test_that_a_larger_mu_is_more_accurate_is_not_so():
    (verdict,) = FIGURES["1"].verdicts(reused_rows()).values()
    assert verdict.holds is False


# Fig. 2


def rows_of_means(*sources):
    rows = []
    for unit, source in product(budgets.UNITS, sources):
        rows += means.compared(unit, source, seed=1)
    return rows


def over_hiera(rows, curve):
    """The errors of a curve, divided by HierA's at mu = 2, in the order of the rows."""
    of_curve = [row["error"] for row in rows if row["curve"] == curve]
    of_hiera = [row["error"] for row in rows if row["curve"] == "HierA (mu = 2)"]
    return [error / least for error, least in zip(of_curve, of_hiera, strict=True)]


@pytest.mark.parametrize(
    ("curve", "least", "most"),
    [
        ("graded Laplace", 1.02, 1.40),
        ("PM at the least budget", 1.40, 1.99),
        ("Harmony at the least budget", 1.52, 1.85),
    ],
)
def test_rivals_have_larger_errors_than_hiera_on_the_distributions_of_the_paper(curve, least, most):
    ratios = over_hiera(rows_of_means(*PAPERS_SHAPES), curve)
    assert (round(min(ratios), 2), round(max(ratios), 2)) == (least, most)


def test_graded_laplace_beats_hiera_where_most_values_are_low():
    ratios = over_hiera(rows_of_means("Gaussian, mean -0.5"), "graded Laplace")
    assert round(min(ratios), 2) == 0.62
    assert max(ratios) < 0.77


def test_at_its_true_epsilon_pm_has_at_most_a_third_of_the_error_of_hiera():
    rows = rows_of_means(*PAPERS_SHAPES, *OTHER_SHAPES)
    ratios = over_hiera(rows, "PM at HierA's true epsilon")
    assert (round(min(ratios), 2), round(max(ratios), 2)) == (0.07, 0.31)


def test_what_the_paper_says_about_errors_of_means_holds_on_its_distributions_alone():
    rows = rows_of_means(*PAPERS_SHAPES, *OTHER_SHAPES)
    verdicts = FIGURES["2"].verdicts(rows)
    not_so = [text for text, verdict in verdicts.items() if not verdict.holds]
    assert not_so == ["HierA beats graded Laplace on other values, too"]
    assert verdicts[not_so[0]].detail == "in 5 of 16 cases"
    assert "paper" in verdicts["HierA beats graded Laplace"].detail


def test_a_verdict_on_all_data_of_the_figure_has_no_detail_about_some_of_them():
    verdicts = FIGURES["2"].verdicts(rows_of_means(*PAPERS_SHAPES))
    assert verdicts["HierA beats graded Laplace"].detail == ""


def test_statements_are_about_the_only_data_that_are_drawn():
    verdicts = FIGURES["2"].verdicts(rows_of_means("Gaussian, mean -0.5"))
    assert [verdict.holds for verdict in verdicts.values()] == [True, False, None, False]


@pytest.mark.parametrize("number", ["1", "2"])
def test_an_exact_figure_refuses_runs(number):
    with pytest.raises(UsageError, match="exact"):
        FIGURES[number].cells(Options(runs=3))


@pytest.mark.parametrize(("mechanism", "epsilon"), [("pm", 0.5), ("duchi", 0.5), ("pm", 4.65)])
def test_the_exact_variance_of_a_mean_is_that_of_simulated_reports(mechanism, epsilon):
    values = np.array([-16_000, -3000, 0, 5000, ONE], np.int16)
    runs = 100_000
    repeated_values = np.tile(values / ONE, (runs, 1))
    reports = MECHANISMS[mechanism](epsilon)(repeated_values, baseline.generator(3))
    of_runs = reports.mean(axis=1)
    exact = means.variance_of_mean(mechanism, epsilon, values)
    assert of_runs.var() == pytest.approx(exact, rel=0.02)  # four standard errors
    assert abs(of_runs.mean() - values.mean() / ONE) < 4 * (exact / runs) ** 0.5


def test_the_exact_variance_of_a_mean_with_graded_laplace_noise_is_that_of_simulated_reports():
    card, runs = budgets.card_of(0.5), 100_000
    values = np.array([-16_000, -9000, 0, 5000, ONE], np.int16)
    x = np.tile(values / ONE, (runs, 1))
    reports = noise.graded_laplace(card, x, x, baseline.generator(3))
    exact = means.graded_laplace_variance(card, values)
    assert reports.mean(axis=1).var() == pytest.approx(exact, rel=0.03)


def test_the_age_is_taken_of_a_data_set_that_has_one():
    panel, values = means.values_of_source("diabetes", seed=1)
    assert panel == "diabetes: age"
    assert len(values) == 100_000, "442 patients, repeated"


def test_the_age_of_an_extract_is_taken_wherever_it_stands(tmp_path):
    path = tmp_path / "extract.csv"
    path.write_text("INCTOT,HRSWORK1,SEX,AGE\n9999999,40,1,50\n7000,20,2,25\n100,20,2,999\n")
    panel, values = means.values_of_source(f"ipums:{path}", seed=1)
    assert panel == f"ipums:{path}: AGE"
    assert values[:3].tolist() == [0, -ONE // 2, 0], "two persons have an age, one no income"


def test_an_extract_without_ages_is_refused(tmp_path):
    path = tmp_path / "extract.csv"
    path.write_text("INCTOT,SEX\n7000,2\n")
    with pytest.raises(UsageError, match="AGE"):
        FIGURES["1"].cells(Options(data=f"ipums:{path}"))


@pytest.mark.parametrize("number", ["1", "2", "3"])
def test_figures_are_about_the_named_data_set(number):
    for cell in FIGURES[number].cells(Options("diabetes", quick=True)):
        runs = cell.arguments.get("runs")
        name = runs.name if runs else cell.arguments["source"]
        assert name == "diabetes"


# The cost of a report


@pytest.mark.parametrize(("unit", "cost"), [(0.1, "0.972"), (0.5, "4.65"), (1.0, "9.04")])
def test_taking_the_level_of_another_number_costs_more(unit, cost):
    """Hao et al. choose a report's level by one number and its sign by another.

    The true privacy loss is then larger than for one number. By brute force: for each report
    (level and sign), the most and the least likely pair of numbers.
    """
    card = budgets.card_of(unit)
    assert lhp.budgets_of(card) == tuple(round(budget * unit * 1e6) for budget in (1, 2, 3, 4, 5))
    values = (-ONE, -5000, 0, 77, ONE)

    largest = Fraction(0)  # ratio of probabilities
    for (reported, value_card), sign in product(enumerate(card.body.value_cards), (0, 1)):
        likely = []
        for (level, level_card), value in product(enumerate(card.body.level_cards), values):
            of_level = certify.at_knot(level_card, level)[reported]
            likely.append(of_level * certify.distribution(value_card, value)[sign])
        largest = max(largest, Fraction(max(likely)) / Fraction(min(likely)))
    loss = budgets.loss_by_attribute(card)
    assert loss == pytest.approx(math.log(largest))
    assert f"{loss:.3g}" == cost
    assert loss > card.epsilon / 1e6  # the loss for one number


# Fig. 3


def test_reports_by_the_attribute_s_level_are_unbiased_and_less_noisy_for_a_low_attribute():
    """Hao et al. choose the noise level of a value by another attribute, of which low ones get the
    largest budget. For two attributes, the mean of the estimates is still the value, 0.3.
    """
    card, clients = budgets.card_of(0.5), 200_000
    values = np.full(clients, 0.3)
    spreads = []
    for attribute in (-0.9, 0.9):
        estimates = noise.by_attribute(
            card, values, np.full(clients, attribute), baseline.generator(6)
        )
        assert abs(estimates.mean() - 0.3) < 5 * estimates.std() / clients**0.5
        spreads.append(estimates.std())
    assert spreads[0] < spreads[1], "the lowest range has the largest budget"


def test_reports_in_training_have_the_variance_of_hiera_at_mu_2():
    """If a value is its own attribute, training and means have the same reports."""
    card, clients = budgets.card_of(1.0), 400_000
    values = np.full(clients, 5000, np.int16)
    x = values / ONE
    estimates = noise.by_attribute(card, x, x, baseline.generator(2))
    exact = float(levels.variance(card, values, mu=2)) * clients
    assert estimates.var() == pytest.approx(exact, rel=0.01)


def test_a_mean_gradient_is_that_of_the_squared_error_with_clipped_components():
    """Of two records of three features; each coordinate of the gradient is 2 (z - y) x."""
    x = np.array([[1.0, 0.5, -0.25], [1.0, -0.5, 0.75]])
    y, weights = np.array([0.1, -0.8]), np.array([0.2, 0.1, 0.0])
    records, copies = np.repeat(x, 100_000, axis=0), 100_000
    slopes = 2 * (x @ weights - y)
    expected = np.clip(slopes[:, None] * x, -1, 1).mean(axis=0)

    exact_reports = noise.mean_gradient(lambda values, *_: values, baseline.generator(1))
    estimated = exact_reports(records, np.repeat(y, copies), weights)
    assert estimated == pytest.approx(expected, abs=0.01)
    assert np.abs(slopes).max() > 1, "some components are clipped"


def test_models_of_figure_3_are_trained_with_the_paper_s_lambda_and_a_rate_that_decays(monkeypatch):
    trainings = []

    def recorded(training, data, *_):
        trainings.append(training)
        return np.zeros(data.dimension)

    monkeypatch.setattr(baseline, "descend", recorded)
    runs = records.Runs("synthetic-linear", folds=1, seed=1, most=20_000)
    regression.trained(1.0, budgets.HIERA, runs)
    (training,) = trainings
    assert (training.model, training.decays, training.regularisation) == ("linear", True, 1e-4)


def test_a_group_has_the_size_that_the_paper_names():
    assert regression.group_of(0.5, 16, 80_000) == math.ceil(16 * math.log(16) / 0.25)
    assert regression.group_of(0.01, 16, 80_000) == 80_000, "all that report"


def test_five_folds_hold_out_each_record_once():
    held = sum(records.fold("diabetes", index, seed=1).held_out for index in range(5))
    assert held.tolist() == [1] * 442


def test_a_further_five_folds_divide_the_records_anew():
    first, sixth = (records.fold("diabetes", index, seed=1).held_out for index in (0, 5))
    assert first.sum() == sixth.sum()
    assert (first != sixth).any()


def test_the_paper_s_size_is_ten_times_five_folds():
    cells = FIGURES["3"].cells(Options("diabetes", in_full=True))
    assert {cell.arguments["runs"].folds for cell in cells} == {50}


def test_a_table_has_a_column_for_each_category_and_one_for_ordered_ones():
    """Two numbers, one of which is the label; three colours; an ordered attribute of codes."""
    numbers = np.array([[10, 500], [20, -500], [30, 0]], np.int16)
    codes = np.array([[0, 0], [2, 1], [1, 2]], np.int16)
    names = ("red", "green", "blue"), ("1", "10", "2")  # codes in alphabetical order
    table = Table("three", ("age", "income"), numbers, ("colour", "school"), codes, names)
    data = one_column_each.regression(table, "income", ordered=("school",))
    colours = ["colour=red", "colour=green", "colour=blue"]
    assert data.feature_names == ("constant", "age", *colours, "school")
    assert data.labels.tolist() == [500, -500, 0]
    assert data.features.tolist() == [
        [ONE, 10, ONE, -ONE, -ONE, -ONE],
        [ONE, 20, -ONE, -ONE, ONE, ONE],  # 10, the last of three
        [ONE, 30, -ONE, ONE, -ONE, 0],  # 2, the middle one
    ]
    assert data.held_out.tolist() == held_out(3).tolist()


def test_the_income_of_an_extract_is_predicted_from_k_columns_for_k_categories(tmp_path):
    path = tmp_path / "extract.csv"
    path.write_text("AGE,SEX,EDATTAIN,INCTOT\n50,1,1,100\n25,2,4,7000\n75,2,3,0\n")
    data = records.dataset_of(f"ipums:{path}")
    assert data.feature_names == ("constant", "AGE", "SEX=1", "SEX=2", "EDATTAIN")
    assert data.features[:, -1].tolist() == [-ONE, ONE, 0], "consecutive numbers"


def errors_of(**errors):
    """Rows of three runs of each curve, whose squared error is this, almost without noise."""
    rows = []
    for curve, error in errors.items():
        for run, deviation in enumerate((0, 1e-6, 2e-6)):
            row = {"panel": "one", "unit": 1, "run": run}
            name = CURVES[curve]
            rows.append({**row, "curve": name, "squared_error": error + deviation * len(curve)})
    return rows


CURVES = {
    "hiera": budgets.HIERA,
    "laplace": budgets.LAPLACE,
    "pm": LEAST[0],
    "harmony": LEAST[1],
}


@pytest.mark.parametrize(
    ("laplace", "verdicts"), [(2, [True, True]), (0.5, [True, False]), (4, [False, True])]
)
def test_both_graded_methods_must_beat_both_others_and_hiera_the_other_graded_one(
    laplace, verdicts
):
    rows = errors_of(hiera=1, laplace=laplace, pm=3, harmony=4.5)
    told = FIGURES["3"].verdicts(rows).values()
    assert [verdict.holds for verdict in told] == verdicts
