"""`tern broker`: configures a fleet's broker, of any kind that is registered, and runs Mosquitto."""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternhost import long_running
from ternhost.command import add_command, add_group, add_option, print_result, warn
from ternhost.errors import OK, UsageError
from ternhost.listed_commands import BROKER
from ternhost.long_running import ServiceNeeds
from ternhost.provision.keys import parse_range
from ternhost.reach.addresses import HERE, listening_address
from ternhost.reach.broker import configuration, for_boards, guests
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.expiry import ExpiryWarnings
from ternhost.reach.broker.kinds import DEFAULT, KINDS, BrokerKind, kind_of
from ternhost.reach.broker.mosquitto import Mosquitto, configure_if_missing, reload
from ternhost.reach.broker.mosquitto_files import PASSWORDS, PORT, PROGRAM
from ternhost.reach.broker.mosquitto_lines import MosquittoLines
from ternhost.reach.broker.sites import SITES, BrokerSite, is_site, load_all
from ternhost.reach.broker.sites import check as check_site
from ternhost.signals import heeding_interrupts
from ternhost.store.store import Store
from ternhost.text import counted

_CHECK_EVERY = 0.5  # seconds between two checks whether the file of passwords has changed
_GONE = (
    "{path} is gone: was the directory moved? The broker runs on, but takes no new passwords until "
    "you move it back, or end it and start it in the new directory"
)
_NO_GUEST = "none"  # in place of a guest's prefix: it may no longer see the fleet

_CONFIG_EXAMPLES = """tern broker config my-broker --host broker.local
        tern broker run my-broker
        tern broker config my-broker
"""
_DIRECTORY = "directory of the broker"


def add_parser(subparsers: Any) -> None:
    """Add the command `tern broker` with its actions `config`, `site` and `run`."""
    actions = add_group(subparsers, BROKER.name, BROKER.summary, "tern broker config my-broker")
    _add_config(actions)
    _add_site(actions)

    summary = (
        "run Mosquitto for DIR until Ctrl-C; a missing configuration is made, new passwords are "
        "loaded"
    )
    run = add_command(actions, "run", summary, "tern broker run my-broker", run_run)
    run.add_argument("directory", metavar="DIR", help=_DIRECTORY)
    long_running.add_options(run, _service_needs)


def _service_needs(args: argparse.Namespace) -> ServiceNeeds:
    """Return what `tern broker run` needs as a service."""
    return ServiceNeeds(programs=(PROGRAM,), runs_broker=Path(args.directory))


def _add_config(actions: Any) -> None:
    """Add `tern broker config` with its options."""
    summary = (
        "write the configuration, passwords, rights and certificates into DIR; again, without "
        "options, for new keys"
    )
    all_kinds = list(KINDS.available())
    examples = _CONFIG_EXAMPLES + "\n".join(kind.example for kind in all_kinds if kind.example)
    config = add_command(actions, "config", summary, examples, run_config)

    about_kinds = ", or ".join(kind.about for kind in all_kinds)
    config.add_argument("directory", metavar="DIR", help=_DIRECTORY)
    add_option(config, "--store FILE", shown="as before, or DIR/store.sqlite")
    add_option(
        config,
        "--for",
        f"the broker: {about_kinds} (default: as before, or {DEFAULT})",
        dest="kind",
        choices=tuple(kind.name for kind in all_kinds),
    )
    add_option(config, "--host HOST...", shown=_names_here(all_kinds))
    add_option(config, "--port P", shown=str(PORT), type=int)
    add_option(config, "--prefix T", "prefix of all topics (default: tern)")
    config.add_argument(
        "--tls",
        action=argparse.BooleanOptionalAction,
        help="encrypt connections (default: yes); --no-tls is for boards without TLS, on a "
        "separate network",
    )
    all_guests = guests.registered()
    if all_guests:
        about_guests = []
        for guest in all_guests:
            about = f"{guest.option} is {guest.about} (default: {guest.default_prefix})"
            about_guests.append(about)
        text = (
            f"let a program see the fleet; NAME:{_NO_GUEST} no longer lets it. "
            f"{'; '.join(about_guests)}"
        )
        add_option(config, "--guest NAME[:PREFIX]...", text)


def _names_here(kinds: Sequence[BrokerKind]) -> str:
    """Return for the help of --host which names a broker of each kind has by default."""
    defaults = []
    for kind in kinds:
        names = ", ".join(kind.names_here)
        if kind.name == DEFAULT:
            defaults.append(names)
        else:
            defaults.append(f"for {kind.title} {names}")
    return "; ".join(defaults)


def _add_site(actions: Any) -> None:
    """Add `tern broker site` with its options."""
    site = add_command(
        actions,
        "site",
        "add a site, whose boards have a broker of their own, bridged to that of DIR, or change it; "
        "copy DIR/sites/SITE there",
        """tern broker site my-broker lab --ids 1-99 --host lab.local
        tern broker site my-broker desk --ids 20-29 --relay""",
        run_site,
    )
    site.add_argument("directory", metavar="DIR", help=_DIRECTORY)
    site.add_argument("site", metavar="SITE", help="name of the site, such as lab-2")
    add_option(site, "--ids FIRST-LAST", shown="any, which trusts the site with all boards")
    add_option(site, "--host HOST...", shown="localhost, 127.0.0.1")
    add_option(site, "--port P", shown=str(PORT), type=int)
    add_option(
        site,
        "--relay",
        "give the site its boards' passwords, with which 'tern relay' connects boards on USB; "
        "without --host and --port it then needs no broker of its own",
    )


# tern broker config


def run_config(args: argparse.Namespace) -> int:
    """Run `tern broker config`: configure a broker, for the first time or again."""
    # Check the options before anything is written.
    directory = Path(args.directory)
    prefixes = _guest_prefixes(getattr(args, "guest", []))

    # Write the files, and make a running broker read them.
    access = configuration.configure(
        args.directory,
        args.store,
        guest_prefixes=prefixes,
        kind=args.kind,
        **_given(args, "port", "prefix", "tls"),
    )
    reloaded = reload(args.directory)

    # Say what was written.
    result = _result(args.directory, access)
    result["for_boards"] = str(directory / for_boards.FILE)
    sites = load_all(directory)
    result["sites"] = [_site_result(args.directory, site) for site in sites]
    print_result(result, _config_text(result, access, reloaded), args.json)
    return OK


def _guest_prefixes(values: Sequence[str]) -> dict[str, str | None]:
    """Return the guests that the user has named, with the prefix of their topics.

    A guest is a program, such as a dashboard, that may see the state of the fleet. The prefix is
    None for a guest that may no longer see it. values: those of --guest. Raises UsageError for a
    guest that does not exist.
    """
    by_option = {guest.option: guest for guest in guests.registered()}
    prefixes: dict[str, str | None] = {}
    for value in values:
        name, _, prefix = value.partition(":")
        if name not in by_option:
            known = ", ".join(by_option)
            raise UsageError(f"--guest must be one of {known}, not {name!r}")
        guest = by_option[name]
        if prefix == _NO_GUEST:
            prefixes[guest.name] = None
        else:
            prefixes[guest.name] = prefix or guest.default_prefix
    return prefixes


def _given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options of a broker that the user has given: --host, and those named here.

    With --host, the address to listen on is among them.
    Options that are left out keep their earlier values, so they must not be passed on.
    """
    given: dict[str, Any] = {}
    if args.host:
        given["names"] = args.host
        given["address"] = listening_address(args.host)
    for name in names:
        value = getattr(args, name)
        if value is not None:
            given[name] = value
    return given


# tern broker site


def run_site(args: argparse.Namespace) -> int:
    """Run `tern broker site`: add a site to a broker, or change it."""
    # Check the options before anything is written.
    directory = Path(args.directory)
    check_site(directory, args.site)
    central = Access.load(directory / HOST)
    broker_options = _given(args, "port")
    ids = None
    if args.ids is not None:
        ids = parse_range(args.ids)
    is_new = not is_site(directory / SITES / args.site)
    has_own_broker = bool(broker_options) or (is_new and not args.relay)
    if has_own_broker:
        kind_of(directory, central).check_bridge()

    site = configuration.add_site(
        directory, args.site, bridge=has_own_broker, relay=args.relay, ids=ids, **broker_options
    )
    for warning in _warnings(site, central):
        warn(warning)
    reload(directory)
    result = _site_result(args.directory, site)
    print_result(result, _site_text(result), args.json)
    return OK


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
            f"at site {site.name}, {central.host} is not the central broker: name it as sites "
            "reach it, with tern broker config DIR --host HOST"
        )
    if site.bridge and set(site.names) <= HERE:
        yield (f"boards of {site.name} find it at {site.names[0]} only: add --host HOST")


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
    text += f"\n  boards learn of it from {result['for_boards']}, which has no secrets"
    for guest in guests.registered():
        if guest.load(Path(directory)):
            text += (
                f"\n  {guest.title} reaches it with user and password of {directory}/{guest.file}"
                f"; publish the fleet to it: tern serve --{guest.option}"
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
            "a site with only a relay has none, and 'tern relay' connects its boards to the "
            "central one"
        ]
        reasons += [kind.without_run for kind in KINDS.available() if kind.without_run]
        raise UsageError(f"{args.directory} has no Mosquitto", hint="; ".join(reasons))
    passwords = Path(args.directory) / PASSWORDS
    loaded_version = passwords.stat().st_mtime_ns
    text = f"the broker listens at {access.host} port {access.port}"
    own_lines = MosquittoLines(Path(args.directory))
    with heeding_interrupts(), own_lines, Mosquitto(args.directory) as running:
        if _devices(access) is not None:  # a site does not have the keys
            text += f"; keys are in {access.store}"
        text += "; Ctrl-C ends it"
        try:
            print_result(_result(args.directory, access), text, args.json)
            running.keep(warn)  # restarts it if it fails
            long_running.ready(args)
            expiry = ExpiryWarnings(Path(args.directory), warn)
            was_gone = False
            while True:
                time.sleep(_CHECK_EVERY)
                is_gone = not passwords.exists()
                if is_gone and not was_gone:
                    warn(_GONE.format(path=passwords))
                was_gone = is_gone
                if is_gone:
                    continue
                expiry.check()
                own_lines.pass_on()
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
