"""What can be seen of a board: SCENARIO COUNT VALUE SEED FAILS prints it, an event a line.

The board holds COUNT records of VALUE. Its work takes times that follow from SEED. FAILS: a number of FAILURES.
"""

import struct
import sys
from array import array

import small_board
import update_rig
from small_board import THREE, put_fleet, round_frame
from world import DEVICE, SLOT_MS, Air, Port, SeenBoard, World, on_broker, within

from tern import frames, host_frames, recorder, storage, supervisor, wire
from tern.app import App
from tern.model import Model
from tern.recorder import Recorder
from tern.update import Update

D = 4
PAUSE_S = 2
BOUND = 64  # records used
CAPACITY = 2048
FLEET_KEY = bytes(range(100, 132))
DOWN = "tern/down/00000007"
FAILURES = (
    (),
    ((recorder, "readinto"),),
    ((recorder, "write"), (recorder, "flush")),
)


def framed(encode, *arguments):
    out = bytearray(wire.MAX_FRAME)
    return bytes(out[: encode(out, *arguments)])


def question(number, **fields):
    return bytes(round_frame(number, THREE, device=DEVICE, k=2, **fields))


HELLO = framed(frames.encode_hello_request, 77)
MODEL = framed(host_frames.encode_model, FLEET_KEY, wire.FLEET, 3, wire.LOGISTIC, array("h", range(D)), -14)
NEW_KEY = framed(host_frames.encode_fleet_key, small_board.key_of(DEVICE), DEVICE, 2, bytes(32))
NEWER = framed(host_frames.encode_model, bytes(32), wire.FLEET, 4, wire.LINEAR, array("h", range(D)), -14)
LOCAL = {"model": wire.LOCAL + wire.LOGISTIC, "local": (1, 2, 1 << 18)}
# ms, frame: some come together, some within the pause of the last one, one twice, one changed, some refused
QUESTIONS = (
    (3000, question(2)),
    (3100, question(2)),
    (3101, question(2, shift=1)),
    (4700, question(3)),
    (6000, question(3, model=wire.SVM)),
    (8000, MODEL),
    (8200, question(4, **LOCAL)),
    (11000, NEW_KEY),
    (11010, NEWER),
    (11020, question(5, batch=7)),
    (14000, question(6)[:-1] + b"x"),
    (15000, question(7, d=5)),
    (16000, question(8, **LOCAL)),
)
AT_PORT = ((700, HELLO),) + QUESTIONS + ((16100, HELLO), (16200, b""))


def collected(count, value):
    """A board whose program has recorded `count` records of this value."""
    small_board.write_files(".")
    put_fleet(".", FLEET_KEY, pause=PAUSE_S, slot=SLOT_MS, records=BOUND)
    book = Recorder(D, capacity=CAPACITY, hold=8)
    book.open(".")
    row = array("h", (value for _ in range(D)))
    for _ in range(count):
        book.append(row, value)
    book.close()


def provisioned(count, value):
    """A board without a program, with as many records, or one."""
    small_board.write_files(".", records=max(1, count))
    put_fleet(".", FLEET_KEY, pause=PAUSE_S, slot=SLOT_MS, records=BOUND)
    with open(storage.RECORDS, "r+b") as file:
        file.seek(storage.RECORDS_BYTES)
        for _ in range(max(1, count) * (D + 1)):
            file.write(struct.pack("<h", value))


def node_on(world, updates=None):
    return App(SeenBoard(world, "."), Recorder(D, capacity=CAPACITY, hold=8), Model(), updates)


def run(world, updates=False):
    """The board's program runs; a task of it takes some time and records now and then."""
    board = SeenBoard(world, ".")
    node = App(board, Recorder(D, capacity=CAPACITY, hold=8), Model(), Update(board) if updates else None)
    row = array("h", bytes(2 * D))

    def task():
        world.work(3)
        if world.words.below(100) == 0:
            node.recorder.append(row, 5)

    world.task = task
    try:
        node.run().send(None)
    except StopIteration:  # the host has gone
        pass


def over_broker(frames):
    return [(ms, DOWN, frame) for ms, frame in frames]


def program(world):
    on_broker(".", keep_alive=6)
    within(world, Air(world, over_broker(QUESTIONS)), Port(world), lambda: run(world))


def program_at_port(world):
    within(world, Air(world), Port(world, AT_PORT), lambda: run(world))


def serve(world):
    within(world, Air(world), Port(world, AT_PORT), lambda: supervisor.run(SeenBoard(world, ".")))


def serve_over_broker(world):
    on_broker(".", keep_alive=6)
    air = Air(world, over_broker(QUESTIONS))
    within(world, air, Port(world), lambda: supervisor.run(SeenBoard(world, ".")))


def wake(world, number, script=()):
    """A wake of a board that sleeps, from power-on to its next sleep."""
    on_broker(".", wake_s=60)
    put_fleet(".", FLEET_KEY, slot=SLOT_MS, records=BOUND)
    asked = ((10, DOWN, question(number, **LOCAL)),) if number else ()
    air = Air(world, asked + script)

    def act():
        done = node_on(world).once(9000)
        world.see("return", done)

    within(world, air, Port(world), act)


def once(world):
    for number, script in ((2, ()), (3, ((600, "tern/model", MODEL),)), (0, ()), (4, ((20, DOWN, NEW_KEY),))):
        wake(world, number, script)
        world.us = 0


def cut(world):
    """Two wakes; in the first the power fails at each step of the payment in turn."""
    for step in range(5):
        world.on = True
        world.us = 0
        world.cut = step
        wake(world, 2 + 2 * step)
        world.on = True
        world.us = 0
        world.cut = -1
        wake(world, 2 + 2 * step)
        world.us = 0
        wake(world, 3 + 2 * step)


def update(world):
    """A package arrives, between rounds; the board then resets."""
    update_rig.KEY = small_board.key_of(DEVICE)
    on_broker(".")
    package = update_rig.package(5, (("tern/part.py", bytes(3000)), ("main.py", b"pass")))
    air = Air(world, [(500, DOWN, bytes(update_rig.frame(5, 0, len(package)))), (1200, DOWN, question(2))])

    def react(frame):
        if frame[0] == wire.UPDATED:
            wanted, state = struct.unpack_from("<IB", frame, 9)
            if state == wire.RECEIVING:
                data = package[wanted : wanted + 900]
                return DOWN, bytes(update_rig.frame(5, wanted, len(package), data)), 30
        return None

    air.react = react
    within(world, air, Port(world), lambda: run(world, updates=True))


SCENARIOS = {
    "program": (program, collected, 24000),
    "program_at_port": (program_at_port, collected, 24000),
    "serve": (serve, provisioned, 24000),
    "serve_over_broker": (serve_over_broker, provisioned, 24000),
    "once": (once, collected, 20000),
    "cut": (cut, collected, 20000),
    "update": (update, collected, 60000),
}

if __name__ == "__main__":
    scenario, make, end_ms = SCENARIOS[sys.argv[1]]
    count, value, seed, failure = (int(word) for word in sys.argv[2:])
    make(count, value)
    world = World(seed, end_ms)
    world.fails = FAILURES[failure]
    scenario(world)
