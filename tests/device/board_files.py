"""What a board makes of any bytes in its files, in the current folder.

An exception that the callers of the library do not expect, or an AssertionError, is a finding; the
returned text is the same on every interpreter.
"""

import os
import struct
from array import array
from binascii import crc32

import update_rig
from scratch import read, write

from tern import frames, host_frames, lease, ledger, recorder, storage, update, wire
from tern.boards.emulated import Board
from tern.limits import Limits
from tern.model import Model, decode_model

D = 4
_HOLD = 4
_LAST = (1 << 30) - 2  # number of a segment
_PATH = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./"


def _sealed(data):
    """Return `data` with its CRC-32 behind it."""
    return data + struct.pack("<I", crc32(data))


def ledgers(data):
    """Load a ledger of these bytes, as they are and with the right checksum.

    One that loads stays within its budget, also after payments.
    """
    return "%s %s" % (_ledger(data), _ledger(_sealed(data[:-4])))


def _ledger(data):
    """Load a ledger of these bytes, pay from it, and compare it with its file after each payment.

    Returns its fields as text, or "none" if it does not load.
    """
    write("fuzzed", data)
    book = ledger.Ledger()
    try:
        book.load("fuzzed")
    except (ledger.LedgerError, frames.FrameError):  # FrameError: of a counter, which is not there
        assert read("fuzzed") == data
        return "none"
    loaded = (
        book.budget,
        book.spent,
        book.round,
        book.state,
        bytes(book.question),
        bytes(book.report),
    )
    assert 0 <= book.spent <= book.budget <= ledger.MAX_BUDGET
    assert loaded[:3] == struct.unpack_from("<III", data, 4)
    assert read("fuzzed") == data
    start = book.round
    for cost, number, ahead in ((3, start + 1, 1), (book.budget, start + 1, 3), (2, start + 2, 5)):
        before = (book.budget, book.spent, book.round)
        try:
            book.pay(number, bytes(32), cost, bytes(range(18)), ahead)
        except ledger.LedgerError:
            assert (book.budget, book.spent, book.round) == before
            continue
        assert book.spent == before[1] + cost <= book.budget == loaded[0]
        durable = ledger.Ledger()
        durable.load("fuzzed")
        assert book.spent <= durable.spent <= durable.budget == book.budget
        assert durable.round >= book.round == number
    return str(loaded)


def storages(data):
    """Read the bytes as fleet.bin, clients.bin and records.bin, with and without their magic."""
    words = []
    for content in (data, storage.FLEET_MAGIC + data, storage.MAGIC + data):
        write("fuzzed", content)
        for read_file in (_fleet, _clients, _records):
            try:
                words.append(str(read_file(len(content))))
            except storage.StorageError:
                words.append("none")
    return " ".join(words)


def _fleet(_):
    """Return the fields of the fleet.bin, which are within their bounds."""
    fields = storage.read_fleet("fuzzed")
    assert fields[1] <= storage.MAX_PAUSE
    assert 1 <= fields[3] <= storage.MAX_AHEAD
    return fields


def _clients(size):
    """Return the id after the last client; find() finds exactly the ids before it."""
    clients = storage.Clients("fuzzed")
    try:
        assert clients.count * storage.CLIENT_BYTES == size
        end = clients.first + clients.count
        for device in (clients.first, end - 1, end, 0, 1 << 31):
            inside = 0 <= device - clients.first < clients.count
            assert clients.find(device) == inside
            assert not inside or clients.device == device
        return end
    finally:
        clients.close()


def _records(_):
    """Return the last row that was read; reading fails exactly outside of the records."""
    records = storage.Records("fuzzed")
    try:
        row = array("h", bytes(2 * (records.d + 1)))
        for index in (0, records.count - 1, records.count, 1 << 30):
            try:
                records.read(index, row)
                assert index < records.count
            except storage.StorageError:
                assert not 0 <= index < records.count
        return bytes(row)
    finally:
        records.close()


def segments(contents):
    """Open a recorder on these segments, (name, content) each, and append to it.

    What is appended is there when it is opened again, unless there is no larger number.
    """
    if recorder.SAMPLES not in os.listdir():
        os.mkdir(recorder.SAMPLES)
    for name in os.listdir(recorder.SAMPLES):
        os.remove(recorder.SAMPLES + "/" + name)
    for name, content in contents:
        write(recorder.SAMPLES + "/" + name, content)
    book, before = _recorder()
    new = [[number + j for j in range(D + 1)] for number in range(_HOLD)]
    for row in new:
        book.append(array("h", row[:D]), row[D])
    book.close()
    again, after = _recorder()
    if book.lost:
        assert book._number == _LAST
    else:
        assert after[-_HOLD:] == new == _rows(book)[-_HOLD:]
    assert again.lost == 0
    again.clear()
    assert _recorder()[1] == []
    return str(before)


def _recorder():
    """Return a Recorder of the folder, opened, and its records."""
    book = recorder.Recorder(D, 5 * _HOLD, _HOLD, 1)
    book.open(".")
    return book, _rows(book)


def _rows(book):
    """Return the records of a Recorder as lists."""
    rows = []
    row = array("h", bytes(2 * D + 2))
    for index in range(book.count):
        book.read(index, row)
        rows.append(list(row))
    return rows


def model(data):
    """Load a model.bin and a limits.bin of these bytes, as they are and with the right tag.

    What is ready encodes to the same MODEL, and predicts or finds an unusual feature.
    """
    words = []
    for content in (data, data[:-8] + frames.tag(b"", data[:-8])):
        write("model.bin", content)
        kept = Model()
        kept.open(".")
        write("limits.bin", content)
        limits = Limits()
        limits.open(".")
        assert not (kept.ready and limits.ready)
        if kept.ready or limits.ready:
            epoch, number, kind, exponent, classes, parameters = decode_model(
                memoryview(content), b""
            )
            again = bytearray(len(content))
            host_frames.encode_model(again, b"", epoch, number, kind, parameters, exponent, classes)
            assert again == content
        if limits.ready:
            row = array("h", [250 * j for j in range(limits.d)])
            words.append("limits %d %d" % (limits.round, limits.unusual(row)))
        if kept.ready:
            row = array("h", [250 * j for j in range(kept.d)])
            words.append(
                "%d %d %d %d" % (kind, kept.round, kept.score(row, classes - 1), kept.predict(row))
            )
    return " ".join(words)


def boot(data):
    """Start a board with these bytes as boot.bin, as they are and with the right checksum.

    Both the loader and the program that it starts read it.
    """
    if _provisioned("boot"):
        os.mkdir("boot/lib2/tern")
        for path, content in update_rig.files("new"):
            write("boot/lib2/" + path, content)
    return "%s %s" % (_boot(data), _boot(_sealed(data[:10])))


def _provisioned(folder):
    """Make the folder of a board with two places for programs; return whether it was missing."""
    if folder in os.listdir():
        return False
    os.mkdir(folder)
    update_rig.provision(folder)
    os.mkdir(folder + "/lib2")
    return True


def _boot(data):
    """Run the loader on this boot.bin; return which program ran, and the state that it sees."""
    write("boot/boot.bin", data)
    good = len(data) == 14 and data[:4] == update.MAGIC and data == _sealed(data[:-4])
    proven, state, number = struct.unpack_from("<BBI", data, 4) if good else (0, wire.CONFIRMED, 0)
    update_rig.board.error = None
    ran = update_rig.load("boot")
    if update_rig.board.error:
        raise update_rig.board.error
    assert ran == ("new" if (proven & 1) ^ (state == wire.RESTARTING) else "old")
    after = {wire.RESTARTING: wire.TRIAL, wire.TRIAL: wire.ROLLED_BACK}.get(state)
    assert read("boot/boot.bin") == (update_rig.boot(proven, after, number) if after else data)
    program = update.Update(Board("boot"))
    assert program.number == number
    return "%s %d %d" % (ran, program.state, number)


class _Radio:
    """A radio that takes only addresses, as those of boards do.

    It is also a station with itself, and a connection.
    """

    host = "10.0.0.1"

    def __init__(self):
        self.radio = self

    def ifconfig(self, addresses=("10.0.0.9", "255.0.0.0", "10.0.0.3", "")):
        if len(addresses) != 4:
            raise ValueError("wrong number of values")
        for text in addresses:
            if text and [0 <= int(part) < 256 for part in text.split(".")] != [True] * 4:
                raise ValueError("invalid address")
        return addresses

    def ipconfig(self, dhcp4):
        assert dhcp4

    def disconnect(self):
        pass


def leases(data):
    """Read these bytes as lease.json, keep a new lease, and forget it.

    The text is empty, since MicroPython reads more than JSON.
    """
    write(lease.LEASE, data)
    known = lease.Lease(".", _Radio())
    assert known.broker is None or isinstance(known.broker, str)
    for _ in range(20):  # now and then it asks for a new address
        known.take()
    known.connection = _Radio()
    known.keep()
    again = lease.Lease(".", _Radio())
    assert again.broker == _Radio.host
    again.forget()
    assert lease.Lease(".").broker is None
    return ""


def package(data):
    """Send a package of this content with the right code; return the state in which it ends.

    It changes nothing but its folder.
    """
    _provisioned("package")
    own = ("lib2", update.BOOT)
    before = update_rig.tree("package", own)
    state = update_rig.send(
        update.Update(Board("package")), 3, update_rig.sealed(3, data or bytes(1))
    )
    assert update_rig.tree("package", own) == before
    for path in update_rig.tree("package/lib2"):
        os.remove(path)
    if state == wire.RESTARTING:
        os.remove("package/" + update.BOOT)
        assert _is_package(data)
    return str(state)


def _is_package(data):
    """Return whether `data` is the content of a package, by the definition in update.md."""
    name = b""
    while data and name != b"main.py":
        name = data[1 : 1 + data[0]]
        parts = name.split(b"/")
        good = all([part and part[:1] != b"." for part in parts]) and not name.strip(_PATH)
        if not good or not name.endswith((b".py", b".mpy", b".json")):
            return False
        (size,) = struct.unpack_from("<I", data, 1 + len(name))
        data = data[5 + len(name) + size :]
    return name == b"main.py" and not data
