"""Gateways, asked for the counts of a round: each asks its own devices, and answers exactly once.

What is sent may be lost or arrive twice, and gateways, the way to them and this host may die at any time. So the round
is durable before anybody hears of it, a gateway is asked again until it answers, and its answer is durable, by (round,
gateway), before it counts (shared_specs/gateways.md).
"""

from __future__ import annotations

import time
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from ternhost.count.members import Integers, integers
from ternhost.count.questions import Averaged, round_body
from ternhost.count.rounds import DEADLINE, QUORUM, Cohort, Round, RoundResult
from ternhost.errors import DeviceError, RefusedError, StorageError, UsageError
from ternhost.reach.driver import AllRefused, Cohorts, Progress, Refusals, Sight, Tell, Terms, Warn
from ternhost.reach.gateway import messages
from ternhost.reach.gateway.frames import MessageError
from ternhost.reach.gateway.messages import Answer, Hello, Here, Model, Refused, Still, Taken
from ternhost.reach.gateway.post import Post, Received
from ternhost.reach.gateway.roster import HOLD, Gateway, Registered, Roster
from ternhost.reach.gateway.round import RoundAtGateways, parts
from ternhost.store import kept_model
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store

GRACE = 150.0  # seconds beyond a round's deadline for which gateways are waited for: they may be coming back
_TICK = 0.25
_GREETING = 10.0  # seconds in which gateways that cannot be reached may come
_MOST_GREETING = 90.0  # where a site is connected: a ServerApp may take 45 s to start, and start twice
_PUBLISHING = 10.0  # seconds in which gateways are to take a model


class GatewaysRefuse(AllRefused):
    """Nobody reported, and some gateways refuse to ask: in the words of one of them."""

    def __init__(self, result: RoundResult, gateway: str, refused: Refused) -> None:
        message = f"gateway {gateway} refuses: {refused.message}"
        RefusedError.__init__(self, message, hint=refused.hint or None)
        self.result = result


class GatewaysDriver:
    """Gateways that `post` reaches. A driver (drivers.base)."""

    def __init__(
        self,
        store: Store,
        post: Post,
        terms: Terms,
        *,
        run: str | None = None,
        individual: bool = False,
        standing: bool = False,
        registered: Registered = dict,
        warn: Warn = lambda message: None,
    ) -> None:
        """run: that asks. individual: results carry the results of single devices, without their names. standing: the
        fleet is served, and gateways that come later take part. registered: the ids that the devices of gateways
        may have, by name; of others any.
        """
        self._store = store
        self._post = post
        self._terms = terms
        self._run = run
        self._individual = individual
        self._standing = standing
        self._warn = warn
        self._refusals = Refusals(warn)
        self._roster = Roster(store, post, warn, standing=standing, registered=registered)
        self._rounds: dict[int, RoundAtGateways] = {}
        self._taken: set[str] = set()  # gateways that have taken the model
        self._stopped = False
        self._meeting = False

    # Beginning

    def __enter__(self) -> Self:
        self._post.__enter__()
        self._meeting = True
        try:
            self._meet()
            self._meeting = False
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._post.__exit__(kind, error, trace)
        if kind is None:
            self._store.gateways_offline()

    def _meet(self) -> None:
        begun = time.monotonic()
        while (now := time.monotonic()) - begun < _MOST_GREETING and not self._stopped:
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(_TICK, None)
            registered = [own for own in self._roster.all.values() if own.registered]
            absent = [own for own in registered if own.here is None]
            early = now - begun < _GREETING
            if (registered or not early) and not (absent and (early or any(own.reachable for own in absent))):
                break
        self._roster.quiet = False
        there = self._roster.there
        if not there and not self._standing and not self._stopped:
            raise DeviceError(
                "no gateway answers" + (f": {self._roster.condition}" if self._roster.condition else ""),
                hint="start one at each site: tern gateway run DIRECTORY",
            )
        for own in self._roster.all.values():
            if own.here is None and not self._stopped:
                self._roster.gone(own, "it has not said hello")

    # What gateways say

    def _receive(self, timeout: float, round_: RoundAtGateways | None) -> None:
        for received in self._post.receive(timeout):
            if own := self._roster.all.get(received.site):
                self._take(own, received, round_, time.monotonic())

    def _take(self, own: Gateway, received: Received, round_: RoundAtGateways | None, now: float) -> None:
        try:
            message = None if received.payload is None else messages.decode(received.payload)
        except MessageError as error:
            message, received = None, Received(own.name, None, str(error))
        if message is None:
            self._roster.failed(own, received.error, now)
            return
        if isinstance(message, (Answer, Refused)):
            own.unanswered = 0
        if not isinstance(message, Still):  # of that, only what is more than before
            self._roster.heard(own, now)
        if isinstance(message, Here):
            self._roster.admit(own, message, now, strict=self._meeting and not self._standing)
        elif isinstance(message, Taken):
            self._taken.add(own.name)
        elif round_ is not None and own.name in round_.outstanding:
            self._take_of_round(own, message, round_, now)

    def _take_of_round(
        self, own: Gateway, message: messages.Message, round_: RoundAtGateways, now: float
    ) -> None:
        if isinstance(message, Still) and message.number == round_.number:
            reports = min(message.reports, round_.asks[own.name].asked)
            if reports != round_.under_way.get(own.name, 0):
                self._store.save_progress(round_.number, own.name, reports)
                self._roster.heard(own, now)
            round_.under_way[own.name] = reports
            own.next, own.hold = now, min(2 * own.hold, HOLD[1])
        elif isinstance(message, Answer) and message.number == round_.number:
            try:
                told = round_.checked(own.name, message)
            except MessageError as error:
                self._go_on_without(own, round_, f"does not get its answer counted: {error}")
                return
            kept = round_.exchange(own.name, message.encode())
            self._store.save_answer(round_.number, own.name, sum(message.reports), kept)
            round_.take(own.name, message, told)
        elif isinstance(message, Refused) and message.number in (0, round_.number):
            hint = f" ({message.hint})" if message.hint else ""
            self._go_on_without(own, round_, f"refuses: {message.message}{hint}")
            round_.refused[own.name] = message
            self._post.send(own.name, Hello().encode())  # what it is may have changed

    def _go_on_without(self, own: Gateway, round_: RoundAtGateways, why: str) -> None:
        self._warn(f"round {round_.number}: gateway {own.name} {why}; the round goes on without it")
        round_.give_up(own.name)

    # What a run asks for

    @property
    def devices(self) -> Integers:
        """Of the gateways that have been heard; of a fleet that is served, of those that are there."""
        if self._standing:
            self._roster.look(time.monotonic())
        there = [
            own.devices
            for own in self._roster.all.values()
            if own.here is not None and not (self._standing and own.left_out)
        ]
        return np.sort(np.concatenate([integers(()), *there]))

    @property
    def sight(self) -> Sight:
        told = [own.here for own in self._roster.all.values() if own.here is not None and not own.told_gone]
        boards = [here.boards for here in told if here.boards is not None]
        return Sight(
            boards=sum(boards) if boards else None, connected=bool(told) and not self._roster.condition
        )

    @property
    def budget_left(self) -> int | None:
        told = [own.here.budget_left for own in self._roster.all.values() if own.here is not None]
        return min((left for left in told if left is not None), default=None)

    def resume(self) -> list[int]:
        now = time.monotonic()
        for asked in self._store.open_rounds():
            if self._run is not None and asked.run not in (None, self._run):
                continue
            try:
                round_ = RoundAtGateways.stored(asked, self._store.exchange(asked.number), now)
            except MessageError as error:
                raise StorageError(
                    f"round {asked.number} was begun by another version: {error}",
                    hint="finish it with that version, or give it up with --anew",
                ) from error
            for name in round_.outstanding:
                self._roster.all.setdefault(name, Gateway(name))
            self._rounds[asked.number] = round_
        return sorted(self._rounds)

    def next_round(self, planned: int) -> int:
        ours, theirs = last_number(self._store), self._roster.believed()
        if theirs > ours:
            self._warn(
                f"gateways were asked round {theirs}, and this store knows of none after {ours}: if it is a copy"
                " that was put back, or a new one, what those rounds cost their devices is counted nowhere here"
            )
        return max(planned, ours + 1, theirs + 1)

    def open(self, number: int, cohorts: Cohorts) -> None:
        asked = [Cohort(round_body(number, question), integers(devices)) for question, devices in cohorts]
        every = np.concatenate([integers(()), *(integers(cohort.devices) for cohort in asked)])
        if not len(every) or not all(len(cohort.devices) for cohort in asked) or _some_twice(every):
            raise UsageError("a round must ask at least one device, and none twice")
        round_ = Round(number, asked, self._terms.reports(len(every)), self._terms.deadline, self._run)
        there = {own.name: own.devices for own in self._roster.all.values() if len(own.devices)}
        categories = [question.categories for question, _ in cohorts] if self._individual else None
        asks = parts(round_, there, self._terms, categories)
        under_way = RoundAtGateways(round_, asks, time.monotonic())
        with self._store.transaction():
            self._store.open_round(round_)
            self._store.save_questions(number, {name: under_way.exchange(name) for name in asks})
        self._rounds[number] = under_way

    def collect(self, number: int, tell: Tell = lambda progress: None) -> RoundResult | None:
        round_ = self._rounds[number]
        self._begin(round_, time.monotonic())
        told = -1
        while not self._stopped:
            now = time.monotonic()
            self._roster.look(now)
            self._roster.greet(now, frozenset(round_.outstanding))
            for name in sorted(round_.outstanding):
                own = self._roster.all[name]
                self._roster.send(own, _held(round_, own), now, own.hold)
            self._leave_out(round_, now)
            if ended := self._ended(round_):
                return self._end(round_, ended)
            self._receive(_TICK, round_)
            if round_.so_far != told:
                told = round_.so_far
                tell(Progress(number, told, round_.asked))
        return None

    def _begin(self, round_: RoundAtGateways, now: float) -> None:
        round_.begun = now
        for own in self._roster.all.values():
            own.hold, own.next, own.heard = HOLD[0], now, max(own.heard, now)
        if round_.unreached:
            self._warn(f"round {round_.number}: {round_.unreached} devices are on no gateway")

    def _leave_out(self, round_: RoundAtGateways, now: float) -> None:
        for name in sorted(round_.outstanding):
            own = self._roster.all[name]
            if not own.left_out and now > self._latest(round_, own):
                own.left_out = own.told_gone = True
                own.unanswered += 1
                self._store.gateway_gone(name)
                self._warn(
                    f"round {round_.number}: gateway {name} has not answered, and is left out with its "
                    f"{round_.asks[name].asked} devices until it answers again"
                )

    def _latest(self, round_: RoundAtGateways, own: Gateway) -> float:
        """Until when a gateway's answer is waited for."""
        if self._terms.deadline is None:
            return own.heard + GRACE
        return round_.begun + self._terms.deadline + GRACE

    def _ended(self, round_: RoundAtGateways) -> str | None:
        waiting = [own.name for own in self._roster.all.values() if not own.left_out]
        ended = round_.ended(waiting)
        return DEADLINE if ended and ended != QUORUM and round_.outstanding else ended

    def _end(self, round_: RoundAtGateways, ended: str) -> RoundResult:
        del self._rounds[round_.number]
        result = round_.result(ended)
        if self._standing:
            self._refusals.tell_of_later_rounds(result)
            return result
        self._refusals.check(result, 0)
        if not result.reports and round_.refused:
            raise GatewaysRefuse(result, *next(iter(round_.refused.items())))
        if not result.reports and all(own.left_out for own in self._roster.all.values()):
            raise DeviceError(
                "no gateway answers any more",
                hint="see to the gateways, then go on with --resume: every accepted answer is safe",
            )
        return result

    def publish(self, averaged: Averaged) -> None:
        kept_model.keep(self._store, averaged)
        self._taken.clear()
        payload, end = Model(averaged).encode(), time.monotonic() + _PUBLISHING
        there = {own.name: own for own in self._roster.there if not own.told_gone}
        for own in there.values():
            own.next = 0.0
        while (lack := there.keys() - self._taken) and (now := time.monotonic()) < end and not self._stopped:
            for name in sorted(lack):
                self._roster.send(there[name], payload, now)
            self._receive(_TICK, None)
        for name in sorted(lack):
            self._warn(f"gateway {name} has not taken the model: its devices may have an earlier one")

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopped and (now := time.monotonic()) < end:
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(min(_TICK, end - now), None)

    def stop(self) -> None:
        self._stopped = True
        self._post.stop()


def _held(round_: RoundAtGateways, own: Gateway) -> bytes:
    return replace(round_.asks[own.name], hold=own.hold).encode()


def _some_twice(devices: Integers) -> bool:
    return len(np.unique(devices)) < len(devices)
