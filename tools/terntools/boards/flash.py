"""`tern board flash`: put MicroPython on a board, an ESP32 through esptool, a Pico by a UF2 file."""

import argparse
from collections.abc import Collection
from typing import Any

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports import names
from terntools.boards import at_port, devices, esp32, heard
from terntools.boards.firmware import SOURCES, Firmware, read_firmware
from terntools.boards.flash_options import DEFAULT, FLASH_BAUD, BootLoader, FlashOptions
from terntools.boards.flash_pico import flash_pico
from terntools.boards.prompt_errors import NoPromptError
from terntools.boards.volumes import find_volumes
from terntools.terminal import Bar

# The options that `tern board up` has as well: help and default by name and metavar.
_OPTIONS: dict[str, tuple[str, int | None]] = {
    "--firmware FILE": ("MicroPython: a .bin file for an ESP32, a .uf2 file for a Pico", None),
    "--volume DIR": (
        "folder of the drive of a Pico's boot loader (default: look for it)",
        None,
    ),
    "--no-reset": ("ESP32: its boot loader runs already (BOOT held at reset)", None),
    "--baud BAUD": ("ESP32: baud rate while flashing", FLASH_BAUD),
}


def flash(port: str, firmware: Firmware, options: FlashOptions = DEFAULT) -> dict[str, Any]:
    """Flash the board on `port`, check that it then runs MicroPython, and return a summary for JSON.

    Raises UsageError, with nothing changed, for a firmware that does not suit the board or would
    cost it its files, and where two boards may be meant. Raises DeviceError if the board does not
    answer, does not start, or is another one than before, and TernError if what was written does
    not verify.
    """
    if firmware.family == names.RP2:
        return flash_pico(port, firmware, options)

    summary = esp32.flash(port, firmware, options)
    # Without reset lines an ESP32 stays in its boot loader, and cannot be checked.
    if options.boot_loader.reset:
        options.tell(f"waiting for MicroPython on {port}")
        summary["firmware"] = _require_start(port, firmware, summary["unique_id"])
    return summary


def _require_start(port: str, firmware: Firmware, unique_id: str) -> str | None:
    """Wait until an ESP32 runs after flashing, and return MicroPython's version.

    The result is None if a user's program runs, which does not tell the version. unique_id: the
    chip's number, in hexadecimal digits. Raises DeviceError, with what the board prints, if it does
    not start, and if another board is on `port` now.
    """
    identity = at_port.wait_for_micropython(port)
    try:
        at_port.require_same_board(port, unique_id)
    except at_port.OtherBoardError:
        raise
    except NoPromptError as error:
        # Either a user's program runs, which is as it should be, or nothing does.
        if identity is None and heard.is_firmware_missing(error.printed):
            raise DeviceError(
                f"{firmware.path.name} was written and verified, but does not start: "
                f"{error.message}",
                hint="press its reset button; if that does not help, flash the firmware for its "
                "module",
            ) from error
    if identity is None:
        return None
    return identity.firmware


def add_parser(subparsers: Any) -> None:
    """Add `tern board flash` to the commands."""
    example = """tern board flash a0 --firmware RPI_PICO-v1.28.0.uf2
        tern board flash u0 --firmware ESP32_GENERIC-v1.28.0.bin"""
    parser = add_command(subparsers, "flash", "put MicroPython on a board", example, _run)
    devices.add_board(parser)
    add_options(parser)
    add_option(parser, "--erase", "also erase its files with its ledger: it becomes another device")


def add_options(parser: argparse.ArgumentParser, shown: Collection[str] | None = None) -> None:
    """Add the options that `tern board up` has as well.

    shown: the names of those that the help shows, such as "--firmware"; None for all.
    """
    for words, (text, default) in _OPTIONS.items():
        name, _, _ = words.partition(" ")
        is_hidden = shown is not None and name not in shown
        add_option(parser, words, text, default, hidden=is_hidden)


def options_of(args: argparse.Namespace, bar: Bar) -> FlashOptions:
    """Return how the options of the command line say to flash. bar: shows the progress.

    args: of `tern board flash` or `tern board up`, which has no --erase.
    """
    return FlashOptions(
        erase=getattr(args, "erase", False),
        volume=args.volume,
        boot_loader=BootLoader(reset=not args.no_reset, baud=args.baud),
        progress=bar.update,
        tell=bar.say,
    )


def _run(args: argparse.Namespace) -> int:
    """Flash the named board with the firmware of --firmware, and print what was done."""
    if not args.firmware:
        raise UsageError(
            "--firmware FILE is missing: tern does not come with MicroPython", hint=SOURCES
        )
    firmware = read_firmware(args.firmware)
    # A Pico that waits in its boot loader shows a volume.
    has_waiting_board = firmware.family == names.RP2 and bool(find_volumes(args.volume))
    port = names.resolve(args.board, may_be_absent=has_waiting_board)
    with Bar("flashing") as bar:
        result = {"port": port, **flash(port, firmware, options_of(args, bar))}
    port = result["port"]  # a Pico in its boot loader had none before
    outcome = "verified"
    if not result["verified"]:
        outcome = "written, but the board does not say which MicroPython it runs"
    where = f"{result['bytes']} bytes at {result['offset']:#x}"
    print_result(result, f"{result['chip']} on {port}: {where}, {outcome}", args.json)
    return errors.OK
