"""`tern emulator`: build, list and run emulated boards."""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ternhost import cache, errors
from ternhost.command import add_command, add_group, add_option, print_line, print_result
from ternhost.errors import DeviceError, UsageError
from ternhost.reach import named
from ternhost.signals import heeding_interrupts
from ternhost.terminal import Progress
from terntools.emulators import (
    catalogue,
    micropython,
    named_boards,
    newest,
    pico,
    pico_w,
    qemu,
    webassembly,
)
from terntools.emulators.process import EmulatedMachine
from terntools.emulators.qemu.build import BUILDS

# What `tern emulator build` can name. Each function builds it, if it is not there yet, and
# returns where it is; its argument shows the user a line about a step.
_BUILDERS = {
    "device": micropython.build_device,
    "pico": pico.build_pico,
    "webassembly": webassembly.build,
}
for _name, _build_of_qemu in BUILDS.items():
    _BUILDERS[_name] = _build_of_qemu.make
_BUILDERS["newest"] = newest.build


def add_parser(subparsers: Any) -> None:
    """Add `tern emulator` and its actions to the commands."""
    actions = add_group(
        subparsers, "emulator", "build, list and run emulated boards", "tern emulator build"
    )
    _add_build(actions)
    _add_run(actions)
    summary = "list the builds and the MicroPython interpreters that tern finds and uses"
    add_command(actions, "info", summary, "tern emulator info --json", _info)


def _add_build(actions: Any) -> None:
    """Add `tern emulator build` to the actions."""
    summary = "build the emulated device or an emulated board, if it is not there yet"
    example = "tern emulator build\ntern emulator build device,pico,esp32 --json"
    build = add_command(actions, "build", summary, example, _build)
    text = (
        "what to build, separated by commas: device (32-bit MicroPython), pico (RP2040), "
        "esp32 (the instruction sets of ESP32-C3 and ESP32), m33 (that of RP2350), "
        "newest (device, esp32 and m33 with Debian's newest MicroPython, for tests), "
        "webassembly (MicroPython in Node.js, for tests) (default: device)"
    )
    build.add_argument("what", nargs="?", metavar="WHAT[,WHAT...]", default="device", help=text)


def _add_run(actions: Any) -> None:
    """Add `tern emulator run` to the actions."""
    example = """tern emulator build pico
        tern emulator run --flash pico.bin
        tern emulator run --name desk
        tern emulator run pico-w --firmware RPI_PICO_W-v1.28.0.uf2
        tern emulator run rv32 --flash c3.bin
        tern emulator run --blank"""
    run = add_command(
        actions, "run", "run an emulated board until Ctrl-C, and print its port", example, _run
    )
    text = (
        "pico, pico-w (with Wi-Fi that reaches only this computer; needs --firmware), or a board with "
        "the instruction set of ESP32-C3 (rv32), ESP32 (xtensa) or RP2350 (m33) (default: pico)"
    )
    run.add_argument(
        "what",
        nargs="?",
        metavar="BOARD",
        default=catalogue.PICO,
        choices=(*catalogue.NAMES, pico_w.NAME),
        help=text,
    )
    flash_or_name = run.add_mutually_exclusive_group()
    text = "file that keeps the flash of the board, made if it is missing (default: none)"
    add_option(flash_or_name, "--flash FILE", text, type=Path)
    text = (
        "name to find it by: that of the board, which then keeps its port and flash; other "
        "commands call it id:NAME"
    )
    add_option(flash_or_name, "--name NAME", text)
    text = "MicroPython: a .uf2 file for a Pico W, which a new flash of pico-w gets"
    add_option(run, "--firmware FILE", text, type=Path)
    text = "folder of the drive of a Pico's boot loader (default with --blank: a new one)"
    add_option(run, "--volume DIR", text, type=Path)
    text = (
        "leave a new flash empty; a Pico then waits for a firmware, of which tern provides the file"
    )
    add_option(run, "--blank", text)


def _build(args: argparse.Namespace) -> int:
    """Build the emulators that the user names and that are not there yet, and print where they are."""
    names = args.what.split(",")
    for name in names:
        if name not in _BUILDERS:
            text = f"there is no emulator to build with the name {name!r}"
            raise UsageError(text, hint=f"one or more of {','.join(_BUILDERS)}")
    built_paths = {}
    with Progress() as progress:
        for name in names:
            build = _BUILDERS[name]
            built_paths[name] = str(build(progress.say))
    lines = [f"{name}: {path}" for name, path in built_paths.items()]
    print_result(built_paths, "\n".join(lines), args.json)
    return errors.OK


def _run(args: argparse.Namespace) -> int:
    """Run an emulated board until Ctrl-C, and print the port at which it is.

    Raises DeviceError if the board ends by itself.
    """
    if args.what != catalogue.PICO and (args.blank or args.volume is not None):
        text = f"--blank and --volume need a Pico, not {args.what}"
        raise UsageError(text, hint="no other emulated board has a boot loader")
    if args.what != pico_w.NAME and args.firmware is not None:
        text = f"--firmware is for {pico_w.NAME}, not {args.what}"
        raise UsageError(text, hint="tern has the firmware of all other emulated boards")
    with (
        heeding_interrupts(),
        tempfile.TemporaryDirectory(prefix="tern-blank-") as folder,
        contextlib.ExitStack() as stack,
    ):
        named_board = None
        if args.name is not None:
            named_board = named_boards.prepare(args.name, args.what)
            args.flash = named_board.flash
        flashing: dict[str, str] = {}  # options with which a blank Pico is flashed
        if args.blank:
            flashing = _prepare_flashing(args, Path(folder))
        board = stack.enter_context(_booted(args))
        result = {"port": board.url, **flashing}
        name_of_board = board.url  # in other commands
        if named_board is not None:
            stack.enter_context(named_boards.linked(named_board, board.url))
            result.update(port=named_board.url, name=named_board.name, flash=str(named_board.flash))
            name_of_board = f"id:{named_board.name}"
        with contextlib.suppress(KeyboardInterrupt):
            print_result(result, result["port"], args.json)
            if not (args.quiet or args.json):
                _print_next_step(name_of_board, flashing)
            while board.is_running:
                time.sleep(0.2)
            raise DeviceError(f"the emulated {args.what} has ended", hint="its messages are above")
    return errors.OK


def _print_next_step(board: str, flashing: Mapping[str, str]) -> None:
    """Print how the board becomes a member of a fleet, on standard error.

    board: what other commands call it. flashing: the options with which a blank Pico is flashed.
    """
    options = "".join(f" --{name} {value}" for name, value in flashing.items())
    example = f"tern board up {board}{options} --store fleet.sqlite --device 1 --data flights --yes"
    print_line(f"in another terminal, such as: {example}", sys.stderr)


def _prepare_flashing(args: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Write a firmware file for a blank Pico, and choose the folder of its drive if none is named.

    folder: where both are. Returns the options of `tern board up` that name them.
    """
    if args.volume is None:
        args.volume = folder / "drive"
    firmware = folder / "micropython.uf2"
    firmware.write_bytes(pico.firmware_file())
    return {"firmware": str(firmware), "volume": str(args.volume)}


def _booted(args: argparse.Namespace) -> EmulatedMachine:
    """Start the emulated board that the options describe. Raises DeviceError and UsageError."""
    if args.what == catalogue.PICO:
        return pico.boot_pico(args.flash, volume=args.volume, blank=args.blank)
    if args.what == pico_w.NAME:
        return pico_w.boot_pico_w(args.firmware, args.flash)
    return catalogue.boot(args.what, args.flash)


def _info(args: argparse.Namespace) -> int:
    """Print which emulators are built, and which MicroPython interpreters there are."""
    info = {**micropython.info(), "pico": pico.info(), **qemu.info()}
    info["webassembly"] = cache.read_record(webassembly.RECIPE)
    used_interpreter = info["micropython"] or "none: tern emulator build"
    lines = [f"cache        {info['cache']}", f"micropython  {used_interpreter}"]
    for candidate in info["candidates"]:
        suitability = "suitable"
        if candidate["faults"]:
            suitability = f"unsuitable: {'; '.join(candidate['faults'])}"
        candidate_words = f"{candidate['path']} ({candidate['origin']}) {candidate['version']}"
        lines.append(f"  {candidate_words}: {suitability}")

    pico_state = "none: tern emulator build pico"
    if info["pico"]["firmware"] and info["pico"]["machine"]:
        pico_state = "built"
    lines.append(f"pico         {pico_state}")
    for name in BUILDS:
        build_state = f"none: tern emulator build {name}"
        if info[name]:
            build_state = f"built of {_source(info[name])}"
        lines.append(f"{name:12} {build_state}")
    webassembly_state = "none: tern emulator build webassembly"
    if info["webassembly"]:
        webassembly_state = "built"
    lines.append(f"webassembly  {webassembly_state}")
    info["named"] = []
    for board in named.all_boards():
        state = "runs" if board.is_running else "off"
        lines.append(f"{board.name:12} emulated {board.kind}, {state}: {board.folder}")
        info["named"].append(
            {"name": board.name, "kind": board.kind, "state": state, "folder": str(board.folder)}
        )
    print_result(info, "\n".join(lines), args.json)
    return errors.OK


def _source(record: dict[str, Any]) -> str:
    """Return the version of MicroPython from which something was built.

    record: of the build. Its "built_with" has the file names of Debian's source packages, such as
    "micropython_1.25.0+ds-1.debian.tar.xz".
    """
    packages = [name for name in record["built_with"] if name.startswith("micropython_")]
    first_package = str(min(packages))
    return first_package.removesuffix(".debian.tar.xz").replace("_", " ")
