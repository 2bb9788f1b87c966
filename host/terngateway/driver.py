"""Asks gateways for the counts of a round (shared_specs/gateways.md).

A gateway is the program at a site that asks the devices there, and adds up their reports. Messages
may be lost or arrive twice, and any part may fail at any time. So a round is stored before any
gateway gets it, a gateway is asked again until it answers, and its answer is stored before it counts.
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
from terngateway.round import RoundAtGateways, check_answer, questions_by_gateway
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers, distinct, integers
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
_TICK = 0.25  # seconds for which one look for messages waits
GREETING = 10.0  # seconds for gateways to come that cannot be reached at first
MOST_GREETING = 90.0  # seconds for those that can be reached, which may still open their fleet
# A gateway's account of the privacy loss may be larger than ours by this factor, since both round.
_MORE_THAN_ROUNDING = 1.02
_PUBLISHING = 10.0  # seconds for gateways to take a model
_DRAWING = 20.0  # seconds for gateways to draw groups


class GatewaysRefuse(AllRefused):
    """The error for a round without a report, in which some gateways have refused to ask."""

    def __init__(self, result: RoundResult, gateway: str, refused: Refused) -> None:
        """Say the reason of one gateway.

        result: that of the round. gateway: the name of the gateway. refused: its message.
        """
        text = f"gateway {gateway} refuses: {refused.message}"
        # Not that of AllRefused, which would give the reasons of devices.
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

        store: has the rounds, and what gateways have disclosed. post: the connection. terms: when a
        round ends. registered: returns, by gateway, the ids that its devices may have; gateways
        that are not in it may have any. bound: what the counts of each gateway may disclose of a
        device, in all rounds of the store; None for no limit. options: as in `DriverOptions`.
        """
        super().__init__(terms, individual=options.get("individual", False))
        self._store = store
        self._tables = GatewayTables(store)
        self._run = options.get("run")
        self._standing = options.get("standing", False)
        self._bound = bound

        self._warn: Warn = options.get("warn", lambda message: None)
        self._refusals = Refusals(self._warn)

        self._post = post
        self._roster = GatewayRoster(
            store, post, self._warn, standing=self._standing, registered=registered
        )
        self._meeting = False  # whether the context is being entered

        self._rounds: dict[int, RoundAtGateways] = {}  # by number, those that have not ended
        self._took_model: set[str] = set()  # names of gateways that have accepted the newest model
        self._drawing: DrawnGroups | None = None  # the groups that gateways are asked to draw now
        self._drawn = DrawnGroups({}, self._warn)  # the groups of the newest round

    # Beginning

    def __enter__(self) -> Self:
        """Connect to the gateways, and wait until those that may come have said hello.

        Raises DeviceError if none answers, and UsageError if two have devices with the same id.
        """
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
        """End the connection. After an error, the store keeps which gateways were connected."""
        self._post.__exit__(*raised)
        if not any(raised):
            self._tables.gateways_offline()

    def _meet(self) -> None:
        """Wait for the gateways, and compare their accounts of the privacy loss with the store's.

        Raises DeviceError if none answers, and UsageError if two have devices with the same id.
        """
        self._greet_all()
        self._roster.quiet = False  # from now on, absent gateways are worth a warning
        if self.stopped:
            return
        if not self._roster.present and not self._standing:
            text = "no gateway answers"
            if self._roster.condition:
                text += f": {self._roster.condition}"
            raise DeviceError(text, "start one at each site: tern gateway run DIRECTORY")

        for gateway in self._roster.all.values():
            if gateway.here is None:
                if not gateway.is_ignored:
                    self._roster.warn_of_absence(gateway, "it has not said hello")
            elif self._bound:
                self._compare_accounts(gateway.name, gateway.here)

    def _greet_all(self) -> None:
        """Ask gateways about themselves until all that may come have answered, or time is over.

        In the first GREETING seconds all registered gateways are waited for, or any gateway if none
        is registered; later only those that can be reached, for MOST_GREETING seconds in all.
        """
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

        is_early: whether it is too early to give up gateways that cannot be reached.
        """
        registered = [gateway for gateway in self._roster.all.values() if gateway.registered]
        if not registered:
            return is_early
        absent = []
        for gateway in registered:
            if gateway.here is None and not gateway.is_ignored:
                absent.append(gateway)
        if is_early:
            return bool(absent)
        return any(gateway.reachable for gateway in absent)

    def _compare_accounts(self, name: str, here: Here) -> None:
        """Warn if a gateway's counts have disclosed more than this store knows.

        That may be if the store is new, or a copy. name: that of the gateway. here: its message
        about itself, with the privacy loss by its own account.
        """
        site_bound = Bound.read(here.toward_server)
        if site_bound is None:
            site_bound = Bound(0)  # for the default delta and share of honest devices
        delta = site_bound.delta
        disclosures = self._tables.disclosures_of(name)
        ours = disclosures.largest_loss(delta, site_bound.honest).epsilon
        theirs = here.told / MICRO
        if theirs > _MORE_THAN_ROUNDING * ours:
            self._warn(
                f"gateway {name} says that its counts have told epsilon {theirs:.4g} at delta "
                f"{delta:g}, and this store knows of {ours:.4g}: it may refuse rounds that this "
                "host expects to fit"
            )

    # Messages of gateways

    def _receive(self, timeout: float, round_: RoundAtGateways | None) -> None:
        """Act on the messages of gateways that arrive within `timeout` seconds.

        round_: the round under way; None if there is none.
        """
        for reply in self._post.receive(timeout):
            gateway = self._roster.all.get(reply.site)
            if gateway is not None:
                self._take_reply(gateway, reply, round_, time.monotonic())

    def _take_reply(
        self, gateway: KnownGateway, reply: Reply, round_: RoundAtGateways | None, now: float
    ) -> None:
        """Decode a gateway's reply and act on it; after a failure the gateway is asked again later.

        round_: the round under way; None if there is none. now: the time of the monotonic clock.
        """
        if reply.payload is None:
            self._roster.note_failure(gateway, reply.error, now)
            return
        try:
            message = messages.decode(reply.payload)
        except MessageError as error:
            self._roster.note_failure(gateway, str(error), now)
            return

        if isinstance(message, (Answer, Refused)):
            gateway.unanswered = 0
        # A message about progress shows life only if there are more reports (_take_progress).
        if not isinstance(message, Still):
            self._roster.note_message(gateway, now)
        self._take(gateway, message, round_, now)

    def _take(
        self,
        gateway: KnownGateway,
        message: messages.Message,
        round_: RoundAtGateways | None,
        now: float,
    ) -> None:
        """Act on a gateway's message; one that nobody waits for is ignored.

        round_: the round under way; None if there is none. now: the time of the monotonic clock.
        """
        is_drawing = self._drawing is not None and self._drawing.was_asked(gateway.name)
        if isinstance(message, Here):
            is_strict = self._meeting and not self._standing
            self._roster.admit(gateway, message, now, strict=is_strict)
        elif isinstance(message, Taken):
            self._took_model.add(gateway.name)
        elif self._drawing is not None and is_drawing:
            self._drawing.take(gateway.name, message)
        elif round_ is not None and gateway.name in round_.outstanding:
            self._take_of_round(gateway, message, round_, now)

    def _take_of_round(
        self, gateway: KnownGateway, message: messages.Message, round_: RoundAtGateways, now: float
    ) -> None:
        """Act on a message of a gateway whose answer the round under way needs.

        It may be the gateway's progress, answer or refusal. Messages of other kinds, or about other
        rounds, are ignored. now: the time of the monotonic clock.
        """
        if isinstance(message, Still) and message.number == round_.number:
            self._take_progress(gateway, message, round_, now)
        elif isinstance(message, Answer) and message.number == round_.number:
            self._take_answer(gateway, message, round_)
        elif isinstance(message, Refused) and message.number in (NO_ROUND, round_.number):
            self._take_refusal(gateway, message, round_)

    def _take_progress(
        self, gateway: KnownGateway, still: Still, round_: RoundAtGateways, now: float
    ) -> None:
        """Store how many reports a gateway has so far, and have it asked again at once.

        It may keep the next question twice as long before it replies. still: the gateway's message.
        """
        # No gateway can have more reports than devices.
        reports = min(still.reports, round_.asks[gateway.name].asked)
        reports_before = round_.under_way.get(gateway.name, 0)
        if reports != reports_before:
            self._tables.save_progress(round_.number, gateway.name, reports)
            self._roster.note_message(gateway, now)
        round_.under_way[gateway.name] = reports
        gateway.next_send = now
        gateway.hold = min(2 * gateway.hold, MOST_HOLD)

    def _take_answer(self, gateway: KnownGateway, answer: Answer, round_: RoundAtGateways) -> None:
        """Check an answer, store it with what it discloses, and count it.

        If it is wrong, it does not count, and the round goes on without the gateway.
        """
        name, number = gateway.name, round_.number
        try:
            by_cohort = check_answer(answer, round_.asks[name])
        except MessageError as error:
            self._go_on_without(gateway, round_, f"does not get its answer counted: {error}")
            return

        # Until now the store assumed a report of every device. Each report hides among fewer if
        # some are missing, and a cohort without a report discloses nothing.
        expected = self._tables.disclosed_in_round(number, name)
        disclosed = []
        for (report, devices), reports in zip(expected, answer.reports, strict=True):
            if reports > 0:
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
        """Let the round go on without a gateway that refuses it, whose counts disclose nothing."""
        why = f"refuses: {refused.message}"
        if refused.hint:
            why += f" ({refused.hint})"
        self._go_on_without(gateway, round_, why)
        nothing: CohortReports = ()
        self._tables.save_disclosed(round_.number, gateway.name, nothing)
        round_.refused[gateway.name] = refused
        # It may refuse since its devices have changed, so it is asked about itself.
        self._post.send(gateway.name, Hello().encode())

    def _go_on_without(self, gateway: KnownGateway, round_: RoundAtGateways, why: str) -> None:
        """Wait no longer for a gateway in this round, and warn, once for each reason.

        why: the reason, a phrase of which the gateway is the subject.
        """
        if why != gateway.last_problem:
            gateway.last_problem = why
            text = f"round {round_.number}: gateway {gateway.name} {why}"
            self._warn(f"{text}; the round goes on without it")
        round_.give_up(gateway.name)

    def _ask_until_answered(
        self, payloads: Mapping[str, bytes], missing: Callable[[], set[str]], seconds: float
    ) -> None:
        """Send each of these gateways its message, and repeat it until all of them have answered.

        payloads: the message to each gateway, by its name. missing: returns the names of gateways
        that have not answered yet. seconds: after how long it gives up.
        """
        end = time.monotonic() + seconds
        for name in payloads:
            self._roster.all[name].next_send = 0.0  # at once
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
        """The devices of each gateway, by name; in a served fleet, only of those that answer."""
        if self._standing:
            self._roster.look(time.monotonic())
        devices = {}
        for gateway, _ in self._roster.present:
            is_absent = self._standing and gateway.left_out
            if not is_absent:
                devices[gateway.name] = gateway.devices
        return devices

    @property
    def devices(self) -> Integers:
        """The ids of the devices of all gateways that answer, ascending."""
        no_devices = integers(())  # for a fleet without gateways: NumPy joins at least one array
        return np.sort(np.concatenate([no_devices, *self.sites.values()]))

    @property
    def status(self) -> FleetStatus:
        """How many boards the gateways that answer have, and whether any gateway answers.

        The number is None if no gateway knows how many boards it has.
        """
        is_connected = False
        boards = []
        for gateway, here in self._roster.present:
            if gateway.reported_gone:
                continue
            is_connected = True
            if here.boards is not None:
                boards.append(here.boards)
        connection_works = not self._roster.condition
        return FleetStatus(
            boards=sum(boards) if boards else None,
            connected=is_connected and connection_works,
        )

    @property
    def budgets(self) -> list[BoardBudget]:
        """The budgets that boards report for their devices, as far as gateways know them."""
        budgets: list[BoardBudget] = []
        for gateway, here in self._roster.present:
            budgets += budgets_of(gateway.devices, here.budgets)
        return budgets

    # Which rounds, and of which devices

    def resume(self) -> list[int]:
        """Take up the open rounds of this run in the store; return their numbers.

        Raises StorageError for a round that another version has begun.
        """
        now = time.monotonic()
        for stored in self._store.open_rounds():
            # A driver without a run, and a round without one, go with any other.
            both_have_a_run = self._run is not None and stored.run is not None
            if both_have_a_run and stored.run != self._run:
                continue
            exchanges = self._tables.messages(stored.number)
            try:
                round_ = RoundAtGateways.stored(stored, exchanges, now)
            except MessageError as error:
                text = f"round {stored.number} was begun by another version: {error}"
                hint = "finish it with that version, or abandon it with --anew"
                raise StorageError(text, hint) from error
            for name in round_.outstanding:
                if name not in self._roster.all:
                    self._roster.all[name] = KnownGateway(name)
            self._rounds[stored.number] = round_
        return sorted(self._rounds)

    def next_round(self, planned: int) -> int:
        """Return the number for a new round, from `planned` on.

        It is above all numbers that this store or a gateway has used. Warns if gateways were asked
        rounds that this store does not know.
        """
        ours = last_number(self._store)
        theirs = self._roster.last_credible_round()
        if theirs > ours:
            self._warn(
                f"gateways were asked round {theirs}, but this store knows of none after {ours}: if "
                "it is new, or was restored from a copy, it does not count what those rounds cost "
                "their devices"
            )
        return max(planned, ours + 1, theirs + 1)

    def drawn(self, number: int, cohorts: Cohorts, pools: Sequence[Devices]) -> Cohorts:
        """Have gateways draw the devices of a round where a bound reckons with dishonest devices.

        Otherwise a host could ask only its own devices and a victim. Returns the cohorts with the
        groups that were drawn. If a gateway draws none in time, its devices stay as the host has
        chosen them.

        number: that of the round. cohorts: the questions, each with the devices that the host has
        chosen. pools: for each cohort, the devices from which its group is drawn.
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

        if not self._drawn:  # no gateway has drawn a group
            return cohorts
        return self._drawn.replace_devices(cohorts, self.devices, self.sites)

    def _may_be_dishonest(self, name: str) -> bool:
        """Whether a bound assumes that some devices of a gateway may be dishonest.

        name: that of the gateway. There may be two bounds, that of the run and that of the site.
        """
        site_bound = None
        here = self._roster.all[name].here
        if here is not None:
            site_bound = Bound.read(here.toward_server)
        return any(bound is not None and bound.honest < 1 for bound in (self._bound, site_bound))

    # A round

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Store a round with its questions to gateways, before any gateway is asked.

        Gateways with which the round would break the run's bound are left out. cohorts: the
        questions, each with the ids of the devices that get it. Raises UsageError if a device is
        asked twice, and RefusedError if no gateway is left.
        """
        round_ = self._new_round(number, cohorts)
        asks = self._questions(round_, cohorts)
        # By gateway, what its counts disclose. Until it answers, every device is taken to report.
        disclosed: dict[str, CohortReports] = {}
        for name, ask in asks.items():
            disclosed[name] = reports_of(ask.cohorts, self._groups(name, ask))

        if self._bound:
            for name in self._gateways_with_spent_bound(number, disclosed):
                del asks[name]
                del disclosed[name]
            bound_fields = self._bound.fields
            for name, ask in asks.items():
                asks[name] = replace(ask, toward_server=bound_fields)

        under_way = RoundAtGateways(round_, asks, time.monotonic())
        questions = {name: under_way.exchange(name) for name in asks}
        with self._store.transaction():
            self._store.open_round(round_)
            self._tables.save_questions(number, questions)
            for name, round_reports in disclosed.items():
                self._tables.save_disclosed(number, name, round_reports)
        self._rounds[number] = under_way

    def _new_round(self, number: int, cohorts: Cohorts) -> StoredRound:
        """Return the round in the form of the store. Raises UsageError if a device is in it twice.

        cohorts: the questions, each with the ids of the devices that get it.
        """
        stored_cohorts = []
        for question, devices in cohorts:
            stored_cohorts.append(StoredCohort(round_body(number, question), integers(devices)))
        number_of_devices = _require_distinct_devices(stored_cohorts)
        return StoredRound(
            number=number,
            cohorts=stored_cohorts,
            quorum=self.terms.reports(number_of_devices),
            deadline=self.terms.deadline,
            run=self._run,
        )

    def _questions(self, round_: StoredRound, cohorts: Cohorts) -> dict[str, Ask]:
        """Return the question to each gateway that has devices in the round, by name.

        A gateway adds up the reports of its devices, unless the run wants the report of each single
        device (`individual`). Then the question has to say, for each cohort, of how many categories
        devices report one. The question also says when the gateway has to answer: once the round
        ends, by the run's quorum and deadline (`terms`).

        cohorts: the questions of the round, each with the ids of the devices that get it.
        """
        devices_by_gateway = {}
        for gateway in self._roster.all.values():
            if len(gateway.devices):
                devices_by_gateway[gateway.name] = gateway.devices
        categories = None
        if self.individual:
            categories = [question.categories for question, _ in cohorts]
        return questions_by_gateway(round_, devices_by_gateway, self.terms, categories)

    def _groups(self, name: str, ask: Ask) -> list[Group]:
        """Return, for each cohort of a question, the group of devices that it was taken from.

        The privacy account needs it. name: that of the gateway that gets the question.
        """
        gateway = self._roster.all[name]
        registered = len(gateway.devices)
        if gateway.here is not None:
            registered = max(registered, gateway.here.registered)
        return self._drawn.groups_in(ask, name, registered)

    def _gateways_with_spent_bound(
        self, number: int, disclosed: Mapping[str, CohortReports]
    ) -> list[str]:
        """Return the gateways that are not asked, since earlier rounds have spent their bound.

        A gateway that has too few devices even for this round alone is asked, and refuses. number:
        that of the round. disclosed: by gateway, the reports of the round. Raises RefusedError if
        no gateway is left.
        """
        assert self._bound
        spent: list[str] = []
        for name, round_reports in disclosed.items():
            earlier = self._tables.disclosures_of(name)
            why = self._bound.why_refused_after_earlier_rounds(earlier, round_reports)
            if not why:
                continue
            spent.append(name)
            text = f"round {number}: gateway {name} is left out: {why}"
            if len(spent) == len(disclosed):
                raise RefusedError(text, hint=MORE)
            gateway = self._roster.all[name]
            if why != gateway.last_problem:  # warn once for each reason
                gateway.last_problem = why
                self._warn(text)
        return spent

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Ask the gateways until the round has ended; return its result, or None after `stop`.

        number: that of a round that was opened or resumed. on_progress: is called whenever there
        are more reports. Raises AllRefused if all devices or gateways refuse, and DeviceError if no
        gateway answers any more.
        """
        round_ = self._rounds[number]
        self._begin(round_, time.monotonic())
        last_reports: int | None = None  # the number at the last call of on_progress
        while not self.stopped:
            now = time.monotonic()
            self._ask_outstanding(round_, now)
            self._leave_out_silent(round_, now)
            ended = self._ended(round_)
            if ended:
                return self._end(round_, ended)
            self._receive(_TICK, round_)
            if round_.so_far != last_reports:
                last_reports = round_.so_far
                on_progress(RoundProgress(number, last_reports, round_.asked))
        return None

    def _begin(self, round_: RoundAtGateways, now: float) -> None:
        """Start the clocks of a round, and warn of devices that no gateway has.

        now: of the monotonic clock, in seconds. A gateway may keep a question for `hold` seconds
        before it replies; its silence is counted from the beginning of the round at the earliest.
        """
        round_.begun = now
        for gateway in self._roster.all.values():
            gateway.hold = HOLD
            gateway.next_send = now
            gateway.heard = max(gateway.heard, now)
        devices_at_gateways = sum(ask.asked for ask in round_.asks.values())
        unreached = round_.asked - devices_at_gateways
        if unreached:
            devices = counted(unreached, "device")
            self._warn(f"round {round_.number}: no gateway is asked for {devices}")

    def _ask_outstanding(self, round_: RoundAtGateways, now: float) -> None:
        """Send the question to the gateways that have not answered, as often as each needs it.

        Gateways that have no part in the round, or have answered, are asked about themselves.
        """
        self._roster.look(now)
        self._roster.greet(now, besides=frozenset(round_.outstanding))
        for name in sorted(round_.outstanding):
            gateway = self._roster.all[name]
            question = replace(round_.asks[name], hold=gateway.hold)
            self._roster.send(gateway, question.encode(), now, gateway.hold)

    def _leave_out_silent(self, round_: RoundAtGateways, now: float) -> None:
        """Leave out the gateways that have been silent for too long, with a warning for each."""
        for name in sorted(round_.outstanding):
            gateway = self._roster.all[name]
            if gateway.left_out or now <= self._latest_answer(round_, gateway):
                continue
            gateway.left_out = True
            gateway.reported_gone = True
            gateway.unanswered += 1
            self._tables.gateway_gone(name)
            devices = counted(round_.asks[name].asked, "device")
            self._warn(
                f"round {round_.number}: gateway {name} has not answered, and is left out with its "
                f"{devices} until it answers again"
            )

    def _latest_answer(self, round_: RoundAtGateways, gateway: KnownGateway) -> float:
        """Return when the wait for a gateway's answer ends, as a time of the monotonic clock.

        That is GRACE seconds after the deadline of the round, by which the gateway itself ends its
        part; without a deadline, GRACE seconds after its last message.
        """
        if self.terms.deadline is None:
            return gateway.heard + GRACE
        return round_.begun + self.terms.deadline + GRACE

    def _ended(self, round_: RoundAtGateways) -> str | None:
        """Return how the round has ended (COMPLETE, QUORUM or DEADLINE), or None if it goes on.

        It does not wait for gateways that were left out. If it ends without the answer of one of
        them, it has met its deadline, unless it has the reports that it needs (its quorum).
        """
        waiting = [gateway.name for gateway in self._roster.all.values() if not gateway.left_out]
        ended = round_.ended(waiting)
        some_are_missing = bool(round_.outstanding)
        if ended and ended != QUORUM and some_are_missing:
            return DEADLINE
        return ended

    def _end(self, round_: RoundAtGateways, ended: str) -> RoundResult:
        """Return the result of a round that has ended; raise an error if a run cannot go on.

        ended: how, such as COMPLETE.

        If nobody has reported, the first of these errors that applies is raised: AllRefused if
        devices have refused; GatewaysRefuse, an AllRefused, if gateways have; DeviceError if no
        gateway answers any more, unless the run serves its fleet for ever and waits for them.
        """
        del self._rounds[round_.number]
        result = round_.result(ended)
        # Gateways check the frames of their devices, so that none with a wrong key comes here.
        self._refusals.check(result, forged=0)  # raises AllRefused, or warns
        if result.reports:
            return result

        if round_.refused:
            first_name, reason = next(iter(round_.refused.items()))
            raise GatewaysRefuse(result, first_name, reason)
        all_are_left_out = all(gateway.left_out for gateway in self._roster.all.values())
        if all_are_left_out and not self._standing:
            hint = (
                "check the gateways, then go on with 'tern resume': every accepted answer is safe"
            )
            raise DeviceError("no gateway answers any more", hint)
        return result

    # Beside rounds

    def publish(self, averaged: Averaged) -> None:
        """Store the model, and send it to the gateways that answer, for their devices.

        Waits until all of them have accepted it, up to _PUBLISHING seconds, and warns of the others.
        """
        kept_model.keep(self._store, averaged)
        self._took_model.clear()
        connected = set()
        for gateway, _ in self._roster.present:
            if not gateway.reported_gone:
                connected.add(gateway.name)

        payloads = dict.fromkeys(connected, Model(averaged).encode())
        self._ask_until_answered(
            payloads, missing=lambda: connected - self._took_model, seconds=_PUBLISHING
        )
        for name in sorted(connected - self._took_model):
            text = f"gateway {name} has not taken the model: its devices may have an earlier one"
            self._warn(text)

    def wait(self, seconds: float) -> None:
        """Act on messages of gateways between two rounds, for so many seconds or until `stop`."""
        end = time.monotonic() + seconds
        while not self.stopped:
            now = time.monotonic()
            if now >= end:
                return
            self._roster.look(now)
            self._roster.greet(now)
            self._receive(min(_TICK, end - now), None)

    def stop(self) -> None:
        """Have the other methods return soon. For another thread, or a signal handler."""
        super().stop()
        self._post.stop()


def _require_distinct_devices(cohorts: Sequence[StoredCohort]) -> int:
    """Return the number of devices of these cohorts.

    Raises UsageError if there is no cohort, if one has no device, or if a device is in two.
    """
    no_devices = integers(())  # for a round without cohorts: NumPy joins at least one array
    cohort_devices = [integers(cohort.devices) for cohort in cohorts]
    devices = np.concatenate([no_devices, *cohort_devices])
    every_cohort_has_devices = all(len(ids) for ids in cohort_devices)
    has_duplicates = len(distinct([devices])) < len(devices)
    if not len(devices) or not every_cohort_has_devices or has_duplicates:
        raise UsageError("a round must ask at least one device, and none twice")
    return len(devices)
