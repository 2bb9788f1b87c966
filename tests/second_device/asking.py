"""Boards, and frames of honest and hostile hosts, for the comparison of two devices.

A random.Random determines all of it. The frames are made from the specifications, not by the
library; most have right tags, since a hostile host with the keys is the most dangerous one.
"""

import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from small_board import LEAKING, THREE, TWO, WINDOW, largest_card
from spec.boards import FIELDS, Round
from spec.cards import projection_card, sum_card
from spec.files import checked_ledger, client_row, fleet_file, key_of, ledger_file, records_file
from spec.frames import FLEET, cobs, features, fleet_key_body, int16s, sealed
from test_hostile_host import EDGES, GRR, LAPLACE, LHP, lie

from tern import wire

VECTORS = Path(__file__).parents[2] / "shared_specs" / "vectors"
LAST_ROUND = 2**30 - 1
FIRSTS = (1, 7, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 2)
NUMBERS = (0, 1, 2, 1024, 1025, 2**20, 2**20 + 1, LAST_ROUND - 1, LAST_ROUND, 2**30, 2**31, FLEET)
TIMES = (0, 1, 2, 3, 7, 16, 31, 32, 33, 127, 128, 255)
_TESTS = json.loads((VECTORS / "cards.json").read_text())["tests"]
CASES = [(bytes.fromhex(case["card"]), case) for case in _TESTS]
CARDS = [card for card, _ in CASES]
GOOD = [THREE, TWO, WINDOW, GRR, LAPLACE, LHP]
GOOD += [
    card
    for card, case in CASES
    if case["certified"] and int.from_bytes(card[1:5], "little") <= 10_000_000
]


@dataclass
class Board:
    """The files of a board, and the knowledge of a host about it."""

    first: int = 7
    clients: int = 1
    d: int = 4
    lasts: dict = field(default_factory=dict)  # the last round of each client
    files: dict = field(default_factory=dict)
    fleet_key: bytes = b""
    epoch: int = 0

    @property
    def devices(self):
        return range(self.first, self.first + self.clients)


def some_ledger(draw, last):
    measure = draw.choice((0, 0, 1))
    spent = draw.choice((1, 2_000_000, 90_000_000))
    question = {"question": draw.randbytes(32)}
    used = {"budget": draw.choice((100_000_000, 10**9)), "spent": spent, "last": max(1, last)}
    report = b"\x82" + draw.randbytes(draw.choice((17, 30, 272)))
    file = draw.choice(
        [ledger_file(last=last, measure=measure)] * 9
        + [ledger_file(budget=draw.choice((4_000_000, 60_000_000)), last=last)]
        + [ledger_file(state=1, report=report, measure=measure, **question, **used)] * 2
        + [ledger_file(state=2, measure=measure, **used)] * 2
        + [ledger_file(last=last, step=1)]  # bound to a counter
        + [ledger_file(b"TLG2", last=last)]  # of another version
    )
    damage = draw.randrange(60)
    if damage == 0:
        file = file[: draw.randrange(len(file))]
    elif damage == 1:
        at = draw.randrange(len(file))
        file = file[:at] + bytes([file[at] ^ 1 << draw.randrange(8)]) + file[at + 1 :]
    elif damage == 2:  # with a right check
        at = draw.randrange(54)
        file = checked_ledger(
            file[:at] + bytes([draw.choice((0, 1, 2, 3, 255))]) + file[at + 1 : -4]
        )
    elif damage == 3:
        file += draw.randbytes(draw.randrange(300))
    elif damage == 4:
        return None
    return file


def some_board(draw):
    """A board: its files, some of them damaged, and its policy."""
    clients = draw.choice((1, 1, 1, 2, 3))
    first = min(draw.choice(FIRSTS), 2**32 - 1 - clients)
    board = Board(first, clients, draw.choice((1, 2, 4, 4, 8, 28, 128)))
    rows, start = b"", 0
    records = draw.choice((1, 2, 3, 5, 33, 40))
    for device in board.devices:
        held = max(0, records - draw.choice((0, 0, 0, 1)))
        largest = draw.choice((2_000_000, 20_000_000, *[10**9] * 6, FLEET))
        budget = draw.choice((8_000_000, 100_000_000, *[10**9] * 4, FLEET))
        shapes = draw.choice((*[0] * 8, 0xFE, 0x7E, 0x02, 0x1C, 0xE0))
        if draw.randrange(40) == 0:
            shapes = draw.choice((1, 256, 0x8002))
        listed = device + (draw.randrange(60) == 0) if device > first else device
        rows += client_row(listed, largest, budget, start, held, shapes, key_of(device))
        start += records
        lasts = (0, 0, 0, 9, 9, 1000, 1000, 2**29, 2**29, LAST_ROUND - 9, LAST_ROUND)
        board.lasts[device] = draw.choice(lasts)
        file = some_ledger(draw, board.lasts[device])
        if file is not None:
            board.files[f"ledger/{device:08x}"] = file
            board.lasts[device] = min(int.from_bytes(file[12:16], "little"), LAST_ROUND)
    values = [
        draw.choice((0, 1, -1, 3, 8192, 16384, -16384, draw.randrange(-16384, 16385)))
        for _ in range(start * (board.d + 1))
    ]
    held = records_file(board.d, values)
    damage = draw.randrange(150)
    if damage == 0:
        held = held[: draw.randrange(len(held))]
    elif damage == 1:
        held = b"TRD2" + held[4:]
    elif damage == 2:
        held += b"\0"
    elif damage == 3:
        rows = rows[: draw.randrange(len(rows))]
    elif damage == 4:
        rows += b"\0"
    elif damage == 5:
        rows = bytes(4) + rows[4:]
    board.files["clients.bin"] = rows
    board.files["records.bin"] = held
    if damage in (6, 7):
        del board.files[("clients.bin", "records.bin")[damage - 6]]
    if draw.randrange(3):
        some_fleet_file(draw, board)
    return board


def some_fleet_file(draw, board):
    board.fleet_key = draw.randbytes(32)
    pause = draw.choice((0,) * 40 + (86400, 86400, 86401))
    slot = draw.choice((0,) * 6 + (1, 65535, 65535))
    ahead = draw.choice((1, 1, 1, 3, 24, 1000) * 16 + (0, 1001))
    board.epoch = draw.choice((0, 1, 2**31, FLEET))
    records = draw.choice((0, 0, 1, 2, 33, 65535))
    unit = draw.choice((0, 0, 1, 1, 2, 60))
    file = fleet_file(board.fleet_key, pause, slot, ahead, board.epoch, records, unit)
    if draw.randrange(60) == 0:
        file = draw.choice((file[:-1], file + b"\0", b"TFL4" + file[4:], b"TFL2" + file[4:50], b""))
    board.files["fleet.bin"] = file


# --- Frames
# -----------------------------------------------------------------------------------------------------


def some_sum(draw):
    """A sum card that is nearly always certified."""
    norm, steps, tally = (
        draw.choice((1, 2)),
        draw.choice((1, 16, 300, 4096)),
        draw.choice((0, -5, 4096)),
    )
    t = max(1, min(draw.choice((1, 2, 40)) * (steps + abs(tally)), 1 << 20))
    m = draw.choice((1, 1, 3, (1 << 20) // t)) if t < 1 << 18 else 1
    c = min(1 << 19, t * m * draw.choice((1, 2, 4)) // draw.choice((1, 1, 3)) + 1)
    card = sum_card(
        20_000_000,
        norm,
        draw.choice((0, 0, 1, 1, 2, 60, 65535)),
        steps,
        1 << draw.randrange(30),
        tally,
        -tally,
        t,
        c,
        m,
        draw.choice((0, 1, 8, 20)),
        draw.choice((2, 9, 16)),
    )
    return card[:1] + draw.choice((20_000_000, 2_000_000)).to_bytes(4, "little") + card[5:]


def some_projection(draw, values):
    """A projection card that is nearly always certified, and mostly has as many directions as there
    are values.
    """
    n = draw.choice((min(max((values - 1).bit_length(), 1), 7), 7, draw.randrange(1, 8)))
    k = draw.choice((1, 1 << n, draw.randrange(1, (1 << n) + 1)))
    b = draw.choice((1, 1000, 2 ** (19 - n)))
    a = b + draw.randrange((2**20 - (2 << n) * b) // k + 1)
    radius = draw.choice((1, 100, draw.randrange(1, 2**12), 2**15))
    return projection_card(
        *draw.choice(((20_000_000, n, k, a), (2_000_000, n, k, min(a, 7 * b)))), b, radius
    )


def some_card(draw, made=None):
    """made: a card that suits the ROUND."""
    card = made or draw.choice(GOOD)
    kind = draw.randrange(12)
    if kind == 0:
        card = draw.choice(CARDS)
    elif kind == 1:
        at = draw.randrange(len(card))
        card = card[:at] + bytes([card[at] ^ 1 << draw.randrange(8)]) + card[at + 1 :]
    elif kind == 2:
        epsilon = draw.choice((0, 1, 1_000_000, 20_000_000, 20_000_001, FLEET))
        card = card[:1] + epsilon.to_bytes(4, "little") + card[5:]
    elif kind == 3:
        cut = card[: draw.randrange(len(card) + 1)]
        card = draw.choice((LEAKING, largest_card(), card + b"\0", card[:-1], cut))
    return card


def some_round(draw, board, device, number):
    """A ROUND that is valid, except perhaps for its card and the client's policy."""
    model = draw.choice((1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))
    d = board.d if draw.randrange(30) else draw.choice((1, 2, 128))
    collects = model in (8, 9)
    local = model in (5, 6, 7, 11)
    classes = (
        draw.choice([n for n in (2, 3, 8, 128) if n * d <= 1024]) if model in (4, 10, 11) else 1
    )
    exponent = 0
    if model == 9:  # of bins: 0 if features are categories
        exponent = draw.choice((0, 0, 1, 2, 5, 12))
    elif not collects:
        exponent = draw.choice((-16, -15, -14, -12) if local else (-30, -22, -16, -14, -12))
    range_ = (
        draw.choice((0, 0, 1, 5, 12))
        if model in (1, 2, 3, 8, 10)
        else draw.randrange(2) * (model == 9)
    )
    batch = 0 if collects or model == 4 else draw.choice((0, 1, 2, 5, 32))
    training = (0, 0, 0)  # epochs, rate, tau
    if local:
        training = (
            draw.choice((1, 1, 2, 5)),
            draw.randrange(17),
            draw.choice((1, 100, 40000, 2**23)),
        )
    size = draw.choice((30, 3000, 32767))
    if collects:
        bits = [draw.randrange(4) > 0 for _ in range(d)]
        bits[draw.randrange(d)] = True
        question = features([j for j, bit in enumerate(bits) if bit], d)
        values = sum(bits)
    else:
        weight = lambda: draw.choice((draw.randrange(-size, size + 1), 0, -32768, 32767))  # noqa: E731
        question = int16s([weight() for _ in range(classes * d)])
        values = classes if model == 4 else classes * d
    is_projection = draw.randrange(6) == 0 and model in (1, 2, 3, 8, 10)
    is_sum = not is_projection and draw.randrange(3) == 0 and model in (1, 2, 3, 8, 10)
    values += is_sum
    k = values
    if model != 4:
        k = draw.choice(
            (1, 1, 1, min(values, 2), min(values, 5), values, draw.randrange(1, values + 1))
        )
    made = some_sum(draw) if is_sum else some_projection(draw, values) if is_projection else None
    card = some_card(draw, made)
    if is_projection and draw.randrange(9):
        k = 1
    if is_sum and draw.randrange(9):
        batch, range_ = 0, min(range_, 10)
    if draw.randrange(8) and model in (4, 9):
        card = LAPLACE if model == 4 else GRR
    return Round(
        device, number, model, range_, exponent, classes, d, k, batch, *training, question, card
    )


def altered(draw, request):
    """A Round like `request` with another value of one field."""
    name = draw.choice([*FIELDS, "length", "question"])
    if name == "question":
        at = draw.randrange(len(request.question) + 1)
        byte = draw.choice((b"\0", b"\1", b""))
        return replace(request, question=request.question[:at] + byte + request.question[at + 1 :])
    values = {
        "device": (*FIRSTS, 0, FLEET),
        "round": NUMBERS,
        "model": TIMES + tuple(range(13)),
        "range": (*TIMES, 12, 13),
        "exponent": (-31, -30, -29, -17, -16, -13, -12, -11, -1, 0, 1, 12, 13),
        "classes": TIMES,
        "d": EDGES,
        "k": EDGES,
        "batch": TIMES,
        "epochs": TIMES,
        "rate": (*TIMES, 17),
        "tau": (0, 1, 2**23 - 1, 2**23, 2**23 + 1, FLEET),
        "length": (0, 1, len(request.card) - 1, len(request.card) + 1, 2048, 2049, 65535),
    }
    return replace(request, **{name: draw.choice(values[name])})


class Host:
    """A host of a board: `frame` returns the next bytes on the line, in COBS with the 0x00."""

    def __init__(self, draw, board):
        self._draw = draw
        self._board = board
        self._sent = []

    def key(self, device):
        if device == FLEET:
            return self._board.fleet_key or bytes(32)
        return key_of(device)

    def frame(self):
        draw = self._draw
        kind = draw.randrange(100)
        if kind < 12 and self._sent:  # once more
            return cobs(draw.choice(self._sent[-4:]))
        if kind < 16:
            return cobs(self._odd())
        if kind < 18:
            return self._noise()
        if kind < 23:
            return cobs(self._fleet_key())
        frame = self._round(kind)
        self._sent.append(frame)
        return cobs(frame)

    def _round(self, kind):
        draw, board = self._draw, self._board
        device = draw.choice(board.devices)
        last = board.lasts[device]
        target = FLEET if draw.randrange(4) == 0 and board.fleet_key else device
        number = last + draw.choice((*[1] * 16, 2, 2, 3, 0, -1, 1024, 1025, 2**20, 2**20 + 1))
        number = min(max(number, 1), LAST_ROUND)
        if 23 <= kind < 30:
            frame = bytearray(wire.MAX_FRAME)
            n = lie(frame, Lies(draw), number, board.d)
            body = bytes(frame[:n])
            if len(body) >= 5:
                body = body[:1] + struct.pack("<I", target) + body[5:]
        else:
            request = some_round(draw, board, target, number)
            if 30 <= kind < 40:
                request = altered(draw, request)
                target = request.device
            body = request.body()
        if number > last and number - last < 1000:  # the host goes on counting, answered or not
            for known in board.devices if target == FLEET else (device,):
                board.lasts[known] = max(board.lasts[known], number)
        key = self.key(target)
        if draw.randrange(40) == 0:
            key = draw.choice((bytes(32), board.fleet_key, b"", key_of(board.first)))
        return sealed(key, body)

    def _odd(self):
        draw = self._draw
        body = draw.choice(
            (
                b"\1" + draw.randbytes(4),
                b"\1" + draw.randbytes(draw.randrange(9)),
                b"\4" + draw.randbytes(draw.randrange(99)),
                bytes([draw.randrange(256)]) + draw.randbytes(draw.randrange(99)),
                b"\2" + draw.randbytes(draw.randrange(30)),
                draw.randbytes(draw.randrange(4)),
                b"\2" + bytes(draw.choice((2550, 2551, 2552, 2553))),
                struct.pack("<BIBHH", 3, 1, 0, 1, 0),
                b"\x82" + bytes(20),
                b"\x85" + bytes(30),
            )
        )
        return sealed(b"", body) if draw.randrange(6) else body

    def _noise(self):
        draw = self._draw
        data = bytes(
            draw.randrange(1, 256) for _ in range(draw.choice((1, 2, 30, 300, 2570, 2600)))
        )
        return (b"\1" + data if data.startswith(b"\r\3") else data) + b"\0"

    def _fleet_key(self):
        draw, board = self._draw, self._board
        device = draw.choice((board.first,) * 6 + (board.first + 1, 0, FLEET))
        epoch = draw.choice((board.epoch + 1, board.epoch + 1, board.epoch, 0, 1, FLEET)) & FLEET
        new, key = draw.randbytes(32), key_of(board.first)
        body = fleet_key_body(key, device, epoch, new)
        if draw.randrange(8) == 0:
            body = draw.choice((body[:-1], body + b"\0", body[:9]))
        elif (
            device == board.first and board.fleet_key and epoch > board.epoch and draw.randrange(8)
        ):
            board.fleet_key, board.epoch = new, epoch
        else:
            key = draw.choice((key, bytes(32), board.fleet_key))
        return sealed(key, body)


class Lies:
    """The methods of test_hostile_host's random numbers, from a random.Random."""

    def __init__(self, draw):
        self.below = draw.randrange
        self.one_of = draw.choice
