"""`tern bench ingest`: how fast a host takes reports in through a broker."""

from __future__ import annotations

import argparse
from typing import Any

from ternhost.cli import add_command, print_result
from ternhost.cli.terminal import Progress
from ternhost.errors import FAILED, OK


def add_action(actions: Any) -> None:
    ingest = add_command(
        actions,
        "ingest",
        "time how fast reports are checked, deduplicated, committed and counted, beside merely counting messages",
        "tern bench ingest --broker mosquitto --reports 1000000 --json",
    )
    ingest.add_argument(
        "--broker",
        choices=("mosquitto",),
        default="mosquitto",
        help="start this broker for the measurement (default %(default)s)",
    )
    ingest.add_argument(
        "--reports", type=int, default=100_000, metavar="N", help="publish N reports (default 100000)"
    )
    ingest.add_argument(
        "--qos",
        type=int,
        choices=(0, 1),
        default=1,
        help="quality of service of the messages (default 1, as boards send them)",
    )
    ingest.add_argument(
        "--profile",
        action="store_true",
        help="print on standard error where the time goes; this slows it down",
    )
    ingest.add_argument("--json", action="store_true", help="print one JSON object")
    ingest.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from terntools.bench import ingest

    with Progress() as progress:
        progress.step(f"{args.reports:,} reports are counted, taken in and counted again")
        result = ingest.run(args.reports, qos=args.qos, profile=args.profile)
    text = (
        f"{result['reports_per_s']:,.0f} reports a second, {100 * result['ratio']:.0f} % of the "
        f"{result['client_only_messages_per_s']:,.0f} messages a second that the client merely counts\n"
        f"lost {result['lost']}, counted twice {result['counted_twice']}; "
        f"at most {result['peak_rss_bytes'] / 1e6:.0f} MB of memory"
    )
    print_result(result, text, args.json)
    return OK if not result["lost"] and not result["counted_twice"] and not result["not_counted"] else FAILED
