"""A fleet on a broker, asked for the reports of a round.

A round that asks every device the same is announced by one retained message, so that a device that comes late takes
part; of one for some of the devices, or with several questions, each is asked by itself. Boards that are there and do
not answer are asked again; a device that has answered sends the same bytes again (ledger.md), which are counted once.
"""

from __future__ import annotations

import asyncio
import heapq
import statistics
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from tern import wire
from tern.links.mqtt import name as board_name
from ternhost.aggregate.aggregator import Aggregator
from ternhost.aggregate.rounds import Refusal, RoundResult, with_answers
from ternhost.aggregate.store import Store
from ternhost.drivers.base import Cohorts, Devices, Progress, Refusals, Tell, Terms, Warn
from ternhost.errors import DeviceError
from ternhost.links.mqtt import MqttLink

MAX_PATIENCE = 30.0
PATIENCE = 2.0  # seconds without news until boards are asked again; doubles with every time
GREETING = 3.0  # seconds without a new board, after which all that are connected are known
_MOST_GREETING = 15.0
_STANDING_GREETING = 0.3  # for a fleet that is served: who comes later takes part, too
_TICK = 0.5
_SINGLY = (
    64  # so many clients of a board are asked again one by one; for more, it is told the whole round again
)
_UNDER_WAY = 64  # requests to one board that have not been answered
_AT_ONCE = 2000  # requests, before the host reads again

T = TypeVar("T")


class _Board:
    """A board, as it says itself, and what a round still expects of it. Without a name: of devices on no board."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.clients = range(0)
        self.there = False
        self.left_out = False  # the rounds go on without it until it answers again
        self.expected: set[int] = set()  # its devices that have not answered
        self.given_up: set[int] = set()
        self.to_ask: deque[int] = deque()
        self.under_way: set[int] = set()
        self.heard = 0.0


class BrokerDriver:
    """The devices of `store` over a link to their broker, whose event loop runs while the driver does something."""

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
        self._store = store
        self._make_link = link
        self._fleet_key = fleet_key
        self._terms = terms
        self._run = run
        self._individual = individual
        self._standing = standing
        self._start_patience = self._patience = patience
        self._warn = warn
        self._refusals = Refusals(warn)
        self._runner = asyncio.Runner()
        self._wake = asyncio.Event()
        self._stopped = False
        self._changes = store.changes()
        self._skip_to = 0
        self._round: int | None = None
        self._announced = False
        self._boards: dict[str, _Board] = {}
        self._nowhere = [_Board()]  # where the devices are that no board claims
        self._known = sorted(self.aggregator.devices)
        self._claims: dict[
            int, list[_Board]
        ] = {}  # who says that it has a device: one of them lies if there are two
        self._doubtful: set[str] = set()  # boards that were there before the connection was lost
        self._devices: list[int] = []
        self._told_connected = True
        self._connected_at = 0.0
        self._sure_at = (
            0.0  # when boards that are not there are gone: their hellos come a while after a connection
        )
        self._looked = 0.0
        self._begin_asking(0.0)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # The broker

    def __enter__(self) -> Self:
        try:
            self._wait_for(self._connect())
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    async def _connect(self) -> None:
        self.link = self._make_link()
        self.link.on_connect = self._on_connect
        self.link.on_waiting = self._warn
        connecting = asyncio.ensure_future(self.link.connect(patience=None if self._standing else 0.0))
        stopped = asyncio.ensure_future(self._wake.wait())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not connecting.done():
            connecting.cancel()
            await asyncio.wait((connecting,))
            return
        await connecting
        await self._meet(_STANDING_GREETING if self._standing else GREETING)
        self._devices = [device for device in self._known if self._claims.get(device)]
        if not self._devices and not self._standing:
            strangers = len(self.link.strangers)
            raise DeviceError(
                f"no board of this store's devices is connected to the broker at {self._where}"
                + (f"; {strangers} of another version are" if strangers else ""),
                hint="start the boards; 'tern broker config' again lets in devices that were added since",
            )

    async def _meet(self, quiet: float) -> None:
        # Hellos are retained: they come at once, or the boards are not there.
        begun = news = time.monotonic()
        while (now := time.monotonic()) - begun < _MOST_GREETING and not self._stopped:
            if self._look_at_boards(now):
                news = now
            everybody = len(self._claims) == len(self._known)
            if self.link.subscribed.is_set() and (everybody or now - news > quiet):
                break
            await asyncio.sleep(_TICK / 10)

    def _on_connect(self) -> None:
        # Whatever the broker still keeps of an earlier round is taken back.
        now = time.monotonic()
        self._sure_at = now + GREETING if self._connected_at else now
        self._connected_at = now
        self._announce(anyway=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if link := getattr(self, "link", None):
            self._wait_for(link.close())
        self._runner.close()

    @property
    def _where(self) -> str:
        return f"{self.link.access.host} port {self.link.access.port}"

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the broker now."""
        return self.link.connected

    @property
    def connected_boards(self) -> int:
        """How many boards are connected, as far as the broker has told."""
        return len(self.link.boards)

    @property
    def strangers(self) -> int:
        """How many boards of another version are connected."""
        return len(self.link.strangers)

    @property
    def devices(self) -> Devices:
        if self._standing:
            self._reload_keys()
            return self._known
        return self._devices

    def stop(self) -> None:
        self._stopped = True
        with suppress(RuntimeError):  # the loop has ended
            self._runner.get_loop().call_soon_threadsafe(self._wake.set)

    def wait(self, seconds: float) -> None:
        if not self._stopped:
            self._wait_for(self._idle(time.monotonic() + seconds))

    async def _idle(self, end: float = float("inf"), until_connected: bool = False) -> None:
        while not self._stopped and (left := end - time.monotonic()) > 0:
            if until_connected and self.link.connected:
                break
            await self._take(min(_TICK, left))  # reports that come late are told as such

    async def _take(self, timeout: float) -> bool:
        """Take what boards have sent, and look after them; whether it was something that a round expects."""
        batch = await self.link.take(timeout)
        news = bool(batch) and self._accept(batch)
        if (now := time.monotonic()) - self._looked >= _TICK:
            self._looked = now
            self._look_at_broker()
            self._look_at_boards(now)
            self._leave_out(now)
        return news

    # Rounds

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic())

    def next_round(self, planned: int) -> int:
        return max(planned, self._store.last_round() + 1, self._skip_to + 1)

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Begin a round; if the connection is lost, once it is back."""
        if not self.link.connected:
            self._wait_for(self._idle(until_connected=True))
        asked = [(question, [int(device) for device in devices]) for question, devices in cohorts]
        quorum = self._terms.reports(sum(len(devices) for _, devices in asked))
        self.aggregator.open(number, asked, time.monotonic(), quorum, self._terms.deadline, self._run)

    def collect(self, number: int, tell: Tell = lambda progress: None) -> RoundResult | None:
        if self._stopped:
            return None
        result = self._wait_for(self._collect(number, tell))
        if result is None:
            return None
        self._catch_up(result)
        if not self._standing:
            self._refusals.check(result, self.aggregator.statistics.forged)
            self._check_somebody_is_left(result)
        return with_answers(self._store, result) if self._individual else result

    async def _collect(self, number: int, tell: Tell) -> RoundResult | None:
        self._round = number
        self._announced = self.aggregator.for_all(number)
        asked = self.aggregator.asked(number)
        self._begin_asking(time.monotonic())
        self._announce()
        tell(Progress(number, self.aggregator.reports(number), asked))
        try:
            while not self._stopped:
                self._feed()
                if await self._take(0.001 if self._hungry and self.link.connected else _TICK):
                    self._heard = time.monotonic()
                    self._patience = self._start_patience
                    tell(Progress(number, self.aggregator.reports(number), asked))
                now = time.monotonic()
                for result in self.aggregator.tick(now):
                    if result.number == number:
                        return result
                if self.link.connected:
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
        for _, device in accepted.reports:
            self._answered(device, now)
        for refusal in accepted.refusals:
            self._answered(refusal.device, now)
        for refusal in accepted.unread:
            if refusal.device != wire.BOARD and refusal.round == self._round:
                self._put_off(refusal, now)
        return bool(accepted.reports or accepted.refusals)

    def _answered(self, device: int, now: float) -> None:
        if self._waits:
            self._waits.pop(device, None)
        for board in self._claims.get(device) or self._nowhere:
            board.heard = now
            board.expected.discard(device)
            if board.left_out:
                self._take_back(board)
            if not self._announced:
                board.under_way.discard(device)
                if board.to_ask:
                    self._hungry[board] = None

    def _put_off(self, refusal: Refusal, now: float) -> None:
        # One that may not report yet says how long; one that did not understand is asked at once, but not for ever.
        device = refusal.device
        self._unread[device] += 1
        again = refusal.code == wire.ERR_TOO_SOON
        wait = refusal.detail if again else min(MAX_PATIENCE, 2 ** min(self._unread[device] - 1, 10) - 1)
        self._waits[device] = now + wait
        heapq.heappush(self._later, (now + wait, device))
        for board in self._claims.get(device) or self._nowhere:
            board.heard = now
            board.under_way.discard(device)
            if board.to_ask:
                self._hungry[board] = None

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
            self._known = sorted(self.aggregator.devices)
            self._claims = {}
            for board in self._boards.values():
                self._claim(board, board.clients)
            self._deal()

    # Asking

    def _begin_asking(self, now: float) -> None:
        self._patience = self._start_patience
        self._heard = now
        self._later: list[tuple[float, int]] = []
        self._waits: dict[int, float] = {}  # devices that may not be asked before a time
        self._unread: Counter[int] = Counter()
        self._hungry: dict[_Board, None] = {}  # boards that can be asked for more
        boards = [*self._boards.values(), *self._nowhere]
        for board in boards:
            board.heard = now
            board.given_up = set()
        self._deal(boards)
        for board in boards:
            if board.left_out and board.expected:
                probe = min(board.expected)
                self._give_up(board)
                if board.there and not self._announced:
                    self._ask(board, probe)

    def _deal(self, fresh: Iterable[_Board] = ()) -> None:
        """Work out anew what is expected of each board. fresh: boards that know nothing of the round yet."""
        if self._round is None:
            return
        boards = [*self._boards.values(), *self._nowhere]
        for board in boards:
            board.expected = set()
        for device in self.aggregator.unanswered(self._round):
            for board in self._claims.get(device) or self._nowhere:
                board.expected.add(device)
        for board in fresh:
            board.under_way.clear()
        if self._announced:
            return
        for board in boards:
            board.under_way &= board.expected
            board.to_ask = deque(sorted(board.expected - board.under_way - self._waits.keys()))
            if board.to_ask:
                self._hungry[board] = None

    def _announce(self, anyway: bool = False) -> None:
        """Announce the round; anyway: or that there is none to be announced."""
        if self._round is not None and self._announced:
            self.link.announce(self.aggregator.announcement(self._round, self._fleet_key))
        elif anyway:
            self.link.announce(b"")

    def _feed(self) -> None:
        room = _AT_ONCE
        while self._hungry and room and self.link.connected:
            board = next(iter(self._hungry))
            most = _UNDER_WAY if board.name else _AT_ONCE
            while board.to_ask and len(board.under_way) < most and room:
                device = board.to_ask.popleft()
                if device in board.expected and device not in self._waits:
                    board.under_way.add(device)
                    self._ask(board, device)
                    room -= 1
            if room:
                del self._hungry[board]

    def _ask(self, board: _Board, device: int) -> None:
        assert self._round is not None
        self.link.ask(board.name or board_name(device), self.aggregator.request(self._round, device))

    def _ask_again(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            when, device = heapq.heappop(self._later)
            if self._waits.get(device) == when:
                del self._waits[device]
                for board in self._claims.get(device) or self._nowhere:
                    self._ask(board, device)
        if now - self._heard < self._patience:
            return
        self._heard = now
        self._patience = min(2 * self._patience, MAX_PATIENCE)
        # Some are on boards whose hello was lost, or that are not there; and a hello may claim devices that it has not.
        last = self._patience == MAX_PATIENCE
        boards = [board for board in self._boards.values() if board.there and board.expected]
        if not self._announced:
            for board in (*boards, *self._nowhere) if last else boards:
                board.under_way.clear()
            self._deal()
            return
        assert self._round is not None
        for board in boards:
            if len(board.expected) > _SINGLY:
                self.link.ask(board.name, self.aggregator.announcement(self._round, self._fleet_key))
            else:
                for device in board.expected - self._waits.keys():
                    self._ask(board, device)
        if last or sum(len(board.expected) for board in boards) < len(
            self.aggregator.unanswered(self._round)
        ):
            self._announce()

    # Boards and brokers that fail

    def _look_at_broker(self) -> None:
        if self.link.connected != self._told_connected:
            self._told_connected = self.link.connected
            if self._told_connected:
                self._warn(f"the broker at {self._where} is there again")
            else:
                self._warn(f"the broker at {self._where} is gone; waiting for it")

    def _look_at_boards(self, now: float) -> bool:
        """Take note of boards that have come or gone; whether there were any."""
        self._doubtful |= self.link.changed
        self.link.changed = set()
        fresh = []
        for name in self._doubtful & self.link.boards.keys():
            board = self._boards.setdefault(name, _Board(name))
            if board.clients and not board.there and not self._standing:
                self._warn(f"board {name} is back")
            if board.clients != self.link.boards[name]:
                self._claim(board, self.link.boards[name])
            board.there, board.left_out, board.heard = True, False, now
            fresh.append(board)
        self._doubtful -= self.link.boards.keys()
        if self._doubtful and self.link.connected and now >= self._sure_at:
            for name in self._doubtful & self._boards.keys():
                if self._boards[name].there and not self._standing:
                    self._warn(f"board {name} is gone from the broker")
                self._boards[name].there = False
            self._doubtful.clear()
        if fresh:
            self._deal(fresh)
        return bool(fresh)

    def _claim(self, board: _Board, clients: range) -> None:
        for device in self._of(board.clients):
            if board in self._claims.get(device, ()):
                self._claims[device].remove(board)
        board.clients = clients
        for device in self._of(clients):
            self._claims.setdefault(device, []).append(board)

    def _of(self, clients: range) -> list[int]:
        """The known devices among these."""
        return self._known[bisect_left(self._known, clients.start) : bisect_left(self._known, clients.stop)]

    def _leave_out(self, now: float) -> None:
        if self._standing or self._round is None or not self.link.connected:
            return
        if now - self._connected_at <= self._terms.silence:
            return
        for board in (*self._boards.values(), *self._nowhere):
            if not board.expected or now - board.heard <= self._terms.silence:
                continue
            if not board.expected.isdisjoint(self._waits):
                continue
            count = len(board.expected)
            self._give_up(board)
            if board.left_out:
                continue  # nobody has to hear of it again
            board.left_out = True
            self._warn(
                f"round {self._round}: board {board.name} has been silent for {self._terms.silence:g} s, and is left "
                f"out with its {count} devices until it answers again"
                if board.name
                else f"round {self._round}: {count} devices are on no board that is connected, and are left out"
            )

    def _give_up(self, board: _Board) -> None:
        assert self._round is not None
        self.aggregator.give_up(self._round, board.expected)
        board.given_up, board.expected = board.expected, set()
        board.to_ask.clear()

    def _take_back(self, board: _Board) -> None:
        # What it still answers in this round counts, but nobody waits for that.
        board.left_out = False
        if board.name:
            self._warn(f"board {board.name} is back")
        board.expected, board.given_up = board.given_up, set()
        if not self._announced:
            board.to_ask.extend(sorted(board.expected))

    def _check_somebody_is_left(self, result: RoundResult) -> None:
        if result.reports or result.refusals:
            return
        if all(board.left_out or not board.there for board in self._boards.values()):
            raise DeviceError(
                f"no board on the broker at {self._where} answers any more",
                hint="see to the boards, then go on with --resume: every accepted report is safe",
            )
