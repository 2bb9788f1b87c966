"""`tern fleet`: emulated boards that stay, for other commands and programs to talk to."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ternhost import datasets
from ternhost.cli import add_command, print_result
from ternhost.errors import OK, UsageError
from ternhost.fleet import MAX_BOARDS
from ternhost.fleet import attach as network
from ternhost.fleet.provision import Policy
from ternhost.mechanisms.base import parse_epsilon
from ternhost.runs import directory as run_directory
from ternhost.runs import session
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

_CHECK_EVERY = 0.5


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "fleet",
        "run emulated boards that stay, for other commands to talk to",
        "tern fleet emulate 2 --clients 500",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    emulate = add_command(
        actions,
        "emulate",
        "run N emulated boards until Ctrl-C, and print their ports and the store of their keys",
        "tern fleet emulate 2 --clients 500 --dir my-fleet\n"
        "tern train --fleet port:/dev/pts/3,/dev/pts/4 --store my-fleet/store.sqlite --reports 500 --group 100",
    )
    emulate.add_argument("boards", type=int, metavar="N")
    emulate.add_argument(
        "--dataset", choices=tuple(datasets.DATASETS), default="flights", help="what they hold"
    )
    emulate.add_argument(
        "--clients", type=int, default=1000, metavar="M", help="of all boards together (default 1000)"
    )
    emulate.add_argument(
        "--budget", default="2", metavar="E", help="epsilon of a client for its life (default 2)"
    )
    emulate.add_argument(
        "--largest", metavar="E", help="epsilon that one report may cost (default: the budget)"
    )
    emulate.add_argument(
        "--seed", type=int, default=1, metavar="S", help="which records they hold (default 1)"
    )
    emulate.add_argument(
        "--dir", metavar="D", help="of the boards' files; with boards in it, these run again"
    )
    emulate.add_argument(
        "--broker",
        metavar="BROKER",
        help="put them on this broker ('tern broker config') instead of their ports",
    )
    emulate.add_argument("--json", action="store_true", help="print one JSON object")
    emulate.set_defaults(func=run_emulate)


def run_emulate(args: argparse.Namespace) -> int:
    if not 1 <= args.boards <= MAX_BOARDS:
        raise UsageError(f"{args.boards} boards cannot be", hint=f"give 1 to {MAX_BOARDS}")
    binary = find_micropython()
    directory = Path(args.dir) if args.dir else run_directory.new_directory()
    boards = run_directory.board_directories(directory, args.boards)
    if not (directory / run_directory.FLEET_NAME).exists():
        _provision(args, directory, boards)
    elif missing := [board for board in boards if not board.is_dir()]:
        raise UsageError(f"{directory} holds fewer boards: there is no {missing[0]}", hint="ask for fewer")
    if args.broker:
        network.attach(boards, args.broker, directory / run_directory.STORE_NAME)
    with EmulatedFleet(binary, boards) as fleet:
        found = {
            "ports": fleet.ports,
            "store": str(directory / run_directory.STORE_NAME),
            "directory": str(directory),
        }
        text = "\n".join((*fleet.ports, f"keys are in {found['store']}; Ctrl-C ends the boards"))
        print_result(found, text, args.json)
        try:
            while True:
                fleet.check()
                time.sleep(_CHECK_EVERY)
        except KeyboardInterrupt:
            return OK


def _provision(args: argparse.Namespace, directory: Path, boards: list[Path]) -> None:
    budget = parse_epsilon(args.budget)
    policy = Policy(parse_epsilon(args.largest) if args.largest else budget, budget)
    session.provision_from(
        directory / run_directory.STORE_NAME,
        boards,
        datasets.load(args.dataset),
        args.clients,
        args.seed,
        policy,
    )
