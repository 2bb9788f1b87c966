"""The program of a board: the client, until the host's tools interrupt it; or for ever, with a file `lock`."""

import micropython

micropython.kbd_intr(-1)  # Ctrl-C off, before anything else: nobody may interrupt a locked board
try:
    for _ in (0, 1):  # a Ctrl-C from before is raised in a loop at the latest
        pass
except KeyboardInterrupt:
    pass
locked = False  # until the lock is found: a board that cannot look for it has to stay open to repairs
try:
    import uos  # MicroPython's own os, also where a file of the user's has this name

    locked = uos.stat("lock")[0] & 0x8000 != 0  # whether it is a file; raises OSError where there is none
except BaseException:  # there is no lock; or no memory or no file system, so that nobody knows
    pass
try:
    if not locked:
        micropython.kbd_intr(3)  # Ctrl-C on
    from tern.boards.this import this_board
    from tern.supervisor import run

    board = this_board()
    board.locked = locked
    run(board)
finally:
    if locked:
        import machine

        machine.reset()  # instead of a prompt
