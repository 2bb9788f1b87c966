"""`tern fleet`: emulated boards that stay, for other commands and programs to talk to."""

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tern import ledger
from ternhost import datasets
from ternhost.command import add_command, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.options import flag, require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.units import UNIT_HELP, parse_unit
from ternhost.provision.boards import FLEET_NAME, board_directories, provision_fleet, provision_from
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

_CHECK_EVERY = 0.5
_AMPLE = "1000"  # the largest that a ledger holds: a trial may ask round after round
# Options of boards when they are made.
_MADE = ("dataset", "classes", "clients", "records", "unit", "budget", "delta", "largest", "seed")
_MADE_NAME = "made.json"


def add_parser(subparsers: Any) -> None:
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
    if not 1 <= args.boards <= Emulated.MOST:
        raise UsageError(f"N must be 1 to {Emulated.MOST} boards, not {args.boards}")
    if args.program:
        if args.clients is not None or args.classes or args.records is not None:
            text = "boards with a --program have one client each, and collect their own records"
            raise UsageError(text, hint="leave --clients, --classes and --records out")
        if not Path(args.program).is_file():
            raise UsageError(
                f"there is no program {args.program}", hint="name a file of MicroPython"
            )
    enough = args.clients is None or args.clients >= args.boards
    require(enough, "clients", f"{args.boards} or more, one a board", args.clients)
    require(
        args.records is None or 1 <= args.records <= 0xFFFF, "records", "1 to 65535", args.records
    )
    require((args.seed or 0) >= 0, "seed", "0 or more", args.seed)
    if args.start_broker and not args.broker:
        raise UsageError("--start-broker needs --broker, which names its directory")
    binary = find_micropython()
    with heeding_interrupts(), ExitStack() as stack:
        keys = None
        if args.broker:
            from ternhost.reach.broker.mosquitto import ensure_running
            from terntools.emulators import at_broker

            if args.start_broker:
                stack.enter_context(ensure_running(args.broker, warn))
            keys = at_broker.keys_of(args.broker)
        store, boards = _boards(args, keys)
        watch = at_broker.connect(args.broker, keys, store, boards) if args.broker else None
        fleet = stack.enter_context(EmulatedFleet(binary, boards, args.program))
        result = {
            "ports": fleet.ports,
            "store": str(store),
            "directory": str(boards[0].parent.parent),
        }
        count = counted(len(boards), "board")
        places = [f"on the broker of {args.broker}: {count}"] if args.broker else fleet.ports
        text = "\n".join((*places, f"keys are in {store}; Ctrl-C ends the boards"))
        try:
            print_result(result, text, args.json)
            while True:
                for error in fleet.failed().values():
                    raise error
                if watch:
                    watch.look()
                time.sleep(_CHECK_EVERY)
        except KeyboardInterrupt:
            return OK


def _boards(args: argparse.Namespace, keys: Path | None) -> tuple[Path, list[Path]]:
    """The store and the directories of the boards, made where there are none. keys: the broker's
    store.
    """
    directory = Path(args.dir) if args.dir else keys.parent if keys else None
    if directory and (directory / FLEET_NAME).exists():
        boards = board_directories(directory, args.boards)
        if missing := [board for board in boards if not board.is_dir()]:
            raise UsageError(
                f"{directory} has fewer boards: there is no {missing[0]}", hint="ask for fewer"
            )
        _require_the_same(args, directory)
        return keys or directory / store_file.NAME, boards
    clients = args.boards if args.program else 1000
    defaults = {
        "dataset": "flights",
        "clients": clients,
        "records": 1,
        "unit": "device",
        "budget": _AMPLE,
        "seed": 1,
    }
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    unit = parse_unit(args.unit)
    if args.largest or args.delta:
        limits = policy(args.largest, args.budget, args.delta)
    else:
        budget = parse_epsilon(args.budget, ledger.MAX_BUDGET, "--budget")
        limits = Policy(budget, budget)
    dataset = None if args.program else datasets.held(args.dataset, classes=args.classes)
    if dataset:
        most = len(dataset.training) // args.records
        must = f"at most {most}, by the records of {args.dataset}"
        require(args.clients <= most, "clients", must, args.clients)
    directory = directory or run_directory.new_directory()
    boards = board_directories(directory, args.boards)
    store = keys or directory / store_file.NAME
    if dataset:
        provision_from(store, boards, dataset, args.clients, args.seed, limits, args.records, unit)
    else:
        none = np.zeros((args.boards, 2), np.int16)  # its own are elsewhere: tern.recorder
        with Store(store, beside=True) as opened:
            provision_fleet(opened, boards, none, limits, unit=unit)
    run_directory.write_json(
        boards[0].parent / _MADE_NAME, {name: getattr(args, name) for name in _MADE}
    )
    return store, boards


def _require_the_same(args: argparse.Namespace, directory: Path) -> None:
    """Raise UsageError for an option that boards which were made before do not have."""
    path = directory / FLEET_NAME / _MADE_NAME
    made = json.loads(path.read_text()) if path.exists() else {}
    for name in _MADE:
        if (value := getattr(args, name)) not in (None, False, made.get(name)):
            option = flag(name) if value is True else f"{flag(name)} {value}"
            text = f"{option} changes nothing about the boards that {directory} holds already"
            new = f"tern fleet emulate {args.boards} {option} --dir NEW-DIR"
            raise UsageError(text, hint=f"leave it out to run those again, or make new ones: {new}")
