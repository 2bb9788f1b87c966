"""The reports that the bench times: a mechanism, a model, and how many values are reported."""

from dataclasses import dataclass

from tern import card as cards
from tern import frames, wire
from ternhost.errors import UsageError
from ternhost.learn import projections
from ternhost.learn.observations import DIRECTION
from ternhost.privacy import mechanisms, projection, sums

OVERHEAD: int = frames.end_of(wire.REPORT_FIELDS) + wire.TAG_BYTES
"""Bytes of a REPORT's header and tag."""

# What the question of a sum says of its values, as a learner that clips to a radius of 0.5.
_SUM_RANGE = 4
_SUM_RADIUS = 0.5
_SUM_CLIPPED = 92
_SUM_KEPT = -36


@dataclass(frozen=True)
class Case:
    """A report of k of d coordinates of a model's gradient, or of a sum over records.

    epsilon: of the whole report; rho for a sum. records: how many a sum adds up; 0: it is no sum.
    Raises UsageError.
    """

    mechanism: str = "three-outputs"
    epsilon: str = "2"
    d: int = 28
    k: int = 1
    model: str = "logistic"
    records: int = 0

    def __post_init__(self) -> None:
        """Raise UsageError if the numbers of coordinates do not go together."""
        if not 1 <= self.k <= self.d <= wire.MAX_DIMENSION:
            text = (
                f"--k must be 1 to --d, and --d at most {wire.MAX_DIMENSION}, "
                f"not {self.k} and {self.d}"
            )
            hint = "--d is how many coordinates there are, --k how many of them a device reports"
            raise UsageError(text, hint)
        if self.is_projection and self.k > 1:
            text = (
                "a projection tells one direction of all --d coordinates: "
                f"--k must be 1, not {self.k}"
            )
            raise UsageError(text, "leave out --k")

    @property
    def is_projection(self) -> bool:
        return self.mechanism == projections.NAME

    @property
    def label(self) -> str:
        """The case in words, for people."""
        mechanism = self.mechanism
        if self.records:
            mechanism += f" sum of {self.records} records"
        return f"{mechanism}, {projections.part_in_words(self.mechanism, self.k)} {self.d}, {self.model}"

    @property
    def values(self) -> int:
        """How many values the report has: the coordinates, and the tally of a sum."""
        return self.k + 1 if self.records else self.k

    @property
    def report_bytes(self) -> int:
        """The bytes of a REPORT, before COBS."""
        symbols = cards.decode(self.card).symbols
        return OVERHEAD + int(frames.packed_size(symbols, self.values))

    @property
    def range(self) -> int:
        """The range of the question, see shared_specs/wire.md."""
        if self.is_projection:
            return self._projection().range
        return _SUM_RANGE if self.records else 0

    @property
    def card(self) -> bytes:
        """The card of the report's values, which share the epsilon (or rho) of the report equally."""
        if self.is_projection:
            return self._projection().card
        micro_epsilon = mechanisms.parse_epsilon(self.epsilon)
        if self.records:
            plan = sums.SumPlan(
                cost=micro_epsilon,
                radius=_SUM_RADIUS,
                unit=1,
                units=self.records,
                values=self.values,
                clipped=_SUM_CLIPPED,
                kept=_SUM_KEPT,
            )
            design = sums.design(plan)
            return design.card
        levels = 255 if self.mechanism.startswith("pm") else None
        micro_epsilon_of_value = micro_epsilon // self.k
        return mechanisms.design(
            self.mechanism, levels=levels, epsilon_micro=micro_epsilon_of_value
        ).card

    def _projection(self) -> projection.ProjectionDesign:
        return projection.design(mechanisms.parse_epsilon(self.epsilon), self.d, DIRECTION)
