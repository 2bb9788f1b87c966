"""From the box to a member of a fleet: flash, deploy, provision, hello.

Steps that are done are not repeated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tern.host_frames import Hello
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
    installing,
    machines,
    member_options,
    program,
    provision,
    provision_command,
    starting,
    volumes,
)
from terntools.boards.file_changes import Changes
from terntools.boards.firmware import SOURCES, Firmware, read_firmware
from terntools.boards.flash_options import DEFAULT, FlashOptions
from terntools.boards.member import Member
from terntools.boards.prompt_errors import NoPromptError, SilenceError
from terntools.boards.repl import Repl
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
    machine: machines.Machine | None = None  # the kind of the board
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
    except machines.TooOldError as error:
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
    machine, library = installing.plan(repl, more=member.modules, program=member.program)
    with Store(store, beside=True) as opened:
        membership = provision.plan(repl, member, opened)
    return Plan(machine=machine, library=library, membership=membership)


def add_parser(subparsers: Any) -> None:
    """Add `tern board up` to the commands."""
    summary = (
        "make a board a member of a fleet: flash, deploy and provision it, as far as necessary"
    )
    example = """tern board up a0 --firmware RPI_PICO-v1.28.0.uf2 --store fleet.sqlite --device 7 --data mine.csv
        tern board up u0 --store fleet.sqlite --device 8 --data flights --yes
        tern board up a1 --broker my-broker --device 9 --data own --main app.py --schema my.toml"""
    parser = add_command(subparsers, "up", summary, example, _run)
    parser.usage = "tern board up BOARD --device ID --data DATA [OPTION ...]"
    parser.epilog = f"{_OTHER_OPTIONS}\n\n{member_options.ABOUT_FILES}\n\n{parser.epilog}"
    devices.add_board(parser)
    add_option(parser, "--main FILE", shown="one that only serves the host")
    add_option(parser, "--schema FILE.toml")
    flash.add_options(parser, shown=_SHOWN)
    add_option(parser, "--yes")
    member_options.add_options(parser, shown=_SHOWN)


@dataclass(frozen=True)
class Up:
    """What became of a board that was made a member of a fleet.

    - port: on which it is; device: its id
    - flashed: whether MicroPython was put on it
    - deployed, provisioned: the paths of the files that were written
    - hello: what it says at its port; None if it reaches its host in another way
    - heard: a sentence about a board that uses a broker; None without one
    """

    port: str
    device: int
    flashed: bool
    deployed: Sequence[str]
    provisioned: Sequence[str]
    hello: Hello | None = None
    heard: str | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was done to the board."""
        return bool(self.flashed or self.deployed or self.provisioned)

    def as_json(self) -> dict[str, Any]:
        """Return what `tern board up --json` prints."""
        result: dict[str, Any] = {
            "port": self.port,
            "device": self.device,
            "changed": self.changed,
            "flashed": self.flashed,
            "deployed": list(self.deployed),
            "provisioned": list(self.provisioned),
        }
        if self.hello is not None:
            result["hello"] = self.hello.text
            result["clients"] = self.hello.clients
            result["heap_free"] = self.hello.heap
            result |= devices.budget(self.hello)
        elif self.heard:
            result["heard"] = self.heard
        return result

    def __str__(self) -> str:
        text = f"device {self.device} on {self.port} is up"
        if self.hello is not None:
            budget, heap = devices.budget_text(self.hello), devices.heap(self.hello.heap)
            text += f": {self.hello.text}; {budget}; {heap}"
        elif self.heard:
            text += f", and {self.heard}"
        return text


@dataclass(frozen=True)
class Consent:
    """Functions that are called before a board is changed, and may raise an error instead.

    - plan: with the steps that the board needs
    - renaming: with changes that also rename what hides the library, which was not known before
    """

    plan: Callable[[Plan], None] = lambda plan: None
    renaming: Callable[[Changes], None] = lambda changes: None


WITHOUT_ASKING = Consent()


def bring_up(
    board: str,
    member: Member,
    store: Path,
    firmware: Firmware | None = None,
    flash_options: FlashOptions = DEFAULT,
    consent: Consent = WITHOUT_ASKING,
) -> Up:
    """Make a board a member of a fleet: flash, deploy and provision it, as far as necessary.

    - board: its name, as of `ternhost.reach.ports.names`
    - member: what the board is to become; store: the host's store, which gets its key
    - firmware: MicroPython, for a board that has to be flashed
    - flash_options: how it is flashed; their functions are also told of the files that are written

    Raises TernError.
    """
    is_for_pico = firmware is None or firmware.family == names.RP2
    # In its boot loader, a Pico has a volume and no port.
    a_pico_waits = is_for_pico and bool(volumes.find_volumes(flash_options.volume))
    port = names.resolve(board, may_be_absent=a_pico_waits)
    plan = make_plan(port, member, store, volume=flash_options.volume)
    if plan.flash and firmware is None:
        raise UsageError(
            f"the board has to be flashed ({plan.flash}), and no --firmware FILE is named",
            hint=SOURCES,
        )
    consent.plan(plan)
    was_flashed = plan.flash is not None
    if was_flashed and firmware is not None:
        summary = flash.flash(port, firmware, flash_options)
        port = summary.get("port", port)

    with Repl(port, visits=True) as repl:
        if plan.machine is None:  # what a board needs after flashing is only known now
            plan = _plan_files(repl, member, store)
            if plan.library.move:
                consent.renaming(plan.library)
        assert plan.machine is not None
        installing.install(repl, plan.machine, plan.library, flash_options.progress)
        with Store(store, beside=True) as opened:
            provision.apply(repl, plan.membership, member, opened, flash_options.progress)
        heard = provision_command.start(repl, member, store)
    hello = None
    if member.link_name == "serial":  # with another link, its port is silent now
        hello = starting.wait_for_hello(port, member.settings.slot / 1000)
    return Up(
        port=port,
        device=member.device,
        flashed=was_flashed,
        deployed=tuple(plan.library.write),
        provisioned=tuple(plan.membership.write),
        hello=hello,
        heard=heard,
    )


def _run(args: argparse.Namespace) -> int:
    """Make the named board a member, after consent, and print what was done."""
    user_program = program.of_options(args.main, args.schema)
    member = replace(member_options.member_of(args), program=user_program)
    store = member_options.store_of(args, member)
    firmware = None
    if args.firmware:
        firmware = read_firmware(args.firmware)

    def show(plan: Plan) -> None:
        """Print the steps, and ask whether to go on."""
        for line in plan.lines(args.json):
            print(f"  {visible(line)}", file=sys.stderr)
        if plan and not args.yes:
            confirm()

    consent = Consent(show)
    if not args.yes:
        consent = Consent(show, deploy.confirm_renaming)
    with Bar("working") as bar:
        flash_options = flash.options_of(args, bar)
        result = bring_up(args.board, member, store, firmware, flash_options, consent)
    print_result(result.as_json(), str(result), args.json)
    return errors.OK
