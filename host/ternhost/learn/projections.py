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
    """Design a report about a whole vector, whose norm devices clip to 1.

    values: the number of values in the vector. The design's `variance` is that of the noise in each
    value of the mean vector, for one report. Raises UsageError.
    """
    projected = projection.design(device_class.epsilon, values, 1.0)
    return ReportDesign(
        card=cards.decode(projected.card),
        k=1,  # one symbol stands for a whole vector
        variance=projected.variance,
        mechanism=NAME,
        epsilon=device_class.epsilon,
        share=device_class.share,
        what="vector",
    )


def with_radius(report: ReportDesign, values: int, radius: float) -> tuple[ReportDesign, int]:
    """Return the same report with vectors clipped to this radius, and the range of its question.

    values: the number of values in the vector.
    """
    projected = projection.design(report.card.epsilon, values, radius)
    return replace(report, card=cards.decode(projected.card)), projected.range


def radius(size: float, values: int) -> float:
    """Return the radius of clipping for gradients whose coordinates have this mean size.

    values: the number of coordinates. If sizes are exponential with mean m, their mean square is
    2 m**2.
    """
    return _SHORT * size * math.sqrt(2 * values)


def part(mechanism: str, k: int) -> str:
    """Say how many values a report of a mechanism is about, for people: "all", or "3 of"."""
    if mechanism == NAME:
        return "all"
    return f"{k} of"
