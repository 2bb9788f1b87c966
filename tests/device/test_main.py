"""main.py closes the console of a board that is locked, and of no other, whatever is the matter
with its files.
"""

import os

import scratch
from checks import FakeMachine, modules, plain

from tern import client

FOLDER = client.__file__.rsplit("/", 2)[0]
try:
    PROGRAMS = [plain(scratch.read(FOLDER + name)) for name in ("/main.py", "/trial/main.py")]
except OSError:  # a board, which must not reset in the middle of its tests
    PROGRAMS = []
STATES = 200  # of the files of a board
CLOSED = ["kbd_intr -1", "reset"]  # Ctrl-C off; a reset instead of the prompt
OPEN = ["kbd_intr -1", "kbd_intr 3"]  # Ctrl-C off, and on again before anything else
ERRORS = (SystemExit, MemoryError, UnicodeError, ValueError, RuntimeError, TypeError, OSError)


class FakeClient:
    """Stands in for `tern.boards.this`, the board and `tern.supervisor`: serves nobody, and ends at
    once.
    """

    def __init__(self):
        self.locked = None
        self.this_board = lambda: self
        self.run = lambda board: None


class FakeFiles:
    """Stands in for `os`: each call raises an exception."""

    def __init__(self, error):
        self.error = error

    def fail(self, *_):
        raise self.error

    stat = listdir = getcwd = fail


def calls_of(program, more=None):
    """What a main.py does to the console, with the current folder as its root. more: stand in for
    modules.
    """
    machine = FakeMachine()
    client_now = FakeClient()
    fakes = {
        "machine": machine,
        "micropython": machine,
        "tern.boards.this": client_now,
        "tern.supervisor": client_now,
    }
    fakes.update(more or {})
    with modules(fakes):
        try:
            exec(program, {"__name__": "__main__", "execfile": lambda path, names: None})
        except (Exception, SystemExit):  # it ends at the prompt
            pass
    return machine.calls


def folders_of_boards(random):
    """Folders with the files of boards without a lock: names in any bytes, many names, damaged
    files of tern.
    """
    for state in range(STATES):
        folder = scratch.folder()
        most_names = 40 if state % 5 == 0 else 0
        for _ in range(random(most_names + 1)):
            length = 1 + random(30)
            name = bytes([1 + random(255) for _ in range(length)]).replace(b"/", b"_")
            if name not in (b".", b"..", b"lock"):
                make(folder.encode() + b"/" + name, is_folder=random(4) == 0)
        for name in ("boot.bin", "ledger.bin", "fleet.bin", "wifi.json", "lib", "lib2"):
            if random(3) == 0:
                make((folder + "/" + name).encode(), is_folder=random(2) == 0)
        yield folder


def make(path, is_folder):
    """Make a folder, or a file of a few bytes; keep what is there. path: bytes."""
    try:
        if is_folder:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(path[-4:])
    except OSError:  # it is there
        pass


class Random:
    """Numbers that are the same on every interpreter. random(n): one of 0 to n - 1."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self, n):
        self.state = (self.state * 1103 + 12347) & 0xFFFFF
        return (self.state >> 4) % n


def test_the_lock_alone_decides_about_the_console_whatever_other_files_there_are():
    # boot.py and main.py of a board open or close its console, over which anybody could read its
    # files. Only a file called "lock" closes it: not one of the random or damaged files in these
    # folders opens or closes it.
    here = os.getcwd()
    for program in PROGRAMS:
        for folder in folders_of_boards(Random(7)):
            os.chdir(folder)
            try:
                assert calls_of(program) == OPEN
                scratch.write("lock", b"")
                assert calls_of(program) == CLOSED
            finally:
                os.chdir(here)
            scratch.remove(folder)


def test_a_folder_is_no_lock():
    # A file called "lock" closes a board's console; a folder of that name does not.
    here = os.getcwd()
    folder = scratch.folder()
    os.mkdir(folder + "/lock")
    os.chdir(folder)
    try:
        for program in PROGRAMS:
            assert calls_of(program) == OPEN
    finally:
        os.chdir(here)


def test_a_board_that_cannot_look_for_its_lock_keeps_its_console():
    for program in PROGRAMS:
        for error in ERRORS:
            assert calls_of(program, {"os": FakeFiles(error())}) == OPEN, error
