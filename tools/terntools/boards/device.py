"""`tern device`: ask boards for their identity, whether they answer, and how fast they are."""

from __future__ import annotations

import argparse
import queue
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tern import card as cards
from tern import fixed, host_frames, wire
from ternhost.command import add_command, print_result
from ternhost.errors import OK, DeviceError, RefusedError, UsageError
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO
from ternhost.provision.boards import board_directories, new_keys, provision_board
from ternhost.reach import fleet
from ternhost.reach.links import Link, open_link
from terntools.boards import device_keys, device_records, devices

BENCH_MECHANISMS = ("three-outputs", "duchi", "pm-sub")
_ENTROPY = {wire.FAILED: "failed", wire.CTR_DRBG: "CTR_DRBG AES-256", wire.HASH_DRBG: "Hash_DRBG SHA-256"}
_BENCH_TIMEOUT = 120.0


@contextmanager
def boards(spec: str) -> Iterator[list[str]]:
    """The ports of a fleet, for a while. Emulated boards are fresh ones, with a client each.

    Raises UsageError and DeviceError.
    """
    named = fleet.parse(spec)
    with tempfile.TemporaryDirectory(prefix="tern-") as scratch:
        directories = board_directories(Path(scratch), named.count) if named.provisions else []
        record = np.full((1, 3), fixed.ONE, np.int16)
        for i, directory in enumerate(directories):
            provision_board(directory, i + 1, list(new_keys([i + 1]).values()), record, Policy(MICRO, MICRO))
        with named.boards(directories, whole=True) as there:
            yield list(there.ports)


@contextmanager
def opened(port: str) -> Iterator[Link]:
    """A link to the board at `port`, for a while."""
    link = open_link(port, queue.SimpleQueue())
    try:
        yield link
    finally:
        link.close()


def info(port: str, timeout: float = 5.0) -> dict[str, Any]:
    """The board's own description at `port`. Raises DeviceError, and RefusedError for another schema."""
    with opened(port) as link:
        hello = link.hello(timeout)
    board, interpreter, version = [*(hello.text or "").split("; "), "", "", ""][:3]
    return {
        "port": port,
        "board": board,
        "interpreter": interpreter,
        "version": version.removeprefix("tern "),
        "build": hello.text,
        "wire_version": hello.version,
        "schema": hello.schema.hex(),
        "first_device": hello.first,
        "clients": hello.clients,
        "epsilon_left": (hello.budget or 0) / MICRO,
        "largest_frame": hello.largest,
        "credit": hello.credit,
        "fleet_epoch": hello.epoch,
        "most_records": hello.records,
        "heap_free_bytes": hello.heap,
        "exceptions": hello.exceptions,
        "restarts": hello.restarts,
        "entropy": _ENTROPY.get(hello.entropy or 0, "unknown"),
        "entropy_assessed": "raw noise" if hello.assessed == wire.RAW else "mixed output",
    }


def ping(port: str, count: int = 5, timeout: float = 5.0) -> dict[str, Any]:
    """Say hello to the board at `port` `count` times; milliseconds until its answer. Raises as `info` does."""
    with opened(port) as link:
        link.hello(timeout)  # the first may find it still starting
        times = []
        for _ in range(count):
            start = time.perf_counter()
            link.hello(timeout)
            times.append(1000 * (time.perf_counter() - start))
    return {"port": port, "ms": {"n": count, "median": median(times), "min": min(times), "max": max(times)}}


def bench(
    port: str, epsilon: str = "2", repeats: int = 15, names: Sequence[str] = BENCH_MECHANISMS
) -> dict[str, Any]:
    """Have the board at `port` time itself: microseconds per coordinate, with all entropy, and per report.

    Plain float is the same mechanism as it would be written without tern, with `random.random()`, in the same run.
    Every figure has `n`, how often it was timed, and `median`. Raises DeviceError, RefusedError, UsageError.
    """
    designs = {name: mechanisms.design(name, epsilon).card for name in names}
    sampled: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    report: dict[str, Any] = {}
    heap: list[int] = []
    with opened(port) as link:
        hello = link.hello()
        for name, card in designs.items():
            sampled[name] = _figure(_time(link, wire.BENCH_SAMPLE, repeats, card, heap))
            plain[name] = _figure(_time(link, wire.BENCH_PLAIN, repeats, card, heap))
        first = next(iter(designs.values()))
        report = _figure(_time(link, wire.BENCH_REPORT, repeats, first, heap))
        parts = {
            "entropy_us_per_byte": wire.BENCH_ENTROPY,
            "gradient_us_per_coordinate": wire.BENCH_GRADIENT,
            "tag_us": wire.BENCH_TAG,
            "ledger_us_per_write": wire.BENCH_LEDGER,
            "certify_us": wire.BENCH_CERTIFY,
        }
        others = {name: _figure(_time(link, case, repeats, first, heap)) for name, case in parts.items()}
    return {
        "build": hello.text,
        "port": port,
        "epsilon": cards.decode(first).epsilon / MICRO,
        "us_per_coordinate": sampled,
        "us_per_coordinate_plain_float": plain,
        "times_faster_than_plain_float": {
            name: plain[name]["median"] / sampled[name]["median"] for name in designs
        },
        "us_per_report": report,
        "heap_bytes": {"n": len(heap), "median": median(heap), "max": max(heap)},
        **others,
    }


def _time(link: Link, case: int, repeats: int, card: bytes, heap: list[int]) -> list[float]:
    # Microseconds a unit of each repeat; the heap in use is added to `heap`.
    request = bytearray(wire.MAX_FRAME)
    nonce = secrets.randbits(32)
    n = host_frames.encode_bench_request(request, nonce, case, repeats, card)
    reply = link.ask(bytes(request[:n]), wire.BENCH, nonce, _BENCH_TIMEOUT)
    if reply is None:
        raise DeviceError(f"{link.name} gave no answer to a bench", hint="reset the board and try again")
    if reply[0] == wire.ERROR:
        _, _, code, detail = host_frames.decode_error(reply, b"")
        if code == wire.ERR_FRAME:
            raise RefusedError(
                f"{link.name} has no bench", hint="put it on the board: tern deploy BOARD --with bench"
            )
        raise RefusedError(f"{link.name} refuses to time itself: {wire.error_name(code)} ({detail})")
    _, _, units, times, used, _ = host_frames.decode_bench(reply)
    heap.append(used)
    return [microseconds / units for microseconds in times]


def _figure(times: Sequence[float]) -> dict[str, Any]:
    return {"n": len(times), "median": round(median(times), 4), "min": round(min(times), 4)}


# The command

# Input of a board's health tests, as `info` names it.
_TESTED_ON = {
    "raw noise": "the raw noise itself",
    "mixed output": "what its generator makes of the noise (a dead source may go unnoticed)",
}


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "device",
        "identify and time boards; read their records; make, list and revoke the keys of devices",
        "tern device info a0",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)

    info = add_command(
        actions,
        "info",
        "show the identity and the state of a board, or of each board of a fleet",
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
    with boards(devices.fleet_of(args)) as ports:
        boards_info = [info(port) for port in ports]
    lines = []
    for board in boards_info:
        last = board["first_device"] + board["clients"] - 1
        clients = f"clients {board['first_device']} to {last}" if board["clients"] else "not provisioned"
        lines.append(f"{board['port']}: {board['build']}")
        lines.append(
            f"  {clients}; epsilon left (first client) {board['epsilon_left']:g}; "
            f"heap free {board['heap_free_bytes']:,} bytes; schema {board['schema']}"
        )
        lines.append(f"  entropy {board['entropy']}, tested on {_TESTED_ON[board['entropy_assessed']]}")
        lines.extend(_troubles(board))
    print_result({"boards": boards_info}, "\n".join(lines), args.json)
    return OK


def _troubles(board: dict[str, Any]) -> list[str]:
    # The line that says what went wrong since power on, if anything did.
    counts = [
        f"{board[what]:,} {what if board[what] > 1 else what[:-1]}"
        for what in ("exceptions", "restarts")
        if board[what]
    ]
    return [f"  since power on {' and '.join(counts)}"] if counts else []


def run_ping(args: argparse.Namespace) -> int:
    if args.count < 1:
        raise UsageError(f"--count must be 1 or more, not {args.count}")
    with boards(devices.fleet_of(args)) as ports:
        answers = [ping(port, args.count) for port in ports]
    lines = [
        f"{board['port']}: {board['ms']['n']} answers, median {board['ms']['median']:.2f} ms "
        f"({board['ms']['min']:.2f} to {board['ms']['max']:.2f})"
        for board in answers
    ]
    print_result({"boards": answers}, "\n".join(lines), args.json)
    return OK


def run_bench(args: argparse.Namespace) -> int:
    if not 1 <= args.repeats <= 255:
        raise UsageError(f"--repeats must be 1 to 255, not {args.repeats}")
    with boards(devices.fleet_of(args)) as ports:
        if len(ports) > 1:
            raise UsageError(
                f"--fleet must be one board for a bench, not {len(ports)}", hint="such as --fleet emulated:1"
            )
        result = bench(ports[0], args.epsilon, args.repeats)
    lines = [result["build"], "microseconds a coordinate, entropy included (plain float beside it):"]
    for name, figure in result["us_per_coordinate"].items():
        plain = result["us_per_coordinate_plain_float"][name]
        times = result["times_faster_than_plain_float"][name]
        lines.append(f"  {name:14} {figure['median']:8.3f} {plain['median']:10.3f}   {times:5.1f} times")
    lines.append(f"microseconds a report: {result['us_per_report']['median']:.0f}")
    lines.append(f"heap in use: {result['heap_bytes']['median']:,.0f} bytes")
    print_result(result, "\n".join(lines), args.json)
    return OK
