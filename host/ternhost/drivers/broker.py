"""A fleet on a broker, asked for the reports of a round.

A round that is for the whole fleet is announced by one retained message, so that a device that comes late takes part;
one for some of the devices, or with several questions, is asked of each. Boards that are there and do not answer are
asked again; a device that has answered sends the same bytes again (ledger.md), which are counted once.
"""

from __future__ import annotations

import asyncio
import heapq
import statistics
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tern import wire
from tern.links.mqtt import name as board_name
from ternhost.aggregate.aggregator import Aggregator, RoundResult, with_answers
from ternhost.aggregate.store import Store
from ternhost.drivers.base import Cohorts, Devices, Progress, Refusals, Tell, Terms, Warn
from ternhost.errors import DeviceError
from ternhost.links.mqtt import MqttLink

MAX_PATIENCE = 30.0
PATIENCE = 2.0  # seconds without news until boards are asked again; doubles with every time
_TICK = 0.5
_SINGLY = (
    64  # so many clients of a board are asked again one by one; for more it is told the whole round again
)
_UNDER_WAY = 64  # requests to one board that have not been answered
_GREETING = 3.0  # seconds in which boards that are connected are heard of


class BrokerDriver:
    """The devices of `store` over a link to their broker, whose event loop runs while the driver waits."""

    def __init__(
        self,
        store: Store,
        link: Callable[[], MqttLink],
        fleet_key: bytes,
        terms: Terms,
        *,
        run: str | None = None,
        individual: bool = False,
        standing: bool = False,
        patience: float = PATIENCE,
        warn: Warn = lambda message: None,
    ) -> None:
        """standing: all devices with a key are asked, there or not, and the broker is waited for; else those of the
        boards that are connected when it begins. Others as of BoardsDriver.
        """
        self.aggregator = Aggregator(store)
        self.connected_boards = 0
        self._store = store
        self._make_link = link
        self._terms = terms
        self._run = run
        self._individual = individual
        self._standing = standing
        self._start_patience = patience
        self._warn = warn
        self._refusals = Refusals(warn)
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._stopped = False
        self._fleet_key = fleet_key
        self._changes = store.changes()
        self._skip_to = 0
        self._round: int | None = None
        self._announced = False
        self._left_out: set[str] = set()
        self._there: dict[str, range] = {}  # boards that are connected, as of the last look
        self._devices: list[int] = []

    # The broker

    def __enter__(self) -> Self:
        try:
            self._loop.run_until_complete(self._connect())
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    async def _connect(self) -> None:
        self.link = self._make_link()
        self.link.on_connect = self._announce
        self.link.on_waiting = self._warn
        patience = None if self._standing else 0.0
        connecting = asyncio.ensure_future(self.link.connect(patience=patience))
        stopped = asyncio.ensure_future(self._wake.wait())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not connecting.done():
            connecting.cancel()
            return
        await connecting
        if not self._standing:
            await self._meet()

    async def _meet(self) -> None:
        # Hellos are retained: they come at once, or the boards are not there.
        end = time.monotonic() + _GREETING
        known = sorted(self.aggregator.devices)
        while time.monotonic() < end:
            await self.link.wait(0.1)
            found = {device for board in self.link.boards.values() for device in board}
            self._devices = [device for device in known if device in found]
            if len(self._devices) == len(known):
                break
        if not self._devices:
            strangers = len(self.link.strangers)
            raise DeviceError(
                f"no board of this store's devices is connected to the broker at {self.link.access.host} "
                f"port {self.link.access.port}"
                + (f"; {strangers} of another version are" if strangers else ""),
                hint="start the boards; 'tern broker config' again lets in devices that were added since",
            )
        self._look_at_boards()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if link := getattr(self, "link", None):
            self._loop.run_until_complete(link.close())
        self._loop.close()

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the broker now."""
        return self.link.connected

    @property
    def strangers(self) -> int:
        """How many boards of another version are connected."""
        return len(self.link.strangers)

    @property
    def devices(self) -> Devices:
        if self._standing:
            self._reload_keys()
            return sorted(self.aggregator.devices)
        return self._devices

    def stop(self) -> None:
        self._stopped = True
        self._loop.call_soon_threadsafe(self._wake.set)

    def wait(self, seconds: float) -> None:
        if not self._stopped:
            self._loop.run_until_complete(self._wait(seconds))

    async def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopped and (left := end - time.monotonic()) > 0:
            batch = await self.link.take(min(_TICK, left))  # reports that come late are told as such
            if batch:
                self._accept(batch)
            self._look_at_boards()

    # Rounds

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic())

    def next_round(self, planned: int) -> int:
        return max(planned, self._store.last_round() + 1, self._skip_to + 1)

    def open(self, number: int, cohorts: Cohorts) -> None:
        asked = [(question, [int(device) for device in devices]) for question, devices in cohorts]
        quorum = self._terms.reports(sum(len(devices) for _, devices in asked))
        self.aggregator.open(number, asked, time.monotonic(), quorum, self._terms.deadline, self._run)

    def collect(self, number: int, tell: Tell = lambda progress: None) -> RoundResult | None:
        if self._stopped:
            return None
        result = self._loop.run_until_complete(self._collect(number, tell))
        if result is None:
            return None
        self._catch_up(result)
        if not self._standing:
            self._refusals.check(result, self.aggregator.statistics.forged)
        return with_answers(self._store, result) if self._individual else result

    async def _collect(self, number: int, tell: Tell) -> RoundResult | None:
        self._round = number
        now = time.monotonic()
        asked = self.aggregator.asked(number)
        unanswered = self.aggregator.unanswered(number)
        self._announced = (
            self.aggregator.cohorts(number) == 1
            and len(unanswered) == asked
            and asked == len(self.aggregator.devices)
        )
        self._begin_asking(unanswered, now)
        self._announce()
        tell(Progress(number, self.aggregator.reports(number), asked))
        try:
            while not self._stopped:
                self._feed()
                batch = await self.link.take(_TICK)
                now = time.monotonic()
                if batch and self._accept(batch):
                    self._heard = now
                    self._patience = self._start_patience
                    tell(Progress(number, self.aggregator.reports(number), asked))
                for result in self.aggregator.tick(now):
                    if result.number == number:
                        return result
                self._look_at_boards()
                self._leave_out(now)
                self._ask_again(now)
        finally:
            self._round = None
            if self._announced:
                self.link.announce(b"")
        return None

    def _accept(self, batch: list[bytes]) -> bool:
        """Whether the frames brought anything that was expected."""
        self._reload_keys()
        now = time.monotonic()
        accepted = self.aggregator.accept(batch, now)
        refused = [(refusal.round, refusal.device) for refusal in accepted.refusals]
        for _, device in (*accepted.reports, *refused):
            self._waits.pop(device, None)
            for board in self._boards_of(device):
                self._heard_of[board] = now
                self._left_out.discard(board)
                self._under_way.get(board, set()).discard(device)
                self._at.get(board, set()).discard(device)
        for refusal in accepted.unread:
            if refusal.device != wire.BOARD and refusal.round == self._round:
                wait = refusal.detail if refusal.code == wire.ERR_TOO_SOON else 0
                heapq.heappush(self._later, (now + wait, refusal.device))
                self._waits[refusal.device] = now + wait
        return bool(accepted.reports or accepted.refusals)

    def _catch_up(self, result: RoundResult) -> None:
        # Most devices have seen later rounds than this store has asked: it is an older copy, or was lost. One device
        # alone may say so of itself, and is not believed for the others.
        later = [
            refusal.detail
            for refusal in result.refusals.values()
            if refusal.code in (wire.ERR_OLD_ROUND, wire.ERR_CHANGED_ROUND)
        ]
        if 2 * len(later) > result.asked:
            self._skip_to = min(wire.MAX_ROUND - 1, int(statistics.median(later)))

    def _reload_keys(self) -> None:
        if (changes := self._store.changes()) != self._changes:
            self._changes = changes
            self.aggregator.reload_keys()

    # Asking

    def _begin_asking(self, devices: list[int], now: float) -> None:
        self._patience = self._start_patience
        self._heard = now
        self._later: list[tuple[float, int]] = []
        self._waits: dict[int, float] = {}  # devices that may not report before a time
        self._heard_of: dict[str, float] = {}
        self._under_way: dict[str, set[int]] = {}
        self._to_ask: dict[str, deque[int]] = {}
        self._at: dict[str, set[int]] = {}  # who has not answered, by board
        for device in devices:
            boards = self._boards_of(device)
            self._at.setdefault(boards[0], set()).add(device)
            if not self._announced:
                for board in boards:
                    self._to_ask.setdefault(board, deque()).append(device)
        for board in self._left_out & self._at.keys():
            assert self._round is not None
            self.aggregator.give_up(self._round, self._at.pop(board))

    def _announce(self) -> None:
        if self._round is not None and self._announced:
            self.link.announce(self.aggregator.announcement(self._round, self._fleet_key))

    def _feed(self) -> None:
        for board, waiting in self._to_ask.items():
            under_way = self._under_way.setdefault(board, set())
            while waiting and len(under_way) < _UNDER_WAY and self.link.connected:
                device = waiting.popleft()
                under_way.add(device)
                self._heard_of.setdefault(board, time.monotonic())
                self._ask(board, device)

    def _ask(self, board: str, device: int) -> None:
        assert self._round is not None
        self.link.ask(board, self.aggregator.request(self._round, device))

    def _ask_again(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            device = heapq.heappop(self._later)[1]
            self._waits.pop(device, None)
            for board in self._boards_of(device):
                self._ask(board, device)
        if self._round is None or now - self._heard < self._patience:
            return
        self._heard = now
        self._patience = min(2 * self._patience, MAX_PATIENCE)
        silent = sorted(self.aggregator.unanswered(self._round))
        reached = 0
        for board, clients in self.link.boards.items():
            mine = silent[bisect_left(silent, clients.start) : bisect_left(silent, clients.stop)]
            reached += len(mine)
            if self._announced and len(mine) > _SINGLY:
                self.link.ask(board, self.aggregator.announcement(self._round, self._fleet_key))
            else:
                for device in mine[:_UNDER_WAY]:
                    self._ask(board, device)
        # Some are on boards whose hello was lost, or that are not there; and a hello may claim devices that it has not.
        if reached < len(silent) or self._patience == MAX_PATIENCE:
            self._announce()

    def _boards_of(self, device: int) -> list[str]:
        # Boards say themselves which clients they have: more than one may claim a device, and the true one will answer.
        claimed = [board for board, clients in self.link.boards.items() if device in clients]
        return claimed or [board_name(device)]

    # Boards that fail

    def _look_at_boards(self) -> None:
        boards = dict(self.link.boards)
        self.connected_boards = len(boards)
        if not self._standing and self.link.connected:
            for board in self._there.keys() - boards.keys():
                self._warn(f"board {board} is gone from the broker")
            for board in boards.keys() - self._there.keys():
                if self._there:
                    self._warn(f"board {board} is back")
                self._left_out.discard(board)
                if self._round is not None and not self._announced:
                    clients = boards[board]
                    mine = [device for device in self.aggregator.unanswered(self._round) if device in clients]
                    self._to_ask[board] = deque(mine)
                    self._under_way[board] = set()
        if self.link.connected:
            self._there = boards

    def _leave_out(self, now: float) -> None:
        if self._standing or self._round is None:
            return
        for board, clients in self._at.items():
            waiting = clients & self._waits.keys()
            if not clients or waiting or now - self._heard_of.setdefault(board, now) <= self._terms.silence:
                continue
            self._left_out.add(board)
            self.aggregator.give_up(self._round, clients)
            self._warn(
                f"round {self._round}: board {board} has been silent for {self._terms.silence:g} s, and is left "
                f"out with its {len(clients)} devices until it answers again"
            )
            clients.clear()
