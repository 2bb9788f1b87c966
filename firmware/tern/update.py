"""Updates in the field: other firmware over the network (shared_specs/update.md).

UPDATE frames bring a package, a row of files, which is staged in one file. There are two folders
for programs: the proven one, which runs, and the other, into which the package is unpacked. That
begins only once the whole staged file, read back from flash, carries its authentication code under
the device's key. firmware/trial/main.py, the loader, starts the package at the next reset, on
trial: if it does not reach its host, the proven folder runs again. Nothing of a package runs before
boot.bin says so.
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
_CODE = const(32)  # bytes of the authentication code at its end
_PIECE = const(512)  # bytes of a file for which the work is one step
_STEPS = const(4)  # that are done for an UPDATE
_DATA_AT = const(17)  # offset of the data in an UPDATE
# The characters of a file's name.
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./"


class Update:
    """The packages of a board: take() the frames, then restart into the program that they bring.

    state, number: those of the last complete package (wire.RESTARTING .. wire.ROLLED_BACK).
    restart: whether to reset the board now.
    """

    def __init__(self, board: "Base") -> None:
        """Find out which of the two folders runs, and read boot.bin."""
        self._directory = board.directory + "/"
        self._folders = [board.directory + folder for folder in FOLDERS]
        # The index of the proven folder. The one that runs is first in the path: the loader put it
        # before the other one.
        self._proven = False
        for path in sys.path:
            if path in self._folders:
                self._proven = path == self._folders[1]
                break
        self._work = None  # a generator that installs, under way
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

        Once the package is complete, each UPDATE does the next four steps of work, however long the
        flash takes: how many it needs depends on the package alone. Raises FrameError; then nothing
        has changed.
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
            state = wire.FULL  # if the flash takes no more
            try:
                state = self._receive(number, offset, total, key, frame[_DATA_AT : -wire.TAG_BYTES])
            except ValueError:
                state = wire.DAMAGED
            except (OSError, LedgerError):
                pass
            # It is installed, or it failed: the staged file is not needed any more. The state
            # RECEIVING is 0.
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
        """Write boot.bin: the proven folder, and the state of the package in the other one."""
        data = pack(BOOT_FIELDS, MAGIC, proven, state, number)
        replace(self._directory + BOOT, data + pack("<I", crc32(data)))
        self._proven = proven
        self.state = state
        self.number = number

    def _receive(self, number, offset, total, key, data):
        """Take the bytes `data` of a package, or install it once it is complete; return its state.

        number: of the package. offset: of the data in it. total: its bytes. key: the client's. It
        leaves in `_wanted` the offset of the bytes that are needed next. Raises ValueError for a
        damaged package, and OSError and LedgerError if the flash fails.
        """
        # The length of the staged file says how much has arrived, however it was interrupted; -1 if
        # it is missing or of another package.
        path = self._directory + STAGED
        header = pack("<II", number, total)
        received = -1
        try:
            with open(path, "rb") as file:
                kept_header = file.read(_HEADER)
            if len(kept_header) == _HEADER:
                if kept_header == header:
                    received = os.stat(path)[6] - _HEADER
                elif number <= unpack_from("<I", kept_header)[0]:
                    return wire.OLD
        except OSError:
            pass

        if received < 0:  # begin
            self._work = None
            received = 0
            with open(path, "wb") as file:
                file.write(header)

        if received == total:
            self._wanted = total
            work = self._work or self._install(number, total, key)
            self._work = None  # if it raises, the next UPDATE begins anew
            for _ in range(_STEPS):
                state = next(work)
                if state:
                    return state
            self._work = work
            return wire.RECEIVING

        # Append what comes next; data at another offset, as of a repeated frame, is ignored.
        if offset == received and received + len(data) <= total:
            with open(path, "ab") as file:
                file.write(data)
            received += len(data)
        self._wanted = received
        return wire.RECEIVING

    def _install(self, number, total, key):
        """Check and unpack the staged package; yields a state after each piece of work.

        The states are RECEIVING (0) until all is done, then RESTARTING. A package is a row of
        files, each a length of its name (u8), the name, a length (u32) and its content, then an
        HMAC-SHA256 (RFC 2104) over all of them. Raises ValueError if it is not authentic or not a
        package.
        """
        with open(self._directory + STAGED, "rb") as file:
            # The HMAC: hash((key ^ outer pad) + hash((key ^ inner pad) + files)).
            key = frames.digest(key, KEY_LABEL)
            inner = sha256(_pad(key, 0x36))
            yield from _pieces(file, _HEADER + total - _CODE, inner.update)
            outer = sha256(_pad(key, 0x5C))
            outer.update(inner.digest())
            if not frames.same(file.read(_CODE), outer.digest()):
                raise ValueError

            # Empty the folder that is not the proven one. main.py goes first: without it the loader
            # does not start what is left.
            folder = self._folders[1 - self._proven] + "/"
            for name in (MAIN, "tern"):
                yield from _clear(folder + name)

            file.seek(_HEADER)
            bytes_left = total - _CODE
            while bytes_left:
                name = str(file.read(file.read(1)[0]), "utf-8")
                size = int.from_bytes(file.read(4), "little")
                bytes_left -= 5 + len(name) + size
                # No file may lie outside of the folder: names have no "..", no hidden and no empty
                # parts. main.py must come last, so that a folder that has it is whole.
                absolute = "/" + name
                if (
                    bytes_left < 0
                    or name.strip(_NAMES)
                    or "/." in absolute
                    or "//" in absolute
                    or name[name.rfind(".") :] not in (".py", ".mpy", ".json")
                    or (name == MAIN) != (not bytes_left)
                ):
                    raise ValueError
                path = folder + name

                # Make the folders of the path.
                slash = 0
                while (slash := path.find("/", slash + 1)) > 0:
                    try:
                        os.mkdir(path[:slash])
                    except OSError:  # it is there
                        pass
                with open(path, "wb") as out:
                    yield from _pieces(file, size, out.write)

        self._keep(self._proven, wire.RESTARTING, number)
        self.restart = True
        yield wire.RESTARTING


def _pad(key, byte):
    """Return the first block of an HMAC: a 32-byte key, then zeros, all XORed with `byte`."""
    return bytes([part ^ byte for part in key]) + bytes([byte]) * 32


def _pieces(file, n, take):
    """Call take() with the next n bytes of `file`, piece by piece; yields after each.

    Raises ValueError if the file ends before.
    """
    piece = memoryview(bytearray(_PIECE))
    while n:
        count = file.readinto(piece[: min(n, _PIECE)])
        if not count:
            raise ValueError
        take(piece[:count])
        n -= count
        yield wire.RECEIVING


def _clear(path):
    """Remove a file or a folder, if it is there; yields after each removal.

    LittleFS removes an empty folder as a file.
    """
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
