"""The driver of a fleet on a broker: asks devices for reports, and takes their answers.

Devices that do not answer are asked again. That is harmless: a device that has answered already
sends the same bytes again (ledger.md), which count once.
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
from ternhost.reach.broker.expiry import ExpiryWarnings
from ternhost.reach.broker.health import FleetHealth
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.roster import GREETING, BoardOnBroker, BoardRoster
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

# All times are in seconds.
PATIENCE = 2.0  # without news until boards are asked again; it doubles with every time
_LONGEST_GREETING = 15.0  # until the HELLOs of all boards must have come
_STANDING_GREETING = 0.3  # without a HELLO, for a served fleet, where late boards take part, too
_TICK = 0.5  # to wait for frames
_SHORT_TICK = _TICK / 10  # to wait for HELLOs
_LEAST_BETWEEN = 4  # the upkeep takes at most one fifth of the time, however large the fleet is
_NO_TIME = 0.001  # to wait for frames while there are devices to ask


class BrokerDriver(Driver):
    """Reaches the devices of a store through a link to their broker.

    The link needs an event loop, which runs only while a method of the driver runs. A fleet that is
    served (`standing`) is one whose boards come and go. In other fleets, only the boards take part
    that are connected when the driver is opened.
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

        store: has the keys of the devices, and gets rounds and reports.
        link: the link to the broker. terms: when rounds end.
        patience: seconds without news until boards are asked again.
        directory: that of the broker's files, or None if they are not on this machine.
        """
        # The rounds.
        self.rounds = StoredRounds(store, **options)
        super().__init__(terms, self.rounds, individual=options.get("individual", False))
        self.aggregator = self.rounds.aggregator
        self._requests: RoundRequests | None = None  # those of the open round
        self._patience = patience

        # The store, and when boards were heard, which is written into it.
        self._store = store
        self._store_changes = store.changes()  # a number that grows when another process writes
        self._sightings = Sightings(store, self.rounds.warn, lambda: self.aggregator.last_round)
        self._heard_sleepers: dict[int, float] = {}  # when devices that sleep were heard

        # The fleet.
        self.link = link
        self.fleet = FleetState(
            link=link,
            aggregator=self.aggregator,
            roster=BoardRoster(self.aggregator.devices, sleepers.wakes(store)),
            key=fleet_key(store),
            warn=self.rounds.warn,
        )
        self.health = FleetHealth(
            self.fleet, store, self._sightings, standing=self.rounds.standing, directory=directory
        )
        self._expiry: ExpiryWarnings | None = None
        if directory is not None:
            self._expiry = ExpiryWarnings(directory, self.rounds.warn)
        self._connected_devices: list[int] = []  # those that were there when it was opened
        self._next_upkeep = 0.0
        # The boards that have yet to get the fleet key, which could not be sent to all at once.
        self._boards_without_key: list[BoardOnBroker] = []

        # The event loop.
        self._runner = asyncio.Runner()
        self._stop_event = asyncio.Event()

    # The connection

    def __enter__(self) -> Self:
        """Connect to the broker and its boards. Raises DeviceError, UsageError, StorageError."""
        try:
            self._runner.run(self._connect())
        except BaseException as error:  # then Python does not call __exit__
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._runner.run(self.link.close())
        if not any(raised):
            self.health.store_sightings()
            self._sightings.mark_all_offline()
        self._runner.close()

    async def _connect(self) -> None:
        """Connect to the broker, and wait until the boards have sent their HELLOs.

        With a HELLO, a board describes itself and its devices. Raises DeviceError if there is no
        board, unless the fleet is served.
        """
        self._sightings.mark_all_offline()  # boards that an earlier host has left online
        self.link.on_connect = self._on_connect
        self.link.on_waiting = self.rounds.warn
        is_connected = await self._connect_until_stopped()
        if not is_connected:
            return
        quiet = GREETING
        if self.rounds.standing:
            quiet = _STANDING_GREETING
        await self._greet_boards(quiet)
        self._connected_devices = self.fleet.roster.claimed
        if not self._connected_devices and not self.rounds.standing:
            reasons = "\n  ".join(self.health.describe_absent(time.monotonic()))
            raise DeviceError(
                f"no board of this store's devices is connected to the broker at {self._broker_address}\n"
                f"  {reasons}",
                hint="start the boards, or wait for them with 'tern serve'",
            )
        self.health.check_absent(time.monotonic())
        await fleet_keys.renew_hellos(self.fleet, lambda: self.stopped)
        await self._catch_up_with_hellos()

    async def _connect_until_stopped(self) -> bool:
        """Connect to the broker, and return True; or False if the driver was stopped before.

        Raises DeviceError if the broker does not answer, unless the fleet is served: then it is
        waited for.
        """
        patience: float | None = 0.0  # a single attempt
        if self.rounds.standing:
            patience = None  # a served fleet waits for its broker
        connecting = asyncio.ensure_future(self.link.connect(patience=patience))
        stopped = asyncio.ensure_future(self._stop_event.wait())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not connecting.done():  # the driver was stopped
            connecting.cancel()
            await asyncio.wait((connecting,))  # until it has ended
            return False
        await connecting  # raises the error if it has failed
        return True

    async def _greet_boards(self, quiet: float) -> None:
        """Wait until no board has connected for `quiet` seconds.

        A board is known to be connected by its HELLO, the message in which it describes itself.

        The broker retains HELLOs, so those of connected boards come at once. The wait ends earlier
        if every device of the store is on a board that has sent its HELLO.
        """
        roster = self.fleet.roster
        end = time.monotonic() + _LONGEST_GREETING
        last_news = time.monotonic()
        while not self.stopped:
            now = time.monotonic()
            if now >= end:
                await self._catch_up_with_hellos()
                return
            news = self._update_boards(now)
            if news:
                last_news = now
            is_complete = news and roster.all_are_claimed and not roster.is_behind
            is_quiet = now - last_news > quiet
            if self.link.subscribed.is_set() and (is_complete or is_quiet):
                return
            await asyncio.sleep(_SHORT_TICK)

    async def _catch_up_with_hellos(self) -> None:
        """Look at all HELLOs that have come."""
        is_behind = True
        while is_behind and not self.stopped:
            self._update_boards(time.monotonic())
            is_behind = self.fleet.roster.is_behind
            await asyncio.sleep(0)  # so that the broker gets answers

    def _on_connect(self) -> None:
        """After a connection, replace what the broker has retained of another round and model."""
        self.fleet.roster.note_connection(time.monotonic())
        if self._requests and self._requests.announced:
            self._requests.announce()
        else:
            self.link.announce(b"")  # an empty message removes what is retained
        self._retain_model()

    @property
    def _broker_address(self) -> str:
        """The address of the broker, for messages."""
        return f"{self.link.access.host} port {self.link.access.port}"

    # What is known about the fleet

    @property
    def status(self) -> FleetStatus:
        """The state of the fleet now: a board that sleeps does not count as connected."""
        connected = self.link.presence.boards  # by name; the broker counts some that sleep
        asleep = self.fleet.roster.asleep(time.monotonic())
        awake_count = len(connected)
        for board in asleep:
            if board.name in connected:
                awake_count -= 1
        return replace(
            super().status,
            boards=awake_count,
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
        """Return the privacy budgets that connected and sleeping boards report.

        Of a board's devices, only those count that have a key in the store.
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
        with suppress(RuntimeError):  # the event loop has ended already
            loop = self._runner.get_loop()
            loop.call_soon_threadsafe(self._stop_event.set)

    def wait(self, seconds: float) -> None:
        if not self.stopped:
            self._runner.run(self._idle(seconds))

    async def _idle(self, seconds: float) -> None:
        """Watch the fleet for so many seconds, or until the driver is stopped.

        Reports that come meanwhile are counted as late.
        """
        end = time.monotonic() + seconds
        while not self.stopped:
            left = end - time.monotonic()
            if left <= 0:
                return
            await self._step(min(_TICK, left))

    async def _wait_for_connection(self) -> None:
        """Wait until the broker is connected again, or the driver is stopped."""
        while not self.stopped and not self.link.connected:
            await self._step(_TICK)

    async def _step(self, timeout: float) -> bool:
        """Take the frames that arrive within `timeout` seconds, and do the slow work if it is due.

        Return whether a report or a refusal was among the frames.
        """
        received_frames = await self.link.take(timeout)
        news = bool(received_frames) and self._accept(received_frames)
        now = time.monotonic()
        # A board that sleeps sends its HELLO when it wakes, and must be asked before it sleeps on.
        has_sleepers = bool(self.fleet.roster.wake_intervals)
        sleeper_may_be_awake = has_sleepers and bool(self.link.presence.changed)
        upkeep_is_due = now >= self._next_upkeep
        if sleeper_may_be_awake or upkeep_is_due:
            self._upkeep(now)
            done = time.monotonic()
            self._next_upkeep = max(now + _TICK, done + _LEAST_BETWEEN * (done - now))
        return news

    def _upkeep(self, now: float) -> None:
        """Do the slow work: follow changes of the store, the broker, the sites and the boards.

        It is done between frames, twice a second or when a sleeping board may be awake, and less
        often if it takes long. now: the time by the monotonic clock.
        """
        self._reload_keys()
        if self._expiry is not None:
            self._expiry.check()
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
        """Begin a round, after waiting for the broker if the connection was lost."""
        if not self.link.connected:
            self._runner.run(self._wait_for_connection())
        self._reload_keys()
        super().open(number, cohorts)

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Ask boards until the round ends, and return its result; None after `stop`.

        number: the number of the round. on_progress: is called after each answer. Raises AllRefused
        if all answers are refusals. Raises DeviceError if nobody has answered and no board is left,
        unless the fleet is served: then boards come and go, and others will come.
        """
        if self.stopped:
            return None
        result = self._runner.run(self._collect(number, on_progress))
        self.health.check_broker()  # a short round may have ended between two checks
        self.health.store_when_due(round_ended=True)
        if result is None:
            return None
        # individual: add the reports of single devices to the result, not only counts. In a fleet
        # that is served, frames with unknown keys are no error: anybody may send them.
        result = self.rounds.finish(
            result, individual=self.individual, forgeries_matter=not self.rounds.standing
        )
        if not self.rounds.standing:
            self._check_boards_left(result)
        return result

    async def _collect(self, number: int, on_progress: OnProgress) -> RoundResult | None:
        """Send requests and take answers until the round ends; return its result.

        The result is None after `stop`.
        """
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
        """Raise DeviceError if nobody has answered in a round, and no board is left that could.

        Boards are gone if they are disconnected, or were left out because they were silent for too
        long. result: the result of the round.
        """
        boards = self.fleet.roster.boards.values()
        nobody_left = all(board.left_out or not board.connected for board in boards)
        nobody_answered = not result.reports and not result.refusals
        if nobody_left and nobody_answered:
            raise DeviceError(
                f"no board on the broker at {self._broker_address} answers any more",
                hint="check the boards, then go on with 'tern resume': every accepted report is safe",
            )

    def _accept(self, received_frames: list[bytes]) -> bool:
        """Verify and count frames; return whether a report or a refusal was among them.

        received_frames: the messages of boards, in the order in which they have come.
        """
        self._reload_keys()  # so that a device that was revoked meanwhile no longer counts
        now = time.monotonic()
        accepted = self.aggregator.accept(received_frames, now)
        reporting_devices = [device for _round, device in accepted.reports]
        self._sightings.count_costs(accepted.reports, self.aggregator.costs)
        self._note_heard_sleepers(reporting_devices)
        if self._requests:
            self._note_answers(self._requests, accepted, now)
        return bool(accepted.reports or accepted.refusals)

    def _note_answers(self, requests: RoundRequests, accepted: Accepted, now: float) -> None:
        """Note which devices have answered, and which are to be asked again later.

        requests: those of the open round. accepted: what was in the frames that have come.
        """
        reporting_devices = [device for _round, device in accepted.reports]
        refusing_devices = [refusal.device for refusal in accepted.refusals]
        requests.note_answers(reporting_devices, now)
        requests.note_answers(refusing_devices, now)

        # Refusals of devices that have not read the request, or that must wait. Some boards cannot
        # say which of their devices it is about.
        for refusal in accepted.unread:
            is_about_device = refusal.device != wire.BOARD
            if is_about_device and refusal.round == requests.number:
                requests.postpone(refusal, now)

    # Boards and keys

    def _update_boards(self, now: float) -> bool:
        """Follow the boards that have connected or disconnected; return whether any connected.

        Boards that have connected get the requests of the open round. They also get the fleet key,
        with which the host encrypts what is for all boards, if they have an earlier one (each key
        has a higher number, its epoch). now: the time by the monotonic clock.
        """
        changes = self.fleet.roster.update(self.link, now)
        arrived = changes.arrived
        self.health.note_changes(changes, now)
        for board in arrived:
            has_just_spoken = board.last_hello == now  # else the broker has retained its HELLO
            if has_just_spoken:
                self._note_heard_sleepers((board.clients.start,))
        if self._requests:
            self._requests.follow(changes)
        # A board that could not be sent the key before may be sent it now.
        lack_key = [*self._boards_without_key, *arrived]
        self._boards_without_key = fleet_keys.send_fleet_key(self.fleet, lack_key)
        fleet_keys.warn_of_later_keys(self.fleet, arrived)
        # A board that did not have the key could not read the announcement of the open round.
        for board in changes.new:
            has_new_key = board.key.takes(self.fleet.key.epoch)
            if has_new_key and self._requests:
                self._requests.repeat_announcement(board)
        return bool(arrived)

    def _note_heard_sleepers(self, devices: Iterable[int]) -> None:
        """Note that devices were heard now, if they sleep between rounds.

        The store gets the times after the round. devices: the ids of those that were heard.
        """
        sleeping_devices = self.fleet.roster.wake_intervals
        if not sleeping_devices:
            return
        for device in devices:
            if device in sleeping_devices:
                self._heard_sleepers[device] = time.time()

    def _reload_keys(self) -> None:
        """Read devices and keys again if another process has changed the store.

        If the fleet key was replaced, boards get the new one, and what the broker retains is sealed
        with it.
        """
        changes = self._store.changes()
        if changes == self._store_changes:
            return
        self._store_changes = changes
        # The fleet key is read before the keys of devices. In the other order, a device that is
        # revoked in between, for which the fleet key is replaced, could get the new one.
        new_key = fleet_key(self._store)
        self.aggregator.reload_keys()
        self.fleet.roster.register(self.aggregator.devices, sleepers.wakes(self._store))

        if new_key != self.fleet.key:
            self.fleet.key = new_key
            all_boards = self.fleet.roster.boards.values()
            self._boards_without_key = fleet_keys.send_fleet_key(self.fleet, all_boards)
            self._retain_model()
            if self._requests:
                self._requests.announce()
        if self._requests:
            self._requests.assign()  # there may be new devices

    def _withdraw_at_returned_sites(self) -> None:
        """Remove what the broker of a site that is connected again has retained, if it is outdated.

        The broker gets what is retained now by itself. But it may still retain a round that has
        ended meanwhile, or a model that is no longer there.
        """
        if not self.link.presence.site_returned or not self.link.connected:
            return
        self.link.presence.site_returned = False
        if not (self._requests and self._requests.announced):
            self.link.announce(b"")
        if not kept_model.kept(self._store):
            self.link.retain_model(b"")
        if not kept_model.kept_limits(self._store):
            self.link.retain_limits(b"")

    # The model, and limits

    def publish(self, averaged: Averaged) -> None:
        """Store the averaged model or the limits of a run; the broker retains them for the boards."""
        self._reload_keys()
        super().publish(averaged)
        self._retain_model()

    def _retain_model(self) -> None:
        """Have the broker retain the model and the limits in the store, or nothing in their place.

        They are sealed with the present fleet key. What the broker retained so far may be sealed
        with an earlier one, which a revoked device knows.
        """
        self.link.retain_model(self._sealed(kept_model.kept(self._store)))
        self.link.retain_limits(self._sealed(kept_model.kept_limits(self._store)))

    def _sealed(self, frame: bytes) -> bytes:
        """Return a frame of the store with the tag of the present fleet key; b"" for no frame."""
        if not frame:
            return b""
        return self.fleet.key.seal(frame)
