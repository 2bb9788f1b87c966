"""Starts a board, waits until its broker hears it, and says why it does not."""

import asyncio
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue

from tern.links import mqtt
from ternhost.errors import DeviceError, StorageError, TernError
from ternhost.guides import guide
from ternhost.reach import absence
from ternhost.reach.broker.absent import AbsentBoards
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.copies import check_original
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import reload
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.links import open_link
from ternhost.store.boards import hello_fields
from ternhost.store.store import Store
from terntools.boards.member import Member
from terntools.boards.repl import Repl

_LISTEN = 60.0  # seconds until a board that was started has said hello
_CONNECTING = 5.0  # seconds until this machine is connected to the broker
_LOOK_EVERY = 0.5  # seconds
_ANSWER = 5.0  # seconds until the board answers at its port


def start(repl: Repl, member: Member, store: Path) -> str:
    """Start the program of a board, and wait until its broker has heard the board's hello.

    A hello is the message with which a board connects. If the broker's directory is on this
    machine, the broker gets the board's password first. Otherwise nobody waits.

    member: what the board was provisioned as; it has a broker. store: the file with the devices'
    keys. Returns a sentence about the board for the user. Raises DeviceError if no hello comes in
    time.
    """
    assert member.broker
    directory = member.broker.directory
    if directory is None:
        repl.start_main()
        return (
            "nobody has looked whether the broker hears it, since its directory is not here; run "
            "'tern broker config' there, and 'tern serve' says whether it does"
        )
    if _is_of(Access.load(directory / HOST), store):
        configure(directory)  # writes the passwords of the store's devices
        reload(directory)  # lets a running broker read them

    reasons = _start_and_listen(repl, member.device, store, directory)
    if reasons is None:
        return "its broker hears it"
    # It was not heard: the error quotes what the board and the broker can say about the reason.
    lines = [f"{_head(member.device)}no hello in {_LISTEN:g} s"]
    with suppress(TernError), closing(open_link(repl.name, SimpleQueue())) as port:
        board_says = absence.describe(hello_fields(port.hello(_ANSWER)))
        if board_says:
            lines.append(f"the board says: {board_says}")
    lines += reasons
    raise DeviceError("\n  ".join(lines), hint=f"{guide('absent.md')} lists what to check")


def _head(device: int) -> str:
    """Return how the error begins for a board that its broker does not hear."""
    return f"device {device} has its files, but its broker does not hear it: "


def _start_and_listen(repl: Repl, device: int, store: Path, directory: Path) -> list[str] | None:
    """Start the board, and listen at its broker for its hello.

    repl: the board's prompt, whose port is closed here. store: the file with the devices' keys.
    directory: the broker's. Returns None once the hello has come, else lines for people that say
    what the broker shows about the reason. Raises DeviceError if the broker does not answer this
    machine; the board is started nevertheless.
    """
    access = Access.load(directory / HOST)
    check_original(directory, access)
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        link = MqttLink(access)
        stack.callback(lambda: runner.run(link.close()))
        try:
            open_store = stack.enter_context(Store(store, create=False))
            runner.run(link.connect(_CONNECTING))
            runner.run(link.subscribed.wait())
        except StorageError:
            # A running host has the store open, and notes in it which boards it hears. Then this
            # process does not connect to the broker, but reads the store.
            open_store = stack.enter_context(Store(store, create=False, beside=True))
        except DeviceError as error:
            repl.start_main()
            raise DeviceError(_head(device) + error.message, hint=error.hint) from error

        device_key = open_store.keys().get(device)
        start_time = time.time()

        def key_of(_device: int) -> bytes | None:
            return device_key  # this device is the only one that is looked for

        # Finds out why a board is absent, by the broker's log among others.
        absent = AbsentBoards(open_store, directory, key_of, past=0.0)
        repl.start_main()
        repl.close()
        while time.time() - start_time < _LISTEN:
            if runner.run(_is_heard(link, open_store, device, start_time)):
                return None
        _, lines = absent.describe(link, BoardRoster([device]), time.monotonic())
        return lines[1:]  # the first line says only that the board is absent


def _is_of(access: Access, store: Path) -> bool:
    """Return whether a broker is the one whose devices are in this store."""
    path = Path(access.store or "")
    return path.is_file() and store.exists() and store.samefile(path)


async def _is_heard(link: MqttLink, store: Store, device: int, start_time: float) -> bool:
    """Wait a moment, and return whether the board has said hello since it was started.

    If this process is connected to the broker, it gets the hello itself. Otherwise another host is
    connected, and `store` has which boards that host hears. start_time: when the board was started,
    in seconds of time.time().
    """
    if not link.connected:
        await asyncio.sleep(_LOOK_EVERY)
        rows = [board for board in store.boards() if board.first == device]
        return any(board.online and board.heard > start_time for board in rows)
    await link.take(_LOOK_EVERY)
    hello = link.presence.boards.get(mqtt.name(device))
    # A retained message is one that the broker had kept: the board's hello of an earlier start.
    return hello is not None and not hello.retained
