"""The program of a board: the client, until the host's tools interrupt it; or for ever, with a file `lock`."""

import micropython

micropython.kbd_intr(-1)  # Ctrl-C off, before anything else: nobody may interrupt a locked board
locked = False  # until the lock is found: a board that cannot look for it has to stay open to repairs
try:
    import os

    os.stat("lock")  # raises OSError where there is none
    locked = True
except Exception:  # no lock; or no memory or no file system, so that nobody knows
    micropython.kbd_intr(3)  # Ctrl-C on
try:
    from tern.boards.this import this_board
    from tern.supervisor import run

    board = this_board()
    board.locked = locked
    run(board)
finally:
    if locked:
        import machine

        machine.reset()  # instead of a prompt
