"""From the box to a member of a fleet: flash, deploy, provision, hello.

Steps that are done are not repeated.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports import names
from ternhost.store.store import Store
from ternhost.terminal import confirm
from ternhost.text import visible
from terntools.boards import (
    at_port,
    deploy,
    devices,
    flash,
    heard,
    member_options,
    provision,
    provision_command,
    volumes,
)
from terntools.boards.deploy import Changes
from terntools.boards.firmware import SOURCES, read_firmware
from terntools.boards.member import Member
from terntools.boards.repl import NoPromptError, Repl, SilenceError
from terntools.terminal import Bar

# The help shows these options alone.
_SHOWN = (
    "--firmware",
    "--store",
    "--device",
    "--data",
    "--broker",
    "--ssid",
    "--wifi-password-file",
)
_OTHER_OPTIONS = """\
It also takes the options of 'tern board flash --help' and 'tern board provision --help', except
--erase, --lock and --counter, which change a board for good."""


@dataclass
class Plan:
    """The steps of `tern board up` that a board still needs.

    If the board has to be flashed, the steps after that are only known once it has MicroPython:
    then `flash` alone is set.
    """

    flash: str | None = None  # why the board has to be flashed; None if it does not
    machine: deploy.Machine | None = None  # the kind of the board
    library: Changes = field(default_factory=lambda: Changes({}, ()))  # its program and library
    membership: Changes = field(default_factory=lambda: Changes({}, ()))  # its key, records, link

    def __bool__(self) -> bool:
        return bool(self.flash or self.library or self.membership)

    def lines(self, files: bool) -> list[str]:
        """Describe the plan in a line for each step.

        files: describe it in a line for each file instead.
        """
        if self.flash:
            return [
                f"flash      ({self.flash})",
                "deploy     the device library",
                "provision  the device",
            ]
        if not self:
            return ["nothing to do"]
        lines: list[str] = []
        for step, changes in (("deploy", self.library), ("provision", self.membership)):
            texts: list[str] = []
            if files:
                texts = changes.lines()
            elif changes:
                texts = [changes.text()]
            lines += [f"{step:10} {text}" for text in texts]
        return lines


def make_plan(
    port: str,
    member: Member,
    store: Path,
    *,
    volume: str | Path | None = None,
) -> Plan:
    """Find out which steps a board still needs to be this member of a fleet.

    For that the board's program is interrupted and started again. A board that has no MicroPython,
    or too old a one, has to be flashed; other errors are raised, since flashing would not help.

    member: what the board is to become. store: the host's store, with the devices' keys. volume:
    where a Pico's boot loader is mounted; None to look for it. Raises TernError.
    """
    waits_in_boot_loader = volumes.find_volumes(volume) and not at_port.comes_to(port)
    if waits_in_boot_loader:
        return Plan(flash="it waits in its boot loader")
    # Outside of the `try`: flashing is no remedy for a port that cannot be opened.
    opened = Repl(port, visits=True)
    try:
        with opened as repl:
            return _plan_files(repl, member, store)
    except deploy.TooOldError as error:
        return Plan(flash=error.message)
    except NoPromptError as error:
        if heard.is_firmware_missing(error.printed):
            return Plan(flash=error.message)
        raise  # another program, or another device, is on this port
    except DeviceError as error:
        # Flashing is no remedy either for a board that is unplugged, or that is silent at its
        # prompt.
        is_unplugged = error.__cause__ is not None  # by an error of the port
        is_silent = isinstance(error, SilenceError)
        if is_unplugged or is_silent:
            raise
        return Plan(flash=error.message)


def _plan_files(repl: Repl, member: Member, store: Path) -> Plan:
    """Find out which files a board needs that runs MicroPython. Raises TernError."""
    machine, library = deploy.plan(repl, more=member.modules)
    with Store(store, beside=True) as opened:
        membership = provision.plan(repl, member, opened)
    return Plan(machine=machine, library=library, membership=membership)


def add_parser(subparsers: Any) -> None:
    """Add `tern board up` to the commands."""
    summary = (
        "make a board a member of a fleet: flash, deploy and provision it, as far as necessary"
    )
    example = """tern board up a0 --firmware RPI_PICO-v1.28.0.uf2 --store fleet.sqlite --device 7 --data mine.csv
        tern board up u0 --store fleet.sqlite --device 8 --data flights --yes"""
    parser = add_command(subparsers, "up", summary, example, _run)
    parser.usage = "tern board up BOARD --device ID --data DATA [OPTION ...]"
    parser.epilog = f"{_OTHER_OPTIONS}\n\n{member_options.ABOUT_FILES}\n\n{parser.epilog}"
    devices.add_board(parser)
    flash.add_options(parser, shown=_SHOWN)
    add_option(parser, "--yes")
    member_options.add_options(parser, shown=_SHOWN)


def _run(args: argparse.Namespace) -> int:
    """Plan the steps for the named board, ask for consent, and carry them out."""
    member = member_options.member_of(args)
    store = member_options.store_of(args, member)
    firmware = None
    if args.firmware:
        firmware = read_firmware(args.firmware)
    a_board_waits = bool(volumes.find_volumes(args.volume))  # in its boot loader, without a port
    port = names.resolve(args.board, may_be_absent=a_board_waits)
    plan = make_plan(port, member, store, volume=args.volume)
    if plan.flash and firmware is None:
        raise UsageError(
            f"the board has to be flashed ({plan.flash}), and no --firmware FILE is named",
            hint=SOURCES,
        )
    for line in plan.lines(args.json):
        print(f"  {visible(line)}", file=sys.stderr)
    if plan and not args.yes:
        confirm()

    if plan.flash and firmware:
        flash.run_flash(port, firmware, args)
    broker_hears = _write_files(port, plan, member, store, asks=not args.yes)
    _print_outcome(port, plan, member, broker_hears, args.json)
    return errors.OK


def _print_outcome(
    port: str, plan: Plan, member: Member, broker_hears: str | None, as_json: bool
) -> None:
    """Print what was done to the board, and whether it answers.

    A board that reaches its host by its port is asked for its hello. broker_hears: a sentence about
    a board that uses a broker; None without a broker.
    """
    result: dict[str, Any] = {
        "port": port,
        "device": member.device,
        "changed": bool(plan),
        "flashed": plan.flash is not None,
        "deployed": list(plan.library.write),
        "provisioned": list(plan.membership.write),
    }
    text = f"device {member.device} on {port} is up"
    answers_at_port = member.link_name == "serial"  # with another link, its port is silent now
    if answers_at_port:
        hello = deploy.wait_for_hello(port)
        result["hello"] = hello.text
        result["clients"] = hello.clients
        result["heap_free"] = hello.heap
        result |= devices.budget(hello)
        text += f": {hello.text}; {devices.budget_text(hello)}; {devices.heap(hello.heap)}"
    elif broker_hears:
        result["heard"] = broker_hears
        text += f", and {broker_hears}"
    print_result(result, text, as_json)


def _write_files(port: str, plan: Plan, member: Member, store: Path, *, asks: bool) -> str | None:
    """Write the files of the plan to the board, and start its program.

    For a board that was just flashed, the files are planned only now. store: the host's store.
    asks: whether the user is asked before files that hide the library are renamed. Returns what
    provision_command.start returns: a sentence about the board at its broker, or None.
    """
    with Bar("writing") as bar, Repl(port, visits=True) as repl:
        was_flashed = plan.machine is None
        if was_flashed:
            plan = _plan_files(repl, member, store)
        assert plan.machine is not None
        # The plan before flashing could not show what hides the library.
        if was_flashed and plan.library.move and asks:
            deploy.confirm_renaming(plan.library)
        deploy.install(repl, plan.machine, plan.library, bar.update)
        with Store(store, beside=True) as opened:
            provision.apply(repl, plan.membership, member, opened, bar.update)
        return provision_command.start(repl, member, store)
