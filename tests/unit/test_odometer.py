"""Why a number at delta about reports so far has a condition (docs/guides/accounting.md, Exact
composition): whoever chooses the number of reports by their content, and is then told the figure
for that number, exceeds delta.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from ternhost.privacy.composing import ReportKind, compose_exactly

EPSILON = 0.1  # of a report of randomised response
DELTA = 1e-6
MOST = 1000  # reports
TRUTH = math.exp(EPSILON) / (1 + math.exp(EPSILON))
GUIDE = (Path(__file__).parents[2] / "docs/guides/accounting.md").read_text()


def losses(reports):
    """The privacy losses of so many reports, by the number of true ones."""
    return EPSILON * (2 * np.arange(reports + 1) - reports)


def delta_of(reports, epsilon):
    above = np.maximum(0, -np.expm1(epsilon - losses(reports)))
    return float(binom.pmf(np.arange(reports + 1), reports, TRUTH) @ above)


def figure(reports):
    """The epsilon of so many reports at DELTA."""
    largest = reports * EPSILON
    if delta_of(reports, 0.999999 * largest) > DELTA:
        return largest
    return brentq(lambda epsilon: delta_of(reports, epsilon) - DELTA, 0, largest)


@pytest.fixture(scope="module")
def figures():
    return [0.0, *(figure(reports) for reports in range(1, MOST + 1))]


@pytest.mark.parametrize("reports", [10, 100, 1000])
def test_the_figures_are_those_that_tern_states(reports, figures):
    assert compose_exactly({ReportKind(100_000): reports}, DELTA) == pytest.approx(
        figures[reports], rel=0.01
    )


def delta_of_best_rule(figures):
    """The largest sum over outcomes of what exceeds exp(figure), found backwards from the last
    report: after each report, a rule stops or goes on.
    """
    best = np.maximum(0, -np.expm1(figures[MOST] - losses(MOST)))
    for reports in range(MOST - 1, -1, -1):
        going_on = TRUTH * best[1:] + (1 - TRUTH) * best[:-1]
        stopping = np.maximum(0, -np.expm1(figures[reports] - losses(reports)))
        best = np.maximum(stopping, going_on)
    (delta,) = best
    return delta


def test_the_best_rule_for_stopping_exceeds_delta_as_the_guide_says(figures):
    true_delta = delta_of_best_rule(figures)
    assert true_delta > 10 * DELTA
    sentence = r"With the best such rule the true delta is ([\d.e-]+)"
    (stated,) = re.findall(sentence, " ".join(GUIDE.split()))
    assert float(stated) == pytest.approx(true_delta, rel=0.02)
