"""A mechanism of one's own, in one file: Duchi's two outputs, and a third one, 0, with a
probability that one chooses.

The `Mechanism` is the one thing that tern has to know. Here a program registers it; an installed
package does so with an entry point: [project.entry-points."tern.mechanisms"] quiet =
"own_mechanism:QUIET".
"""

import argparse
import math

import ternhost
from tern.card import T
from ternhost import FedSGD, Simulated
from ternhost.options import Option
from ternhost.privacy.base import Design, check_levels, checked, exp_bound, table
from ternhost.privacy.mechanisms import REGISTRY, Mechanism


def design(epsilon: int, levels: int | None = None, zero: float = 0.5) -> Design:
    """Return a Design of three outputs, -1, 0 and 1.

    epsilon: in millionths; zero: the probability of 0, whatever the input is. Raises UsageError.
    """
    check_levels(levels, 3, 3, 3)
    if not 0 < zero < 1:
        raise ternhost.UsageError(
            f"--zero must be above 0 and below 1, not {zero}", hint="such as --zero 0.5"
        )
    silent = round(zero * T)  # counts are in units of 1/T, exact integers
    wrong = math.ceil((T - silent) / (1 + exp_bound(epsilon)))
    right = T - silent - wrong
    rows = ((right, silent, wrong), (wrong, silent, right))  # at x = -1, and at x = 1
    # `checked` proves epsilon and the mean from these integers, or raises.
    return checked("quiet", epsilon, table((-1, 0, 1), rows), f"0 with probability {silent / T:g}")


QUIET = Mechanism(
    "quiet", design, (Option("zero", "the probability of the output 0", float, "P", default=0.5),)
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    args = parser.parse_args()

    REGISTRY.register("quiet", QUIET)  # from here on it has a name wherever mechanisms are named
    for probability in (0.1, 0.9):
        card = ternhost.design("quiet", epsilon=2, options={"zero": probability})
        print(f"a card of {len(card.data)} bytes: {', '.join(card.notes)}")
        learner = FedSGD(card=card, reports=args.clients)
        result = ternhost.train(learner, Simulated(args.clients))
        print(f"silent with probability {probability:g}: accuracy {result.accuracy:.4f}")
