"""Helpers for tests of updates.

Packages, a host that sends them, and the loader on a board in a folder.
"""

import os
import struct
import sys

import scratch
import small_board
from checks import FakeMachine, modules, plain
from scratch import read, write
from small_board import KEY

from tern import frames, host_frames, update, wire
from tern.boards.emulated import Board
from tern.update import Update

_out = bytearray(wire.MAX_FRAME)
_reply = bytearray(wire.MAX_FRAME)
LOADER = update.__file__.rsplit("/", 2)[0] + "/trial/main.py"
try:
    os.stat(LOADER)
except OSError:  # a board, which must not reset in the middle of its tests
    LOADER = ""


def tree(folder, without=()):
    """Return the content of every file under `folder` by path.

    without: names in `folder` that are left out.
    """
    contents = {}
    for name in os.listdir(folder):
        path = folder + "/" + name
        if name in without:
            continue
        if os.stat(path)[0] & 0x4000:
            contents.update(tree(path))
        else:
            contents[path] = read(path)
    return contents


def provision(folder=None):
    """Return the folder of a board with one client, 7, and a program in /lib."""
    folder = folder or scratch.folder()
    small_board.provision(folder)
    os.mkdir(folder + "/lib")
    os.mkdir(folder + "/lib/tern")
    for path, data in files("old"):
        write(folder + "/lib/" + path, data)
    return folder


def update_of(folder):
    """Return the Update of the board in `folder`, which has just started."""
    return Update(Board(folder))


def updated(number=3, content=None):
    """Return the folder of a board that has taken a package, "new" by default, and will restart."""
    folder = provision()
    data = package(number, content or files("new"))
    assert send(update_of(folder), number, data) == wire.RESTARTING
    return folder


def offer(board_update, number, name):
    """Send the package of the program `name`; return the state in which it ends."""
    return send(board_update, number, package(number, files(name)))


def frame(number, offset, total, data=b""):
    """Return an UPDATE with these bytes of a package."""
    n = host_frames.encode_update(_out, KEY, 7, number, offset, total, data)
    return memoryview(bytes(_out[:n]))


def ask(board_update, request):
    """Return (wanted, state) of the answer to an UPDATE."""
    n = board_update.take(request, KEY, _reply)
    answer_key = frames.answer_key(frames.digest(KEY, request[: -wire.TAG_BYTES]))
    device, number, wanted, state = host_frames.decode_updated(bytes(_reply[:n]), answer_key)
    assert (device, number) == struct.unpack_from("<II", request, 1)
    return wanted, state


def send(board_update, number, package, size=700):
    """Send a package as a host does; return the state in which it ends."""
    wanted, state = ask(board_update, frame(number, 0, len(package)))
    requests = 0
    while state == wire.RECEIVING:
        requests += 1
        assert requests < 10000
        data = package[wanted : wanted + size]
        wanted, state = ask(board_update, frame(number, wanted, len(package), data))
    return state


def entry(path, data):
    """Return a file as a package has it."""
    return bytes((len(path),)) + path.encode() + struct.pack("<I", len(data)) + data


def package(number, files):
    """Return a package of (path, content) pairs."""
    return sealed(number, b"".join([entry(path, data) for path, data in files]))


def sealed(number, content):
    """Return a package of this content, with its code."""
    head = struct.pack("<II", number, len(content) + 32)
    secret = frames.digest(KEY, update.KEY_LABEL)
    inner = frames.digest(bytes([b ^ 0x36 for b in secret]) + b"\x36" * 32, head + content)
    return content + frames.digest(bytes([b ^ 0x5C for b in secret]) + b"\x5c" * 32, inner)


def program(name):
    """Return a main.py that appends its name to `seen.ran`.

    It needs the library in its folder.
    """
    text = """import seen, sys
with open(sys.path[0] + "/tern/part.py") as file:
    exec(file.read())
if name == "%s":
    seen.ran.append(name)
"""
    return (text % name).encode()


def library(name):
    """Return the library that the program `name` needs."""
    return ("name = '%s'\n" % name).encode()


def files(name):
    """Return the (path, content) pairs of a program and its library."""
    return (("tern/part.py", library(name)), ("main.py", program(name)))


class running:
    """A context manager: the loader has started the program in this folder."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        sys.path.insert(0, self.folder)

    def __exit__(self, *_):
        sys.path.pop(0)


def state_of(folder):
    """Return (number of the proven folder, state, number of the package) of boot.bin."""
    return struct.unpack_from(update.BOOT_FIELDS, read(folder + "/" + update.BOOT))[1:]


def boot(proven, state, number):
    """Return the content of boot.bin."""
    data = struct.pack(update.BOOT_FIELDS, update.MAGIC, proven, state, number)
    return data + struct.pack("<I", update.crc32(data))


class FakeBoard(FakeMachine):
    """Stands in for `machine` and `micropython`, which the loader calls, and for `seen`."""

    def __init__(self):
        super().__init__()
        self.ran = []
        self.timers = []


class FakeTimer:
    """Stands in for machine.Timer: keeps what it is given."""

    ONE_SHOT = 0
    has_software_timers = True  # number -1; an ESP32 has none before MicroPython 1.29
    number = None  # of the last one

    def __init__(self, which, mode, period, callback):
        if which < 0 and not FakeTimer.has_software_timers:
            raise ValueError("invalid Timer number")
        FakeTimer.number = which
        board.timers.append((period, mode))
        board.callback = callback


board = FakeBoard()
board.Timer = FakeTimer


def _execute(path, names):
    exec(compile(read(path), path, "exec"), names)


_loader = LOADER and compile(plain(read(LOADER)), LOADER, "exec")


def load(folder, start=None):
    """Run the loader on the board in `folder`; return the name of the program that it started.

    Returns "" if none ran. start: a function to call instead of the loader. On a real board, only
    change boot.bin as the loader does, and start nothing.
    """
    if not LOADER:
        proven, state, number = state_of(folder)
        state = {wire.RESTARTING: wire.TRIAL, wire.TRIAL: wire.ROLLED_BACK}.get(state, state)
        write(folder + "/" + update.BOOT, boot(proven, state, number))
        return ""
    here = os.getcwd()
    path = list(sys.path)
    os.chdir(folder)
    try:
        del board.ran[:]
        del board.calls[:]
        with modules(dict.fromkeys(("machine", "micropython", "seen"), board)):
            if start:
                start(None)
            else:
                exec(_loader, {"execfile": _execute, "__name__": "__main__"})
            board.path = list(sys.path)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        board.error = error
    finally:
        os.chdir(here)
        sys.path[:] = path
    assert len(board.ran) <= 1
    return board.ran[0] if board.ran else ""
