"""`tern device`: ask boards for their identity, and whether they answer."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

import numpy as np

from tern import fixed, wire
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO
from ternhost.privacy.guarantee import Guarantee
from ternhost.provision.boards import board_directories, new_keys, provision_board
from ternhost.reach import fleet
from ternhost.reach.absence import describe
from ternhost.reach.links import open_link
from ternhost.store.boards import hello_fields
from ternhost.text import counted
from terntools.boards import devices

_ENTROPY = {
    wire.FAILED: "failed",
    wire.CTR_DRBG: "CTR_DRBG AES-256",
    wire.HASH_DRBG: "Hash_DRBG SHA-256",
}


_SPENT = (
    "its budget is spent: the device has told as much as it may for life, and keeps this promise by "
    "refusing; others may go on ('tern keys list')"
)


@contextmanager
def boards(fleet_name: str) -> Iterator[list[str]]:
    """Open a fleet, and yield the ports of its boards while the context is open.

    fleet_name: such as "port:a0,a1" for boards on ports, or "emulated:2". Emulated boards are
    started here, each as one device with a new key and one record. Raises UsageError and
    DeviceError.
    """
    parsed_fleet = fleet.parse(fleet_name)
    with tempfile.TemporaryDirectory(prefix="tern-") as scratch:
        directories = []
        if parsed_fleet.provisions:  # emulated boards need files
            directories = board_directories(Path(scratch), parsed_fleet.count)
        record = np.full((1, 3), fixed.ONE, np.int16)  # two features and a label, all of them 1
        policy = Policy(MICRO, MICRO)  # a budget of epsilon 1, also for one report
        for device, directory in enumerate(directories, 1):
            keys = list(new_keys([device]).values())
            provision_board(directory, device, keys, record, policy)
        with parsed_fleet.boards(directories, whole=True) as running:
            yield list(running.ports)


def info(port: str) -> dict[str, Any]:
    """Ask the board at `port` for its identity and its state, and return them for JSON.

    A board answers the request by a HELLO, a frame in which it describes itself. Raises
    DeviceError, and RefusedError if it uses another version of the protocol.
    """
    with closing(open_link(port, SimpleQueue())) as link:
        hello = link.hello()
    stored_fields = hello_fields(hello)  # with why and when it was absent from its broker
    # The text is "board; interpreter; version", of which a program may leave out the end.
    parts = (hello.text or "").split("; ")
    board, interpreter, version = [*parts, "", "", ""][:3]
    return {
        # What the board is.
        "port": port,
        "board": board,
        "interpreter": interpreter,
        "version": version.removeprefix("tern "),
        "build": hello.text,
        "wire_version": hello.version,
        "schema": hello.schema.hex(),
        # The devices (clients) that it serves, and the privacy budget of the first one.
        "first_device": hello.first,
        "clients": hello.clients,
        **devices.budget(hello),
        "budget": devices.budget_text(hello),
        "budget_spent": devices.is_spent(hello),
        # Its limits and its state. After each `credit` bytes it tells its host
        # that it has room for as many again.
        "largest_frame": hello.largest,
        "credit": hello.credit,
        "fleet_epoch": hello.epoch,
        "most_records": hello.records,
        "heap_free_bytes": hello.heap,
        "exceptions": hello.exceptions,
        "restarts": hello.restarts,
        "absent": stored_fields.get("absent"),
        "absence": describe(stored_fields),
        "entropy": _ENTROPY.get(hello.entropy or 0, "unknown"),
        "entropy_assessed": "raw noise" if hello.assessed == wire.RAW else "mixed output",
    }


def ping(port: str, count: int = 5) -> dict[str, Any]:
    """Measure how long the board at `port` takes to answer, `count` times.

    Returns the statistics for JSON, in milliseconds. Raises DeviceError and RefusedError, as `info`
    does.
    """
    milliseconds = []
    with closing(open_link(port, SimpleQueue())) as link:
        link.hello()  # not measured, since the board may still be starting
        for _ in range(count):
            start = time.perf_counter()
            link.hello()
            milliseconds.append(1000 * (time.perf_counter() - start))
    statistics = {
        "n": count,
        "median": median(milliseconds),
        "min": min(milliseconds),
        "max": max(milliseconds),
    }
    return {"port": port, "ms": statistics}


_TESTED_ON = {
    "raw noise": "the raw noise itself",
    "mixed output": "what its generator makes of the noise (a dead source may go unnoticed)",
}


def add_parser(subparsers: Any) -> None:
    """Add `tern device` and its actions to the commands."""
    summary = "show the identity and state of a board, or of each board of a fleet"
    example = "tern board info a0\ntern board info --fleet port:a0,a1"
    info = add_command(subparsers, "info", summary, example, run_info)
    summary = "measure how long a board, or each board of a fleet, takes to answer"
    ping = add_command(subparsers, "ping", summary, "tern board ping a0", run_ping)
    add_option(ping, "--count N", "number of requests to each board", 5)
    for command in (info, ping):
        devices.add_board_or_fleet(
            command, "all boards of a fleet: emulated:N or port:BOARD[,BOARD...]"
        )


def run_info(args: argparse.Namespace) -> int:
    """Print the identity and the state of each named board."""
    with boards(devices.fleet_of(args)) as ports:
        boards_info = [info(port) for port in ports]
    lines = []
    for board in boards_info:
        lines += _info_lines(board)
    print_result({"boards": boards_info}, "\n".join(lines), args.json)
    return OK


def _info_lines(board: dict[str, Any]) -> list[str]:
    """Describe a board in lines for people. board: what `info` has returned."""
    first_device = board["first_device"]
    client_count = board["clients"]
    if client_count == 0:
        device_words = "not provisioned;"
    elif client_count == 1:
        device_words = f"device {first_device};"
    else:
        device_words = f"devices {first_device} to {first_device + client_count - 1}; of the first:"
    heap = devices.heap(board["heap_free_bytes"])
    lines = [
        f"{board['port']}: {board['build']}",
        f"  {device_words} {board['budget']}; {heap}; schema {board['schema']}",
    ]
    if board["guarantee"]:
        lines.append(f"  {Guarantee.from_json(board['guarantee']).words()}")
    tested_on = _TESTED_ON[board["entropy_assessed"]]
    lines.append(f"  entropy {board['entropy']}, tested on {tested_on}")
    if board["budget_spent"]:
        lines.append(f"  {_SPENT}")
    incidents = []
    if board["exceptions"]:
        incidents.append(counted(board["exceptions"], "exception"))
    if board["restarts"]:
        incidents.append(counted(board["restarts"], "restart"))
    if incidents:
        lines.append(f"  since power on {' and '.join(incidents)}")
    if board["absence"]:
        lines.append(f"  {board['absence']}")
    return lines


def run_ping(args: argparse.Namespace) -> int:
    """Print how long each named board takes to answer."""
    if args.count < 1:
        raise UsageError(f"--count must be 1 or more, not {args.count}")
    with boards(devices.fleet_of(args)) as ports:
        results = [ping(port, args.count) for port in ports]
    lines = []
    for board in results:
        times = board["ms"]
        lines.append(
            f"{board['port']}: {counted(times['n'], 'answer')}, median {times['median']:.2f} ms "
            f"({times['min']:.2f} to {times['max']:.2f})"
        )
    print_result({"boards": results}, "\n".join(lines), args.json)
    return OK
