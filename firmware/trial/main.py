"""The first program of a board that takes updates: it runs the proven program, or a new one once
(update.md).
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
    import os
    import struct
    import sys
    from binascii import crc32

    # magic, which folder has proven itself, state of the other, package in it; then a CRC
    FIELDS = "<4sBBI"
    RESTARTING, TRIAL, ROLLED_BACK = 1, 2, 4
    PATIENCE_MS = 600_000
    root = os.getcwd().rstrip("/")

    def read():
        """Return magic, folder, state and package of boot.bin; those of a fresh board where there
        is none.
        """
        try:
            with open(root + "/boot.bin", "rb") as file:
                data = file.read()
            if (
                len(data) == 14
                and data[-4:] == struct.pack("<I", crc32(data[:-4]))
                and data[:4] == b"TBT1"
            ):
                return struct.unpack_from(FIELDS, data)
        except OSError:
            pass
        return b"TBT1", 0, 0, 0

    def keep(state):
        """Return whether boot.bin now has this state."""
        data = struct.pack(FIELDS, b"TBT1", proven, state, number)
        try:
            with open(root + "/boot.bin.new", "wb") as file:
                file.write(data + struct.pack("<I", crc32(data)))
            os.rename(root + "/boot.bin.new", root + "/boot.bin")
            return True
        except OSError:
            return False

    def look(_):
        """Start the other program again if this one is still on trial."""
        if trial and read()[2] == TRIAL:
            reset()

    _, proven, state, number = read()
    trial = state == RESTARTING and keep(TRIAL)
    if state == TRIAL:
        keep(ROLLED_BACK)
    folders = root + "/lib", root + "/lib2"
    folder = folders[proven & 1 ^ trial]
    try:
        os.stat(folder + "/main.py")  # it is written last: a folder that has one is whole
    except OSError:
        folder = folders[folder == folders[0]]
    sys.path.insert(0, folder)
    if trial:
        try:
            from umachine import Timer

            def start_timer(number):
                return Timer(number, mode=Timer.ONE_SHOT, period=PATIENCE_MS, callback=look)

            # One that nobody holds is collected. An ESP32 has no software timers before
            # MicroPython 1.29, and may have only two others.
            try:
                timer = start_timer(-1)
            except ValueError:
                timer = start_timer(1)
        except (ImportError, ValueError, OSError):
            pass
    try:
        execfile(folder + "/main.py", {"__name__": "__main__"})  # noqa: F821
    except Exception:
        look(None)
        raise
finally:
    if locked:
        reset()  # instead of a prompt
