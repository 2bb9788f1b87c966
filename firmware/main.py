"""The program of a board: the client, until the host's tools interrupt it; or for ever, with a file `lock`."""

import micropython

micropython.kbd_intr(-1)  # first of all: a locked board leaves no moment to interrupt it
locked = False  # until its lock has been seen: a board that cannot be read keeps its console
try:
    import os

    os.stat("lock")
    locked = True
except Exception:  # there is no lock, no memory or no file system
    micropython.kbd_intr(3)
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
