"""Runs rounds for a live fleet on a broker, until it is stopped.

A round is announced to the whole fleet by one retained message, so that a device that comes late takes part. Boards
that are there and do not answer are asked again; a device that has answered sends the same bytes again (ledger.md),
which are counted once. Whatever dies, the store knows what was asked and what has been accepted: a host that is
started again goes on with the round under way.
"""

from __future__ import annotations

import heapq
import statistics
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tern import card as cards
from tern import wire
from tern.links.mqtt import name as board_name
from ternhost.mechanisms import certify
from ternhost.aggregate import estimate
from ternhost.fleet import keys
from ternhost.aggregate.aggregator import Aggregator, Question, Refusal, RoundResult
from ternhost.errors import UsageError
from ternhost.runs.directory import abandon, require_no_run
from ternhost.aggregate.store import Store
from ternhost.algorithms.training import MODELS, Settings, Trainer, automatic_rate

if TYPE_CHECKING:
    from ternhost.links.mqtt import MqttLink

MAX_PATIENCE = 30.0
_TICK = 0.5
_DOUBLINGS = 10
_SINGLY = 64  # so many clients of a board are asked one by one; for more it is told the whole round again
_STATE = "serve"


@dataclass(frozen=True)
class Plan:
    """What the fleet is asked, round after round.

    quorum: the share of all devices whose reports end a round; deadline: seconds after which it ends without them.
    interval: seconds from the start of one round to that of the next. rounds: how many until it stops, None for no end;
    horizon: for how many the learning rate is chosen. patience: seconds without news until boards are asked again; it
    doubles with every time.
    """

    model: int
    dimension: int
    card: bytes
    k: int
    batch: int = 0
    quorum: float = 1.0
    deadline: float = 600.0
    interval: float = 0.0
    rounds: int | None = None
    horizon: int = 100
    patience: float = 2.0
    learning_rate: float | None = None
    regularisation: float = 1e-4

    def __post_init__(self) -> None:
        if not (
            0 < self.quorum <= 1 and 0 < self.deadline <= 0xFFFF and self.interval >= 0 and self.patience > 0
        ):
            raise UsageError(
                "a quorum is a share above 0, a deadline 1 to 65535 s, an interval not negative, patience above 0",
                hint="see 'tern serve --help'",
            )
        if (self.rounds is not None and self.rounds < 1) or self.horizon < 1:
            raise UsageError("at least one round must be run")

    def settings(self, devices: int) -> Settings:
        """The settings of the trainer for a fleet of so many devices."""
        expected = max(1, devices) * self.k / self.dimension
        rate = self.learning_rate
        if rate is None:
            try:
                variance = float(certify.moments(cards.decode(self.card)).variance(Fraction(0)))
            except certify.Biased as error:
                raise UsageError(
                    f"this card cannot be averaged: {error}", hint="see 'tern card show'"
                ) from error
            rate = automatic_rate(self.model, self.dimension, self.horizon, variance / expected)
        return Settings(
            self.model,
            self.dimension,
            rounds=wire.MAX_ROUND,
            expected=expected,
            learning_rate=rate,
            regularisation=self.regularisation,
            patience=wire.MAX_ROUND,
            failures=wire.MAX_ROUND,
        )


@dataclass(frozen=True)
class Status:
    """Where the fleet is. `event` is what happened: "round" (one began), "progress", "end" (one ended), "broker"."""

    event: str
    round: int
    asked: int
    reports: int
    refusals: int
    boards: int
    strangers: int  # boards of another schema
    connected: bool
    rounds_ended: int
    reports_accepted: int
    ended: str | None
    reasons: dict[str, int] = field(default_factory=dict)  # of the refusals, once the round has ended
    frames: dict[str, int] = field(default_factory=dict)


Watcher = Callable[[Status], None]


class Server:
    """Rounds for the devices of a store, over a link. `run` until `stop` is called or the plan's rounds are done."""

    def __init__(
        self,
        store: Store,
        link: MqttLink,
        plan: Plan,
        watcher: Watcher | None = None,
        new_model: bool = False,
    ) -> None:
        """new_model: do not go on with the model that the store holds. Raises UsageError where that is another one."""
        self.aggregator = Aggregator(store)
        self.plan = plan
        self._store = store
        self._link = link
        self._watch = watcher or (lambda status: None)
        self._fleet_key = keys.fleet_key(store)
        require_no_run(store, serving=True)
        saved = store.state(_STATE)
        if saved and not new_model:
            self._check_model(saved["plan"])
        else:
            if saved:
                abandon(store)
            saved = {"rounds": 0, "trainer": None, "plan": self._plan_state()}
        self.rounds: int = saved["rounds"]
        self.reports = store.report_count()
        settings = plan.settings(len(self.aggregator.devices))
        store.save_state({_STATE: saved})  # a round under way is of this model
        self.trainer = Trainer.restore(settings, saved["trainer"]) if saved["trainer"] else Trainer(settings)
        self._stopped = False
        self._round = 0  # under way, or the last one
        self._asked = 0
        self._open = False
        self._starts = 0.0  # when the next round does
        self._empty = 0  # rounds without a report, one after the other
        self._changes = store.changes()
        self._skip_to = 0
        self._begin_asking(0.0)

    def _plan_state(self) -> dict[str, Any]:
        return {**asdict(self.plan), "card": self.plan.card.hex()}

    def _check_model(self, saved: dict[str, Any]) -> None:
        if (saved["model"], saved["dimension"]) != (self.plan.model, self.plan.dimension):
            kind = next(name for name, model in MODELS.items() if model == saved["model"])
            raise UsageError(
                f"this store holds a {kind} model of {saved['dimension']} coordinates",
                hint="go on with that, or begin another one with --new-model",
            )

    def stop(self) -> None:
        """Stop after the present batch; the round under way can be taken up again."""
        self._stopped = True

    async def run(self) -> None:
        """Run rounds. Raises TernError; what has been accepted by then is safe."""
        self._link.on_connect = self._connected
        await self._link.connect()
        try:
            self._resume()
            while not self._stopped:
                if not self._open:
                    if self.plan.rounds is not None and self.rounds >= self.plan.rounds:
                        break
                    self._open_if_due()
                await self._step()
        finally:
            await self._link.close()

    # Rounds

    def _resume(self) -> None:
        now = time.monotonic()
        under_way = self.aggregator.resume(now)
        if len(under_way) > 1:
            raise UsageError(
                f"this store has {len(under_way)} rounds under way, and a fleet on a broker is asked one at a time",
                hint="finish them with the command that began them (tern train --resume)",
            )
        if under_way:
            self._begin(under_way[0], now)

    def _open_if_due(self) -> None:
        now = time.monotonic()
        self._reload_keys()
        devices = list(self.aggregator.devices)
        if now < self._starts or not devices or not self._link.connected:
            return
        number = max(self._store.last_round(), self._skip_to) + 1
        parameters = self.trainer.question()
        question = Question(
            self.plan.model,
            parameters.mantissas,
            parameters.exponent,
            self.plan.card,
            self.plan.k,
            self.plan.batch,
        )
        quorum = max(1, round(self.plan.quorum * len(devices)))
        self.aggregator.open(number, [(question, devices)], now, quorum, self.plan.deadline)
        self._starts = now + self.plan.interval
        self._begin(number, now)

    def _begin(self, number: int, now: float) -> None:
        self._round = number
        self._open = True
        self._asked = self.aggregator.asked(number)
        self._begin_asking(now)
        self._announce()
        self._tell("round")

    def _announce(self) -> None:
        if self._open:
            self._link.announce(self.aggregator.announcement(self._round, self._fleet_key))

    def _connected(self) -> None:
        self._announce()
        self._tell("broker")

    async def _step(self) -> None:
        was_connected = self._link.connected
        batch = await self._link.take(self._pause())
        now = time.monotonic()
        if was_connected and not self._link.connected:
            self._tell("broker")
        if batch:
            self._reload_keys()
            accepted = self.aggregator.accept(batch, now)
            if accepted.reports or accepted.refusals:
                self._heard = now
                self._patience = self.plan.patience
                self.reports += len(accepted.reports)
                self._tell("progress")
            self._put_off(accepted.unread, now)
        for result in self.aggregator.tick(now):
            self._end(result)
        if self._open:
            self._ask_again(now)

    def _pause(self) -> float:
        until = self._starts if not self._open and self.aggregator.devices else time.monotonic() + _TICK
        return max(0.0, min(_TICK, until - time.monotonic()))

    def _end(self, result: RoundResult) -> None:
        self._empty = 0 if result.reports else min(self._empty + 1, _DOUBLINGS)
        if result.reports:
            means = estimate.combine([(cohort.card, cohort.counts) for cohort in result.cohorts])
            self.trainer.update(means.mean, means.reports)
        else:
            self.trainer.fail()
            pause = min(MAX_PATIENCE, self.plan.patience * 2**self._empty)
            self._starts = max(self._starts, time.monotonic() + pause)  # nothing is gained by asking at once
        self.rounds += 1
        self._store.end_round(
            result.number,
            result.ended,
            {
                _STATE: {
                    "rounds": self.rounds,
                    "trainer": self.trainer.state(),
                    "plan": self._plan_state(),
                }
            },
            self.trainer.model.astype("<f8").tobytes(),
        )
        self._open = False
        self._link.announce(b"")
        self._catch_up(result)
        self._tell("end", result)

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

    # Asking again

    def _begin_asking(self, now: float) -> None:
        self._patience = self.plan.patience
        self._heard = now
        self._later: list[tuple[float, int]] = []

    def _put_off(self, unread: Iterable[Refusal], now: float) -> None:
        for refusal in unread:
            if refusal.device != wire.BOARD and refusal.round == self._round and self._open:
                wait = refusal.detail if refusal.code == wire.ERR_TOO_SOON else 0
                heapq.heappush(self._later, (now + wait, refusal.device))

    def _ask_again(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            self._ask_singly([heapq.heappop(self._later)[1]])
        if now - self._heard < self._patience:
            return
        self._heard = now
        self._patience = min(2 * self._patience, MAX_PATIENCE)
        silent = sorted(self.aggregator.unanswered(self._round))
        announcement = self.aggregator.announcement(self._round, self._fleet_key)
        reached = 0
        for board, clients in self._link.boards.items():
            mine = silent[bisect_left(silent, clients.start) : bisect_left(silent, clients.stop)]
            reached += len(mine)
            if len(mine) > _SINGLY:
                self._link.ask(board, announcement)
            else:
                for device in mine:
                    self._link.ask(board, self.aggregator.request(self._round, device))
        # Some are on boards whose hello was lost, or that are not there; and a hello may claim devices that it has not.
        if reached < len(silent) or self._patience == MAX_PATIENCE:
            self._announce()

    def _ask_singly(self, devices: Iterable[int]) -> None:
        for device in devices:
            request = self.aggregator.request(self._round, device)
            for board in self._boards_of(device):
                self._link.ask(board, request)

    def _boards_of(self, device: int) -> list[str]:
        # Boards say themselves which clients they have: more than one may claim a device, and the true one will answer.
        claimed = [board for board, clients in self._link.boards.items() if device in clients]
        return claimed or [board_name(device)]

    # Status

    def _tell(self, event: str, result: RoundResult | None = None) -> None:
        reports, refusals = (
            (result.reports, len(result.refusals))
            if result
            else self.aggregator.progress(self._round)
            if self._open
            else (0, 0)
        )
        self._watch(
            Status(
                event,
                self._round,
                self._asked,
                reports,
                refusals,
                len(self._link.boards),
                len(self._link.strangers),
                self._link.connected,
                self.rounds,
                self.reports,
                result.ended if result else None,
                _reasons(result) if result else {},
                asdict(self.aggregator.statistics),
            )
        )


def _reasons(result: RoundResult) -> dict[str, int]:
    return dict(Counter(wire.error_name(refusal.code) for refusal in result.refusals.values()).most_common())


def summary(server: Server) -> dict[str, Any]:
    """What a server has done, for the end."""
    return {
        "rounds": server.rounds,
        "reports": server.reports,
        "weights": server.trainer.model.tolist(),
        "frames": asdict(server.aggregator.statistics),
    }
