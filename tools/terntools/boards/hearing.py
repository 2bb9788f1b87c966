"""Waits until the broker of a board that was started hears it, and says why it does not."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tern.links import mqtt
from ternhost.errors import DeviceError, StorageError, UsageError
from ternhost.reach.broker.absent import AbsentBoards
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import reload
from ternhost.reach.broker.roster import BoardRoster
from ternhost.store.store import Store

_CONNECTING = 5.0  # seconds until this machine is connected to the broker
_LOOK_EVERY = 0.5
WAIT = 60.0


class Hearing:
    """Listens for the hello of a board at its broker. A context manager, to be entered before the board starts."""

    def __init__(self, places: list[Path], store: Path, device: int, prefix: str | None) -> None:
        """places: the first with a host.json is the broker's directory. store: has the key of the device. Raises
        UsageError where the board would use other topics than the broker's fleet.
        """
        self.directory = next((place for place in places if (place / HOST).exists()), None)
        self._store = store
        self._device = device
        self._exit = ExitStack()
        if self.directory:
            self._access = Access.load(self.directory / HOST)
            if (prefix or "tern") != self._access.prefix:
                raise UsageError(
                    f"the topics of the fleet on the broker of {self.directory} begin with {self._access.prefix!r}",
                    hint=f"add --prefix {self._access.prefix}",
                )

    def __enter__(self) -> Self:
        if not self.directory:
            return self
        if (
            self._access.store
            and Path(self._access.store).exists()
            and self._store.samefile(self._access.store)
        ):
            configure(self.directory)  # with the password of this device
            reload(self.directory)
        self._link = MqttLink(self._access)
        self._runner = self._exit.enter_context(asyncio.Runner())
        self._problem: DeviceError | None = None
        try:
            self._keys = self._exit.enter_context(Store(self._store, create=False))
        except StorageError:  # a host has it, and notes there whom it hears
            self._keys = self._exit.enter_context(Store(self._store, create=False, beside=True))
            return self
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
            unknown = (
                ""
                if self.directory
                else " (this machine has no host.json of it beside --authority or --store)"
            )
            return f"nobody has looked whether the broker hears it{unknown}: tern serve says so"
        began, start = time.time(), time.monotonic()
        while not self._problem and time.monotonic() - start < seconds:
            if self._runner.run(self._heard(began)):
                return f"the broker hears it after {time.monotonic() - start:.0f} s"
        why = self._problem.message if self._problem else f"it did not say hello within {seconds:g} s"
        lines: list[str] = []
        if not self._problem:
            absent = AbsentBoards(self._keys, self.directory, print, self._keys.keys().get)
            roster = BoardRoster([self._device])
            lines, _ = absent.lines(self._link, roster, time.monotonic())
        raise DeviceError(
            "\n  ".join(
                [f"device {self._device} has its files, but its broker does not hear it: {why}", *lines[1:]]
            ),
            hint=self._problem.hint if self._problem else "docs/guides/absent.md lists what to check",
        )

    async def _heard(self, began: float) -> bool:
        if not self._link.connected:
            await asyncio.sleep(_LOOK_EVERY)
            rows = self._keys.boards()
            return any(row.first == self._device and row.online and row.heard > began for row in rows)
        await self._link.take(_LOOK_EVERY)
        said = self._link.boards.get(mqtt.name(self._device))
        return said is not None and not said.kept
