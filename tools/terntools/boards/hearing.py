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
    """Start the board of a member with a broker, whose directory is where its authority or the
    store is; write the board's password there, and wait for its hello. Returns a sentence about it.
    Raises DeviceError where none comes in time, and UsageError where the board would use other
    topics than the broker's fleet.
    """
    known = {path.parent: path.parent / HOST for path in (store, authority) if path is not None}
    brokers = {place: Access.load(file) for place, file in known.items() if file.exists()}
    directory = next(
        (place for place in brokers if _is_of(brokers[place], store)), next(iter(brokers), None)
    )
    if directory is None:
        repl.start_main()
        text = "nobody has looked whether the broker hears it (there is no host.json beside --authority or "
        return f"{text}--store): 'tern serve' says so"
    access = brokers[directory]
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
    head = f"device {member.device} has its files, but its broker does not hear it: "
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        link = MqttLink(access)
        stack.callback(lambda: runner.run(link.close()))
        try:
            keys = stack.enter_context(Store(store, create=False))
            runner.run(link.connect(_CONNECTING))
            runner.run(link.subscribed.wait())
        except StorageError:  # a host serves it, and notes there whom it hears
            keys = stack.enter_context(Store(store, create=False, beside=True))
        except DeviceError as error:
            repl.start_main()
            raise DeviceError(head + error.message, hint=error.hint) from error
        key, began = keys.keys().get(member.device), time.time()
        absent = AbsentBoards(keys, directory, lambda device: key, past=0.0)
        repl.start_main()
        repl.close()
        while time.time() - began < seconds:
            if runner.run(_is_heard(link, keys, member.device, began)):
                return "its broker hears it"
        _, lines = absent.describe(link, BoardRoster([member.device]), time.monotonic())
    lines[0] = f"{head}no hello in {seconds:g} s"
    with suppress(TernError), closing(open_link(repl.name, SimpleQueue())) as port:
        if said := absence.describe(hello_fields(port.hello(_ANSWER))):
            lines.insert(1, f"the board says: {said}")
    raise DeviceError("\n  ".join(lines), hint="docs/guides/absent.md lists what to check")


def _is_of(access: Access, store: Path) -> bool:
    # Whether a broker is that of this store.
    path = Path(access.store or "")
    return path.is_file() and store.exists() and store.samefile(path)


async def _is_heard(link: MqttLink, keys: Store, device: int, began: float) -> bool:
    if not link.connected:
        await asyncio.sleep(_LOOK_EVERY)
        return any(
            row.first == device and row.online and row.heard > began for row in keys.boards()
        )
    await link.take(_LOOK_EVERY)
    hello = link.presence.boards.get(mqtt.name(device))
    return hello is not None and not hello.retained
