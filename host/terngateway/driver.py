"""Asks gateways for the counts of a round (shared_specs/gateways.md).

Messages may be lost or arrive twice, and any part may fail at any time. So a round is stored before
any gateway gets it, a gateway is asked again until it answers, and its answer is stored before it
counts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self, Unpack

import numpy as np

from terngateway import messages
from terngateway.bound import MORE, Bound, CohortReports, reports_of
from terngateway.budgets import budgets_of
from terngateway.drawn_groups import DrawnGroups, deals_for
from terngateway.messages import (
    NO_ROUND,
    Answer,
    Ask,
    Hello,
    Here,
    MessageError,
    Model,
    Refused,
    Still,
    Taken,
)
from terngateway.post import Post, Reply
from terngateway.roster import HOLD, MOST_HOLD, GatewayRoster, KnownGateway, Registered
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
    Driver,
    FleetStatus,
    OnProgress,
    RoundProgress,
    Warn,
)
from ternhost.reach.refusals import AllRefused, Refusals
from ternhost.reach.stored_rounds import DriverOptions
from ternhost.store import kept_model
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.text import counted

GRACE = 150.0  # seconds beyond a round's deadline in which a lost gateway may come back
_TICK = 0.25
GREETING = 10.0  # seconds for unreachable gateways to come
MOST_GREETING = 90.0  # where a site is connected: its gateway may still open its fleet
_MORE_THAN_ROUNDING = 1.02
_PUBLISHING = 10.0  # seconds for gateways to take a model
_DRAWING = 20.0  # seconds for gateways to draw groups


class GatewaysRefuse(AllRefused):
    """No device reported, and some gateways refuse to ask: gives the reason of one of them."""

    def __init__(self, result: RoundResult, gateway: str, refused: Refused) -> None:
        text = f"gateway {gateway} refuses: {refused.message}"
        RefusedError.__init__(self, text, hint=refused.hint or None)
        self.result = result


class GatewaysDriver(Driver):
    """A driver whose devices are asked by gateways, which `post` reaches.

    Single results lack the ids of their devices.
    """

    def __init__(
        self,
        store: Store,
        post: Post,
        terms: Terms,
        registered: Registered = dict,
        bound: Bound | None = None,
        **options: Unpack[DriverOptions],
    ) -> None:
        """Prepare the connection to the gateways, which entering the context opens.

        registered: by gateway, the ids that its devices may have; others may have any. bound: what
        the counts of each gateway may disclose of a device, in all rounds of the store.
        """
        super().__init__(terms, individual=options.get("individual", False))
        self._store = store
        self._run = options.get("run")
        self._standing = options.get("standing", False)
        self._warn: Warn = options.get("warn", lambda message: None)
        self._refusals = Refusals(self._warn)
        self._tables = GatewayTables(store)
        self._post = post
        self._roster = GatewayRoster(
            store, post, self._warn, standing=self._standing, registered=registered
        )
        self._bound = bound
        self._meeting = False
        self._rounds: dict[int, RoundAtGateways] = {}
        self._took_model: set[str] = set()  # gateways
        self._drawing: DrawnGroups | None = None  # the groups that gateways are asked to draw now
        self._drawn = DrawnGroups({}, self._warn)  # those of the newest round

    # Beginning

    def __enter__(self) -> Self:
        """Connect to the gateways, and wait for them as `_meet` does."""
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
        """Wait for the gateways, and compare their accounts of disclosures with those of the store.

        Raises DeviceError if none answers, and UsageError if two have devices with the same id.
        """
        self._greet_all()
        self._roster.quiet = False
        if self.stopped:
            return
        if not self._roster.there and not self._standing:
            text = "no gateway answers"
            if self._roster.condition:
                text += f": {self._roster.condition}"
            raise DeviceError(text, "start one at each site: tern gateway run DIRECTORY")
        for gateway in self._roster.all.values():
            if gateway.here is None and not gateway.refused:
                self._roster.gone(gateway, "it has not said hello")
            if self._bound and gateway.here is not None:
                self._compare_accounts(gateway.name, gateway.here)

    def _greet_all(self) -> None:
        """Say hello until all gateways that may come have answered, or the time is over."""
        begun = time.monotonic()
        while not self.stopped:
            now = time.monotonic()
            seconds = now - begun
            if seconds >= MOST_GREETING:
                return
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(_TICK, None)
            if not self._more_may_come(is_early=seconds < GREETING):
                return

    def _more_may_come(self, is_early: bool) -> bool:
        """Whether a registered gateway may still say hello.

        is_early: it is too early to give up those that cannot be reached.
        """
        any_registered = False
        absent = []  # have neither said hello nor been ignored
        for gateway in self._roster.all.values():
            if gateway.registered:
                any_registered = True
                if gateway.here is None and not gateway.refused:
                    absent.append(gateway)
        if not any_registered:
            return is_early
        if is_early:
            return bool(absent)
        return any(gateway.reachable for gateway in absent)

    def _compare_accounts(self, name: str, here: Here) -> None:
        """Warn if a gateway's counts have disclosed more than this store knows."""
        site_bound = Bound.read(here.toward_server)
        if site_bound is None:
            site_bound = Bound(0)  # for the default delta and share of honest devices
        delta = site_bound.delta
        ours = self._tables.disclosures_of(name).largest_loss(delta, site_bound.honest).epsilon
        theirs = here.told / MICRO
        if theirs > _MORE_THAN_ROUNDING * ours:
            self._warn(
                f"gateway {name} says that its counts have told epsilon {theirs:.4g} at delta "
                f"{delta:g}, and this store knows of {ours:.4g}: it may refuse rounds that this "
                "host expects to fit"
            )

    # Messages of gateways

    def _receive(self, timeout: float, round_: RoundAtGateways | None) -> None:
        """Take the messages that arrive within `timeout` seconds.

        round_: the round under way; None if there is none.
        """
        for reply in self._post.receive(timeout):
            gateway = self._roster.all.get(reply.site)
            if gateway is not None:
                self._take_reply(gateway, reply, round_, time.monotonic())

    def _take_reply(
        self, gateway: KnownGateway, reply: Reply, round_: RoundAtGateways | None, now: float
    ) -> None:
        """Decode a gateway's reply and act on it; a failure has the gateway asked again later."""
        if reply.payload is None:
            self._roster.failed(gateway, reply.error, now)
            return
        try:
            message = messages.decode(reply.payload)
        except MessageError as error:
            self._roster.failed(gateway, str(error), now)
            return
        if isinstance(message, (Answer, Refused)):
            gateway.unanswered = 0
        if not isinstance(message, Still):  # a Still counts as news only with more reports
            self._roster.heard(gateway, now)
        self._take(gateway, message, round_, now)

    def _take(
        self,
        gateway: KnownGateway,
        message: messages.Message,
        round_: RoundAtGateways | None,
        now: float,
    ) -> None:
        """Act on a gateway's message. Messages that nobody waits for are ignored."""
        if isinstance(message, Here):
            self._roster.admit(gateway, message, now, strict=self._meeting and not self._standing)
        elif isinstance(message, Taken):
            self._took_model.add(gateway.name)
        elif self._drawing is not None and self._drawing.was_asked(gateway.name):
            self._drawing.take(gateway.name, message)
        elif round_ is not None and gateway.name in round_.outstanding:
            self._take_of_round(gateway, message, round_, now)

    def _take_of_round(
        self, gateway: KnownGateway, message: messages.Message, round_: RoundAtGateways, now: float
    ) -> None:
        """Act on a gateway's progress, answer or refusal, if it is about the round under way."""
        if isinstance(message, Still) and message.number == round_.number:
            self._take_progress(gateway, message, round_, now)
        elif isinstance(message, Answer) and message.number == round_.number:
            self._take_answer(gateway, message, round_)
        elif isinstance(message, Refused) and message.number in (NO_ROUND, round_.number):
            self._take_refusal(gateway, message, round_)

    def _take_progress(
        self, gateway: KnownGateway, still: Still, round_: RoundAtGateways, now: float
    ) -> None:
        """Store how many reports a gateway has so far, and ask it again, for longer each time."""
        reports = min(still.reports, round_.asks[gateway.name].asked)
        if reports != round_.under_way.get(gateway.name, 0):
            self._tables.save_progress(round_.number, gateway.name, reports)
            self._roster.heard(gateway, now)
        round_.under_way[gateway.name] = reports
        gateway.next = now
        gateway.hold = min(2 * gateway.hold, MOST_HOLD)

    def _take_answer(self, gateway: KnownGateway, answer: Answer, round_: RoundAtGateways) -> None:
        """Check an answer, store it with what it discloses, and count it.

        A wrong answer is not counted, and the gateway is not waited for.
        """
        name, number = gateway.name, round_.number
        try:
            by_cohort = check(answer, round_.asks[name])
        except MessageError as error:
            self._go_on_without(gateway, round_, f"does not get its answer counted: {error}")
            return

        # The store expected a report of every device. Each one hides among fewer if some are missing.
        disclosed = []
        expected = self._tables.disclosed_in_round(number, name)
        for (report, devices), reports in zip(expected, answer.reports, strict=True):
            if reports:
                mixed = min(report.mixed, reports)
                disclosed.append((replace(report, mixed=mixed), devices))
        exchange = round_.exchange(name, answer.encode())
        with self._store.transaction():
            self._tables.save_answer(number, name, sum(answer.reports), exchange)
            self._tables.save_disclosed(number, name, disclosed)
        round_.take(name, answer, by_cohort)

    def _take_refusal(
        self, gateway: KnownGateway, refused: Refused, round_: RoundAtGateways
    ) -> None:
        """Let the round go on without a gateway that refuses it; its counts disclose nothing."""
        hint = f" ({refused.hint})" if refused.hint else ""
        self._go_on_without(gateway, round_, f"refuses: {refused.message}{hint}")
        self._tables.save_disclosed(round_.number, gateway.name, ())
        round_.refused[gateway.name] = refused
        self._post.send(gateway.name, Hello().encode())  # its HERE may have changed

    def _go_on_without(self, gateway: KnownGateway, round_: RoundAtGateways, why: str) -> None:
        """Stop waiting for a gateway in this round, and warn. why: goes on after its name."""
        if why != gateway.why:  # once for each reason
            gateway.why = why
            text = f"round {round_.number}: gateway {gateway.name} {why}"
            self._warn(f"{text}; the round goes on without it")
        round_.give_up(gateway.name)

    def _ask_until_answered(
        self, payloads: Mapping[str, bytes], missing: Callable[[], set[str]], seconds: float
    ) -> None:
        """Send each of these gateways its message, and repeat it until all of them have answered.

        payloads: by gateway. missing: returns the gateways that have not answered yet. seconds:
        after which it gives up.
        """
        end = time.monotonic() + seconds
        for name in payloads:
            self._roster.all[name].next = 0.0
        while not self.stopped:
            now = time.monotonic()
            names = missing()
            if not names or now >= end:
                return
            for name in sorted(names):
                self._roster.send(self._roster.all[name], payloads[name], now)
            self._receive(_TICK, None)

    # The fleet

    @property
    def sites(self) -> Mapping[str, Integers]:
        """The devices of each known gateway, by name; in a served fleet, of each connected one."""
        if self._standing:
            self._roster.look(time.monotonic())
        devices = {}
        for gateway, _ in self._roster.there:
            if not (self._standing and gateway.left_out):
                devices[gateway.name] = gateway.devices
        return devices

    @property
    def devices(self) -> Integers:
        return np.sort(np.concatenate([integers(()), *self.sites.values()]))

    @property
    def status(self) -> FleetStatus:
        """The number of boards of connected gateways, if these know it, and whether there are any."""
        connected = [here for gateway, here in self._roster.there if not gateway.reported_gone]
        boards = [here.boards for here in connected if here.boards is not None]
        return FleetStatus(
            boards=sum(boards) if boards else None,
            connected=bool(connected) and not self._roster.condition,
        )

    @property
    def budgets(self) -> list[BoardBudget]:
        budgets: list[BoardBudget] = []
        for gateway, here in self._roster.there:
            budgets += budgets_of(gateway.devices, here.budgets)
        return budgets

    # Which rounds, and of which devices

    def resume(self) -> list[int]:
        """Take up the open rounds of this run in the store; return their numbers.

        Raises StorageError for a round that another version has begun.
        """
        now = time.monotonic()
        for stored in self._store.open_rounds():
            is_of_another_run = self._run is not None and stored.run not in (None, self._run)
            if is_of_another_run:
                continue
            exchanges = self._tables.messages(stored.number)
            try:
                round_ = RoundAtGateways.stored(stored, exchanges, now)
            except MessageError as error:
                text = f"round {stored.number} was begun by another version: {error}"
                hint = "finish it with that version, or abandon it with --anew"
                raise StorageError(text, hint) from error
            for name in round_.outstanding:
                self._roster.all.setdefault(name, KnownGateway(name))
            self._rounds[stored.number] = round_
        return sorted(self._rounds)

    def next_round(self, planned: int) -> int:
        """Return `planned`, or the first number that neither this store nor a gateway has used."""
        ours = last_number(self._store)
        theirs = self._roster.believed()
        if theirs > ours:
            self._warn(
                f"gateways were asked round {theirs}, but this store knows of none after {ours}: if "
                "it is new, or was restored from a copy, it does not count what those rounds cost "
                "their devices"
            )
        return max(planned, ours + 1, theirs + 1)

    def drawn(self, number: int, cohorts: Cohorts, pools: Sequence[Devices]) -> Cohorts:
        """Have gateways draw their groups where a bound reckons with dishonest devices.

        Returns the cohorts with the groups that were drawn. Of a gateway that draws none in time,
        the devices stay as the host has chosen them.
        """
        drawing_sites = {}
        for name, devices in self.sites.items():
            if self._may_be_dishonest(name):
                drawing_sites[name] = devices
        deals = deals_for(number, cohorts, pools, drawing_sites)
        self._drawn = DrawnGroups(deals, self._warn)
        if deals:
            payloads = {name: deal.encode() for name, deal in deals.items()}
            self._drawing = self._drawn
            self._ask_until_answered(payloads, self._drawn.missing, _DRAWING)
            self._drawing = None
        if not self._drawn:
            return cohorts
        return self._drawn.replace_devices(cohorts, self.devices, self.sites)

    def _may_be_dishonest(self, name: str) -> bool:
        """Whether the run's or the site's bound assumes that some devices may be dishonest."""
        here = self._roster.all[name].here
        site_bound = None if here is None else Bound.read(here.toward_server)
        return any(bound is not None and bound.honest < 1 for bound in (self._bound, site_bound))

    # A round

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Store a round with its questions to gateways, before any gateway is asked.

        Gateways with which the round would break the run's bound are left out. Raises UsageError if
        a device is asked twice, and RefusedError if no gateway is left.
        """
        round_ = self._new_round(number, cohorts)
        asks = self._questions(round_, cohorts)
        disclosed: dict[str, CohortReports] = {}  # by gateway, if all devices report
        for name, ask in asks.items():
            disclosed[name] = reports_of(ask.cohorts, self._groups(name, ask))
        if self._bound:
            for name in self._spent(number, disclosed):
                del asks[name]
                del disclosed[name]
            bound_fields = self._bound.fields
            for name, ask in asks.items():
                asks[name] = replace(ask, toward_server=bound_fields)

        under_way = RoundAtGateways(round_, asks, time.monotonic())
        with self._store.transaction():
            self._store.open_round(round_)
            self._tables.save_questions(number, {name: under_way.exchange(name) for name in asks})
            # As if all devices reported, until there is an answer.
            for name, answered in disclosed.items():
                self._tables.save_disclosed(number, name, answered)
        self._rounds[number] = under_way

    def _new_round(self, number: int, cohorts: Cohorts) -> StoredRound:
        """Return the round in the form of the store. Raises UsageError if a device is in it twice."""
        stored_cohorts = []
        for question, ids in cohorts:
            stored_cohorts.append(StoredCohort(round_body(number, question), integers(ids)))
        requested_devices = _require_distinct_devices(stored_cohorts)
        quorum = self.terms.reports(requested_devices)
        return StoredRound(number, stored_cohorts, quorum, self.terms.deadline, self._run)

    def _questions(self, round_: StoredRound, cohorts: Cohorts) -> dict[str, Ask]:
        """Return the question to each gateway that has devices in the round, by name."""
        devices = {}
        for gateway in self._roster.all.values():
            if len(gateway.devices):
                devices[gateway.name] = gateway.devices
        categories = None
        if self.individual:
            categories = [question.categories for question, _ in cohorts]
        return parts(round_, devices, self.terms, categories)

    def _groups(self, name: str, ask: Ask) -> list[Group]:
        """Return, for each cohort of a question to this gateway, the group that it is taken from."""
        gateway = self._roster.all[name]
        registered = len(gateway.devices)
        if gateway.here is not None:
            registered = max(registered, gateway.here.registered)
        return self._drawn.groups_in(ask, name, registered)

    def _spent(self, number: int, disclosed: Mapping[str, CohortReports]) -> list[str]:
        """Return the gateways that are not asked, since earlier rounds have spent their bound.

        A gateway that has too few devices even for this round alone is asked, and refuses.
        disclosed: by gateway, the reports of the round. Raises RefusedError if no gateway is left.
        """
        assert self._bound
        spent: list[str] = []
        for name, answered in disclosed.items():
            why = self._bound.why_refused_after_earlier_rounds(
                self._tables.disclosures_of(name), answered
            )
            if not why:
                continue
            spent.append(name)
            text = f"round {number}: gateway {name} is not asked: {why}"
            if len(spent) == len(disclosed):
                raise RefusedError(text, hint=MORE)
            if why != self._roster.all[name].why:  # once for each reason
                self._roster.all[name].why = why
                self._warn(text)
        return spent

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Ask the gateways until the round has ended; return its result, or None after `stop`.

        on_progress: gets the number of reports whenever it changes. Raises AllRefused if all
        devices or gateways refuse, and DeviceError if no gateway answers any more.
        """
        round_ = self._rounds[number]
        self._begin(round_, time.monotonic())
        last_reports: int | None = None  # the number that on_progress has got
        while not self.stopped:
            now = time.monotonic()
            self._ask_outstanding(round_, now)
            self._leave_out(round_, now)
            ended = self._ended(round_)
            if ended:
                return self._end(round_, ended)
            self._receive(_TICK, round_)
            if round_.so_far != last_reports:
                last_reports = round_.so_far
                on_progress(RoundProgress(number, last_reports, round_.asked))
        return None

    def _begin(self, round_: RoundAtGateways, now: float) -> None:
        """Start the clocks of a round, and warn of devices that no gateway has."""
        round_.begun = now
        for gateway in self._roster.all.values():
            gateway.hold = HOLD
            gateway.next = now
            gateway.heard = max(gateway.heard, now)
        unreached = round_.asked - sum(ask.asked for ask in round_.asks.values())
        if unreached:
            devices = counted(unreached, "device")
            self._warn(f"round {round_.number}: no gateway is asked for {devices}")

    def _ask_outstanding(self, round_: RoundAtGateways, now: float) -> None:
        """Send the question to gateways that are due, and greet those that have no part in it."""
        self._roster.look(now)
        self._roster.greet(now, frozenset(round_.outstanding))
        for name in sorted(round_.outstanding):
            gateway = self._roster.all[name]
            question = replace(round_.asks[name], hold=gateway.hold)
            self._roster.send(gateway, question.encode(), now, gateway.hold)

    def _leave_out(self, round_: RoundAtGateways, now: float) -> None:
        """Leave out the gateways that have been silent for too long."""
        for name in sorted(round_.outstanding):
            gateway = self._roster.all[name]
            if gateway.left_out or now <= self._latest_answer(round_, gateway):
                continue
            gateway.left_out = gateway.reported_gone = True
            gateway.unanswered += 1
            self._tables.gateway_gone(name)
            devices = counted(round_.asks[name].asked, "device")
            self._warn(
                f"round {round_.number}: gateway {name} has not answered, and is left out with its "
                f"{devices} until it answers again"
            )

    def _latest_answer(self, round_: RoundAtGateways, gateway: KnownGateway) -> float:
        """The time at which the wait for a gateway's answer ends."""
        deadline = self.terms.deadline
        return GRACE + (gateway.heard if deadline is None else round_.begun + deadline)

    def _ended(self, round_: RoundAtGateways) -> str | None:
        """Return how the round has ended (COMPLETE, QUORUM or DEADLINE), or None if it goes on.

        A round that ends without the answer of a gateway that was left out has met its deadline.
        """
        waiting = [gateway.name for gateway in self._roster.all.values() if not gateway.left_out]
        ended = round_.ended(waiting)
        some_are_missing = bool(round_.outstanding)
        if ended and ended != QUORUM and some_are_missing:
            return DEADLINE
        return ended

    def _end(self, round_: RoundAtGateways, ended: str) -> RoundResult:
        """Return the result of a round that has ended.

        Raises AllRefused if devices or a gateway have refused and nobody has reported, and
        DeviceError if no gateway answers any more.
        """
        del self._rounds[round_.number]
        result = round_.result(ended)
        self._refusals.check(result, 0)
        if result.reports:
            return result
        for name, refused in round_.refused.items():
            raise GatewaysRefuse(result, name, refused)
        if not self._standing and all(gateway.left_out for gateway in self._roster.all.values()):
            hint = "see to the gateways, then go on with --resume: every accepted answer is safe"
            raise DeviceError("no gateway answers any more", hint)
        return result

    # Beside rounds

    def publish(self, averaged: Averaged) -> None:
        """Store the model, and send it to the connected gateways for their devices."""
        kept_model.keep(self._store, averaged)
        self._took_model.clear()
        connected = set()
        for gateway, _ in self._roster.there:
            if not gateway.reported_gone:
                connected.add(gateway.name)
        payloads = dict.fromkeys(connected, Model(averaged).encode())
        self._ask_until_answered(payloads, lambda: connected - self._took_model, _PUBLISHING)
        for name in sorted(connected - self._took_model):
            text = f"gateway {name} has not taken the model: its devices may have an earlier one"
            self._warn(text)

    def wait(self, seconds: float) -> None:
        """Take messages of gateways between two rounds, for so long or until `stop`."""
        end = time.monotonic() + seconds
        while not self.stopped:
            now = time.monotonic()
            if now >= end:
                return
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(min(_TICK, end - now), None)

    def stop(self) -> None:
        super().stop()
        self._post.stop()


def _require_distinct_devices(cohorts: Sequence[StoredCohort]) -> int:
    """Return the number of devices of these cohorts.

    Raises UsageError if there is no cohort, if one has no device, or if a device is in two.
    """
    cohort_devices = [integers(cohort.devices) for cohort in cohorts]
    devices = np.concatenate([integers(()), *cohort_devices])
    every_cohort_has_devices = all(len(ids) for ids in cohort_devices)
    has_duplicates = len(np.unique(devices)) < len(devices)
    if not len(devices) or not every_cohort_has_devices or has_duplicates:
        raise UsageError("a round must ask at least one device, and none twice")
    return len(devices)
