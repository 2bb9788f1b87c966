"""`tern flash`: put MicroPython on a board."""

from __future__ import annotations

import argparse
from typing import Any

from ternhost import errors
from ternhost.command import add_command, print_result
from ternhost.errors import UsageError
from terntools.boards import devices, esp32, flash
from terntools.terminal import Bar


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "flash",
        "put MicroPython on a board",
        "tern flash a0 --firmware RPI_PICO-v1.28.0.uf2\ntern flash u0 --firmware ESP32_GENERIC-v1.28.0.bin",
    )
    parser.add_argument("board", metavar="BOARD", help=devices.NAMES)
    add_options(parser)
    parser.add_argument(
        "--erase",
        action="store_true",
        help="erase the board's files too, ledgers included: for a board that becomes another device",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tern up` has as well."""
    parser.add_argument(
        "--firmware",
        metavar="FILE",
        help="MicroPython to write: a .bin file for an ESP32, a .uf2 file for a Pico",
    )
    parser.add_argument(
        "--volume", metavar="DIR", help="folder where a Pico's boot loader is mounted (default: look for it)"
    )
    parser.add_argument(
        "--no-reset",
        action="store_true",
        help="ESP32: do not reset it, it is in its boot loader already (BOOT held at reset)",
    )
    parser.add_argument(
        "--no-stub", action="store_true", help="ESP32: talk to the ROM alone, which is slower"
    )
    parser.add_argument(
        "--baud",
        type=int,
        default=esp32.FLASH_BAUD,
        help="ESP32: baud rate while flashing (default: %(default)s)",
    )


def run_flash(port: str, args: argparse.Namespace) -> dict[str, Any]:
    """Flash the board on `port` as the options say."""
    firmware = flash.read_firmware(args.firmware)
    with Bar("flashing") as bar:
        return flash.flash(
            port, firmware, reset=not args.no_reset, stub=not args.no_stub, volume=args.volume, baud=args.baud,
            erase=getattr(args, "erase", False),
            progress=bar.update, tell=bar.say,
        )  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    if not args.firmware:
        where = "\n  ".join(f"{family}: {url}" for family, url in flash.WHERE.items())
        raise UsageError(
            "--firmware FILE is missing: tern does not come with MicroPython", hint=f"get it from\n  {where}"
        )
    firmware = flash.read_firmware(args.firmware)
    waits = firmware.family == devices.RP2 and flash.find_volume(args.volume) is not None
    if args.board == "auto" and waits:
        raise UsageError(
            "BOARD must be a port, not auto: the board waits in its boot loader and has no port yet",
            hint="name it: such as a0",
        )
    port = args.board if waits and "/" in args.board else devices.resolve(args.board)
    result = {"port": port, **run_flash(port, args)}
    text = f"{result['chip']} on {port}: {result['bytes']} bytes at {result['offset']:#x}, verified"
    print_result(result, text, args.json)
    return errors.OK
