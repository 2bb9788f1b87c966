"""Starts a board, waits until its broker hears it, and says why it does not."""

import asyncio
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue

from tern.links import mqtt
from ternhost.errors import DeviceError, StorageError, TernError, UsageError
from ternhost.reach import absence
from ternhost.reach.broker.absent import AbsentBoards
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import reload
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.links import open_link
from ternhost.store.boards import hello_fields
from ternhost.store.store import Store
from terntools.boards.member import Member
from terntools.boards.repl import Repl

_CONNECTING = 5.0  # seconds until this machine is connected to the broker
_LOOK_EVERY = 0.5
_ANSWER = 5.0  # seconds until the board answers at its port


def start(repl: Repl, member: Member, store: Path, authority: Path | None, seconds: float) -> str:
    """Start the board of a member with a broker, and wait until its broker hears it.

    The broker's directory is beside the store or the authority; the board's password is written
    there. seconds: how long to wait; 0: do not look. Returns a sentence about the board. Raises
    DeviceError if no hello comes in time, and UsageError if the board would use other topics than
    the broker's fleet.
    """
    broker_and_access = _broker_beside(store, authority)
    if broker_and_access is None:
        repl.start_main()
        return (
            "nobody has looked whether the broker hears it (there is no host.json beside "
            "--authority or --store): 'tern serve' says so"
        )
    directory, access = broker_and_access
    assert member.broker
    if (member.broker.prefix or "tern") != access.prefix:
        text = f"the topics of the fleet on the broker of {directory} begin with {access.prefix!r}"
        raise UsageError(text, hint=f"add --prefix {access.prefix}")
    if _is_of(access, store):
        configure(directory)
        reload(directory)
    if not seconds:
        repl.start_main()
        return "nobody has looked whether the broker hears it: 'tern serve' says so"

    reasons = _start_and_listen(repl, member.device, store, directory, seconds)
    if reasons is None:
        return "its broker hears it"
    lines = [f"{_head(member.device)}no hello in {seconds:g} s"]
    with suppress(TernError), closing(open_link(repl.name, SimpleQueue())) as port:
        board_says = absence.describe(hello_fields(port.hello(_ANSWER)))
        if board_says:
            lines.append(f"the board says: {board_says}")
    lines += reasons
    raise DeviceError("\n  ".join(lines), hint="docs/guides/absent.md lists what to check")


def _head(device: int) -> str:
    """How an error about a board begins that its broker does not hear."""
    return f"device {device} has its files, but its broker does not hear it: "


def _broker_beside(store: Path, authority: Path | None) -> tuple[Path, Access] | None:
    """Find a broker beside the store or the authority.

    Returns its directory and the host's access to it, or None. If there are two, the broker of this
    store is taken.
    """
    first_found = None
    for path in (store, authority):
        if path is None or not (path.parent / HOST).exists():
            continue
        access = Access.load(path.parent / HOST)
        if _is_of(access, store):
            return path.parent, access
        if first_found is None:
            first_found = path.parent, access
    return first_found


def _start_and_listen(
    repl: Repl, device: int, store: Path, directory: Path, seconds: float
) -> list[str] | None:
    """Start the board, and listen for its hello on the broker.

    Returns None once there is one, else lines that say why not, as far as the broker shows. Raises
    DeviceError if the broker does not answer this machine; the board is started nevertheless.
    """
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        link = MqttLink(Access.load(directory / HOST))
        stack.callback(lambda: runner.run(link.close()))
        try:
            open_store = stack.enter_context(Store(store, create=False))
            runner.run(link.connect(_CONNECTING))
            runner.run(link.subscribed.wait())
        except StorageError:  # a host serves it, and notes there whom it hears
            open_store = stack.enter_context(Store(store, create=False, beside=True))
        except DeviceError as error:
            repl.start_main()
            raise DeviceError(_head(device) + error.message, hint=error.hint) from error

        device_key, start_time = open_store.keys().get(device), time.time()
        absent = AbsentBoards(open_store, directory, lambda device: device_key, past=0.0)
        repl.start_main()
        repl.close()
        while time.time() - start_time < seconds:
            if runner.run(_is_heard(link, open_store, device, start_time)):
                return None
        _, lines = absent.describe(link, BoardRoster([device]), time.monotonic())
        return lines[1:]  # the first says only that it is absent


def _is_of(access: Access, store: Path) -> bool:
    """Whether a broker is that of this store."""
    path = Path(access.store or "")
    return path.is_file() and store.exists() and store.samefile(path)


async def _is_heard(link: MqttLink, store: Store, device: int, start_time: float) -> bool:
    """Wait a moment, and return whether the board has said hello since `start_time` (time.time()).

    Without a connection of its own, this reads what the host that serves the store has noted.
    """
    if not link.connected:
        await asyncio.sleep(_LOOK_EVERY)
        rows = [board for board in store.boards() if board.first == device]
        return any(board.online and board.heard > start_time for board in rows)
    await link.take(_LOOK_EVERY)
    hello = link.presence.boards.get(mqtt.name(device))
    return hello is not None and not hello.retained
