"""The models of Zhao et al. 2021: Figs. 8 to 10, and 12 to 15 with rounded outputs.

Fig. 10 of the paper leaves the curve of Laplace noise out, since its errors are larger. Here it is
drawn, so that this is checked.

The captions of Figs. 12 to 14 fix epsilon at 4, and that of Fig. 15 at 5. What their x axis is, the
text does not say. Since it says how errors change with the number of outputs, that number is taken
as x. The caption of Fig. 14 names linear regression alone, but the text logistic regression, too,
so that it has a panel for each.
"""

from functools import partial

from ternpapers.comparison.model_statements import (
    SIMILAR,
    better_at_each,
    better_with_most_outputs,
    falls,
    few_outputs_are_erratic,
    similar_with_most_outputs,
)
from ternpapers.comparison.models import (
    LINEAR,
    LOGISTIC,
    SVM,
    figure_of_models,
    figure_of_models_by_outputs,
    figure_of_several_models_by_outputs,
)
from ternpapers.figure import Figure
from ternpapers.papers.zhao_means import EXISTING, PROPOSED
from ternpapers.perturbing import WINDOWED
from ternpapers.verdicts import Check

_ROUNDED = tuple(WINDOWED)
_ALL_BEAT: dict[str, Check] = {
    "each of PM-SUB, Three-Outputs and HM-TP has smaller errors than each of Laplace, Duchi, PM "
    "and HM": partial(better_at_each, "epsilon", PROPOSED, EXISTING)
}
_NOT_LAPLACE = [name for name in (*EXISTING, *PROPOSED) if name != "laplace"]
_LAPLACE_IS_WORST: dict[str, Check] = {
    "Laplace noise has larger errors than every other mechanism": (
        partial(better_at_each, "epsilon", _NOT_LAPLACE, ("laplace",))
    )
}
_SIMILAR: dict[str, Check] = {
    f"errors with 2,001 outputs are similar to those before rounding, within {100 * SIMILAR:.0f} %": (
        similar_with_most_outputs
    )
}
FIGURES: dict[str, Figure] = {
    "8": figure_of_models(LOGISTIC, (*EXISTING, *PROPOSED), _ALL_BEAT),
    "9": figure_of_models(SVM, (*EXISTING, *PROPOSED), _ALL_BEAT),
    "10": figure_of_models(LINEAR, (*EXISTING, *PROPOSED), _ALL_BEAT | _LAPLACE_IS_WORST),
    "12": figure_of_models_by_outputs(LINEAR, _ROUNDED, 4.0, _SIMILAR),
    "13": figure_of_models_by_outputs(LOGISTIC, _ROUNDED, 4.0, _SIMILAR),
    "14": figure_of_several_models_by_outputs(
        (LOGISTIC, LINEAR),
        _ROUNDED,
        4.0,
        {
            "errors fall as the number of outputs grows": falls,
            "with three outputs, errors differ more between runs than with 2,001": few_outputs_are_erratic,
        },
    ),
    "15": figure_of_models_by_outputs(
        SVM,
        ("pm-sub", "three-outputs"),
        5.0,
        {
            "PM-SUB has smaller errors than Three-Outputs if the number of outputs is large": (
                partial(better_with_most_outputs, "pm-sub", "three-outputs")
            ),
            **_SIMILAR,
        },
    ),
}
