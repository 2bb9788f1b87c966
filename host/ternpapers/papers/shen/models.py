"""Figs. 3 to 6 of Shen et al.: models that clients train with PLDP-FL.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product

import numpy as np

from tern import frames
from ternhost.count.questions import report_bytes
from ternhost.datasets import Floats
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick, values_of
from ternpapers.base import Options, load
from ternpapers.figure import NON_PRIVATE, RUNS, Axis, Figure
from ternpapers.papers.shen.averaging import CHANGES, CLIENTS, WEIGHTS, Averaging, accuracies
from ternpapers.safe_ranges import EPSILONS, TAKEN, in_turn
from ternpapers.verdicts import Verdict, every, gained, relative_gains

_DATASET = "digits"  # stands in for MNIST
_SYMBOLS = 3  # of PDPM's reports
# Accuracies that differ by less are near each other: the text says "similar" and "equivalent",
# without a number.
_NEAR = 0.02
_EPSILON_CURVES = {mode: f"epsilon in mode {mode}" for mode in TAKEN}
_TAU_CURVES = {mode: f"safe ranges in mode {mode}" for mode in TAKEN}
_END = 5  # so many last rounds are the end of training, over which an accuracy is averaged


def _of_modes(epsilon: str, tau: str, gamma: float = 0.7, reported: str = WEIGHTS) -> Averaging:
    """Return a run with PDPM in these modes of epsilon and of the safe ranges.

    gamma, reported: as of `Averaging`.
    """
    return Averaging("pdpm", in_turn(epsilon, tau), gamma, reported)


def _cells(
    work: Callable[..., list[Row]], options: Options, paper_rounds: int, **choices: Iterable[object]
) -> list[Cell]:
    """Return a cell for each combination of the choices, on the data set of the options.

    work: what each cell calls, with the data set, the number of rounds, the seeds and a
    combination. paper_rounds: the number of rounds in the paper's figure. Raises UsageError if the
    data set does not name its classes.
    """
    source = options.data or _DATASET
    load(source, classes=True)  # raises if it names none
    rounds = 30
    if options.quick:
        rounds = 8
    elif options.in_full:
        rounds = paper_rounds
    # The paper only says "several" runs.
    common = {"source": source, "rounds": rounds, "seeds": options.seeds(20, quick=10, paper=30)}
    return Cell.for_each_combination(table=RUNS, work=work, common=common, cost=1.0, **choices)


# Fig. 3: the share of the clients in a round

_SHARES = (0.1, 0.3, 0.5, 0.7, 1.0)
_ENOUGH = 0.7  # the share from which on the paper sees a "relatively minor" difference
_LITTLE = 0.1
_BYTES, _AT_THE_END = "(a) bytes that all clients send", "(b) accuracy at the end"


def _shares(options: Options) -> list[Cell]:
    """Return the cells of Fig. 3, one for each share."""
    return _cells(_by_share, options, paper_rounds=50, gamma=_SHARES)


def _by_share(source: str, gamma: float, rounds: int, seeds: Sequence[int]) -> list[Row]:
    """Return the bytes that all clients send, and the accuracy at the end of each run.

    gamma: the share of the clients in a round. The text names no modes. Here epsilon is in mode 3,
    and the safe ranges are in mode 1.
    """
    data = load(source, classes=True)
    weights = data.dimension * len(data.classes)
    bytes_of_report = report_bytes(frames.packed_size(_SYMBOLS, weights))
    all_bytes = bytes_of_report * round(gamma * CLIENTS) * rounds
    common = {"curve": "pdpm", "gamma": gamma}
    rows: list[Row] = [{"panel": _BYTES, **common, "run": 0, "value": all_bytes}]
    for run, seed in enumerate(seeds):
        by_round = accuracies(source, _of_modes("3", "1", gamma), rounds, seed)
        value = float(np.mean(by_round[-_END:]))
        rows.append({"panel": _AT_THE_END, **common, "run": run, "value": value})
    return rows


def _bytes_are_linear(rows: Sequence[Row]) -> Verdict:
    """Test whether the bytes are the same multiple of every share."""
    factors = [row["value"] / row["gamma"] for row in pick(rows, panel=_BYTES)]
    return every(bool(np.isclose(factor, factors[0])) for factor in factors)


def _accuracies_by_share(rows: Sequence[Row]) -> dict[float, Floats]:
    """Return the accuracies of all runs, by the share of the clients."""
    by_share = {}
    for (gamma,), runs in grouped(pick(rows, panel=_AT_THE_END), "gamma").items():
        by_share[gamma] = np.array([row["value"] for row in runs])
    return by_share


def _more_clients_are_better(rows: Sequence[Row]) -> Verdict:
    """Test whether each share up to _ENOUGH gives better models than the one before it."""
    by_share = _accuracies_by_share(rows)
    steps = list(pairwise(gamma for gamma in by_share if gamma <= _ENOUGH))
    return every(
        gained(by_share[more] - by_share[fewer], cases=len(steps)) for fewer, more in steps
    )


def _the_last_clients_gain_little(rows: Sequence[Row]) -> Verdict:
    """Test whether the gain beyond the share _ENOUGH is less than _LITTLE of the gain before."""
    by_share = _accuracies_by_share(rows)
    before = by_share[_ENOUGH] - by_share[_SHARES[0]]
    beyond = by_share[_SHARES[-1]] - by_share[_ENOUGH]
    return Verdict(
        gained(_LITTLE * before - beyond),
        f"by {beyond.mean():.3f}, and before by {before.mean():.3f}",
    )


def _is_near(better_accuracies: Floats, accuracies: Floats) -> Verdict:
    """Test whether accuracies fall short of better ones of the same runs by less than _NEAR."""
    behind = better_accuracies - accuracies
    return Verdict(gained(_NEAR - behind), f"{behind.mean():.3f} behind on average")


# Figs. 4 to 6: models by round

_EPSILONS, _TAUS = "(a) modes of epsilon", "(b) modes of the safe ranges"
_OTHERS = "beside other methods"
_AS_ON_DEVICES = "ours: as tern's devices report"
_PLDP_FL, _PLU_FEDOA = "PLDP-FL", "PLU-FedOA"


@dataclass(frozen=True)
class _Setting:
    """A curve of models by round: its names in the figure, and how they are trained."""

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
        for mode, curve in _EPSILON_CURVES.items():
            averaging = _of_modes(mode, "1", reported=reported)
            settings.append(_Setting(_EPSILONS + heading, curve, averaging))
        for mode, curve in _TAU_CURVES.items():
            averaging = _of_modes("3", mode, reported=reported)
            settings.append(_Setting(_TAUS + heading, curve, averaging))
    return _cells(_by_round, options, paper_rounds=50, setting=settings)


def _combinations(options: Options) -> list[Cell]:
    """Return the cells of Fig. 5: a panel for each mode of epsilon, with those of safe ranges."""
    settings = []
    for (epsilon, panel), (tau, curve) in product(_EPSILON_CURVES.items(), _TAU_CURVES.items()):
        settings.append(_Setting(panel, curve, _of_modes(epsilon, tau)))
    return _cells(_by_round, options, paper_rounds=50, setting=settings)


def _other_methods(options: Options) -> list[Cell]:
    """Return the cells of Fig. 6: PLDP-FL, PLU-FedOA, which adds Laplace noise, and FedAvg.

    All clients have the safe range [-1, 1], and epsilon is in mode 2, also for PLU-FedOA. The text
    calls its setting case 2, without saying what that is.
    """
    choices = tuple((epsilon, 1.0) for epsilon in EPSILONS)
    settings = []
    for reported, panel in ((WEIGHTS, _OTHERS), (CHANGES, _AS_ON_DEVICES)):
        for curve, mechanism in ((_PLDP_FL, "pdpm"), (_PLU_FEDOA, "laplace"), (NON_PRIVATE, None)):
            averaging = Averaging(mechanism, choices, reported=reported)
            settings.append(_Setting(panel, curve, averaging))
    return _cells(_by_round, options, paper_rounds=100, setting=settings)


def _order(panels: Sequence[str], curves: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether in each panel each curve is better than the one before it."""
    gains_of_cases = []
    for panel, (worse, good) in product(panels, pairwise(curves)):
        of_panel = pick(rows, panel=panel)
        gains_of_cases.append(relative_gains("accuracy", good, worse, of_panel, larger=True))
    return every(gained(gains, cases=len(gains_of_cases)) for gains in gains_of_cases)


def _accuracy_rises(rows: Sequence[Row]) -> Verdict:
    """Test whether each curve of the paper's panels is higher at the end than after one round."""
    gains_of_curves = []
    for panel in (_EPSILONS, _TAUS):
        of_panel = pick(rows, panel=panel)
        for curve in values_of(of_panel, "curve"):
            first_round = pick(of_panel, curve=curve, round=1)
            at_first = np.array([row["accuracy"] for row in first_round])
            gains_of_curves.append(_at_the_end(curve, of_panel) - at_first)
    return every(gained(gains, cases=len(gains_of_curves)) for gains in gains_of_curves)


def _at_the_end(curve: str, rows: Sequence[Row]) -> Floats:
    """Return the accuracies of all runs at the end of a curve. rows: those of its panel."""
    at_the_end = []
    for runs in grouped(pick(rows, curve=curve), "run").values():
        at_the_end.append(np.mean([row["accuracy"] for row in runs[-_END:]]))
    return np.array(at_the_end)


def _large_epsilons_are_better(rows: Sequence[Row]) -> Verdict:
    """Test whether mode 3 of epsilon gives better models than mode 1."""
    least, _, largest = _EPSILON_CURVES.values()
    return _order([_EPSILONS], [least, largest], rows)


def _all_epsilons_are_near_the_largest(rows: Sequence[Row]) -> Verdict:
    """Test whether mode 2 of epsilon is near mode 3 at the end."""
    of_panel = pick(rows, panel=_EPSILONS)
    _, all_epsilons, largest = _EPSILON_CURVES.values()
    return _is_near(_at_the_end(largest, of_panel), _at_the_end(all_epsilons, of_panel))


def _small_ranges_are_better(panels: Iterable[str]) -> Callable[[Sequence[Row]], Verdict]:
    """Return a check whether in each panel smaller safe ranges give better models."""
    largest_first = tuple(reversed(_TAU_CURVES.values()))
    return partial(_order, tuple(panels), largest_first)


def _large_epsilons_are_better_at_each_range(rows: Sequence[Row]) -> Verdict:
    """Test for each mode of the safe ranges whether larger epsilons give better models.

    The panels of Fig. 5 are the modes of epsilon; here they take the place of the curves.
    """
    swapped = [{**row, "panel": row["curve"], "curve": row["panel"]} for row in rows]
    return _order(tuple(_TAU_CURVES.values()), tuple(_EPSILON_CURVES.values()), swapped)


def _better_than_laplace(rows: Sequence[Row]) -> Verdict:
    """Test whether PLDP-FL gives better models than PLU-FedOA."""
    return _order([_OTHERS], [_PLU_FEDOA, _PLDP_FL], rows)


def _near_fedavg(rows: Sequence[Row]) -> Verdict:
    """Test whether PLDP-FL is near FedAvg without privacy at the end."""
    of_panel = pick(rows, panel=_OTHERS)
    return _is_near(_at_the_end(NON_PRIVATE, of_panel), _at_the_end(_PLDP_FL, of_panel))


_ROUND = Axis("round", "round")
_ACCURACY = Axis("accuracy", "accuracy on held-out records", larger=True)
_NEEDS_NETWORK = "needs the convolutional network of the paper"
_NO_NUMBER = "the text does not say how high"

FIGURES = {
    "3": Figure(
        title="share of the clients in a round: bytes and accuracy",
        x=Axis("gamma", "gamma, the share of the clients"),
        y=Axis("value", "accuracy on held-out records", larger=True),
        cells=_shares,
        statements={
            "(a) the bytes are linear in gamma": _bytes_are_linear,
            f"(b) the accuracy grows with gamma up to {_ENOUGH}": _more_clients_are_better,
            f"(b) beyond gamma {_ENOUGH} the accuracy grows by less than a tenth as much": (
                _the_last_clients_gain_little
            ),
        },
        y_labels={_BYTES: "bytes"},
    ),
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
        untold={"(b) the accuracy is reasonably high in all modes of safe ranges": _NO_NUMBER},
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
                _small_ranges_are_better(_EPSILON_CURVES.values())
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
        },
        untold={
            "PLDP-FL comes to 97.5 %, and PLU-FedOA to 90.3 %": _NEEDS_NETWORK,
            "PLDP-FL has converged after 100 rounds": _NEEDS_NETWORK,
        },
    ),
}
