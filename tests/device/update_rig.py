"""Packages, the host that sends them, and the loader on a board in a folder, for the tests of updates."""

import os
import struct
import sys

import scratch
import small_board
from scratch import read, write
from small_board import KEY

from tern import frames, host_frames, update, wire

_out = bytearray(wire.MAX_FRAME)
_reply = bytearray(wire.MAX_FRAME)
LOADER = update.__file__.rsplit("/", 2)[0] + "/trial/main.py"
try:
    os.stat(LOADER)
except OSError:  # a board, which is not to be reset in the midst of its tests
    LOADER = ""


def tree(folder, without=()):
    """Return what every file under `folder` holds, by path."""
    found = {}
    for name in os.listdir(folder):
        path = folder + "/" + name
        if name in without:
            continue
        if os.stat(path)[0] & 0x4000:
            found.update(tree(path))
        else:
            found[path] = read(path)
    return found


def provision(folder=None):
    """Return the folder of a board with one client, 7, and a program in /lib."""
    folder = folder or scratch.folder()
    small_board.provision(folder)
    os.mkdir(folder + "/lib")
    os.mkdir(folder + "/lib/tern")
    for path, data in files("old"):
        write(folder + "/lib/" + path, data)
    return folder


def frame(number, offset, total, data=b"", key=KEY):
    n = host_frames.encode_update(_out, key, 7, number, offset, total, data)
    return memoryview(bytes(_out[:n]))


def ask(board_update, asked, key=KEY):
    """Return (wanted, state) of the answer to the UPDATE `asked`."""
    n = board_update.take(asked, key, _reply)
    answer = bytes(_reply[:n])
    device, number, wanted, state = host_frames.decode_updated(
        answer, frames.answer_key(frames.digest(key, asked[: -wire.TAG_BYTES]))
    )
    assert (device, number) == struct.unpack_from("<II", asked, 1)
    return wanted, state


def send(board_update, number, package, size=700, key=KEY):
    """Send a package as a host does; return the state that it ends in."""
    wanted, state = ask(board_update, frame(number, 0, len(package), b"", key), key)
    turns = 0
    while state == wire.RECEIVING:
        turns += 1
        assert turns < 10000
        wanted, state = ask(
            board_update, frame(number, wanted, len(package), package[wanted : wanted + size], key), key
        )
    return state


def entry(path, data):
    return bytes((len(path),)) + path.encode() + struct.pack("<I", len(data)) + data


def package(number, files, key=KEY):
    """A package of (path, content) pairs."""
    content = b"".join([entry(path, data) for path, data in files])
    head = struct.pack("<II", number, len(content) + 32)
    secret = frames.digest(key, update.KEY_LABEL)
    inner = frames.digest(bytes([b ^ 0x36 for b in secret]) + b"\x36" * 32, head + content)
    return content + frames.digest(bytes([b ^ 0x5C for b in secret]) + b"\x5c" * 32, inner)


def program(name):
    """A main.py that tells who it is, and works with the library beside it only."""
    text = """import seen, sys
with open(sys.path[0] + "/tern/part.py") as file:
    exec(file.read())
if name == "%s":
    seen.ran.append(name)
"""
    return (text % name).encode()


def files(name):
    """The (path, content) of a program and its library."""
    return (("tern/part.py", ("name = '%s'\n" % name).encode()), ("main.py", program(name)))


class running:
    """The loader has started the program in this folder."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        sys.path.insert(0, self.folder)

    def __exit__(self, *_):
        sys.path.pop(0)


def state_of(folder):
    """(which folder has proven itself, state, package) as boot.bin says."""
    return struct.unpack_from(update.BOOT_FIELDS, read(folder + "/" + update.BOOT))[1:]


def boot(proven, state, number):
    """What boot.bin holds."""
    data = struct.pack(update.BOOT_FIELDS, update.MAGIC, proven, state, number)
    return data + struct.pack("<I", update.crc32(data))


class FakeBoard:
    """Stands in for the modules `machine` and `micropython`, which the loader asks to act on a board, and for `seen`,
    by which programs tell that they ran.
    """

    def __init__(self):
        self.ran = []
        self.did = []
        self.timers = []

    def kbd_intr(self, byte):
        self.did.append("kbd_intr %d" % byte)

    def reset(self):
        self.did.append("reset")


class FakeTimer:
    ONE_SHOT = 0

    def __init__(self, which, mode, period, callback):
        board.timers.append((period, mode))
        board.callback = callback


board = FakeBoard()
board.Timer = FakeTimer


def _execute(path, names):
    exec(compile(read(path), path, "exec"), names)


_loader = LOADER and compile(read(LOADER), LOADER, "exec")


def load(folder, start=None):
    """Run the loader on the board in `folder`; return the name of the program that it started, "" if none ran.

    start: what else to call there. On a board boot.bin becomes what the loader makes of it, and nothing is started.
    """
    if not LOADER:
        proven, state, number = state_of(folder)
        state = {wire.RESTARTING: wire.TRIAL, wire.TRIAL: wire.ROLLED_BACK}.get(state, state)
        write(folder + "/" + update.BOOT, boot(proven, state, number))
        return ""
    here = os.getcwd()
    modules = {name: sys.modules.get(name) for name in ("machine", "micropython", "seen")}
    path = list(sys.path)
    os.chdir(folder)
    try:
        for name in modules:
            sys.modules[name] = board
        del board.ran[:]
        del board.did[:]
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
        for name in modules:
            if modules[name] is None:
                del sys.modules[name]
            else:
                sys.modules[name] = modules[name]
    assert len(board.ran) <= 1
    return board.ran[0] if board.ran else ""
