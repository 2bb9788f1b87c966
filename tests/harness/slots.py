"""Questions with as much work as the slot of a board admits, for the emulated Pico.

Its times are simulated cycles: an answer that is sent late is late on every machine.
"""

import math
import struct
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from framing import encoded
from spec import cards as spec
from spec.cards import T

from tern import card as cards
from tern import frames, host_frames, ledger, storage, wire
from tern.fixed import ONE
from tern.policy import work_ms
from terntools.boards import mpy, records, software
from terntools.boards.program import Program
from terntools.boards.repl import Repl
from terntools.emulators import flash_image, qemu
from terntools.emulators.pico import boot_pico

PROGRAM = Path(__file__).with_name("slot_program.py")
RECORDS = 200  # of client 2; client 1 has one
KEYS = [bytes([device]) * wire.KEY_BYTES for device in (1, 2)]


def table(epsilon, knot_bits=0, levels=3):
    """A table card with micro-epsilon `epsilon` and nearly equal thresholds at all knots."""
    knots = range((1 << knot_bits) + 1)
    rows = [[j * (T // levels + 7 * (knot & 1)) for j in range(1, levels)] for knot in knots]
    return spec.table(epsilon, range(-(levels // 2), levels - levels // 2), rows)


def window(epsilon, symbols=256, width=85):
    """A window card whose probabilities inside and outside the window are nearly equal."""
    return spec.window(epsilon, symbols, width, T * width // symbols)


def laplace(epsilon):
    """The slowest laplace card with three outputs: half of all uniforms are rejected, and most
    noise is 0.
    """
    t = (1 << 17) + 9
    return spec.laplace(epsilon, 0, t, min(1 << 20, t * epsilon // 2_000_000), -1, 1)


def mixture(epsilon, first=None, second=None):
    """A mixture card that draws from each of two cards half of the time."""
    return spec.mixture(epsilon, T // 2 + 1, first or window(1, 2, 1), second or table(1, 0, 2))


def hierarchy(epsilon, ranges=2):
    """A hierarchy card with this number of ranges."""
    bounds = [15000 - 30000 * i // (ranges - 1) for i in range(ranges - 1)]
    levels = [spec.window(1, ranges, 1, T // ranges + i) for i in range(ranges)]
    values = [spec.two_levels(1, T // 2 + 5 + i, T // 2 - 5 - i) for i in range(ranges)]
    return spec.hierarchy(epsilon, bounds, levels, values)


def total(unit, t, c, m=1, bits=8, norm=2):
    """A function from epsilon or rho to a sum card whose units of opposite records are clipped."""

    def card(epsilon):
        return spec.sum_card(epsilon, norm, unit, 64, 1 << 14, 1, -1, t=t, c=c, m=m, bits=bits)

    return card


def projection(epsilon):
    """A card for reports about 128 values."""
    return spec.projection_card(epsilon, 7, 40, 5459, 100)


def one_of(symbols):
    """A function from epsilon to a window card of width 1, for labels and categories."""
    return lambda epsilon: window(epsilon, symbols, 1)


def longest_table(epsilon):
    """A table card with 33 knots and 16 levels."""
    return table(epsilon, 5, 16)


def longest_mixture(epsilon):
    """A mixture card of two tables with 33 knots."""
    return mixture(epsilon, table(1, 5, 8), table(1, 5, 7))


def longest_hierarchy(epsilon):
    """A hierarchy card with 16 ranges."""
    return hierarchy(epsilon, 16)


@dataclass(frozen=True)
class Case:
    """A question. micro: the least micro-epsilon of a value. anew: each round has a card that is
    new to the board.

    records: of client 2, and the bound of the board. weight: of the first feature. bins: the
    exponent of the number of bins, of which numbers are collected. hashed: whether these are hashed.
    """

    name: str
    model: int
    card: object
    d: int = 128
    classes: int = 1
    k: int = 1
    batch: int = 0
    local: tuple = (0, 0, 0)
    micro: int = 19_999_000
    anew: bool = True
    records: int = RECORDS
    weight: int = 9999
    bins: int = 0
    hashed: bool = False

    def frame(self, device, number):
        """The ROUND (bytes) of this number for a client."""
        exponent = -14
        values = [self.weight - 7 * j for j in range(self.d * self.classes)]
        if self.model in wire.COLLECTIONS:
            exponent = self.bins
            values = [1] * self.d
        card = self.card(self.micro + self.anew * (2 * number + device))
        return encoded(
            host_frames.encode_round,
            KEYS[device - 1],
            device,
            number,
            self.model,
            values,
            card,
            self.k,
            exponent,
            int(self.hashed),
            self.classes,
            self.batch,
            self.local,
        )

    @property
    def slot(self):
        """The shortest slot (ms) in which a board without a program admits the question."""
        return self.work_ms()

    def work_ms(self, recorder=None):
        """The upper bound on the work, in ms. recorder: that of the board's program."""
        request = frames.Round()
        request.decode(memoryview(self.frame(1, 1)))
        card = cards.decode(request.card)
        return work_ms(
            request, card, frames.packed_size(card.symbols, self.k), self.records, recorder
        )


AFFORDABLE = 3_000_000  # micro-epsilon of each of 128 values, for several rounds
CHEAP = 400_000  # micro-epsilon of each of 1,024 values, for two rounds
SOFTMAX = {"model": wire.SOFTMAX_GRADIENT, "classes": 8}
LOCAL_SOFTMAX = {"model": wire.LOCAL_SOFTMAX, "classes": 8, "batch": 1, "local": (1, 2, 9)}
ALL_VALUES = {"k": 1024, "micro": CHEAP}
CASES = (
    Case("softmax gradient, 1023 values", card=table, k=1023, batch=1, micro=CHEAP, **SOFTMAX),
    Case("softmax gradient, batch 32", card=table, batch=32, **SOFTMAX),
    *(
        Case(f"softmax gradient, {card.__name__}", card=card, batch=1, **SOFTMAX, **ALL_VALUES)
        for card in (laplace, mixture, hierarchy)
    ),
    Case("gradient", wire.LOGISTIC, window, k=128, batch=32, micro=AFFORDABLE),
    *(
        Case(f"gradient, {card.__name__}", wire.LINEAR, card, d=1, batch=32)
        for card in (longest_table, longest_mixture, longest_hierarchy)
    ),
    Case("inference of a vector", wire.SOFTMAX, laplace, classes=8, k=8, micro=16_000_000),
    Case("inference of a label", wire.SOFTMAX, one_of(8), classes=8),
    Case("collection", wire.VALUES, longest_hierarchy, k=128, micro=2_000_000),
    Case("categories", wire.CATEGORIES, one_of(256), k=128, micro=2_000_000),
    Case("hashed bins", wire.CATEGORIES, one_of(256), k=128, micro=2_000_000, bins=12, hashed=True),
    Case("local training", wire.LOCAL + wire.LOGISTIC, table, d=28, local=(1, 2, 1 << 18)),
    Case("local training of 8 classes", card=table, records=64, **LOCAL_SOFTMAX),
    Case("local training, 1024 values", card=table, records=2, **LOCAL_SOFTMAX, **ALL_VALUES),
    Case("sums of features", wire.VALUES, total(1, 32, 32), k=129, records=640),
    Case(
        "counts of bins",
        wire.CATEGORIES,
        total(0, 65537, 22000, bits=2, norm=1),
        d=127,
        classes=8,
        k=1017,
        records=160,
        bins=3,
    ),
    *(
        Case(f"noise of variance {c} / {t} t**2", wire.VALUES, total(1, t, c), k=129, records=1)
        for t, c in ((65537, 4 * 65537), (65537, 22000), (65537, 1025))
    ),
    Case(
        "sums of softmax gradients",
        card=total(0, 65537, 22000, m=1, bits=2, norm=1),
        d=127,
        k=1017,
        records=1,
        **SOFTMAX,
    ),
    Case("about 128 values", wire.LOGISTIC, projection, batch=32),
    Case("about 128 values of all records", wire.LOGISTIC, projection, records=500),
    Case("gradient of all records", wire.LINEAR, table, d=31, records=500),
    Case("softmax gradient of all records", card=table, records=64, **SOFTMAX),
    Case(
        "sums over units of one record",
        wire.LOGISTIC,
        total(1, 32, 32),
        d=28,
        k=29,
        records=640,
        weight=99,
    ),
)


class Slots:
    """An emulated Pico with every module of the device library."""

    def __init__(self, repl):
        self._repl = repl

    def answers(self, case, slot, beat, rounds=2, task=False):
        """(type, code, microseconds) of the answers of a board with a slot of `slot` ms to the
        rounds of both clients.

        beat, task: as of slot_program.answers.
        """
        questions = [
            case.frame(device, number + 1) for number in range(rounds) for device in (1, 2)
        ]
        return self._repl.evaluate(
            f"answers({board(case.d, slot, case.records)!r}, {beat}, {questions!r}, {task})", 600
        )

    def wake(self, collected, frames, end_ms=0):
        """[(what, its microseconds), ...], [microseconds of work, ...] of a wake of the program
        with these records.

        collected: one of COLLECTED. frames: (ms after the link has begun, frame). end_ms: as of
        slot_program.wake.
        """
        self._repl.soft_reset()
        self._repl.run(f"from {PROGRAM.stem} import *")
        return self._repl.evaluate(
            f"wake({folder_of(collected)!r}, {D}, {SLOT}, {frames!r}, {end_ms})", 600
        )


def board(d, slot, records=RECORDS):
    """The files of a board with two clients of opposite data: one record of -1, and `records` of
    +1, as {path: rows}.

    Their unit is a record, and they count rho, so that each first report of a card of epsilon loads
    what prices it.
    """
    most = ledger.MAX_BUDGET
    clients = [
        struct.pack(storage.CLIENT, i + 1, KEYS[i], most, most, i, (1, records)[i], 0)
        for i in (0, 1)
    ]
    fleet = struct.pack(
        storage.FLEET_FIELDS, storage.FLEET_MAGIC, bytes(32), 0, slot, 1, 1, records, 1
    )
    low, high = (struct.pack("<h", x) * d + struct.pack("<h", ONE) for x in (-ONE, ONE))
    head = struct.pack(storage.RECORDS_HEADER, storage.MAGIC, d, 1 + records)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ledger"
        ledger.create(path, most, measure=ledger.RHO)
        account = Path(path).read_bytes()
    return {
        storage.CLIENTS: [(b"".join(clients), 1)],
        storage.FLEET: [(fleet, 1)],
        storage.RECORDS: [(head, 1), (low, 1), (high, records)],
        **{storage.ledger_name(device): [(account, 1)] for device in (1, 2)},
    }


LIMIT = 5.5  # of |t|; equal samples exceed it once in 26 million
CROPS = (1.0, 0.9, 0.75, 0.5, 0.25)


def depends_on_data(reports):
    """Whether the times of the two clients differ by Welch's t, of all times or of the shortest.

    Source: Reparaz, Balasch and Verbauwhede, Dude, is my code constant time?, 2017.
    """
    times = np.array([us for _, _, us in reports])
    return max(abs(cropped(times[::2], times[1::2], share)) for share in CROPS) > LIMIT


def cropped(a, b, share):
    """Welch's t of the parts of two samples that are below the quantile `share` of both together."""
    limit = np.quantile(np.concatenate((a, b)), share)
    a, b = a[a <= limit], b[b <= limit]
    if min(len(a), len(b)) < 2:
        return math.inf  # nearly all of the shortest times are in one sample
    spread = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    difference = a.mean() - b.mean()
    return (
        float(difference / spread)
        if spread
        else math.copysign(math.inf, difference) * bool(difference)
    )


# Records of programs, and their value.
COLLECTED = ((0, 0), (7, -ONE), (64, ONE), (64, 0), (2048, ONE), (2048, -ONE))
D = 4
SLOT = 500  # ms, of these boards


def folder_of(collected):
    """The folder of the board whose program has collected these records."""
    return f"/r{COLLECTED.index(collected)}"


def program_boards():
    """The files of boards with one client, by path, whose programs have collected these records."""
    files = {}
    for count, value in COLLECTED:
        folder = folder_of((count, value))
        for path, rows in board(D, SLOT).items():
            if path != storage.RECORDS:
                data = b"".join(row * times for row, times in rows)
                files[f"{folder}/{path}"] = (
                    data[: storage.CLIENT_BYTES] if path == storage.CLIENTS else data
                )
        if count:
            segments = records.segments(np.full((count, D + 1), value, np.int16))
            files |= {f"{folder}{path}": data for path, data in segments.items()}
    return files


@contextmanager
def emulated(name="pico"):
    """A context with the Slots of an emulated board that has booted; QEMU's clock counts
    instructions.
    """
    with tempfile.TemporaryDirectory(prefix="tern-slots-") as folder:
        flash = Path(folder, "flash.bin")

        def files(machine):
            program = mpy.compiled(
                PROGRAM.read_text(), machine.processor, PROGRAM.name, optimise=True
            )
            library = software.library_files(
                machine,
                more=(*mpy.on_demand(), "bench", "app"),
                program=Program(PROGRAM.read_bytes()),
            )
            return {**library, **program_boards(), f"/lib/{PROGRAM.stem}.mpy": program}

        flash_image.fill(name, flash, files)
        if name == "pico":
            machine = boot_pico(flash, seed=1, skip_idle=True)
        else:
            machine = qemu.boot(name, flash, seed=1, count_instructions=True, skip_idle=True)
        with machine as running, Repl(running.url) as repl:
            repl.run(f"from {PROGRAM.stem} import *")
            yield Slots(repl)
