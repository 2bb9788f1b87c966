"""The options of `tern board provision` and `tern board up` that describe a member of a fleet."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ternhost import datasets
from ternhost.command import add_option, warn
from ternhost.datasets import own
from ternhost.errors import UsageError
from ternhost.privacy.units import UNIT_HELP, parse_unit
from ternhost.provision.boards import Rows
from terntools.boards.member import SHAPES, FleetSettings, Member, dataset_records
from terntools.boards.network import Broker, read_link
from terntools.boards.policy import policy

# Reports leave the board at multiples of this time. It is well above what a report takes, on a Pico
# 10 ms and at most 26 (tern bench latency), also where flash is erased meanwhile.
_SLOT_MS = 500
_RECORDER_CAPACITY = 256  # records: the capacity that a recorder has by itself


def add_options(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add the options that describe a member of a fleet.

    required: whether --store and --device must be named.
    """
    _add_member_options(parser.add_argument_group("member"), required)
    _add_policy_options(parser.add_argument_group("privacy policy, which the device enforces"))
    add_option(
        parser,
        "--link NAME=FILE...",
        "put the configuration FILE of your own link on the board as NAME, such as "
        "unix.json=my-link.json (its module comes with the program: tern board deploy --main)",
    )
    _add_network_options(
        parser.add_argument_group("network (without a broker, the link is the board's port)")
    )


def _add_member_options(group: argparse._ArgumentGroup, is_required: bool) -> None:
    """Add the options about the device, its key and its records."""
    add_option(
        group, "--store FILE", "the host's store, which gets the device's key", required=is_required
    )
    add_option(
        group, "--device ID", "id from 1, unique in the fleet", type=int, required=is_required
    )
    add_option(
        group,
        "--again",
        "go on with a device that the store knows on a board without its ledger: it and the fleet "
        "get new keys, and what it may have spent is taken off its budget",
    )
    add_option(
        group, "--records FILE", "CSV file: each row has features, then the label, all in [-1, 1]"
    )
    add_option(
        group, "--dataset", "take records of a data set, for a trial", choices=datasets.held_names()
    )
    add_option(group, "--own-records", "no records: its program collects them (tern.recorder)")
    add_option(group, "--classes", "labels are class numbers from 0, for softmax regression")
    add_option(group, "--count N", "take N records of --dataset (default: 1)", type=int)
    add_option(
        group,
        "--most-records N",
        "public upper bound on the records of a device, the same for all boards (default: 64, or "
        "the next power of two that holds this device's; 256 with --own-records)",
        type=int,
    )


def _add_policy_options(group: argparse._ArgumentGroup) -> None:
    """Add the options about the budget, and about what the device answers."""
    add_option(
        group,
        "--largest E",
        "largest epsilon of a report, or rho where the budget is counted in rho "
        "(default: 2, or the budget)",
    )
    add_option(group, "--unit UNIT", UNIT_HELP, "device")
    add_option(
        group,
        "--budget E",
        "lifetime epsilon of the unit, by adding up; or with --delta as (epsilon, delta), "
        "counted in rho (default: 100)",
    )
    add_option(group, "--delta D", "delta of the budget, such as 1e-6")
    add_option(group, "--budget-rho R", "instead of --budget: lifetime rho of the unit (zCDP)")
    add_option(
        group,
        "--mechanisms LIST",
        f"accepted shapes of cards, of {','.join(SHAPES)} (default: all)",
    )
    add_option(group, "--pause S", "least seconds between two payments from the budget", 0)
    add_option(
        group,
        "--slot-ms MS",
        "send only at multiples of MS milliseconds after a round arrived, so that timing does not "
        "depend on the data; MS must be longer than a report takes; 0 sends at once",
        _SLOT_MS,
    )
    add_option(
        group,
        "--reserve N",
        "number of reports paid in advance, which spares the flash; a power cut loses unused ones",
        1,
    )
    add_option(
        group,
        "--own-key-only",
        "answer rounds for this device only, not rounds for the whole fleet",
    )
    add_option(
        group,
        "--wake-s S",
        "the host expects the board, whose program lets it sleep, every S seconds "
        "(docs/guides/battery.md); needs --broker",
        type=int,
    )


def _add_network_options(group: argparse._ArgumentGroup) -> None:
    """Add the options about the broker and the Wi-Fi network."""
    add_option(
        group, "--broker HOST[:PORT]", "MQTT broker; for a cluster its nodes, divided by commas"
    )
    add_option(group, "--authority FILE", "the broker's CA certificate (DER)", type=Path)
    add_option(group, "--prefix NAME", "prefix of the fleet's topics (default: tern)")
    add_option(group, "--ssid NAME", "Wi-Fi network to join")
    add_option(
        group, "--wifi-password-file FILE", "file with its password, never printed", type=Path
    )
    add_option(group, "--wait S", "seconds to wait until the broker hears the board; 0: none", 60.0)


def member_of(args: argparse.Namespace) -> Member:
    """Return the member that the options of the command line describe. Raises UsageError."""
    rows = _rows(args)
    broker = _broker(args)
    most_records = args.most_records
    if args.own_records and most_records is None:
        most_records = _RECORDER_CAPACITY
    settings = FleetSettings(
        whole_fleet=not args.own_key_only,
        pause=args.pause,
        slot=args.slot_ms,
        reserve=args.reserve,
        most_records=most_records,
        unit=parse_unit(args.unit),
    )
    shapes: tuple[str, ...] = ()
    if args.mechanisms:
        shapes = tuple(args.mechanisms.split(","))
    return Member(
        device=args.device,
        rows=rows,
        policy=policy(
            largest=args.largest,
            budget=args.budget,
            delta=args.delta,
            budget_rho=args.budget_rho,
        ),
        shapes=shapes,
        settings=settings,
        broker=broker,
        wake=args.wake_s,
        link=read_link(args.link),
        again=args.again,
    )


def _rows(args: argparse.Namespace) -> Rows:
    """Return the device's records: from a file, from a data set, or an empty one.

    Raises UsageError unless exactly one source is named.
    """
    named_sources = (args.records is not None, args.dataset is not None, args.own_records)
    if sum(named_sources) != 1:
        raise UsageError(
            "the device needs records from one place",
            hint="name one of --records FILE, --dataset NAME, and --own-records, where its program "
            "collects them",
        )
    if args.count is not None and args.count < 1:
        raise UsageError(f"--count must be 1 or more, not {args.count}")
    if args.own_records:
        return _placeholder(args)
    if args.records:
        return _rows_of_file(args)
    return dataset_records(args.dataset, args.device, args.count or 1, classes=args.classes)


def _placeholder(args: argparse.Namespace) -> Rows:
    """Return one record of zeros, a feature and a label, for a board that collects its own records.

    The board needs a records.bin all the same (storage.md, "samples/"), which it does not use.
    Raises UsageError for options about records, since the board is given none.
    """
    option = ""  # the one that contradicts --own-records
    if args.count is not None:
        option = "--count"
    elif args.classes:
        option = "--classes"
    if option:
        raise UsageError(
            f"--own-records and {option} are at odds: the board is given no records",
            hint="leave it out: the board's program decides on its records (tern.recorder)",
        )
    return np.zeros((1, 2), np.int16)


def _rows_of_file(args: argparse.Namespace) -> Rows:
    """Read the records of a CSV file, and warn if their labels are 0 and 1 instead of -1 and 1."""
    rows = own.read_csv(args.records, classes=args.classes)
    if not args.classes and own.has_labels_0_and_1(rows):
        warn(
            f"the labels in {args.records} are 0 or 1, not -1 or 1; for logistic regression and "
            "the SVM 0 means -1, linear regression predicts 0 and 1"
        )
    return rows


def _broker(args: argparse.Namespace) -> Broker | None:
    """Return the board's broker; None if the board reaches its host by its port.

    Raises UsageError, also for options that need a broker where there is none.
    """
    if args.broker is None:
        for name in ("authority", "prefix", "ssid", "wifi_password_file"):
            if getattr(args, name):
                option = "--" + name.replace("_", "-")
                raise UsageError(
                    f"{option} needs a broker", hint="name the broker with --broker HOST[:PORT]"
                )
    if not args.broker:
        return None
    return Broker.parse(
        args.broker,
        authority=args.authority,
        ssid=args.ssid,
        wifi_secret_file=args.wifi_password_file,
        prefix=args.prefix,
    )
