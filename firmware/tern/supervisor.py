"""Serves the host for main.py.

After an exception it serves again in the same interpreter, so that a host keeps its port; after the
longest pause it resets the board, since a driver may hang or the heap be fragmented.
"""

import gc

from tern import compat
from tern.client import Client
from tern.compat import const, sleep_ms, ticks_diff, ticks_ms

_MOST = const(0xFFFF)  # that is counted
_LONGEST = const(300)  # s
_LONGEST_AT_CONSOLE = const(8)  # s; tools wait about as long for their prompt
_QUIET_MS = const(3600000)  # after which a pause is short again
_STEP_MS = const(2000)  # a watchdog may be fed so seldom


def run(board):
    """Serve until the other end has gone or somebody interrupts; a locked board for ever.

    Counts its restarts.
    """
    kept = board.keep()
    board.exceptions = kept >> 16
    board.restarts = kept & _MOST
    pause = 1
    try:
        while True:
            restarts = min(board.restarts + 1, _MOST)
            board.keep(board.exceptions << 16 | restarts)
            start = ticks_ms()
            try:
                serve(board)
                if not board.locked:
                    return
            except Exception as error:
                board.failed(error)
            if not 0 <= ticks_diff(ticks_ms(), start) < _QUIET_MS:
                pause = 1
            for _ in range(min(pause, board.longest_pause)):
                compat.feed()
                sleep_ms(1000)
            if pause >= _LONGEST == board.longest_pause:
                board.reset()
            pause = min(2 * pause, _LONGEST)
            board.restarts = restarts
    finally:
        board.unwatch()
        if not board.locked:
            board.end()


def serve(board):
    """Answer the host until the other end of the board's link has gone."""
    gc.collect()
    link = client = None
    try:
        link = board.link()
        if link.console:  # reading one may block for ever: no watchdog
            wait = -1
            board.longest_pause = _LONGEST_AT_CONSOLE
        else:
            wait = _STEP_MS
            board.watch()
        client = Client(board)
        if link.console:
            board.begin()
        while True:
            frame = link.receive(wait)
            compat.feed()
            if frame is not None:
                client.arrived = getattr(link, "last", ticks_ms())  # with a slot, a public moment
                try:
                    client.respond(frame, link.send)
                except MemoryError:  # not even for an ERROR: the host asks again
                    gc.collect()
    except EOFError:
        pass
    finally:
        if client:
            client.close()
        elif not board.locked:
            board.end()  # nobody reads the console now, so Ctrl-C must interrupt the program
        if link:
            link.close()
