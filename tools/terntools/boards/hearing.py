"""Waits until the broker of a board that was started hears it, and says why it does not."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Self

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

_CONNECTING = 5.0  # seconds until this machine is connected to the broker
_LOOK_EVERY = 0.5
_ANSWER = 5.0  # seconds until the board answers at its port


class Hearing:
    """Listens for the hello of a board at its broker. A context manager, to be entered before the board starts."""

    def __init__(self, port: str, places: list[Path], store: Path, device: int, prefix: str | None) -> None:
        """port: of the board. places: where the broker's directory may be. store: has the key of the device. Raises
        UsageError where the board would use other topics than the broker's fleet.
        """
        self._port, self._store, self._device = port, store, device
        self._problem: DeviceError | None = None
        self._exit = ExitStack()
        known = {place: Access.load(place / HOST) for place in places if (place / HOST).exists()}
        self.directory = next(
            (place for place in known if self._is_of(known[place])), next(iter(known), None)
        )
        if self.directory:
            self._access = known[self.directory]
            if (prefix or "tern") != self._access.prefix:
                raise UsageError(
                    f"the topics of the fleet on the broker of {self.directory} begin with {self._access.prefix!r}",
                    hint=f"add --prefix {self._access.prefix}",
                )

    def _is_of(self, access: Access) -> bool:
        # Whether a broker is that of this store.
        path = Path(access.store or "")
        return path.is_file() and self._store.exists() and self._store.samefile(path)

    def __enter__(self) -> Self:
        if not self.directory:
            return self
        if self._is_of(self._access):
            configure(self.directory)  # with the password of this device
            reload(self.directory)
        self._link = MqttLink(self._access)
        self._runner = self._exit.enter_context(asyncio.Runner())
        serving = False
        try:
            self._keys = self._exit.enter_context(Store(self._store, create=False))
        except StorageError:  # a host has it, and notes there whom it hears
            serving = True
            self._keys = self._exit.enter_context(Store(self._store, create=False, beside=True))
        key = self._keys.keys().get(self._device)
        self._absent = AbsentBoards(self._keys, self.directory, lambda device: key, past=0.0)
        if not serving:
            self._exit.callback(lambda: self._runner.run(self._link.close()))
            try:
                self._runner.run(self._link.connect(_CONNECTING))
                self._runner.run(self._link.subscribed.wait())
            except DeviceError as error:
                self._problem = error
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def wait(self, seconds: float) -> str:
        """Wait for the board's hello; return a sentence about it. Raises DeviceError where none comes in time."""
        if not seconds or not self.directory:
            unknown = "" if self.directory else " (there is no host.json beside --authority or --store)"
            return f"nobody has looked whether the broker hears it{unknown}: 'tern serve' says so"
        began, start = time.time(), time.monotonic()
        while not self._problem and time.monotonic() - start < seconds:
            if self._runner.run(self._heard(began)):
                return "its broker hears it"
        head = f"device {self._device} has its files, but its broker does not hear it: "
        if self._problem:
            raise DeviceError(head + self._problem.message, hint=self._problem.hint)
        _, lines = self._absent.describe(self._link, BoardRoster([self._device]), time.monotonic())
        lines[:1] = [f"{head}no hello in {seconds:g} s"]
        with suppress(TernError), closing(open_link(self._port, SimpleQueue())) as link:
            if said := absence.describe(hello_fields(link.hello(_ANSWER))):
                lines.insert(1, f"the board says: {said}")
        raise DeviceError("\n  ".join(lines), hint="docs/guides/absent.md lists what to check")

    async def _heard(self, began: float) -> bool:
        if not self._link.connected:
            await asyncio.sleep(_LOOK_EVERY)
            rows = self._keys.boards()
            return any(row.first == self._device and row.online and row.heard > began for row in rows)
        await self._link.take(_LOOK_EVERY)
        said = self._link.boards.get(mqtt.name(self._device))
        return said is not None and not said.kept
