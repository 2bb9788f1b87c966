"""`tern bench gateways`: how long a round takes whose devices are behind gateways."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ternhost.command import add_command, print_result
from ternhost.errors import OK
from ternhost.options import require


def add_action(actions: Any) -> None:
    gateways = add_command(
        actions,
        "gateways",
        "time rounds of a fleet whose simulated devices are behind gateways on this machine, and weigh the gateways",
        "tern bench gateways --clients 1000000 --gateways 10 --json",
    )
    gateways.add_argument(
        "--clients", type=int, default=1_000_000, metavar="N", help="of all gateways (default 1000000)"
    )
    gateways.add_argument("--gateways", type=int, default=10, metavar="N", help="a process each (default 10)")
    gateways.add_argument(
        "--rounds", type=int, default=20, metavar="N", help="that all take part in (default 20)"
    )
    gateways.add_argument(
        "--dataset", default="flights-planned", metavar="NAME", help="what they hold (default %(default)s)"
    )
    gateways.add_argument("--json", action="store_true", help="print one JSON object")
    gateways.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from terntools.bench import gateways

    require(1 <= args.gateways <= 100, "gateways", "1 to 100", args.gateways)
    require(args.clients >= args.gateways, "clients", f"{args.gateways} or more, one a gateway", args.clients)
    require(args.rounds >= 1, "rounds", "1 or more", args.rounds)

    def tell(line: str) -> None:
        if not args.json:
            print(line, file=sys.stderr, flush=True)

    result = gateways.run(args.clients, args.gateways, args.rounds, args.dataset, tell)
    held = ", ".join(
        f"{own['gateway_most'] / 1e6:.0f} MB after {number}" for number, own in result["memory_bytes"].items()
    )
    text = (
        f"{result['clients']:,} clients behind {result['gateways']} gateways: a round takes "
        f"{result['seconds_median']:g} s, at most {result['seconds_most']:g}\n"
        f"memory of the largest gateway: {held} rounds"
    )
    print_result(result, text, args.json)
    return OK
