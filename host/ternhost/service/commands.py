"""`tern service`: runs a command of tern as a service of systemd."""

import argparse
from typing import Any

from ternhost.command import add_command, add_group, print_result
from ternhost.errors import OK
from ternhost.listed_commands import SERVICE
from ternhost.service import install, paths
from ternhost.service.plan import planned
from ternhost.service.unit import STATE, USER, Unit, unit_name

_EXAMPLE = """tern service install broker -- broker run my-broker
        tern service install serve -- serve --fleet mqtt:my-broker --every 1h"""


def add_parser(subparsers: Any) -> None:
    """Add `tern service` with its actions `install` and `show` to the commands."""
    actions = add_group(subparsers, SERVICE.name, SERVICE.summary, _EXAMPLE)

    summary = (
        f"make a service, tern-NAME, that runs a command of tern as the user {USER}, and start it"
    )
    parser = add_command(actions, "install", summary, _EXAMPLE, run_install)
    _add_arguments(parser)

    summary = "print the unit file that 'tern service install' would write, and change nothing"
    example = "tern service show broker -- broker run my-broker"
    parser = add_command(actions, "show", summary, example, run_show)
    _add_arguments(parser)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of a service and its command to a parser."""
    parser.add_argument("service", metavar="NAME", help="name of the service, such as broker")
    text = f"'--', and a command without the word 'tern'; its relative paths begin in {STATE}"
    parser.add_argument("words", metavar="-- COMMAND", nargs="*", help=text)


def run_show(args: argparse.Namespace) -> int:
    """Print the unit of a service."""
    unit, _ = planned(args.service, args.words)
    result = {"unit": unit_name(unit.name), "file": str(unit.file), "text": unit.text}
    print_result(result, unit.text.rstrip("\n"), args.json)
    return OK


def run_install(args: argparse.Namespace) -> int:
    """Install a service, start it, and say how to watch and to remove it."""
    # Check everything before anything is changed.
    unit, arguments = planned(args.service, args.words)
    install.require_possible(unit)
    paths.check_interpreter()
    paths.check(arguments)

    install.make_user()
    install.start(unit)
    result = {"unit": unit_name(unit.name), "file": str(unit.file), "user": USER}
    print_result(result, "\n".join(_lines(unit)), args.json)
    return OK


def _lines(unit: Unit) -> list[str]:
    """Return what to do with a service that runs."""
    name = unit_name(unit.name)
    return [
        f"{name} is active, and starts with the machine; its files are in {STATE}",
        f"  its log:  journalctl -u {name}",
        f"  stop it:  systemctl stop {name}",
        f"  remove it:  {install.remove_command(unit)}",
        f"  a command on its files:  cd {STATE} && runuser -u {USER} -- {unit.interpreter.parent}/tern ...",
    ]
