"""Asks a fleet on a broker for the reports of a round.

One question for all devices is announced by a retained message, which late devices get, too;
otherwise the host asks each device. Connected boards that do not answer are asked again: a device
that has answered sends the same bytes again (ledger.md), which count once.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self, Unpack

from tern import wire
from ternhost.count.members import integers
from ternhost.count.outcomes import Accepted
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.reach.broker import fleet_keys
from ternhost.reach.broker.health import FleetHealth
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.roster import GREETING, BoardRoster
from ternhost.reach.broker.round_requests import RoundRequests
from ternhost.reach.broker.state import FleetState
from ternhost.reach.driver import (
    BoardBudget,
    Cohorts,
    Devices,
    Driver,
    FleetStatus,
    OnProgress,
    RoundProgress,
)
from ternhost.reach.sightings import Sightings
from ternhost.reach.stored_rounds import DriverOptions, StoredRounds
from ternhost.store import kept_model, sleepers
from ternhost.store.fleet_key import fleet_key
from ternhost.store.store import Store

PATIENCE = 2.0  # seconds without news until boards are asked again; doubles with every time
_LONGEST_GREETING = 15.0
_STANDING_GREETING = 0.3  # for a served fleet: late boards take part, too
_TICK = 0.5  # seconds to wait for frames
_SHORT_TICK = _TICK / 10  # seconds to wait for HELLOs
_NO_TIME = 0.001  # seconds to wait for frames while there are devices to ask


class BrokerDriver(Driver):
    """The devices of a store, over a link to their broker.

    The link's event loop runs while a method of the driver runs.
    """

    def __init__(
        self,
        store: Store,
        link: MqttLink,
        terms: Terms,
        patience: float = PATIENCE,
        directory: Path | None = None,
        **options: Unpack[DriverOptions],
    ) -> None:
        """Prepare to reach a fleet; the link is connected when the driver is opened.

        If the fleet is not served, only boards that are connected by then are asked.

        store: with the devices' keys. link: to the broker.
        patience: seconds without news until boards are asked again. directory: of the broker, if
        it is on this machine.
        """
        self.rounds = StoredRounds(store, **options)
        super().__init__(terms, self.rounds, individual=options.get("individual", False))
        self.aggregator = self.rounds.aggregator
        self._store = store
        self._sightings = Sightings(store, self.rounds.warn, lambda: self.aggregator.last_round)
        roster = BoardRoster(self.aggregator.devices, sleepers.wakes(store))
        self.link = link
        self.fleet = FleetState(link, self.aggregator, roster, fleet_key(store), self.rounds.warn)
        self.health = FleetHealth(
            self.fleet, store, self._sightings, standing=self.rounds.standing, directory=directory
        )
        self._patience = patience
        self._requests: RoundRequests | None = None  # of the open round
        self._connected_devices: list[int] = []  # when the driver was opened
        self._heard_sleepers: dict[int, float] = {}  # devices, since the last write
        self._store_changes = store.changes()
        self._last_upkeep = 0.0
        self._runner = asyncio.Runner()
        self._stop_event = asyncio.Event()

    # The connection

    def __enter__(self) -> Self:
        """Connect to the broker and its boards. Raises DeviceError, UsageError, StorageError."""
        try:
            self._runner.run(self._connect())
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.run(self.link.close())
        if not any(raised):
            self.health.store_sightings()
            self._sightings.forget()
        self._runner.close()

    async def _connect(self) -> None:
        """Connect to the broker, and wait for the HELLOs of the boards.

        Raises DeviceError if no board is there, unless the fleet is served.
        """
        self._sightings.forget()
        self.link.on_connect = self._on_connect
        self.link.on_waiting = self.rounds.warn
        if not await self._connect_until_stopped():
            return
        await self._greet_boards(_STANDING_GREETING if self.rounds.standing else GREETING)
        self._connected_devices = self.fleet.roster.claimed
        if not self._connected_devices and not self.rounds.standing:
            reasons = "\n  ".join(self.health.describe_absent(time.monotonic()))
            raise DeviceError(
                f"no board of this store's devices is connected to the broker at {self._where}\n"
                f"  {reasons}",
                hint="start the boards, or wait for them with tern serve",
            )
        self.health.check_absent(time.monotonic())
        await fleet_keys.renew_hellos(self.fleet, lambda: self.stopped)
        self._update_boards(time.monotonic())

    async def _connect_until_stopped(self) -> bool:
        """Connect to the broker; return False if the driver was stopped before."""
        patience = None if self.rounds.standing else 0.0
        connecting = asyncio.ensure_future(self.link.connect(patience=patience))
        stopped = asyncio.ensure_future(self._stop_event.wait())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not connecting.done():
            connecting.cancel()
            await asyncio.wait((connecting,))
            return False
        await connecting  # raises its error
        return True

    async def _greet_boards(self, quiet: float) -> None:
        """Wait for the HELLOs of boards, until none has come for `quiet` seconds.

        The broker retains HELLOs: they come at once, or the boards are not connected. So the wait
        ends, too, as soon as every device of the store is on a board.
        """
        roster = self.fleet.roster
        end = time.monotonic() + _LONGEST_GREETING
        last_news = time.monotonic()
        while not self.stopped:
            now = time.monotonic()
            if now >= end:
                return
            news = self._update_boards(now)
            if news:
                last_news = now
            is_complete = news and len(roster.claimed) == len(roster.devices)
            is_quiet = now - last_news > quiet
            if self.link.subscribed.is_set() and (is_complete or is_quiet):
                return
            await asyncio.sleep(_SHORT_TICK)

    def _on_connect(self) -> None:
        """Replace whatever the broker retains of an earlier round and an earlier model."""
        self.fleet.roster.note_connection(time.monotonic())
        if self._requests and self._requests.announced:
            self._requests.announce()
        else:
            self.link.announce(b"")
        self._hand_out_model()

    @property
    def _where(self) -> str:
        return f"{self.link.access.host} port {self.link.access.port}"

    # What is known about the fleet

    @property
    def status(self) -> FleetStatus:
        """The state of the fleet now: a board that sleeps does not count as connected."""
        connected = self.link.presence.boards
        asleep = self.fleet.roster.asleep(time.monotonic())
        asleep_but_connected = [board for board in asleep if board.name in connected]
        return replace(
            super().status,
            boards=len(connected) - len(asleep_but_connected),
            asleep=len(asleep),
            strangers=len(self.link.presence.strangers),
            connected=self.link.connected,
        )

    @property
    def devices(self) -> Devices:
        if self.rounds.standing:
            self._reload_keys()
            return self.fleet.roster.devices
        return self._connected_devices

    @property
    def budgets(self) -> list[BoardBudget]:
        return self._sightings.budgets(self._read_budgets)

    def _read_budgets(self) -> list[BoardBudget]:
        """Return the budgets of the boards that are connected or sleep.

        Only the devices of a board count that have a key in the store.
        """
        budgets = []
        for board in self.fleet.roster.boards.values():
            if not board.connected and not board.wake_interval:
                continue
            budget = self._sightings.budget(board.clients)
            if budget is not None:
                devices = integers(self.fleet.roster.registered(board.clients))
                budgets.append(replace(budget, devices=devices, count=len(devices)))
        return budgets

    # Waiting

    def stop(self) -> None:
        super().stop()
        with suppress(RuntimeError):  # the loop has ended
            self._runner.get_loop().call_soon_threadsafe(self._stop_event.set)

    def wait(self, seconds: float) -> None:
        if not self.stopped:
            self._runner.run(self._idle(seconds))

    async def _idle(self, seconds: float) -> None:
        """Look after the fleet for so long, or until the driver is stopped."""
        end = time.monotonic() + seconds
        while not self.stopped:
            left = end - time.monotonic()
            if left <= 0:
                return
            await self._step(min(_TICK, left))  # late reports are counted as such

    async def _wait_for_connection(self) -> None:
        while not self.stopped and not self.link.connected:
            await self._step(_TICK)

    async def _step(self, timeout: float) -> bool:
        """Accept the frames that arrive within `timeout` seconds, and look after the fleet.

        Return whether a report or a refusal was among the frames.
        """
        received_frames = await self.link.take(timeout)
        news = bool(received_frames) and self._accept(received_frames)
        now = time.monotonic()
        sleeper_may_be_awake = self.fleet.roster.wake_intervals and self.link.presence.changed
        if sleeper_may_be_awake or now - self._last_upkeep >= _TICK:
            self._last_upkeep = now
            self._upkeep(now)
        return news

    def _upkeep(self, now: float) -> None:
        """Do the slow work between frames, once a tick or when a sleeping board may be awake."""
        self._reload_keys()
        self.health.check_broker()
        self._withdraw_at_returned_sites()
        self.health.check_sites()
        self._update_boards(now)
        self.health.check_absent(now)
        self.health.store_when_due()
        if self._requests and self.link.connected and not self.rounds.standing:
            self._requests.leave_out_silent_boards(now, self.terms.silence)

    # Rounds

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Begin a round, once there is a connection."""
        if not self.link.connected:
            self._runner.run(self._wait_for_connection())
        self._reload_keys()
        super().open(number, cohorts)

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Ask boards until the round ends, and return its result; None after `stop`.

        Raises AllRefused if there are only refusals; for a fleet that is not served also
        DeviceError if no board is left that could answer.
        """
        if self.stopped:
            return None
        result = self._runner.run(self._collect(number, on_progress))
        self.health.check_broker()  # a short round ends between two looks
        self.health.store_when_due(round_ended=True)
        if result is None:
            return None
        # Anybody may send frames of other keys to a fleet that is served.
        result = self.rounds.finish(
            result, individual=self.individual, forgeries_matter=not self.rounds.standing
        )
        if not self.rounds.standing:
            self._check_boards_left(result)
        return result

    async def _collect(self, number: int, on_progress: OnProgress) -> RoundResult | None:
        """Ask devices and take their answers until the round ends; return None after `stop`."""
        asked = self.aggregator.asked(number)
        requests = RoundRequests(number, self.fleet, self._patience)
        self._requests = requests
        on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
        try:
            while not self.stopped:
                requests.ask()
                timeout = _NO_TIME if requests.can_ask else _TICK
                news = await self._step(timeout)
                if news:
                    on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
                now = time.monotonic()
                result = self.aggregator.ended(number, now)
                if result:
                    return result
                if self.link.connected:
                    requests.ask_again(now)
        finally:
            self._requests = None
            requests.end()
            sleepers.save_heard(self._store, self._heard_sleepers)
            self._heard_sleepers = {}
        return None

    def _check_boards_left(self, result: RoundResult) -> None:
        """Raise DeviceError if nobody answered and no board is left that could."""
        boards = self.fleet.roster.boards.values()
        nobody_left = all(board.left_out or not board.connected for board in boards)
        if nobody_left and not result.reports and not result.refusals:
            raise DeviceError(
                f"no board on the broker at {self._where} answers any more",
                hint="see to the boards, then go on with --resume: every accepted report is safe",
            )

    def _accept(self, received_frames: list[bytes]) -> bool:
        """Check and count frames; return whether a report or a refusal was among them."""
        self._reload_keys()
        now = time.monotonic()
        accepted = self.aggregator.accept(received_frames, now)
        reporting_devices = [device for _round, device in accepted.reports]
        self._sightings.answered(accepted.reports, self.aggregator.costs)
        self._note_heard_sleepers(reporting_devices)
        if self._requests:
            self._note_answers(self._requests, accepted, now)
        return bool(accepted.reports or accepted.refusals)

    def _note_answers(self, requests: RoundRequests, accepted: Accepted, now: float) -> None:
        """Note which devices have answered in the open round, and which are to be asked later."""
        requests.note_answers([device for _round, device in accepted.reports], now)
        requests.note_answers([refusal.device for refusal in accepted.refusals], now)
        for refusal in accepted.unread:
            if refusal.device != wire.BOARD and refusal.round == requests.number:
                requests.postpone(refusal, now)

    # Boards and keys

    def _update_boards(self, now: float) -> bool:
        """Update the boards that have come or gone; return whether any have come."""
        changes = self.fleet.roster.update(self.link, now)
        arrived = changes.arrived
        self.health.note_changes(changes, now)
        for board in arrived:
            if board.last_hello == now:  # else the broker has retained its HELLO
                self._note_heard_sleepers((board.clients.start,))
        if self._requests and arrived:
            self._requests.assign(arrived)
        fleet_keys.send_fleet_key(self.fleet, arrived)
        fleet_keys.warn_of_later_keys(self.fleet, arrived)
        for board in changes.new:
            if board.key.takes(self.fleet.key.epoch) and self._requests:
                self._requests.repeat_announcement(board)
        return bool(arrived)

    def _note_heard_sleepers(self, devices: Iterable[int]) -> None:
        """Note when those of the devices were heard that sleep; the store gets it after a round."""
        sleeping_devices = self.fleet.roster.wake_intervals
        if not sleeping_devices:
            return
        for device in devices:
            if device in sleeping_devices:
                self._heard_sleepers[device] = time.time()

    def _reload_keys(self) -> None:
        """Take over what another process has changed in the store."""
        changes = self._store.changes()
        if changes == self._store_changes:
            return
        self._store_changes = changes
        # Before the keys: a board that was revoked with it must not get the new one.
        new_key = fleet_key(self._store)
        self.aggregator.reload_keys()
        self.fleet.roster.register(self.aggregator.devices, sleepers.wakes(self._store))
        if new_key != self.fleet.key:
            self.fleet.key = new_key
            fleet_keys.send_fleet_key(self.fleet, self.fleet.roster.boards.values())
            self._hand_out_model()
            if self._requests:
                self._requests.announce()
        if self._requests:
            self._requests.assign()

    def _withdraw_at_returned_sites(self) -> None:
        """Remove what the broker of a returned site retains, if it is out of date.

        The site gets the open round by itself, but still retains a round that has ended meanwhile.
        """
        if not self.link.presence.site_returned or not self.link.connected:
            return
        self.link.presence.site_returned = False
        if not (self._requests and self._requests.announced):
            self.link.announce(b"")
        if not kept_model.kept(self._store):
            self.link.hand_out(b"")

    # The model

    def publish(self, averaged: Averaged) -> None:
        """Have the broker retain a model, sealed with the fleet's key, for boards that use it."""
        self._reload_keys()
        super().publish(averaged)
        self._hand_out_model()

    def _hand_out_model(self) -> None:
        """Have the broker retain the model of the store, or none, under the present fleet key.

        What it retains may be sealed with an earlier key, which a revoked device has.
        """
        model = kept_model.kept(self._store)
        if model:
            self.link.hand_out(self.fleet.key.seal(model))
        else:
            self.link.hand_out(b"")
