"""One report about a whole vector of limited length: a direction near it (`privacy.projection`)."""

from ternhost import words
from ternhost.options import Option
from ternhost.privacy import projection
from ternhost.privacy.base import Design, check_levels
from ternhost.privacy.mechanism import Mechanism, untried


def design(epsilon: int, levels: int | None = None, d: int = 32, radius: float = 1.0) -> Design:
    """Return the card of the projection of the least variance at epsilon (in millionths).

    levels: None, or the number of outputs, which follows from d: two for each dimension. d: how
    many coordinates a vector has. radius: the length to which vectors are clipped. Raises
    UsageError.
    """
    outputs = 2 * projection.size_of(d)
    check_levels(levels, default=outputs, least=outputs, most=outputs)  # raises for another number
    chosen = projection.design(epsilon, d, radius)
    notes = (
        "its symbols stand for directions, turned anew for each question; they are decoded and added up as vectors",
        f"for a question of range {chosen.range}: vectors are clipped to {chosen.radius:g}",
    )
    return Design("projection", epsilon, chosen.card, notes)


_D = Option("d", words.HELP["d"], int, "D", default=32)
_RADIUS = Option("radius", "length to which vectors are clipped", float, "R", default=1.0)
PROJECTION = Mechanism(
    "projection",
    design,
    (_D, _RADIUS),
    tries=untried,
    single_valued=False,
    about="one report about a whole vector: a direction near it",
)
