"""The parts of a table that boards get: options that say whose records are whose, and the parts."""

import argparse
from collections.abc import Sequence
from typing import Any

from ternhost import datasets
from ternhost.command import add_option
from ternhost.datasets import Dataset, Holdings, Selection, Table
from ternhost.datasets.holdings import of_owners
from ternhost.errors import UsageError
from ternhost.options import require
from ternhost.text import counted

SELECTION = ("by", "time", "held_out")  # options, by their names in a namespace
_MOST_SHOWN = 20  # owners in a message


def add_options(parser: argparse._ActionsContainer) -> None:
    """Add the options that say which device holds which records of a table."""
    by_schema = "the schema's, or none"
    add_option(parser, "--by COLUMN", shown=by_schema)
    add_option(parser, "--time COLUMN", shown=by_schema)
    add_option(parser, "--held-out SHARE", shown="the schema's, or 0.1", type=float)


def selection_of(args: Any) -> Selection:
    """Return what options say. Raises UsageError for an impossible share.

    args: an object with the options of `add_options` as attributes.
    """
    if args.held_out is not None:
        require(0 < args.held_out < 1, "held_out", "above 0 and below 1", args.held_out)
    return Selection(args.by or "", args.time or "", args.held_out)


def owned(data: Dataset | Table, most: int | None = None) -> Holdings | None:
    """Return the parts of a table by owner: client i holds those of the i-th owner.

    most: a bound on the records of a client; None: all. Returns None if the owners are not known.
    """
    if data.owners is None:
        return None
    return of_owners(data, data.training, most)


def part_of(name: str, selection: Selection, device: int, records: int | None) -> Holdings:
    """Return what a device holds of a table of the user's own, as its only client.

    It is the part of an owner: device K gets that of the K-th. Without owners, each device gets
    `records` records, those after the ones of the device before it, or all if that is None.

    name: the path of the table. device: its id, from 1. records: at most so many of an owner; None:
    all. Raises UsageError if there is no such owner, or if there are too few records.
    """
    data = datasets.held(name, selection)
    parts = owned(data, records)
    if parts is None:
        positions = data.training
        rows = data.records(range(data.size))
        if records is None:
            return Holdings(rows, positions, len(positions))
        parts = Holdings(rows, positions, records)
    if device <= parts.clients:
        return parts.only(device - 1)
    holders = counted(parts.clients, "device")
    text = f"{data.name} has records of {holders}, and device {device} would be another"
    hint = "leave out --records for a table of this device alone, or use fewer"
    if parts.names:
        hint = f"use the number of one: {owners_in_words(parts.names)}"
    raise UsageError(text, hint)


def owners_in_words(names: Sequence[str]) -> str:
    """Return the owners with the numbers of their devices: "1: B7, 2: A1"; the first ones, if there
    are many.
    """
    named = [f"{number}: {name}" for number, name in enumerate(names[:_MOST_SHOWN], start=1)]
    if len(names) > _MOST_SHOWN:
        named.append("...")
    return ", ".join(named)
