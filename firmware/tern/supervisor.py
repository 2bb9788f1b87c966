"""Serves the host for main.py, for as long as the board has power.

After an exception it serves again in the same interpreter, so that a host keeps its port. Pauses
grow; after the longest one it resets the board, since a driver may hang or the heap be fragmented.
"""

import gc

from tern import compat
from tern.client import Client
from tern.compat import const, sleep_ms, ticks_diff, ticks_ms

_MOST = const(0xFFFF)  # a count goes no further, since it has 16 bits
_LONGEST = const(300)  # pause (s)
_LONGEST_AT_CONSOLE = const(8)  # the same at a console; tools wait about as long for their prompt
_QUIET_MS = const(3600000)  # after so long without an exception, a pause is short again
_STEP_MS = const(2000)  # of waiting for a frame: a watchdog may be fed so seldom


def run(board):
    """Serve the host of `board` until the other end has gone or somebody interrupts.

    A locked board, which nobody may interrupt, serves for ever. The numbers of exceptions and of
    restarts since power on are counted in a word that survives resets.
    """
    kept = board.keep()
    board.exceptions = kept >> 16  # in its high 16 bits, restarts in its low ones
    board.restarts = kept & _MOST
    pause = 1  # s
    try:
        while True:
            # A reset that is not ours ends this loop, and counts as a restart. Nobody may see one
            # in HELLO before it has happened, so board.restarts follows later.
            restarts = min(board.restarts + 1, _MOST)
            board.keep(board.exceptions << 16 | restarts)
            start = ticks_ms()
            try:
                serve(board)
                if not board.locked:
                    return
            except Exception as error:
                board.failed(error)
            # After long service begin with a short pause. The clock wraps around after even longer.
            if not 0 <= ticks_diff(ticks_ms(), start) < _QUIET_MS:
                pause = 1
            for _ in range(min(pause, board.longest_pause)):
                compat.feed()
                sleep_ms(1000)
            if pause >= _LONGEST == board.longest_pause:  # not at a console
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
                    client.tend()
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
