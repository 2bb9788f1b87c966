"""How many records a device has at most: a public number, the option --records of learners."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ternhost.datasets import Dataset, Indices, Table
from ternhost.datasets.holdings import MOST_RECORDS, counts_of_owners
from ternhost.options import OptionGroup, option, require
from ternhost.text import counted


def records_option(usual: int, group: str = "what to learn") -> Any:
    """Return the dataclass field that declares the option --records.

    usual: the number of records where neither the user nor the data say it. group: the heading
    under which the help lists the option.
    """
    shown = f"{usual}, or with --by the most that a device has"
    return option(None, group=group, metavar="N", shown=shown)


@dataclass(frozen=True)
class RecordsOptions(OptionGroup):
    """The most records of a device. It is public: everybody may know it.

    Where tern deals the records of a data set, each device gets that many. Where the data say which
    device has which records, a device keeps its first ones. Devices with records of their own only
    have the number stated.
    """

    usual_records: ClassVar[int] = 1  # where neither the user nor the data say the number

    records: int | None = records_option(usual_records)

    def check(self) -> None:
        """Raise UsageError for a number of records that no device can hold."""
        in_order = self.records is None or 1 <= self.records <= MOST_RECORDS
        require(in_order, "records", f"1 to {MOST_RECORDS}", self.records)

    @property
    def most_records(self) -> int:
        """The most records of a device, as far as it is known."""
        return self.records or self.usual_records

    def with_bound(self, data: Dataset | Table | None, positions: Indices) -> Self:
        """Return these options with the most records of a device in `records`.

        It is the number that the user named, else what the data have of a device, else the usual
        one. A usual number of 1 is left out: such devices may well have more records.

        data: what devices hold; None if only they know. positions: those of its records that
        devices hold. Raises UsageError for options that the number contradicts.
        """
        bound = bound_on_records(data, positions, self.records)
        if not bound and self.usual_records > 1:
            bound = self.usual_records
        if not bound:
            return self
        return replace(self, records=bound)


def bound_on_records(data: Dataset | Table | None, positions: Indices, named: int | None) -> int:
    """Return the most records of a device: the number that the user named, or that the data have.

    data: records with owners; None, or records without, have no such number: then it is 0.
    positions: those of the records that devices hold.
    """
    if named is not None:
        return named
    if data is None or data.owners is None:
        return 0
    most_of_an_owner = int(counts_of_owners(data, positions).max(initial=1))
    return min(most_of_an_owner, MOST_RECORDS)


def bound_note(data: Dataset | Table | None, bound: int, named: int | None) -> tuple[str, ...]:
    """Return a line about a bound on records that the user has not named, but the data have.

    bound: as of `bound_on_records`. named: the number that the user named.
    """
    if named is not None or data is None or data.owners is None:
        return ()
    records = counted(bound, "record")
    return (
        f"a device has at most {records}, as many as one in {data.name}; if that number is private, "
        "name another bound: --records N",
    )
