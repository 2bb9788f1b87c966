"""`tern broker`: the configuration of a Mosquitto broker for a fleet."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ternhost.aggregate.store import Store
from ternhost.cli import add_command, print_result
from ternhost.errors import OK
from ternhost.fleet import broker


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "broker",
        "write the configuration of a Mosquitto broker for a fleet",
        "tern broker config my-broker --store my-fleet/store.sqlite",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    config = add_command(
        actions,
        "config",
        "write certificates, passwords, access list and mosquitto.conf into DIR; again after keys have changed",
        """tern broker config my-broker --store my-fleet/store.sqlite --name broker.local --address 0.0.0.0
        mosquitto -c my-broker/mosquitto.conf
        tern serve --store my-fleet/store.sqlite --broker my-broker""",
    )
    config.add_argument("directory", metavar="DIR")
    config.add_argument("--store", required=True, metavar="FILE", help="with the keys of the devices")
    config.add_argument(
        "--name",
        action="append",
        metavar="HOST",
        help="name or address under which boards reach the broker, for its certificate; the first is the host's too "
        "(default: localhost, 127.0.0.1)",
    )
    config.add_argument(
        "--address", default="127.0.0.1", metavar="A", help="to listen on (default 127.0.0.1; 0.0.0.0: every)"
    )
    config.add_argument("--port", type=int, default=8883, metavar="P", help="default 8883")
    config.add_argument("--prefix", default="tern", metavar="T", help="of all topics (default tern)")
    config.add_argument(
        "--hosts",
        type=int,
        default=1,
        metavar="N",
        help="processes that may be hosts at once, to share the reports ($share); default 1",
    )
    config.add_argument(
        "--no-tls", action="store_true", help="for boards without TLS, on a network of their own"
    )
    config.add_argument("--json", action="store_true", help="print one JSON object")
    config.set_defaults(func=run_config)


def run_config(args: argparse.Namespace) -> int:
    with Store(args.store, create=False, beside=True) as store:
        keys = store.keys()
    access = broker.write_configuration(
        args.directory,
        keys,
        names=args.name or ("localhost", "127.0.0.1"),
        address=args.address,
        port=args.port,
        prefix=args.prefix,
        tls=not args.no_tls,
        hosts=args.hosts,
    )
    text = (
        f"{args.directory}: passwords of {len(keys)} devices and the host\n"
        f"  start the broker: mosquitto -c {args.directory}/{broker.CONFIG}\n"
        "  one that runs takes new passwords on SIGHUP"
    )
    public = {name: value for name, value in asdict(access).items() if name != "password"}
    print_result({**public, "devices": len(keys), "directory": args.directory}, text, args.json)
    return OK
