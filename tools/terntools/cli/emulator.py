"""`tern emulator`: build and show what stands in for a board."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from ternhost import errors
from ternhost.cli import add_command, print_result
from ternhost.errors import DeviceError, UsageError
from terntools import emulator, pico

_BUILDERS = {"device": emulator.build_device, "pico": pico.build_pico}


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "emulator", "build, show and run what stands in for a board", "tern emulator build"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    build = add_command(
        actions,
        "build",
        "build the emulated device or the emulated Pico, if it is not there yet",
        "tern emulator build\ntern emulator build --what device,pico --json",
    )
    build.add_argument(
        "--what", default="device", metavar="LIST", help=f"of {', '.join(_BUILDERS)} (default: device)"
    )
    build.add_argument("--json", action="store_true", help="print one JSON object")
    build.set_defaults(func=_build)

    run = add_command(
        actions,
        "run",
        "run an emulated Pico until Ctrl-C, and print its port",
        "tern emulator run --flash pico.bin\ntern emulator run --flash new.bin --blank --volume boot",
    )
    run.add_argument("--flash", type=Path, metavar="FILE", help="keeps its flash; made if it is not there")
    run.add_argument(
        "--volume", type=Path, metavar="DIR", help="where the volume of its USB boot loader shows up"
    )
    run.add_argument(
        "--blank",
        action="store_true",
        help="a new flash holds no firmware: its boot loader waits for one, from `tern up` with the same --volume",
    )
    run.add_argument("--json", action="store_true", help="print one JSON object")
    run.set_defaults(func=_run)

    info = add_command(actions, "info", "show what is built, found and used", "tern emulator info --json")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(func=_info)


def _build(args: argparse.Namespace) -> int:
    wanted = args.what.split(",")
    if unknown := [name for name in wanted if name not in _BUILDERS]:
        raise UsageError(
            f"there is no emulator called '{unknown[0]}'", hint=f"there are: {', '.join(_BUILDERS)}"
        )
    built = {name: str(_BUILDERS[name](_progress)) for name in wanted}
    print_result(built, "\n".join(f"{name}: {path}" for name, path in built.items()), args.json)
    return errors.OK


def _run(args: argparse.Namespace) -> int:
    if args.blank and args.volume is None:
        raise UsageError(
            "a blank Pico waits in its boot loader", hint="say where that shows up: --volume DIR"
        )
    with pico.boot_pico(args.flash, volume=args.volume, blank=args.blank) as board:
        print_result({"port": board.url}, board.url, args.json)
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            while board.is_running:
                time.sleep(0.2)
            raise DeviceError("the emulated Pico has ended", hint="its messages are above")
    return errors.OK


def _info(args: argparse.Namespace) -> int:
    info = {**emulator.info(), "pico": pico.info()}
    has_pico = info["pico"]["firmware"] and info["pico"]["machine"]
    lines = [
        f"cache        {info['cache']}",
        f"micropython  {info['micropython'] or 'none: tern emulator build'}",
    ]
    for one in info["candidates"]:
        verdict = f"will not do: {'; '.join(one['faults'])}" if one["faults"] else "suitable"
        lines.append(f"  {one['path']} ({one['origin']}) {one['version']}: {verdict}")
    lines.append(f"pico         {'built' if has_pico else 'none: tern emulator build --what pico'}")
    print_result(info, "\n".join(lines), args.json)
    return errors.OK


def _progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
