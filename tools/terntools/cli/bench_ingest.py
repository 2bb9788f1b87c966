"""`tern bench ingest`: how fast a host takes reports in through a broker."""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from ternhost.cli import add_command, print_result
from ternhost.cli.terminal import Progress
from ternhost.errors import FAILED, OK


def add_action(actions: Any) -> None:
    ingest = add_command(
        actions,
        "ingest",
        "time how fast reports are checked, deduplicated, committed and counted, beside merely counting messages",
        "tern bench ingest --broker mosquitto --batch 32 --json",
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
        "--batch",
        type=int,
        default=1,
        metavar="N",
        help="put N reports into a message, and compare with one in each (default 1)",
    )
    ingest.add_argument(
        "--qos",
        type=int,
        choices=(0, 1),
        default=1,
        help="quality of service of the messages (default 1, as boards send them)",
    )
    ingest.add_argument(
        "--bridge",
        action="store_true",
        help="send them to a site's broker, bridged to the host's, and compare with the host's alone",
    )
    ingest.add_argument(
        "--profile",
        action="store_true",
        help="print on standard error where the time goes; this slows it down",
    )
    ingest.add_argument(
        "--pages",
        type=int,
        default=0,
        metavar="N",
        help="compare with N pages of tern dashboard open in Chromium, of a store with 10,000 boards",
    )
    ingest.add_argument(
        "--pairs", type=int, default=5, metavar="N", help="with --pages: so often (default 5)"
    )
    ingest.add_argument("--json", action="store_true", help="print one JSON object")
    ingest.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from terntools.bench import ingest

    if args.pages:
        return _looked_at(args)
    with Progress() as progress:
        progress.step(f"{args.reports:,} reports are counted, taken in and counted again")
        result = ingest.run(
            args.reports, batch=args.batch, qos=args.qos, profile=args.profile, bridge=args.bridge
        )
    if args.bridge:
        beside = (
            f", {result['times_direct']:g} times the {result['direct_reports_per_s']:,.0f} without a bridge"
        )
    elif args.batch > 1:
        beside = f", {result['times_single']:g} times the {result['single_reports_per_s']:,.0f} of one in each message"
    else:
        beside = ""
    text = (
        f"{result['reports_per_s']:,.0f} reports a second{beside}"
        f"; {result['messages_per_s']:,.0f} messages a second, {100 * result['ratio']:.0f} % of the "
        f"{result['client_only_messages_per_s']:,.0f} that the client merely counts\n"
        f"lost {result['lost']}, counted twice {result['counted_twice']}, not as sent {result['not_as_sent']}; "
        f"{result['stored_bytes_per_report']:g} bytes stored of each; "
        f"at most {result['peak_rss_bytes'] / 1e6:.0f} MB of memory"
    )
    print_result(result, text, args.json)
    return FAILED if any(result[name] for name in ingest.MISTAKES) else OK


def _looked_at(args: argparse.Namespace) -> int:
    from terntools.bench import ingest, looked_at

    with Progress() as progress:
        progress.step(f"{args.reports:,} reports are taken in {2 * args.pairs} times")
        found = looked_at.compare(args.reports, args.batch, args.qos, ingest.DEVICES, args.pages, args.pairs)
    text = (
        f"{median(found['reports_per_s']):,.0f} reports a second, {median(found['reports_per_s_with_pages']):,.0f} with"
        f" {args.pages} pages open: {100 * found['slower']:.1f} % slower in the median of {args.pairs} pairs; "
        f"first paint of a page with {found['boards']:,} boards {found['first_paint_ms'][0]:,} ms, at most "
        f"{found['first_paint_ms'][1]:,} ms"
    )
    print_result(found, text, args.json)
    return OK
