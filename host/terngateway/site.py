"""A gateway: passes the questions of a host to the devices of its site.

A site is a place with devices of its own, and a gateway is the program there that holds their keys.
Keys and reports never leave its store: a host learns only counts. A question is stored before a
device gets it, and an answer before the host does, so that the same question always gets the same
bytes, and no device spends its privacy budget twice.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, replace

from tern import __version__, wire
from terngateway import dealing, messages
from terngateway.bound import MORE, Bound, CohortReports, reports_of
from terngateway.budgets import rows_of
from terngateway.messages import (
    NO_ROUND,
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
from terngateway.round import answer_to, is_hashed, is_vector
from terngateway.tables import GatewayTables
from ternhost.count.members import Members, integers
from ternhost.count.questions import Averaged, Question, decode_body, question_of
from ternhost.count.rounds import RoundResult
from ternhost.errors import DeviceError, RefusedError, StorageError, TernError
from ternhost.learn.schedule import Terms
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import Driver, RoundProgress, Warn
from ternhost.reach.refusals import AllRefused
from ternhost.store.round_numbers import last_number
from ternhost.store.runs import ABANDONED
from ternhost.store.store import Store

_TICK = 0.1  # seconds between two looks of an idle gateway for a question
_LOOK = 1.0  # seconds between two looks at its own fleet


@dataclass(frozen=True)
class _Outcome:
    """How a round has ended at the gateway.

    reply: the message that the host gets, an answer or a refusal; None if the host has given up the
    round. ended: how the round has ended, for the store, such as COMPLETE or ABANDONED. disclosed:
    what the answer discloses to the host.
    """

    reply: bytes | None
    ended: str
    disclosed: CohortReports = ()


@dataclass(frozen=True)
class GatewaySettings:
    """What a site has decided about its gateway.

    fleet: the kind of the devices, such as "mqtt", which the host is told. single_results: whether
    the host may have the results of single devices, without their ids. silence: seconds without a
    message of a board, after which a round goes on without that board. bound: the limit to what the
    counts of all rounds disclose; None for no limit.
    """

    fleet: str = ""
    single_results: bool = False
    silence: float = Terms.silence
    bound: Bound | None = None


class Gateway:
    """The gateway of a site: replies to the messages of a host, and asks one round at a time.

    Any thread may call `handle`, which waits for the reply. The thread that has opened the store
    calls `run`, which does the work.
    """

    def __init__(
        self,
        store: Store,
        driver: Driver,
        settings: GatewaySettings,
        warn: Warn = lambda message: None,
    ) -> None:
        """Take up the last question in the store, if there is one; `run` then opens the driver.

        store: has the keys and the rounds of the site's devices. driver: asks these devices.
        settings: what the site has decided. warn: is called with the text of each warning. Raises
        StorageError, and MessageError for a store of another version.
        """
        self._store = store
        self._driver = driver
        self._settings = settings
        self._warn = warn

        # Only the thread of the store uses these.
        self._tables = GatewayTables(store)
        self._disclosed = self._tables.disclosures_of("")  # "": this gateway's own counts
        self._epsilon_disclosed = 0  # the privacy loss by _disclosed, in micro-epsilon
        self._registered = 0  # the number of devices of the site
        self._last_refusal = ""  # its reason, so that the same one is not warned of again

        # Several threads use these: all of them are guarded by this condition.
        self._changed = threading.Condition()
        # The last round that was asked for, and the question, answer and progress of that round.
        self._last = last_number(store)
        self._digest = b""  # SHA-256 of its question; b"" if no host has asked it
        self._to_do: Ask | None = None  # the question, until it is answered
        self._answer: bytes | None = None
        self._progress = Still(0)
        # What the host wants beside rounds: models for the devices, and groups drawn at random.
        self._models: dict[bool, Averaged] = {}  # by whether they are limits
        self._deals: list[Deal] = []  # requests for groups that are not drawn yet
        self._dealt: dict[bytes, Dealt | Refused] = {}  # the last drawn groups, by their request
        # The state of the gateway, for the host; None until the driver is open.
        self._here: Here | None = None
        self._account_is_due = True  # whether _epsilon_disclosed lacks rounds of _disclosed
        self._closed = False  # whether `run` has ended

        self._stopped = False  # whether `stop` was called, by any thread or a signal handler
        self._take_up()

    def _take_up(self) -> None:
        """Continue with the question or answer that was stored last, after a restart.

        It is left alone if there was a later round, which the gateway must have asked itself.
        """
        last = self._tables.last_question()
        if last is None:
            return
        number, digest, message = last
        if number < self._last:
            return
        self._last = number
        self._digest = digest
        self._progress = Still(number)
        is_answered = messages.kind_of(message) != messages.ASK
        if is_answered:
            self._answer = message
        else:
            self._to_do = messages.decode_ask(message)

    def ready(self) -> int | None:
        """Wait until the gateway can answer; return the number of its devices.

        Returns None if the gateway has ended before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._here is not None or self._closed)
            if self._here is None:
                return None
            return len(self._here.devices)

    # Messages of a host, in any thread

    def handle(self, payload: bytes) -> bytes:
        """Return the reply to a message of the host.

        Waits for the reply, for about a minute at most. Raises DeviceError while the gateway starts
        or ends.
        """
        try:
            message = messages.decode(payload)
        except MessageError as error:
            hint = "host and gateway must be of the same version of tern"
            return Refused(NO_ROUND, str(error), hint).encode()

        if isinstance(message, Hello):
            return self._who().encode()
        if isinstance(message, Model):
            with self._changed:
                # In place of an earlier one of this sort.
                self._models[message.averaged.is_limits] = message.averaged
            return Taken().encode()
        if isinstance(message, Ask):
            return self._answer_or_progress(message)
        if isinstance(message, Deal):
            return self._groups_or_refusal(message).encode()
        return Refused(NO_ROUND, "a host does not send this to a gateway").encode()

    def _who(self) -> Here:
        """Return the state of the gateway, with the privacy loss by all answers that it has sent.

        Waits until that loss is computed, up to LONGEST_HOLD seconds. Raises DeviceError while the
        gateway starts or ends.
        """

        def is_known_or_closed() -> bool:
            is_known = self._here is not None and not self._account_is_due
            return is_known or self._closed

        with self._changed:
            self._changed.wait_for(is_known_or_closed, timeout=messages.LONGEST_HOLD)
            return self._ready()

    def _ready(self) -> Here:
        """Return the state of the gateway. Raises DeviceError while it starts or ends."""
        if self._here is None or self._closed:
            raise DeviceError("the gateway is not ready")
        return self._here

    def _groups_or_refusal(self, deal: Deal) -> Dealt | Refused:
        """Have the thread of the store draw groups of devices; return them, or why it refuses.

        Raises DeviceError if that takes more than LONGEST_HOLD seconds.
        """
        request = deal.encode()
        with self._changed:
            if self._to_do is not None and deal.number > self._to_do.number:
                # The host goes on with a later round. The thread that draws is free only when this
                # one has ended.
                self._driver.abandon(self._to_do.number)
            self._deals.append(deal)
            self._changed.wait_for(
                lambda: request in self._dealt or self._closed, timeout=messages.LONGEST_HOLD
            )
            if request not in self._dealt:
                raise DeviceError("the gateway is busy")
            return self._dealt[request]

    def _answer_or_progress(self, ask: Ask) -> bytes:
        """Return the answer to a question, or after `ask.hold` seconds the progress of its round.

        A question of a later round ends the present round; one that is not allowed gets a refusal.
        Raises DeviceError while the gateway starts or ends.
        """
        number = ask.number
        with self._changed:
            self._changed.wait_for(
                lambda: self._here is not None or self._closed, timeout=messages.LONGEST_HOLD
            )
            here = self._ready()

            refused = self._objection(ask, here)
            if refused is not None:
                return refused.encode()
            if number > self._last:
                self._begin_round(ask)

            self._changed.wait_for(
                lambda: self._answer is not None or self._last != number or self._closed,
                timeout=ask.hold,
            )
            if self._last != number:
                text = f"round {number} was given up for round {self._last}"
                return Refused(number, text).encode()
            if self._answer is None:
                return self._progress.encode()
            return self._answer

    def _begin_round(self, ask: Ask) -> None:
        """Have the thread of the store ask this question, in place of an earlier one."""
        if self._to_do is not None:
            self._driver.abandon(self._to_do.number)
        self._last = ask.number
        self._digest = ask.digest
        self._to_do = ask
        self._answer = None
        self._progress = Still(ask.number)

    def _objection(self, ask: Ask, here: Here) -> Refused | None:
        """Return why a question is refused, or None if it is allowed.

        The last question was allowed before, so it is not checked again when the host repeats it.
        here: the present state of the gateway.
        """
        refused = self._objection_to_number(ask)
        if refused is not None or ask.number == self._last:
            return refused

        number = ask.number
        if ask.individual:  # single results are wanted
            wants_vectors = any(is_vector(question) for question in _questions(ask))
            if wants_vectors and not self._settings.single_results:
                text = "this gateway does not pass on the results of single devices"
                hint = "use --answer label, or start it with --single-results"
                return Refused(number, text, hint)
            if len(ask.categories) != len(ask.cohorts):
                return Refused(number, "the host does not give the number of categories")

        present = Members(here.devices)
        for cohort in ask.cohorts:
            device_ids = integers(cohort.devices)
            absent_ids = device_ids[present.find(device_ids) < 0]  # find gives -1 for these
            if len(absent_ids):
                text = f"device {absent_ids[0]} is no longer on this gateway"
                return Refused(number, text, "ask the next round")
        return None

    def _objection_to_number(self, ask: Ask) -> Refused | None:
        """Return why the round number of a question is refused, or None if it is allowed.

        The numbers must grow, and each of them has only one question.
        """
        number = ask.number
        if number < self._last:
            text = f"round {number} is before round {self._last}, this gateway's last one"
            return Refused(number, text)
        if number == self._last and ask.digest != self._digest:
            if self._digest:
                text = f"round {number} has another question"
            else:
                text = f"round {number} was asked by the gateway itself"
            return Refused(number, text, "ask the next round")
        if number - self._last > wire.CLIENT_AHEAD:
            # No device answers a round so far ahead. If the gateway accepted the number, it could
            # ask nothing any more, since numbers only grow.
            return Refused(number, f"round {number} is too far after round {self._last}")
        return None

    # Rounds, in the thread of the store

    def run(self) -> None:
        """Answer the messages of the host until `stop` is called.

        Raises TernError if the devices cannot be reached at first, or if the disk fails.
        """
        try:
            self._abandon_earlier_rounds()
            with self._driver as driver:
                # Rounds of before a restart, which the driver has from the store.
                under_way = driver.resume()
                last_look = -_LOOK  # the first look is due at once, as is one after each round
                while not self._stopped:
                    if time.monotonic() - last_look >= _LOOK:
                        self._look()
                        last_look = time.monotonic()
                    self._draw_groups()
                    if self._to_do is None:
                        driver.wait(_TICK)
                    else:
                        self._do(self._to_do, under_way)
                        last_look = -_LOOK
                    under_way = []
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    def _abandon_earlier_rounds(self) -> None:
        """End the open rounds in the store, other than that of the question to be answered."""
        for open_round in self._store.open_rounds():
            if self._to_do is None or open_round.number != self._to_do.number:
                self._store.end_round(open_round.number, ABANDONED)

    def stop(self) -> None:
        """Have `run` return soon; a round under way is taken up at the next start.

        A signal handler may call it, too.
        """
        self._stopped = True
        self._driver.stop()

    def _look(self) -> None:
        """Update the state that the host may ask for, and give devices the newest model.

        The driver talks to the site's devices in this thread; other threads answer the host. They
        share `_here` and `_models`, which are used only while `_changed` is held.
        """
        devices = integers(self._driver.devices)
        boards = self._driver.status.boards
        budgets = rows_of(self._driver.budgets)
        self._registered = max(len(devices), self._store.device_count())
        bound = self._settings.bound
        with self._changed:
            self._here = Here(
                devices=devices,
                last=self._last,
                registered=self._registered,
                fleet=self._settings.fleet,
                version=__version__,
                boards=boards,
                budgets=budgets,
                single_results=self._settings.single_results,
                toward_server=None if bound is None else bound.fields,
                told=self._epsilon_disclosed,  # the privacy loss so far, toward the host
            )
            models = self._models
            self._models = {}
            self._changed.notify_all()

        self._settle_account()
        if not self._store.last_round():  # a model belongs to a round
            return
        for averaged in models.values():
            self._driver.publish(averaged)

    def _settle_account(self) -> None:
        """Compute the privacy loss by all answers so far, unless it is known.

        This may take a second, for which a host that asks for the gateway's state waits.
        """
        if not self._account_is_due:
            return
        # If the site sets no bound, the loss is that at the default delta, with honest devices.
        bound = self._settings.bound or Bound(0)
        epsilon = self._disclosed.largest_loss(bound.delta, bound.honest).epsilon
        self._epsilon_disclosed = min(math.ceil(epsilon * MICRO), messages.MOST_TOLD)
        with self._changed:
            assert self._here is not None  # _look has set it
            self._here = replace(self._here, told=self._epsilon_disclosed)
            self._account_is_due = False
            self._changed.notify_all()

    def _draw_groups(self) -> None:
        """Draw the random groups of devices for which a host has asked, and let it have them.

        The requests come in another thread, which waits until `_changed` tells of the groups.
        """
        with self._changed:
            deals = self._deals
            self._deals = []
        for deal in deals:
            groups = dealing.groups_for(deal, integers(self._driver.devices), self._tables)
            with self._changed:
                self._dealt = {deal.encode(): groups}  # only the newest is kept
                self._changed.notify_all()

    def _do(self, ask: Ask, under_way: list[int]) -> None:
        """Have the devices answer a question, and store the answer before the host gets it.

        under_way: the numbers of rounds that the driver has from before a restart.
        """
        number = ask.number
        self._tables.save_question(number, ask.digest, ask.encode())
        outcome = self._outcome_of(ask, is_under_way=number in under_way)
        if outcome is None:
            return  # stopped: the question is taken up at the next start
        with self._changed:
            is_given_up = self._last != number  # for a later round
        if is_given_up:
            outcome = _Outcome(reply=None, ended=ABANDONED)

        discloses = outcome.reply is not None and outcome.ended != ABANDONED
        with self._store.transaction():
            self._store.end_round(number, outcome.ended)
            if outcome.reply is not None:
                self._tables.save_question(number, ask.digest, outcome.reply)
            if discloses:
                self._tables.save_disclosed(number, "", outcome.disclosed)
                once = [(report, devices, 1) for report, devices in outcome.disclosed]
                self._disclosed = self._disclosed.with_reports(once)

        with self._changed:
            if discloses:
                self._account_is_due = True
            if self._last == number:
                self._to_do = None
                self._answer = outcome.reply
            self._changed.notify_all()

    def _outcome_of(self, ask: Ask, is_under_way: bool) -> _Outcome | None:
        """Have the devices answer a question; return how that ends, or None after `stop`.

        An error becomes a refusal, since no question of a host may end the gateway. Only a disk
        that fails ends it: raises StorageError. is_under_way: whether the round was open before the
        gateway was started again.
        """
        number = ask.number
        try:
            return self._answered(ask, is_under_way)
        except StorageError:
            raise
        except TernError as error:
            if error.message != self._last_refusal:
                self._last_refusal = error.message
                self._warn(f"round {number}: {error.message}")
            refused = Refused(number, error.message, error.hint or "")
        except (ValueError, LookupError, ArithmeticError) as error:
            self._warn(f"round {number}: {type(error).__name__}: {error}")
            refused = Refused(number, f"the gateway cannot ask that: {error}")
        return _Outcome(reply=refused.encode(), ended=ABANDONED)

    def _answered(self, ask: Ask, is_under_way: bool) -> _Outcome | None:
        """Collect the reports of a round, unless their counts would break a bound.

        The bounds are checked twice: before the devices are asked, as if all of them reported, and
        again with the reports that came, since each one hides among fewer of them. Returns None
        after `stop`. is_under_way: as of `_outcome_of`. Raises TernError.
        """
        groups = dealing.groups_of(self._tables, ask.number, list(ask.cohorts), self._registered)
        self._require_bounds_kept(ask, reports_of(ask.cohorts, groups))

        result = self._collect(ask, is_under_way)
        if result is None:
            return None

        reports_by_cohort = [cohort.reports for cohort in result.cohorts]
        disclosed = reports_of(ask.cohorts, groups, reports_by_cohort)
        self._require_bounds_kept(ask, disclosed)
        reply = answer_to(ask, result).encode()
        return _Outcome(reply, ended=result.ended, disclosed=disclosed)

    def _require_bounds_kept(self, ask: Ask, round_reports: CohortReports) -> None:
        """Raise RefusedError if the counts of these reports would break a bound.

        There may be two bounds: that of the site, and that of the run, which the question holds.
        """
        bound_of_run = Bound.read(ask.toward_server)
        for bound in (self._settings.bound, bound_of_run):
            if bound is None:
                continue
            reason = bound.why_refused(self._disclosed, round_reports)
            if reason:
                raise RefusedError(f"held back: {reason}", hint=MORE)

    def _collect(self, ask: Ask, is_under_way: bool) -> RoundResult | None:
        """Have the driver ask the devices; return the result of the round, or None after `stop`.

        is_under_way: whether the driver has the round already, from before a restart. Raises
        TernError.
        """
        driver = self._driver
        number = ask.number
        driver.terms = Terms(ask.quorum, ask.deadline, self._settings.silence)
        questions = _questions(ask)
        counts_do_not_suffice = any(is_vector(each) or is_hashed(each) for each in questions)
        driver.individual = ask.individual and counts_do_not_suffice

        def on_progress(progress: RoundProgress) -> None:
            """Note how many reports came, for a host that asks meanwhile."""
            with self._changed:
                if self._last == number:
                    self._progress = Still(number, progress.reports)

        try:
            if not is_under_way:
                device_sets = [cohort.devices for cohort in ask.cohorts]
                cohorts = list(zip(questions, device_sets, strict=True))
                driver.open(number, cohorts)
            with self._changed:
                if self._last != number:  # the host has begun another round before this was open
                    driver.abandon(number)
            return driver.collect(number, on_progress)
        except AllRefused as error:
            return error.result


def _questions(ask: Ask) -> list[Question]:
    """Return the question to each cohort."""
    return [question_of(decode_body(cohort.body)) for cohort in ask.cohorts]
