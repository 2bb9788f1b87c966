"""Millions of hostile frames against a host's aggregator: anything that a network can do to the
frames of devices.

The attacker has every frame sent before, and the key of one device that has no part in the round.
"""

import os
import random
import resource
import struct
from itertools import islice

from benchmarks import resident
from spec import answers

from harness.host_targets import reports_in
from tern import wire
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question, round_body
from ternhost.privacy.mechanisms import design
from ternhost.store.store import Store

DEVICES = 100
STRANGER = 1000  # known to the host, but not in the open round
_ROUND, _BATCH, _D = 5, 5000, 28


def assault(path, count, seed=1):
    """Give an aggregator `count` frames, none of which may count; return how it judged them, as a
    dictionary.
    """
    source = random.Random(seed)
    keys = {device: os.urandom(32) for device in range(1, DEVICES + 1)}
    keys[STRANGER] = os.urandom(32)
    with Store(path) as store:
        store.add_devices(keys)
        aggregator = Aggregator(store)
        card = design("three-outputs", epsilon_micro=1_000_000).card
        question = Question(wire.LOGISTIC, [0] * _D, -14, card, 1)
        bodies = [b"", *(round_body(number, question) for number in range(1, _ROUND + 1))]
        earlier = []
        for number in range(1, _ROUND):  # ended rounds, whose reports are replayed later
            aggregator.open(number, [(question, range(1, DEVICES + 1))], 0.0)
            devices = range(1, DEVICES + 1)
            sent = [report(keys[device], device, number, bodies) for device in devices]
            aggregator.accept(sent, 0.0)
            store.end_round(number, aggregator.ended(number, 0.0).ended)
            earlier += sent
        aggregator.open(_ROUND, [(question, range(1, DEVICES + 1))], 0.0)
        before = store.report_count()
        frames = (hostile(source, earlier, keys, bodies) for _ in range(_BATCH + count))
        aggregator.accept(list(islice(frames, _BATCH)), 0.0)  # fills the caches
        aggregator.statistics = type(aggregator.statistics)()
        memory, reports = resident(), 0
        while batch := list(islice(frames, _BATCH)):
            reports += sum(map(reports_in, batch))
            assert not aggregator.accept(batch, 0.0).reports
        fates = vars(aggregator.statistics)
        return {
            "frames": count,
            "reports": reports,
            "accepted": store.report_count() - before + fates["accepted"],
            "refused": sum(number for fate, number in fates.items() if fate != "accepted"),
            "fates": dict(fates),
            "grown_bytes": max(0, resident() - memory),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def report(key, device, number, bodies, symbol=1):
    return answers.report(
        answers.question(key, device, bodies[number]), device, number, bytes((symbol,))
    )


def hostile(source, earlier, keys, bodies):
    """A frame that must not count."""
    if source.random() < 0.2:  # several in one
        rows = [
            hostile_report(source, earlier, keys, bodies) for _ in range(source.randrange(1, 33))
        ]
        reports = [row for row in rows if len(row) == 18 and row[0] == wire.REPORT]
        frame = answers.reports(*reports or [earlier[0]])
        start = source.choice((frame[1:5], struct.pack("<I", _ROUND)))
        frame = frame[:1] + start + frame[5:]
        return frame if source.random() < 0.8 else frame[: source.randrange(len(frame))]
    return hostile_report(source, earlier, keys, bodies)


def hostile_report(source, earlier, keys, bodies):
    kind, old = source.randrange(10), source.choice(earlier)
    device = source.randrange(1, DEVICES + 1)
    if kind == 0:  # of an earlier round
        return old
    if kind == 1:  # with the number of this round
        return old[:5] + struct.pack("<I", _ROUND) + old[9:]
    if kind == 2:  # and with the id of another device
        return old[:1] + struct.pack("<II", device % DEVICES + 1, _ROUND) + old[9:]
    if kind == 3:  # signed by the stranger, with the id of a device in the round
        return report(keys[STRANGER], device, _ROUND, bodies, source.randrange(3))
    if kind == 4:  # with its own id
        return report(keys[STRANGER], STRANGER, _ROUND, bodies)
    if kind == 5:  # of an unknown device
        return report(keys[STRANGER], source.randrange(2000, 1 << 32), _ROUND, bodies)
    if kind == 6:  # flipped bits
        bad = bytearray(old)
        for _ in range(source.randrange(1, 4)):
            bad[source.randrange(len(bad))] ^= 1 << source.randrange(8)
        return bytes(bad)
    if kind == 7:  # cut, or with bytes behind
        cut = old[: source.randrange(len(old))]
        return source.choice((cut, old + source.randbytes(5)))
    if kind == 8:  # to another question that the device got under this number
        other = bodies[_ROUND][:-1] + source.randbytes(1)
        if other != bodies[_ROUND]:
            question = answers.question(keys[device], device, other)
            return answers.report(question, device, _ROUND, b"\1")
    head = bytes((source.choice((0x81, 0x82, 0x83, 0x84, 0x85, 0, 255)),))
    return head + source.randbytes(source.randrange(60))
