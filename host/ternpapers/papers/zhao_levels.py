"""Our figure: how many outputs are enough for PM-SUB.

PM-SUB with few outputs is either a card of N levels, the table from which devices draw, or made
discrete by Algorithm 5 of Zhao et al. (2021). A card needs no rounding, since its window consists
of levels.
"""

import numpy as np

from tern.card import decode
from ternhost.planning.cells import Row
from ternhost.privacy import certify
from ternhost.privacy.mechanisms import design, piecewise
from ternpapers import laws
from ternpapers.comparison.contest import OUTPUTS
from ternpapers.figure import Axis
from ternpapers.formula import figure_of_formula

_NAME = "pm-sub"
_WINDOWS = {"card, paper's window": "paper", "card, best window": "best"}  # by curve
_LEVELS = (3, 5, 7, 11, 15, 31, 63, 127, 255)


def _ratios() -> list[Row]:
    """Return the worst-case variance of PM-SUB with few outputs, divided by that of continuous PM-SUB.

    There is a row for each epsilon, number of outputs, and way to have so few outputs.
    """
    inputs = np.linspace(0, 1, 101)
    rows = []
    for epsilon in (1.0, 4.0):
        continuous = piecewise.worst_variance(epsilon, piecewise.t_sub(epsilon))
        for levels in _LEVELS:
            worst_variances = {}
            for curve, window in _WINDOWS.items():
                worst_variances[curve] = _worst_variance_of_card(epsilon, levels, window)
            by_input = laws.variances(_NAME, epsilon, inputs, outputs=levels)
            worst_variances["Algorithm 5"] = float(by_input.max())
            panel = {"panel": f"epsilon {epsilon:g}", "outputs": levels}
            for curve, worst_variance in worst_variances.items():
                rows.append({**panel, "curve": curve, "ratio": worst_variance / continuous})
    return rows


def _worst_variance_of_card(epsilon: float, levels: int, window: str) -> float:
    """Return the worst-case variance of PM-SUB's card, exactly from its integers.

    window: how its window is chosen, "paper" or "best".
    """
    card = decode(design(_NAME, str(epsilon), levels, window=window).card)
    variance, _ = certify.moments(card).worst_variance()
    return float(variance)


FIGURE = figure_of_formula(
    title="worst-case variance over the continuous one, by outputs",
    x=OUTPUTS,
    y=Axis("ratio", "ratio of variances"),
    rows=_ratios,
)
