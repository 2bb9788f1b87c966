"""Write the vectors of whole rounds: the files of a board, and its answers and writes, frame by frame.

    PYTHONPATH=firmware:tests:tests/device python tests/vectors/make_rounds.py

Boards and frames are written from the specifications alone; the device library gives the answers. The second device,
which was written from the specifications, too, confirms them (tests/second_device).
"""

import hashlib
import struct
import tempfile
from dataclasses import replace
from functools import partial

import known_board
from known_board import get, hello_of, put
from parts import VECTORS, case, write
from report_frames import answers_of, one_by_one
from small_board import EPSILON, THREE, TWO, WINDOW
from spec.boards import FLEET_KEY, Board, Round
from spec.cards import T, hierarchy, laplace, mixture, projection_card, sum_card, two_levels, window
from spec.files import key_of, ledger_file, records_file
from spec.frames import COLLECTIONS, FLEET, TRAININGS, fleet_key_body, hello_request, sealed

from tern.entropy import POSITION
from tern.wire import HELLO

LAST = 2**30 - 1
RHO_OF_2, RHO_OF_4 = (
    1_523_189,
    3_856_111,
)  # of a report of epsilon 2, of 4; millionths (ledger.md, Measure)
EDGES = (2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 2)
ZERO = bytes(32)


# --- Cards ------------------------------------------------------------------------------------------------------


def noise(*fields, epsilon=EPSILON):
    """A laplace card, on a grid of 1/8 by default."""
    return laplace(epsilon, *(fields or (3, 1000, 125, -8, 8)))


def ranges(bounds):
    m = len(bounds) + 1
    values = [two_levels(1, T * 3 // 5 - i, T * 2 // 5 + i) for i in range(m)]
    return hierarchy(EPSILON, bounds, [window(1, m, 1, T * 4 // 7 + i) for i in range(m)], values)


LEAKING = two_levels(EPSILON, 970_000_000, T - 970_000_000)
CATEGORIES = window(EPSILON, 5, 1, 650_000_000)
MIXED = mixture(EPSILON, T // 3, TWO, WINDOW)
RANGES = ranges((5000, -5000))
CARDS = {
    "table of two levels": TWO,
    "table of three": THREE,
    "window": WINDOW,
    "laplace": noise(),
    "mixture": MIXED,
    "hierarchy": RANGES,
}


def total(norm=2, unit=0, **fields):
    """A card of sums of those units."""
    usual = {
        "clipped": 12,
        "kept": -16,
        "t": 72 if norm == 2 else 16,
        "c": 72,
        "steps": 16,
        "reach": 9000,
        "bits": 9,
    }
    loss = 50_000 if norm == 2 else EPSILON
    if (
        not unit
    ):  # a device's vector is replaced: it moves twice as far as one that appears or vanishes
        loss *= 4 if norm == 2 else 2
    return sum_card(loss, norm, unit, **{**usual, **fields})


# --- Boards -----------------------------------------------------------------------------------------------------


BOARD = Board()
POLICY = (0, 0, 1, 1, 0)
RHO = Board(
    d=3, held=5, fleet=(0, 0, 1, 1, 0, 1), ledgers=(ledger_file(measure=1),)
)  # protects each record
FIVE_RECORDS = Board(d=3, held=5)
THREE_CLIENTS = Board(first=5, clients=3, held=2, fleet=POLICY)


# --- Frames -----------------------------------------------------------------------------------------------------


def ask(number=1, **fields):
    """A valid Round, whose other fields have the usual values of its model."""
    model = fields.get("model", 2)
    usual = {}
    if model == 4:
        usual = {"classes": 3, "k": 3, "card": noise()}
    elif model in TRAININGS:
        usual = {"local": (2, 3, 40_000)}
    elif model in (8, 9):
        usual = {"exponent": 0, "parameters": (0, 1), "card": CATEGORIES if model == 9 else THREE}
    if model in (10, 11):
        usual |= {"classes": 3, "k": 4}
    fields = {**usual, **fields}
    local = dict(zip(("epochs", "rate", "tau"), fields.pop("local", (0, 0, 0)), strict=True))
    return Round(round=number, **local, **fields)


def fleet_key(epoch, device=7, key=None, new=ZERO, owner=7):
    key = key or key_of(owner)
    return sealed(key, fleet_key_body(key, device, epoch, new))


class Start:
    """A start of the board, whose draws take these random bytes and no more; None: as many as they
    need.
    """

    def __init__(self, random=None):
        self.random = random


def random_bytes(seed, n):
    """SHA-256 in counter mode of a text: the same bytes each time."""
    blocks = [hashlib.sha256(seed.encode() + bytes([i])).digest() for i in range(-(-n // 32))]
    return b"".join(blocks)[:n]


class Recording:
    """The steps of a case: frames that a board gets, with its answers and the files that change."""

    def __init__(self, comment, folder, files):
        self.comment = comment
        self.folder = folder
        self.files = dict(files)  # as they are now
        self.steps = []
        self.client = None
        put(folder, files)

    def start(self, start):
        self.end()
        self.is_fixed = start.random is not None
        self.random = start.random
        if not self.is_fixed:
            self.random = random_bytes(f"{self.comment} {len(self.steps)}", 4000)
        self.client = known_board.start(self.folder, self.random)
        self.started = {"start": self.random.hex()}
        self.steps.append(self.started)

    def end(self):
        """End the run that is under way; of random bytes without number, note those that it drew."""
        if self.client is None:
            return
        if not self.is_fixed:
            drawn = self.client.entropy.cursor[POSITION]
            self.started["start"] = self.random[:drawn].hex()
        self.client.close()

    def ask(self, frame, comment=None):
        step = {"comment": comment} if comment else {}
        step["frame"] = frame.hex()
        answers = answers_of(self.client, frame)
        if answers and answers[0][0] == HELLO:
            step["hello"] = hello_of(answers[0])
        else:
            step["answers"] = [answer.hex() for answer in one_by_one(answers)]
        changed = self._changes()
        if changed:
            step["files"] = {name: data.hex() for name, data in changed.items()}
        self.steps.append(step)

    def _changes(self):
        changed = {}
        for name, before in self.files.items():
            now = get(self.folder, name)
            if now != before:
                changed[name] = now
        self.files.update(changed)
        return changed


ROUNDS = []


def steps_of(comment, files, steps):
    """What a board of these files answers to the steps, which begin with a start."""
    if not isinstance(steps[0], Start):
        steps = (Start(), *steps)
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(comment, folder, files)
        for step in steps:
            step_comment = None
            if isinstance(step, tuple):
                step_comment, step = step
            if isinstance(step, Start):
                recording.start(step)
            elif isinstance(step, Round):
                recording.ask(step.frame(), step_comment)
            else:
                recording.ask(step, step_comment)
        recording.end()
    return recording.steps


def rounds(comment, board, *steps, flags=()):
    """Add a case. A step is a Start, a Round or a frame (bytes), or one of these two with a comment:
    (comment, step).
    """
    files = board.image()
    recorded = steps_of(comment, files, steps)
    usual = BOARD.image()
    other_files = {name: data.hex() for name, data in files.items() if data != usual.get(name)}
    for name in usual:
        if name not in files:
            other_files[name] = None
    ROUNDS.append(case(comment, "valid", flags, files=other_files, steps=recorded))


def hostile_rounds(comment, board, *steps):
    """Add a case of what no honest host asks, or of damaged files."""
    rounds(comment, board, *steps, flags=["hostile"])


# --- Cases ------------------------------------------------------------------------------------------------------


def models():
    """All values of each model, some, one; then the first of these again."""
    for model in range(1, 12):
        most, some, one = 3, 2, 1
        if model == 4:  # the number of its classes, always
            some = one = 3
        elif model >= 10:  # 3 classes of 3 features
            most, some = 9, 6
        of_most, of_some, of_one = (900, -7000), (-900, 700), (3000, 1)
        if model in COLLECTIONS:  # the features asked for
            of_most, of_some, of_one = (0, 1, 2), (0, 1, 2), (0, 2)
        last = ask(9, d=3, model=model, k=one, parameters=of_one)
        rounds(
            f"model {model}: all values, some, one; then the first again",
            FIVE_RECORDS,
            ask(1, d=3, model=model, k=most, parameters=of_most),
            ask(2, d=3, model=model, k=some, parameters=of_some),
            last,
            last,
        )


def ranges_of_models():
    """Ranges of features; categories are hashed with a range of 1."""
    for model in (1, 2, 3, 8, 10):
        steps = [
            ask(i + 1, model=model, range=range_, d=3, k=2) for i, range_ in enumerate((1, 5, 12))
        ]
        rounds(f"model {model} with ranges", FIVE_RECORDS, *steps)
    steps = [
        ask(i + 1, device=device, model=9, range=range_, d=3, k=2)
        for i, (device, range_) in enumerate(((7, 1), (8, 1), (8, 0), (FLEET, 1)))
    ]
    rounds("model 9: hashed, as they are, hashed by all", replace(FIVE_RECORDS, clients=2), *steps)


def bins():
    """Numbers whose bins are categories, which are reported, hashed or counted. They are at the
    borders of bins.
    """
    borders = (-32768, -16385, -16384, -8193, -8192, -8191, -1, 0, 8191, 8192, 16383, 16384, 32767)
    numbers = [borders[i * i % 13] for i in range(20)]  # of five records
    at_borders = {"records.bin": records_file(3, numbers)}
    one = replace(FIVE_RECORDS, files=at_borders)
    of_bins = {"model": 9, "d": 3, "parameters": (0, 1, 2)}
    of_four = {**of_bins, "exponent": 2, "card": window(EPSILON, 4, 1, 700_000_000)}
    rounds(
        "bins of numbers: all, some, one; and more bins than the card has symbols",
        one,
        ask(1, k=3, **of_four),
        ask(2, k=2, **of_four),
        ask(3, k=1, **of_four),
        ask(4, k=3, **{**of_four, "exponent": 12}),
    )
    rounds(
        "bins of numbers, hashed",
        one,
        *[
            ask(i, k=3, range=1, **{**of_four, "exponent": e})
            for i, e in enumerate((1, 2, 6, 12), 1)
        ],
    )
    many = replace(RHO, files=at_borders)
    for norm in (1, 2):
        card = total(norm, unit=1)
        rounds(
            f"bins of numbers, counted with noise of norm {norm}; and more bins than counts",
            many,
            ask(1, k=13, classes=4, exponent=2, card=card, **of_bins),
            ask(2, k=4, classes=4, exponent=2, card=card, **of_bins),
            ask(3, k=10, classes=3, exponent=12, card=card, **of_bins),
        )


def records_in_turn():
    """Which records of a client answer: in batches, and one after the other."""
    for model in (2, 5, 10, 11):
        steps = [ask(number, model=model, batch=2, d=3, k=3) for number in (1, 2, 4, LAST)]
        near = replace(FIVE_RECORDS, ledgers=(ledger_file(last=LAST - 3),))
        rounds(f"model {model}: batches of 2 of 5 records", FIVE_RECORDS, *steps[:3])
        if model in (2, 10):
            rounds(f"model {model}: the last round of all", near, steps[3])
    for model in (4, 8, 9):
        steps = [ask(number, model=model, d=3, k=3 if model == 4 else 2) for number in (3, 5, 6)]
        rounds(f"model {model}: one record after the other", FIVE_RECORDS, *steps)
    label = {"model": 4, "k": 1, "classes": 5, "card": CATEGORIES, "d": 3}
    steps = [ask(number, **{**label, "parameters": (900, -300, 70)}) for number in (3, 5, 6)]
    steps.append(ask(7, model=4, d=3))
    rounds("model 4: the label of one record after the other, and a vector", FIVE_RECORDS, *steps)


def bounded_records():
    """The public bound on the records that count: the newest ones do."""
    bounded = replace(FIVE_RECORDS, clients=2, fleet=(0, 0, 1, 1, 2))
    for model in (2, 5, 8, 10, 11):
        steps = [
            ask(3, device=device, model=model, d=3, k=3 if model in TRAININGS else 2)
            for device in (7, 8, 7)
        ]
        rounds(f"model {model}: two records of five count", bounded, *steps)
    many = Board(held=40)
    for model in (2, 6, 11):
        rounds(f"model {model}: 40 records", many, ask(2, model=model))


def cards():
    """Every shape of card, with every number of values."""
    board = Board(d=4, held=2)
    for name, card in CARDS.items():
        kinds = enumerate(((4, 1), (2, 2), (1, 8), (3, 7)), 1)
        steps = [ask(number, card=card, d=4, k=k, model=model) for number, (k, model) in kinds]
        rounds(f"{name}: all of four values, two, one, three", board, *steps)
    rounds(
        "a category above the card's, and a negative one",
        board,
        *[
            ask(i + 1, model=9, d=4, k=1, parameters=(j,), card=window(EPSILON, n, 1, T // n + 9))
            for i, (j, n) in enumerate(((0, 2), (1, 5), (2, 256), (3, 3)))
        ],
    )


def long_reports():
    """The longest reports, the dearest, and those just longer."""
    wide = noise(0, 2**20, 1, -32767, 32768)
    large = Board(d=65, held=1)
    rounds(
        "256 bytes of symbols, the most; and one value more",
        large,
        ask(1, model=10, classes=2, d=65, k=129, card=wide),
        ask(1, model=10, classes=2, d=65, k=128, card=wide),
    )
    bytewise = noise(0, 2**20, 1, -127, 128)
    rounds(
        "257 bytes of symbols, and 256",
        large,
        *[ask(1, model=10, classes=4, d=65, k=k, card=bytewise) for k in (257, 256)],
    )
    dear = window(20_000_000, 3, 1, T // 3)
    step = ask(1, model=10, classes=4, d=65, k=215, card=dear)
    rounds("a cost above 2**32", replace(large, largest=FLEET), step)


def unfit_cards():
    """Cards that do not fit the question, or no card."""
    for what, card, more in (
        ("model 4 with a table", THREE, {"model": 4}),
        ("model 4 with a window", window(EPSILON, 3, 1, 650_000_000), {"model": 4}),
        ("a label with a laplace card", noise(), {"model": 4, "k": 1}),
        ("a label with a table", THREE, {"model": 4, "k": 1}),
        ("a label with a wider window", WINDOW, {"model": 4, "k": 1, "classes": 15}),
        ("a label with fewer classes than symbols", CATEGORIES, {"model": 4, "k": 1, "classes": 4}),
        ("a label with more classes than symbols", CATEGORIES, {"model": 4, "k": 1, "classes": 6}),
        ("model 9 with a wider window", WINDOW, {"model": 9}),
        ("model 9 with a table", THREE, {"model": 9}),
        ("model 9 with a laplace card", noise(), {"model": 9}),
        ("a byte behind the card", THREE + b"\0", {}),
        ("another version", b"\x21" + THREE[1:], {}),
        ("a table as a sum", b"\x16" + THREE[1:], {}),
        ("a table as a projection", b"\x17" + THREE[1:], {}),
        ("shape 8", b"\x18" + THREE[1:], {}),
        ("a card of one byte", b"\x11", {}),
    ):
        hostile_rounds(f"{what}: no such card", BOARD, ask(1, card=card, **more))


# Reasons for a refusal, in the order of wire.md: fields of the board, fields of the ROUND.
HELD_600 = (0, 65535, 1, 1, 600)
AT_50 = {"ledgers": (ledger_file(spent=5, last=50, state=2),)}
FAULTS = {
    "no such client": ({}, {"device": 9, "key": key_of(7)}),
    "wrong tag": ({}, {"key": ZERO}),
    "a field out of bounds": ({}, {"batch": 33}),
    "ledger cut short": ({}, {}),
    "old round": (AT_50, {"number": 49}),
    "changed round": (AT_50, {"number": 50}),
    "too far ahead": ({}, {"number": 1 + 2**20}),
    "a byte behind the card": ({}, {"card+": b"\0"}),
    "too dear": ({"largest": 3_999_999}, {}),
    "a shape not allowed": ({"shapes": 0x3C}, {}),
    "no time": ({"fleet": HELD_600}, {"local": (255, 3, 40_000)}),
    "not certified": ({}, {"card": LEAKING}),
    "records missing": ({"start": 1000}, {}),
    "no entropy": ({}, {}),
    "no budget": ({"budget": 3_999_999}, {}),
    "pause": ({"fleet": (86400, 65535, 1, 1, 600)}, {}),
}
NUMBERS = ("old round", "changed round", "too far ahead")


def refusals():
    """Each reason for a refusal alone, and with each of the next ones: the first in the list of wire.md answers."""
    names = list(FAULTS)
    for i, first in enumerate(names):
        for second in [None, *names[i + 1 : i + 5]]:
            if not (
                (first in NUMBERS and second in NUMBERS)
                or {first, second} == {"no entropy", "pause"}
            ):
                refusal(first, second)


def refusal(*names):
    board, request = {}, {"model": 5, "card": TWO}
    for name in names:
        if name:
            request |= FAULTS[name][1]
            board |= FAULTS[name][0]
    request["card"] += request.pop("card+", b"")
    if "ledger cut short" in names:
        board["ledgers"] = (board.get("ledgers", BOARD.ledgers)[0][:-1],)
    steps = [ask(**request)]
    made = Board(**board)
    if "no entropy" in names:  # which the other client's draw reveals
        made = replace(made, clients=2, start=0, ledgers=(*made.ledgers, ledger_file()))
        files = made.image()
        rows = files["clients.bin"]
        faulty, healthy = struct.iter_unpack("<I32sIIIHH", rows)
        healthy = struct.pack("<I32sIIIHH", *healthy[:2], 10**9, 10**9, *healthy[4:6], 0)
        faulty = struct.pack("<I32sIIIHH", *faulty[:4], board.get("start", 0), 3, made.shapes)
        made = replace(made, files={"clients.bin": faulty + healthy})
        steps = [Start(b""), ask(1, device=8, model=5, card=TWO), *steps]
    hostile_rounds(" before ".join(name for name in names if name), made, *steps)


def bounds():
    """Values at a bound, and one beyond it."""
    used = {"spent": 6_000_000, "last": 9, "state": 2}
    spent, rich = ledger_file(budget=10_000_000, **used), ledger_file(**used)
    for what, board in (
        ("the ledger's budget covers one more report", Board(ledgers=(spent,))),
        ("it does not, by one", Board(ledgers=(ledger_file(budget=9_999_999, **used),))),
        ("the client's budget covers one more report", Board(budget=10_000_000, ledgers=(rich,))),
        ("it does not, by one", Board(budget=9_999_999, ledgers=(rich,))),
        ("more is spent than the client's budget", Board(budget=5_000_000, ledgers=(spent,))),
        ("as much as the client allows in one report", Board(largest=4_000_000, ledgers=(spent,))),
        ("a micro-epsilon more than it allows", Board(largest=3_999_999, ledgers=(spent,))),
    ):
        rounds(what, board, ask(10), ask(11), hello_request())
    for number in (2**20 + 9, 2**20 + 10):
        rounds(f"round {number} after 9, by its own key", Board(ledgers=(spent,)), ask(number))
    fleet = Board(ledgers=(spent,), fleet=POLICY)
    for number in (1024 + 9, 1024 + 10):
        rounds(f"round {number} after 9, by the fleet's key", fleet, ask(number, device=FLEET))
    for shapes in (0, 2, 4, 8, 16, 32, 64, 128, 62, 126, 254):
        kinds = TWO, WINDOW, noise(), MIXED, RANGES, total(1), projection_card(EPSILON)
        steps = [ask(i + 1, card=card, k=1) for i, card in enumerate(kinds)]
        rounds(f"shapes allowed: {shapes}", Board(shapes=shapes), *steps)
    for model in (4, 10):
        rounds(
            f"one report of model {model} at the largest cost",
            Board(largest=2_000_000 if model == 4 else 8_000_000),
            ask(1, model=model),
            ask(2, model=model, k=3 if model == 4 else 5),
        )
    # 240, 50 for modules, 32 for 20 records and batches of three classes, 1 for four values.
    for slot in (322, 323):
        board = Board(fleet=(0, slot, 1, 1, 9))
        rounds(f"a slot of {slot} ms for local training of classes", board, ask(1, model=11))
    rounds(
        "a card whose claim is too small by one, and one that is just kept",
        BOARD,
        ask(1, card=noise(epsilon=1_999_999)),
        ask(2, card=noise()),
    )


def numbers():
    """Ids and numbers of rounds around the ends of small integers."""
    for first in EDGES:
        clients = 1 if first == 2**32 - 2 else 2
        board = Board(first=first, clients=clients, held=1, fleet=POLICY)
        last = first + clients - 1
        rounds(
            f"ids from {first} on",
            board,
            ask(1, device=first),
            ask(1, device=FLEET),
            ask(2, device=FLEET, k=1),
            ask(2, device=last, k=1),
            ask(3, device=last + 1 if clients > 1 else first - 1),
            hello_request(),
            fleet_key(2, first, owner=first),
        )
    for number in (0, 2**30, 2**31 - 1, 2**31, FLEET):
        board = Board(ledgers=(ledger_file(last=LAST - 1),))
        hostile_rounds(f"round {number}", board, ask(number))
    end = Board(ledgers=(ledger_file(last=LAST - 2),))
    rounds(
        "the last rounds of all",
        end,
        ask(LAST - 1),
        ask(LAST),
        ask(LAST),
        ask(2**30),
        ask(LAST - 1),
    )
    for device in (0, 1, 6, 8, 2**30, 2**31, 2**32 - 2):
        hostile_rounds(f"no client {device} here", BOARD, ask(1, device=device))


def frames():
    """Frames of every type and length, and damaged ones."""
    whole = ask().frame()
    for n in (1, 8, 9, 16):
        frame = sealed(key_of(7), whole[: n - 8]) if n > 8 else whole[:n]
        hostile_rounds(f"a ROUND of {n} bytes", BOARD, frame)
    shortest = sealed(key_of(7), whole[:9])
    hostile_rounds("a ROUND of 17 bytes, the shortest that is looked at", BOARD, shortest)
    hostile_rounds("a ROUND of 17 bytes with a wrong tag", BOARD, whole[:9] + bytes(8))
    hostile_rounds(
        "for the fleet, of 16 and 17 bytes",
        THREE_CLIENTS,
        sealed(FLEET_KEY, ask(device=FLEET).frame()[:8]),
        sealed(FLEET_KEY, ask(device=FLEET).frame()[:9]),
    )
    hostile_rounds(
        "a byte too many, a byte too few",
        BOARD,
        sealed(key_of(7), whole[:-8] + b"\0"),
        sealed(key_of(7), whole[:-9]),
    )
    hostile_rounds(
        "each bit of a tag",
        BOARD,
        *[
            whole[:-8] + bytes(b ^ (i == j) << i for j, b in enumerate(whole[-8:]))
            for i in range(8)
        ],
    )
    kinds = (0, 6, 0x7F, 0x81, 0x82, 0x84, 0x85, 0xFF)
    steps = [sealed(b"", bytes([kind]) + whole[1:17]) for kind in kinds]
    hostile_rounds("types that no host sends", BOARD, *steps)
    model = sealed(key_of(7), struct.pack("<BIIBbBH2h", 4, 7, 1, 2, -14, 1, 2, 5, -5))

    rounds(
        "MODEL has no answer, a damaged one neither",
        BOARD,
        model,
        model[:-1],
        model[:3],
        sealed(b"", b"\4"),
    )
    rounds(
        "HELLO_REQUEST",
        Board(fleet=(60, 1000, 1, 77, 50)),
        hello_request(),
        hello_request(0),
        hello_request(FLEET),
        hello_request()[:-1] + b"?",
        sealed(b"", b"\1" + bytes(3)),
        sealed(b"", b"\1" + bytes(5)),
    )
    bare = Board(files=dict.fromkeys(("clients.bin", "records.bin", "ledger/00000007")))
    rounds("HELLO of a board without files", bare, hello_request(), ask())
    rounds(
        "HELLO of a board without a ledger", Board(files={"ledger/00000007": None}), hello_request()
    )

    rounds(
        "HELLO tells the budget of the first client",
        replace(THREE_CLIENTS, budget=9_000_000),
        ask(1, device=5),
        ask(2, device=6),
        hello_request(),
    )


def described(values):
    return ", ".join(f"{name} {value}" for name, value in values.items())


def fields():
    """Each field of a ROUND just outside its bounds, and just within."""
    softmax = {"model": 10, "k": 1}
    local_softmax = {"model": 11, "k": 1}
    off = [
        {"model": 0},
        {"model": 12},
        {"range": 13},
        {"model": 4, "range": 1},
        {"model": 5, "range": 1},
        {"model": 9, "range": 2},
        {"exponent": -31},
        {"exponent": -11},
        {"model": 5, "exponent": -17},
        {"model": 5, "exponent": -11},
        {"model": 8, "exponent": -12},
        {"model": 8, "exponent": 1},
        {"model": 9, "exponent": -1},
        {"model": 9, "exponent": 13},
        {"classes": 0},
        {"classes": 2},
        {**softmax, "classes": 1},
        {**softmax, "classes": 129, "d": 1},
        {"d": 0},
        {"d": 129},
        {"k": 0},
        {"k": 3},
        {"model": 4, "k": 2},
        {"model": 8, "k": 3},
        {"model": 8, "k": 2, "parameters": (1,)},
        {"model": 8, "parameters": (0, 1, 2)},
        {"model": 9, "parameters": (0, 1, 7)},
        {"batch": 33},
        {"model": 4, "batch": 1},
        {"model": 8, "batch": 1},
        {"local": (1, 0, 0)},
        {"local": (0, 1, 0)},
        {"local": (0, 0, 1)},
        {"model": 5, "local": (0, 1, 1)},
        {"model": 5, "local": (1, 17, 1)},
        {"model": 5, "local": (1, 0, 0)},
        {"model": 5, "local": (1, 0, 2**23 + 1)},
        {"model": 5, "local": (1, 0, 2**31)},
        {"model": 10, "local": (1, 0, 1)},
        {**local_softmax, "classes": 1},
        {**local_softmax, "classes": 129, "d": 1},
        {**local_softmax, "range": 1},
        {**local_softmax, "exponent": -17},
        {**local_softmax, "batch": 33},
        {**local_softmax, "k": 7},
        {**local_softmax, "local": (0, 0, 0)},
        {**local_softmax, "local": (1, 17, 1)},
        {"card": b""},
    ]
    steps = [(described(values), ask(1, **values)) for values in off]
    for i in range(0, len(steps), 10):
        hostile_rounds("fields out of bounds", BOARD, *steps[i : i + 10])
    for values in (
        {"exponent": -30},
        {"exponent": -12},
        {"model": 5, "exponent": -16},
        {"model": 9, "exponent": 12},
        {"batch": 32},
        {"model": 5, "batch": 32},
        {"model": 5, "local": (255, 16, 2**23)},
        {"model": 5, "local": (1, 0, 1)},
        {"model": 10, "classes": 128, "k": 1},
        {**local_softmax, "classes": 128, "batch": 32, "exponent": -16, "local": (2, 16, 2**23)},
    ):
        rounds(f"just within: {described(values)}", BOARD, ask(1, **values))
    steps = [ask(i, model=model, classes=128, d=1, k=1) for i, model in enumerate((10, 11), 1)]
    rounds("128 classes of one feature", Board(d=1, held=1), *steps)


def fleets():
    """Rounds for all clients of a board, and for one of them."""
    two = ask(2, device=FLEET, k=1)

    rounds(
        "a fleet of one",
        replace(BOARD, fleet=POLICY),
        ask(1, device=FLEET),
        ask(1, device=FLEET),
        ask(1),
        two,
        ask(2, k=1),
    )
    rounds(
        "a fleet of three, and one of them alone",
        THREE_CLIENTS,
        ask(1, device=6),
        ask(1, device=FLEET),
        ask(1, device=FLEET),
        ask(1, device=7),
        ask(1, device=FLEET, k=1),
        two,
        ask(2, device=5, k=1),
        ask(2, device=6, k=2),
    )
    rounds(
        "one of three has no ledger, one is beyond the round",
        replace(THREE_CLIENTS, ledgers=(ledger_file(last=9), ledger_file()[:-1], ledger_file())),
        ask(3, device=FLEET),
        hello_request(),
    )
    board = replace(THREE_CLIENTS, ledgers=(ledger_file(), ledger_file(budget=3_999_999)))
    rounds("one of three has no budget left", board, ask(1, device=FLEET))

    hostile_rounds(
        "another key",
        THREE_CLIENTS,
        ask(1, device=FLEET, key=key_of(5)),
        ask(1, device=FLEET, key=ZERO),
    )

    hostile_rounds("the fleet's key for one client", THREE_CLIENTS, ask(1, device=5, key=FLEET_KEY))
    rounds(
        "no fleet.bin", replace(THREE_CLIENTS, fleet=None), ask(1, device=FLEET), ask(1, device=5)
    )

    rounds(
        "no clients.bin",
        replace(THREE_CLIENTS, files={"clients.bin": None}),
        ask(1, device=FLEET),
        ask(1, device=5),
        hello_request(),
    )


def damaged_fleet_files():
    """Damage in fleet.bin."""
    good = THREE_CLIENTS.image()["fleet.bin"]
    for what, file in (
        ("cut short", good[:-1]),
        ("too long", good + b"\0"),
        ("empty", b""),
        ("of another magic", b"TFL4" + good[4:]),
        ("without a unit", b"TFL2" + good[4:-2]),
        ("of protocol 1", b"TFL1" + good[4:44]),
        ("of protocol 1, too long", b"TFL1" + good[4:]),
        ("too short", good[:44]),
        ("with a pause of 86401 s", good[:36] + struct.pack("<I", 86401) + good[40:]),
        ("that pays for none", good[:42] + b"\0\0" + good[44:]),
        ("that pays for 1001", good[:42] + struct.pack("<H", 1001) + good[44:]),
    ):
        hostile_rounds(
            f"fleet.bin {what}",
            Board(files={"fleet.bin": file}),
            ask(),
            ask(device=FLEET),
            hello_request(),
        )


def damaged_client_files():
    """Damage in clients.bin."""
    rows = THREE_CLIENTS.image()["clients.bin"]
    for what, file in (
        ("with a byte too many", rows + b"\0"),
        ("with a row cut short", rows[:-1]),
        ("empty", b""),
        ("whose first id is 0", bytes(4) + rows[4:]),
        ("whose second row has the id of the third", rows[:52] + rows[104:] + rows[104:]),
        ("whose second row allows shape 8", rows[:102] + b"\2\1" + rows[104:]),
        ("whose second row allows shape 0", rows[:102] + b"\x03\0" + rows[104:]),
        ("whose first row allows shape 8", rows[:50] + b"\0\1" + rows[52:]),
    ):
        hostile_rounds(
            f"clients.bin {what}",
            replace(THREE_CLIENTS, files={"clients.bin": file}),
            ask(1, device=FLEET),
            ask(1, device=6),
            ask(2, device=7),
            hello_request(),
        )


def damaged_records():
    """Damage in records.bin, and too few records."""
    records = BOARD.image()["records.bin"]
    for what, board in (
        ("missing", Board(files={"records.bin": None})),
        ("cut short", Board(files={"records.bin": records[:-1]})),
        ("with a byte too many", Board(files={"records.bin": records + b"\0"})),
        ("of a header alone", Board(files={"records.bin": records[:10]})),
        ("of another magic", Board(files={"records.bin": b"TRD2" + records[4:]})),
        ("of d = 0", Board(files={"records.bin": b"TRD1" + bytes(6)})),
        ("of d = 5", Board(files={"records.bin": Board(d=5).image()["records.bin"]})),
        ("none of the client's", Board(held=0)),
        ("too few", Board(start=1)),
        (
            "of d = 5 and too few",
            Board(start=9, files={"records.bin": Board(d=5).image()["records.bin"]}),
        ),
        ("just enough of those that count", Board(start=1, fleet=(0, 0, 1, 1, 2))),
        ("too few of those that count", Board(start=2, fleet=(0, 0, 1, 1, 2))),
    ):
        hostile_rounds(f"records {what}", board, ask())
    steps = [ask(i, batch=1) for i in (1, 2, 3)]
    hostile_rounds("records too few, of which one is used", Board(start=1), *steps)


def repeated_questions():
    """The question of a round again, another one, and an older one."""
    first, other = ask(5), ask(5, parameters=(3, -4))
    rounds(
        "the same question again, another, an older one, after a restart, too",
        BOARD,
        first,
        first,
        other,
        ask(4),
        Start(b""),
        first,
        other,
        ask(4),
        hello_request(),
    )
    for what, changed in (
        ("number of values", {"k": 1}),
        ("card", {"card": TWO}),
        ("batch", {"batch": 1}),
        ("model", {"model": 3}),
        ("range", {"range": 1}),
        ("exponent", {"exponent": -13}),
    ):
        rounds(f"another {what}: another question", BOARD, first, replace(first, **changed), first)


def ledgers():
    """Ledgers in every state, with and without the question asked."""
    for state in range(3):
        used = {"spent": 2_000_000, "last": 9} if state else {}
        answered = (
            {"question": key_of(1), "report": b"\x82" + bytes(range(20))} if state == 1 else {}
        )
        for magic in (b"TLG3", b"TLG2"):
            book = ledger_file(magic, state=state, **used, **answered)

            rounds(
                f"a {magic.decode()} ledger, state {state}",
                Board(ledgers=(book,)),
                ask(8),
                ask(9),
                ask(10),
                ask(10),
                ask(9),
                hello_request(),
            )
    again = ask(9).frame()
    digest = hashlib.sha256(key_of(7) + again[:-8]).digest()
    for what, question in (
        ("the same", digest),
        ("another first byte", bytes([digest[0] ^ 1]) + digest[1:]),
        ("another byte 8", digest[:8] + bytes([digest[8] ^ 128]) + digest[9:]),
        ("another last byte", digest[:-1] + bytes([digest[-1] ^ 1])),
    ):
        report = b"\x82" + bytes(range(20))
        book = ledger_file(spent=2_000_000, last=9, question=question, state=1, report=report)
        rounds(f"a ledger with the question asked: {what}", Board(ledgers=(book,)), again, ask(10))


def ends_of_ledgers():
    """The most that a ledger holds."""
    rich = Board(
        fleet=(0, 0, 1000, 1, 0), budget=4 * 10**9, ledgers=(ledger_file(budget=4 * 10**9),)
    )
    rounds("the most reports paid at once", rich, ask(1))
    bound = Board(ledgers=(ledger_file(step=1),))
    rounds("bound to a counter that this board lacks", bound, ask(1), hello_request())
    longer = Board(ledgers=(ledger_file(last=3) + bytes(50),))
    rounds("a ledger written over a longer one", longer, ask(4), ask(5))
    book = ledger_file(spent=1, last=9, question=key_of(1), state=1, report=bytes(273))
    rounds("the ledger's longest report", Board(ledgers=(book,)), ask(10))


def missing_random_bytes():
    """A report whose draw fails is paid for and not sent."""
    rounds(
        "no random bytes: paid, and nothing sent; then none before a restart",
        BOARD,
        ask(1),
        Start(b""),
        ask(2),
        ask(2),
        ask(1),
        ask(3),
        hello_request(),
        Start(),
        ask(2),
        ask(3),
    )
    rounds("one random byte of many", BOARD, Start(b"\0"), ask(1, card=WINDOW), ask(2))

    rounds(
        "no random bytes, paid ahead",
        Board(fleet=(0, 0, 3, 1, 0)),
        Start(b""),
        ask(1),
        hello_request(),
        ask(1),
        ask(2),
        Start(),
        ask(3),
        ask(4),
    )


def pauses():
    """A board pauses from its start; what is paid for is sent again."""
    comment = "the pause begins when the board starts; what is paid for is sent"
    hostile_rounds(comment, Board(fleet=(86400, 0, 1, 1, 0)), ask(1))
    (_, answered) = steps_of("before a pause", replace(BOARD, fleet=POLICY).image(), [ask(1)])
    paid = {name: bytes.fromhex(data) for name, data in answered["files"].items()}
    pausing = Board(fleet=(86400, 0, 1, 1, 0), files=paid)
    rounds("within a pause what is paid for is sent", pausing, ask(1), ask(2))


def paying_ahead():
    """A board that writes its ledger once for three or nine reports."""
    board = Board(fleet=(0, 0, 3, 1, 0))
    cheap = [ask(number, k=1) for number in range(1, 12)]

    rounds(
        "three are paid for at once",
        board,
        *cheap[:5],
        cheap[4],
        hello_request(),
        ask(5),
        ask(4),
        Start(),
        *cheap[3:8],
        hello_request(),
    )

    rounds(
        "a round beyond those reserved, a dearer report",
        board,
        cheap[0],
        ask(9),
        ask(10, k=1),
        Start(),
        ask(11),
        ask(12),
    )
    nine = Board(fleet=(0, 0, 9, 1, 0))
    poor = replace(nine, ledgers=(ledger_file(budget=4_000_000),))
    rounds("the budget pays for two", poor, *cheap[:3], hello_request())

    rounds(
        "the client's budget pays for two",
        replace(nine, budget=4_000_001),
        *cheap[:3],
        hello_request(),
        Start(),
        cheap[2],
    )
    poor = replace(nine, ledgers=(ledger_file(budget=3_999_999),))
    rounds("the budget pays for one", poor, *cheap[:2])
    late = replace(nine, ledgers=(ledger_file(last=LAST - 2),))
    rounds("no round beyond the last", late, ask(LAST - 1), ask(LAST), Start(), ask(LAST))

    rounds(
        "a board of two pays for each",
        Board(clients=2, fleet=(0, 0, 3, 1, 0)),
        cheap[0],
        ask(1, device=8),
        ask(2, device=FLEET),
    )

    rounds(
        "a fleet of one pays ahead",
        board,
        ask(1, device=FLEET),
        ask(1),
        ask(2, device=FLEET),
        Start(),
        ask(3),
        ask(4),
    )

    rounds(
        "a refusal uses nothing up",
        board,
        cheap[0],
        ask(2, card=LEAKING),
        ask(2, batch=33),
        *cheap[1:4],
    )


def protecting(unit):
    """A board in rho that protects this unit."""
    return replace(RHO, fleet=(0, 0, 1, 1, 0, unit))


def sums():
    """Sums of each model that has them, over units of every size."""
    for model, v in ((1, 4), (2, 4), (3, 4), (8, 3), (9, 9), (10, 10)):
        of_model = partial(ask, model=model, d=3, **({"classes": 4} if model == 9 else {}))
        for norm in (1, 2):
            for unit, k in ((0, v), (1, v - 1), (2, 1), (3, 2), (4, v), (65535, v)):
                step = of_model(1, k=k, card=total(norm, unit))
                rounds(
                    f"model {model}: sums of norm {norm} over units of {unit}",
                    protecting(unit),
                    step,
                    step,
                )
        fine = [(f, total(2, 2, reach=9000 << f // 2)) for f in (1, 5, 10, 11, 12)]
        steps = [of_model(i, k=v, range=f, card=card) for i, (f, card) in enumerate(fine, 1)]
        rounds(f"model {model}: sums with ranges", protecting(2), *steps)

        rounds(
            f"model {model}: a client without records answers a sum, and nothing else",
            replace(RHO, held=0),
            of_model(1, k=v, card=total()),
            of_model(2, k=1, card=total(1)),
            ask(3, model=model, d=3, k=1),
        )


def sums_of_few_values():
    """Bounds on records, the tally alone, and counts of categories."""
    for bound in (1, 3, 4, 9):
        steps = [ask(i, d=3, k=4, card=total(2, unit)) for i, unit in enumerate((0, 2), 1)]
        rounds(
            f"sums over {bound} records at most", replace(RHO, fleet=(0, 0, 1, 1, bound, 2)), *steps
        )
    steps = [
        ask(i, model=8, d=3, k=k, parameters=(), card=total(2, i % 2))
        for i, k in enumerate((1, 1, 1, 2))
    ]
    rounds("the tally alone, and one value more than it", RHO, *steps[1:])

    rounds(
        "257 counts of 128 categories; and none",
        RHO,
        ask(1, model=9, classes=128, d=3, k=257, parameters=(0, 2), card=total(bits=2)),
        ask(2, model=9, d=3, k=1, parameters=(), classes=2, card=total(1)),
    )
    small = replace(RHO, files={"records.bin": records_file(3, [i * i % 7 - 1 for i in range(20)])})
    steps = [
        ask(
            i, model=9, classes=n, d=3, k=2 * n + 1, parameters=(0, 2), card=total(2, i % 2, bits=2)
        )
        for i, n in enumerate((2, 4, 6, 9), 1)
    ]
    rounds("counts of a few categories", small, *steps)


def extreme_sums():
    """Totals at their bound, coarse outputs, and the longest reports."""
    turning = replace(
        RHO, held=40, files={"records.bin": records_file(3, [32767] * 80 + [-32768] * 80)}
    )
    rounds(
        "a total that is held to its bound, and turns",
        turning,
        ask(1, model=8, d=3, k=3, range=10, card=total(reach=1 << 29)),
    )
    outputs = (
        total(2, 1, bits=2),
        total(1, 1, coarse=3, bits=4),
        total(2, 1, coarse=7, bits=16),
        total(1, 1, coarse=20, bits=2),
    )
    rounds(
        "sums made coarse, and cut",
        RHO,
        *[ask(i, d=3, k=4, card=card) for i, card in enumerate(outputs, 1)],
    )
    large = {
        "d": 65,
        "model": 10,
        "classes": 2,
        "card": total(1, steps=1, t=1, clipped=0, kept=0, bits=16),
    }
    rounds(
        "256 bytes of sums, the most; and one value more",
        replace(RHO, d=65, held=1),
        ask(1, k=129, **large),
        ask(1, k=128, **large),
    )
    large = {"d": 128, "model": 10, "classes": 8, "card": total(bits=2)}
    rounds("257 bytes of sums", replace(RHO, d=128, held=1), ask(1, k=1025, **large))


def paid_sums():
    """Sums of a fleet, paid ahead, and without random bytes."""
    rounds(
        "sums of a fleet of two",
        replace(protecting(2), clients=2),
        ask(1, device=FLEET, d=3, k=4, card=total(2, 2)),
        ask(1, device=8, d=3, k=4, card=total(2, 2)),
    )
    steps = [ask(i, d=3, k=4, card=total(2, 1)) for i in range(1, 8)]
    rounds(
        "sums paid ahead", replace(RHO, fleet=(0, 0, 3, 1, 0, 1)), *steps[:5], Start(), *steps[5:]
    )
    again = [Start(), *steps[:2], hello_request()]
    rounds(
        "a sum without random bytes is paid for, in rho",
        RHO,
        Start(b"\0"),
        steps[0],
        steps[0],
        *again,
    )


def measures():
    """What cards cost in a ledger that counts rho."""
    epsilon = replace(RHO, ledgers=(ledger_file(),))
    for name, card in {**CARDS, "sum of norm 1": total(1), "sum of norm 2": total()}.items():
        price = {total(): 200_000, total(1): RHO_OF_4}.get(card, 2 * RHO_OF_2)
        poor = replace(RHO, ledgers=(ledger_file(budget=price - 1, measure=1),))
        for what, board in (
            ("as much as is allowed", replace(RHO, largest=price)),
            ("more than is allowed", replace(RHO, largest=price - 1)),
            ("more than is left", poor),
            ("but the ledger counts epsilon", epsilon),
        ):
            rounds(
                f"a {name} costs {price} of rho, {what}",
                board,
                ask(1, d=3, k=2, card=card),
                hello_request(),
            )
    for e in (1, 2, 999, 100_000, 5_000_000, 20_000_000):
        rounds(
            f"the rho of epsilon {e} / 10**6", RHO, ask(1, d=3, k=1, card=window(e, 2, 1, T // 2))
        )
    rounds("model 4 costs once, in rho", RHO, ask(1, model=4, d=3), ask(2, model=9, d=3, k=2))


def unfit_sums():
    """Questions that no sum answers, and cards of other units."""
    off = (
        {"batch": 1},
        {"range": 11},
        {"model": 4, "k": 3},
        {"model": 5, "local": (1, 1, 1)},
        {"model": 11},
        {"model": 9},
        {"model": 9, "classes": 2, "range": 1},
        {"k": 5},
    )
    for values in off:
        step = ask(1, d=3, **{"k": 1, "card": total(), **values})
        hostile_rounds(f"no sum: {described(values)}", RHO, step)
    for unit in (0, 1, 2, 3):
        steps = [
            ask(i, d=3, card=total(2, of)) for i, of in enumerate((0, 1, 2, 3, 4, 6, 65535), 1)
        ]
        board = protecting(unit)
        hostile_rounds(
            f"cards of the unit {unit}, of the whole device, and of other units",
            board,
            *steps,
            hello_request(),
        )
    poor = replace(RHO, ledgers=(ledger_file(),), largest=1, fleet=(0, 0, 1, 1, 0, 2))
    steps = [
        ask(1, d=3, batch=batch, card=card)
        for batch, card in ((1, total(2, 1)), (0, total(2, 1)), (0, total()), (0, total(1)))
    ]
    hostile_rounds("a card before a unit before a measure before a policy", poor, *steps)


def slots_of_sums():
    """Sums that just fit a slot, and those that do not; cards that are not certified."""
    wide = sum_card(50_000, 2, 2, 16, t=200, c=16)
    # 240, 457 and 319 for records and units, 3 for draws, 3 or 12 for the noise.
    for slot in (1021, 1022, 1031):
        rounds(
            f"a slot of {slot} ms for sums",
            replace(RHO, fleet=(0, slot, 1, 1, 600, 2)),
            ask(1, d=3, k=3, card=total(2, 2)),
            ask(2, d=3, k=3, card=total()),
            ask(3, d=3, k=3, card=wide),
        )
    # 240, and 440 for records of three features, 333 for units, 2 for draws, 2 for noise.
    for slot in (1016, 1017):
        steps = [ask(1, d=3, k=2, model=9, classes=2, parameters=(0, 1, 2), card=total(2, 2))]
        board = replace(RHO, fleet=(0, slot, 1, 1, 600, 2))
        rounds(f"a slot of {slot} ms for sums of categories", board, *steps)
    for card in total(steps=17), total(kept=-17), total(1, kept=-17):
        hostile_rounds("a sum that is not certified", RHO, ask(1, d=3, card=card))


def projections():
    """Reports about the whole vector of each model that has one."""
    for model, n in ((1, 2), (2, 2), (3, 2), (10, 4)):
        of_model = partial(ask, model=model, d=3, k=1)
        cards = [
            projection_card(EPSILON, n + i // 2, *more)
            for i, more in enumerate(
                ((1,), (4,), (2, 3000, 3000), (4, 5, 1, 1), (4, 5, 1, 1 << 15))
            )
        ]
        steps = [of_model(i, card=card, parameters=(900, -7000)) for i, card in enumerate(cards, 1)]
        rounds(
            f"model {model}: reports about the whole vector; the last again",
            Board(d=3, held=5),
            *steps,
            steps[-1],
        )
        steps = [
            of_model(i, card=cards[1], range=f, batch=f) for i, f in enumerate((1, 2, 5, 11, 12), 1)
        ]
        rounds(
            f"model {model}: about the whole vector, with ranges and batches",
            Board(d=3, held=5),
            *steps,
        )
        large = projection_card(EPSILON, 7)
        rounds(
            f"model {model}: a vector longer than 1",
            Board(d=3, files={"records.bin": records_file(3, [32767] * 12)}),
            of_model(1, range=12, card=large),
        )

        hostile_rounds(
            f"model {model}: two symbols about the whole vector; more values than N",
            Board(d=3),
            of_model(1, k=2, card=large),
            of_model(2, card=projection_card(EPSILON, n - 1, 1)),
        )
    steps = [
        ask(i, model=8, d=3, k=1, range=f, parameters=asked, card=projection_card(EPSILON, 2, 2))
        for i, (f, asked) in enumerate(((0, (0, 1, 2)), (0, (1,)), (1, (0, 2)), (12, (0, 1, 2))), 1)
    ]
    rounds("model 8: reports about all features asked for", Board(d=3, held=5), *steps)


def gradients_of_all_records():
    """Reports about the mean gradient of all of many records: about the whole vector, or values."""
    for d, held in ((31, 100), (3, 500)):
        steps = [
            ask(1, d=d, k=1, card=projection_card(EPSILON, 5, 8)),
            ask(2, d=d, k=1, range=6, card=projection_card(EPSILON, 5, 8)),
            ask(3, d=d, k=3, range=2),
            ask(4, d=d, k=2, range=12, model=1, parameters=(9000, -9000)),
            ask(5, d=d, k=1, model=3),
        ]
        rounds(f"gradients of all of {held} records", Board(d=d, held=held), *steps)
    step = ask(1, model=10, d=3, range=4, card=THREE)
    rounds("softmax gradients of all of 300 records", Board(d=3, held=300), step)


def sizes_of_projections():
    """Models without a vector, and the largest and the smallest vector."""
    for model in (4, 5, 6, 7, 9, 11):
        step = ask(1, model=model, k=1, card=projection_card(EPSILON))
        hostile_rounds(f"model {model}: no report about the whole vector", BOARD, step)
    rounds(
        "about 128 values",
        Board(d=128, held=3),
        ask(1, d=128, k=1, card=projection_card(EPSILON, 7, 40)),
    )
    steps = [
        ask(1, model=10, d=64, k=1, classes=n, card=projection_card(EPSILON, 7)) for n in (3, 2)
    ]
    rounds("about 192 values, which are too many, and 128", Board(d=64, held=3), *steps)
    rounds(
        "about one value, with the fewest directions",
        Board(d=1),
        ask(1, d=1, k=1, card=projection_card(EPSILON, 1, 1)),
    )


def paid_projections():
    """What a report about the whole vector costs, and when it is paid for."""
    steps = [ask(1, k=1, device=device, card=projection_card(EPSILON)) for device in (FLEET, 8)]
    rounds(
        "about the whole vectors of a fleet of two", replace(BOARD, clients=2, fleet=POLICY), *steps
    )
    first, other = (
        ask(1, k=1, card=projection_card(EPSILON), parameters=(weight,)) for weight in (5, 6)
    )
    second = replace(first, round=2)
    rounds(
        "a report about the whole vector without random bytes is paid for",
        BOARD,
        Start(b"\0"),
        first,
        first,
        Start(),
        first,
        second,
        other,
    )
    price, step = 1_523_189, replace(first, d=3)
    for what, board in (
        ("as much as is allowed", replace(RHO, largest=price)),
        ("more than is allowed", replace(RHO, largest=price - 1)),
        ("more than is left", replace(RHO, ledgers=(ledger_file(budget=price - 1, measure=1),))),
    ):
        rounds(
            f"a report about the whole vector costs {price} of rho, {what}",
            board,
            step,
            hello_request(),
        )
    once = replace(BOARD, largest=EPSILON)
    rounds("a report about the whole vector costs its epsilon once", once, first, hello_request())
    hostile_rounds("and one too dear", replace(once, largest=EPSILON - 1), first)


def refused_projections():
    """Refused reports about the whole vector."""
    first = ask(1, k=1, card=projection_card(EPSILON), parameters=(5,))
    leaking = projection_card(EPSILON, 5, 8, 7390)
    for what, board, fields in (
        ("is not certified", BOARD, {"card": leaking}),
        ("which comes after the slot", Board(fleet=(0, 263, 1, 1, 0)), {"card": leaking}),
        (
            "which comes after the policy",
            Board(fleet=(0, 263, 1, 1, 0), shapes=126),
            {"card": leaking},
        ),
        (
            "and before that the card",
            Board(fleet=(0, 263, 1, 1, 0), shapes=126),
            {"card": leaking, "k": 2},
        ),
        ("without records", Board(held=0), {}),
        ("with one byte too many", BOARD, {"card": first.card + b"\0"}),
    ):
        hostile_rounds(f"a report about the whole vector {what}", board, replace(first, **fields))
    for slot, most_records in ((264, 32), (265, 32), (315, 100), (316, 100)):
        comment = f"a slot of {slot} ms for the whole vector, of up to {most_records} records"
        rounds(comment, Board(fleet=(0, slot, 1, 1, most_records)), first)


def fleet_keys():
    """A new key of the fleet, with its epoch."""
    board = replace(BOARD, fleet=(0, 0, 1, 5, 9, 258))
    new = hashlib.sha256(b"new").digest()
    rounds(
        "a new key of the fleet",
        board,
        fleet_key(6, new=new),
        ask(1, device=FLEET),
        ask(1, device=FLEET, key=new),
        fleet_key(6),
        fleet_key(5),
        hello_request(),
        Start(),
        ask(2, device=FLEET, key=new),
        fleet_key(FLEET),
        fleet_key(FLEET - 1),
    )

    rounds(
        "the same epoch, an earlier one, none",
        board,
        fleet_key(5),
        fleet_key(4),
        fleet_key(0),
        ask(1, device=FLEET),
    )
    for epoch in EDGES:
        rounds(
            f"epoch {epoch}",
            board,
            fleet_key(epoch, new=new),
            fleet_key(epoch - 1),
            ask(1, device=FLEET, key=new),
        )
    rounds("no key to replace", BOARD, fleet_key(6), ask(1, device=FLEET, key=ZERO))
    hostile_rounds(
        "for other devices, under other keys, of other lengths",
        Board(clients=2, fleet=POLICY),
        fleet_key(6, 8, owner=8),
        fleet_key(6, 8),
        fleet_key(6, 0),
        fleet_key(6, FLEET),
        fleet_key(6, key=FLEET_KEY),
        fleet_key(6, key=ZERO),
        sealed(key_of(7), fleet_key(6)[:-9]),
        sealed(key_of(7), fleet_key(6)[:-8] + b"\0"),
        hello_request(),
    )
    board = Board(fleet=POLICY, files={"clients.bin": None})
    rounds("without clients.bin", board, fleet_key(6), fleet_key(6, 0))


def main():
    groups = (
        (
            models,
            ranges_of_models,
            bins,
            records_in_turn,
            bounded_records,
            gradients_of_all_records,
        ),
        (cards, long_reports, unfit_cards),
        (refusals, bounds, numbers, frames, fields, fleets),
        (damaged_fleet_files, damaged_client_files, damaged_records),
        (repeated_questions, ledgers, ends_of_ledgers, missing_random_bytes, pauses, paying_ahead),
        (fleet_keys,),
        (sums, sums_of_few_values, extreme_sums, paid_sums, measures, unfit_sums, slots_of_sums),
        (projections, sizes_of_projections, paid_projections, refused_projections),
    )
    for group in groups:
        for add_cases in group:
            add_cases()
    write(
        VECTORS / "rounds.json",
        "wire.md, storage.md, ledger.md: board: the files of one. rounds: files that a board has in place of those (null: it has "
        "none), and steps, one after the other. start: the board starts, or "
        "starts again, and its draws take these random bytes in order; there are no more. frame: what comes, without COBS "
        "-> answers, frame by frame in order of devices, with a REPORT for each row of REPORTS; or hello, the fields of a "
        "HELLO that every device tells alike (entropy: whether it is not 0). files: those that have changed then",
        board=[
            case(
                "a board", "valid", files={name: data.hex() for name, data in BOARD.image().items()}
            )
        ],
        rounds=sorted(
            ROUNDS, key=lambda each: len(str(each)) < 6000
        ),  # at first a board has the most room
    )


if __name__ == "__main__":
    main()
