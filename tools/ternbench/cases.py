"""The kinds of reports that the bench times.

Each is called a case: a mechanism, a model, and how many values are reported.
"""

from dataclasses import dataclass

from tern import card as cards
from tern import frames, wire
from ternhost.errors import UsageError
from ternhost.learn.models import projections
from ternhost.learn.one_answer.observations import DIRECTION
from ternhost.privacy import mechanisms, projection, sums

OVERHEAD: int = frames.end_of(wire.REPORT_FIELDS) + wire.TAG_BYTES
"""Bytes of a REPORT's header and tag."""

SUM = "gaussian"
"""The mechanism of a sum over records, which adds Gaussian noise."""

# What the request for a sum of records says. The device multiplies values by 2**_SUM_RANGE, and
# clips each record's vector to the radius. The last value of the sum is a tally, from which the
# host estimates how many records were clipped: a clipped record adds _SUM_CLIPPED to it, another
# one _SUM_KEPT. These are the numbers of a learner that clips to a radius of 0.5.
_SUM_RANGE = 4
_SUM_RADIUS = 0.5
_SUM_CLIPPED = 92
_SUM_KEPT = -36

# More of them take minutes to be written through the console of a board.
_MOST_RECORDS = 1000


@dataclass(frozen=True)
class Case:
    """A kind of report: k of the d coordinates of a model's gradient, or a sum over records.

    epsilon: the privacy loss of the whole report; for a sum it is rho, of zCDP. model: the model whose
    gradient is reported. records: how many the device holds; it reports the mean of all their
    gradients, or their sum. Raises UsageError if the numbers do not fit each other.
    """

    mechanism: str = "three-outputs"
    epsilon: str = "2"
    d: int = 28
    k: int = 1
    model: str = "logistic"
    records: int = 1

    def __post_init__(self) -> None:
        """Raise UsageError unless the report can have k of d coordinates."""
        if not 1 <= self.k <= self.d <= wire.MAX_DIMENSION:
            text = (
                f"--k must be 1 to --d, and --d at most {wire.MAX_DIMENSION}, "
                f"not {self.k} and {self.d}"
            )
            hint = "--d is how many coordinates there are, --k how many of them a device reports"
            raise UsageError(text, hint)
        if not 1 <= self.records <= _MOST_RECORDS:
            raise UsageError(f"--records must be 1 to {_MOST_RECORDS}, not {self.records}")
        if self.is_projection and self.k > 1:
            text = (
                "a projection reports one direction of all --d coordinates: "
                f"--k must be 1, not {self.k}"
            )
            raise UsageError(text, "leave out --k")

    @property
    def is_projection(self) -> bool:
        return self.mechanism == projections.NAME

    @property
    def is_sum(self) -> bool:
        return self.mechanism == SUM

    @property
    def label(self) -> str:
        """The kind of report in words, such as "three-outputs, 1 of 28, logistic"."""
        mechanism = self.mechanism
        if self.is_sum:
            mechanism += f" sum of {self.records} records"
        elif self.records > 1:
            mechanism += f" of {self.records} records"
        return f"{mechanism}, {projections.part_in_words(self.mechanism, self.k)} {self.d}, {self.model}"

    @property
    def values(self) -> int:
        """How many numbers a device randomizes: the coordinates, and for a sum a tally of its records."""
        return self.k + 1 if self.is_sum else self.k

    @property
    def report_bytes(self) -> int:
        """The size of the report's frame in bytes, before it is encoded by COBS for a serial port."""
        symbols = cards.decode(self.card).symbols
        return OVERHEAD + int(frames.packed_size(symbols, self.values))

    @property
    def range(self) -> int:
        """The exponent in the request: the device multiplies its values by 2**range.

        shared_specs/wire.md describes this field.
        """
        if self.is_projection:
            return self._projection().range
        if self.is_sum:
            return _SUM_RANGE
        return 0

    @property
    def card(self) -> bytes:
        """The card of the report: the certified table from which a device samples each value.

        A projection reports along one direction of all coordinates, and a sum adds up the vectors of
        several records; these have one card for the whole report. Any other report has k values,
        each sampled by itself from a card with an equal part of the report's epsilon.
        """
        if self.is_projection:
            return self._projection().card
        micro_epsilon = mechanisms.parse_epsilon(self.epsilon)
        if self.is_sum:
            plan = sums.SumPlan(
                cost=micro_epsilon,
                radius=_SUM_RADIUS,
                unit=1,  # one record is protected
                units=self.records,
                values=self.values,
                # What a record adds to the tally of clipped records.
                clipped=_SUM_CLIPPED,
                kept=_SUM_KEPT,
            )
            return sums.design(plan).card

        levels = None
        if self.mechanism.startswith("pm"):
            levels = 255  # the piecewise mechanisms need a number of output levels
        design = mechanisms.design(
            self.mechanism, levels=levels, epsilon_micro=micro_epsilon // self.k
        )
        return design.card

    def _projection(self) -> projection.ProjectionDesign:
        """Return the design of a report of one random direction in d coordinates."""
        micro_epsilon = mechanisms.parse_epsilon(self.epsilon)  # in millionths
        return projection.design(micro_epsilon, self.d, DIRECTION)
