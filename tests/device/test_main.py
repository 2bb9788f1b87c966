"""main.py closes the console of a board that is locked, and of no other, whatever is the matter with its files."""

import os

import scratch
from checks import modules

from tern import client

FOLDER = client.__file__.rsplit("/", 2)[0]
try:
    PROGRAMS = [scratch.read(FOLDER + name) for name in ("/main.py", "/trial/main.py")]
except OSError:  # a board, which must not reset in the middle of its tests
    PROGRAMS = []
UNKNOWN = (MemoryError, UnicodeError, ValueError, RuntimeError, TypeError, OSError)


class FakeMachine:
    """Stands in for `machine` and `micropython`."""

    def __init__(self):
        self.calls = []

    def kbd_intr(self, byte):
        self.calls.append("kbd_intr %d" % byte)

    def reset(self):
        self.calls.append("reset")


class FakeClient:
    """Stands in for `tern.boards.this` and `tern.supervisor`: serves nobody, and ends at once."""

    def __init__(self):
        self.locked = None

    def this_board(self):
        return self

    def run(self, board):
        assert board is self


class FakeFiles:
    """Stands in for `os`: each call raises this exception."""

    def __init__(self, error):
        self.error = error

    def fail(self, *_):
        raise self.error

    stat = listdir = getcwd = fail


def calls_of(program, files=None):
    """What main.py does to the console, in the current folder. files: instead of `os`."""
    machine = FakeMachine()
    client_now = FakeClient()
    instead = {"machine": machine, "micropython": machine}
    instead.update({"tern.boards.this": client_now, "tern.supervisor": client_now})
    if files:
        instead["os"] = files
    with modules(instead):
        try:
            exec(program, {"__name__": "__main__", "execfile": lambda path, names: None})
        except Exception:  # it ends at the prompt
            pass
    return machine.calls


def states(random):
    """Folders of 200 boards: names in any bytes, many names, folders, damaged files of tern."""
    for state in range(200):
        folder = scratch.folder()
        for _ in range(random(1 + 40 * (state % 5 == 0))):
            length = 1 + random(30)
            name = bytes([1 + random(255) for _ in range(length)]).replace(b"/", b"_")
            if name not in (b".", b"..", b"lock"):
                make(os_path(folder) + b"/" + name, is_folder=random(4) == 0)
        for name in ("boot.bin", "ledger.bin", "fleet.bin", "wifi.json", "lib", "lib2"):
            if random(3) == 0:
                make(os_path(folder + "/" + name), is_folder=random(2) == 0)
        yield folder


def os_path(path):
    return path.encode()


def make(path, is_folder):
    try:
        if is_folder:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(path[-4:])
    except OSError:  # it is there
        pass


class Random:
    def __init__(self, seed):
        self.state = seed

    def __call__(self, n):
        self.state = (self.state * 1103 + 12347) & 0xFFFFF
        return (self.state >> 4) % n


def test_a_board_without_a_lock_keeps_its_console_whatever_files_it_has():
    here = os.getcwd()
    for program in PROGRAMS:
        for folder in states(Random(7)):
            os.chdir(folder)
            try:
                assert calls_of(program) == ["kbd_intr -1", "kbd_intr 3"]
                scratch.write("lock", b"")
                assert calls_of(program) == ["kbd_intr -1", "reset"]
            finally:
                os.chdir(here)
            scratch.remove(folder)


def test_a_board_that_cannot_look_for_its_lock_keeps_its_console():
    for program in PROGRAMS:
        for error in UNKNOWN:
            assert calls_of(program, FakeFiles(error())) == ["kbd_intr -1", "kbd_intr 3"], error
