"""Hao, Wu, Wan, Hierarchical Aggregation for Numerical Data under Local Differential Privacy.

Sensors 2023, 23, 1115.

HierA divides [-1, 1] into five ranges, the *levels*. Each has a budget: an epsilon of its own, from
the lowest range up 5 e, 4 e, 3 e, 2 e and e, where e is the *unit*. A report tells the level of a
value and a sign, both perturbed by that epsilon. The paper compares HierA with PM and Harmony at
the least of the budgets, and with Laplace noise at the budget of each value's own range. The latter
keeps no epsilon, since the scale of the noise reveals the range. We add PM and Harmony at the true
privacy loss of a report of HierA.

The paper uses each report mu = 2 times in its comparisons, and so do these figures.

In training, the paper takes the level from an attribute and the sign from the coordinate of the
gradient that belongs to it. Either may have any value, so a report costs more than level and sign
of one value: `budgets.loss_by_attribute`. Devices use a card that is certified for one value, and
take the level from the gradient itself (hiera.py). The experiment includes that variant, at its own
cost.
"""

from ternpapers.figure import Axis, Figure
from ternpapers.formula import figure_of_formula
from ternpapers.papers.hao import means, regression
from ternpapers.papers.hao.budgets import OF_UNIT, costs

_EPSILON = Axis("epsilon", "epsilon", log=True)

FIGURES: dict[str, Figure] = {
    "1": means.BY_MU,
    "2": means.COMPARED,
    "3": regression.COMPARED,
    "cost": figure_of_formula(
        "what a report costs, and what the paper states", OF_UNIT, _EPSILON, costs
    ),
}
