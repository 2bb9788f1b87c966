"""`tern gateway`: gateways of sites that keep their keys, and the server that they connect to."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ternhost import options as fields
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.reach.gateway.post import SOCKET, served
from ternhost.reach.gateway.site_fleet import SiteFleet, opened
from ternhost.terminal import heeding_interrupts
from ternhost.text import counted, visible

_CHECK_EVERY = 0.5  # seconds


def add_parser(subparsers: Any) -> None:
    summary = (
        "set up and run gateways: a gateway asks its site's devices, keeps their keys, and sends only counts"
    )
    example = """tern gateway init my-sites --site north --site south --name gateways.example.org
        tern gateway superlink my-sites
        tern gateway run north --fleet mqtt:my-broker
        tern gateway status my-sites"""
    parser = add_command(subparsers, "gateway", summary, example)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    summary = "write DIR/server and, for each site, DIR/NAME to copy there; run it again to add sites"
    example = """tern gateway init my-sites --site north:1-500 --site south:501-900 --name gateways.example.org
        tern gateway init my-sites --site west"""
    init = add_command(actions, "init", summary, example, run_init)
    init.add_argument("directory", metavar="DIR", help="directory of the server and its sites")
    text = "name of a site, and the ids that its devices may have (default: any)"
    add_option(init, "--site NAME[:FIRST-LAST]...", text)
    text = "host name or address at which sites reach the server (default: localhost)"
    add_option(init, "--name HOST", text)
    text = "address on which the server listens (default: 127.0.0.1 for HOST localhost, :: for an IPv6 address, else "
    add_option(init, "--address A", text + "0.0.0.0: all of IPv4)")
    add_option(init, "--port P", "port of the server (default: 9092)", type=int)
    lines = "print one JSON object per line"
    summary = "run Flower's SuperLink for DIR/server until Ctrl-C; new sites may join; a crash restarts it"
    link = add_command(actions, "superlink", summary, "tern gateway superlink my-sites", run_superlink, lines)
    link.add_argument("directory", metavar="DIR", help="directory from 'tern gateway init'")
    summary = "run the gateway of a site until Ctrl-C; later starts need no options"
    example = """tern gateway run north --fleet port:a0,a1 --store fleet/store.sqlite
        tern gateway run north --fleet mqtt:my-broker
        tern gateway run north --fleet simulated:1000 --dataset flights --first-id 1001
        tern gateway run north"""
    run_ = add_command(actions, "run", summary, example, run_run, lines)
    run_.add_argument("directory", metavar="DIR", help="directory of the site, from 'tern gateway init'")
    fields.add_arguments(run_, SiteFleet)
    summary = "show which sites are connected to a server, or whether the gateway of a site runs"
    status = add_command(actions, "status", summary, "tern gateway status my-sites --json", run_status)
    status.add_argument("directory", metavar="DIR", help="directory of the server, or of the site")


def run_init(args: argparse.Namespace) -> int:
    from ternhost.reach.gateway.flower import files

    there = set(files.sites_of(args.directory))
    if not there and not args.site:
        raise UsageError(
            "--site must name a site", f"such as: tern gateway init {args.directory} --site north"
        )
    server = files.write_gateways(args.directory, args.site, args.name, args.address, args.port)
    sites = files.sites_of(args.directory)
    new = [site for site in sites if site not in there]
    reached = {name: getattr(server, name) for name in ("host", "address", "port")}
    result = {"server": str(server.directory), **reached, "sites": sites, "new": new}
    text = f"{server.directory}: the server, {server.host} port {server.port}, with {counted(len(sites), 'site')}\n"
    for site in new:
        text += f"  copy {args.directory}/{site} to the site, remove it here: it has the site's private key\n"
    text += f"  start it: tern gateway superlink {args.directory}"
    print_result(result, text, args.json)
    return OK


def run_superlink(args: argparse.Namespace) -> int:
    from ternhost.reach.gateway.flower import superlink
    from ternhost.reach.gateway.flower.files import Server

    server = Server.load(args.directory)
    with heeding_interrupts(), superlink(server) as running:
        shown: tuple[str, dict[str, bool]] | None = None
        try:
            while True:
                now = (running.condition, dict(running.sites))
                if now != shown:
                    shown = now
                    _tell(server.host, server.port, *now, as_json=args.json)
                time.sleep(_CHECK_EVERY)
        except KeyboardInterrupt:
            return OK


def _tell(host: str, port: int, condition: str, sites: dict[str, bool], as_json: bool) -> None:
    text = condition
    if sites or not condition:
        connected = [site for site, online in sites.items() if online]
        away = [site for site, online in sites.items() if not online]
        text = f"the SuperLink listens at {host} port {port}; connected: {', '.join(connected) or 'no site'}"
        text += f"; not connected: {', '.join(away)}" if away else ""
        text += f"; {condition}" if condition else ""
    print_result({"host": host, "port": port, "condition": condition, "sites": sites}, text, as_json)
    sys.stdout.flush()


def run_run(args: argparse.Namespace) -> int:
    from ternhost.reach.gateway.flower import serve_site
    from ternhost.reach.gateway.flower.files import GatewaySite, node_state

    site = GatewaySite.load(args.directory)
    directory = Path(args.directory)

    def tell(message: str, event: str = "note") -> None:
        print(json.dumps({"event": event, "message": message}) if args.json else visible(message), flush=True)

    runs = SiteFleet.of(directory, fields.given(args, SiteFleet))
    earlier, _ = node_state(site)
    if not args.json:
        tell(f"starting; Flower's node takes some 10 s to connect to {site.host} port {site.port}")
    with (
        heeding_interrupts(),
        opened(directory, runs, tell) as gateway,
        serve_site(directory, gateway.handle),
    ):
        threading.Thread(target=_follow, args=(gateway, site, earlier, tell), daemon=True).start()
        try:
            gateway.run()
        except KeyboardInterrupt:
            tell("stopped; the next start resumes an open round")
    return OK


def _follow(gateway: Any, site: Any, written: int, tell: Any) -> None:
    """Report when the gateway can answer, and from then on the state of its node. written: its log, at the start."""
    from ternhost.reach.gateway.flower.files import node_state

    shown = ""
    if (count := gateway.ready()) is None:
        return
    tell(f"{site.name}: {counted(count, 'device')}; the server is {site.host} port {site.port}", "ready")
    while True:
        now, state = node_state(site)
        if now != written:
            if state and state != shown:
                tell(state, "node")
            written, shown = now, state
        time.sleep(_CHECK_EVERY)


def run_status(args: argparse.Namespace) -> int:
    from ternhost.reach.gateway.flower.files import GATEWAY, GatewaySite, node_state, server_directory

    directory = Path(args.directory)
    if (directory / GATEWAY).exists():
        site = GatewaySite.load(directory)
        runs = served(directory / SOCKET)
        _, last = node_state(site)
        result = {"site": site.name, "host": site.host, "port": site.port, "runs": runs, "node": last}
        text = f"{site.name}: the gateway {'runs' if runs else 'does not run'}"
        print_result(result, text + (f"; its node says: {visible(last)}" if runs and last else ""), args.json)
        return OK
    if not server_directory(directory).is_dir():
        raise UsageError(
            f"{args.directory} is not the directory of a server or of a site",
            hint="'tern gateway init' writes them",
        )
    return _server_status(directory, args.json)


def _server_status(directory: Path, as_json: bool) -> int:
    from ternhost.reach.gateway.flower.files import Server, sites_of
    from ternhost.reach.gateway.flower.serving import state

    server = Server.load(directory)
    condition, connected = state(server)
    sites = {site: connected.get(site, False) for site in sites_of(directory)}
    lines = [condition or f"the SuperLink answers at {server.here}"]
    lines += [f"  {site}: {'connected' if online else 'not connected'}" for site, online in sites.items()]
    result = {"host": server.host, "port": server.port, "condition": condition, "sites": sites}
    print_result(result, "\n".join(lines), as_json)
    return OK
