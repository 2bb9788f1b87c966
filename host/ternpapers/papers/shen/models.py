"""Figs. 4 to 6 of Shen et al.: the accuracy of models that clients train, by round.

The paper trains a convolutional network on MNIST and Fashion-MNIST. Here softmax regression stands
in for it, on the data set `digits` or that of --data. `averaging` trains it, and
`ternpapers.safe_ranges` has the modes in which clients take their epsilon and their safe range.

In the paper clients report their weights. Figs. 4 and 6 also show clients that report, as tern's
devices do, by how much their weights have changed. The statements are about the paper's panels.

When clients report weights, the clipping of their safe ranges and the noise meet the whole model in
every round, and little of what the rounds before have learned is left. In most modes, softmax
regression comes as far in one round of such training as in many. When clients report changes, the
model keeps what it has learned.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from ternhost.datasets import Floats
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick, values_of
from ternpapers.base import Options
from ternpapers.figure import NON_PRIVATE, Axis, Figure
from ternpapers.papers.shen.averaging import CHANGES, WEIGHTS, Averaging, accuracies
from ternpapers.papers.shen.modes import EPSILON_CURVES, TAU_CURVES, pdpm_in_modes
from ternpapers.papers.shen.training_cells import END, cells_of_training
from ternpapers.safe_ranges import EPSILONS
from ternpapers.verdicts import Check, Verdict, every_gain, gained, relative_gains

# Accuracies that differ by less are near each other: the text says "similar" and "equivalent",
# without a number.
_NEAR = 0.02


# Panels.
_EPSILONS = "(a) modes of epsilon"
_TAUS = "(b) modes of the safe ranges"
OTHERS = "beside other methods"
_AS_ON_DEVICES = "ours: as tern's devices report"
# Curves.
_PLDP_FL = "PLDP-FL"
_PLU_FEDOA = "PLU-FedOA"


@dataclass(frozen=True)
class _Setting:
    """A curve of models by round.

    panel, curve: the names of its panel and of itself. averaging: how the models are trained.
    """

    panel: str
    curve: str
    averaging: Averaging


def _by_round(source: str, setting: _Setting, rounds: int, seeds: Sequence[int]) -> list[Row]:
    """Return the accuracy of the models of a curve after each round of each run."""
    rows: list[Row] = []
    for run, seed in enumerate(seeds):
        by_round = accuracies(source, setting.averaging, rounds, seed)
        for number, accuracy in enumerate(by_round, start=1):
            row = {"panel": setting.panel, "curve": setting.curve, "run": run, "round": number}
            rows.append({**row, "accuracy": accuracy})
    return rows


def _modes(options: Options) -> list[Cell]:
    """Return the cells of Fig. 4: the modes of epsilon, and those of the safe ranges.

    The text does not say in which mode the other choice is. Here it is mode 1 of the safe ranges,
    or mode 3 of epsilon.
    """
    settings = []
    for reported, heading in ((WEIGHTS, ""), (CHANGES, f", {_AS_ON_DEVICES}")):
        for mode, curve in EPSILON_CURVES.items():
            averaging = pdpm_in_modes(mode, "1", reported=reported)
            settings.append(_Setting(_EPSILONS + heading, curve, averaging))
        for mode, curve in TAU_CURVES.items():
            averaging = pdpm_in_modes("3", mode, reported=reported)
            settings.append(_Setting(_TAUS + heading, curve, averaging))
    return cells_of_training(_by_round, options, paper_rounds=50, setting=settings)


def _combinations(options: Options) -> list[Cell]:
    """Return the cells of Fig. 5: a panel for each mode of epsilon, with those of safe ranges."""
    settings = []
    for (epsilon, panel), (tau, curve) in product(EPSILON_CURVES.items(), TAU_CURVES.items()):
        settings.append(_Setting(panel, curve, pdpm_in_modes(epsilon, tau)))
    return cells_of_training(_by_round, options, paper_rounds=50, setting=settings)


def _other_methods(options: Options) -> list[Cell]:
    """Return the cells of Fig. 6: PLDP-FL, PLU-FedOA, which adds Laplace noise, and FedAvg.

    All clients have the safe range [-1, 1], and epsilon is in mode 2, also for PLU-FedOA. The text
    calls its setting case 2, without saying what that is.
    """
    choices = tuple((epsilon, 1.0) for epsilon in EPSILONS)
    settings = []
    for reported, panel in ((WEIGHTS, OTHERS), (CHANGES, _AS_ON_DEVICES)):
        for curve, mechanism in ((_PLDP_FL, "pdpm"), (_PLU_FEDOA, "laplace"), (NON_PRIVATE, None)):
            averaging = Averaging(mechanism, choices, reported=reported)
            settings.append(_Setting(panel, curve, averaging))
    return cells_of_training(_by_round, options, paper_rounds=100, setting=settings)


def _is_near(better_accuracies: Floats, accuracies: Floats) -> Verdict:
    """Test whether accuracies fall short of better ones of the same runs by less than _NEAR."""
    behind = better_accuracies - accuracies
    return Verdict(gained(_NEAR - behind), f"{behind.mean():.3f} behind on average")


def _order(panels: Sequence[str], curves: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether in each panel each curve is better than the one before it."""
    gains_of_cases: list[npt.ArrayLike] = []
    for panel, (worse, good) in product(panels, pairwise(curves)):
        of_panel = pick(rows, panel=panel)
        gains_of_cases.append(relative_gains("accuracy", good, worse, of_panel, larger=True))
    return every_gain(gains_of_cases)


def _accuracy_rises(rows: Sequence[Row]) -> Verdict:
    """Test whether each curve of the paper's panels is higher at the end than after one round."""
    gains_of_curves: list[npt.ArrayLike] = []
    for panel in (_EPSILONS, _TAUS):
        of_panel = pick(rows, panel=panel)
        for curve in values_of(of_panel, "curve"):
            first_round = pick(of_panel, curve=curve, round=1)
            at_first = np.array([row["accuracy"] for row in first_round])
            gains_of_curves.append(_at_the_end(curve, of_panel) - at_first)
    return every_gain(gains_of_curves)


def _at_the_end(curve: str, rows: Sequence[Row]) -> Floats:
    """Return the accuracies of all runs at the end of a curve. rows: those of its panel."""
    at_the_end = []
    for runs in grouped(pick(rows, curve=curve), "run").values():
        at_the_end.append(np.mean([row["accuracy"] for row in runs[-END:]]))
    return np.array(at_the_end)


def _large_epsilons_are_better(rows: Sequence[Row]) -> Verdict:
    """Test whether mode 3 of epsilon gives better models than mode 1."""
    least, _, largest = EPSILON_CURVES.values()
    return _order([_EPSILONS], [least, largest], rows)


def _all_epsilons_are_near_the_largest(rows: Sequence[Row]) -> Verdict:
    """Test whether mode 2 of epsilon is near mode 3 at the end."""
    of_panel = pick(rows, panel=_EPSILONS)
    _, all_epsilons, largest = EPSILON_CURVES.values()
    return _is_near(_at_the_end(largest, of_panel), _at_the_end(all_epsilons, of_panel))


def _small_ranges_are_better(panels: Iterable[str]) -> Check:
    """Return a check whether in each panel smaller safe ranges give better models."""
    largest_first = tuple(reversed(TAU_CURVES.values()))
    return partial(_order, tuple(panels), largest_first)


def _large_epsilons_are_better_at_each_range(rows: Sequence[Row]) -> Verdict:
    """Test for each mode of the safe ranges whether larger epsilons give better models.

    The panels of Fig. 5 are the modes of epsilon; here they take the place of the curves.
    """
    swapped = [{**row, "panel": row["curve"], "curve": row["panel"]} for row in rows]
    return _order(tuple(TAU_CURVES.values()), tuple(EPSILON_CURVES.values()), swapped)


def _all_epsilons_are_near_the_largest_at_each_range(rows: Sequence[Row]) -> Verdict:
    """Test for each mode of the safe ranges whether mode 2 of epsilon is near mode 3 at the end."""
    _, all_epsilons, largest = EPSILON_CURVES.values()
    shortfalls = []
    for curve in TAU_CURVES.values():
        best = _at_the_end(curve, pick(rows, panel=largest))
        shortfalls.append(best - _at_the_end(curve, pick(rows, panel=all_epsilons)))
    verdict = every_gain([_NEAR - shortfall for shortfall in shortfalls])
    farthest = max(shortfall.mean() for shortfall in shortfalls)
    return Verdict(verdict.holds, f"at most {farthest:.3f} behind on average")


def _better_than_laplace(rows: Sequence[Row]) -> Verdict:
    """Test whether PLDP-FL gives better models than PLU-FedOA."""
    return _order([OTHERS], [_PLU_FEDOA, _PLDP_FL], rows)


def _fedavg_is_best(rows: Sequence[Row]) -> Verdict:
    """Test whether FedAvg without privacy gives better models than both other methods."""
    of_panel = pick(rows, panel=OTHERS)
    gains: list[npt.ArrayLike] = []
    for name in (_PLDP_FL, _PLU_FEDOA):
        gains.append(relative_gains("accuracy", NON_PRIVATE, name, of_panel, larger=True))
    return every_gain(gains)


def _near_fedavg(rows: Sequence[Row]) -> Verdict:
    """Test whether PLDP-FL is near FedAvg without privacy at the end."""
    of_panel = pick(rows, panel=OTHERS)
    return _is_near(_at_the_end(NON_PRIVATE, of_panel), _at_the_end(_PLDP_FL, of_panel))


_ROUND = Axis("round", "round")
_ACCURACY = Axis("accuracy", "accuracy on held-out records", larger=True)
_NEEDS_NETWORK = "needs the convolutional network of the paper"
_NO_NUMBER = "the text does not say how high"

FIGURES = {
    "4": Figure(
        title="accuracy by round: modes of epsilon, and of the safe ranges",
        x=_ROUND,
        y=_ACCURACY,
        cells=_modes,
        statements={
            "the accuracy rises with the rounds": _accuracy_rises,
            "(a) mode 3 of epsilon is better than mode 1": _large_epsilons_are_better,
            f"(a) mode 2 of epsilon is less than {_NEAR} behind mode 3 at the end": (
                _all_epsilons_are_near_the_largest
            ),
            "(b) smaller safe ranges are better": _small_ranges_are_better([_TAUS]),
        },
        untold={
            "(b) the accuracy is reasonably high in all modes of safe ranges": _NO_NUMBER,
            "with personal epsilons and safe ranges, little accuracy is lost": "the text does not say how much",
        },
    ),
    "5": Figure(
        title="accuracy by round: nine combinations of epsilon and safe ranges",
        x=_ROUND,
        y=_ACCURACY,
        cells=_combinations,
        statements={
            "larger epsilons are better in each mode of the safe ranges": (
                _large_epsilons_are_better_at_each_range
            ),
            "smaller safe ranges are better in each mode of epsilon": (
                _small_ranges_are_better(EPSILON_CURVES.values())
            ),
            f"mode 2 of epsilon is less than {_NEAR} behind mode 3 in each mode of the safe ranges": (
                _all_epsilons_are_near_the_largest_at_each_range
            ),
        },
        untold={
            "mode 1 of epsilon and of the safe ranges comes to a relatively high accuracy": _NO_NUMBER,
            "modes 2 and 3 of epsilon come to 95.7 and 97.9 % on MNIST": _NEEDS_NETWORK,
            "modes 2 and 3 of epsilon come to 79.2 and 85.6 % on Fashion-MNIST": _NEEDS_NETWORK,
        },
        columns=3,
    ),
    "6": Figure(
        title="accuracy by round: PLDP-FL, PLU-FedOA with Laplace noise, and FedAvg",
        x=_ROUND,
        y=_ACCURACY,
        cells=_other_methods,
        statements={
            "PLDP-FL is better than PLU-FedOA": _better_than_laplace,
            f"PLDP-FL is less than {_NEAR} behind FedAvg without privacy at the end": _near_fedavg,
            "FedAvg without privacy is better than PLDP-FL and PLU-FedOA": _fedavg_is_best,
        },
        untold={
            "PLDP-FL comes to 97.5 %, and PLU-FedOA to 90.3 %": _NEEDS_NETWORK,
            "PLDP-FL has converged after 100 rounds": _NEEDS_NETWORK,
        },
    ),
}
