"""`tern board info`: asks boards for their identity, their state, and how fast they answer."""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from queue import SimpleQueue
from statistics import median
from typing import Any

from tern import wire
from ternhost.command import add_command, print_result
from ternhost.errors import OK
from ternhost.privacy.guarantee import Guarantee
from ternhost.reach.absence import describe
from ternhost.reach.links import open_link
from ternhost.reach.ports import names
from ternhost.store.boards import hello_fields
from ternhost.text import counted
from terntools.boards import devices

_ANSWERS = 5  # whose times are measured
_ENOUGH_MS = 5000  # of measuring, after which it ends: a board with a slot may be slow
_ENTROPY = {
    wire.FAILED: "failed",
    wire.CTR_DRBG: "CTR_DRBG AES-256",
    wire.HASH_DRBG: "Hash_DRBG SHA-256",
}


_SPENT = (
    "its budget is spent: the device has released as much as it may for life, and refuses from "
    "now on; other devices may go on ('tern keys list')"
)


def info(port: str) -> dict[str, Any]:
    """Ask the board at `port` for its identity and its state, and return them for JSON.

    A board answers the request by a HELLO, a frame in which it describes itself. Raises
    DeviceError, and RefusedError if it uses another version of the protocol.
    """
    with closing(open_link(port, SimpleQueue())) as link:
        hello = link.hello()
        answer_ms = _answer_times(link)
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
        "answer_ms": answer_ms,
    }


def _answer_times(link: Any) -> dict[str, Any]:
    """Measure how long a board takes to answer, `_ANSWERS` times, or fewer times if it is slow.

    link: to the board, which has answered before, so that it is not starting any more. Returns the
    statistics for JSON, in milliseconds. Raises DeviceError if it falls silent.
    """
    milliseconds = []
    for _ in range(_ANSWERS):
        start = time.perf_counter()
        link.hello()
        milliseconds.append(1000 * (time.perf_counter() - start))
        if sum(milliseconds) > _ENOUGH_MS:
            break
    return {
        "n": len(milliseconds),
        "median": median(milliseconds),
        "min": min(milliseconds),
        "max": max(milliseconds),
    }


_TESTED_ON = {
    "raw noise": "the raw noise itself",
    "mixed output": "what its generator makes of the noise (a dead source may go unnoticed)",
}


def add_parser(subparsers: Any) -> None:
    """Add `tern board info` to the commands."""
    summary = "show what boards are, their state, their budget, and how fast they answer"
    example = "tern board info a0\ntern board info a0 a1"
    parser = add_command(subparsers, "info", summary, example, _run)
    parser.add_argument("boards", nargs="+", metavar="BOARD", help=names.NAMES)


def _run(args: argparse.Namespace) -> int:
    """Print the identity and the state of each named board."""
    ports = [names.resolve(name) for name in args.boards]
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
    times = board["answer_ms"]
    lines.append(
        f"  answers in {times['median']:.2f} ms "
        f"(median of {times['n']}; {times['min']:.2f} to {times['max']:.2f})"
    )
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
