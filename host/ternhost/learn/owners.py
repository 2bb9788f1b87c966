"""Gives the clients of a run the records of their owners, and says what the user should know of it.

An owner is a device that the data name, by the column of --by. Each client of a run is one of them.
"""

from dataclasses import dataclass

from ternhost.datasets import Dataset, Indices, Table
from ternhost.datasets.holdings import Holdings, counts_of_owners, of_owners
from ternhost.errors import UsageError
from ternhost.text import counted


@dataclass(frozen=True)
class Owned:
    """Records that are given to their owners, and what to tell the user of that, in lines."""

    holdings: Holdings
    notes: tuple[str, ...] = ()


def to_owners(
    data: Dataset | Table, positions: Indices, clients: int | None, most: int | None = None
) -> Owned:
    """Give records to the clients of a run: client i gets those of the i-th owner that has any.

    data: records with owners. positions: those of the records to give. clients: how many there are;
    None: as many as there are owners. most: a public bound on the records of a client; further ones
    are left out.
    Raises UsageError if there are more clients than owners.
    """
    holdings = of_owners(data, positions, most)
    owners = holdings.clients
    if clients is not None and clients > owners:
        text = (
            f"{data.name} has records of {counted(owners, 'device')}, and the fleet has {clients:,}"
        )
        raise UsageError(text, hint=f"use a fleet of {owners}, such as --fleet simulated:{owners}")
    notes = []
    if clients is not None and clients < owners:
        notes.append(
            f"the first {clients:,} of the {owners:,} devices of {data.name} take part: "
            "the fleet has no more"
        )
        holdings = holdings.of_first(clients)
    left_out = _count_of_first(data, positions, holdings.clients) - len(holdings.order)
    if left_out:
        records = counted(left_out, "record")
        notes.append(f"left out: {records}, since a device keeps its first {most:,} (--records)")
    return Owned(holdings, tuple(notes))


def _count_of_first(data: Dataset | Table, positions: Indices, clients: int) -> int:
    """Return how many of the records at these positions belong to the first owners with any."""
    return int(counts_of_owners(data, positions)[:clients].sum())
