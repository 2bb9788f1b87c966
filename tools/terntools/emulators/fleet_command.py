"""`tern fleet`: emulated boards that stay, for other commands and programs to talk to."""

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
from ternhost.command import add_command, add_option, print_result, warn
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

_CHECK_EVERY = 0.5  # seconds
_MAX_RECORDS = 0xFFFF  # of a client
_AMPLE = "1000"  # the largest that a ledger holds: a trial may ask round after round
# Options of boards when they are made.
_MADE = ("dataset", "classes", "clients", "records", "unit", "budget", "delta", "largest", "seed")
_MADE_NAME = "made.json"


def add_parser(subparsers: Any) -> None:
    """Add `tern fleet` and its actions to the commands."""
    summary = "list the kinds of fleets; run emulated boards for other commands"
    parser = add_command(
        subparsers, "fleet", summary, "tern fleet kinds\ntern fleet emulate 2 --clients 500"
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    summary = (
        "run N emulated boards until Ctrl-C, and print their ports and the store of their keys"
    )
    example = """tern fleet emulate 2 --clients 500 --dir my-fleet
        tern train --fleet port:/dev/pts/3,/dev/pts/4 --store my-fleet/store.sqlite --reports 500 --group 100
        tern fleet emulate 2 --broker my-broker --start-broker
        tern fleet emulate 20 --clients 20 --records 500 --unit record --budget 4 --delta 1e-6"""
    emulate = add_command(actions, "emulate", summary, example, run_emulate)
    add_command(actions, "kinds", "list the values of --fleet", "tern fleet kinds", run_kinds)
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
    kinds = [{"form": kind.form, "about": kind.about} for kind in KINDS.available()]
    text = "\n".join(f"{kind['form']:24} {kind['about']}" for kind in kinds)
    print_result({"kinds": kinds}, text, args.json)
    return OK


def run_emulate(args: argparse.Namespace) -> int:
    """Run emulated boards until Ctrl-C, on a broker if one is named."""
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
    """Raise UsageError for options that do not fit each other."""
    if not 1 <= args.boards <= Emulated.MOST:
        raise UsageError(f"N must be 1 to {Emulated.MOST} boards, not {args.boards}")
    if args.program:
        if args.clients is not None or args.classes or args.records is not None:
            text = "boards with a --program have one client each, and collect their own records"
            raise UsageError(text, hint="leave --clients, --classes and --records out")
        if not Path(args.program).is_file():
            hint = "name a file of MicroPython"
            raise UsageError(f"there is no program {args.program}", hint)

    clients, records = args.clients, args.records
    has_enough_clients = clients is None or clients >= args.boards
    require(has_enough_clients, "clients", f"{args.boards} or more, one a board", clients)
    is_possible = records is None or 1 <= records <= _MAX_RECORDS
    require(is_possible, "records", f"1 to {_MAX_RECORDS}", records)
    require((args.seed or 0) >= 0, "seed", "0 or more", args.seed)
    if args.start_broker and not args.broker:
        raise UsageError("--start-broker needs --broker, which names its directory")


def _open_broker(args: argparse.Namespace, stack: ExitStack) -> Path | None:
    """Return the store of the keys of --broker, which is started on request.

    The result is None without a broker, or if its store is not known.
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
    """Print where the boards and their keys are."""
    if args.broker:
        lines = [f"on the broker of {args.broker}: {counted(len(board_folders), 'board')}"]
    else:
        lines = list(fleet.ports)
    lines.append(f"keys are in {store}; Ctrl-C ends the boards")
    result = {
        "ports": fleet.ports,
        "store": str(store),
        "directory": str(board_folders[0].parent.parent),
    }
    print_result(result, "\n".join(lines), args.json)


def _watch(fleet: EmulatedFleet, watch: "AtBroker | None") -> NoReturn:
    """Look after the boards until Ctrl-C. Raises DeviceError if one ends."""
    while True:
        for error in fleet.failed().values():
            raise error
        if watch is not None:
            watch.look()
        time.sleep(_CHECK_EVERY)


def _boards(args: argparse.Namespace, broker_store: Path | None) -> tuple[Path, list[Path]]:
    """Return the store of the keys and the directories of the boards, made if there are none.

    broker_store: the store of the broker's keys; None if the store is to be beside the boards.
    """
    directory: Path | None = None
    if args.dir:
        directory = Path(args.dir)
    elif broker_store:
        directory = broker_store.parent

    if directory is not None and (directory / FLEET_NAME).exists():
        board_folders = _existing_boards(args, directory)
    else:
        _set_defaults(args)
        unit = parse_unit(args.unit)
        clients = _Clients(limits=_limits(args), dataset=_dataset(args), unit=unit)
        directory = directory or run_directory.new_directory()
        board_folders = board_directories(directory, args.boards)
        _provision(args, broker_store or directory / store_file.NAME, board_folders, clients)
        made_options = {name: getattr(args, name) for name in _MADE}
        run_directory.write_json(board_folders[0].parent / _MADE_NAME, made_options)
    return broker_store or directory / store_file.NAME, board_folders


def _existing_boards(args: argparse.Namespace, directory: Path) -> list[Path]:
    """Return the directories of boards that were made before. Raises UsageError if they do not fit."""
    board_folders = board_directories(directory, args.boards)
    for board_folder in board_folders:
        if not board_folder.is_dir():
            text = f"{directory} has fewer boards: there is no {board_folder}"
            raise UsageError(text, hint="ask for fewer")
    _require_the_same(args, directory)
    return board_folders


def _set_defaults(args: argparse.Namespace) -> None:
    """Set the options of new boards that are not given."""
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
    """What a client may spend. Raises UsageError."""
    if args.largest or args.delta:
        return policy(args.largest, args.budget, args.delta)
    budget = parse_epsilon(args.budget, ledger.MAX_BUDGET, "--budget")
    return Policy(budget, budget)


def _dataset(args: argparse.Namespace) -> datasets.Dataset | datasets.Table | None:
    """The records of the clients; None if a program collects them. Raises UsageError."""
    if args.program:
        return None
    dataset = datasets.held(args.dataset, classes=args.classes)
    most = len(dataset.training) // args.records
    bound = f"at most {most}, by the records of {args.dataset}"
    require(args.clients <= most, "clients", bound, args.clients)
    return dataset


@dataclass(frozen=True)
class _Clients:
    """What new boards hold for their clients. dataset: None if a program collects the records."""

    dataset: datasets.Dataset | datasets.Table | None
    limits: Policy
    unit: int


def _provision(
    args: argparse.Namespace, store: Path, boards: list[Path], clients: _Clients
) -> None:
    """Make the files of new boards, and put their keys into the store."""
    rows = np.zeros((args.boards, 2), np.int16)  # its own are elsewhere: tern.recorder
    each = 1
    if clients.dataset is not None:
        each = args.records
        rows = dealt_records(clients.dataset, args.clients, each, args.seed)
    with Store(store, beside=True) as opened:  # a run may be waiting for these keys
        provision_fleet(opened, boards, rows, clients.limits, each, clients.unit)


def _require_the_same(args: argparse.Namespace, directory: Path) -> None:
    """Raise UsageError for an option that boards which were made before do not have."""
    path = directory / FLEET_NAME / _MADE_NAME
    made = json.loads(path.read_text()) if path.exists() else {}
    for name in _MADE:
        value = getattr(args, name)
        if value not in (None, False, made.get(name)):
            option = flag(name) if value is True else f"{flag(name)} {value}"
            text = f"{option} changes nothing about the boards that {directory} holds already"
            new = f"tern fleet emulate {args.boards} {option} --dir NEW-DIR"
            raise UsageError(text, hint=f"leave it out to run those again, or make new ones: {new}")
