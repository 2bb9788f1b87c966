"""A gateway: passes the questions of a host to the devices of its site.

Keys and reports never leave its store: a host learns counts. A question is stored before a device
gets it, and an answer before the host does, so that the same question always gets the same bytes,
and no device pays twice.
"""

import math
import threading
import time
from dataclasses import replace

import numpy as np

from tern import __version__, wire
from terngateway import dealing, messages
from terngateway.bound import MORE, Answered, Bound, reports_of
from terngateway.budgets import rows_of
from terngateway.messages import (
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
        """fleet: its kind, for the host. bound: of the site, for all rounds.

        Raises StorageError, and MessageError for a store of another version.
        """
        self._store = store
        self._driver = driver
        self._fleet = fleet
        self._single_results = single_results
        self._silence = silence
        self._bound = bound
        self._tables = GatewayTables(store)
        self._told = self._tables.told("")
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
        """Wait until it can answer; return the number of its devices, None if it has ended before."""
        with self._changed:
            self._changed.wait_for(lambda: self._here is not None or self._closed)
            return None if self._here is None else len(self._here.devices)

    # Messages of a host, in any thread

    def handle(self, payload: bytes) -> bytes:
        """The reply to a message. Raises DeviceError while the gateway starts or ends."""
        try:
            message = messages.decode(payload)
        except MessageError as error:
            return Refused(
                0, str(error), "host and gateway must be of the same version of tern"
            ).encode()
        if isinstance(message, Hello):
            return self._who().encode()
        if isinstance(message, Model):
            with self._changed:
                self._models = [message.averaged]
            return Taken().encode()
        if isinstance(message, Ask):
            return self._asked(message)
        if isinstance(message, Deal):
            return self._deal(message)
        return Refused(0, "a host does not send this to a gateway").encode()

    def _who(self) -> Here:
        """The state of the gateway, with the account of all answers that it has sent."""
        with self._changed:
            self._changed.wait_for(
                lambda: (self._here is not None and not self._account_is_due) or self._closed,
                messages.LONGEST_HOLD,
            )
            return self._ready()

    def _ready(self) -> Here:
        if self._here is None or self._closed:
            raise DeviceError("the gateway is not ready")
        return self._here

    def _deal(self, deal: Deal) -> bytes:
        with self._changed:
            if self._to_do is not None and deal.number > self._to_do.number:
                self._driver.abandon(self._to_do.number)  # the host goes on with another round
            self._deals.append(deal)
            asked = deal.encode()
            self._changed.wait_for(
                lambda: asked in self._dealt or self._closed, messages.LONGEST_HOLD
            )
            if asked not in self._dealt:
                raise DeviceError("the gateway is busy")
            return self._dealt[asked].encode()

    def _asked(self, ask: Ask) -> bytes:
        with self._changed:
            self._changed.wait_for(
                lambda: self._here is not None or self._closed, messages.LONGEST_HOLD
            )
            here = self._ready()
        with self._changed:
            if refused := self._objection(ask, here):
                return refused.encode()
            if ask.number > self._last:
                if self._to_do is not None:
                    self._driver.abandon(self._to_do.number)
                self._last, self._digest = ask.number, ask.digest
                self._to_do, self._answer = ask, None
                self._progress = Still(ask.number)
            self._changed.wait_for(
                lambda: self._answer is not None or self._last != ask.number or self._closed,
                ask.hold,
            )
            if self._last != ask.number:
                return Refused(
                    ask.number, f"round {ask.number} was given up for round {self._last}"
                ).encode()
            return self._answer or self._progress.encode()

    def _objection(self, ask: Ask, here: Here) -> Refused | None:
        """Why a question is refused, or None; a number without a question can still get one."""
        number = ask.number
        if number < self._last:
            return Refused(
                number, f"round {number} is before round {self._last}, this gateway's last one"
            )
        if number == self._last:
            if ask.digest == self._digest:
                return None
            why = "has another question" if self._digest else "was asked by the gateway itself"
            return Refused(number, f"round {number} {why}", "ask the next round")
        if (
            number - self._last > wire.CLIENT_AHEAD
        ):  # no device would answer it, and numbers only grow
            return Refused(number, f"round {number} is too far after round {self._last}")
        if ask.individual and not self._single_results and any(map(is_vector, _questions(ask))):
            why = "this gateway does not pass on the results of single devices"
            return Refused(number, why, "ask for --answer label, or start it with --single-results")
        if ask.individual and len(ask.categories) != len(ask.cohorts):
            return Refused(number, "the host does not give the number of categories")
        known = Members(here.devices)
        for cohort in ask.cohorts:
            ids = integers(cohort.devices)
            if np.any(strange := known.find(ids) < 0):
                why = f"device {ids[strange][0]} is no longer on this gateway"
                return Refused(number, why, "ask the next round")
        return None

    # Rounds, in the thread of the store

    def run(self) -> None:
        """Answer until `stop`.

        Raises TernError if the fleet cannot be reached at first, or if the disk fails.
        """
        try:
            for asked in self._store.open_rounds():
                if self._to_do is None or asked.number != self._to_do.number:
                    self._store.end_round(asked.number, ABANDONED)
            with self._driver as driver:
                under_way = driver.resume()
                looked = -_LOOK
                while not self._stopped:
                    if time.monotonic() - looked >= _LOOK:
                        self._look()
                        looked = time.monotonic()
                    self._deal_out()
                    if self._to_do is None:
                        driver.wait(_TICK)
                    else:
                        self._do(self._to_do, under_way)
                        looked = -_LOOK
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
        devices = integers(self._driver.devices)
        boards, budgets = self._driver.status.boards, rows_of(self._driver.budgets)
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
        for averaged in models:
            if (
                self._store.last_round()
            ):  # a model belongs to a round: before the first there is none
                self._driver.publish(averaged)

    def _settle_account(self) -> None:
        """Compute what all answers have told, which may take a second; a HELLO waits for it."""
        if not self._account_is_due:
            return
        at = self._bound or Bound(0)
        told = math.ceil(self._told.largest_loss(at.delta, at.honest).epsilon * MICRO)
        self._epsilon_told = min(told, messages.MOST_TOLD)
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
        number = ask.number
        self._tables.save_question(number, ask.digest, ask.encode())
        answer: bytes | None
        ended = ABANDONED
        groups = dealing.groups_of(self._tables, number, list(ask.cohorts), self._registered)
        answered = reports_of(ask.cohorts, groups)
        try:
            self._hold_back(ask, answered)
            result = self._collect(ask, number in under_way)
            if result is not None:
                answered = reports_of(
                    ask.cohorts, groups, [cohort.reports for cohort in result.cohorts]
                )
                self._hold_back(ask, answered)
        except StorageError:
            raise
        except TernError as error:
            if error.message != self._refused:
                self._refused = error.message
                self._warn(f"round {number}: {error.message}")
            answer = Refused(number, error.message, error.hint or "").encode()
        except (ValueError, LookupError, ArithmeticError) as error:  # no question may end a gateway
            self._warn(f"round {number}: {type(error).__name__}: {error}")
            answer = Refused(number, f"the gateway cannot ask that: {error}").encode()
        else:
            if result is None:
                return  # stopped: the question is taken up at the next start
            answer, ended = answer_to(ask, result).encode(), result.ended
        with self._changed:
            if self._last != number:
                answer, ended = None, ABANDONED
        tells = answer is not None and ended != ABANDONED
        with self._store.transaction():
            self._store.end_round(number, ended)
            if answer is not None:
                self._tables.save_question(number, ask.digest, answer)
            if tells:
                self._tables.save_told(number, "", answered)
                self._told = self._told.with_reports((*each, 1) for each in answered)
        with self._changed:
            self._account_is_due |= tells
            if self._last == number:
                self._to_do, self._answer = None, answer
            self._changed.notify_all()

    def _hold_back(self, ask: Ask, answered: Answered) -> None:
        """Raise RefusedError where the counts of these reports would tell the server's owner more
        than a bound.
        """
        for bound in (self._bound, Bound.read(ask.toward_server)):
            if bound and (why := bound.refuses(self._told, answered)):
                raise RefusedError(f"held back: {why}", hint=MORE)

    def _collect(self, ask: Ask, under_way: bool) -> RoundResult | None:
        driver, number = self._driver, ask.number
        driver.terms = Terms(ask.quorum, ask.deadline, self._silence)
        questions = _questions(ask)
        driver.individual = ask.individual and any(
            is_vector(each) or is_hashed(each) for each in questions
        )

        def on_progress(progress: RoundProgress) -> None:
            with self._changed:
                if self._last == number:
                    self._progress = Still(number, progress.reports)

        try:
            if not under_way:
                driver.open(
                    number,
                    list(zip(questions, (part.devices for part in ask.cohorts), strict=True)),
                )
            with self._changed:
                if self._last != number:  # it was superseded before it was open
                    driver.abandon(number)
            return driver.collect(number, on_progress)
        except AllRefused as error:
            return error.result


def _questions(ask: Ask) -> list[Question]:
    return [question_of(decode_body(cohort.body)) for cohort in ask.cohorts]
