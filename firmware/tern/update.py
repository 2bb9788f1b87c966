"""Updates in the field (shared_specs/update.md): UPDATE frames bring a package, which
firmware/trial/main.py starts.

The package is unpacked only once the whole staged file, read back from flash, carries its code
under the device's key. Nothing of it runs before boot.bin says so.
"""

import os
import sys
from binascii import crc32
from hashlib import sha256
from struct import pack, pack_into, unpack_from

from tern import frames, wire
from tern.compat import TYPE_CHECKING, const
from tern.ledger import LedgerError, replace

if TYPE_CHECKING:
    from tern.boards import Base

BOOT = "boot.bin"
STAGED = "update.bin"
FOLDERS = ("/lib", "/lib2")
MAIN = "main.py"  # the last file of a package: a folder that has one is whole
BOOT_FIELDS = "<4sBBI"  # magic, proven folder, state of the other one, its package; then a CRC-32
MAGIC = b"TBT1"
KEY_LABEL = b"tern update"

_BOOT_BYTES = const(14)
_HEADER = const(8)  # of a staged package: its number and its length
_CODE = const(32)
_PIECE = const(512)
_STEPS = const(4)  # of the work, for an UPDATE
_DATA_AT = const(17)
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./"


class Update:
    """A board's packages. state, number: those of the last complete one; restart: whether to reset
    the board now.
    """

    def __init__(self, board: "Base") -> None:
        self._directory = board.directory + "/"
        self._folders = [board.directory + folder for folder in FOLDERS]
        self._proven = False  # the loader puts the folder that runs before the other one
        for path in sys.path:
            if path in self._folders:
                self._proven = path == self._folders[1]
                break
        self._work = None
        self.state = wire.CONFIRMED
        self.number = 0
        try:
            with open(self._directory + BOOT, "rb") as file:
                data = file.read()
            if (
                len(data) == _BOOT_BYTES
                and data[:4] == MAGIC
                and data[-4:] == pack("<I", crc32(data[:-4]))
            ):
                _, proven, self.state, self.number = unpack_from(BOOT_FIELDS, data)
                if self.state == wire.TRIAL:
                    if proven == self._proven:  # the loader could not write that the trial is over
                        self.state = wire.ROLLED_BACK
                    self._proven = proven
        except OSError:
            pass
        self.restart = False  # what is RESTARTING here has no loader, or none that can write

    def take(self, frame: memoryview, key: bytes, reply: bytearray) -> int:
        """Take an UPDATE under its client's `key`; return the length of the UPDATED in `reply`.

        Raises FrameError.

        Once the package is complete, each UPDATE does the next four steps of work, however long the
        flash takes: how many it needs depends on the package alone. After FrameError nothing has
        changed.
        """
        device, number, offset, total = frames.fields_of(frame, wire.UPDATE, wire.UPDATE_FIELDS)
        answer_key = frames.answer_key(frames.verify(key, frame))
        frames.require(number and _CODE < total <= wire.MAX_PACKAGE, "package out of bounds")
        self._wanted = 0
        if number <= self.number:
            state = self.state if number == self.number else wire.OLD
        elif self.restart or self.state == wire.TRIAL:
            state = wire.BUSY
        else:
            state = wire.FULL
            try:
                state = self._receive(number, offset, total, key, frame[_DATA_AT : -wire.TAG_BYTES])
            except ValueError:
                state = wire.DAMAGED
            except (OSError, LedgerError):
                pass
            if state and state != wire.OLD:
                self._work = None
                try:
                    os.remove(self._directory + STAGED)
                except OSError:
                    pass
        reply[0] = wire.UPDATED
        pack_into(wire.UPDATED_FIELDS, reply, 1, device, number, self._wanted, state)
        return frames.seal(answer_key, reply, frames.end_of(wire.UPDATED_FIELDS))

    def confirm(self) -> None:
        """Confirm a package on trial: it has reached its host. After a LedgerError, call again."""
        if self.state == wire.TRIAL:
            self._keep(1 - self._proven, wire.CONFIRMED, self.number)

    def _keep(self, proven, state, number):
        data = pack(BOOT_FIELDS, MAGIC, proven, state, number)
        replace(self._directory + BOOT, data + pack("<I", crc32(data)))
        self._proven = proven
        self.state = state
        self.number = number

    def _receive(self, number, offset, total, key, data):
        # The file itself says how much has arrived, however it was interrupted. Returns a state.
        path = self._directory + STAGED
        header = pack("<II", number, total)
        there = -1
        try:
            with open(path, "rb") as file:
                head = file.read(_HEADER)
            if len(head) == _HEADER:
                if head == header:
                    there = os.stat(path)[6] - _HEADER
                elif number <= unpack_from("<I", head)[0]:
                    return wire.OLD
        except OSError:
            pass
        if there < 0:
            self._work = None
            there = 0
            with open(path, "wb") as file:
                file.write(header)
        if there == total:
            self._wanted = total
            work = self._work or self._install(number, total, key)
            self._work = None  # where it raises it begins anew
            for _ in range(_STEPS):
                state = next(work)
                if state:
                    return state
            self._work = work
            return wire.RECEIVING
        if offset == there and there + len(data) <= total:
            with open(path, "ab") as file:
                file.write(data)
            there += len(data)
        self._wanted = there
        return wire.RECEIVING

    def _install(self, number, total, key):
        # Yields a state after each piece of work. Raises ValueError where this is not a package.
        with open(self._directory + STAGED, "rb") as file:
            key = frames.digest(key, KEY_LABEL)  # HMAC-SHA256, RFC 2104
            inner = sha256(_pad(key, 0x36))
            yield from _pieces(file, _HEADER + total - _CODE, inner.update)
            outer = sha256(_pad(key, 0x5C))
            outer.update(inner.digest())
            if not frames.same(file.read(_CODE), outer.digest()):
                raise ValueError
            folder = self._folders[1 - self._proven] + "/"
            for name in (MAIN, "tern"):
                yield from _clear(folder + name)
            file.seek(_HEADER)
            left = total - _CODE
            while left:
                name = str(file.read(file.read(1)[0]), "utf-8")
                size = int.from_bytes(file.read(4), "little")
                left -= 5 + len(name) + size
                whole = "/" + name
                if (
                    left < 0
                    or name.strip(_NAMES)
                    or "/." in whole
                    or "//" in whole
                    or name[name.rfind(".") :] not in (".py", ".mpy", ".json")
                    or (name == MAIN) != (not left)
                ):
                    raise ValueError
                path = folder + name
                at = 0
                while (at := path.find("/", at + 1)) > 0:
                    try:
                        os.mkdir(path[:at])
                    except OSError:  # it is there
                        pass
                with open(path, "wb") as out:
                    yield from _pieces(file, size, out.write)
        self._keep(self._proven, wire.RESTARTING, number)
        self.restart = True
        yield wire.RESTARTING


def _pad(key, byte):
    return bytes([one ^ byte for one in key]) + bytes([byte]) * 32


def _pieces(file, n, take):
    # take() the next n bytes of `file`, piece by piece
    piece = memoryview(bytearray(_PIECE))
    while n:
        got = file.readinto(piece[: min(n, _PIECE)])
        if not got:
            raise ValueError
        take(piece[:got])
        n -= got
        yield wire.RECEIVING


def _clear(path):
    # Remove a file or a folder, if it is there; LittleFS removes an empty folder as a file.
    try:
        os.remove(path)
    except OSError:
        try:
            names = os.listdir(path)
        except OSError:
            return
        for name in names:
            yield from _clear(path + "/" + name)
        os.rmdir(path)
    yield wire.RECEIVING
