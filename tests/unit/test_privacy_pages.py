"""The numbers of the pages about units, epsilon and readers are what tern computes."""

import math
import re
from pathlib import Path

import pytest

import ternhost
from tern import ledger
from ternhost.privacy import cards, gaussian_curve, shuffling, sums
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import Bounds, Guarantee

GUIDES = Path(__file__).parents[2] / "docs/guides"
MICRO = 1_000_000
DELTA = 1e-6
HOURS_OF_A_YEAR = 8766
A_RECORD = 1
REPORTS_EPSILON = 0.5  # of a report in the table of budgets
ONE_IN_THE_SECOND_DIGIT = 1.1  # the most by which a number of two digits is rounded up


def rows_below(page, column):
    """The rows of the table of a page whose header has this column, as lists of numbers; a cell
    that begins with no number is None.
    """
    lines = (GUIDES / page).read_text().splitlines()
    (header,) = [at for at, line in enumerate(lines) if f"| {column} |" in line]
    rows = []
    for line in lines[header + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([number(cell) for cell in line[1:-1].split("|")])
    return rows


def number(cell):
    """The number at the beginning of a cell, such as 2981 of "2,981 times"."""
    found = re.match(r" (?:epsilon )?(\d[\d.,]*(?:e-\d+)?)", cell)
    return float(found[1].replace(",", "")) if found else None


def is_rounded_up(stated, exact):
    """Whether a number is rounded up, by at most 1 percent."""
    return exact * (1 - 1e-9) <= stated <= 1.01 * exact


def is_rounded_down(stated, exact):
    """Whether a number is rounded down, by at most 1 percent."""
    return 0.99 * exact <= stated <= exact * (1 + 1e-9)


@pytest.mark.parametrize("row", rows_below("unit.md", "an event in two units"))
def test_the_epsilons_of_a_budget_in_rho_are_what_boards_state(row):
    """The columns: the budget; whether a record was there; what it says; an event in two."""
    budget, *stated = row
    rho = sums.rho_of(budget, DELTA)
    guarantee = Guarantee.of_budget(rho, ledger.RHO, A_RECORD, DELTA)
    exact = [guarantee.bounds, guarantee.content, guarantee.event]
    for cell, bounds in zip(stated, exact, strict=True):
        assert is_rounded_up(cell, bounds.epsilon)


@pytest.mark.parametrize("row", rows_below("unit.md", "if it counts rho at delta 1e-6"))
def test_the_epsilon_of_hourly_reports_for_a_year_is_what_a_ledger_can_pay(row):
    """The columns: the budget; epsilon of a report if the ledger counts epsilon; if rho."""
    budget, of_epsilon, of_rho = row
    assert is_rounded_down(of_epsilon, budget / HOURS_OF_A_YEAR)
    rho_of_report = sums.rho_of(budget, DELTA) // HOURS_OF_A_YEAR
    assert is_rounded_down(of_rho, sums.pure_of(rho_of_report) / MICRO)


@pytest.mark.parametrize("row", rows_below("epsilon.md", "odds change by at most"))
def test_what_an_epsilon_means_for_odds_and_beliefs_follows_from_bayes_rule(row):
    """The columns: epsilon; the factor of the odds; what beliefs of 50 %, 10 % and 1 % become."""
    epsilon, factor, *stated = row
    assert is_rounded_up(factor, math.exp(epsilon)) or factor == round(math.exp(epsilon), 2)
    for belief, percent in zip((0.5, 0.1, 0.01), stated, strict=True):
        odds = belief / (1 - belief) * math.exp(epsilon)
        assert is_rounded_up(percent, 100 * odds / (1 + odds))


@pytest.mark.parametrize("row", rows_below("epsilon.md", "reports at epsilon 0.5"))
def test_a_budget_pays_for_so_many_reports(row):
    budget, reports, *_ = row
    assert reports == budget / REPORTS_EPSILON


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", rows_below("trust.md", "reports mixed"))
def test_mixed_reports_have_the_central_epsilon_that_is_stated(row):
    """The columns: local epsilon; reports; central epsilon of Three-Outputs, of any mechanism."""
    local, reports, of_card, of_any = row
    card = cards.decode(ternhost.design("three-outputs", local).data)
    bounds = shuffling.account(round(local * MICRO), int(reports), DELTA, card)
    assert is_rounded_up(of_card, bounds.card)
    assert is_rounded_up(of_any, bounds.any_mechanism)


@pytest.mark.parametrize("row", rows_below("accounting.md", "epsilon of Theorem 6"))
def test_odds_exceed_what_is_stated_with_the_probability_that_is_stated(row):
    """The columns: the budget's epsilon and the probability that odds change by more; the smaller
    epsilon of sums with Gaussian noise, and that probability.
    """
    budget, above_budget, smaller, above_smaller = row
    rho = sums.rho_of(budget, DELTA)
    of_sums = Bounds.of({ReportKind(rho, gaussian=True, normal=rho): 1}, DELTA)
    assert is_rounded_up(smaller, of_sums.epsilon)
    # Odds grow by more than the factor, or shrink by more.
    above = gaussian_curve.exceeded(rho, budget) * (1 + math.exp(-budget))
    assert above <= above_budget <= above * ONE_IN_THE_SECOND_DIGIT
    assert of_sums.exceeded <= above_smaller <= of_sums.exceeded * ONE_IN_THE_SECOND_DIGIT
