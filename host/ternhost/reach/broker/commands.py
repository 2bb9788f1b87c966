"""`tern broker`: configures a fleet's broker, Mosquitto or a cluster of NATS, and runs Mosquitto
for a first try.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.provision.keys import parse_range
from ternhost.reach.broker import cluster, configuration
from ternhost.reach.broker.access import CONFIG, HOME_ASSISTANT, Access
from ternhost.reach.broker.mosquitto import Mosquitto, configure_if_missing, reload
from ternhost.reach.broker.mosquitto_files import PASSWORDS, PORT
from ternhost.reach.broker.sites import HERE, SITES, BrokerSite, load_all
from ternhost.reach.broker.sites import check as check_site
from ternhost.store.store import Store
from ternhost.terminal import heeding_interrupts
from ternhost.text import counted

_CHECK_EVERY = 0.5


def add_parser(subparsers: Any) -> None:
    summary = "configure a broker for a fleet, Mosquitto or a cluster of NATS, or run Mosquitto"
    parser = add_command(subparsers, "broker", summary, "tern broker config my-broker")
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    summary = "write the configuration, passwords, rights and certificates into DIR; again, without options, for new "
    summary += "keys"
    example = """tern broker config my-broker --name broker.local --address 0.0.0.0
        mosquitto -c my-broker/mosquitto.conf
        tern serve --fleet mqtt:my-broker
        tern broker config my-broker --bridge lab --site-name lab.local --site-address 0.0.0.0 --boards 1-99
        tern broker config my-cluster --for nats --name n1.local --name n2.local --name n3.local"""
    config = add_command(actions, "config", summary, example, run_config)
    config.add_argument("directory", metavar="DIR", help="directory of the broker")
    text = "file with the devices' keys, made if it is missing (default: as before, or DIR/store.sqlite)"
    add_option(config, "--store FILE", text)
    text = "the broker: one Mosquitto, or a cluster of NATS servers, which survives the loss of one, in DIR/nodes "
    text += "(default: as before, or mosquitto)"
    add_option(config, "--for", text, dest="kind", choices=("mosquitto", "nats"))
    text = "name or address at which boards reach the broker, for its certificate; the host uses the first; for a "
    text += "cluster, name each node (default: localhost, 127.0.0.1; for a cluster 127.0.0.1, 127.0.0.2, 127.0.0.3)"
    add_option(config, "--name HOST...", text)
    add_option(config, "--address A", "address to listen on (default: 127.0.0.1; 0.0.0.0 for all)")
    add_option(config, "--port P", f"port to listen on (default: {PORT})", type=int)
    add_option(config, "--prefix T", "prefix of all topics (default: tern)")
    text = "encrypt connections (default: yes); --no-tls is for boards without TLS, on a separate network"
    config.add_argument("--tls", action=argparse.BooleanOptionalAction, help=text)
    home = config.add_mutually_exclusive_group()
    text = "let Home Assistant see the fleet, with 'tern serve --home-assistant'; PREFIX of its discovery topics "
    text += "(default: homeassistant)"
    add_option(home, "--home-assistant PREFIX", text, nargs="?", const="homeassistant")
    text = "no longer let Home Assistant see the fleet; run 'tern serve' without --home-assistant first, which removes "
    text += "the fleet from it"
    home.add_argument(
        "--no-home-assistant", dest="home_assistant", action="store_false", default=None, help=text
    )
    site = config.add_argument_group(
        "sites", "places apart from the host: copy DIR/sites/SITE there"
    )
    text = "give the site its own broker, bridged to this one: its boards talk to it, the host to this one"
    add_option(site, "--bridge SITE", text)
    text = "give the site its boards' passwords, with which 'tern relay' connects boards on USB to a broker"
    add_option(site, "--relay SITE", text)
    text = "ids that the site's devices may have (default: any; a narrow range is safer)"
    add_option(site, "--boards FIRST-LAST", text)
    text = "like --name, for the site's broker (default: localhost, 127.0.0.1)"
    add_option(site, "--site-name HOST...", text)
    add_option(
        site, "--site-address A", "address on which the site's broker listens (default: 127.0.0.1)"
    )
    add_option(site, "--site-port P", f"port of the site's broker (default: {PORT})", type=int)
    summary = "run Mosquitto for DIR until Ctrl-C; a missing configuration is made, new passwords are loaded"
    run = add_command(actions, "run", summary, "tern broker run my-broker", run_run)
    run.add_argument("directory", metavar="DIR", help="directory of the broker")


def run_config(args: argparse.Namespace) -> int:
    named = {
        "names": args.name or None,
        "address": args.address,
        "port": args.port,
        "prefix": args.prefix,
    }
    options = {
        name: value for name, value in {**named, "tls": args.tls}.items() if value is not None
    }
    nats = args.kind == "nats" or (Path(args.directory) / cluster.NODES).exists()
    if nats and (args.address or args.bridge):
        raise UsageError(
            "--address and --bridge are for Mosquitto: nodes of a cluster listen on their own address, without bridges",
            hint="boards of a site connect to the cluster itself, and those on USB with --relay",
        )
    site = _site_options(args)
    if site:
        check_site(Path(args.directory), site["name"])  # before anything is written
    options |= {"home_assistant": args.home_assistant, "nats": args.kind and args.kind == "nats"}
    access = configuration.configure(args.directory, args.store, **options)
    if site:
        made = configuration.add_site(args.directory, **site)
        for warning in _warnings(made, access):
            warn(warning)
    reloaded = reload(args.directory)
    start = f"mosquitto -c {args.directory}/{CONFIG}, or tern broker run {args.directory}"
    if access.is_cluster:
        start = f"nats-server -c nats.conf in each of {args.directory}/{cluster.NODES}/*, on its machine"
    result = _result(args.directory, access)
    result["sites"] = [
        _site_result(args.directory, each) for each in load_all(Path(args.directory))
    ]
    devices = counted(result["devices"], "device")
    text = f"{args.directory}: passwords of {devices} and the host; keys are in {access.store}\n"
    if reloaded:
        text += "  the running broker has taken the new passwords"
    else:
        text += f"  start the broker: {start}\n  a broker elsewhere takes new passwords, once copied to it, on SIGHUP"
    if (Path(args.directory) / HOME_ASSISTANT).exists():
        text += f"\n  Home Assistant reaches it with user and password of {args.directory}/{HOME_ASSISTANT}"
        text += "; publish the fleet to it: tern serve --home-assistant"
    for each in result["sites"]:
        text += "\n  " + _site_text(each)
    print_result(result, text, args.json)
    return OK


def _warnings(site: BrokerSite, central: Access) -> Iterator[str]:
    if site.bridge and not central.authority:
        yield (
            f"without TLS an eavesdropper between the broker of site {site.name} and the central one learns "
            "its password and all messages of boards: bridge them over a VPN, or configure the broker with --tls"
        )
    if central.host in HERE:
        yield f"at site {site.name}, {central.host} is not the central broker: add --name HOST --address 0.0.0.0"
    if site.bridge and set(site.names) <= HERE:
        yield f"boards of {site.name} find it at {site.names[0]} only: add --site-name HOST --site-address 0.0.0.0"


def _site_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a site for `configuration.add_site`; empty without one. Raises UsageError."""
    sites = {name for name in (args.bridge, args.relay) if name is not None}
    options = {
        "names": args.site_name or None,
        "address": args.site_address,
        "port": args.site_port,
    }
    options["boards"] = None if args.boards is None else parse_range(args.boards)
    if len(sites) > 1:
        raise UsageError(
            "one site at a time: --bridge and --relay name two", hint="run the command twice"
        )
    if sites:
        kinds = {"bridge": args.bridge is not None, "relay": args.relay is not None}
        return {"name": sites.pop(), **kinds, **options}
    if any(value is not None for value in options.values()):
        raise UsageError(
            "--boards and --site-... need a site", hint="name it: --bridge SITE or --relay SITE"
        )
    return {}


def _site_result(directory: str, site: BrokerSite) -> dict[str, Any]:
    public = {name: value for name, value in asdict(site).items() if name != "password"}
    return {**public, "directory": str(Path(directory) / SITES / site.name)}


def _site_text(site: dict[str, Any]) -> str:
    text = f"site {site['name']}: copy {site['directory']} there"
    if site["bridge"]:
        text += (
            "; start its broker with tern broker run, or with mosquitto -c mosquitto.conf inside it"
        )
    if site["relay"]:
        text += "; connect boards on USB with tern relay BOARD --broker"
    return text


def run_run(args: argparse.Namespace) -> int:
    access = configure_if_missing(args.directory)
    if not (Path(args.directory) / CONFIG).exists():
        hint = "a site with only --relay has none, and 'tern relay' connects its boards to the central one; "
        hint += f"nodes of a cluster run without tern: {cluster.CONFIG} in each directory of "
        hint += f"DIR/{cluster.NODES} says how"
        raise UsageError(f"{args.directory} has no Mosquitto", hint)
    passwords = Path(args.directory) / PASSWORDS
    written = passwords.stat().st_mtime_ns
    with heeding_interrupts(), Mosquitto(args.directory) as running:
        keys = f"; keys are in {access.store}" if _devices(access) is not None else ""
        text = f"the broker listens at {access.host} port {access.port}{keys}; Ctrl-C ends it"
        try:
            print_result(_result(args.directory, access), text, args.json)
            running.keep(warn)
            while True:
                time.sleep(_CHECK_EVERY)
                if (now := passwords.stat().st_mtime_ns) != written:
                    written = now
                    running.reload()
        except KeyboardInterrupt:
            return OK


def _result(directory: str, access: Access) -> dict[str, Any]:
    public = {name: value for name, value in asdict(access).items() if name != "password"}
    return {**public, "devices": _devices(access) or 0, "directory": directory}


def _devices(access: Access) -> int | None:
    # Of its store; None for a site, which has its store elsewhere.
    if access.store is None or not Path(access.store).exists():
        return None
    with Store(access.store, create=False, beside=True) as store:
        return len(store.keys())
