"""`tern gateway`: gateways of sites that keep their keys, and the NATS servers between them."""

from __future__ import annotations

import argparse
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terngateway.bound import Bound
from terngateway.listed_commands import GATEWAY
from terngateway.site_fleet import SiteFleet, opened
from ternhost import long_running
from ternhost import options as fields
from ternhost.command import add_command, add_group, add_option, print_event, print_result
from ternhost.errors import OK, UsageError
from ternhost.long_running import ServiceNeeds
from ternhost.reach import fleet
from ternhost.signals import heeding_interrupts
from ternhost.text import counted, visible

if TYPE_CHECKING:
    from terngateway.nats.directories import Server

_CHECK_EVERY = 0.5  # seconds between two looks at the condition of the server
_STATUS = 5.0  # seconds for the sites to answer
_ANSWER_CHECK = 0.1  # seconds between two looks at which sites have answered
_JSON_LINES = "print one JSON object per line"


def add_parser(subparsers: Any) -> None:
    """Add `tern gateway` and its actions."""
    example = """tern gateway init my-sites --site north --site south --host gateways.example.org
        tern gateway server my-sites
        tern gateway run north --fleet mqtt:my-broker
        tern gateway status my-sites"""
    actions = add_group(subparsers, GATEWAY.name, GATEWAY.summary, example)
    _add_init(actions)
    _add_remove(actions)
    _add_server(actions)
    _add_run(actions)
    _add_status(actions)


def _add_init(actions: Any) -> None:
    """Add `tern gateway init` with its options."""
    summary = (
        "write DIR/server, DIR/nodes and, for each site, DIR/NAME to copy there; run it again to add "
        "sites"
    )
    example = """tern gateway init my-sites --site north:1-500 --site south:501-900 --host gateways.example.org
        tern gateway init my-sites --site west
        tern gateway init my-sites --site north --host n1.local --host n2.local --host n3.local"""
    init = add_command(actions, "init", summary, example, run_init)
    init.add_argument("directory", metavar="DIR", help="directory of the server and its sites")
    text = "name of a site, and the ids that its devices may have (default: any)"
    add_option(init, "--site NAME[:FIRST-LAST]...", text)
    add_option(init, "--host HOST...", shown="localhost")
    add_option(init, "--port P", shown="4222", type=int)


def _add_remove(actions: Any) -> None:
    """Add `tern gateway remove`."""
    summary = "exclude a site: its key is refused at once, and its ids are free"
    example = "tern gateway remove my-sites north"
    remove = add_command(actions, "remove", summary, example, run_remove)
    remove.add_argument("directory", metavar="DIR", help="directory from 'tern gateway init'")
    remove.add_argument("site", metavar="SITE", help="name of the site")


def _add_server(actions: Any) -> None:
    """Add `tern gateway server`."""
    summary = "run the NATS server until Ctrl-C; a crash restarts it"
    example = """tern gateway server my-sites
        tern gateway server my-sites/nodes/n1.local"""
    server = add_command(actions, "server", summary, example, run_server, _JSON_LINES)
    text = "directory from 'tern gateway init', or of a node in it"
    server.add_argument("directory", metavar="DIR", help=text)
    long_running.add_options(server, lambda _args: ServiceNeeds(programs=("nats-server",)))


def _add_run(actions: Any) -> None:
    """Add `tern gateway run` with the options of SiteFleet."""
    summary = "run the gateway of a site until Ctrl-C; later starts need no options"
    example = """tern gateway run north --fleet port:a0,a1 --store fleet/store.sqlite
        tern gateway run north --fleet mqtt:my-broker
        tern gateway run south --fleet simulated:1000 --ids 1001-2000
        tern gateway run north"""
    run = add_command(actions, "run", summary, example, run_run, _JSON_LINES)
    text = "directory of the site, from 'tern gateway init'"
    run.add_argument("directory", metavar="DIR", help=text)
    fields.add_arguments(run, SiteFleet)
    long_running.add_options(run, _service_needs)


def _service_needs(args: argparse.Namespace) -> ServiceNeeds:
    """Return what `tern gateway run` needs as a service."""
    runs = SiteFleet.of(Path(args.directory), fields.given(args, SiteFleet))
    kind = fleet.parse(runs.fleet)
    return ServiceNeeds(ports=kind.word == "port", uses_broker=kind.broker_directory)


def _add_status(actions: Any) -> None:
    """Add `tern gateway status`."""
    summary = "show which sites are connected to a server, or whether the gateway of a site runs"
    example = "tern gateway status my-sites --json"
    status = add_command(actions, "status", summary, example, run_status)
    status.add_argument("directory", metavar="DIR", help="directory of the server, or of the site")


def run_init(args: argparse.Namespace) -> int:
    """`tern gateway init`: write the directories of a server and its sites, and print what is next.

    Returns the exit status. Raises UsageError and StorageError.
    """
    from terngateway.nats import directories

    sites_before = set(directories.sites_of(args.directory))
    if not sites_before and not args.site:
        hint = f"such as tern gateway init {args.directory} --site north"
        raise UsageError("--site must name a site", hint)
    server = directories.write_gateways(args.directory, args.site, args.host, args.port)
    sites = directories.sites_of(args.directory)
    new_sites = [site for site in sites if site not in sites_before]

    result = {
        "server": str(server.directory),
        "hosts": list(server.hosts),
        "address": server.address,
        "port": server.port,
        "sites": sites,
        "new": new_sites,
    }
    text = "\n".join(_next_steps(args.directory, server, sites, new_sites))
    print_result(result, text, args.json)
    return OK


def _next_steps(
    directory: str, server: Server, sites: list[str], new_sites: list[str]
) -> list[str]:
    """Return the lines that say what was written, and what to copy and to start now.

    directory: that of the server and its sites. sites: the names of all sites. new_sites: the names
    of those that were written now.
    """
    hosts = ", ".join(server.hosts)
    number = counted(len(sites), "site")
    lines = [f"{server.directory}: the host of {number}, over {hosts} port {server.port}"]
    for site in new_sites:
        lines.append(
            f"  copy {directory}/{site} to the site, remove it here: it has the site's private key"
        )
    is_cluster = len(server.hosts) > 1
    if is_cluster:
        for node in server.nodes().values():
            lines.append(f"  start it: tern gateway server {node}")
    else:
        lines.append(f"  start it: tern gateway server {directory}")
    return lines + _accounts_to_copy(server)


def _accounts_to_copy(server: Server) -> list[str]:
    """Return a line for each NATS server on another machine, which needs the new accounts."""
    from terngateway.nats.directories import ACCOUNTS

    path = server.directory / ACCOUNTS
    reload_command = "nats-server --signal reload=nats.pid"
    lines = []
    for name, node in server.nodes().items():
        if not node.is_dir():
            lines.append(
                f"  copy {path} into the directory of {name}, and run there: {reload_command}"
            )
    return lines


def run_remove(args: argparse.Namespace) -> int:
    """`tern gateway remove`: exclude a site. Raises UsageError and StorageError."""
    from terngateway.nats import directories

    server = directories.remove_site(args.directory, args.site)
    sites = directories.sites_of(args.directory)
    text = "\n".join([f"{args.site} is removed", *_accounts_to_copy(server)])
    print_result({"removed": args.site, "sites": sites}, text, args.json)
    return OK


def run_server(args: argparse.Namespace) -> int:
    """`tern gateway server`: run the NATS server until Ctrl-C, and print changes of its condition.

    The condition is a sentence about what is wrong, or "" if nothing is. Returns the exit status.
    """
    from terngateway.nats.server import NatsServer, node_of

    with heeding_interrupts(), NatsServer(node_of(args.directory)) as server:
        last_condition = None
        long_running.started(args)
        try:
            while True:
                condition = server.condition
                if condition != last_condition:
                    last_condition = condition
                    text = condition or "the NATS server runs"
                    level = logging.WARNING if condition else logging.INFO
                    print_event({"condition": condition}, text, args.json, level)
                    if not condition:
                        long_running.ready(args)
                time.sleep(_CHECK_EVERY)
        except KeyboardInterrupt:
            return OK


def run_run(args: argparse.Namespace) -> int:
    """`tern gateway run`: answer the host for a site until Ctrl-C, and print what happens.

    Returns the exit status. Raises TernError if the gateway cannot start, or its disk fails.
    """
    from terngateway.nats import serve_site
    from terngateway.nats.directories import GatewaySite

    site = GatewaySite.load(args.directory)
    directory = Path(args.directory)

    def report(message: str, event: str, level: int = logging.INFO) -> None:
        """Log a message and, with --json, print it as an event."""
        long_running.started(args)
        text = visible(message)
        print_event({"event": event, "message": message}, text, args.json, level)

    def warn(message: str) -> None:
        """Report a warning."""
        report(message, "note", logging.WARNING)

    def report_connection(state: str) -> None:
        """Print how the connection to the server is."""
        report(state, "connection")

    def report_when_ready() -> None:
        """Print the devices and the bound of the site once the gateway has opened its fleet."""
        devices = gateway.ready()
        if devices is None:
            return
        long_running.ready(args)
        hosts = ", ".join(site.hosts)
        text = f"{site.name}: {counted(devices, 'device')}; the server is {hosts} port {site.port}"
        bound = Bound.of_site(directory)
        if bound is not None:
            text += f", to whose owner its counts may tell at most {bound}"
        report(text, "ready")

    site_fleet = SiteFleet.of(directory, fields.given(args, SiteFleet))
    try:
        with (
            heeding_interrupts(),
            opened(directory, site_fleet, warn) as gateway,
            serve_site(directory, gateway.handle, report_connection),
        ):
            threading.Thread(target=report_when_ready, daemon=True).start()
            gateway.run()
    except KeyboardInterrupt:
        report("stopped; the next start resumes an open round", "note")
    return OK


def run_status(args: argparse.Namespace) -> int:
    """`tern gateway status`, of a server's directory or of a site's. Raises UsageError."""
    from terngateway.nats.directories import GATEWAY, server_directory

    directory = Path(args.directory)
    if (directory / GATEWAY).exists():
        return _site_status(directory, args.json)
    if server_directory(directory).is_dir():
        return _server_status(directory, args.json)
    hint = "'tern gateway init' writes them"
    raise UsageError(f"{args.directory} is not the directory of a server or of a site", hint)


def _site_status(directory: Path, as_json: bool) -> int:
    """Print whether the gateway of a site runs here, and how its connection is.

    Returns the exit status.
    """
    from terngateway.nats.directories import GatewaySite, state_of

    site = GatewaySite.load(directory)
    connection_state = state_of(site)  # None if the gateway does not run
    is_running = connection_state is not None
    result = {
        "site": site.name,
        "hosts": list(site.hosts),
        "port": site.port,
        "runs": is_running,
        "connection": connection_state,
    }
    status = "does not run"
    if connection_state is not None:
        status = f"runs; {visible(connection_state)}"
    print_result(result, f"{site.name}: the gateway {status}", as_json)
    return OK


def _server_status(directory: Path, as_json: bool) -> int:
    """Print which sites are connected to a server; return the exit status.

    Waits up to _STATUS seconds for the sites to answer.
    """
    from terngateway.nats import NatsPost
    from terngateway.nats.directories import Server

    server = Server.load(directory)
    end = time.monotonic() + _STATUS
    with NatsPost(directory, beside=True) as post:
        while not all(post.sites().values()) and time.monotonic() < end:
            time.sleep(_ANSWER_CHECK)
        condition = post.condition()
        sites = dict(post.sites())  # whether each is connected, by name

    result = {
        "hosts": list(server.hosts),
        "port": server.port,
        "condition": condition,
        "sites": sites,
    }
    number_connected = sum(sites.values())
    lines = [condition or f"{counted(number_connected, 'site')} connected"]
    for site, is_connected in sites.items():
        state = "connected" if is_connected else "not connected"
        lines.append(f"  {site}: {state}")
    print_result(result, "\n".join(lines), as_json)
    return OK
