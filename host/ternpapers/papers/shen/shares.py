"""Fig. 3 of Shen et al.: bytes and accuracy, by the share of the clients in a round."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tern import frames
from ternhost.count.questions import report_bytes
from ternhost.datasets import Floats
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick
from ternpapers.base import Options, load
from ternpapers.figure import Axis, Figure
from ternpapers.papers.shen.averaging import CLIENTS, accuracies
from ternpapers.papers.shen.modes import pdpm_in_modes
from ternpapers.papers.shen.training_cells import END, cells_of_training
from ternpapers.verdicts import Verdict, every, every_gain, gained

_SYMBOLS = 3  # of PDPM's reports
_SHARES = (0.1, 0.3, 0.5, 0.7, 1.0)
_ENOUGH = 0.7  # the share from which on the paper sees a "relatively minor" difference
_LITTLE = 0.1  # so large a part of the gain before it is a minor gain
# Panels.
BYTES = "(a) bytes that all clients send"
AT_THE_END = "(b) accuracy at the end"


def _shares(options: Options) -> list[Cell]:
    """Return the cells of Fig. 3, one for each share."""
    return cells_of_training(_by_share, options, paper_rounds=50, gamma=_SHARES)


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
    rows: list[Row] = [{"panel": BYTES, **common, "run": 0, "value": all_bytes}]
    for run, seed in enumerate(seeds):
        by_round = accuracies(source, pdpm_in_modes("3", "1", gamma), rounds, seed)
        value = float(np.mean(by_round[-END:]))
        rows.append({"panel": AT_THE_END, **common, "run": run, "value": value})
    return rows


def _bytes_are_linear(rows: Sequence[Row]) -> Verdict:
    """Test whether the bytes are the same multiple of every share."""
    factors = [row["value"] / row["gamma"] for row in pick(rows, panel=BYTES)]
    return every(bool(np.isclose(factor, factors[0])) for factor in factors)


def _accuracies_by_share(rows: Sequence[Row]) -> dict[float, Floats]:
    """Return the accuracies of all runs, by the share of the clients."""
    by_share = {}
    for (gamma,), runs in grouped(pick(rows, panel=AT_THE_END), "gamma").items():
        by_share[gamma] = np.array([row["value"] for row in runs])
    return by_share


def _more_clients_are_better(rows: Sequence[Row]) -> Verdict:
    """Test whether each share up to _ENOUGH gives better models than the one before it."""
    by_share = _accuracies_by_share(rows)
    shares = [gamma for gamma in by_share if gamma <= _ENOUGH]
    return every_gain([by_share[more] - by_share[fewer] for fewer, more in pairwise(shares)])


def _the_last_clients_gain_little(rows: Sequence[Row]) -> Verdict:
    """Test whether the gain beyond the share _ENOUGH is less than _LITTLE of the gain before."""
    by_share = _accuracies_by_share(rows)
    before = by_share[_ENOUGH] - by_share[_SHARES[0]]
    beyond = by_share[_SHARES[-1]] - by_share[_ENOUGH]
    return Verdict(
        gained(_LITTLE * before - beyond),
        f"by {beyond.mean():.3f}, and before by {before.mean():.3f}",
    )


FIGURE = Figure(
    title="share of the clients in a round: bytes and accuracy",
    x=Axis("gamma", "gamma, the share of the clients"),
    y=Axis("value", "accuracy on held-out records", larger=True),
    cells=_shares,
    statements={
        "(a) the bytes are linear in gamma": _bytes_are_linear,
        f"(b) the accuracy grows with gamma up to {_ENOUGH}": _more_clients_are_better,
        f"(b) beyond gamma {_ENOUGH} the accuracy grows by less than a tenth as much as before": (
            _the_last_clients_gain_little
        ),
    },
    y_labels={BYTES: "bytes"},
)
