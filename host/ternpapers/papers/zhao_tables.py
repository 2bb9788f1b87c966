"""Tables I and II of Zhao et al. 2021: the order of worst-case variances, by range of epsilon."""

from ternpapers.figure import Axis, Figure
from ternpapers.formula import OF_EPSILON, figure_of_formula
from ternpapers.orders import OF_EXISTING, OF_PROPOSED, borders, order_statements

_ROW = Axis("row", "row")
_ORDERS_OF_EXISTING = order_statements(
    ("1.29", "2.32"),
    ("duchi < pm < laplace", "pm < duchi < laplace", "pm < laplace < duchi"),
)
_ORDERS_OF_ALL = order_statements(
    ("0.69", "1.19", "1.29", "2.56", "3.27"),
    (
        "duchi = three-outputs < pm-sub < pm",
        "three-outputs < duchi < pm-sub < pm",
        "three-outputs < pm-sub < duchi < pm",
        "three-outputs < pm-sub < pm < duchi",
        "pm-sub < three-outputs < pm < duchi",
        "pm-sub < pm < three-outputs < duchi",
    ),
)

FIGURES: dict[str, Figure] = {
    "table-1": figure_of_formula(
        title="epsilons where the order of the existing mechanisms changes",
        x=_ROW,
        y=OF_EPSILON,
        rows=borders,
        statements=_ORDERS_OF_EXISTING,
        crossings=OF_EXISTING,
        with_parting=False,
    ),
    "table-2": figure_of_formula(
        title="epsilons where the order of existing and new mechanisms changes",
        x=_ROW,
        y=OF_EPSILON,
        rows=borders,
        statements=_ORDERS_OF_ALL,
        crossings=OF_PROPOSED,
        with_parting=True,
    ),
}
