"""Reports about whole gradients: their design for a class of devices, and their radius.

Specification: shared_specs/cards.md, projection.
"""

import math
from dataclasses import replace

from tern import card as cards
from ternhost.learn.designs import DeviceClass, ReportDesign
from ternhost.privacy import projection

NAME = "projection"
# The radius as a share of the length of a typical gradient. Half of the best one costs little,
# twice that much.
_SHORT = 0.6


def design(device_class: DeviceClass, values: int) -> ReportDesign:
    """The report of a class of devices about a vector of so many values, with a radius of 1.

    Its `variance` is that of a value of the mean vector. Raises UsageError.
    """
    made = projection.design(device_class.epsilon, values, 1.0)
    return ReportDesign(
        card=cards.decode(made.card),
        k=1,
        variance=made.variance,
        mechanism=NAME,
        epsilon=device_class.epsilon,
        share=device_class.share,
        what="vector",
    )


def with_radius(report: ReportDesign, values: int, radius: float) -> tuple[ReportDesign, int]:
    """The same report with vectors clipped to this radius, and the range of its question."""
    made = projection.design(report.card.epsilon, values, radius)
    return replace(report, card=cards.decode(made.card)), made.range


def radius(size: float, values: int) -> float:
    """The radius for gradients with coordinates of this mean size, if sizes are exponential."""
    return _SHORT * size * math.sqrt(2 * values)


def part(mechanism: str, k: int) -> str:
    """How many values a report of a mechanism is about, for people: "all", "3 of"."""
    return "all" if mechanism == NAME else f"{k} of"
