"""What can be seen of the board in this folder: SCENARIO SEED FAILS prints it, an event a line.

Its work takes times that follow from SEED. FAILS: a number of FAILURES.
"""

import struct
import sys
from array import array

import small_board
import update_rig
from small_board import EPSILON, PURE_CARD, RHO_CARD, THREE, put_fleet, round_frame
from spec.cards import projection_card, sum_card
from world import (
    DEVICE,
    DROP,
    REFUSED,
    SILENT,
    SLOT_MS,
    Air,
    Port,
    SeenBoard,
    World,
    on_broker,
    within,
)

from tern import frames, host_frames, ledger, recorder, storage, supervisor, update, wire
from tern.app import App
from tern.client import Client
from tern.model import Model
from tern.recorder import Recorder

D = 4
PAUSE_S = 2
BOUND = 64  # records used
CAPACITY = 2048
UNIT = 2  # that boards protect which answer sums
ALL_SLOT_MS = 12000  # in which a board reads all its records
CLIENTS = 3
FLEET_KEY = bytes(range(100, 132))
DOWN = "tern/down/00000007"
FAILURES = ((), ((recorder, "readinto"),), ((recorder, "write"), (recorder, "flush")))
CUTS = range(5)  # of the power, in a payment
UPDATE_CUTS = (0, 1, 2, 5, 13, 20)


def framed(encode, *arguments):
    out = bytearray(wire.MAX_FRAME)
    return bytes(out[: encode(out, *arguments)])


def question(number, card=THREE, k=2, **fields):
    fields.setdefault("device", DEVICE)
    return bytes(round_frame(number, card, k=k, **fields))


HELLO = framed(frames.encode_hello_request, 77)
MODEL = framed(
    host_frames.encode_model, FLEET_KEY, wire.FLEET, 3, wire.LOGISTIC, array("h", range(D)), -14
)
NEW_KEY = framed(host_frames.encode_fleet_key, small_board.key_of(DEVICE), DEVICE, 2, bytes(32))
NEWER = framed(
    host_frames.encode_model, bytes(32), wire.FLEET, 4, wire.LINEAR, array("h", range(D)), -14
)
LOCAL = {"model": wire.LOCAL + wire.LOGISTIC, "local": (1, 2, 1 << 18)}
# ms after a connection or 700 ms, frame: some come together, some within the pause of the last one
# and at its whole seconds, one twice, one changed, some refused
QUESTIONS = (
    (1150, question(2)),
    (2400, question(2)),
    (3400, question(3)),
    (4000, question(2)),
    (4001, question(2, shift=1)),
    (5400, question(3)),
    (6400, question(4)),
    (7400, question(3, model=wire.SVM)),
    (8000, MODEL),
    (8200, question(4, **LOCAL)),
    (11000, NEW_KEY),
    (11010, NEWER),
    (11020, question(5, batch=7)),
    (14000, question(6)[:-1] + b"x"),
    (15000, question(7, d=5)),
    (16000, question(8, **LOCAL)),
)
# So few that the work fits a slot beside a task that is busy.
QUICK = [
    (ms, question(number, batch=1))
    for ms, number in ((1150, 2), (2400, 2), (3400, 3), (5400, 3), (6003, 4))
]
DAMAGED = ((17200, None), (18003, None))
FOR_FLEET = [
    (ms, question(number, device=wire.FLEET, key=FLEET_KEY, **fields))
    for ms, number, fields in (
        (1400, 2, {}),
        (2400, 2, LOCAL),
        (3400, 3, {}),
        (5400, 3, {}),
        (6000, 3, {}),
    )
]


# Of sums and projections, in rho: each kind of values, one twice, one with a unit that the board
# does not protect.
PROJECTION = projection_card(EPSILON)
ALL_FEATURES = {"exponent": 0, "shift": 1}  # of a collection
OTHER_UNIT = sum_card(50_000, 2, UNIT + 2, 16, 1 << 14, t=51, c=51, m=1)
SUMS = (
    (1150, question(2, RHO_CARD)),
    (2400, question(2, RHO_CARD)),
    (3400, question(3, RHO_CARD, 5, model=wire.VALUES, **ALL_FEATURES)),
    (5400, question(4, PROJECTION, 1)),
    (7400, question(5, OTHER_UNIT)),
    (8400, question(6, PROJECTION, 1, model=wire.VALUES, **ALL_FEATURES)),
    (10400, question(7, PURE_CARD, model=wire.CATEGORIES, classes=3, **ALL_FEATURES)),
    (12400, question(8, RHO_CARD, model=wire.SOFTMAX_GRADIENT, classes=2)),
    (14400, question(9, **LOCAL)),
    (16400, question(10, PROJECTION, 1, model=wire.SOFTMAX_GRADIENT, classes=2)),
)
# Some of these, which use all records.
OF_ALL = [frame for _, frame in (SUMS[0], SUMS[6], SUMS[8])]
SUMS_OF_ALL = [(2000 + i * 2 * ALL_SLOT_MS, frame) for i, frame in enumerate(OF_ALL)]


def has_policy(folder=".", pause=PAUSE_S, slot=SLOT_MS, records=BOUND, unit=0):
    put_fleet(folder, FLEET_KEY, pause=pause, slot=slot, records=records, unit=unit)


def collected(folder, count, value, measure=0, **policy):
    """Make a board whose program has recorded `count` records of this value. policy: as of
    has_policy().
    """
    small_board.write_files(folder, measure=measure)
    has_policy(folder, **policy)
    book = Recorder(D, capacity=CAPACITY, hold=8)
    book.open(folder)
    row = array("h", (value for _ in range(D)))
    for _ in range(count):
        book.append(row, value)
    book.close()


def of_sums(folder, count, value):
    """Make a board whose program has recorded so many records, and which answers sums and
    projections.
    """
    collected(folder, count, value, ledger.RHO, pause=0, unit=UNIT)


def of_sums_of_all(folder, count, value):
    """Make a board as of_sums() does, whose reports use all records."""
    collected(
        folder, count, value, ledger.RHO, pause=0, slot=ALL_SLOT_MS, records=CAPACITY, unit=UNIT
    )


def provisioned(folder, count, value, clients=1, measure=0, **policy):
    """Make a board without a program; each client has as many records, or one. policy: as of
    has_policy().
    """
    count = max(1, count)
    small_board.write_files(folder, clients=clients, records=count, measure=measure)
    has_policy(folder, **policy)
    with open(folder + "/" + storage.RECORDS, "r+b") as file:
        file.seek(storage.RECORDS_BYTES)
        file.write(struct.pack("<h", value) * (clients * count * (D + 1)))


def provisioned_for_sums(folder, count, value):
    """Make a board without a program that answers sums and projections."""
    provisioned(folder, count, value, measure=ledger.RHO, pause=0, unit=UNIT)


def of_several(folder, count, value):
    """Make a board of several clients."""
    provisioned(folder, count, value, CLIENTS)


def empty(folder, *_):
    """Make a board without a program, whose client has no records."""
    small_board.write_files(folder, records=0)
    has_policy(folder)


def program(world, updates=False, capacity=CAPACITY, least_ms=0):
    """The board's program runs; a task of it takes up to 3 ms, or 10 above `least_ms`, and records
    now and then.
    """
    board = SeenBoard(world, ".")
    node = App(
        board, Recorder(D, capacity, hold=8), Model(), update.Update(board) if updates else None
    )
    row = array("h", bytes(2 * D))

    def task():
        world.us += 1000 * least_ms
        world.work(10 if least_ms else 3)
        if world.words.below(20) == 0:
            node.recorder.append(row, 5)

    world.task = task
    try:
        node.run().send(None)
    except StopIteration:  # the host has gone
        pass


def busy(world):
    """Its task blocks for up to a tenth of the slot, which only what a link sends by itself may
    show.
    """
    world.unseen = ("credit",)
    program(world, least_ms=40)


def serve(world):
    supervisor.run(SeenBoard(world, "."))


def once(world):
    world.task = None
    # Counted from power-on, this ends shortly before a multiple of the slot.
    done = App(SeenBoard(world, "."), Recorder(D, CAPACITY, hold=8), Model()).once(9480)
    world.see("return", done)


def at_broker(script):
    return [(ms, DOWN, frame) for ms, frame in script]


def at_port(act, script=QUESTIONS + DAMAGED):
    """A scenario: the board's host is at its port, and asks this."""
    script = [(700, HELLO)] + [(700 + ms, frame) for ms, frame in script]
    script += [(script[-1][0] + 700, HELLO), (script[-1][0] + 800, b"")]
    return lambda world: within(world, Air(world), Port(world, script), lambda: act(world))


def over_broker(act, *scripts, **settings):
    """A scenario: the board has a broker, whose connections end or go like this (see Air)."""

    def scenario(world):
        on_broker(".", keep_alive=6)
        air = Air(world, *(scripts or (at_broker(QUESTIONS),)), **settings)
        within(world, air, Port(world), lambda: act(world))

    return scenario


def absent(act):
    """A scenario: the broker is lost before it acknowledges a report, refuses twice, is silent, and
    returns; once more it is lost while the board works on an answer.
    """
    again = at_broker(QUESTIONS[5:7]) + [(QUESTIONS[6][0] + 300, DROP, None)]
    scripts = at_broker(QUESTIONS[:2]), REFUSED, REFUSED, SILENT, again

    def scenario(world):
        world.end_ms = 36000
        over_broker(act, *scripts, drops=True)(world)

    return scenario


def sums_of_all(world):
    world.end_ms = SUMS_OF_ALL[-1][0] + 4 * ALL_SLOT_MS
    at_port(program, SUMS_OF_ALL)(world)


def wake(world, *scripts, **policy):
    """A wake of a board that sleeps, from power-on to its next sleep. policy: as of has_policy()."""
    on_broker(".", wake_s=60)
    has_policy(pause=0, **policy)
    within(world, Air(world, *scripts), Port(world), lambda: once(world))


def asks(number):
    return [(10, DOWN, question(number, **LOCAL))]


def wakes(world):
    """A board that sleeps; at first it knows no address, and once its broker refuses it."""
    for scripts in (
        (asks(2),),
        (asks(3) + [(600, "tern/model", MODEL)],),
        ((),),
        (REFUSED, asks(4)),
        (asks(5) + [(20, DOWN, NEW_KEY)],),
        (SILENT,),
    ):
        wake(world, *scripts)
        world.power_on()


def wakes_for_sums(world):
    """A board that sleeps and answers sums and projections."""
    for _, frame in (SUMS[0], SUMS[3], SUMS[4], SUMS[6]):
        wake(world, [(10, DOWN, frame)], unit=UNIT)
        world.power_on()


def in_cuts(module, steps, play):
    """A scenario: play(world, number), whose power fails at each of these writes in turn, and
    again, whole.
    """

    def scenario(world):
        for step in steps:
            for cut in (step, -1):
                world.power_on(module, cut)
                play(world, 2 + 3 * step)

    return scenario


def two_wakes(world, number):
    wake(world, asks(number))
    if world.cut < 0:
        world.power_on()
        wake(world, asks(number + 1))


def two_rounds(act):
    def play(world, number):
        has_policy(pause=0)
        at_port(act, [(300, question(number)), (600, question(number + 1, **LOCAL))])(world)

    return play


def package(world, number):
    """A package arrives, between rounds; the board then resets."""
    update_rig.KEY = small_board.key_of(DEVICE)
    on_broker(".")
    data = update_rig.package(number, (("tern/part.py", bytes(3000)), ("main.py", b"pass")))
    first = bytes(update_rig.frame(number, 0, len(data)))
    air = Air(
        world, at_broker([(500, first), (3200, question(number)), (7200, question(number + 1))])
    )

    def react(frame):
        if frame[0] == wire.UPDATED:
            wanted, state = struct.unpack_from("<IB", frame, 9)
            if state == wire.RECEIVING:
                part = data[wanted : wanted + 900]
                return DOWN, bytes(update_rig.frame(number, wanted, len(data), part)), 30
        return None

    air.react = react
    within(world, air, Port(world), lambda: program(world, updates=True))


def full(world):
    """The flash has no room for the files of a program's records."""
    world.room = 0
    within(world, Air(world), Port(world), lambda: program(world, capacity=2 * CAPACITY))


def heap(_):
    """The free heap that HELLO tells after each question, of a board in no world."""
    client = Client(small_board.Board("."))
    for i, at in enumerate((0, 1, 9, 12)):
        frame = QUESTIONS[at][1]
        client.arrived = i << 20
        client.respond(memoryview(frame), lambda reply, n: None)
        n = client.answer(memoryview(HELLO))
        print(client.arrived, "HELLO", host_frames.Hello(bytes(client.reply[:n])).heap)


def with_update(world):
    package(world, 5)


SCENARIOS = {  # what happens, the board, what fails
    "program": (over_broker(program), collected, ()),
    "program_at_port": (at_port(program), collected, ()),
    "busy_at_port": (at_port(busy, QUICK), collected, ()),
    "serve": (at_port(serve), provisioned, ()),
    "serve_over_broker": (over_broker(serve), provisioned, ()),
    "serve_several": (at_port(serve, FOR_FLEET), of_several, ()),
    "serve_none": (at_port(serve), empty, ()),
    "once": (wakes, collected, ()),
    "sums": (at_port(program, SUMS), of_sums, ()),
    "sums_of_all": (sums_of_all, of_sums_of_all, ()),
    "sums_served": (at_port(serve, SUMS), provisioned_for_sums, ()),
    "sums_once": (wakes_for_sums, of_sums, ()),
    "update": (with_update, collected, ()),
    "absent_program": (absent(program), collected, ()),
    "absent_serve": (absent(serve), provisioned, ()),
    "cut_once": (in_cuts(ledger, CUTS, two_wakes), collected, ()),
    "cut_program": (in_cuts(ledger, CUTS, two_rounds(program)), collected, ()),
    "cut_serve": (in_cuts(ledger, CUTS, two_rounds(serve)), provisioned, ()),
    "cut_update": (in_cuts(update, UPDATE_CUTS, package), collected, ()),
    "faulty_ledger": (over_broker(program), collected, ((ledger, "write"), (ledger, "flush"))),
    "faulty_ledger_served": (at_port(serve), provisioned, ((ledger, "write"), (ledger, "flush"))),
    "faulty_records": (at_port(serve), provisioned, ((storage, "readinto"),)),
    "faulty_update": (with_update, collected, ((update, "write"),)),
    "full": (full, collected, ()),
    "heap": (heap, provisioned, ()),
}

if __name__ == "__main__":
    scenario, _, fails = SCENARIOS[sys.argv[1]]
    seed, failure = (int(word) for word in sys.argv[2:] or (1, 0))
    scenario(World(seed, FAILURES[failure] + fails))
