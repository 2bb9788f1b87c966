"""A provisioned board for tests: its files, frames from its host, and its answers."""

import os
import struct
from array import array

import report_frames
from spec.cards import THREE as THREE
from spec.cards import THREE_ROWS, T, sum_card, table, two_levels, window

from tern import frames, host_frames, ledger, storage, wire
from tern.boards.emulated import Board

KEY = bytes(range(32))
_out = bytearray(wire.MAX_FRAME)
EPSILON = 2_000_000  # micro-epsilon of these cards
TWO = two_levels(EPSILON, 940000000, T - 940000000)
LEAKING = table(EPSILON, (-1, 0, 1), THREE_ROWS[:2] + ((112400000, 229700000),))
WINDOW = window(EPSILON, 15, 5, 800_000_000)
RHO_CARD = sum_card(50_000, 2, 2, 16, 1 << 14, t=51, c=51, m=1)  # 16**2 / (2 * 51**2), rounded up
PURE_CARD = sum_card(EPSILON, 1, 2, 16, 1 << 14, t=8)


def largest_card():
    """A table of 33 knots and 16 levels: no card that decodes is longer."""
    rows = [[(T >> 4) * j + 1000 * i * (j & 3) for j in range(1, 16)] for i in range(33)]
    return table(EPSILON, range(-8, 8), rows)


def key_of(device):
    """Return the key of a client of these boards."""
    return bytes([device & 255]) + KEY[1:]


def provision(directory, **options):
    """Write the files of a board into `directory`; return the Board, which this process then runs."""
    write_files(directory, **options)
    return Board(directory)


def write_files(
    directory,
    clients=1,
    d=4,
    records=1,
    largest=300_000_000,
    budget=ledger.MAX_BUDGET,
    first=7,
    fuses=0,
    measure=0,
):
    """Write clients.bin, records.bin and the ledgers into `directory`.

    fuses: of a counter to which the only ledger is bound; 0: none. measure: of the ledgers.
    """
    with open(directory + "/" + storage.CLIENTS, "wb") as file:
        for i in range(clients):
            device = first + i
            row = (device, key_of(device), largest, budget, i * records, records, 0)
            file.write(struct.pack(storage.CLIENT, *row))
    with open(directory + "/" + storage.RECORDS, "wb") as file:
        file.write(struct.pack(storage.RECORDS_HEADER, storage.MAGIC, d, clients * records))
        for i in range(clients * records):
            for j in range(d + 1):
                file.write(struct.pack("<h", 16384 - (3001 * i + 517 * j) % 32769))
    os.mkdir(directory + "/" + storage.LEDGERS)
    for i in range(clients):
        ledger.create(
            directory + "/" + storage.ledger_name(first + i), budget, 0, int(fuses > 0), measure
        )
    if fuses:
        with open(directory + ".count", "wb") as file:
            file.write(bytes(fuses))


def put_fleet(folder, key=bytes(32), pause=0, slot=0, ahead=1, epoch=1, records=0, unit=0):
    """Write fleet.bin, whose fields are those of storage.md.

    records: public upper bound on the records of a client; unit: records of a protected run.
    """
    with open(folder + "/" + storage.FLEET, "wb") as file:
        row = (storage.FLEET_MAGIC, key, pause, slot, ahead, epoch, records, unit)
        file.write(struct.pack(storage.FLEET_FIELDS, *row))


def round_frame(
    number,
    card_bytes,
    device=7,
    d=4,
    k=4,
    batch=0,
    model=wire.LOGISTIC,
    shift=0,
    key=None,
    range_=0,
    exponent=-14,
    classes=1,
    local=(0, 0, 0),
):
    """Return a ROUND as a memoryview; `shift` changes its parameters.

    A collection requests the features whose parameters are not 0.
    """
    rows = 1 if model in wire.COLLECTIONS else classes
    parameters = array("h", (100 * j + shift for j in range(d * rows)))
    n = host_frames.encode_round(
        _out,
        key or key_of(device),
        device,
        number,
        model,
        parameters,
        card_bytes,
        k,
        exponent,
        range_,
        classes,
        batch,
        local,
    )
    return memoryview(bytearray(memoryview(_out)[:n]))


asked = [b""]  # the last ROUND


def ask(client, frame):
    """Return the answer of `client` as bytes."""
    asked[0] = frame
    return bytes(client.reply[: client.answer(frame)])


def ask_all(client, frame, moment=None):
    """Return every answer of `client` as bytes, in order of devices, REPORTS split into REPORTs.

    moment: as for answers_of().
    """
    asked[0] = frame
    return report_frames.one_by_one(report_frames.answers_of(client, frame, moment))


def answer_key(device=7):
    """Return the key of a client's answers to the last ROUND."""
    return frames.answer_key(report_frames.question_of(key_of(device), device, asked[0]))


def error_of(answer, device=7):
    """Return (code, detail) of a client's ERROR to the last ROUND; device 0: of the board's."""
    sender, _, code, detail = host_frames.decode_error(
        answer, answer_key(device) if device else b""
    )
    assert sender == device
    return code, detail


def book_of(folder, device=7):
    """Return the Ledger of a client, loaded."""
    book = ledger.Ledger()
    book.load(folder + "/" + storage.ledger_name(device))
    return book


def spent(folder, device=7):
    """Return the micro-epsilon that a client has spent, by its ledger."""
    return book_of(folder, device).spent


def symbols_of(answer, k, base, device=7):
    """Return the symbols of a client's REPORT to the last ROUND."""
    out = array("H", (0 for _ in range(k)))
    assert answer[0] == wire.REPORT, answer
    report_frames.decode_report(answer, answer_key(device), k, base, out)
    return list(out)
