"""A gateway: passes the questions of a host to the devices of its site.

Keys and reports never leave its store: a host learns counts. A question is stored before a device
gets it, and an answer before the host does, so that the same question always gets the same bytes,
and no device pays twice.
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
    """How a round has ended, what the host gets for it, and what that discloses."""

    reply: bytes | None
    ended: str
    disclosed: CohortReports = ()


class Gateway:
    """Asks one round at a time.

    Any thread may call `handle`; `run` is for the thread that has opened the store.
    """

    def __init__(
        self,
        store: Store,
        driver: Driver,
        *,
        fleet: str = "",
        single_results: bool = False,
        silence: float = Terms.silence,
        bound: Bound | None = None,
        warn: Warn = lambda message: None,
    ) -> None:
        """Take up the last question in the store, if there is one; `run` then opens the driver.

        fleet: its kind, which the host is told. single_results: the host may have results of single
        devices. silence: seconds after which a round goes on without a board. bound: of the site,
        for all rounds. Raises StorageError, and MessageError for a store of another version.
        """
        self._store = store
        self._driver = driver
        self._fleet = fleet
        self._single_results = single_results
        self._silence = silence
        self._bound = bound
        self._tables = GatewayTables(store)
        self._told = self._tables.disclosures_of("")
        self._epsilon_told = 0  # micro-epsilon
        self._registered = 0  # devices of the site
        self._refused = ""  # the last reason
        self._warn = warn
        self._changed = threading.Condition()  # guards all below
        self._last = last_number(store)
        self._digest = b""  # of the last question of a host
        self._to_do: Ask | None = None
        self._answer: bytes | None = None
        self._progress = Still(0)
        self._models: list[Averaged] = []
        self._deals: list[Deal] = []  # that are not dealt yet
        self._dealt: dict[bytes, Dealt | Refused] = {}  # by the last message that asked for it
        self._here: Here | None = None
        self._account_is_due = True  # whether _epsilon_told is of fewer rounds than _told
        self._stopped = False
        self._closed = False
        self._take_up()

    def _take_up(self) -> None:
        """Continue with the last question or answer in the store, if no later round was asked."""
        last = self._tables.last_question()
        if last is None or last[0] < self._last:
            return
        self._last, self._digest, message = last
        self._progress = Still(self._last)
        if messages.kind_of(message) == messages.ASK:
            self._to_do = messages.decode_ask(message)
        else:
            self._answer = message

    def ready(self) -> int | None:
        """Wait until the gateway can answer; return the number of its devices.

        Returns None if the gateway has ended before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._here is not None or self._closed)
            return None if self._here is None else len(self._here.devices)

    # Messages of a host, in any thread

    def handle(self, payload: bytes) -> bytes:
        """The reply to a message. Raises DeviceError while the gateway starts or ends."""
        try:
            message = messages.decode(payload)
        except MessageError as error:
            hint = "host and gateway must be of the same version of tern"
            return Refused(NO_ROUND, str(error), hint).encode()
        if isinstance(message, Hello):
            return self._who().encode()
        if isinstance(message, Model):
            with self._changed:
                self._models = [message.averaged]
            return Taken().encode()
        if isinstance(message, Ask):
            return self._answer_or_progress(message)
        if isinstance(message, Deal):
            return self._deal(message)
        return Refused(NO_ROUND, "a host does not send this to a gateway").encode()

    def _who(self) -> Here:
        """The state of the gateway, with the account of all answers that it has sent."""
        with self._changed:
            self._changed.wait_for(
                lambda: (self._here is not None and not self._account_is_due) or self._closed,
                messages.LONGEST_HOLD,
            )
            return self._ready()

    def _ready(self) -> Here:
        """Return the state of the gateway. Raises DeviceError while it starts or ends."""
        if self._here is None or self._closed:
            raise DeviceError("the gateway is not ready")
        return self._here

    def _deal(self, deal: Deal) -> bytes:
        """Return the groups that the thread of the store draws, or its refusal.

        Raises DeviceError if these take too long.
        """
        with self._changed:
            if self._to_do is not None and deal.number > self._to_do.number:
                self._driver.abandon(self._to_do.number)  # the host goes on with another round
            self._deals.append(deal)
            request = deal.encode()
            self._changed.wait_for(
                lambda: request in self._dealt or self._closed, messages.LONGEST_HOLD
            )
            if request not in self._dealt:
                raise DeviceError("the gateway is busy")
            return self._dealt[request].encode()

    def _answer_or_progress(self, ask: Ask) -> bytes:
        """Return the answer to a question, or after `ask.hold` seconds the progress of its round.

        A new question ends the round of an earlier one. Raises DeviceError while the gateway starts
        or ends.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._here is not None or self._closed, messages.LONGEST_HOLD
            )
            here = self._ready()
        with self._changed:
            refused = self._objection(ask, here)
            if refused is not None:
                return refused.encode()
            if ask.number > self._last:
                self._begin_round(ask)
            self._changed.wait_for(
                lambda: self._answer is not None or self._last != ask.number or self._closed,
                ask.hold,
            )
            if self._last != ask.number:
                text = f"round {ask.number} was given up for round {self._last}"
                return Refused(ask.number, text).encode()
            if self._answer is None:
                return self._progress.encode()
            return self._answer

    def _begin_round(self, ask: Ask) -> None:
        """Have the thread of the store ask this question, instead of an earlier one."""
        if self._to_do is not None:
            self._driver.abandon(self._to_do.number)
        self._last = ask.number
        self._digest = ask.digest
        self._to_do = ask
        self._answer = None
        self._progress = Still(ask.number)

    def _objection(self, ask: Ask, here: Here) -> Refused | None:
        """Return why a question is refused, or None; the last question is answered in any case."""
        refused = self._objection_to_number(ask)
        if refused is not None or ask.number == self._last:
            return refused
        number = ask.number
        if ask.individual and not self._single_results and any(map(is_vector, _questions(ask))):
            why = "this gateway does not pass on the results of single devices"
            return Refused(number, why, "ask for --answer label, or start it with --single-results")
        if ask.individual and len(ask.categories) != len(ask.cohorts):
            return Refused(number, "the host does not give the number of categories")
        known = Members(here.devices)
        for cohort in ask.cohorts:
            ids = integers(cohort.devices)
            gone = ids[known.find(ids) < 0]
            if len(gone):
                why = f"device {gone[0]} is no longer on this gateway"
                return Refused(number, why, "ask the next round")
        return None

    def _objection_to_number(self, ask: Ask) -> Refused | None:
        """Return why the round number of a question is refused, or None.

        Numbers grow, and each of them has one question.
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
            # No device would answer it, and numbers only grow.
            return Refused(number, f"round {number} is too far after round {self._last}")
        return None

    # Rounds, in the thread of the store

    def run(self) -> None:
        """Answer until `stop`.

        Raises TernError if the fleet cannot be reached at first, or if the disk fails.
        """
        try:
            for open_round in self._store.open_rounds():
                if self._to_do is None or open_round.number != self._to_do.number:
                    self._store.end_round(open_round.number, ABANDONED)
            with self._driver as driver:
                under_way = driver.resume()
                last_look = -_LOOK  # the first look is due at once, as is one after each round
                while not self._stopped:
                    if time.monotonic() - last_look >= _LOOK:
                        self._look()
                        last_look = time.monotonic()
                    self._deal_out()
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

    def stop(self) -> None:
        """Have `run` return soon; a round under way is taken up at the next start.

        Safe in a signal handler.
        """
        self._stopped = True
        self._driver.stop()

    def _look(self) -> None:
        """Update the state that a HELLO gets, and give devices the models that the host has sent."""
        devices = integers(self._driver.devices)
        boards = self._driver.status.boards
        budgets = rows_of(self._driver.budgets)
        self._registered = max(len(devices), self._store.device_count())
        with self._changed:
            self._here = Here(
                devices=devices,
                last=self._last,
                registered=self._registered,
                fleet=self._fleet,
                version=__version__,
                boards=boards,
                budgets=budgets,
                single_results=self._single_results,
                toward_server=None if self._bound is None else self._bound.fields,
                told=self._epsilon_told,
            )
            models, self._models = self._models, []
            self._changed.notify_all()
        self._settle_account()
        if not self._store.last_round():  # a model belongs to a round
            return
        for averaged in models:
            self._driver.publish(averaged)

    def _settle_account(self) -> None:
        """Compute what all answers have disclosed, unless it is known; a HELLO waits for it.

        This may take a second.
        """
        if not self._account_is_due:
            return
        # Without a bound of the site, its account is at the default delta, with honest devices.
        bound = self._bound or Bound(0)
        epsilon = self._told.largest_loss(bound.delta, bound.honest).epsilon
        self._epsilon_told = min(math.ceil(epsilon * MICRO), messages.MOST_TOLD)
        with self._changed:
            assert self._here is not None
            self._here = replace(self._here, told=self._epsilon_told)
            self._account_is_due = False
            self._changed.notify_all()

    def _deal_out(self) -> None:
        """Draw the groups that a host has asked for."""
        with self._changed:
            deals, self._deals = self._deals, []
        for deal in deals:
            drawn = dealing.dealt(self._tables, deal, integers(self._driver.devices))
            with self._changed:
                self._dealt = {deal.encode(): drawn}
                self._changed.notify_all()

    def _do(self, ask: Ask, under_way: list[int]) -> None:
        """Have the devices answer a question, and store the answer before the host gets it."""
        number = ask.number
        self._tables.save_question(number, ask.digest, ask.encode())
        outcome = self._outcome_of(ask, is_under_way=number in under_way)
        if outcome is None:
            return  # stopped: the question is taken up at the next start

        with self._changed:
            if self._last != number:  # the host has given it up
                outcome = _Outcome(None, ABANDONED)
        discloses = outcome.reply is not None and outcome.ended != ABANDONED
        with self._store.transaction():
            self._store.end_round(number, outcome.ended)
            if outcome.reply is not None:
                self._tables.save_question(number, ask.digest, outcome.reply)
            if discloses:
                self._tables.save_disclosed(number, "", outcome.disclosed)
                reports = [(report, devices, 1) for report, devices in outcome.disclosed]
                self._told = self._told.with_reports(reports)
        with self._changed:
            self._account_is_due |= discloses
            if self._last == number:
                self._to_do, self._answer = None, outcome.reply
            self._changed.notify_all()

    def _outcome_of(self, ask: Ask, is_under_way: bool) -> _Outcome | None:
        """Return how a round ends, with an answer or a refusal; None after `stop`.

        is_under_way: the round was open before the gateway was started again. No question may end a
        gateway, so that other errors become refusals; a disk that fails does. Raises StorageError.
        """
        number = ask.number
        try:
            return self._answered(ask, is_under_way)
        except StorageError:
            raise
        except TernError as error:
            if error.message != self._refused:
                self._refused = error.message
                self._warn(f"round {number}: {error.message}")
            refused = Refused(number, error.message, error.hint or "")
        except (ValueError, LookupError, ArithmeticError) as error:
            self._warn(f"round {number}: {type(error).__name__}: {error}")
            refused = Refused(number, f"the gateway cannot ask that: {error}")
        return _Outcome(refused.encode(), ABANDONED)

    def _answered(self, ask: Ask, is_under_way: bool) -> _Outcome | None:
        """Collect the reports, unless their counts would break a bound; None after `stop`.

        The bounds are checked before devices are asked, as if all of them reported, and again with
        the reports that came, since each one hides among fewer. Raises TernError.
        """
        groups = dealing.groups_of(self._tables, ask.number, list(ask.cohorts), self._registered)
        self._hold_back(ask, reports_of(ask.cohorts, groups))
        result = self._collect(ask, is_under_way)
        if result is None:
            return None
        reports_by_cohort = [cohort.reports for cohort in result.cohorts]
        disclosed = reports_of(ask.cohorts, groups, reports_by_cohort)
        self._hold_back(ask, disclosed)
        return _Outcome(answer_to(ask, result).encode(), result.ended, disclosed)

    def _hold_back(self, ask: Ask, answered: CohortReports) -> None:
        """Raise RefusedError if the counts of these reports would break the site's or the run's bound."""
        for bound in (self._bound, Bound.read(ask.toward_server)):
            if bound is None:
                continue
            reason = bound.why_refused(self._told, answered)
            if reason:
                raise RefusedError(f"held back: {reason}", hint=MORE)

    def _collect(self, ask: Ask, is_under_way: bool) -> RoundResult | None:
        """Have the driver ask the devices; return the result of the round, or None after `stop`.

        is_under_way: the driver has the round already. Raises TernError.
        """
        driver = self._driver
        number = ask.number
        driver.terms = Terms(ask.quorum, ask.deadline, self._silence)
        questions = _questions(ask)
        needs_single = any(is_vector(each) or is_hashed(each) for each in questions)
        driver.individual = ask.individual and needs_single

        def on_progress(progress: RoundProgress) -> None:
            with self._changed:
                if self._last == number:
                    self._progress = Still(number, progress.reports)

        try:
            if not is_under_way:
                devices = [cohort.devices for cohort in ask.cohorts]
                driver.open(number, list(zip(questions, devices, strict=True)))
            with self._changed:
                if self._last != number:  # the host has begun another round before this was open
                    driver.abandon(number)
            return driver.collect(number, on_progress)
        except AllRefused as error:
            return error.result


def _questions(ask: Ask) -> list[Question]:
    """Return the question to each cohort."""
    return [question_of(decode_body(cohort.body)) for cohort in ask.cohorts]
