"""Asks a fleet on a broker for the reports of a round.

One question for all devices is announced by a retained message, which late devices get, too;
otherwise the host asks each device. Connected boards that do not answer are asked again: a device
that has answered sends the same bytes again (ledger.md), which count once.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from tern import wire
from ternhost.count.members import integers
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.reach import absence
from ternhost.reach.broker.absent import AbsentBoards
from ternhost.reach.broker.asking import Asking
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.roster import GREETING, BoardOnBroker, BoardRoster
from ternhost.reach.driver import (
    BoardBudget,
    Cohorts,
    Devices,
    FleetStatus,
    OnProgress,
    RoundProgress,
)
from ternhost.reach.stored import DriverOptions, ReportsDriver
from ternhost.store import kept_model, sleepers
from ternhost.store.boards import hello_fields
from ternhost.store.fleet_key import fleet_key
from ternhost.store.store import Store
from ternhost.text import counted

PATIENCE = 2.0  # seconds without news until boards are asked again; doubles with every time
_MOST_GREETING = 15.0
_STANDING_GREETING = 0.3  # for a served fleet: late boards take part, too
_HELLO_AGAIN = 2.0  # seconds for boards to say hello again; they answer after a slot
_TICK = 0.5


class BrokerDriver(ReportsDriver):
    """The devices of `store` over a link to their broker, whose event loop runs while the driver
    does something.
    """

    def __init__(
        self,
        store: Store,
        link: Callable[[], MqttLink],
        terms: Terms,
        patience: float = PATIENCE,
        directory: Path | None = None,
        **options: Unpack[DriverOptions],
    ) -> None:
        """A fleet that is not served asks only the boards that are connected when the driver is
        opened. directory: of the broker, where it is on this machine.
        """
        super().__init__(store, terms, **options)
        self._make_link = link
        self._fleet = fleet_key(store)
        self._patience = patience
        self._runner = asyncio.Runner()
        self._wake = asyncio.Event()
        self._changes = store.changes()
        self._asking: Asking | None = None
        self._roster = BoardRoster(self.aggregator.devices, sleepers.wakes(store))
        self._absent = AbsentBoards(store, directory, self.aggregator.key, self._warn)
        self._heard: dict[int, float] = {}  # devices that sleep, since the last write
        self._devices: list[int] = []
        self._was_connected = True
        self._sites_were: dict[str, bool] = {}
        self._looked = 0.0

    # The broker

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._connect())
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    async def _connect(self) -> None:
        self._sightings.forget()
        self.link = self._make_link()
        self.link.on_connect = self._on_connect
        self.link.on_waiting = self._warn
        connecting = asyncio.ensure_future(
            self.link.connect(patience=None if self._standing else 0.0)
        )
        stopped = asyncio.ensure_future(self._wake.wait())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not connecting.done():
            connecting.cancel()
            await asyncio.wait((connecting,))
            return
        await connecting
        await self._meet(_STANDING_GREETING if self._standing else GREETING)
        self._devices = self._roster.claimed
        if not self._devices and not self._standing:
            lines = "\n  ".join(self._absent.describe(self.link, self._roster, time.monotonic())[1])
            text = f"no board of this store's devices is connected to the broker at {self._where}\n  {lines}"
            raise DeviceError(text, hint="start the boards, or wait for them with tern serve")
        self._absent.look(self.link, self._roster, time.monotonic())
        await self._hear_budgets()

    async def _hear_budgets(self) -> None:
        """Have the boards say hello again that connected before this host did: they may have paid
        for rounds since.

        A FLEET_KEY that a board has already changes nothing there, and is answered by a HELLO
        (wire.md).
        """
        waiting = set()
        for board in self._roster.boards.values():
            said, first = self.link.boards.get(board.name), board.clients.start
            key = self.aggregator.key(first)
            has_the_key = (
                board.epoch == self._fleet.epoch
            )  # to others it would bring a key that they lack
            if said is not None and said.kept and key and has_the_key and not board.wake:
                self.link.ask(board.name, self._fleet.frame(first, key))
                waiting.add(board.name)
        end = time.monotonic() + _HELLO_AGAIN
        while waiting and time.monotonic() < end and not self.stopped:
            await asyncio.sleep(_TICK / 10)
            waiting = {
                name for name in waiting if name in self.link.boards and self.link.boards[name].kept
            }
        self._look_at_boards(time.monotonic())

    async def _meet(self, quiet: float) -> None:
        # Hellos are retained: they come at once, or the boards are not connected.
        begun = news = time.monotonic()
        while (now := time.monotonic()) - begun < _MOST_GREETING and not self.stopped:
            if self._look_at_boards(now):
                news = now
            everybody = now == news and len(self._roster.claimed) == len(self._roster.devices)
            if self.link.subscribed.is_set() and (everybody or now - news > quiet):
                break
            await asyncio.sleep(_TICK / 10)

    def _on_connect(self) -> None:
        # Replaces whatever the broker retains of an earlier round.
        self._roster.connected(time.monotonic())
        if self._asking and self._asking.announced:
            self._asking.announce()
        else:
            self.link.announce(b"")
        self._hand_out_model()

    def __exit__(self, *raised: object) -> None:
        if link := getattr(self, "link", None):
            self._runner.run(link.close())
        if not any(raised):
            self._note_heard()
            self._sightings.forget()
        self._runner.close()

    @property
    def _where(self) -> str:
        return f"{self.link.access.host} port {self.link.access.port}"

    @property
    def status(self) -> FleetStatus:
        link = self.link
        asleep = self._roster.asleep(time.monotonic())
        awake = len(link.boards) - sum(board.name in link.boards for board in asleep)
        status = replace(
            super().status, boards=awake, asleep=len(asleep), strangers=len(link.strangers)
        )
        return replace(status, connected=link.connected)

    @property
    def devices(self) -> Devices:
        if self._standing:
            self._reload_keys()
            return self._roster.devices
        return self._devices

    def read_budgets(self) -> list[BoardBudget]:
        found = []
        for board in self._roster.boards.values():
            budget = self._sightings.budget(board.clients) if board.there or board.wake else None
            if budget is not None:
                devices = integers(self._roster.known(board.clients))
                found.append(replace(budget, devices=devices, count=len(devices)))
        return found

    def stop(self) -> None:
        super().stop()
        with suppress(RuntimeError):  # the loop has ended
            self._runner.get_loop().call_soon_threadsafe(self._wake.set)

    def wait(self, seconds: float) -> None:
        if not self.stopped:
            self._runner.run(self._idle(time.monotonic() + seconds))

    async def _idle(self, end: float = float("inf"), until_connected: bool = False) -> None:
        while not self.stopped and (left := end - time.monotonic()) > 0:
            if until_connected and self.link.connected:
                break
            await self._take(min(_TICK, left))  # late reports are counted as such

    async def _take(self, timeout: float) -> bool:
        """Take frames of boards, and look after boards; return whether an open round expected any
        of the frames.
        """
        batch = await self.link.take(timeout)
        news = bool(batch) and self._accept(batch)
        now = time.monotonic()
        woken = self._roster.wakes and self.link.changed  # awake for a short while only
        if woken or now - self._looked >= _TICK:
            self._looked = now
            self._reload_keys()
            self._look_at_broker()
            self._look_at_sites()
            self._look_at_boards(now)
            self._absent.look(self.link, self._roster, now)
            if self._sightings.due(len(self._roster.boards)):
                self._note_heard()
            if self._asking and self.link.connected and not self._standing:
                self._asking.leave_out(now, self.terms)
        return news

    # Rounds

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Begin a round, once there is a connection."""
        if not self.link.connected:
            self._runner.run(self._idle(until_connected=True))
        self._reload_keys()
        super().open(number, cohorts)

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        if self.stopped:
            return None
        result = self._runner.run(self._collect(number, on_progress))
        self._look_at_broker()  # a short round ends between two looks
        if self._sightings.due(len(self._roster.boards), ended=True):
            self._note_heard()
        if result is None:
            return None
        if self._standing:
            self._refusals.check(result, 0)  # anybody may send it frames of other keys
        else:
            self.check_refusals(result)
            gone = all(board.left_out or not board.there for board in self._roster.boards.values())
            if gone and not (result.reports or result.refusals):
                hint = "see to the boards, then go on with --resume: every accepted report is safe"
                raise DeviceError(f"no board on the broker at {self._where} answers any more", hint)
        return self.with_reports(result)

    async def _collect(self, number: int, on_progress: OnProgress) -> RoundResult | None:
        asked = self.aggregator.asked(number)
        asking = self._asking = Asking(
            number,
            self.aggregator,
            self._roster,
            self.link,
            self._fleet,
            self._patience,
            self._warn,
        )
        on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
        try:
            while not self.stopped:
                asking.feed()
                if await self._take(0.001 if asking.hungry and self.link.connected else _TICK):
                    on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
                now = time.monotonic()
                if result := self.aggregator.ended(number, now):
                    return result
                if self.link.connected:
                    asking.ask_again(now)
        finally:
            self._asking = None
            asking.end()
            sleepers.save_heard(self._store, self._heard)
            self._heard = {}
        return None

    def publish(self, averaged: Averaged) -> None:
        """Have the broker retain it, sealed with the fleet's key, for boards that use it."""
        self._reload_keys()
        super().publish(averaged)
        self._hand_out_model()

    def _hand_out_model(self) -> None:
        # The retained one may be sealed with an earlier key, which a revoked device has.
        kept = kept_model.kept(self._store)
        self.link.hand_out(self._fleet.seal(kept) if kept else b"")

    def _accept(self, batch: list[bytes]) -> bool:
        """Count frames; return whether there was a report or refusal among them."""
        self._reload_keys()
        now = time.monotonic()
        accepted = self.aggregator.accept(batch, now)
        self._sightings.answered(accepted.reports, self.aggregator.costs)
        self._hear([device for _, device in accepted.reports])
        if asking := self._asking:
            asking.answered([device for _, device in accepted.reports], now)
            asking.answered([refusal.device for refusal in accepted.refusals], now)
            for refusal in accepted.unread:
                if refusal.device != wire.BOARD and refusal.round == asking.number:
                    asking.put_off(refusal, now)
        return bool(accepted.reports or accepted.refusals)

    def _hear(self, devices: Iterable[int]) -> None:
        if self._roster.wakes:
            self._heard |= {
                device: time.time() for device in devices if device in self._roster.wakes
            }

    def _reload_keys(self) -> None:
        if (changes := self._store.changes()) != self._changes:
            self._changes = changes
            # Before the keys: a board that was revoked with it must not get the new one.
            fleet = fleet_key(self._store)
            self.aggregator.reload_keys()
            self._roster.know(self.aggregator.devices, sleepers.wakes(self._store))
            if fleet != self._fleet:
                self._fleet = fleet
                self._send_fleet_key(self._roster.boards.values())
                self._hand_out_model()
                if self._asking:
                    self._asking.announce(fleet)
            if self._asking:
                self._asking.deal()

    def _send_fleet_key(self, boards: Iterable[BoardOnBroker]) -> None:
        """Send the fleet's key to the boards that have an earlier one, under their first client's
        key.
        """
        for board in boards:
            first = board.clients.start
            if board.lacks(self._fleet.epoch) and (key := self.aggregator.key(first)):
                self.link.ask(board.name, self._fleet.frame(first, key))
                board.key_sent = True

    # Boards and brokers that fail

    def _look_at_broker(self) -> None:
        if self.link.connected != self._was_connected:
            self._was_connected = self.link.connected
            self._warn_of_broker(f"the broker at {self._where}", self._was_connected)

    def _warn_of_broker(self, which: str, there: bool) -> None:
        self._warn(f"{which} is there again" if there else f"{which} is gone; waiting for it")

    def _look_at_sites(self) -> None:
        if self.link.sites_back and self.link.connected:
            self.link.sites_back = False
            # The site gets the open round by itself, but still retains a round that has ended
            # meanwhile.
            if not (self._asking and self._asking.announced):
                self.link.announce(b"")
            if not kept_model.kept(self._store):
                self.link.hand_out(b"")
        for site, there in self.link.sites.items():
            if there != self._sites_were.get(site, True):
                self._warn_of_broker(f"the broker of site {site}", there)
            self._sites_were[site] = there

    def _look_at_boards(self, now: float) -> bool:
        """Update the boards that have come or gone; return whether any have come."""
        new, again, gone = self._roster.look(self.link, now)
        for board in (*new, *again, *gone):
            claimed = self.link.boards.get(board.name)
            fields = hello_fields(claimed.hello) if claimed else {}
            self._saw(board, fields, claimed is not None and claimed.kept)
            host_was_there = fields.get("absent_seconds", 0) < now - self._roster.connected_at
            connected = board.greeted == now and claimed is not None and not claimed.answers
            if connected and fields.get("absent") and host_was_there:
                self._warn(f"board {board.name} {absence.describe(fields)}")
        if new or again or gone:
            self._sightings.write()
        self._hear([board.clients.start for board in new + again if board.greeted == now])
        if not self._standing:  # in a served fleet, boards come and go
            for boards, change in ((again, "back"), (gone, "gone from the broker")):
                for board in boards:
                    if not board.wake:
                        self._warn(f"board {board.name} is {change}")
        if self._asking and (new or again):
            self._asking.deal(new + again)
        self._send_fleet_key(new + again)
        self._warn_of_later_keys(new + again)
        for board in new:
            if board.takes(self._fleet.epoch) and self._asking:
                self._asking.tell(board)
        return bool(new or again)

    def _note_heard(self) -> None:
        for board in self._roster.boards.values():
            self._saw(board, {})
        self._sightings.write()

    def _saw(self, board: BoardOnBroker, hello: Mapping[str, Any], kept: bool = False) -> None:
        # Only for members: anybody on a site's broker may claim more boards, and rows stay in the
        # store.
        if self.aggregator.key(board.clients.start):
            seen = board.name, board.clients, board.heard
            self._sightings.saw(*seen, online=board.there, hello=hello, kept=kept)

    def _warn_of_later_keys(self, boards: Iterable[BoardOnBroker]) -> None:
        if ahead := [board.name for board in boards if board.is_ahead(self._fleet.epoch)]:
            self._warn(
                f"a later fleet key than this store's is on {counted(len(ahead), 'board')}, {ahead[0]} among them: if "
                "the store is a copy, revoke again what was revoked since, or run 'tern device rotate --fleet-key'"
            )
