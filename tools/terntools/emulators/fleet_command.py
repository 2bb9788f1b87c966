"""`tern fleet`: runs emulated boards that stay, for other commands and programs to talk to."""

import argparse
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tern import ledger
from ternhost import datasets
from ternhost.command import add_command, add_group, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.options import flag, require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.units import UNIT_HELP, parse_unit
from ternhost.provision.boards import FLEET_NAME, board_directories, dealt_records, provision_fleet
from ternhost.reach.fleet import KINDS
from ternhost.run import directory as run_directory
from ternhost.store import store_file
from ternhost.store.store import Store
from ternhost.terminal import heeding_interrupts
from ternhost.text import counted
from terntools.boards.policy import policy
from terntools.emulators.fleets import Emulated
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

if TYPE_CHECKING:
    from terntools.emulators.at_broker import AtBroker

HEADING = "Fleets"  # of tern --help

_CHECK_EVERY = 0.5  # seconds between two looks at the boards
_MAX_RECORDS = 0xFFFF  # of a client
_AMPLE = "1000"  # the largest that a ledger holds: a trial may ask round after round
# Options with which new boards are made; the file _MADE_NAME keeps them.
_MADE = ("dataset", "classes", "clients", "records", "unit", "budget", "delta", "largest", "seed")
_MADE_NAME = "made.json"


def add_parser(subparsers: Any) -> None:
    """Add `tern fleet` and its actions to the commands."""
    summary = "list the kinds of fleets; run emulated boards for other commands"
    actions = add_group(
        subparsers, "fleet", summary, "tern fleet kinds\ntern fleet emulate 2 --clients 500"
    )
    summary = (
        "run N emulated boards until Ctrl-C, and print their ports and the store of their keys"
    )
    example = """tern fleet emulate 2 --clients 500 --dir my-fleet
        tern train --fleet port:/dev/pts/3,/dev/pts/4 --store my-fleet/store.sqlite --reports 500 --group 100
        tern fleet emulate 2 --broker my-broker --start-broker
        tern fleet emulate 20 --clients 20 --records 500 --unit record --budget 4 --delta 1e-6"""
    emulate = add_command(actions, "emulate", summary, example, run_emulate)
    add_command(actions, "kinds", "list the values of --fleet", "tern fleet kinds", run_kinds)
    _add_options_of_emulate(emulate)


def _add_options_of_emulate(emulate: argparse.ArgumentParser) -> None:
    """Add the options of `tern fleet emulate` to its parser."""
    emulate.add_argument("boards", type=int, metavar="N", help="number of boards")
    text = "data set of the clients' records (default: flights)"
    add_option(emulate, "--dataset", text, choices=datasets.held_names())
    add_option(emulate, "--classes", "labels are class numbers from 0, for softmax regression")
    add_option(
        emulate, "--clients M", "number of clients on all boards together (default: 1000)", type=int
    )
    add_option(emulate, "--records N", "records of each client (default: 1)", type=int)
    text = "MicroPython program with tern.app, which collects its own records, instead of tern's main.py"
    add_option(emulate, "--program FILE", text)
    text = f"lifetime epsilon of a client (default: {_AMPLE}: ample for trials, it would protect nobody)"
    add_option(emulate, "--budget E", text)
    add_option(
        emulate, "--delta D", "of --budget: the ledgers count rho (zCDP), as sums over units need"
    )
    add_option(emulate, "--unit UNIT", f"{UNIT_HELP} (default: device)")
    add_option(emulate, "--largest E", "largest epsilon of a report (default: the budget)")
    add_option(emulate, "--seed S", "seed that assigns records to clients (default: 1)", type=int)
    text = "folder of the boards; existing ones run again (default: beside the broker's store or new in runs)"
    add_option(emulate, "--dir D", text)
    text = (
        "connect the boards to the broker in DIR ('tern broker config'); its store gets their keys"
    )
    add_option(emulate, "--broker DIR", text)
    start = "run Mosquitto for that folder unless it runs already, and make a missing folder"
    add_option(emulate, "--start-broker", start)


def run_kinds(args: argparse.Namespace) -> int:
    """Print what --fleet can name: the form of each name, and what it stands for."""
    kinds = [{"form": kind.form, "about": kind.about} for kind in KINDS.available()]
    text = "\n".join(f"{kind['form']:24} {kind['about']}" for kind in kinds)
    print_result({"kinds": kinds}, text, args.json)
    return OK


def run_emulate(args: argparse.Namespace) -> int:
    """Run emulated boards until Ctrl-C, connected to a broker if --broker names one."""
    _check(args)
    interpreter = find_micropython()
    with heeding_interrupts(), ExitStack() as stack:
        broker_store = _open_broker(args, stack)
        store, board_folders = _boards(args, broker_store)
        broker_watch: AtBroker | None = None
        if args.broker:
            from terntools.emulators import at_broker

            broker_watch = at_broker.connect(args.broker, broker_store, store, board_folders)
        fleet = stack.enter_context(EmulatedFleet(interpreter, board_folders, args.program))
        try:
            _print_fleet(args, fleet, store, board_folders)
            _watch(fleet, broker_watch)
        except KeyboardInterrupt:
            return OK


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for options of `tern fleet emulate` that do not fit, or are out of range.

    An option that the user has not given is None.
    """
    if not 1 <= args.boards <= Emulated.MOST:
        raise UsageError(f"N must be 1 to {Emulated.MOST} boards, not {args.boards}")
    if args.program:
        names_records = args.clients is not None or args.classes or args.records is not None
        if names_records:
            text = "boards with a --program have one client each, and collect their own records"
            raise UsageError(text, hint="leave --clients, --classes and --records out")
        if not Path(args.program).is_file():
            hint = "name a file of MicroPython"
            raise UsageError(f"there is no program {args.program}", hint)

    if args.clients is not None:
        has_enough = args.clients >= args.boards
        require(has_enough, "clients", f"{args.boards} or more, one a board", args.clients)
    if args.records is not None:
        is_possible = 1 <= args.records <= _MAX_RECORDS
        require(is_possible, "records", f"1 to {_MAX_RECORDS}", args.records)
    if args.seed is not None:
        require(args.seed >= 0, "seed", "0 or more", args.seed)
    if args.start_broker and not args.broker:
        raise UsageError("--start-broker needs --broker, which names its directory")


def _open_broker(args: argparse.Namespace, stack: ExitStack) -> Path | None:
    """Return the store with the device keys of the broker of --broker, which is started on request.

    stack: ends a broker that was started. The result is None without --broker, or if the broker's store
    is not known.
    """
    if not args.broker:
        return None
    from ternhost.reach.broker.mosquitto import ensure_running
    from terntools.emulators import at_broker

    if args.start_broker:
        stack.enter_context(ensure_running(args.broker, warn))
    return at_broker.keys_of(args.broker)


def _print_fleet(
    args: argparse.Namespace, fleet: EmulatedFleet, store: Path, board_folders: list[Path]
) -> None:
    """Print at which ports or on which broker the boards are, and where their keys are.

    store: of the keys. board_folders: the directories of the boards.
    """
    if args.broker:
        lines = [f"on the broker of {args.broker}: {counted(len(board_folders), 'board')}"]
    else:
        lines = list(fleet.ports)
    lines.append(f"keys are in {store}; Ctrl-C ends the boards")
    result = {
        "ports": fleet.ports,
        "store": str(store),
        "directory": str(board_folders[0].parent.parent),  # DIRECTORY/fleet/board-000
    }
    print_result(result, "\n".join(lines), args.json)


def _watch(fleet: EmulatedFleet, watch: "AtBroker | None") -> NoReturn:
    """Watch over the boards and their broker until Ctrl-C. Raises DeviceError if a board ends.

    watch: of the broker; None if the boards are at ports.
    """
    while True:
        for error in fleet.failed().values():
            raise error
        if watch is not None:
            watch.look()
        time.sleep(_CHECK_EVERY)


def _boards(args: argparse.Namespace, broker_store: Path | None) -> tuple[Path, list[Path]]:
    """Return the store of the boards' keys and the directories of the boards, made if there are none.

    broker_store: the store with the keys of the broker; None if the boards are to have a store of
    their own.
    """
    directory: Path | None = None
    if args.dir:
        directory = Path(args.dir)
    elif broker_store:
        directory = broker_store.parent

    are_made = directory is not None and (directory / FLEET_NAME).exists()
    if directory is not None and are_made:
        board_folders = _existing_boards(args, directory)
        store = broker_store or directory / store_file.NAME
    else:
        _set_defaults(args)
        unit = parse_unit(args.unit)
        clients = _Clients(limits=_limits(args), dataset=_dataset(args), unit=unit)
        directory = directory or run_directory.new_directory()
        store = broker_store or directory / store_file.NAME
        board_folders = board_directories(directory, args.boards)
        _provision(args, store, board_folders, clients)
        made_options = {name: getattr(args, name) for name in _MADE}
        run_directory.write_json(board_folders[0].parent / _MADE_NAME, made_options)
    return store, board_folders


def _existing_boards(args: argparse.Namespace, directory: Path) -> list[Path]:
    """Return the directories of boards that an earlier call made.

    directory: of the fleet. Raises UsageError if there are too few, or others than the options say.
    """
    board_folders = board_directories(directory, args.boards)
    for board_folder in board_folders:
        if not board_folder.is_dir():
            text = f"{directory} has fewer boards: there is no {board_folder}"
            raise UsageError(text, hint="ask for fewer")
    _require_the_same(args, directory)
    return board_folders


def _set_defaults(args: argparse.Namespace) -> None:
    """Set the options of new boards that the user has not given."""
    defaults = {
        "dataset": "flights",
        "clients": args.boards if args.program else 1000,
        "records": 1,
        "unit": "device",
        "budget": _AMPLE,
        "seed": 1,
    }
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _limits(args: argparse.Namespace) -> Policy:
    """Return the limits of a client's privacy budget by the options. Raises UsageError."""
    if args.largest or args.delta:
        return policy(args.largest, args.budget, args.delta)
    budget = parse_epsilon(args.budget, ledger.MAX_BUDGET, "--budget")
    return Policy(budget, budget)


def _dataset(args: argparse.Namespace) -> datasets.Dataset | datasets.Table | None:
    """Return the data set whose records the clients get; None if a program collects records.

    Raises UsageError if it is too small.
    """
    if args.program:
        return None
    dataset = datasets.held(args.dataset, classes=args.classes)
    most_clients = len(dataset.training) // args.records  # with so many records each
    bound = f"at most {most_clients}, by the records of {args.dataset}"
    require(args.clients <= most_clients, "clients", bound, args.clients)
    return dataset


@dataclass(frozen=True)
class _Clients:
    """What the clients of new boards get.

    dataset: the source of their records; None if a program collects them. limits: of a client's privacy
    budget. unit: how many consecutive records a guarantee protects; 0: all of a client.
    """

    dataset: datasets.Dataset | datasets.Table | None
    limits: Policy
    unit: int


def _provision(
    args: argparse.Namespace, store: Path, boards: list[Path], clients: _Clients
) -> None:
    """Make the files of new boards, and put the keys of their clients into a store.

    boards: their directories. Each gets the same number of clients.
    """
    # Boards with a user's program record their own data. Each client still needs one record on
    # file, of a feature and a label, which is never read.
    rows = np.zeros((args.boards, 2), np.int16)
    each = 1  # records of a client
    if clients.dataset is not None:
        each = args.records
        rows = dealt_records(clients.dataset, args.clients, each, args.seed)
    with Store(store, beside=True) as opened:  # a run may be waiting for these keys
        provision_fleet(opened, boards, rows, clients.limits, each, clients.unit)


def _require_the_same(args: argparse.Namespace, directory: Path) -> None:
    """Raise UsageError for an option that differs from what existing boards were made with.

    directory: of the fleet. An option that the user has not given is None or False.
    """
    path = directory / FLEET_NAME / _MADE_NAME
    made = {}
    if path.exists():
        made = json.loads(path.read_text())
    for name in _MADE:
        value = getattr(args, name)
        if value in (None, False, made.get(name)):
            continue
        option = flag(name)
        if value is not True:
            option += f" {value}"
        text = f"{option} changes nothing about the boards that {directory} holds already"
        new = f"tern fleet emulate {args.boards} {option} --dir NEW-DIR"
        raise UsageError(text, hint=f"leave it out to run those again, or make new ones: {new}")
