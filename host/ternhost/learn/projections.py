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
    """Design a report that is about a whole vector, such as a gradient, at once.

    Devices clip the vector to the norm 1, and report one symbol, which stands for a random
    direction near it. The design's `variance` is that of each value of the mean vector, for one
    report.

    device_class: the devices, which share an epsilon.
    values: the number of values in the vector.
    Raises UsageError.
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
    """Return the same design for vectors that devices clip to another norm, the radius.

    values: the number of values in the vector.
    Also returns the range r of the question: devices multiply values by 2**r.
    """
    projected = projection.design(report.card.epsilon, values, radius)
    return replace(report, card=cards.decode(projected.card)), projected.range


def radius(size: float, values: int) -> float:
    """Return the norm to which devices should clip gradients.

    It is a share of a typical gradient's norm. If the sizes of coordinates are exponential with
    mean m, their mean square is 2 m**2, and the norm of d of them is about m sqrt(2 d).

    size: m, the mean absolute value of a coordinate.
    values: d, the number of coordinates.
    """
    return _SHORT * size * math.sqrt(2 * values)


def part_in_words(mechanism: str, k: int) -> str:
    """Say how many values a report of a mechanism is about, for people: "all", or "3 of"."""
    if mechanism == NAME:
        return "all"
    return f"{k} of"
