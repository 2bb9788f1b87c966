"""`tern up`: from the box to a member of a fleet."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ternhost import errors
from ternhost.command import add_command, print_result
from ternhost.text import visible
from terntools.boards import deploy_command, devices, flash, flash_command, provision_command, up
from terntools.terminal import Bar, confirm


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "up",
        "make a board a member of a fleet: flash, deploy and provision it, as far as that is not done yet",
        "tern up a0 --firmware RPI_PICO-v1.28.0.uf2 --store fleet.sqlite --device 7 --records mine.csv\n"
        "tern up u0 --store fleet.sqlite --device 8 --dataset flights --yes",
    )
    parser.add_argument("board", metavar="BOARD", help=devices.NAMES)
    flash_command.add_options(parser)
    parser.add_argument(
        "--reflash", action="store_true", help="flash the board even if its MicroPython is recent enough"
    )
    deploy_command.add_options(parser)
    provision_command.add_options(parser, required=True)
    parser.add_argument("--yes", action="store_true", help="do not ask before anything is changed")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    member = provision_command.member_of(args)
    firmware = flash.read_firmware(args.firmware) if args.firmware else None
    store = Path(args.store)
    waiting = flash.find_volume(args.volume) is not None  # a board in its boot loader has no port yet
    port = args.board if waiting and ("/" in args.board) else devices.resolve(args.board)
    plan = up.make_plan(port, member, store, volume=args.volume, reflash=args.reflash, whole=args.whole)
    up.require_firmware(plan, firmware)
    print("\n".join(f"  {visible(line)}" for line in plan.lines()), file=sys.stderr)
    if plan and not args.yes:
        confirm()
    with Bar("writing") as bar:
        hello = up.carry_out(
            port, plan, member, store, lambda: flash_command.run_flash(port, args), whole=args.whole,
            progress=bar.update,
        )  # fmt: skip
    result: dict[str, Any] = {
        "port": port,
        "device": member.device,
        "changed": bool(plan),
        "flashed": plan.flash is not None,
        "deployed": list(plan.library.write),
        "provisioned": list(plan.membership.write),
    }
    text = f"device {member.device} on {port} is up"
    if hello is not None:
        left = (hello.budget or 0) / 1_000_000
        result.update(hello=hello.text, clients=hello.clients, epsilon_left=left, heap_free=hello.heap)
        text += f": {hello.text}; epsilon left {left:g}; heap free {hello.heap:,} bytes"
    print_result(result, text, args.json)
    return errors.OK
