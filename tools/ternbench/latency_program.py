# mypy: ignore-errors
"""The program of the latency bench, which runs on a device (MicroPython).

It times whole reports and the functions of the device library that make them, in microseconds or
in ticks of the clock that `setup` is given. The host calls its functions one by one.
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
from tern import session as _session
from tern.boards.this import this_board

# Numbers of the formats, since the library on a board has no names of constants.
_SUM = 6  # the kind (shape) of a mechanism table for sums of records
_PROJECTION = 7  # and of one for projections
_REPORT = 0x82  # type of the frame in which a device reports
_ROUND_AT = 5  # offset of the round number in a ROUND, the frame in which the host asks
_TAG_BYTES = 8  # of the authentication tag that ends a frame

_parts = {}  # the times of each timed function, by label
_state = []  # the board and the client, after setup()
_ticks = time.ticks_us
_pin = None  # the output pin that is set while a report is made, so that a meter sees it


def _mark(on):
    """Set or clear the marker pin, if there is one."""
    if _pin:
        _pin(on)


def setup(directory, marker=None, clock="ticks_us"):
    """Make a client, the object that answers the host, over the files in `directory`.

    It has the board's own source of random numbers. marker: number of the pin that marks reports
    for a meter; None: GP15 on a Pico, and no pin on other boards. clock: name of the function of
    `time` that tells the time. Returns the bytes of the heap that are free without and with the
    client.
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
    """Replace a method of `owner` by one that also appends its times to `_parts[label]`.

    owner: an object or a module. name: of its method or function.
    """
    function = getattr(owner, name)

    def call(*args):
        start = _ticks()
        try:
            return function(*args)
        finally:
            _parts.setdefault(label, []).append(time.ticks_diff(_ticks(), start))

    setattr(owner, name, call)


def watch():
    """From now on, time the functions that make a report; each call becomes slower by that.

    The times go into `_parts` under labels such as "ledger load". From these labels the host finds
    the time of each part of a report. Functions that do the same for several kinds of reports, such
    as computing the values and drawing the noise, have one label.
    """
    client = _state[1]
    report = client.report
    _timed(client, "load_ledger", "ledger load")
    _timed(client.ledger, "pay", "ledger pay")
    _timed(report, "decode", "certify")
    client.open_clients()  # the objects for sums are made with what the clients' file says
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
    _timed(_report, "write_report", "encode")
    _timed(_frames, "pack", "pack")
    for module in (_session, _report):
        _timed(module, "digest_into", "tag")


def overhead():
    """Return how much time `_timed` adds to a timed function itself, and how much to its caller.

    A function that does nothing is called 50 times, first untimed and then timed.
    """

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
    time_inside = sorted(_parts.pop("nothing"))[25]  # the median
    return time_inside - time_untimed // 50, (time_of_caller - time_untimed) // 50


def _keep(reply, n):
    """Take the place of the function that sends a reply: the client keeps the reply itself."""


def answer(messages):
    """Answer each ROUND message, without a link, and return how long that took.

    Returns the time of each answer, and the times of each function that `watch` times, by label.
    Raises ValueError if the device refuses to report.
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
    """Yield `count` ROUND messages like `message`, each with the next round number.

    The device answers each round only once, and refuses once its privacy budget is spent. So its
    budget is renewed here whenever it does not suffice for another report.

    message: a whole ROUND. key: the client's key, which authenticates the messages.
    """
    client = _state[1]
    for _ in range(count):
        ledger = client.load_ledger(1)  # of the client with the id 1, the only one
        # As if nothing had been spent yet. Paying a millionth in round 1 writes that into the file.
        if ledger.budget - ledger.spent < client.policy.cost:
            ledger.spent = ledger.round = 0
            ledger.pay(1, bytes(32), 1, b"")
        frame = bytearray(message)
        struct.pack_into("<I", frame, _ROUND_AT, ledger.round + 1)
        _frames.seal(key, frame, len(frame) - _TAG_BYTES)
        gc.collect()  # now, so that it does not happen while the answer is timed
        yield frame


def garbage(messages):
    """Return the bytes that answering these ROUND messages allocates, and the bytes in use before.

    The garbage collector is off meanwhile, so that what is allocated stays in use and can be
    counted.
    """
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

    Returns three times for each message, all in one list: of receiving it (from the first byte to the
    last), of making the answer, and of sending it.
    """
    board, client = _state
    link = board.link()
    board.begin()
    # Three numbers of 4 bytes for each message, made beforehand: it must not make garbage itself.
    times = array("I", bytes(12 * count))
    answered = 0

    def send(reply, length):
        nonlocal answered
        answered = _ticks()
        link.send(reply, length)

    try:
        gc.collect()
        client.settle()
        print("ready")
        for first in range(0, 3 * count, 3):
            while not link.ready(-1):
                pass
            start = _ticks()
            frame = link.receive()
            received = _ticks()
            client.respond(frame, send)
            end = _ticks()
            if client.reply[0] != _REPORT:  # it refuses, or the message was another host's
                raise ValueError("refused")
            times[first] = time.ticks_diff(received, start)
            times[first + 1] = time.ticks_diff(answered, received)
            times[first + 2] = time.ticks_diff(end, answered)
            client.tend()  # as tern.supervisor does between two reports
    finally:
        board.end()
    return list(times)


def has_marker():
    return _pin is not None


def use_native():
    """Use the sampler's inner functions in C instead of those in viper, where both are there.

    MicroPython's viper compiles Python to machine code. The module native_sampler, which the host
    has installed, has the functions `table` and `window` in C.
    """
    import native_sampler

    # The inner functions of the sampler, by the kind (shape) of mechanism table for which they are.
    # The tuple of a shape is replaced if its only function is `table` or `window`.
    leaves = _sampler._LEAVES
    for shape, functions in list(leaves.items()):
        for name in ("table", "window"):
            if functions[0] is getattr(_sampler, name):
                leaves[shape] = (getattr(native_sampler, name),)


def case(name, repeats, card):
    """Run a micro-benchmark of tern.bench, and return the time of one unit of its work, for each run.

    name: of the benchmark. repeats: how often to run it. card: the bytes of the mechanism table that
    the benchmark samples from.
    """
    from tern.bench import run

    units, times = run(name, repeats, card, _state[1], _ticks)
    return [run_time / units for run_time in times]
