"""The errors of means of Zhao et al. 2021: Figs. 6, 7 and 11, exactly.

Section VIII-A gives d_n epsilon / d to the d_n numbers among d attributes, with every mechanism.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ternhost.datasets import Floats
from ternhost.planning.cells import Row
from ternhost.planning.statistics import grouped, pick
from ternpapers.comparison.contest import Contest
from ternpapers.comparison.means import GAUSSIANS, figure_of_means
from ternpapers.datasets import stand_ins
from ternpapers.figure import Figure
from ternpapers.verdicts import Check, Verdict

EXISTING = ("laplace", "duchi", "pm", "hm")
PROPOSED = ("three-outputs", "pm-sub", "hm-tp")
_MECHANISMS = (*EXISTING, *PROPOSED)
_TABLES = (stand_ins.TABLE, stand_ins.PATIENTS, stand_ins.TUMOURS)
_MARGIN = 1e-5  # relative: rounding to 2,001 outputs adds a tenth of this, and decides nothing
_SIMILAR = 0.01  # relative


def _errors(rows: Sequence[Row], names: Sequence[str]) -> Floats:
    """Return the errors of some mechanisms in each setting (mechanisms x settings)."""
    by_setting = grouped(rows, "panel", "epsilon").values()
    errors = []
    for rows_of_setting in by_setting:
        of_curves = {row["curve"]: row["squared_error"] for row in rows_of_setting}
        errors.append([of_curves[name] for name in names])
    return np.array(errors).T


def _ratios(rows: Sequence[Row], names: Sequence[str], others: Sequence[str]) -> Floats:
    """Return, for each setting, the least error of some mechanisms over that of the others."""
    return np.asarray(_errors(rows, names).min(axis=0) / _errors(rows, others).min(axis=0))


def _counts(ratios: Floats) -> tuple[int, int, int]:
    """Return in how many settings the first error is smaller, equal, and larger."""
    smaller, larger = int((ratios < 1 - _MARGIN).sum()), int((ratios > 1 + _MARGIN).sum())
    return smaller, len(ratios) - smaller - larger, larger


def _beats(name: str, others: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether a mechanism has smaller errors than all others in every setting."""
    smaller, equal, larger = _counts(_ratios(rows, (name,), others))
    if equal + larger == 0:
        return Verdict(True)
    detail = f"better in {smaller} of {smaller + equal + larger} cases, equal in {equal}"
    return Verdict(False, detail)


def _all_beat_existing(rows: Sequence[Row]) -> Verdict:
    """Test whether each of the proposed mechanisms beats the existing ones in every setting."""
    wins = {name: _ratios(rows, (name,), EXISTING) < 1 - _MARGIN for name in PROPOSED}
    by_all = np.logical_and.reduce([*wins.values()]).tolist()
    counts = ", ".join(f"{name} in {cases.sum()}" for name, cases in wins.items())
    detail = f"{counts}, all three in {sum(by_all)} of {len(by_all)} cases"
    return Verdict(all(by_all), detail)


def _best_beats_existing(rows: Sequence[Row]) -> Verdict:
    """Test whether the best of the proposed mechanisms beats the existing ones on the whole.

    It must not be worse in any setting, and better in one at least.
    """
    smaller, equal, larger = _counts(_ratios(rows, PROPOSED, EXISTING))
    detail = f"the best of them is better in {smaller} cases, equal in {equal}, worse in {larger}"
    return Verdict(smaller > 0 and larger == 0, detail)


def _pm_sub_beats_pm(rows: Sequence[Row]) -> Verdict:
    """Test whether PM-SUB has smaller errors than PM at the largest epsilon, 4."""
    largest = max(row["epsilon"] for row in rows)
    return _beats("pm-sub", ("pm",), pick(rows, epsilon=largest))


def _three_outputs_is_good(rows: Sequence[Row]) -> Verdict:
    """Test whether Three-Outputs is the best mechanism at the smallest epsilon, HM-TP apart.

    HM may have the same error: with so little epsilon for each number, both are Duchi's mechanism.
    """
    at_small = pick(rows, epsilon=min(row["epsilon"] for row in rows))
    verdict = _beats("three-outputs", ("laplace", "duchi", "pm", "pm-sub"), at_small)
    _, as_good_as_hm, worse_than_hm = _counts(_ratios(at_small, ("three-outputs",), ("hm",)))
    if worse_than_hm > 0:
        return Verdict(False, f"HM is better in {worse_than_hm} cases")
    if not verdict.holds or as_good_as_hm == 0:
        return verdict
    return Verdict(
        True, "better than Laplace, Duchi, PM and PM-SUB; HM is the same mechanism there"
    )


def _is_similar(rows: Sequence[Row]) -> Verdict:
    """Test whether errors with discrete outputs are those with continuous outputs, nearly."""
    differences = [row["squared_error"] / row["continuous_error"] - 1 for row in rows]
    largest = max(map(abs, differences))
    return Verdict(largest < _SIMILAR, f"they differ by at most {100 * largest:.1g} %")


_ALL_BEAT: dict[str, Check] = {
    "each of PM-SUB, Three-Outputs and HM-TP is better than Laplace, Duchi, PM and HM": (
        _all_beat_existing
    )
}
FIGURES: dict[str, Figure] = {
    "6": figure_of_means(
        "errors of means of numeric attributes",
        Contest(_MECHANISMS, _TABLES, {"split": (True,)}),
        statements={
            "HM-TP is better than Laplace, Duchi, PM and HM in all settings": partial(
                _beats, "hm-tp", EXISTING
            ),
            "PM-SUB is better than PM at a large epsilon, such as 4": _pm_sub_beats_pm,
            "Three-Outputs is better at a small epsilon": _three_outputs_is_good,
            "on the whole, the proposed mechanisms are better than the existing ones": (
                _best_beats_existing
            ),
        },
    ),
    "7": figure_of_means(
        "errors of means of 16 Gaussian numbers, or of those of --data",
        Contest(_MECHANISMS, GAUSSIANS),
        statements=_ALL_BEAT,
    ),
    "11": figure_of_means(
        "errors of means of numeric attributes, with 2,001 outputs",
        Contest(_MECHANISMS, _TABLES, {"split": (True,), "outputs": (2001,)}),
        statements={
            **_ALL_BEAT,
            "errors with 2,001 outputs are similar to those before rounding, within 1 %": _is_similar,
        },
    ),
}
