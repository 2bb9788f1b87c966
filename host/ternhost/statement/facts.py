"""The facts that a privacy statement is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ternhost.extensions import StatementPart
from ternhost.privacy.guarantee import Bounds, Guarantee


class Kind(StrEnum):
    """What a statement is about."""

    RUN = "run"
    PLAN = "plan"  # a run that has not begun
    STORE = "store"
    BOARD = "board"


@dataclass(frozen=True)
class ReportFormat:
    """The format of a kind of report that devices send.

    card: the certified table from which a device draws each value at random. values: the number of
    values in a report. size: the bytes of the frame in which it is sent.
    """

    card: bytes
    values: int
    size: int


@dataclass(frozen=True)
class Holdings:
    """The data that devices hold, for the statement's example.

    device: the number of one device; None if none is known. records: the most records that a device
    holds; None if that is not known. data: the name of the data set; empty if the host does not
    know the records. features: the names of a few features of a record.
    """

    device: int | None = None
    records: int | None = None
    data: str = ""
    features: Sequence[str] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that the privacy statement of a run, a plan, a store or a board is written from.

    `gather` collects the facts, and `sentences` and `page` turn them into text.
    """

    # What the statement is about, and when it was made (in seconds since 1970).
    kind: Kind
    name: str
    made: float

    # What is protected: this many consecutive records, or the whole device (0).
    unit: int
    # The probability delta at which the guarantees hold.
    delta: float

    # What devices hold, and how the host reaches them: the word of a kind of fleet, such as "mqtt".
    holdings: Holdings = Holdings()
    fleet_kind: str = ""
    # Why there is no data of real people in it, as a sentence; empty if there may be some.
    why_not_real: str = ""

    # The guarantees of one report, of the run and of all runs so far, for each class of devices.
    promised: Sequence[Guarantee] = ()
    # What the devices' budgets guarantee for life, the largest budget first.
    budgets: Sequence[Guarantee] = ()
    # How many boards have not said what they spent since the store was restored from a copy.
    unheard_boards: int = 0
    # The bounds for all records of a device together, if a run of records is what is protected.
    all_records: Bounds | None = None
    # What extensions add to the statement.
    parts: Sequence[StatementPart] = ()

    # What devices report, and how many reports the run asks of one device at most (None: unknown).
    report_formats: Sequence[ReportFormat] = ()
    most_reports: int | None = None
    # Whether the run goes on without end.
    is_endless: bool = False
    # Whether reports are a model's answers about the records, and not made to train a model.
    reports_answers: bool = False
    # What the run collects, such as "means and frequencies", and of which attributes, as far as they
    # are known. Empty if it collects nothing.
    collects: str = ""
    attributes: Sequence[str] = ()

    # Whether bounds or categories of columns come from the records: those are published unprotected.
    has_computed_bounds: bool = False
    # Whether devices of different numbers of records get different questions.
    shows_record_counts: bool = False

    # Rows for the table of particulars, by their heading.
    particulars: Mapping[str, str] = field(default_factory=dict)

    @property
    def guarantees(self) -> list[Guarantee]:
        """All guarantees, those of extensions last."""
        guarantees = [*self.promised, *self.budgets]
        for part in self.parts:
            guarantees += part.guarantees
        return guarantees
