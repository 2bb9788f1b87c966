"""Options of learning from one answer of each device."""

from dataclasses import dataclass
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.learn.models import public
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.learning import LearningOptions, to_learn
from ternhost.options import require

REPORTS = 20_000  # of a run, if nothing says how many devices there are
MOMENTS = 0.15  # share of the devices that report features, without public rows
THEN = ("auto", FedSGD.name, "none")


@dataclass(frozen=True)
class Options(LearningOptions):
    """Options of learning from one answer of each device.

    at_once: whether all devices answer in one round, as far as that is possible. It is not an
    option of the command: an extension may set it, for example to hide each answer among more
    others.
    """

    reports: int | None = to_learn(
        None,
        metavar="N",
        shown=f"one per device, else {REPORTS}",
    )
    public: str | int | Path = to_learn("", metavar=public.METAVAR, shown="those of the data set")
    share_of_positives: float | None = to_learn(
        None,
        "share of all records with label 1, if it is public (with --records)",
        metavar="SHARE",
        shown="by the labels of public rows, or asked",
    )
    moments: float | None = to_learn(
        None,
        "share of the devices that report features, in place of public rows",
        metavar="SHARE",
        shown=f"{MOMENTS} without public rows",
    )
    then: str = to_learn(
        "auto",
        "how the second half of the devices goes on: by descent, or not",
        choices=THEN,
    )
    ask_by_records: bool = to_learn(
        False, "ask devices by how many records each has, which questions then show"
    )
    at_once: bool = False

    def check(self) -> None:
        """Raise UsageError for options out of bounds, or that contradict each other."""
        require(self.reports is None or self.reports >= 1, "reports", "1 or more", self.reports)
        in_order = self.share_of_positives is None or 0 < self.share_of_positives < 1
        must = "above 0 and below 1"
        require(in_order, "share_of_positives", must, self.share_of_positives)
        in_order = self.moments is None or 0 <= self.moments < 1
        require(in_order, "moments", "0 or more and below 1", self.moments)
        require(self.then in THEN, "then", f"one of {', '.join(THEN)}", self.then)
        if self.moments is not None and self.public not in ("", "none"):
            raise UsageError(
                "--moments takes the place of public rows", "leave out --public, or --moments"
            )
