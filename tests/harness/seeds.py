"""Seeds of the fuzzing: the vectors, tests/corpus, and rounds that the board of verdicts.py
answers.
"""

import json
import random
import struct
from functools import cache
from pathlib import Path

from framing import encoded

from harness import verdicts
from tern import card as cards
from tern import frames, host_frames, shapes, wire

_ROOT = Path(__file__).parents[2]
_VECTORS = _ROOT / "shared_specs" / "vectors"
CORPUS = _ROOT / "tests" / "corpus"
_LOCAL = (2, 3, 1 << 16)
LARGEST = 4000  # bytes of an input


def corpus(name):
    """The inputs in a file of tests/corpus; none if there is no such file."""
    path = CORPUS / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def strings(value):
    """Every string of hexadecimal digits in a file of vectors."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str) and len(value) >= 4 and len(value) % 2 == 0:
        try:
            yield bytes.fromhex(value)
        except ValueError:
            return


@cache
def vectors(name):
    """All byte strings of a file of vectors."""
    return sorted(set(strings(json.loads((_VECTORS / f"{name}.json").read_text()))))


@cache
def some_cards():
    """(shape, bytes) of a certified card of each shape: the shortest of the vectors that the board
    may answer.
    """
    best = {}
    for test in json.loads((_VECTORS / "cards.json").read_text())["tests"]:
        if test["decodes"] and test["certified"]:
            data = bytes.fromhex(test["card"])
            card = cards.decode(data)
            if card.epsilon <= verdicts.LARGEST // 2 and len(data) < len(
                best.get(card.shape, bytes(3000))
            ):
                best[card.shape] = data
    return tuple(sorted(best.items()))


def round_frame(device, number, key, card, model=wire.LOGISTIC, k=1, **options):
    """A ROUND for the board of verdicts.py, without its tag."""
    collects = model in wire.COLLECTIONS
    counts = model == wire.CATEGORIES and card[0] & 15 == shapes.SUM
    classes = 3 if counts or model in wire.OF_CLASSES else 1
    gradient = [(997 * i) % 4000 - 2000 for i in range(classes * verdicts.D)]
    parameters = [1] * verdicts.D if collects else gradient
    local = _LOCAL if model in wire.TRAININGS else (0, 0, 0)
    return _untagged(
        host_frames.encode_round,
        key,
        device,
        number,
        model,
        parameters,
        card,
        3 if model == wire.SOFTMAX else k,
        exponent=0 if collects else -14,
        classes=classes,
        local=local,
        **options,
    )


def _untagged(encode, *fields, **named):
    return encoded(encode, *fields, **named)[: -wire.TAG_BYTES]


@cache
def client_inputs():
    """Conversations with the board of verdicts.py, as inputs of its `talk`."""
    first, second = verdicts.DEVICES
    key = verdicts.key_of(first)
    hello = _untagged(frames.encode_hello_request, 77)
    new_key = _untagged(host_frames.encode_fleet_key, key, first, 2, verdicts.FLEET_KEY[::-1])
    fields = (verdicts.FLEET_KEY, wire.FLEET, 3, wire.LINEAR, [1, -2, 3, -4], -14)
    model = _untagged(host_frames.encode_model, *fields)
    ask_hello = verdicts.message(verdicts.EMPTY, hello)
    news = verdicts.message(verdicts.CLIENT, new_key) + verdicts.message(verdicts.FLEET, model)
    (table,) = [card for shape, card in some_cards() if shape == cards.TABLE]
    several = [round_frame(first, number, key, table) for number in (1, 2, 3, 3, 4, 5)]
    several[2] = b""  # a power cut
    rounds = b"".join(verdicts.message(verdicts.CLIENT, body) for body in several)
    conversations = [ask_hello + news + ask_hello, rounds]
    for shape, card in some_cards():
        for kind in range(wire.LINEAR, wire.LAST_MODEL + 1):
            if (kind == wire.SOFTMAX) == (shape == cards.LAPLACE):
                talk = b""
                for number, device in ((1, first), (1, first), (2, second), (9, first)):
                    talk += verdicts.message(
                        verdicts.CLIENT, round_frame(device, number, key, card, kind)
                    )
                fleet = verdicts.message(
                    verdicts.FLEET, round_frame(wire.FLEET, 9, key, card, kind)
                )
                conversations += [talk, fleet + ask_hello]
    return conversations


@cache
def batches():
    """Answers of devices to the round of host_targets.py, as inputs of `OnHost.aggregate`."""
    error = struct.pack("<BIIBI", wire.ERROR, 2, 5, wire.ERR_BUDGET, 0)
    rows = bytes((0, 1, 2, 2, 1, 3, 0, 6, 1))
    parts = [
        verdicts.message(verdicts.CLIENT, struct.pack("<BII", wire.REPORT, 1, 5) + b"\2"),
        verdicts.message(verdicts.CLIENT, struct.pack("<BII", wire.REPORT, 4, 5) + b"\1\0"),
        verdicts.message(verdicts.CLIENT, error),
        verdicts.message(verdicts.FLEET, rows),
        verdicts.message(verdicts.FLEET, bytes((1, 4, 1, 0, 5, 2, 0))),
        verdicts.message(
            verdicts.EMPTY, struct.pack("<BIIBI", wire.ERROR, 0, 5, wire.ERR_FRAME, 0)
        ),
    ]
    return [*parts, b"".join(parts), b"".join(parts[::-1])]


def of(name):
    """The seeds of a target (fuzzing.TARGETS)."""
    inputs = corpus(name)
    if name == "aggregate":
        inputs += batches()
    elif name == "gateways":
        from harness import gateway_messages

        inputs += gateway_messages.seeds()
    elif name == "packed":
        for test in json.loads((_VECTORS / "packing.json").read_text())["tests"]:
            if "symbols" in test and len(test["symbols"]) <= 128 and test["base"] < 65536:
                head = struct.pack("<BH", len(test["symbols"]) - 1, test["base"])
                inputs.append(head + bytes.fromhex(test["packed"]))
    elif name == "access":
        text = b'{"host": "h", "port": 1, "user": "u", "password": "p", "authority": "a", "prefix": "t"}'
        inputs.append(text)
    elif name in ("client", "ahead"):
        inputs += client_inputs()
    elif name in ("round", "frames"):
        inputs += [
            frame[: -wire.TAG_BYTES] if name != "round" else frame for frame in vectors("frames")
        ]
    elif name == "questions":
        rounds = [frame for frame in vectors("frames") if frame[0] == wire.ROUND]
        inputs += [frame[5 : -wire.TAG_BYTES] for frame in rounds]
    elif name == "segments":
        heads = [struct.pack("<IH", number, 20) for number in (1, 2, 3, 2**30 - 2, 2**32 - 1)]
        segments = [verdicts.message(verdicts.CLIENT, head + bytes(range(200))) for head in heads]
        inputs += [segments[4], b"".join(segments[:3]), b"".join(segments[2:])]
        for name in (b"\x12\x00\x01", b"\x07" * 8, b"\x08" * 9):  # 001, and names of 8 and 9 digits
            inputs.append(
                segments[0] + verdicts.message(verdicts.FLEET, name + heads[1] + bytes(200))
            )
    elif name == "model":
        inputs += [frame for frame in vectors("frames") if frame[0] == wire.MODEL]
    elif name == "boot":
        inputs += [b"", b"TBT1"]
        inputs += [struct.pack("<4sBBI", b"TBT1", n & 1, n >> 1, 7) for n in range(2, 10)]
    elif name == "lease":
        inputs.append(
            b'{"broker": "10.0.0.1", "address": ["10.0.0.9", "255.0.0.0", "10.0.0.3", ""]}'
        )
    elif name == "package":
        tests = json.loads((_VECTORS / "update.json").read_text())["packages"]
        inputs += [bytes.fromhex(test["package"])[:-32] for test in tests]
    elif name == "dns":
        alias = b"\1a\0\0\5\0\1\0\0\0\0\0\2\xc0\x0c"
        inputs.append(
            bytes(7) + b"\2" + bytes(4) + alias + b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x0a\0\0\1"
        )
    elif name in ("card", "ledger", "cobs", "serial"):
        inputs += vectors({"card": "cards", "serial": "cobs"}.get(name, name))
    return [data for data in inputs if len(data) <= LARGEST] or [b""]


def blindly(seeds, seed):
    """Yield altered inputs without end: seeds with bits flipped, bytes cut out, put in or repeated;
    or random bytes.
    """
    source = random.Random(seed)
    while True:
        start = source.choice(seeds) if source.random() < 0.95 else source.randbytes(300)
        data = bytearray(start)
        while data[:LARGEST] == start or source.random() < 0.5:  # a change may change nothing
            at = source.randrange(len(data) + 1)
            kind = source.randrange(5)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << source.randrange(8)
            elif kind == 1:
                del data[at : at + source.randrange(1, 9)]
            elif kind == 2:
                data[at:at] = source.randbytes(source.randrange(1, 9))
            elif kind == 3:
                del data[at:]
            else:
                data += data[at:]
        yield bytes(data[:LARGEST])
