"""`tern monitor`: watch a board's frames, rates, errors and budget."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from ternhost import errors
from ternhost.command import add_command, print_result
from ternhost.text import visible
from terntools.boards import devices
from terntools.boards.monitor import Monitor
from terntools.terminal import require_positive


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "monitor",
        "watch a board: frames, rates, errors, budget, heap, temperature",
        "tern monitor a0\ntern monitor a0 --seconds 10 --json",
    )
    parser.add_argument("board", metavar="BOARD", help=devices.NAMES)
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="end after so many seconds (default: at Ctrl-C)"
    )
    parser.add_argument(
        "--every", type=float, default=2.0, metavar="S", help="seconds between hellos (default 2)"
    )
    parser.add_argument("--quiet", action="store_true", help="print no line for each frame")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    require_positive(args, "seconds", "every")
    start = time.monotonic()

    def tell(line: str) -> None:
        if not args.quiet:
            print(
                f"{time.monotonic() - start:9.3f} {visible(line)}",
                file=sys.stderr if args.json else sys.stdout,
                flush=True,
            )

    monitor = Monitor(devices.resolve(args.board), tell, args.every)
    print(f"talk to the board through {monitor.tap}", file=sys.stderr, flush=True)
    try:
        monitor.run(start + args.seconds if args.seconds is not None else None)
    except KeyboardInterrupt:
        pass
    finally:
        monitor.close()
    state = monitor.state
    result = {**state.as_dict(), "seconds": round(time.monotonic() - start, 3), "tap": monitor.tap}
    frames_rate, bytes_rate = state.rates(time.monotonic())
    result.update(frames_per_second=round(frames_rate, 2), bytes_per_second=round(bytes_rate, 1))
    warmth = "" if state.temperature is None else f"; {state.temperature:g} C"
    left = "?" if state.epsilon_left is None else f"{state.epsilon_left:g}"
    text = (
        f"{state.text or 'no tern heard'}: {sum(state.frames.values())} frames, {frames_rate:.1f} and {bytes_rate:.0f} "
        f"bytes a second; {sum(state.errors.values())} errors, {state.damaged} damaged; epsilon left {left}; heap free "
        f"{state.heap_free or 0:,} bytes{warmth}"
    )
    print_result(result, text, args.json)
    return errors.OK if state.text else errors.NO_DEVICE
