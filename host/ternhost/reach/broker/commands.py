"""`tern broker`: configures a fleet's broker, of any kind that is registered, and runs Mosquitto."""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_group, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.options import flag
from ternhost.provision.keys import parse_range
from ternhost.reach.broker import configuration, guests
from ternhost.reach.broker.access import CONFIG, Access
from ternhost.reach.broker.kinds import DEFAULT, KINDS, BrokerKind, kind_of
from ternhost.reach.broker.mosquitto import Mosquitto, configure_if_missing, reload
from ternhost.reach.broker.mosquitto_files import PASSWORDS, PORT
from ternhost.reach.broker.sites import HERE, SITES, BrokerSite, is_site, load_all
from ternhost.reach.broker.sites import check as check_site
from ternhost.store.store import Store
from ternhost.terminal import heeding_interrupts
from ternhost.text import counted

HEADING = "Fleets"  # of tern --help

_CHECK_EVERY = 0.5  # seconds between two checks whether the file of passwords has changed

_CONFIG_EXAMPLES = """tern broker config my-broker --name broker.local --address 0.0.0.0
        mosquitto -c my-broker/mosquitto.conf
        tern serve --fleet mqtt:my-broker
        tern broker config my-broker --bridge lab --site-name lab.local --site-address 0.0.0.0 --boards 1-99
"""
_HELP = {
    "store": "file with the devices' keys, made if it is missing (default: as before, or "
    "DIR/store.sqlite)",
    "name": "name or address at which boards reach the broker, for its certificate; the host uses "
    "the first; for a cluster, name each node",
    "tls": "encrypt connections (default: yes); --no-tls is for boards without TLS, on a separate "
    "network",
    "bridge": "give the site its own broker, bridged to this one: its boards talk to it, the host "
    "to this one",
    "relay": "give the site its boards' passwords, with which 'tern relay' connects boards on USB "
    "to a broker",
    "boards": "ids that the site's devices may have (default: any; a narrow range is safer)",
    "site_name": "like --name, for the site's broker (default: localhost, 127.0.0.1)",
    "site_address": "address on which the site's broker listens (default: 127.0.0.1)",
}


def add_parser(subparsers: Any) -> None:
    """Add the command `tern broker` with its actions `config` and `run`."""
    titles = " or ".join(kind.title for kind in KINDS.available())
    summary = f"configure a broker for a fleet, {titles}, or run Mosquitto"
    actions = add_group(subparsers, "broker", summary, "tern broker config my-broker")
    _add_config(actions)

    summary = (
        "run Mosquitto for DIR until Ctrl-C; a missing configuration is made, new passwords are "
        "loaded"
    )
    run = add_command(actions, "run", summary, "tern broker run my-broker", run_run)
    run.add_argument("directory", metavar="DIR", help="directory of the broker")


def _add_config(actions: Any) -> None:
    """Add `tern broker config` with its options: those of the broker, then those of a site."""
    summary = (
        "write the configuration, passwords, rights and certificates into DIR; again, without "
        "options, for new keys"
    )
    all_kinds = list(KINDS.available())
    examples = _CONFIG_EXAMPLES + "\n".join(kind.example for kind in all_kinds if kind.example)
    config = add_command(actions, "config", summary, examples, run_config)

    # The broker and its fleet.
    about_kinds = ", or ".join(kind.about for kind in all_kinds)
    names_help = _HELP["name"] + _names_here(all_kinds)
    config.add_argument("directory", metavar="DIR", help="directory of the broker")
    add_option(config, "--store FILE", _HELP["store"])
    add_option(
        config,
        "--for",
        f"the broker: {about_kinds} (default: as before, or {DEFAULT})",
        dest="kind",
        choices=tuple(kind.name for kind in all_kinds),
    )
    add_option(config, "--name HOST...", names_help)
    add_option(config, "--address A", "address to listen on (default: 127.0.0.1; 0.0.0.0 for all)")
    add_option(config, "--port P", f"port to listen on (default: {PORT})", type=int)
    add_option(config, "--prefix T", "prefix of all topics (default: tern)")
    config.add_argument("--tls", action=argparse.BooleanOptionalAction, help=_HELP["tls"])

    for guest in guests.registered():
        _add_guest(config, guest)

    # A site.
    site = config.add_argument_group(
        "sites", "places apart from the host: copy DIR/sites/SITE there"
    )
    add_option(site, "--bridge SITE", _HELP["bridge"])
    add_option(site, "--relay SITE", _HELP["relay"])
    add_option(site, "--boards FIRST-LAST", _HELP["boards"])
    add_option(site, "--site-name HOST...", _HELP["site_name"])
    add_option(site, "--site-address A", _HELP["site_address"])
    add_option(site, "--site-port P", f"port of the site's broker (default: {PORT})", type=int)


def _add_guest(config: argparse.ArgumentParser, guest: guests.Guest) -> None:
    """Add the options that let a guest see a fleet, or no longer.

    Both set the same value: to a prefix of topics, or to False.
    """
    choice = config.add_mutually_exclusive_group()
    add_option(
        choice,
        f"{flag(guest.name)} PREFIX",
        f"{guest.about} (default: {guest.default_prefix})",
        nargs="?",
        const=guest.default_prefix,
    )
    choice.add_argument(
        flag(f"no_{guest.name}"),
        dest=guest.name,
        action="store_false",
        default=None,
        help=f"no longer let {guest.title} see the fleet; run 'tern serve' without "
        f"{flag(guest.name)} first, which removes the fleet from it",
    )


def _names_here(kinds: Sequence[BrokerKind]) -> str:
    """Return for the help of --name which names a broker of each kind has by default."""
    defaults = []
    for kind in kinds:
        names = ", ".join(kind.names_here)
        if kind.name == DEFAULT:
            defaults.append(names)
        else:
            defaults.append(f"for {kind.title} {names}")
    return f" (default: {'; '.join(defaults)})"


# tern broker config


def run_config(args: argparse.Namespace) -> int:
    """Run `tern broker config`: configure a broker, and one of its sites if one is named."""
    # Check the options before anything is written.
    directory = Path(args.directory)
    if not is_site(directory):
        kind = configuration.chosen_kind(directory, args.kind)
        kind.check_options(address=bool(args.address), bridge=bool(args.bridge))
    site_options = _site_options(args)
    if site_options:
        check_site(directory, site_options["name"])

    # Write the files, and make a running broker read them.
    access = configuration.configure(
        args.directory,
        args.store,
        guest_prefixes=_guest_prefixes(args),
        kind=args.kind,
        **_broker_options(args),
    )
    if site_options:
        site = configuration.add_site(args.directory, **site_options)
        for warning in _warnings(site, access):
            warn(warning)
    reloaded = reload(args.directory)

    # Say what was written.
    result = _result(args.directory, access)
    sites = load_all(directory)
    result["sites"] = [_site_result(args.directory, site) for site in sites]
    print_result(result, _config_text(result, access, reloaded), args.json)
    return OK


def _guest_prefixes(args: argparse.Namespace) -> dict[str, str | None]:
    """Return the guests about which the user has given an option, with the prefix of their topics.

    A guest is a program, such as a dashboard, that may see the state of the fleet. The prefix is
    None for a guest that may no longer see it (its option is then False).
    """
    prefixes = {}
    for guest in guests.registered():
        value = getattr(args, guest.name)
        if value is not None:
            prefixes[guest.name] = value or None
    return prefixes


def _broker_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `configuration.configure` that the user has given.

    Options that are left out keep their earlier values, so they must not be passed on.
    """
    options = {
        "names": args.name or None,
        "address": args.address,
        "port": args.port,
        "prefix": args.prefix,
        "tls": args.tls,
    }
    given = {}
    for name, value in options.items():
        if value is not None:
            given[name] = value
    return given


def _site_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `configuration.add_site`; none if no site is named.

    Raises UsageError if two sites are named, or if there are options of a site but no site.
    """
    boards = None
    if args.boards is not None:
        boards = parse_range(args.boards)
    options = {
        "names": args.site_name or None,
        "address": args.site_address,
        "port": args.site_port,
        "boards": boards,
    }
    if args.bridge is None and args.relay is None:
        if any(value is not None for value in options.values()):
            raise UsageError(
                "--boards and --site-... need a site", hint="name it: --bridge SITE or --relay SITE"
            )
        return {}

    # Both options name a site, which may get a broker (--bridge) and a relay (--relay).
    name = args.bridge
    if name is None:
        name = args.relay
    if args.relay not in (None, name):
        raise UsageError(
            "one site at a time: --bridge and --relay name two", hint="run the command twice"
        )
    options["name"] = name
    options["bridge"] = args.bridge is not None
    options["relay"] = args.relay is not None
    return options


def _warnings(site: BrokerSite, central: Access) -> Iterator[str]:
    """Yield warnings if others can read the messages of a site, or if it cannot be reached.

    central: how the central broker is reached.
    """
    if site.bridge and not central.authority:
        yield (
            f"without TLS an eavesdropper between the broker of site {site.name} and the central "
            "one learns its password and all messages of boards: bridge them over a VPN, or "
            "configure the broker with --tls"
        )
    if central.host in HERE:
        yield (
            f"at site {site.name}, {central.host} is not the central broker: add --name HOST "
            "--address 0.0.0.0"
        )
    if site.bridge and set(site.names) <= HERE:
        yield (
            f"boards of {site.name} find it at {site.names[0]} only: add --site-name HOST "
            "--site-address 0.0.0.0"
        )


def _config_text(result: dict[str, Any], access: Access, reloaded: bool) -> str:
    """Return for people what `tern broker config` has made, and what to do next.

    result: what the command prints as JSON. access: how the broker is reached. reloaded: the broker
    is running, and has read the new files already.
    """
    directory = result["directory"]
    devices = counted(result["devices"], "device")
    text = f"{directory}: passwords of {devices} and the host; keys are in {access.store}\n"
    if reloaded:
        text += "  the running broker has taken the new passwords"
    else:
        start_command = kind_of(Path(directory), access).start_command(directory)
        text += (
            f"  start the broker: {start_command}\n"
            "  a broker elsewhere takes new passwords, once copied to it, on SIGHUP"
        )
    for guest in guests.registered():
        if guest.load(Path(directory)):
            text += (
                f"\n  {guest.title} reaches it with user and password of {directory}/{guest.file}"
                f"; publish the fleet to it: tern serve {flag(guest.name)}"
            )
    for site in result["sites"]:
        text += "\n  " + _site_text(site)
    return text


def _site_result(directory: str, site: BrokerSite) -> dict[str, Any]:
    """Return the options of a site for JSON, without its password.

    directory: the directory of the central broker.
    """
    result = asdict(site)
    del result["password"]
    result["directory"] = str(Path(directory) / SITES / site.name)
    return result


def _site_text(site: dict[str, Any]) -> str:
    """Return for people what to do with the directory of a site.

    site: a result of `_site_result`.
    """
    text = f"site {site['name']}: copy {site['directory']} there"
    if site["bridge"]:
        text += (
            "; start its broker with tern broker run, or with mosquitto -c mosquitto.conf inside it"
        )
    if site["relay"]:
        text += "; connect boards on USB with tern relay BOARD --broker"
    return text


# tern broker run


def run_run(args: argparse.Namespace) -> int:
    """Run `tern broker run`: run the Mosquitto of a directory until Ctrl-C.

    Whenever its file of passwords changes, it reads them again.
    """
    access = configure_if_missing(args.directory)
    if not (Path(args.directory) / CONFIG).exists():
        reasons = [
            "a site with only --relay has none, and 'tern relay' connects its boards to the "
            "central one"
        ]
        reasons += [kind.without_run for kind in KINDS.available() if kind.without_run]
        raise UsageError(f"{args.directory} has no Mosquitto", hint="; ".join(reasons))
    passwords = Path(args.directory) / PASSWORDS
    loaded_version = passwords.stat().st_mtime_ns
    text = f"the broker listens at {access.host} port {access.port}"
    with heeding_interrupts(), Mosquitto(args.directory) as running:
        if _devices(access) is not None:  # a site does not have the keys
            text += f"; keys are in {access.store}"
        text += "; Ctrl-C ends it"
        try:
            print_result(_result(args.directory, access), text, args.json)
            running.keep(warn)  # restarts it if it fails
            while True:
                time.sleep(_CHECK_EVERY)
                version = passwords.stat().st_mtime_ns
                if version != loaded_version:
                    loaded_version = version
                    running.reload()
        except KeyboardInterrupt:
            return OK


def _result(directory: str, access: Access) -> dict[str, Any]:
    """Return for JSON how a broker is reached, without the password, and how many devices it has."""
    result = asdict(access)
    del result["password"]
    result["devices"] = _devices(access) or 0
    result["directory"] = directory
    return result


def _devices(access: Access) -> int | None:
    """Return the number of devices in the store of a broker.

    None if there is no store on this machine, as at a site.
    """
    if access.store is None or not Path(access.store).exists():
        return None
    with Store(access.store, create=False, beside=True) as store:
        return len(store.keys())
