"""`tern relay`: boards on USB on a broker."""

import argparse
import time
from pathlib import Path
from typing import Any

from ternhost import long_running
from ternhost.command import add_command, add_option, print_result, warn
from ternhost.errors import OK
from ternhost.long_running import ServiceNeeds
from ternhost.reach.ports import names
from ternhost.signals import heeding_interrupts
from terntools.boards.relay import Relay, passwords_of
from terntools.listed_commands import RELAY

_CHECK_EVERY = 0.5  # seconds between two looks whether Ctrl-C was pressed


def add_parser(subparsers: Any) -> None:
    """Add `tern relay` to the commands."""
    example = """tern relay a0 --broker my-broker
        tern broker site my-broker desk --ids 20-29 --relay
        tern relay a0,a1 --broker my-broker/sites/desk"""
    parser = add_command(subparsers, RELAY.name, RELAY.summary, example, _run)
    parser.add_argument("boards", metavar="BOARD[,BOARD...]", help=names.NAMES)
    add_option(parser, "--broker DIR", required=True)
    long_running.add_options(parser, _service_needs)


def _service_needs(args: argparse.Namespace) -> ServiceNeeds:
    """Return what `tern relay` needs as a service."""
    return ServiceNeeds(ports=True, uses_broker=Path(args.broker))


def _run(args: argparse.Namespace) -> int:
    """Relay the named boards until Ctrl-C."""
    from ternhost.reach.broker.access import Access, host_file

    boards = names.split(args.boards)
    path = host_file(args.broker)
    access = Access.load(path)
    passwords = passwords_of(path.parent, access)
    relays: list[Relay] = []
    with heeding_interrupts():
        try:
            for board in boards:
                relays.append(Relay(board, access, passwords, warn))
            subject = f"{len(boards)} boards are"
            if len(boards) == 1:
                subject = "1 board is"
            text = f"{subject} relayed to the broker at {access.host} port {access.port}; "
            text += "Ctrl-C ends it"
            result = {"ports": boards, "host": access.host, "port": access.port}
            print_result(result, text, args.json)
            long_running.ready(args)
            while True:
                time.sleep(_CHECK_EVERY)
        except KeyboardInterrupt:
            return OK
        finally:
            for relay in relays:
                relay.close()
