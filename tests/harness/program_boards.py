"""Boards whose programs collect records, drawn at random, for the emulated Pico: how long they
work, and what is seen.

Their times are simulated cycles, the same on every machine.
"""

import random
import shutil
import struct
import tempfile
from array import array
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness import slots
from harness.slots import Case
from tern import ledger, storage, wire
from tern.fixed import ONE
from tern.recorder import SEGMENT_BYTES, SEGMENT_MOST, Recorder
from terntools.boards import mpy
from terntools.boards.repl import Repl
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico
from terntools.testing import prepared_flash

FOLDER = "/program"
BOARDS = 200
QUESTIONS = 3  # to each board
_MOST_FILES = 190  # of a recorder, which a Pico's flash holds beside the library
_MOST_MS = 2500  # of a question's work, by its bound: of emulated time, which takes twice as long
_MOST_MICRO = 16_000_000  # of a value
_MOST_MICRO_OF_REPORT = 380_000_000


@dataclass(frozen=True)
class ProgramBoard:
    """A board and the questions to it. bound: most records that a report uses. unit: as of
    fleet.bin.
    """

    d: int
    capacity: int
    hold: int
    bound: int
    unit: int
    cases: tuple[Case, ...] = ()

    @property
    def recorder(self):
        return Recorder(self.d, self.capacity, self.hold)

    def bounds(self):
        """The upper bound on the work for each question, ms."""
        return [case.work_ms(self.recorder) for case in self.cases]

    def __str__(self):
        shape = f"d={self.d}, capacity {self.capacity}, hold {self.hold}, bound {self.bound}, unit {self.unit}"
        return f"{shape}: {'; '.join(case.name for case in self.cases)}"


def drawn(number):
    """The board of this number, with questions of several kinds."""
    draw = random.Random(number)
    d = draw.choice((1, 2, 8, 13, 28, 64, 100, 128, draw.randint(1, wire.MAX_DIMENSION)))
    most = (SEGMENT_MOST - SEGMENT_BYTES) // (2 * d + 2)
    hold = min(draw.choice((1, 8, draw.randint(1, most))), most)
    largest = min(0xFFFF, (_MOST_FILES - 2) * (most // hold * hold))
    capacity = int(hold * (largest / hold) ** draw.random())
    bound = draw.choice((capacity, draw.randint(1, capacity)))
    bound = min(bound, 256 * _MOST_MS // (d + 192))
    unit = draw.choice((0, 1, 60, draw.randint(2, 200)))
    board = ProgramBoard(d, capacity, hold, bound, unit)
    kinds = draw.sample(_KINDS, len(_KINDS))
    cases = []
    while len(cases) < QUESTIONS:
        case = kinds.pop()(draw, board)
        case = case and replace(case, d=d, records=bound, anew=False)
        if case and case.work_ms(board.recorder) <= _MOST_MS:
            cases.append(case)
    return replace(board, cases=tuple(cases))


# Questions of each kind. They ask for as many values as they may, or for one.

_OF_TWO_CLASSES = (wire.LINEAR, wire.LOGISTIC, wire.SVM)


def _micro(k):
    """The micro-epsilon of each of k values that a report can afford."""
    return min(_MOST_MICRO, _MOST_MICRO_OF_REPORT // k)


def _sum(draw, board, model, classes=1):
    """A sum of as many values as the board may hold, and of the tally; None if these are too many."""
    values = board.d * classes + 1
    if values > wire.MAX_VALUES + 1:
        return None
    t, c = draw.choice(((32, 32), (65537, 22000)))
    card = slots.total(board.unit, t, c, bits=2, norm=draw.choice((1, 2)))
    k = draw.choice((1, min(values, 200)))
    bins = draw.choice((0, 3)) if model == wire.CATEGORIES else 0
    name = f"sum of model {model}, k = {k}, bins of {bins} bits"
    return Case(name, model, card, classes=classes, k=k, bins=bins)


def _sum_of_features(draw, board):
    return _sum(draw, board, wire.VALUES)


def _sum_of_gradients(draw, board):
    return _sum(draw, board, draw.choice(_OF_TWO_CLASSES))


def _sum_of_categories(draw, board):
    return _sum(draw, board, wire.CATEGORIES, draw.randint(2, 8))


def _sum_of_softmax(draw, board):
    return _sum(draw, board, wire.SOFTMAX_GRADIENT, draw.randint(2, 8))


def _training(draw, board):
    model = wire.LOCAL + draw.choice(_OF_TWO_CLASSES)
    batch, epochs = draw.choice((0, 1, 16)), draw.choice((1, 2, 5))
    local = epochs, 2, 1 << 18
    name = f"local training {model} of {epochs} epochs"
    return Case(name, model, slots.table, batch=batch, local=local, micro=_micro(1))


def _softmax_training(draw, board):
    classes = draw.randint(2, 8)
    options = {"classes": classes, "local": (1, 2, 1 << 18), "micro": _micro(1)}
    return Case(f"local training of {classes} classes", wire.LOCAL_SOFTMAX, slots.table, **options)


def _gradient(draw, board):
    model, k = draw.choice(_OF_TWO_CLASSES), draw.choice((1, board.d))
    return Case(f"gradient {model}, k = {k}", model, slots.table, k=k, batch=32, micro=_micro(k))


def _softmax_gradient(draw, board):
    classes = draw.randint(2, 8)
    name = f"gradient of {classes} classes"
    return Case(name, wire.SOFTMAX_GRADIENT, slots.table, classes=classes, batch=32)


def _projection(draw, board):
    model = draw.choice((*_OF_TWO_CLASSES, wire.VALUES))
    batch = 0 if model == wire.VALUES else 32
    return Case(f"projection of model {model}", model, slots.projection, batch=batch)


def _of_all_records(kind):
    """A kind of question like this one, but about all records of the board."""

    def question(draw, board):
        case = kind(draw, board)
        if case.model in wire.OF_ONE_RECORD:
            return None
        return replace(case, name=f"{case.name}, all records", batch=0)

    return question


def _inference(draw, board):
    return Case("inference", wire.SOFTMAX, slots.laplace, classes=8, k=8, micro=_MOST_MICRO)


def _collection(draw, board):
    return Case("collection", wire.VALUES, slots.table, k=board.d, micro=_micro(board.d))


_KINDS = (
    _sum_of_features,
    _sum_of_gradients,
    _sum_of_categories,
    _sum_of_softmax,
    _training,
    _softmax_training,
    _gradient,
    _softmax_gradient,
    _projection,
    _of_all_records(_gradient),
    _of_all_records(_softmax_gradient),
    _of_all_records(_projection),
    _inference,
    _collection,
)


# On the emulated Pico


@contextmanager
def switched_on(board, count, value, slot):
    """A context with the prompt of an emulated Pico on which the program of `board` has collected
    `count` records.
    """
    made = prepared_flash.deployed("pico")
    program = slots.PROGRAM
    compiled = mpy.compiled(program.read_text(), made.processor, program.name, optimise=True)
    files = {f"/lib/{program.stem}.mpy": compiled}
    files |= {f"{FOLDER}/{path}": data for path, data in _provisioned(board, slot).items()}
    files |= {f"{FOLDER}/{path}": data for path, data in _collected(board, count, value).items()}
    with tempfile.TemporaryDirectory(prefix="tern-board-") as folder:
        flash = Path(folder, "flash.bin")
        shutil.copyfile(made.flash, flash)
        flash_image.add(flash, files)
        with boot_pico(flash, seed=1, skip_idle=True) as running, Repl(running.url) as repl:
            repl.run(f"from {program.stem} import *")
            yield repl


def _provisioned(board, slot):
    """Files from provisioning.

    The ledger counts rho, so the first report of a card of epsilon loads what prices it.
    """
    most = ledger.MAX_BUDGET
    fields = storage.FLEET_MAGIC, bytes(32), 0, slot, 1, 1, board.bound, board.unit
    with tempfile.TemporaryDirectory() as folder:
        ledger.create(f"{folder}/ledger", most, measure=ledger.RHO)
        account = Path(folder, "ledger").read_bytes()
    return {
        storage.CLIENTS: struct.pack(storage.CLIENT, 1, slots.KEYS[0], most, most, 0, 0, 0),
        storage.FLEET: struct.pack(storage.FLEET_FIELDS, *fields),
        storage.ledger_name(1): account,
    }


def _collected(board, count, value):
    """The files of a recorder that holds `count` records of this value; if it is full, older ones
    were replaced.
    """
    with tempfile.TemporaryDirectory() as folder:
        book = board.recorder
        book.open(folder)
        row = array("h", (value for _ in range(board.d)))
        for _ in range(count + (count >= board.capacity) * (board.capacity // 3)):
            book.append(row, value)
        book.close()
        return {
            f"{path.parent.name}/{path.name}": path.read_bytes()
            for path in Path(folder).glob("*/*")
        }


def answers(board, count, value=ONE):
    """([(what, its microseconds), ...], [microseconds of work, ...]) of the board's answers, in the
    shortest slot.
    """
    slot = max(board.bounds())
    frames = [case.frame(1, number) for number, case in enumerate(board.cases, 1)]
    shape = board.d, board.capacity, board.hold
    # A wake begins at a slot, and each question takes one or more of them.
    enough_ms = (2 * len(frames) + 2) * slot + 2000
    with switched_on(board, count, value, slot) as repl:
        return repl.evaluate(f"asked({FOLDER!r}, {shape}, {slot}, {frames!r}, {enough_ms})", 900)
