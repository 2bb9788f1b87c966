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
class Reported:
    """A kind of report: the card of its noise, its number of values, the bytes of its frame."""

    card: bytes
    values: int
    size: int


@dataclass(frozen=True)
class Held:
    """What devices hold.

    device: one of them, as an example; None: none is known. records: the most that a device holds;
    None: not known. data: the name of the data set; empty: the host does not know the records.
    features: the names of some.
    """

    device: int | None = None
    records: int | None = None
    data: str = ""
    features: Sequence[str] = ()


@dataclass(frozen=True)
class Facts:
    """What is known of a run, a plan, a store or a board.

    promised: the guarantees of a report, of the run, and of all runs so far, of each class of
    devices. budgets: what ledgers allow for life, the largest first. parts: what extensions say.
    link: how frames travel, as the word of a fleet. not_real: why no person's data is in it, or
    empty. most_reports: the most reports that the run asks of one device. together: the bounds for all
    records of a device, where a run of records is protected. results: reports are results of a
    model, not of learning. about: more that identifies it, by name.
    """

    kind: Kind
    name: str
    made: float  # seconds since 1970
    unit: int
    delta: float
    held: Held = Held()
    promised: Sequence[Guarantee] = ()
    budgets: Sequence[Guarantee] = ()
    parts: Sequence[StatementPart] = ()
    link: str = ""
    not_real: str = ""
    reported: Sequence[Reported] = ()
    most_reports: int | None = None
    endless: bool = False
    together: Bounds | None = None
    results: bool = False
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def guarantees(self) -> list[Guarantee]:
        """All guarantees, those of extensions last."""
        guarantees = [*self.promised, *self.budgets]
        for part in self.parts:
            guarantees += part.guarantees
        return guarantees
