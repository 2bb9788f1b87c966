"""After any exception of a board the program goes on: it closes files, counts, pauses longer each
time, and serves.
"""

import scratch
import small_board
from checks import raises, replaced
from fake_link import Link

from tern import client, compat, frames, host_frames, supervisor, wire

EXCEPTIONS = (RuntimeError, MemoryError, ValueError, OSError, TypeError, ImportError)


def round_frame(number):
    return small_board.round_frame(number, small_board.THREE, k=1)


class Clock:
    """Stands in for the supervisor's clock: a pause takes no time, and is recorded in seconds."""

    def __init__(self):
        self.pauses = []
        self.fed = self.ms = 0

    def sleep_ms(self, ms):
        self.pauses[-1] += ms // 1000
        self.ms += ms

    def ticks_ms(self):
        return self.ms

    def feed(self):
        self.fed += 1


def board_on(*links):
    """A board that opens the links one after the other; an exception instead of a link is raised."""
    board = small_board.provision(scratch.folder())
    left = list(links)
    board.log = []

    def open_link():
        link = left.pop(0)
        clock.pauses.append(0)
        if isinstance(link, type):
            raise link
        return link

    board.link = open_link
    for name in ("watch", "unwatch", "reset", "begin", "end"):
        setattr(board, name, lambda name=name: board.log.append(name))
    return board


clock = Clock()


def supervise(board):
    """Run the supervisor of a board by the clock of the test."""
    with replaced(supervisor, sleep_ms=clock.sleep_ms, ticks_ms=clock.ticks_ms):
        with replaced(compat, feed=clock.feed):
            supervisor.run(board)


def run(*links, **attributes):
    """Run a board on the links; return it."""
    clock.__init__()
    board = board_on(*links)
    for name in attributes:
        setattr(board, name, attributes[name])
    supervise(board)
    return board


def test_the_next_round_is_answered_after_any_exception_of_the_link():
    # The supervisor is the loop that keeps a board going: after an exception it waits 1 s and
    # starts its client anew. Asked again for round 1, the board sends the same report.
    for kind in EXCEPTIONS:
        first = Link([round_frame(1), kind])
        second = Link([round_frame(1), round_frame(2)])

        board = run(first, second)

        assert (board.exceptions, board.restarts, board.last_error) == (1, 1, kind.__name__)
        assert first.sent[0][0] == wire.REPORT and first.sent[0] == second.sent[0] != second.sent[1]
        # 1 s after the exception; none at the end of the second link.
        assert first.closed == second.closed == 1 and clock.pauses == [1, 0]


def test_hello_names_the_class_of_the_last_exception_but_not_its_message():
    # In its HELLO, a board tells its state. The message of an exception might contain data; its
    # class does not.
    out = bytearray(wire.MAX_FRAME)
    request = bytes(out[: frames.encode_hello_request(out, 77)])
    before, after = Link([request, OSError]), Link([request])
    run(before, after)
    text = host_frames.Hello(before.sent[0]).text
    hello = host_frames.Hello(after.sent[0])
    assert "Error" not in text and hello.text == text + "; OSError"
    assert (hello.exceptions, hello.restarts) == (1, 1)


def test_pauses_grow_to_5_minutes_and_then_the_board_is_reset():
    board = run(*([ValueError] * 11 + [Link()]))
    assert clock.pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 0]
    assert board.log.count("reset") == 2
    assert clock.fed >= sum(clock.pauses)  # once a second


def test_a_pause_is_short_again_after_a_quiet_hour():
    # The supervisor, which restarts a client after an exception, waits twice as long each time (1,
    # 2, 4 s), so that an error that persists does no harm; after an hour without one it begins at
    # 1 s.
    class Quiet(Link):
        def receive(self, timeout_ms=-1):
            clock.ms += 3_600_000
            return super().receive(timeout_ms)

    run(ValueError, ValueError, ValueError, Quiet([ValueError]), ValueError, Link())
    assert clock.pauses == [1, 2, 4, 1, 2, 0]


def test_pauses_at_a_console_are_short_and_the_console_is_returned_at_the_end():
    board = run(*([Link([ValueError], console=True) for _ in range(6)] + [Link(console=True)]))
    assert clock.pauses == [1, 2, 4, 8, 8, 8, 0]
    # A byte of a frame must not interrupt a pause either.
    assert board.log == ["begin"] * 7 + ["unwatch", "end"]


def test_the_console_stays_open_while_the_client_cannot_be_made():
    """Nobody reads it then, so that only an interrupt can end the program."""
    # "end" gives the console back to the user, and "begin" takes it for frames; "unwatch" ends the
    # watchdog timer.

    def fail(board):
        failures.append("fails")
        supervisor.Client = fail if len(failures) < 3 else client.Client
        raise MemoryError

    failures = []
    supervisor.Client = fail
    try:
        last = Link([round_frame(1)], console=True)
        board = run(*[Link(console=True) for _ in range(3)], last)
    finally:
        supervisor.Client = client.Client
    assert board.log == ["end"] * 3 + ["begin", "unwatch", "end"]
    assert last.sent[0][0] == wire.REPORT and board.last_error == "MemoryError"


def test_the_console_stays_open_while_no_link_can_be_opened():
    board = run(Link([ValueError], console=True), MemoryError, MemoryError, Link(console=True))
    assert board.log == ["begin", "end", "end", "begin", "unwatch", "end"]


def test_an_interrupt_ends_the_supervisor():
    board = board_on(Link([KeyboardInterrupt], console=True))
    raises(KeyboardInterrupt, supervisor.run, board)
    assert board.log == ["begin", "unwatch", "end"] and board.exceptions == 0


def test_only_boards_without_a_console_have_a_watchdog():
    link = Link([None, round_frame(1)])
    board = run(link)
    assert board.log == ["watch", "unwatch", "end"]
    assert clock.fed >= 2 and 0 < max(link.waits) <= 2000
    link = Link([None, round_frame(1)], console=True)
    assert run(link).log == ["begin", "unwatch", "end"] and max(link.waits) == -1


def test_a_locked_board_goes_on_when_the_other_end_has_gone_and_keeps_its_console():
    links = [Link(given, console=True) for given in ([], [], [SystemExit])]
    board = board_on(*links)
    board.locked = True
    raises(SystemExit, supervise, board)  # main.py then resets
    assert board.log == ["begin"] * 3 + ["unwatch"] and board.exceptions == 0


def test_counts_survive_a_reset_and_stop_at_65535():
    # A register that keeps its 32 bits in a reset holds two counts of 16 bits: exceptions and
    # restarts of the client.
    kept = [0]

    def keep(word=0):
        before = kept[0]
        kept[0] = word or before
        return before

    board = run(RuntimeError, Link(), keep=keep)
    assert (board.exceptions, board.restarts) == (1, 1)

    board = run(Link(), keep=keep)  # after a reset
    assert (board.exceptions, board.restarts) == (1, 2)

    kept[0] = 0xFFFFFFFE  # both counts near their end
    board = run(RuntimeError, RuntimeError, RuntimeError, Link(), keep=keep)
    assert (board.exceptions, board.restarts, kept[0]) == (65535, 65535, 0xFFFFFFFF)


def test_a_link_that_cannot_be_closed_does_not_end_the_supervisor():
    # After the ValueError of a link the supervisor, which keeps a board going, closes it. That
    # fails as well, and the next link is opened all the same.
    class Broken(Link):
        def close(self):
            raise RuntimeError("the driver hangs")

    last = Link([round_frame(2)])
    board = run(Broken([round_frame(1), ValueError]), last)
    assert (board.exceptions, board.last_error) == (1, "RuntimeError")
    assert last.sent[0][0] == wire.REPORT


def test_each_client_is_closed_after_an_exception():
    # Each restart makes a new client; if the old one stayed open, its file and buffers would fill
    # the board.
    closed = []

    class Watched(client.Client):
        def close(self):
            super().close()
            closed.append(self)

    with replaced(supervisor, Client=Watched):
        run(Link([round_frame(1), ValueError]), Link())
    assert len(closed) == 2
