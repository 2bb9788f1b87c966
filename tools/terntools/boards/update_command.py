"""`tern board update`: bring library and program to boards in the field, which start it or roll it back."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tern import wire
from tern.update import MAIN
from ternhost import errors
from ternhost.api import arguments
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import NO_DEVICE, OK, DeviceError, UsageError
from ternhost.options import Option, require
from ternhost.provision import keys
from ternhost.reach.ports import names
from ternhost.store import sleepers
from ternhost.store.store import Store
from ternhost.terminal import duration
from ternhost.text import counted
from ternhost.words import HELP
from terntools.boards import mpy, program, update_package
from terntools.boards.update import BrokerPost, PortPost, Post, Transfer, bring
from terntools.terminal import Bar

if TYPE_CHECKING:
    from ternhost.reach.broker.access import Access

_MACHINE = "machine %d"  # a key in a store, for a device: the last known kind of its board
PATIENCE = 60.0  # seconds that a board may be silent while it gets a package
TRIAL = 900.0  # seconds that it then has to restart and reach its host
_SILENT = "silent"  # in the place of a state, for a board that did not answer
# What to do about a board that was not updated, by its last state.
_ADVICE = {
    _SILENT: "check that it is there, and that its program has an Update(board); one that has none, "
    "such as tern's own main.py, takes it at the desk: tern board deploy BOARD --main FILE",
    wire.UPDATES[wire.OLD]: (
        "it has had a later package: use that host's store, or set this machine's clock"
    ),
    wire.UPDATES[wire.DAMAGED]: ("try it once more; if it stays so, its flash is worn out"),
    wire.UPDATES[wire.FULL]: (
        "its flash has no room for a second program: send a smaller one, or remove files at its port"
    ),
    wire.UPDATES[wire.ROLLED_BACK]: (
        "it did not reach its host with the new program, and runs the one before"
    ),
}
_ABOUT_PROGRAMS = """\
The program makes an Update of tern.update, by which it takes the next program, too."""
_CONFIRMED = wire.UPDATES[wire.CONFIRMED]
_DESK = "deploy the program at its port: tern board deploy BOARD --main FILE"


def add_parser(subparsers: Any) -> None:
    """Add `tern board update` to the commands."""
    summary = "update the library and program of boards in the field; a board rolls back an update that fails"
    example = """tern board update 7 --broker my-broker --machine pico-w --main product.py
        tern board update all --broker my-broker --main product.py --at-once 5
        tern board update 7 --store fleet.sqlite --board a0 --machine pico --main product.py"""
    parser = add_command(subparsers, "update", summary, example, run)
    text = "ids, or ranges such as 10-19; all: every board that is connected and does not sleep"
    parser.epilog = f"{_ABOUT_PROGRAMS}\n\n{parser.epilog}"
    parser.usage = "tern board update DEVICE ... --main FILE [OPTION ...]"
    parser.add_argument("devices", nargs="+", metavar="DEVICE", help=text)
    add_option(parser, "--store FILE", shown="the broker's")
    way_to_boards = parser.add_mutually_exclusive_group(required=True)
    add_option(way_to_boards, "--broker DIR")
    add_option(way_to_boards, "--board BOARD", "update only the board on this port, such as a0")
    add_option(
        parser,
        "--machine",
        "kind of the boards (default: as in the store)",
        choices=program.MACHINES,
    )
    add_option(parser, "--main FILE", required=True)
    text = f"{HELP['module']}: {', '.join(mpy.on_demand())}"
    add_option(parser, "--module NAME...", text, choices=mpy.on_demand(), dest="modules")
    add_option(parser, "--file FILE...", "also install this .py, .mpy or .json file", dest="files")
    add_option(parser, "--at-once N", "number of boards to update at once, after the first", 1)


_OPTIONS = (
    Option("machine", "", choices=tuple(program.MACHINES)),
    Option("at_once", "", type=int, default=1),
)


@dataclass(frozen=True)
class UpdateOptions:
    """What boards get, and how they are reached.

    - main: the program that becomes main.py, with the modules beside it that it imports; files:
      other .py, .mpy and .json files; modules: of the device library, besides those it imports
    - broker: the directory of the broker; board: the only board, at a port. One of them is named
    - store: the file with the fleet's keys; None: the broker's
    - machine: the kind of the boards, such as "pico-w"; None: as in the store
    - at_once: how many boards are updated at once, after the first

    Raises UsageError for values that make no sense.
    """

    main: str
    broker: str | None = None
    board: str | None = None
    store: str | None = None
    machine: str | None = None
    modules: Sequence[str] = ()
    files: Sequence[str] = ()
    at_once: int = 1

    def __post_init__(self) -> None:
        """Raise UsageError for values that make no sense."""
        arguments.path(self.main, "main")
        for name in ("broker", "board", "store"):
            value = getattr(self, name)
            if value is not None:
                arguments.path(value, name)
        if (self.broker is None) == (self.board is None):
            raise UsageError("name either the broker of the boards, or one board at a port")
        for name in ("modules", "files"):
            values = getattr(self, name)
            if isinstance(values, str | bytes) or not isinstance(values, Sequence):
                raise UsageError(f"{name} must be a list of texts")
            for value in values:
                arguments.path(value, name)
        for option in _OPTIONS:
            object.__setattr__(self, option.name, option.normalised(getattr(self, option.name)))
        require(self.at_once >= 1, "at-once", "1 or more", self.at_once)


@dataclass(frozen=True)
class BoardUpdate:
    """What became of the board of one device.

    - device: its id; package: the number of what it was sent, of so many bytes
    - state: "confirmed" if it runs the new program, "silent" if it did not answer, or another
      state of `tern.wire.UPDATES`; error: the last one of its program, None without one
    """

    device: int
    package: int
    bytes: int
    state: str
    error: str | None

    @property
    def is_confirmed(self) -> bool:
        """Whether the board runs the new program."""
        return self.state == _CONFIRMED

    def __str__(self) -> str:
        text = f"device {self.device}: package {self.package} ({counted(self.bytes, 'byte')}) "
        text += self.state
        if self.error:
            text += f"; its last error: {self.error}"
        advice = _ADVICE.get(self.state)
        if advice:
            text += f"\n  {advice}"
        return text


@dataclass(frozen=True)
class Updated:
    """What became of the boards of a fleet that were to be updated.

    - boards: those whose update was begun; left: how many were left as they are, since one failed
    - asleep: the devices that sleep, which take no package
    - modules: those beside the program that it imports; missing: imports that were not found
    """

    boards: Sequence[BoardUpdate]
    left: int
    asleep: Sequence[int]
    modules: Sequence[str]
    missing: Sequence[str]

    @property
    def failed(self) -> Sequence[BoardUpdate]:
        """The boards that do not run the new program."""
        return [board for board in self.boards if not board.is_confirmed]

    def as_json(self) -> dict[str, Any]:
        """Return what `tern board update --json` prints."""
        return {
            "boards": [asdict(board) for board in self.boards],
            "failed": len(self.failed),
            "left": self.left,
            "asleep": list(self.asleep),
            "modules": list(self.modules),
            "missing": list(self.missing),
        }

    def __str__(self) -> str:
        lines = [str(board) for board in self.boards]
        if self.left:
            boards = counted(self.left, "board")
            lines.append(f"left as they are, since one failed: {boards}")
        if self.asleep:
            asleep = ", ".join(map(str, self.asleep))
            lines.append(f"boards that sleep take no package, and were left out: {asleep}")
        return "\n".join(lines)


def update_boards(
    named_devices: Sequence[int], options: UpdateOptions, bar: Bar | None = None
) -> Updated:
    """Bring a program to boards in the field, which start it, or roll it back if it fails.

    named_devices: the boards' devices; empty for every board that is connected and does not sleep.
    bar: shows the progress. Raises TernError if no board can be updated.
    """
    access = None
    if options.broker:
        from ternhost.reach.broker.access import Access, host_file
        from ternhost.reach.broker.copies import check_original

        path = host_file(options.broker)
        access = Access.load(path)
        check_original(path.parent, access)
    store_path = options.store
    if not store_path and access:
        store_path = access.store
    if not store_path:
        raise UsageError("--store must name the file with the keys of the devices")
    with Store(store_path, create=False, beside=True) as store:
        update = _Update(options, store, bar)
        update.check(named_devices)
        results = asyncio.run(update.run(named_devices, access))
    return Updated(
        boards=results,
        left=len(update.devices) - len(results),
        asleep=update.asleep,
        modules=tuple(update.program.modules),
        missing=tuple(update.program.missing),
    )


def run(args: argparse.Namespace) -> int:
    """Bring the program to the named boards, and print what became of each.

    Returns the exit code, which is NO_DEVICE if all boards that failed were silent.
    """
    options = UpdateOptions(
        **{field.name: getattr(args, field.name) for field in fields(UpdateOptions)}
    )
    named_devices = []
    if args.devices != ["all"]:
        named_devices = keys.parse_ids(args.devices)
    with Bar("updating") as bar:
        updated = update_boards(named_devices, options, bar)
    print_result(updated.as_json(), str(updated), args.json)
    if not updated.failed:
        return OK
    all_silent = all(board.state == _SILENT for board in updated.failed)
    return NO_DEVICE if all_silent else errors.FAILED


class _Update:
    """The updates of all boards that one command names."""

    def __init__(self, options: UpdateOptions, store: Store, bar: Bar | None) -> None:
        """Read the program of --main, and from the store what is known of the devices.

        bar: shows the progress.
        """
        self._options = options
        self._store = store
        self._bar = bar
        self._keys = store.keys()  # by device
        self._wakes = sleepers.wakes(store)  # seconds between two wakes, by device that sleeps
        self._contents: dict[str, bytes] = {}  # of packages, by the kind of board
        self._post: Post
        self.program = program.read(options.main)
        self.devices: list[int] = []  # to be updated
        self.asleep: list[int] = []  # left out, since they sleep

    def check(self, devices: Sequence[int]) -> None:
        """Make the packages for these devices, so that errors show before anything is sent.

        Raises UsageError for a device that sleeps, has no key, or is of an unknown kind of board.
        """
        for device in devices:
            if device not in self._keys:
                raise UsageError(
                    f"device {device} has no key in this store", hint="see 'tern keys list'"
                )
            if device in self._wakes:
                raise UsageError(
                    f"the board of device {device} sleeps (--wake-s {self._wakes[device]}): no "
                    "wake is long enough for a package",
                    hint=_DESK,
                )
            self._content(self._machine(device))  # raises if it cannot be made

    def _machine(self, device: int) -> str:
        """Return the kind of a device's board, such as "pico-w". Raises UsageError if unknown.

        The command names it, or an earlier one has, and then the store has it.
        """
        machine = self._options.machine or self._store.state(_MACHINE % device)
        if machine not in program.MACHINES:
            hint = f"name it once: --machine {', '.join(program.MACHINES)}"
            raise UsageError(f"the kind of device {device}'s board is unknown", hint)
        return str(machine)

    def _content(self, machine: str) -> bytes:
        """Return the content of the package for a kind of board, which is made only once.

        Raises UsageError.
        """
        if machine in self._contents:
            return self._contents[machine]
        other_files = {}
        for path in self._options.files:
            other_files[Path(path).name] = program.read_file(path)
        if len(other_files) < len(self._options.files) or MAIN in other_files:
            text = f"two files would have one name on the board, of --file and {MAIN}"
            raise UsageError(text, hint="rename one of them")
        files = program.program_files(machine, self.program, self._options.modules, other_files)
        content = update_package.content(files)
        self._contents[machine] = content
        return content

    async def run(self, devices: Sequence[int], access: Access | None) -> list[BoardUpdate]:
        """Update boards: the first alone, then several at once, until one fails.

        Returns what became of each board whose update was begun. devices: the boards' devices,
        or [] for all that are connected. access: to a broker; None for the board on a port. Raises
        TernError.
        """
        if access:
            from ternhost.reach.broker.link import MqttLink

            self._post = BrokerPost(MqttLink(access))
        else:
            assert self._options.board is not None
            self._post = PortPost(names.resolve(self._options.board))
        if self._bar is not None:
            self._bar.step("waiting for the boards that are connected to say hello")
        async with self._post as post:
            connected = post.boards()
            self.devices = list(devices)
            if not devices:
                self.devices = self._awake(connected)
            if not access and self.devices != connected:
                board = "no device yet"
                if connected:
                    board = f"device {connected[0]}"
                raise UsageError(
                    f"the board on {self._options.board} is {board}", hint="name it, or say all"
                )
            self.check(self.devices)
            if self._options.machine:
                machines = {_MACHINE % device: self._options.machine for device in self.devices}
                self._store.save_state(machines)
            return await self._update_all()

    def _awake(self, connected: Sequence[int]) -> list[int]:
        """Return those of the connected boards that are of this store and do not sleep.

        As a side effect, `self.asleep` gets those of the store that sleep. Raises DeviceError if no
        board is left.
        """
        registered = [device for device in connected if device in self._keys]
        self.asleep = [device for device in registered if device in self._wakes]
        awake = [device for device in registered if device not in self._wakes]
        if not awake:
            text = "no board of this store is connected"
            if registered:
                text += " except boards that sleep"
            raise DeviceError(text, hint="see 'tern keys list'")
        return awake

    async def _update_all(self) -> list[BoardUpdate]:
        """Update `self.devices`: the first alone, then --at-once at a time, until one fails.

        Returns their results.
        """
        results: list[BoardUpdate] = []
        waiting = self.devices
        has_failed = False
        while waiting and not has_failed:
            count = 1  # a program that does not start then reaches one board only
            if results:
                count = self._options.at_once
            new_results = await asyncio.gather(*map(self._update, waiting[:count]))
            waiting = waiting[count:]
            results += new_results
            has_failed = any(not result.is_confirmed for result in results)
        return results

    async def _update(self, device: int) -> BoardUpdate:
        """Update the board of one device, and return what became of it.

        A board refuses a package with the number of one that it has tried before. The package is
        then sent once more under another number.
        """
        content = self._content(self._machine(device))
        for takes_new_number in (False, True):
            number = update_package.number_for(self._store, device, content, takes_new_number)
            key = self._keys[device]
            package = update_package.sealed(key, number, content)
            transfer = Transfer(device, key, number, package)
            self._tell(f"device {device}: package {number}, {len(transfer.package):,} bytes")
            state = await bring(self._post, transfer, PATIENCE, TRIAL, self._show)
            # A first answer with one of these states is about an earlier attempt.
            was_refused = transfer.first in (wire.ROLLED_BACK, wire.OLD, wire.DAMAGED, wire.FULL)
            if not was_refused:
                break
        state_name = _SILENT
        if state is not None:
            state_name = wire.UPDATES[state]
        self._tell(f"device {device}: {state_name}")
        return BoardUpdate(
            device=device,
            package=transfer.number,
            bytes=len(transfer.package),
            state=state_name,
            error=transfer.error,
        )

    def _tell(self, line: str) -> None:
        """Show a line of text, if progress is shown."""
        if self._bar is not None:
            self._bar.say(line)

    def _show(self, transfer: Transfer, answered: bool, seconds_left: float) -> None:
        """Show how many bytes of a package the board has, or what it is waited for, and how long.

        The parameters are those of `Tell`.
        """
        if self._bar is None:
            return
        if answered and transfer.state == wire.RECEIVING:
            self._bar.update(transfer.wanted, len(transfer.package))
            return
        what = "it does not answer"
        if transfer.state not in (None, wire.RECEIVING):
            what = "it restarts with the new program"
        rest = duration(max(0.0, seconds_left))
        self._bar.step(f"device {transfer.device}: {what}, and is given up in {rest}")
