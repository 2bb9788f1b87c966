"""One report about a whole vector of limited length: a direction near it (`privacy.projection`)."""

from ternhost.options import Option
from ternhost.privacy import projection
from ternhost.privacy.base import Design, check_levels
from ternhost.privacy.mechanism import Mechanism, untried


def design(epsilon: int, levels: int | None = None, d: int = 32, radius: float = 1.0) -> Design:
    """The projection of the least variance for vectors of d coordinates, of at most this length."""
    outputs = 2 * projection.size_of(d)
    check_levels(levels, outputs, outputs, outputs)
    made = projection.design(epsilon, d, radius)
    notes = (
        "its symbols stand for directions, turned anew for each question; they are decoded and added up as vectors",
        f"for a question of range {made.range}: vectors are clipped to {made.radius:g}",
    )
    return Design("projection", epsilon, made.card, notes)


_D = Option("d", "number of coordinates of the vector", int, "D", default=32)
_RADIUS = Option("radius", "length to which vectors are clipped", float, "R", default=1.0)
PROJECTION = Mechanism("projection", design, (_D, _RADIUS), tries=untried, single_valued=False)
