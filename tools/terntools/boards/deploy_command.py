"""`tern deploy`: put the device library on a board that has MicroPython."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ternhost import errors
from ternhost.command import add_command, print_result
from terntools.boards import deploy, devices, mpy
from terntools.boards.repl import Repl
from terntools.terminal import Bar


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "deploy",
        "put the device library on a board, as far as it is not there yet",
        "tern deploy a0\ntern deploy a0 --with bench\ntern deploy a0 --main my_program.py\n"
        "tern deploy socket://127.0.0.1:7777 --json",
    )
    parser.add_argument("board", metavar="BOARD", help=devices.NAMES)
    parser.add_argument(
        "--with",
        dest="more",
        metavar="MODULE",
        action="append",
        default=[],
        choices=mpy.CHOICES,
        help=f"add a module to those of the client, with what belongs to it: {', '.join(mpy.CHOICES)} "
        "(`tern device bench` needs bench); modules that were added before stay",
    )
    parser.add_argument(
        "--main",
        metavar="FILE",
        help="put this program on it as main.py, with the modules that it imports (default: tern's own main.py, "
        "which serves the host and does nothing else)",
    )
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tern up` has as well."""
    parser.add_argument(
        "--whole",
        action="store_true",
        help="put every module on it, with line numbers: for programs of your own, and to see where one fails",
    )


def run_deploy(
    port: str, whole: bool = False, more: Sequence[str] = (), program: bytes | None = None
) -> dict[str, Any]:
    """Deploy to the board on `port` and start it; what was done, and what the board says.

    program: its main.py, if it is not tern's own; that need not answer at the port.
    """
    with Bar("deploying") as bar, Repl(port) as repl:
        machine, changes = deploy.plan(repl, whole, more, program)
        bar.say(f"{machine.description}, MicroPython {machine.version}, {machine.processor}")
        deploy.install(repl, machine, changes, bar.update)
        repl.start_main()
    done = {
        "port": port,
        "machine": machine.description,
        "micropython": machine.version,
        "processor": machine.processor,
        "written": list(changes.write),
        "removed": list(changes.remove),
        "bytes": changes.size,
    }
    if program is not None:
        return done
    hello = deploy.wait_for_hello(port)
    return {**done, "hello": hello.text, "clients": hello.clients, "heap_free": hello.heap}


def _run(args: argparse.Namespace) -> int:
    program = deploy.read_program(args.main) if args.main else None
    result = run_deploy(devices.resolve(args.board), args.whole, args.more, program)
    if program is not None:
        text = (
            f"{args.main} is main.py on {result['port']}, and has been started\n"
            f"  {len(result['written'])} files written ({result['bytes']:,} bytes), {len(result['removed'])} removed"
        )
        print_result(result, text, args.json)
        return errors.OK
    text = (
        f"{result['hello']}\n"
        f"  {len(result['written'])} files written ({result['bytes']:,} bytes), {len(result['removed'])} removed; "
        f"heap free {result['heap_free']:,} bytes; "
        + (f"{result['clients']} clients" if result["clients"] else "not provisioned yet: tern provision")
    )
    print_result(result, text, args.json)
    return errors.OK
