"""Reports about whole gradients (cards.md, projection): their design for a class of devices, and
their radius.
"""

import math
from dataclasses import replace

from tern import card as cards
from ternhost.learn.designs import ReportDesign
from ternhost.privacy import projection
from ternhost.privacy.base import parse_epsilon

NAME = "projection"
# Of the length of a typical gradient: half of the best radius costs little, twice that much.
_SHORT = 0.6


def designed(epsilon: str, values: int, share: float = 1.0) -> ReportDesign:
    """The report of a class of devices.

    `variance`: of a coordinate of a mean with a radius of 1. Raises UsageError.
    """
    micro = parse_epsilon(epsilon)
    made = projection.design(micro, values, 1.0)
    return ReportDesign(
        cards.decode(made.card), 1, made.variance, NAME, micro, share, what="vector"
    )


def part(mechanism: str, k: int) -> str:
    """How many values a report of a mechanism is about, for people: "all", "3 of"."""
    return "all" if mechanism == NAME else f"{k} of"


def asked(design: ReportDesign, values: int, radius: float) -> tuple[ReportDesign, int]:
    """The same report with vectors clipped to this radius, and the range of its question."""
    made = projection.design(design.card.epsilon, values, radius)
    return replace(design, card=cards.decode(made.card)), made.range


def radius(size: float, values: int) -> float:
    """The radius for gradients whose coordinates have this mean size, if the sizes are exponential."""
    return _SHORT * size * math.sqrt(2 * values)
