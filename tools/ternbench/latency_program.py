# mypy: ignore-errors
"""Runs on a device (MicroPython): times whole reports and their parts, in microseconds or ticks of
setup()'s clock.
"""

import gc
import struct
import sys
import time
from array import array

from tern import client as _client
from tern import frames as _frames
from tern import report as _report
from tern import sampler as _sampler
from tern.boards.this import this_board

_SUM = 6  # shapes of cards: a board has no names of constants
_PROJECTION = 7
_REPORT = 0x82  # type of a frame
_ROUND_AT = 5  # offset of the round number in a ROUND
_TAG_BYTES = 8

_parts = {}
_state = []
_ticks = time.ticks_us
_pin = None  # which marks windows for a meter


def _mark(on):
    if _pin:
        _pin(on)


def setup(directory, marker=None, clock="ticks_us"):
    """Make a client over `directory`, with the board's own entropy.

    marker: number of a pin, else GP15 of a Pico. clock: a function of `time`. Returns the bytes of
    the heap that are free before and with the client.
    """
    global _ticks, _pin
    gc.collect()
    free_before = gc.mem_free()
    board = this_board()
    board.directory = directory
    _ticks = getattr(time, clock)
    if marker is None and sys.platform == "rp2":
        marker = 15
    if marker is not None:
        from machine import Pin

        _pin = Pin(marker, Pin.OUT, value=0)
    client = _client.Client(board)
    _state[:] = [board, client]
    gc.collect()
    return free_before, gc.mem_free()


def _timed(owner, name, label):
    """Replace a method of `owner` by one that also appends its times to `_parts[label]`."""
    function = getattr(owner, name)

    def call(*args):
        start = _ticks()
        try:
            return function(*args)
        finally:
            _parts.setdefault(label, []).append(time.ticks_diff(_ticks(), start))

    setattr(owner, name, call)


def watch():
    """From now on, time the parts of a report too, which makes the whole slower."""
    client = _state[1]
    report = client.report
    _timed(client, "load_ledger", "ledger load")
    _timed(client.ledger, "pay", "ledger pay")
    _timed(report, "decode", "certify")
    client.open_clients()  # they tell the unit of sums, 0
    answerers = report.answerers
    for answerer in (
        answerers.gradients,
        answerers.of_shape(_SUM),
        answerers.of_shape(_PROJECTION),
    ):
        _timed(answerer, "values", "gradient")
        _timed(answerer, "draw", "sample")
    _timed(client.session.round, "decode", "decode")
    _timed(client.entropy, "refill", "refill")
    _timed(client.entropy, "end_report", "end of report")
    _timed(_report, "choose", "coordinates")
    for function, label in (("encode_report", "encode"), ("seal", "tag")):
        _timed(_frames, function, label)
    for function in ("question", "pack"):
        _timed(_frames, function, function)


def overhead():
    """Return the time that `_timed` adds: to a timed function, and to the caller of one."""

    class Empty:
        def nothing(self, *args):
            pass

    def call_50_times():
        start = _ticks()
        for _ in range(50):
            empty.nothing()
        return time.ticks_diff(_ticks(), start)

    empty = Empty()
    time_untimed = call_50_times()
    _timed(empty, "nothing", "nothing")
    time_of_caller = call_50_times()
    time_inside = sorted(_parts.pop("nothing"))[25]
    return time_inside - time_untimed // 50, (time_of_caller - time_untimed) // 50


def _keep(reply, n):
    pass


def answer(messages):
    """Answer each ROUND of `messages`.

    Returns the times of all, and of the parts that are timed: {label: [time, ...]}.
    """
    client = _state[1]
    _parts.clear()
    times = []
    for message in messages:
        frame = memoryview(message)
        _mark(True)
        start = _ticks()
        client.respond(frame, _keep)
        end = _ticks()
        _mark(False)
        if client.reply[0] != _REPORT:
            raise ValueError("refused")
        times.append(time.ticks_diff(end, start))
    return times, _parts


def rounds(message, key, count):
    """Yield `count` ROUND messages like `message`, each a new one, under the client's `key`.

    A budget that is spent is renewed, so that the device never refuses.
    """
    client = _state[1]
    for _ in range(count):
        ledger = client.load_ledger(1)
        if ledger.budget - ledger.spent < client.policy.cost:
            ledger.spent = ledger.round = 0
            ledger.pay(1, bytes(32), 1, b"")
        frame = bytearray(message)
        struct.pack_into("<I", frame, _ROUND_AT, ledger.round + 1)
        _frames.seal(key, frame, len(frame) - _TAG_BYTES)
        gc.collect()
        yield frame


def garbage(messages):
    """Return the bytes that answering these ROUND messages allocates, and the bytes in use before."""
    client = _state[1]
    views = [memoryview(message) for message in messages]
    gc.collect()
    gc.disable()
    used_before = gc.mem_alloc()
    for view in views:
        client.respond(view, _keep)
    used_after = gc.mem_alloc()
    gc.enable()
    return used_after - used_before, used_before


def serve(count):
    """Answer `count` ROUND messages at the board's own port.

    Returns the times of receiving (from the first byte to the last), of answering and of sending,
    three numbers for each message one after the other.
    """
    board, client = _state
    link = board.link()
    board.begin()
    times = array("I", bytes(12 * count))  # no garbage of its own
    answered = 0

    def send(reply, length):
        nonlocal answered
        answered = _ticks()
        link.send(reply, length)

    try:
        gc.collect()
        print("ready")
        for first in range(0, 3 * count, 3):
            while not link.ready(-1):
                pass
            start = _ticks()
            frame = link.receive()
            received = _ticks()
            client.respond(frame, send)
            end = _ticks()
            if client.reply[0] != _REPORT:  # or it was another host's message
                raise ValueError("refused")
            times[first] = time.ticks_diff(received, start)
            times[first + 1] = time.ticks_diff(answered, received)
            times[first + 2] = time.ticks_diff(end, answered)
    finally:
        board.end()
    return list(times)


def has_marker():
    return _pin is not None


def use_native():
    """Use the sampler's inner functions in C instead of those in viper, where both are there."""
    import native_sampler

    leaves = _sampler._LEAVES
    for shape, functions in list(leaves.items()):
        for name in ("table", "window"):
            if functions[0] is getattr(_sampler, name):
                leaves[shape] = (getattr(native_sampler, name),)


def case(name, repeats, card):
    """Run a case of tern.bench, and return the time of a unit in each repeat.

    repeats: how often. card: the bytes of the card to sample from.
    """
    from tern.bench import run

    units, times = run(name, repeats, card, _state[1], _ticks)
    return [one / units for one in times]
