"""A mechanism of another package: Duchi's two outputs, with a larger probability of the wrong one
if wanted.
"""

import math

from tern.card import T
from ternhost.errors import UsageError
from ternhost.options import Option
from ternhost.privacy.base import Design, check_levels, checked, exp_bound, table
from ternhost.privacy.mechanism import Mechanism


def design(epsilon: int, levels: int | None = None, flip: float = 0.0) -> Design:
    check_levels(levels, 2, 2, 2)
    if not 0 <= flip < 0.5:
        raise UsageError(f"--flip must be 0 or more and less than 0.5, not {flip}")
    wrong = max(math.ceil(T / (1 + exp_bound(epsilon))), round(flip * T))
    card = table((-1, 1), ((T - wrong, wrong), (wrong, T - wrong)))
    return checked("flipped", epsilon, card, f"the wrong sign has probability {wrong / T:.4g}")


FLIPPED = Mechanism(
    "flipped",
    design,
    (Option("flip", "the least probability of the wrong sign", float, "P", default=0.0),),
    worst_variance=lambda epsilon: 1 / math.tanh(epsilon / 2) ** 2,
)
