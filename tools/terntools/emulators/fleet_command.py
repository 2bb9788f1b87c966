"""`tern fleet`: runs emulated boards that stay, for other commands and programs to talk to."""

import argparse
import json
import shlex
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tern import ledger
from ternhost import datasets
from ternhost.command import add_command, add_group, add_option, print_result, warn
from ternhost.datasets import Holdings
from ternhost.datasets.holdings import MOST_RECORDS
from ternhost.datasets.schemas import findings
from ternhost.datasets.schemas.schema import Schema
from ternhost.errors import OK, UsageError
from ternhost.files import write_file
from ternhost.options import flag, require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.units import parse_unit
from ternhost.provision.boards import FLEET_NAME, board_directories, dealt_records, provision_fleet
from ternhost.reach.fleet import KINDS
from ternhost.run import directory as run_directory
from ternhost.signals import heeding_interrupts
from ternhost.store import store_file
from ternhost.store.store import Store
from ternhost.text import counted
from terntools.boards import parts
from terntools.boards.policy import policy
from terntools.boards.program import COLUMNS, read_schema
from terntools.emulators.fleets import Emulated
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet
from terntools.listed_commands import FLEET

if TYPE_CHECKING:
    from terntools.emulators.at_broker import AtBroker

_CHECK_EVERY = 0.5  # seconds between two looks at the boards
_AMPLE = "1000"  # the largest that a ledger holds: a trial may ask round after round
_DATA = "flights"  # by default
_CLIENTS = 1000  # by default
_SEED = 1  # assigns records to clients
# Options with which new boards are made; the file _MADE_NAME keeps them.
_MADE = ("data", *parts.SELECTION, "clients", "records", "unit", "budget", "delta")
_MADE_NAME = "made.json"
_OWNERS = "owners"  # in it, the names of the owners whose records the clients have, in order


def add_parser(subparsers: Any) -> None:
    """Add `tern fleet` and its actions to the commands."""
    actions = add_group(
        subparsers,
        FLEET.name,
        FLEET.summary,
        "tern fleet kinds\ntern fleet emulate 2 --clients 500",
    )
    summary = (
        "run N emulated boards until Ctrl-C, at ports or, with --broker, with a broker; print "
        "commands that use them"
    )
    example = """tern fleet emulate 4 --clients 40
        tern fleet emulate 2 --clients 500 --dir my-fleet
        tern fleet emulate 2 --broker my-broker
        tern fleet emulate 20 --clients 20 --records 500 --unit record --budget 4 --delta 1e-6
        tern fleet emulate 4 --data my.csv --by home --broker my-broker
        tern fleet emulate 2 --broker my-broker --program app.py --schema my.toml"""
    emulate = add_command(actions, "emulate", summary, example, run_emulate)
    add_command(actions, "kinds", "list the values of --fleet", "tern fleet kinds", run_kinds)
    _add_options_of_emulate(emulate)


def _add_options_of_emulate(emulate: argparse.ArgumentParser) -> None:
    """Add the options of `tern fleet emulate` to its parser."""
    emulate.add_argument("boards", type=int, metavar="N", help="number of boards")
    add_option(emulate, "--data D", shown=_DATA)
    parts.add_options(emulate)
    add_option(emulate, "--records N", shown="1, or with --by all that a device has", type=int)
    shown = "1000 on all boards together, or with --by one for each device of the table"
    add_option(emulate, "--clients N", shown=shown, type=int)
    text = "MicroPython program with tern.app, which collects its own records, instead of tern's main.py"
    add_option(emulate, "--program FILE", text)
    add_option(emulate, "--schema FILE.toml")
    add_option(emulate, "--budget E", shown=f"{_AMPLE}: ample for trials, it would protect nobody")
    add_option(emulate, "--unit UNIT", shown="device")
    add_option(emulate, "--delta D", shown="none: the budget adds up epsilon, and no rho")
    text = "folder of the boards; existing ones run again"
    add_option(emulate, "--dir DIR", text, shown="that of the broker, or a new one in runs")
    add_option(emulate, "--broker DIR", shown="none: the boards are at ports")


def run_kinds(args: argparse.Namespace) -> int:
    """Print what --fleet can name: the form of each name, and what it stands for."""
    kinds = [{"form": kind.form, "about": kind.about} for kind in KINDS.available()]
    text = "\n".join(f"{kind['form']:24} {kind['about']}" for kind in kinds)
    print_result({"kinds": kinds}, text, args.json)
    return OK


def run_emulate(args: argparse.Namespace) -> int:
    """Run emulated boards until Ctrl-C, on the broker of --broker if it names one."""
    _check(args)
    columns = read_schema(args.schema) if args.schema else b""
    interpreter = find_micropython()
    with heeding_interrupts(), ExitStack() as stack:
        broker_store = _open_broker(args, stack)
        store, board_folders = _boards(args, broker_store)
        if columns:
            for board_folder in board_folders:
                write_file(board_folder / COLUMNS, columns)
        broker_watch: AtBroker | None = None
        if args.broker:
            from terntools.emulators import at_broker

            broker_watch = at_broker.connect(args.broker, broker_store, store, board_folders)
        emulated = EmulatedFleet(
            interpreter, board_folders, args.program, port_is_read=not args.broker
        )
        fleet = stack.enter_context(emulated)
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
        for name in ("data", "clients", "records", *parts.SELECTION):
            if getattr(args, name) is not None:
                text = "boards with a --program have one client each, and collect their own records"
                raise UsageError(text, hint=f"leave {flag(name)} out")
        if not Path(args.program).is_file():
            hint = "name a file of MicroPython"
            raise UsageError(f"there is no program {args.program}", hint)
    elif args.schema:
        text = f"--schema {args.schema} is for a program, and there is no --program FILE"
        raise UsageError(text, hint="boards with tern's own program get records from --data")

    if args.clients is not None:
        has_enough = args.clients >= args.boards
        require(has_enough, "clients", f"{args.boards} or more, one a board", args.clients)
    if args.records is not None:
        is_possible = 1 <= args.records <= MOST_RECORDS
        require(is_possible, "records", f"1 to {MOST_RECORDS}", args.records)


def _open_broker(args: argparse.Namespace, stack: ExitStack) -> Path | None:
    """Return the store with the device keys of the broker of --broker.

    A broker that does not run is started, and a missing one is configured. stack: ends a broker
    that was started. The result is None without --broker, or if the broker's store is not known.
    """
    if not args.broker:
        return None
    from ternhost.reach.broker.mosquitto import ensure_running
    from terntools.emulators import at_broker

    stack.enter_context(ensure_running(args.broker, warn))
    return at_broker.keys_of(args.broker)


def _print_fleet(
    args: argparse.Namespace, fleet: EmulatedFleet, store: Path, board_folders: list[Path]
) -> None:
    """Print where the boards are, and commands that use them.

    store: of the keys. board_folders: the directories of the boards.
    """
    boards = counted(len(board_folders), "board")
    if args.broker:
        words = f"--fleet mqtt:{args.broker}"
        lines = [f"on the broker of {args.broker}: {boards}"]
    else:
        words = f"--fleet port:{','.join(fleet.ports)} --store {store}"
        lines = [f"at ports of this machine: {boards}"]
    directory = board_folders[0].parent.parent  # DIRECTORY/fleet/board-000
    owners = _made(directory).get(_OWNERS, [])
    if owners:
        lines.append(f"each device holds the records of one owner: {parts.owners_in_words(owners)}")
    lines.append("they run until Ctrl-C; in another terminal you can")
    run_command = _run_command(directory, words, args.schema)
    if run_command:
        lines.append(f"  ask them: {run_command}")
    lines.append(f"  see what is left of their budgets: tern keys list {store}")
    result = {
        "ports": fleet.ports,
        "broker": args.broker,
        "store": str(store),
        "directory": str(directory),
        "owners": owners,
        "command": run_command,
    }
    print_result(result, "\n".join(lines), args.json)


def _run_command(directory: Path, fleet_words: str, schema: str | None) -> str | None:
    """Return a command that trains a model on the boards, or collects their attributes.

    directory: of the fleet. fleet_words: the options that name the boards. schema: the file by which
    the boards' program makes records. The result is None if it is not known what records they hold.
    """
    made = _made(directory)
    data = made.get("data") or schema
    if data is None:
        return None
    described = None  # by a schema: then the command finds a model that suits the labels
    if made.get("data") is None:
        described = Schema.read(data)
    elif datasets.is_own(data):
        described = datasets.own.load(data).schema
    verb = "train"
    has_classes = False
    if data in datasets.TABLES or (described is not None and not described.label):
        verb = "collect"
    elif described is None:
        has_classes = _has_class_numbers(data)
    command = f"tern {verb} {fleet_words}"
    if data != _DATA:
        command += f" --data {shlex.quote(data)}"
    for name in parts.SELECTION:
        value = made.get(name)
        judges = verb == "train" or name != "held_out"
        if value is not None and judges:
            command += f" {flag(name)} {shlex.quote(str(value))}"
    if has_classes:
        command += " --model softmax"
    return command + _unit_words(made, verb)


def _unit_words(made: Mapping[str, Any], verb: str) -> str:
    """Return the options of a run that protects the unit of the boards.

    For devices that is only the bound on their records, and nothing if they have one record each.

    made: the options that the boards were made with. verb: the command of the run.
    """
    if made["unit"] == "device":
        has_many_records = made["records"] is not None and made["records"] > 1
        if verb == "train" and has_many_records:
            return f" --records {made['records']}"
        return ""
    words = f" --unit {made['unit']}"
    if made["records"] is not None:  # learners of sums take it
        words += f" --records {made['records']}"
    if made["delta"] is not None:  # the run may spend what the boards have
        words += f" --run-epsilon {made['budget']} --delta {made['delta']}"
    return words


def _has_class_numbers(data: str) -> bool:
    """Return whether the labels of a data set are numbers of classes, as only softmax takes them."""
    held = datasets.held(data)
    return isinstance(held, datasets.Dataset) and held.task == datasets.MULTICLASS


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
        new_clients = _Clients(
            holdings=_holdings(args),  # sets the number of clients
            limits=_limits(args),
            unit=parse_unit(args.unit),
        )
        _require_enough(args.boards, new_clients.holdings.clients)
        directory = directory or run_directory.new_directory()
        store = broker_store or directory / store_file.NAME
        board_folders = board_directories(directory, args.boards)
        _provision(store, board_folders, new_clients)
        made_options: dict[str, Any] = {name: getattr(args, name) for name in _MADE}
        made_options[_OWNERS] = list(new_clients.holdings.names)
        run_directory.write_json(
            board_folders[0].parent / _MADE_NAME, made_options, afterwards="then emulate it again"
        )
    return store, board_folders


def _existing_boards(args: argparse.Namespace, directory: Path) -> list[Path]:
    """Return the directories of boards that an earlier call made.

    directory: of the fleet. Raises UsageError if there are too few, or others than the options say.
    """
    board_folders = board_directories(directory, args.boards)
    for board_folder in board_folders:
        if not board_folder.is_dir():
            text = f"{directory} has fewer boards: there is no {board_folder}"
            raise UsageError(text, hint="use fewer boards")
    _require_the_same(args, directory)
    return board_folders


def _set_defaults(args: argparse.Namespace) -> None:
    """Set the options of new boards that the user has not given, but the number of clients."""
    defaults = {
        "data": None if args.program else _DATA,
        "unit": "device",
        "budget": _AMPLE,
    }
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _limits(args: argparse.Namespace) -> Policy:
    """Return the limits of a client's privacy budget by the options. Raises UsageError."""
    if args.delta:
        return policy(None, args.budget, args.delta)
    budget = parse_epsilon(args.budget, ledger.MAX_BUDGET, "--budget")
    return Policy(budget, budget)


def _holdings(args: argparse.Namespace) -> Holdings:
    """Return which client gets which records, and set the options --clients and --records.

    Clients are the owners of the records, or else get `--records` of them each, at random. Raises
    UsageError if there are too few clients or records.
    """
    if args.program:
        # Boards with a user's program record their own data. Each client still needs one record on
        # file, of a feature and a label, which is never read.
        args.clients = args.boards
        return Holdings(np.zeros((args.boards, 2), np.int16), np.arange(args.boards))

    selection = parts.selection_of(args)
    data = datasets.held(args.data, selection)
    findings.warn_of(findings.of_run(args.data, selection), args.data, warn)
    holdings = parts.owned(data, args.records)
    if holdings is not None:
        return _of_owners(args, holdings)

    args.records = args.records or 1
    most_clients = len(data.training) // args.records  # with so many records each
    if args.clients is None:
        args.clients = min(_CLIENTS, most_clients)
    bound = f"at most {most_clients}, by the records of {args.data}"
    require(args.clients <= most_clients, "clients", bound, args.clients)
    rows = dealt_records(data, args.clients, args.records, _SEED)
    return Holdings(rows, np.arange(len(rows)), args.records)


def _of_owners(args: argparse.Namespace, holdings: Holdings) -> Holdings:
    """Return what the owners get that are clients, and set their number.

    holdings: the records of all owners. Raises UsageError if there are fewer owners than clients, or
    than boards.
    """
    owners = holdings.clients
    if args.clients is None:
        args.clients = owners
    bound = f"at most {owners}, the devices that {args.data} names"
    require(args.clients <= owners, "clients", bound, args.clients)
    return holdings.of_first(args.clients)


@dataclass(frozen=True)
class _Clients:
    """What the clients of new boards get.

    holdings: their records. limits: of a client's privacy budget. unit: how many consecutive records
    a guarantee protects; 0: all of a client.
    """

    holdings: Holdings
    limits: Policy
    unit: int


def _require_enough(boards: int, clients: int) -> None:
    """Raise UsageError if there are more boards than clients."""
    if boards > clients:
        text = f"{boards} boards for {counted(clients, 'client')} leave some boards without one"
        raise UsageError(text, hint=f"use {counted(clients, 'board')} or fewer")


def _provision(store: Path, boards: list[Path], new_clients: _Clients) -> None:
    """Make the files of new boards, and put the keys of their clients into a store.

    boards: their directories, among which the clients are divided evenly.
    """
    holdings = new_clients.holdings
    clients = np.arange(holdings.clients)
    with Store(store, beside=True) as opened:  # a run may be waiting for these keys
        provision_fleet(
            opened,
            boards,
            rows=holdings.records[holdings.all_positions(clients)],
            policies=new_clients.limits,
            each=holdings.counts(clients).tolist(),
            unit=new_clients.unit,
        )


def _require_the_same(args: argparse.Namespace, directory: Path) -> None:
    """Raise UsageError for an option that differs from what existing boards were made with.

    directory: of the fleet. An option that the user has not given is None.
    """
    made = _made(directory)
    for name in _MADE:
        value = getattr(args, name)
        if value in (None, made.get(name)):
            continue
        option = f"{flag(name)} {value}"
        text = f"{option} changes nothing about the boards that {directory} holds already"
        new = f"tern fleet emulate {args.boards} {option} --dir NEW-DIR"
        raise UsageError(text, hint=f"leave it out to run those again, or make new ones: {new}")


def _made(directory: Path) -> dict[str, Any]:
    """Return the options with which the boards of a fleet were made; empty if they are not known.

    directory: of the fleet.
    """
    path = directory / FLEET_NAME / _MADE_NAME
    if not path.exists():
        return {}
    made: dict[str, Any] = json.loads(path.read_text())
    return made
