"""The options of `tern board provision` and `tern board up` that describe a member of a fleet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tern import wire
from tern.frames import Round
from tern.policy import record_work
from ternhost import datasets
from ternhost.api import arguments
from ternhost.command import add_option, print_line
from ternhost.datasets import Selection
from ternhost.errors import UsageError
from ternhost.options import Number, Option
from ternhost.privacy.units import parse_unit
from ternhost.provision.boards import Rows
from ternhost.text import counted, visible
from terntools.boards import parts
from terntools.boards.member import FleetSettings, Member, bound_on_records, dataset_records
from terntools.boards.network import Broker, read_link
from terntools.boards.policy import policy

# Reports leave the board at multiples of this time. It is well above what a report takes, on a Pico
# 10 ms and at most 26 (tern bench latency), also where flash is erased meanwhile.
_SLOT_MS = 500
# With many records, a gradient of all of them needs more: besides the time of the records, so much,
# for a report of up to 40 values.
_BESIDE_RECORDS_MS = 300
_ROUNDED_TO_MS = 100
_MOST_SLOT_MS = 0xFFFF  # that fleet.bin can state
_RECORDER_CAPACITY = 256  # records: the capacity that a recorder has by itself
OWN = "own"  # the value of --data for a board that collects its records itself

# For the end of the help: what files --broker and --data take.
ABOUT_FILES = """\
DIR of --broker may be a copy of the file for-boards.json of that directory, which has no secrets.
The schema beside FILE.csv, which 'tern data describe' writes, says what its columns mean. Without
one, a row is a record: its features in [-1, 1], then its label."""


@dataclass(frozen=True)
class _Declared:
    """An option. The fields are as in `add_option`, which says what they mean."""

    words: str
    text: str = ""  # empty if the help is in the shared vocabulary
    default: Any = None
    shown: str = ""
    type: Callable[[str], Any] | None = None
    required: bool = False
    hidden: bool = False  # no help shows it, since a schema usually says the same

    @property
    def name(self) -> str:
        """The name of the option, such as "--store"."""
        name, _, _ = self.words.partition(" ")
        return name

    def add_to(self, group: argparse._ArgumentGroup, hidden: bool) -> None:
        """Add the option to a group of a parser. hidden: the help does not show it."""
        settings: dict[str, Any] = {"shown": self.shown, "hidden": hidden or self.hidden}
        if self.type is not None:
            settings["type"] = self.type
        if self.required:
            settings["required"] = True
        add_option(group, self.words, self.text, self.default, **settings)


# The options by the headings of the help.
_GROUPS = {
    "member": (
        _Declared("--store FILE", shown="the broker's"),
        _Declared("--device ID", type=int, required=True),
        _Declared(
            "--data DATA",
            "the records: FILE.csv, a data set for a trial, or own: its program collects them",
            required=True,
        ),
        _Declared("--by COLUMN", shown="the schema's, or none"),
        _Declared("--time COLUMN", hidden=True),
        _Declared("--held-out SHARE", type=float, hidden=True),
        _Declared("--records N", shown="all of a file, 1 of a data set", type=int),
        _Declared(
            "--most-records N",
            "public upper bound on the records of a device",
            shown="64 or more",
            type=int,
        ),
        _Declared(
            "--again",
            "go on with a device whose board is lost or erased: what it may have spent counts",
        ),
    ),
    "privacy policy, which the device enforces": (
        _Declared("--max-epsilon E", shown="2; with --delta, the budget"),
        _Declared("--unit UNIT", default="device"),
        _Declared("--budget E", default="100"),
        _Declared("--delta D", shown="none, so that epsilons add up"),
        _Declared("--pause S", "least seconds between two payments from the budget", 0),
        _Declared(
            "--slot-ms MS",
            "send at multiples of MS milliseconds, so that timing tells nothing; 0: at once",
            shown=f"{_SLOT_MS}, or more for many records",
            type=int,
        ),
        _Declared(
            "--reserve N",
            "number of reports paid in advance, to spare the flash; a power cut loses them",
            1,
        ),
        _Declared("--own-key-only", "answer rounds for this device only, not for the whole fleet"),
        _Declared(
            "--wake-s S",
            "its program lets the board sleep, S seconds at a time",
            type=int,
        ),
    ),
    "link to the host (default: the board's port)": (
        _Declared("--broker DIR"),
        _Declared("--ssid NAME", "Wi-Fi network to join"),
        _Declared("--wifi-password-file FILE", "file with its password, never printed", type=Path),
        _Declared(
            "--link NAME=FILE...",
            "instead of a broker: put the configuration of your own link on the board as NAME.json",
        ),
    ),
}


def add_options(parser: argparse.ArgumentParser, shown: Collection[str] | None = None) -> None:
    """Add the options that describe a member of a fleet.

    shown: the names of those that the help shows, such as "--store"; None for all.
    """
    for title, options in _GROUPS.items():
        group = parser.add_argument_group(title)
        for declared in options:
            is_hidden = shown is not None and declared.name not in shown
            declared.add_to(group, is_hidden)


@dataclass(frozen=True)
class MemberOptions:
    """What a board is to become, by the options of `tern board provision`, with their defaults.

    - device: its id, from 1, unique in the fleet
    - data: the records: the path of a table, a data set for a trial, or "own": its program collects
      them; records: how many of them; most_records: a public upper bound
    - by: the column of the table that says which device a record belongs to: device K gets the
      records of the K-th; time: the column that orders them; held_out: the share that no device gets
    - again: go on with a device whose board is lost or erased: what it may have spent counts
    - max_epsilon: the largest epsilon of a report; budget: for life, of what unit protects; delta:
      at which the budget holds, or None, so that epsilons add up
    - pause: least seconds between two payments; slot_ms: reports leave at multiples of so many
      milliseconds, None for as many as a gradient of all records may need; reserve: reports that
      are paid in advance; own_key_only: rounds for the whole fleet are not answered; wake_s: seconds
      from one wake to the next of a board that sleeps
    - store: the file with the fleet's keys; None: the broker's
    - broker: its directory; ssid, wifi_password_file: of the Wi-Fi; link: NAME=FILE of a link of
      your own

    Raises UsageError for values of another type; `member` for values that make no sense.
    """

    device: int
    data: str
    by: str | None = None
    time: str | None = None
    held_out: float | None = None
    records: int | None = None
    most_records: int | None = None
    again: bool = False
    max_epsilon: Number | None = None
    unit: Number = "device"
    budget: Number = "100"
    delta: Number | None = None
    pause: int = 0
    slot_ms: int | None = None
    reserve: int = 1
    own_key_only: bool = False
    wake_s: int | None = None
    store: str | Path | None = None
    broker: str | Path | None = None
    ssid: str | None = None
    wifi_password_file: str | Path | None = None
    link: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for a value of another type."""
        for option in _OPTIONS:
            value = option.normalised(getattr(self, option.name))
            object.__setattr__(self, option.name, value)
        for name in ("store", "broker", "ssid", "wifi_password_file"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, arguments.path(value, name))
        object.__setattr__(self, "data", arguments.path(self.data, "data"))
        if isinstance(self.link, str | bytes) or not isinstance(self.link, Sequence):
            raise UsageError("link must be a list of texts NAME=FILE")
        object.__setattr__(self, "link", tuple(arguments.text(each, "link") for each in self.link))

    @property
    def member(self) -> Member:
        """The member of a fleet that these options describe. Raises UsageError."""
        return member_of(self)


_OPTIONS = (
    Option("device", "", type=int, default=1),
    Option("by", ""),
    Option("time", ""),
    Option("held_out", "", type=float),
    Option("records", "", type=int),
    Option("most_records", "", type=int),
    Option("again", "", type=bool, default=False),
    Option("max_epsilon", ""),
    Option("unit", "", default="device"),
    Option("budget", "", default="100"),
    Option("delta", ""),
    Option("pause", "", type=int, default=0),
    Option("slot_ms", "", type=int),
    Option("reserve", "", type=int, default=1),
    Option("own_key_only", "", type=bool, default=False),
    Option("wake_s", "", type=int),
)


def store_of(args: argparse.Namespace | MemberOptions, member: Member) -> Path:
    """Return the path of the store that gets the device's key: that of --store, or the broker's.

    Raises UsageError if there is neither.
    """
    if args.store:
        return Path(args.store)
    store = None
    if member.broker is not None:
        store = member.broker.store
    if store is None:
        raise UsageError(
            "the store is missing, which gets the device's key",
            hint="name it with --store FILE; a new file is made",
        )
    return store


def _slot_ms(d: int, most_records: int) -> int:
    """Return the slot of a board in milliseconds, if its owner names none.

    A report about the mean gradient of all records of the board fits into it. d: features of a
    record. most_records: the public bound on them.
    """
    request = Round()
    request.model, request.classes, request.d = wire.LOGISTIC, 1, d
    records_ms: int = most_records * record_work(request) >> 8
    least = _BESIDE_RECORDS_MS + records_ms
    rounded = -(-least // _ROUNDED_TO_MS) * _ROUNDED_TO_MS
    return min(max(_SLOT_MS, rounded), _MOST_SLOT_MS)


def member_of(args: argparse.Namespace | MemberOptions) -> Member:
    """Return the member that the options describe. Raises UsageError."""
    rows = _rows(args)
    broker = _broker(args)
    most_records = args.most_records
    if args.data == OWN and most_records is None:
        most_records = _RECORDER_CAPACITY
    slot = args.slot_ms
    if slot is None:
        slot = _slot_ms(rows.shape[1] - 1, most_records or bound_on_records(len(rows)))
    settings = FleetSettings(
        whole_fleet=not args.own_key_only,
        pause=args.pause,
        slot=slot,
        reserve=args.reserve,
        most_records=most_records,
        unit=parse_unit(str(args.unit)),
    )
    return Member(
        device=args.device,
        rows=rows,
        policy=policy(args.max_epsilon, args.budget, args.delta),
        settings=settings,
        broker=broker,
        wake=args.wake_s,
        link=read_link(args.link),
        again=args.again,
    )


def _rows(args: argparse.Namespace | MemberOptions) -> Rows:
    """Return the device's records: from a file, from a data set, or a placeholder.

    Says which part of a file the device gets, unless it is the whole file. Raises UsageError if
    there are no such records.
    """
    if args.records is not None and args.records < 1:
        raise UsageError(f"--records must be 1 or more, not {args.records}")
    selection = parts.selection_of(args)
    if args.data == OWN:
        selection.require_no_columns(OWN)
        return _placeholder(args)
    kind, _, _ = args.data.partition(":")
    if kind in datasets.held_names():
        selection.require_no_columns(args.data)
        return dataset_records(args.data, args.device, args.records or 1)
    if datasets.is_own(args.data):
        return _part_of_file(args, selection)
    names = ", ".join(datasets.held_names())
    raise UsageError(
        f"--data must be a CSV file, a data set, or {OWN}, not {args.data!r}",
        hint=f"data sets are {names}",
    )


def _part_of_file(args: argparse.Namespace | MemberOptions, selection: Selection) -> Rows:
    """Return the part of a file that the device gets, and say which one it is.

    The whole file is for one device, unless a column names the devices, or --records or --held-out
    divide it.
    """
    own = datasets.own.load(args.data, selection)
    is_whole = own.owners is None and args.records is None and args.held_out is None
    if is_whole:
        return own.records()
    device = args.device
    part = parts.part_of(args.data, selection, device, args.records)
    holder = args.data
    if part.names:
        column = selection.by or own.schema.device
        holder = f"{column} {part.names[0]}"
    line = f"device {device}: {counted(len(part.order), 'record')} of {holder}"
    print_line(visible(line), sys.stderr)
    return part.records[part.order]


def _placeholder(args: argparse.Namespace | MemberOptions) -> Rows:
    """Return one record of zeros, a feature and a label, for a board that collects its own records.

    The board needs a records.bin all the same (storage.md, "samples/"), which it does not use.
    Raises UsageError for --records, since the board is given none.
    """
    if args.records is not None:
        raise UsageError(
            f"--data {OWN} and --records exclude each other: the board is given no records",
            hint="leave out --records; --most-records is the most that its program may collect",
        )
    return np.zeros((1, 2), np.int16)


def _broker(args: argparse.Namespace | MemberOptions) -> Broker | None:
    """Return the board's broker; None if the board reaches its host by its port.

    Raises UsageError, also for options that need a broker where there is none.
    """
    if args.broker is None:
        for name in ("ssid", "wifi_password_file"):
            if getattr(args, name):
                option = "--" + name.replace("_", "-")
                raise UsageError(
                    f"{option} needs a broker", hint="name the broker's directory: --broker DIR"
                )
        return None
    return Broker.at(args.broker, args.ssid, args.wifi_password_file)
