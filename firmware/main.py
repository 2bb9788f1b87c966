"""The program of a board.

It serves the host until the host's tools interrupt it; with a file `lock`, for ever.
"""

import micropython

micropython.kbd_intr(-1)  # Ctrl-C off, before anything else: nobody may interrupt a locked board
try:
    for _ in (0, 1):  # MicroPython raises a Ctrl-C that came earlier at a jump: here at the latest
        pass
except KeyboardInterrupt:
    pass
locked = False  # a board that cannot look for its lock stays open to repairs
try:
    # MicroPython's own modules, also where a file of the user's has the name of one.
    import uos
    from umachine import reset

    # whether it is a file; raises OSError where there is none
    locked = uos.stat("lock")[0] & 0x8000 != 0
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
        reset()  # instead of a prompt
