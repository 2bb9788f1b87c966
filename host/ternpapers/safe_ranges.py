"""The safe ranges and epsilons of the clients in the experiments of PLDP-FL.

Source: Shen et al., Entropy 2023, 25, 485. A client has an epsilon of each weight, and a safe range
of values, to which it clips. The paper names the *size* of a safe range: .2, .4, .. 2. tern's tau
is its half width, so that a range is [c - tau, c + tau] with the centre c, and the paper's size is
2 tau. In each of three modes, the clients take the values of a list in turn.

There a client reports all d weights of the model, and the epsilon is that of one weight. So a
report costs d times as much, as `tern` counts it: for the 28 weights of `flights` up to 28.
"""

import math
from decimal import Decimal

from ternhost.errors import UsageError

Choices = tuple[tuple[float, float], ...]
"""Pairs of an epsilon of a weight and a tau. The clients take the pairs in turn, see `choice_of`."""

EPSILONS = tuple(i / 10 for i in range(1, 11))  # of a weight
TAUS = tuple(i / 10 for i in range(1, 11))  # half widths of safe ranges of the sizes .2, .4, .. 2
# What the clients take in each mode of the paper: the two lowest values, all, the two highest.
TAKEN = {"1": slice(2), "2": slice(None), "3": slice(-2, None)}


def in_turn(epsilon_mode: str, tau_mode: str) -> Choices:
    """Return the epsilon and the tau that the clients take in two modes of the paper.

    The clients take the values of each mode one after the other, as the paper lists them, and begin
    again at the end. So in mode 2 of both, the least epsilon always comes with the least tau.

    epsilon_mode, tau_mode: "1" to "3". Raises UsageError for any other mode.
    """
    for mode in (epsilon_mode, tau_mode):
        if mode not in TAKEN:
            raise UsageError(f"there is no mode {mode!r}", f"one of: {', '.join(map(repr, TAKEN))}")
    epsilons, taus = EPSILONS[TAKEN[epsilon_mode]], TAUS[TAKEN[tau_mode]]
    pairs = []
    for client in range(math.lcm(len(epsilons), len(taus))):  # then they begin again
        pairs.append((epsilons[client % len(epsilons)], taus[client % len(taus)]))
    return tuple(pairs)


def choice_of(client: int, choices: Choices) -> tuple[float, float]:
    """Return the epsilon and the tau of the client of this number, from 0, if all take turns."""
    return choices[client % len(choices)]


def epsilons(epsilon_mode: str, tau_mode: str, weights: int) -> str:
    """Return the classes of clients in two modes of the paper, as the option --epsilons has them.

    A report must have all weights: `k` is their number. Each pair of an epsilon and a tau that the
    clients take is a class, and all classes are equally large.

    epsilon_mode, tau_mode: "1" to "3". weights: how many the model has. Raises UsageError for any
    other mode.
    """
    pairs = in_turn(epsilon_mode, tau_mode)
    share = 1 / len(pairs)
    classes = []
    for epsilon, tau in pairs:
        of_report = Decimal(str(epsilon)) * weights
        classes.append(f"{tau:g}:{of_report}:{share!r}")
    return ",".join(classes)
