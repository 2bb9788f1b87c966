"""Rounds for the whole fleet: clients pause between two payments, whether or not there is memory."""

import scratch
import small_board
from checks import no_memory, replaced
from small_board import ask_all, error_of, provision, put_fleet, round_frame

from tern import policy, storage, wire
from tern.client import Client

FLEET_KEY = bytes(range(100, 132))
PAUSE = 60  # s
STARTED = 1000  # ms


class Fleet:
    """A board of two clients, 7 and 8, that pause for PAUSE, by a clock of the test (ms)."""

    def __init__(self):
        folder = scratch.folder()
        self.board = provision(folder, clients=2)
        put_fleet(folder, FLEET_KEY, pause=PAUSE)
        self.now = STARTED
        self.start()

    def start(self):
        self.client = Client(self.board)

    def ask(self, number):
        """The answers of both clients to a round for the fleet."""
        return self.answers_to(announcement(number))

    def answers_to(self, frame):
        difference = replaced(policy, ticks_diff=lambda later, earlier: later - earlier)
        with difference:
            return ask_all(self.client, frame, self.now)

    def ask_after_the_pause(self, number):
        """The answers after a first question, with which the board's clock begins, and a pause."""
        self.ask(number)
        self.now += 1000 * PAUSE
        return self.ask(number)


def announcement(number):
    return round_frame(number, small_board.THREE, device=wire.FLEET, key=FLEET_KEY)


def too_soon(seconds):
    return wire.ERR_TOO_SOON, seconds


def test_a_client_still_pauses_when_memory_runs_out():
    # After a report (or the start) a client refuses questions for some seconds, so that a host
    # cannot ask fast. If memory runs out while the list of these pauses is made, they still hold,
    # for a ROUND to one device and for one to the fleet.
    class Starved(storage.Clients):
        @property
        def count(self):  # what the list of pauses takes its length from
            self.close()
            no_memory()

        @count.setter
        def count(self, _):
            pass

    for frame in (round_frame(1, small_board.THREE), announcement(1)):
        fleet = Fleet()
        with replaced(storage, Clients=Starved):
            (error,) = fleet.answers_to(frame)
        assert error[0] == wire.ERROR

        (error, *_) = fleet.answers_to(frame)
        assert error_of(error)[0] == wire.ERR_TOO_SOON


def test_every_client_pauses_from_the_start_of_its_board():
    # A board holds two clients, devices 7 and 8. Each refuses rounds for PAUSE = 60 s from the
    # start, or a host could have it reset to ask sooner.
    fleet = Fleet()
    for device, error in zip((7, 8), fleet.ask(1)):
        assert error_of(error, device) == too_soon(PAUSE)
    fleet.now += 59_001
    error, _ = fleet.ask(1)
    assert error_of(error) == too_soon(1), "a second that has begun counts"
    fleet.now += 999
    assert [answer[0] for answer in fleet.ask(1)] == [wire.REPORT] * 2


def test_a_report_that_is_paid_for_is_sent_again_within_the_pause():
    fleet = Fleet()
    reports = fleet.ask_after_the_pause(1)
    fleet.now += 1
    assert fleet.ask(1) == reports


def test_each_client_pauses_from_its_own_payment():
    # Two clients of a board, devices 7 and 8, pay at different times for a report from their
    # privacy budgets; each then pauses for 60 s.
    fleet = Fleet()
    fleet.ask(1)
    fleet.now += 1000 * PAUSE  # ms: the pause after the start is over
    fleet.answers_to(round_frame(1, small_board.THREE))  # device 7 alone
    fleet.now += 30_000
    fleet.ask(1)  # device 8 pays 30 s later
    fleet.now += 30_000
    one, other = fleet.ask(2)
    assert one[0] == wire.REPORT
    assert error_of(other, 8) == too_soon(30)


def test_a_client_pauses_again_after_a_restart():
    fleet = Fleet()
    fleet.ask_after_the_pause(1)
    fleet.now += 1000 * PAUSE
    fleet.start()
    error, _ = fleet.ask(2)
    assert error_of(error) == too_soon(PAUSE)


def test_a_refusal_does_not_tell_how_long_the_work_took():
    """A host that asks again and again would else bisect the work, and with it the number of
    records, to a ms.
    """
    # Two reports take 0, 3 or 400 ms each to compute. Asked again a fixed time after the question
    # came, the board refuses (or answers) alike in the three cases.
    for asked_ms in (1_000, 59_400, 59_999, 60_000):
        refusals = []
        for work_ms in (0, 3, 400):
            fleet = Fleet()
            fleet.ask(1)
            fleet.now += 1000 * PAUSE
            came = fleet.now
            gradients = fleet.client.report.answerers.gradients
            gradient = gradients.values

            def slow_values(*arguments, fleet=fleet, work_ms=work_ms, gradient=gradient):
                fleet.now += work_ms
                return gradient(*arguments)

            gradients.values = slow_values  # each report takes work_ms
            assert [report[0] for report in fleet.ask(2)] == [wire.REPORT] * 2
            fleet.now = came + asked_ms
            refusals.append(reports_or_errors(fleet.ask(3)))
        assert refusals == refusals[:1] * 3, asked_ms


def reports_or_errors(answers):
    """For each client: that it sent a REPORT, or its error."""
    return [
        answer[0] if answer[0] == wire.REPORT else error_of(answer, device)
        for device, answer in zip((7, 8), answers)
    ]
