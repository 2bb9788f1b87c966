"""Asks gateways for the counts of a round (shared_specs/gateways.md).

Messages may be lost or arrive twice, and any part may fail at any time. So a round is stored before
any gateway gets it, a gateway is asked again until it answers, and its answer is stored before it
counts.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Self, Unpack

import numpy as np

from terngateway import messages
from terngateway.bound import MORE, Answered, Bound, reports_of
from terngateway.budgets import budgets_of
from terngateway.dealing import wrong_groups
from terngateway.messages import (
    Answer,
    Ask,
    Deal,
    Dealt,
    Hello,
    Here,
    MessageError,
    Model,
    Refused,
    Still,
    Taken,
)
from terngateway.post import Post, Reply
from terngateway.roster import HOLD, GatewayRoster, KnownGateway, Registered
from terngateway.round import RoundAtGateways, check, parts
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers, integers
from ternhost.count.questions import Averaged, round_body
from ternhost.count.rounds import DEADLINE, QUORUM, RoundResult, StoredCohort, StoredRound
from ternhost.errors import DeviceError, RefusedError, StorageError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.privacy.base import MICRO
from ternhost.privacy.groups import Group
from ternhost.reach.driver import (
    BoardBudget,
    Cohorts,
    Devices,
    FleetStatus,
    OnProgress,
    RoundProgress,
)
from ternhost.reach.refusals import AllRefused
from ternhost.reach.stored import DriverOptions, StoredDriver
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.text import counted

GRACE = 150.0  # seconds beyond a round's deadline in which a lost gateway may come back
_TICK = 0.25
_GREETING = 10.0  # seconds for unreachable gateways to come
_MOST_GREETING = 90.0  # where a site is connected: its gateway may still open its fleet
_MORE_THAN_ROUNDING = 1.02
_PUBLISHING = 10.0  # seconds for gateways to take a model
_DEALING = 20.0  # seconds for gateways to draw groups


class GatewaysRefuse(AllRefused):
    """No device reported, and some gateways refuse to ask: gives the reason of one of them."""

    def __init__(self, result: RoundResult, gateway: str, refused: Refused) -> None:
        text = f"gateway {gateway} refuses: {refused.message}"
        RefusedError.__init__(self, text, hint=refused.hint or None)
        self.result = result


class GatewaysDriver(StoredDriver):
    """Gateways that `post` reaches."""

    def __init__(
        self,
        store: Store,
        post: Post,
        terms: Terms,
        registered: Registered = dict,
        bound: Bound | None = None,
        **options: Unpack[DriverOptions],
    ) -> None:
        """registered: by gateway, the ids that its devices may have; others may have any.

        Single results lack ids. bound: what the counts of each gateway may tell of a device, in all
        rounds of the store.
        """
        super().__init__(store, terms, **options)
        self._tables = GatewayTables(store)
        self._post = post
        self._roster = GatewayRoster(
            store, post, self._warn, standing=self._standing, registered=registered
        )
        self._rounds: dict[int, RoundAtGateways] = {}
        self._taken: set[str] = set()  # gateways that have taken the model
        self._bound = bound
        self._meeting = False
        self._wanted: Mapping[str, Deal] = {}  # the groups that gateways are asked to draw just now
        self._dealt: dict[str, Dealt | None] = {}  # what they have drawn; None: nothing
        self._drawn: dict[str, Dealt] = {}  # of the newest round

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

    def __exit__(self, *raised: object) -> None:
        self._post.__exit__(*raised)
        if not any(raised):
            self._tables.gateways_offline()

    def _meet(self) -> None:
        begun = time.monotonic()
        while (now := time.monotonic()) - begun < _MOST_GREETING and not self.stopped:
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(_TICK, None)
            registered = [gateway for gateway in self._roster.all.values() if gateway.registered]
            absent = [
                gateway for gateway in registered if gateway.here is None and not gateway.refused
            ]
            early = now - begun < _GREETING
            may_come = absent and (early or any(gateway.reachable for gateway in absent))
            if (registered or not early) and not may_come:
                break
        self._roster.quiet = False
        if self.stopped:
            return
        if not self._roster.there and not self._standing:
            text = "no gateway answers" + (
                f": {self._roster.condition}" if self._roster.condition else ""
            )
            raise DeviceError(text, "start one at each site: tern gateway run DIRECTORY")
        for gateway in self._roster.all.values():
            if gateway.here is None and not gateway.refused:
                self._roster.gone(gateway, "it has not said hello")
            if self._bound and gateway.here is not None:
                self._compare_told(gateway.name, gateway.here)

    def _compare_told(self, name: str, here: Here) -> None:
        """Warn where a gateway's counts have told more than this store knows."""
        at = Bound.read(here.toward_server) or Bound(0)
        ours = self._tables.told(name).largest_loss(at.delta, at.honest).epsilon
        if (theirs := here.told / MICRO) > _MORE_THAN_ROUNDING * ours:
            text = f"gateway {name} says that its counts have told epsilon {theirs:.4g} at delta {at.delta:g}, and this"
            self._warn(
                f"{text} store knows of {ours:.4g}: it may refuse rounds that this host expects to fit"
            )

    # Messages of gateways

    def _receive(self, timeout: float, round_: RoundAtGateways | None) -> None:
        for received in self._post.receive(timeout):
            if gateway := self._roster.all.get(received.site):
                self._take(gateway, received, round_, time.monotonic())

    def _take(
        self, gateway: KnownGateway, reply: Reply, round_: RoundAtGateways | None, now: float
    ) -> None:
        try:
            message = None if reply.payload is None else messages.decode(reply.payload)
        except MessageError as error:
            message, reply = None, Reply(gateway.name, None, str(error))
        if message is None:
            self._roster.failed(gateway, reply.error, now)
            return
        if isinstance(message, (Answer, Refused)):
            gateway.unanswered = 0
        if not isinstance(message, Still):  # a Still counts as news only with more reports
            self._roster.heard(gateway, now)
        if isinstance(message, Here):
            self._roster.admit(gateway, message, now, strict=self._meeting and not self._standing)
        elif isinstance(message, Taken):
            self._taken.add(gateway.name)
        elif gateway.name in self._wanted:
            self._take_groups(gateway, message)
        elif round_ is not None and gateway.name in round_.outstanding:
            self._take_of_round(gateway, message, round_, now)

    def _take_of_round(
        self, gateway: KnownGateway, message: messages.Message, round_: RoundAtGateways, now: float
    ) -> None:
        if isinstance(message, Still) and message.number == round_.number:
            reports = min(message.reports, round_.asks[gateway.name].asked)
            if reports != round_.under_way.get(gateway.name, 0):
                self._tables.save_progress(round_.number, gateway.name, reports)
                self._roster.heard(gateway, now)
            round_.under_way[gateway.name] = reports
            gateway.next, gateway.hold = now, min(2 * gateway.hold, HOLD[1])
        elif isinstance(message, Answer) and message.number == round_.number:
            try:
                by_cohort = check(message, round_.asks[gateway.name])
            except MessageError as error:
                self._go_on_without(gateway, round_, f"does not get its answer counted: {error}")
                return
            kept = round_.exchange(gateway.name, message.encode())
            asked = self._tables.told_in(round_.number, gateway.name)
            told = [
                (replace(report, mixed=min(report.mixed, reports)), devices)
                for (report, devices), reports in zip(asked, message.reports, strict=True)
                if reports
            ]
            with self._store.transaction():
                self._tables.save_answer(round_.number, gateway.name, sum(message.reports), kept)
                self._tables.save_told(round_.number, gateway.name, told)
            round_.take(gateway.name, message, by_cohort)
        elif isinstance(message, Refused) and message.number in (0, round_.number):
            hint = f" ({message.hint})" if message.hint else ""
            self._go_on_without(gateway, round_, f"refuses: {message.message}{hint}")
            self._tables.save_told(round_.number, gateway.name, ())
            round_.refused[gateway.name] = message
            self._post.send(gateway.name, Hello().encode())  # its HERE may have changed

    def _go_on_without(self, gateway: KnownGateway, round_: RoundAtGateways, why: str) -> None:
        if why != gateway.why:  # once for each reason
            gateway.why = why
            self._warn(
                f"round {round_.number}: gateway {gateway.name} {why}; the round goes on without it"
            )
        round_.give_up(gateway.name)

    # Rounds

    @property
    def sites(self) -> Mapping[str, Integers]:
        """The devices of each known gateway; in a served fleet, of each connected one."""
        if self._standing:
            self._roster.look(time.monotonic())
        there = [
            known for known, _ in self._roster.there if not (self._standing and known.left_out)
        ]
        return {known.name: known.devices for known in there}

    @property
    def devices(self) -> Integers:
        return np.sort(np.concatenate([integers(()), *self.sites.values()]))

    @property
    def status(self) -> FleetStatus:
        heard = [here for gateway, here in self._roster.there if not gateway.reported_gone]
        boards = [here.boards for here in heard if here.boards is not None]
        connected = bool(heard) and not self._roster.condition
        return FleetStatus(boards=sum(boards) if boards else None, connected=connected)

    @property
    def budgets(self) -> list[BoardBudget]:
        of_sites = [
            budgets_of(gateway.devices, here.budgets) for gateway, here in self._roster.there
        ]
        return [budget for budgets in of_sites for budget in budgets]

    def resume(self) -> list[int]:
        now = time.monotonic()
        for stored in self._store.open_rounds():
            if self._run is not None and stored.run not in (None, self._run):
                continue
            try:
                round_ = RoundAtGateways.stored(stored, self._tables.messages(stored.number), now)
            except MessageError as error:
                text = f"round {stored.number} was begun by another version: {error}"
                raise StorageError(
                    text, "finish it with that version, or abandon it with --anew"
                ) from error
            for name in round_.outstanding:
                self._roster.all.setdefault(name, KnownGateway(name))
            self._rounds[stored.number] = round_
        return sorted(self._rounds)

    def next_round(self, planned: int) -> int:
        number, theirs = super().next_round(planned), self._roster.believed()
        ours = last_number(self._store)
        if theirs > ours:
            text = f"gateways were asked round {theirs}, but this store knows of none after {ours}: if it is "
            text += "new, or was restored from a copy, it does not count what those rounds cost their devices"
            self._warn(text)
        return max(number, theirs + 1)

    # Groups that gateways draw

    def drawn(self, number: int, cohorts: Cohorts, pools: Sequence[Devices]) -> Cohorts:
        """Have gateways draw the groups where a bound reckons with dishonest devices: a host could
        ask those alone.
        """
        wanted: dict[str, Deal] = {}
        for name, devices in self.sites.items():
            if all(bound.honest == 1 for bound in self._bounds(name)):
                continue
            parts = [
                math.ceil(len(pool) / len(ids))
                for (_, ids), pool in zip(cohorts, pools, strict=True)
            ]
            there = [np.intersect1d(integers(pool), devices) for pool in pools]
            if max(parts) > 1 and all(n <= len(pool) for n, pool in zip(parts, there, strict=True)):
                wanted[name] = Deal(number, parts, there)
        self._drawn = self._deal(wanted) if wanted else {}
        if not self._drawn:
            return cohorts
        elsewhere = [np.setdiff1d(self.devices, self.sites[name]) for name in self._drawn]
        others = reduce(np.intersect1d, elsewhere)  # devices of sites that draw nothing
        found = []
        for i, (question, ids) in enumerate(cohorts):
            groups = [dealt.groups[i] for dealt in self._drawn.values()]
            devices = np.sort(np.concatenate([np.intersect1d(integers(ids), others), *groups]))
            if len(devices):
                found.append((question, devices))
        return found

    def _bounds(self, name: str) -> list[Bound]:
        """The bounds that a gateway keeps: the run's, and its site's."""
        here = self._roster.all[name].here
        of_site = None if here is None else Bound.read(here.toward_server)
        return [bound for bound in (self._bound, of_site) if bound]

    def _deal(self, wanted: Mapping[str, Deal]) -> dict[str, Dealt]:
        """The groups that these gateways draw.

        One that draws none in time is left with the host's own choice.
        """
        self._wanted, self._dealt = wanted, {}
        end = time.monotonic() + _DEALING
        for name in wanted:
            self._roster.all[name].next = 0.0
        while lack := wanted.keys() - self._dealt.keys():
            if (now := time.monotonic()) >= end or self.stopped:
                break
            for name in sorted(lack):
                self._roster.send(self._roster.all[name], wanted[name].encode(), now)
            self._receive(_TICK, None)
        self._wanted = {}
        return {name: dealt for name, dealt in self._dealt.items() if dealt is not None}

    def _take_groups(self, gateway: KnownGateway, message: messages.Message) -> None:
        """Take the groups that a gateway has drawn, or its refusal to draw any."""
        wanted = self._wanted[gateway.name]
        if isinstance(message, Dealt) and message.number == wanted.number:
            if why := wrong_groups(message, wanted):
                self._warn(
                    f"round {wanted.number}: gateway {gateway.name} draws other groups than asked for: {why}"
                )
            self._dealt[gateway.name] = None if why else message
        elif isinstance(message, Refused) and message.number in (0, wanted.number):
            self._warn(
                f"round {wanted.number}: gateway {gateway.name} draws no group: {message.message}"
            )
            self._dealt[gateway.name] = None

    def _groups(self, name: str, ask: Ask) -> list[Group]:
        """Who may be in each cohort of a question."""
        known = self._roster.all[name]
        site = (
            len(known.devices)
            if known.here is None
            else max(known.here.registered, len(known.devices))
        )
        dealt = self._drawn.get(name)
        found = []
        for cohort in ask.cohorts:
            group = Group(site, len(cohort.devices))
            if dealt is not None and dealt.number == ask.number:
                for draw, pool, devices in zip(dealt.draws, dealt.dealt, dealt.groups, strict=True):
                    if np.array_equal(devices, cohort.devices):
                        group = replace(group, pool=pool, draw=draw)
            found.append(group)
        return found

    # Rounds, once their devices are known

    def open(self, number: int, cohorts: Cohorts) -> None:
        cohorts_asked = [
            StoredCohort(round_body(number, question), integers(ids)) for question, ids in cohorts
        ]
        devices = [cohort.devices for cohort in cohorts_asked]
        asked = sum(map(len, devices))
        distinct = np.unique(np.concatenate([integers(()), *devices]))
        if not all(map(len, devices)) or len(distinct) < max(asked, 1):
            raise UsageError("a round must ask at least one device, and none twice")
        round_ = StoredRound(
            number, cohorts_asked, self.terms.reports(asked), self.terms.deadline, self._run
        )
        known = self._roster.all.values()
        there = {gateway.name: gateway.devices for gateway in known if len(gateway.devices)}
        categories = [question.categories for question, _ in cohorts] if self.individual else None
        asks = parts(round_, there, self.terms, categories)
        told = {
            name: reports_of(ask.cohorts, self._groups(name, ask)) for name, ask in asks.items()
        }
        if self._bound:
            for name in self._spent(number, told):
                del asks[name], told[name]
            asks = {
                name: replace(ask, toward_server=self._bound.fields) for name, ask in asks.items()
            }
        under_way = RoundAtGateways(round_, asks, time.monotonic())
        with self._store.transaction():
            self._store.open_round(round_)
            self._tables.save_questions(number, {name: under_way.exchange(name) for name in asks})
            for (
                name,
                answered,
            ) in told.items():  # as if all devices reported, until there is an answer
                self._tables.save_told(number, name, answered)
        self._rounds[number] = under_way

    def _spent(self, number: int, wanted: Mapping[str, Answered]) -> list[str]:
        """The gateways whose counts have told so much that this round would break the bound: they
        are not asked. (One with too few devices is, and refuses.) Raises RefusedError where no
        gateway is left.
        """
        assert self._bound
        spent: list[str] = []
        for name, answered in wanted.items():
            if why := self._bound.refuses_for_earlier_rounds(self._tables.told(name), answered):
                spent.append(name)
                text = f"round {number}: gateway {name} is not asked: {why}"
                if len(spent) == len(wanted):
                    raise RefusedError(text, hint=MORE)
                if why != self._roster.all[name].why:  # once for each reason
                    self._roster.all[name].why = why
                    self._warn(text)
        return spent

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        round_ = self._rounds[number]
        self._begin(round_, time.monotonic())
        shown = -1
        while not self.stopped:
            now = time.monotonic()
            self._roster.look(now)
            self._roster.greet(now, frozenset(round_.outstanding))
            for name in sorted(round_.outstanding):
                gateway = self._roster.all[name]
                question = replace(round_.asks[name], hold=gateway.hold).encode()
                self._roster.send(gateway, question, now, gateway.hold)
            self._leave_out(round_, now)
            if ended := self._ended(round_):
                return self._end(round_, ended)
            self._receive(_TICK, round_)
            if round_.so_far != shown:
                shown = round_.so_far
                on_progress(RoundProgress(number, shown, round_.asked))
        return None

    def _begin(self, round_: RoundAtGateways, now: float) -> None:
        round_.begun = now
        for gateway in self._roster.all.values():
            gateway.hold, gateway.next, gateway.heard = HOLD[0], now, max(gateway.heard, now)
        if unreached := round_.asked - sum(ask.asked for ask in round_.asks.values()):
            self._warn(
                f"round {round_.number}: no gateway is asked for {counted(unreached, 'device')}"
            )

    def _leave_out(self, round_: RoundAtGateways, now: float) -> None:
        for name in sorted(round_.outstanding):
            gateway = self._roster.all[name]
            if not gateway.left_out and now > self._latest(round_, gateway):
                gateway.left_out = gateway.reported_gone = True
                gateway.unanswered += 1
                self._tables.gateway_gone(name)
                text = f"round {round_.number}: gateway {name} has not answered, and is left out with its "
                text += f"{counted(round_.asks[name].asked, 'device')} until it answers again"
                self._warn(text)

    def _latest(self, round_: RoundAtGateways, gateway: KnownGateway) -> float:
        """The time at which the wait for a gateway's answer ends."""
        deadline = self.terms.deadline
        return GRACE + (gateway.heard if deadline is None else round_.begun + deadline)

    def _ended(self, round_: RoundAtGateways) -> str | None:
        waiting = [gateway.name for gateway in self._roster.all.values() if not gateway.left_out]
        ended = round_.ended(waiting)
        return DEADLINE if ended and ended != QUORUM and round_.outstanding else ended

    def _end(self, round_: RoundAtGateways, ended: str) -> RoundResult:
        del self._rounds[round_.number]
        result = round_.result(ended)
        self._refusals.check(result, 0)
        if result.reports:
            return result
        if round_.refused:
            raise GatewaysRefuse(result, *next(iter(round_.refused.items())))
        if not self._standing and all(gateway.left_out for gateway in self._roster.all.values()):
            hint = "see to the gateways, then go on with --resume: every accepted answer is safe"
            raise DeviceError("no gateway answers any more", hint)
        return result

    def publish(self, averaged: Averaged) -> None:
        super().publish(averaged)
        self._taken.clear()
        payload, end = Model(averaged).encode(), time.monotonic() + _PUBLISHING
        there = {
            gateway.name: gateway for gateway, _ in self._roster.there if not gateway.reported_gone
        }
        for gateway in there.values():
            gateway.next = 0.0
        while lack := there.keys() - self._taken:
            if (now := time.monotonic()) >= end or self.stopped:
                break
            for name in sorted(lack):
                self._roster.send(there[name], payload, now)
            self._receive(_TICK, None)
        for name in sorted(lack):
            self._warn(
                f"gateway {name} has not taken the model: its devices may have an earlier one"
            )

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stopped and (now := time.monotonic()) < end:
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(min(_TICK, end - now), None)

    def stop(self) -> None:
        super().stop()
        self._post.stop()
