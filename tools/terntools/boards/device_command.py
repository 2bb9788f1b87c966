"""`tern device`: ask boards who they are, whether they answer, and how fast they are.

Keys are in device_keys.py, records in device_records.py.
"""

from __future__ import annotations

import argparse
from typing import Any

from ternhost.cli import add_command, print_result
from ternhost.errors import OK, UsageError
from terntools.boards import device, device_keys, device_records, devices

# What the health tests of a board see, as `info` names it.
_TESTED_ON = {
    "raw noise": "the raw noise itself",
    "mixed output": "what its generator makes of the noise (a dead source may go unnoticed)",
}


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "device",
        "ask boards who they are and how fast; read their records; make, list and revoke the keys of devices",
        "tern device info a0",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)

    info = add_command(
        actions,
        "info",
        "show what a board says of itself, or each board of a fleet",
        "tern device info a0\ntern device info --fleet port:/dev/ttyACM0,/dev/ttyACM1",
    )
    info.set_defaults(func=run_info)

    ping = add_command(
        actions,
        "ping",
        "time how long a board takes to answer, or each board of a fleet",
        "tern device ping a0",
    )
    ping.add_argument("--count", type=int, default=5, metavar="N", help="ask each board N times (default 5)")
    ping.set_defaults(func=run_ping)

    bench = add_command(
        actions,
        "bench",
        "have a board time its sampling, and the same in plain floats",
        "tern device bench a0\ntern device bench --fleet emulated:1 --json",
    )
    bench.add_argument("--epsilon", default="2", metavar="E", help="epsilon of the cards (default 2)")
    bench.add_argument(
        "--repeats", type=int, default=15, metavar="N", help="measure every figure N times (default 15)"
    )
    bench.set_defaults(func=run_bench)

    device_keys.add_actions(actions)
    device_records.add_actions(actions)

    for command in (info, ping, bench):
        devices.add_board_or_fleet(command, "emulated:N or port:PATH[,PATH...]")
        command.add_argument("--json", action="store_true", help="print one JSON object")


def run_info(args: argparse.Namespace) -> int:
    with device.boards(devices.fleet_of(args)) as ports:
        found = [device.info(port) for port in ports]
    lines = []
    for board in found:
        last = board["first_device"] + board["clients"] - 1
        clients = f"clients {board['first_device']} to {last}" if board["clients"] else "not provisioned"
        lines.append(f"{board['port']}: {board['build']}")
        lines.append(
            f"  {clients}; epsilon left (first client) {board['epsilon_left']:g}; "
            f"heap free {board['heap_free_bytes']:,} bytes; schema {board['schema']}"
        )
        lines.append(f"  entropy {board['entropy']}, tested on {_TESTED_ON[board['entropy_assessed']]}")
        lines.extend(_troubles(board))
    print_result({"boards": found}, "\n".join(lines), args.json)
    return OK


def _troubles(board: dict[str, Any]) -> list[str]:
    # The line that says what went wrong since power on, if anything did.
    told = [
        f"{board[what]:,} {what if board[what] > 1 else what[:-1]}"
        for what in ("exceptions", "restarts")
        if board[what]
    ]
    return [f"  since power on {' and '.join(told)}"] if told else []


def run_ping(args: argparse.Namespace) -> int:
    if args.count < 1:
        raise UsageError(f"--count must be 1 or more, not {args.count}")
    with device.boards(devices.fleet_of(args)) as ports:
        found = [device.ping(port, args.count) for port in ports]
    lines = [
        f"{board['port']}: {board['ms']['n']} answers, median {board['ms']['median']:.2f} ms "
        f"({board['ms']['min']:.2f} to {board['ms']['max']:.2f})"
        for board in found
    ]
    print_result({"boards": found}, "\n".join(lines), args.json)
    return OK


def run_bench(args: argparse.Namespace) -> int:
    if not 1 <= args.repeats <= 255:
        raise UsageError(f"--repeats must be 1 to 255, not {args.repeats}")
    with device.boards(devices.fleet_of(args)) as ports:
        if len(ports) > 1:
            raise UsageError(
                f"--fleet must be one board for a bench, not {len(ports)}", hint="such as --fleet emulated:1"
            )
        result = device.bench(ports[0], args.epsilon, args.repeats)
    lines = [result["build"], "microseconds a coordinate, entropy included (plain float beside it):"]
    for name, figure in result["us_per_coordinate"].items():
        plain = result["us_per_coordinate_plain_float"][name]
        times = result["times_faster_than_plain_float"][name]
        lines.append(f"  {name:14} {figure['median']:8.3f} {plain['median']:10.3f}   {times:5.1f} times")
    lines.append(f"microseconds a report: {result['us_per_report']['median']:.0f}")
    lines.append(f"heap in use: {result['heap_bytes']['median']:,.0f} bytes")
    print_result(result, "\n".join(lines), args.json)
    return OK
