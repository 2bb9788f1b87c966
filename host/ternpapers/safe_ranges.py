"""The safe ranges and epsilons that clients draw in the experiments of PLDP-FL.

Source: Shen et al., Entropy 2023, 25, 485. Clients draw their epsilon from one set of values and
tau, the half width of their safe range, from another, each value equally often. There a client
reports all d weights of the model, and the epsilon is that of one weight. So a report costs d times
as much, as `tern` counts it: for the 28 weights of `flights` up to 28.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import product

EPSILONS = tuple(f"{i / 10:g}" for i in range(1, 11))  # of a weight
TAUS = tuple(i / 5 for i in range(1, 11))
# By the paper's mode: the two lowest values, all, the two highest.
DRAWN = {"1": slice(2), "2": slice(None), "3": slice(-2, None)}


def epsilons(epsilon_mode: str, tau_mode: str, weights: int) -> str:
    """Return the classes of clients in two modes of the paper, as the option --epsilons has them.

    A report must have all weights: `k` is their number. Each pair of an epsilon and a tau is a
    class, and all classes are equally large.

    epsilon_mode, tau_mode: "1" to "3". weights: those of the model.
    """
    pairs = product(EPSILONS[DRAWN[epsilon_mode]], TAUS[DRAWN[tau_mode]])
    return of_pairs([(tau, Decimal(epsilon) * weights) for epsilon, tau in pairs])


def of_pairs(taus_and_epsilons: Sequence[tuple[float, Decimal | int]]) -> str:
    """Return equally large classes of clients as the option --epsilons has them.

    taus_and_epsilons: of each class, tau and the epsilon of a report.
    """
    share = 1 / len(taus_and_epsilons)
    return ",".join(f"{tau:g}:{epsilon}:{share!r}" for tau, epsilon in taus_and_epsilons)


# What clients may choose for themselves: classes of a report's epsilon, of tau, and of both.
SAME = of_pairs([(0.25, 8)])
BY_EPSILON = of_pairs([(0.25, 2), (0.25, 8), (0.25, 16)])
BY_TAU = of_pairs([(0.125, 8), (0.25, 8), (0.5, 8)])
BY_BOTH = of_pairs([(0.125, 2), (0.25, 8), (0.5, 16)])
