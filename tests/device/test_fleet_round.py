"""Rounds for the whole fleet: clients pause between two payments, whether or not there is memory."""

import scratch
import small_board
from checks import no_memory, replaced
from small_board import ask_all, error_of, provision, put_fleet, round_frame

from tern import policy, storage, wire
from tern.client import Client

FLEET_KEY = bytes(range(100, 132))


def client_of(count):
    """A client of a new board with this number of clients, and a pause of 60 s."""
    folder = scratch.folder()
    board = provision(folder, clients=count)
    put_fleet(folder, FLEET_KEY, pause=60)
    return Client(board)


def announcement(number):
    return round_frame(number, small_board.THREE, device=wire.FLEET, key=FLEET_KEY)


def test_a_client_still_pauses_when_memory_runs_out():
    class Starved(storage.Clients):
        @property
        def count(self):  # what the list of pauses takes its length from
            self.close()
            no_memory()

        @count.setter
        def count(self, _):
            pass

    for frame in (round_frame(1, small_board.THREE), announcement(1)):
        client = client_of(1)
        with replaced(storage, Clients=Starved):
            (error,) = ask_all(client, frame)
        assert error[0] == wire.ERROR
        (error,) = ask_all(client, frame)
        assert error_of(error)[0] == wire.ERR_TOO_SOON


def test_a_client_pauses_between_two_payments():
    now = [1000]  # ms
    with replaced(policy, ticks_diff=lambda later, earlier: later - earlier):
        client = client_of(2)
        for device, error in zip((7, 8), ask_all(client, announcement(1), now[0])):
            assert error_of(error, device) == (wire.ERR_TOO_SOON, 60)
        now[0] += 59_001
        assert error_of(ask_all(client, announcement(1), now[0])[0]) == (wire.ERR_TOO_SOON, 1)
        now[0] += 999
        (first,) = ask_all(client, round_frame(1, small_board.THREE), now[0])
        assert first[0] == wire.REPORT
        now[0] += 30_000
        one, other = ask_all(client, announcement(1), now[0])
        assert one == first and other[0] == wire.REPORT, (
            "a report that is paid for may be sent again"
        )
        now[0] += 30_000
        one, other = ask_all(client, announcement(2), now[0])
        assert one[0] == wire.REPORT and error_of(other, 8) == (wire.ERR_TOO_SOON, 30)
        client = Client(client.board)
        assert error_of(ask_all(client, announcement(3), now[0])[0]) == (wire.ERR_TOO_SOON, 60), (
            "started again"
        )


def test_a_refusal_does_not_tell_how_long_the_work_took():
    """A host that asks again and again would else bisect the work, and with it the number of
    records, to a ms.
    """
    for asked_ms in (1_000, 59_400, 59_999, 60_000):
        details = set()
        for work_ms in (0, 3, 400):
            now = [1000]
            with replaced(
                policy,
                ticks_diff=lambda later, earlier: later - earlier,
            ):
                client = client_of(2)
                ask_all(client, announcement(1), now[0])
                now[0] += 60_000
                came = now[0]
                gradients = client.report.answerers.gradients
                gradient = gradients.values

                def values(*arguments, now=now, work_ms=work_ms, gradient=gradient):
                    now[0] += work_ms
                    return gradient(*arguments)

                gradients.values = values
                reports = ask_all(client, announcement(2), now[0])
                assert [report[0] for report in reports] == [wire.REPORT] * 2
                now[0] = came + asked_ms
                answer = ask_all(client, announcement(3), now[0])
                details.add(
                    tuple(
                        one[0] if one[0] == wire.REPORT else error_of(one, 7 + i)
                        for i, one in enumerate(answer)
                    )
                )
        assert len(details) == 1, (asked_ms, details)
