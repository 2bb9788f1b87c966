"""Write the vectors of wire.md: cobs, packing, coordinates, tags and frames.

    python tests/vectors/make_wire.py

Written from the two texts with Python's own hmac, hashlib, struct and wide integers, without the device library (but
for the schema, which is by definition what wire.py builds), so that the two can disagree.
"""

import hashlib
import hmac
import json
import random
import struct
from pathlib import Path

from tern.wire import SCHEMA, schema_text

VECTORS = Path(__file__).parents[2] / "shared_specs" / "vectors"
words = random.Random(20240229)

KEY = bytes(range(32))
KEY_B = hashlib.sha256(b"another key").digest()
CARD = bytes.fromhex(
    "11 80841e00 00 02 ff 01 ffffff0f 000000e0".replace(" ", "")
)  # frames do not look inside
ERR_FRAME, ERR_TAG = 1, 2


def write(name, notes, **groups):
    parts = []
    for group, tests in groups.items():
        lines = ",\n".join("  " + json.dumps(test) for test in tests)
        parts.append(f' "{group}": [\n{lines}\n ]')
    (VECTORS / name).write_text(f'{{"notes": {json.dumps(notes)},\n' + ",\n".join(parts) + "}\n")


def case(comment, result, flags=(), **fields):
    return {"comment": comment, "flags": list(flags), **fields, "result": result}


# --- COBS -----------------------------------------------------------------------------------------------------


def cobs(data):
    """Blocks of up to 254 bytes that are not 0; a block shorter than that stands for itself and a 0 behind it."""
    out = bytearray()
    blocks = data.split(b"\0")
    for i, block in enumerate(blocks):
        last = i == len(blocks) - 1
        while len(block) > 254 or (len(block) == 254 and not last):
            out += b"\xff" + block[:254]
            block = block[254:]
        out += bytes((len(block) + 1,)) + block
        # 254 bytes at the very end need no further block, and the code 255 promises no 0
    return bytes(out)


def cobs_vectors():
    good = [
        ("one zero", b"\0"),
        ("two zeros", b"\0\0"),
        ("no zero", b"\x11\x22\x33"),
        ("zero at the start", b"\0\x11"),
        ("zero at the end", b"\x11\0"),
        ("zero in the middle", b"\x11\0\x22"),
        ("253 bytes that are not zero", bytes(range(1, 254))),
        ("254 bytes that are not zero: a full block, and no more", bytes(range(1, 255))),
        ("255 bytes that are not zero", bytes(range(1, 256))),
        ("254 bytes and a zero", bytes(range(1, 255)) + b"\0"),
        ("a zero and 254 bytes", b"\0" + bytes(range(1, 255))),
        ("508 bytes that are not zero", bytes(range(1, 255)) * 2),
        ("509 bytes that are not zero", bytes(range(1, 255)) * 2 + b"\1"),
        ("2560 bytes, the longest frame", bytes(1 + i % 255 for i in range(2560))),
        ("2560 zeros", bytes(2560)),
    ]
    tests = [case(c, "valid", frame=d.hex(), coded=(cobs(d) + b"\0").hex()) for c, d in good]
    for c, d in [
        ("empty frame: a credit", b"\0"),
        ("a code alone, of an empty frame", b"\1\0"),
    ]:
        tests.append(case(c, "valid", ["decode only"], frame="", coded=d.hex()))
    for c, d in [
        ("block cut short by the end", b"\x05\x11\x22\0"),
        ("code without its block", b"\xff\0"),
        ("zero inside a full block", b"\xff" + b"\x11" * 100 + b"\0"),
        ("2561 bytes: longer than any frame", cobs(bytes(1 + i % 255 for i in range(2561))) + b"\0"),
        ("4000 bytes of noise without a zero", bytes(1 + i * i % 255 for i in range(4000)) + b"\0"),
    ]:
        tests.append(case(c, "invalid", ["hostile"], coded=d.hex()))
    return tests


# --- Packed symbols -------------------------------------------------------------------------------------------


def packed(symbols, base):
    number = sum(s * base**i for i, s in enumerate(symbols))
    return number.to_bytes(((base ** len(symbols) - 1).bit_length() + 7) // 8, "little")


def packing_vectors():
    tests = []
    for base in (2, 3, 4, 5, 15, 16, 17, 255, 256, 257, 641, 65535, 65536):
        for k in (1, 5, 28, 128):
            for comment, symbols in (
                ("all zero", [0] * k),
                ("all at the top", [base - 1] * k),
                ("mixed", [words.randrange(base) for _ in range(k)]),
            ):
                if k < 28 or comment != "all zero":
                    data = packed(symbols, base).hex()
                    tests.append(
                        case(f"{comment}, base {base}", "valid", base=base, symbols=symbols, packed=data)
                    )
    for base, k in ((3, 1), (3, 5), (3, 28), (5, 28), (15, 7), (641, 3), (65535, 128)):
        size = len(packed([0] * k, base))
        for comment, number in (
            ("base**k, the smallest number too large", base**k),
            ("every bit set", 256**size - 1),
        ):
            data = number.to_bytes(size, "little").hex()
            tests.append(case(comment, "invalid", ["hostile"], base=base, k=k, packed=data))
        tests.append(
            case("a byte too many", "invalid", ["hostile"], base=base, k=k, packed="00" * (size + 1))
        )
        tests.append(case("a byte too few", "invalid", ["hostile"], base=base, k=k, packed="00" * (size - 1)))
    return tests


# --- Coordinates ----------------------------------------------------------------------------------------------


def stream(key, round_number):
    counter = 0
    while True:
        text = key + b"tern coordinates" + struct.pack("<II", round_number, counter)
        yield from hashlib.sha256(text).digest()
        counter += 1


def coordinates(key, round_number, d, k):
    if k == d:
        return list(range(d))
    source = stream(key, round_number)

    def uniform(n):
        bits = (n - 1).bit_length()
        while n > 1:
            value = next(source) & ((1 << bits) - 1)  # n <= 128: one byte
            if value < n:
                return value
        return 0

    order = list(range(d))
    for i in range(k):
        j = i + uniform(d - i)
        order[i], order[j] = order[j], order[i]
    return sorted(order[:k])


def coordinate_vectors():
    cases = [
        (1, 1),
        (2, 1),
        (28, 1),
        (28, 2),
        (28, 27),
        (28, 28),
        (100, 10),
        (128, 1),
        (128, 127),
        (128, 128),
    ]
    return [
        case(
            f"{k} of {d}",
            "valid",
            key=key.hex(),
            round=number,
            d=d,
            k=k,
            coordinates=coordinates(key, number, d, k),
        )
        for d, k in cases
        for key, number in ((KEY, 1), (KEY, 2), (KEY_B, 0x3FFFFFFF))
    ]


# --- Tags and frames ------------------------------------------------------------------------------------------


def tag(key, data):
    return hmac.digest(key, data, "sha256")[:8]


def sealed(key, data):
    return data + tag(key, data)


def tag_vectors():
    tests = []
    for comment, key, data in (
        ("RFC 4231, case 1", b"\x0b" * 20, b"Hi There"),
        ("RFC 4231, case 2", b"Jefe", b"what do ya want for nothing?"),
        ("empty key and data", b"", b""),
        ("a client's key", KEY, bytes(range(100))),
        ("key of a whole block", bytes(range(64)), b"x" * 64),
    ):
        good = tag(key, data)
        tests.append(case(comment, "valid", key=key.hex(), data=data.hex(), tag=good.hex()))
        for bit in (0, 37, 63):
            bad = (int.from_bytes(good, "big") ^ 1 << bit).to_bytes(8, "big")
            flipped = case(
                f"bit {bit} flipped", "invalid", ["hostile"], key=key.hex(), data=data.hex(), tag=bad.hex()
            )
            tests.append(flipped)
    return tests


def round_body(f, card=CARD):
    head = struct.pack(
        "<BIIBbHHHH",
        2,
        f["device"],
        f["round"],
        f["model"],
        f["exponent"],
        f["k"],
        f["batch"],
        f["deadline"],
        f["d"],
    )
    local = struct.pack("<BBI", *f["local"]) if f.get("local") else b""
    return (
        head
        + struct.pack(f"<{len(f['parameters'])}hH", *f["parameters"], f.get("length", len(card)))
        + card
        + local
    )


ROUND = {"device": 7, "round": 9, "model": 2, "exponent": -14, "k": 1, "batch": 1, "deadline": 0, "d": 4}
ROUND["parameters"] = [1, -1, 32767, -32768]
SOFTMAX = dict(ROUND, model=4, k=2)  # two classes, two features
LOCAL = dict(ROUND, model=6, local=[3, 2, 0x123456])  # epochs, rate, tau


def frame_case(kind, comment, data, key=b"", **fields):
    return case(comment, "valid", kind=kind, key=key.hex(), frame=data.hex(), fields=fields)


def bad_frame(kind, comment, data, key=b"", error=ERR_FRAME):
    return case(comment, "invalid", ["hostile"], kind=kind, key=key.hex(), frame=data.hex(), error=error)


def round_vectors():
    tests = []
    biggest = dict(ROUND, device=2**32 - 1, round=2**30 - 1, model=3, exponent=-12, k=128, batch=32, d=128)
    biggest.update(deadline=65535, parameters=[words.randrange(-32768, 32768) for _ in range(128)])
    for comment, fields, card in (
        ("one of four coordinates", ROUND, CARD),
        ("smallest", dict(ROUND, model=1, exponent=-30, batch=0, d=1, parameters=[0]), b"\x11"),
        ("largest", biggest, bytes(i % 251 for i in range(2048))),
        ("inference of two classes", SOFTMAX, CARD),
        ("most classes", dict(SOFTMAX, k=128, d=1024, parameters=list(range(-512, 512))), CARD),
        ("most features of a class", dict(SOFTMAX, d=256, parameters=list(range(256))), CARD),
        ("local training", LOCAL, CARD),
        ("values of two of three features", dict(ROUND, model=8, k=2, parameters=[1, 0, -5, 1]), CARD),
        ("categories of one feature", dict(ROUND, model=9, k=1, parameters=[0, 0, 0, 1]), CARD),
        ("the least local training", dict(LOCAL, model=5, exponent=-16, local=[1, 0, 1]), CARD),
        ("the most local training", dict(LOCAL, model=7, exponent=-12, local=[255, 16, 1 << 23]), CARD),
    ):
        data = sealed(KEY, round_body(fields, card))
        tests.append(frame_case("round", comment, data, KEY, card=card.hex(), **fields))
    for comment, change in (
        ("device 0", {"device": 0}),
        ("round 0", {"round": 0}),
        ("round 2**30", {"round": 2**30}),
        ("model 0", {"model": 0}),
        ("model 10", {"model": 10}),
        ("values of fewer features than k", {"model": 8, "k": 2, "parameters": [0, 0, 1, 0]}),
        ("values of no feature", {"model": 8, "parameters": [0] * 4}),
        ("values with fields of local training", {"model": 8, "local": [1, 1, 1]}),
        ("inference of one class", {"model": 4}),
        ("inference of 129 classes", {"model": 4, "k": 129, "d": 129, "parameters": [0] * 129}),
        ("inference of 129 features", {"model": 4, "k": 2, "d": 258, "parameters": [0] * 258}),
        ("inference of 1025 parameters", {"model": 4, "k": 25, "d": 1025, "parameters": [0] * 1025}),
        ("parameters that are no rows", {"model": 4, "k": 3}),
        ("fields of local training behind a gradient", {"local": [1, 1, 1]}),
        ("fields of local training missing", {"model": 6}),
        ("no epoch", {"model": 6, "local": [0, 2, 1000]}),
        ("rate 17", {"model": 6, "local": [1, 17, 1000]}),
        ("tau 0", {"model": 6, "local": [1, 2, 0]}),
        ("tau above 2**23", {"model": 6, "local": [1, 2, (1 << 23) + 1]}),
        ("exponent -17 in local training", {"model": 6, "exponent": -17, "local": [1, 2, 1000]}),
        ("exponent -31", {"exponent": -31}),
        ("exponent -11", {"exponent": -11}),
        ("k 0", {"k": 0}),
        ("k larger than d", {"k": 5}),
        ("batch 33", {"batch": 33}),
        ("d 0", {"d": 0, "parameters": []}),
        ("d 129", {"d": 129, "parameters": [0] * 129}),
        ("d larger than what follows", {"d": 5}),
        ("d far larger than the frame", {"d": 65535}),
        ("d smaller than what follows", {"d": 3}),
        ("card longer than what follows", {"length": len(CARD) + 1}),
        ("card shorter than what follows", {"length": len(CARD) - 1}),
    ):
        tests.append(bad_frame("round", comment, sealed(KEY, round_body(dict(ROUND, **change))), KEY))
    tests.append(bad_frame("round", "no card", sealed(KEY, round_body(ROUND, b"")), KEY))
    tests.append(bad_frame("round", "card of 2049 bytes", sealed(KEY, round_body(ROUND, bytes(2049))), KEY))
    good = sealed(KEY, round_body(ROUND))
    for n in (0, 1, 8, 9, 17, 20, 29, len(good) - 9, len(good) - 1):
        tests.append(bad_frame("round", f"cut to {n} bytes", good[:n], KEY, ERR_TAG if n > 16 else ERR_FRAME))
    for bit in (8, 13, 40, 100, 8 * len(good) - 70, 8 * len(good) - 1):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        tests.append(bad_frame("round", f"bit {bit} flipped", bytes(flipped), KEY, ERR_TAG))
    tests.append(bad_frame("round", "key of another client", sealed(KEY_B, round_body(ROUND)), KEY, ERR_TAG))
    tests.append(bad_frame("round", "a byte behind the tag", good + b"\0", KEY, ERR_TAG))
    return tests


def report_vectors():
    tests = []
    for base, k in ((3, 1), (3, 28), (65536, 128)):
        symbols = [words.randrange(base) for _ in range(k)]
        data = sealed(KEY, struct.pack("<BII", 0x82, 7, 9) + packed(symbols, base))
        tests.append(
            frame_case(
                "report", f"{k} of base {base}", data, KEY, device=7, round=9, base=base, symbols=symbols
            )
        )
    return tests


def small_vectors():
    text = "emulated; micropython 1.25.0; tern 0.1.0"
    hello = {
        "nonce": 0xFFFFFFFF,
        "first": 1,
        "clients": 2500,
        "budget": 4_000_000_000,
        "heap": 81104,
        "entropy": 1,
        "text": text,
    }

    def hello_body(f, n=None, schema=SCHEMA):
        data = f["text"].encode()
        head = (
            0x81,
            f["nonce"],
            1,
            schema,
            f["first"],
            f["clients"],
            2560,
            128,
            f["budget"],
            f["heap"],
            f["entropy"],
        )
        return struct.pack("<BIB8sIIHHIIBB", *head, len(data) if n is None else n) + data

    bench = {"nonce": 5, "case": 1, "repeats": 255}
    times = [51, 50, 4_000_000_000]
    tests = [
        frame_case("hello_request", "nonce 0", sealed(b"", struct.pack("<BI", 1, 0)), nonce=0),
        frame_case(
            "hello_request", "largest nonce", sealed(b"", struct.pack("<BI", 1, 2**32 - 1)), nonce=2**32 - 1
        ),
        frame_case("hello", "an emulated board", sealed(b"", hello_body(hello)), **hello),
        frame_case("hello", "no text", sealed(b"", hello_body(dict(hello, text=""))), **dict(hello, text="")),
        frame_case(
            "bench_request",
            "with a card",
            sealed(b"", struct.pack("<BIBHH", 3, 5, 1, 255, len(CARD)) + CARD),
            card=CARD.hex(),
            **bench,
        ),
        frame_case(
            "bench_request",
            "without a card",
            sealed(b"", struct.pack("<BIBHH", 3, 5, 1, 255, 0)),
            card="",
            **bench,
        ),
        frame_case(
            "bench",
            "three times",
            sealed(b"", struct.pack("<BIBIB3III", 0x83, 5, 1, 1024, 3, *times, 60496, 131568)),
            nonce=5,
            case=1,
            units=1024,
            times=times,
            used=60496,
            free=131568,
        ),
        frame_case(
            "error",
            "budget spent",
            sealed(KEY, struct.pack("<BIIBI", 0x84, 7, 9, 9, 123)),
            KEY,
            device=7,
            round=9,
            code=9,
            detail=123,
        ),
        frame_case(
            "error",
            "of the board",
            sealed(b"", struct.pack("<BIIBI", 0x84, 0, 0, 1, 0)),
            device=0,
            round=0,
            code=1,
            detail=0,
        ),
    ]
    hostile = [
        ("hello_request", "a byte too many", sealed(b"", struct.pack("<BIB", 1, 0, 0)), ERR_FRAME),
        ("hello_request", "a byte too few", sealed(b"", bytes(4)), ERR_FRAME),
        ("hello_request", "tag of a client", sealed(KEY, struct.pack("<BI", 1, 0)), ERR_TAG),
        ("hello_request", "another type", sealed(b"", struct.pack("<BI", 2, 0)), ERR_FRAME),
        ("hello", "text longer than what follows", sealed(b"", hello_body(hello, 200)), ERR_FRAME),
        ("hello", "text shorter than what follows", sealed(b"", hello_body(hello, 3)), ERR_FRAME),
        ("hello", "text is not UTF-8", sealed(b"", hello_body(dict(hello, text=""), 1) + b"\xff"), ERR_FRAME),
        ("bench_request", "no repeats", sealed(b"", struct.pack("<BIBHH", 3, 5, 1, 0, 0)), ERR_FRAME),
        ("bench_request", "256 repeats", sealed(b"", struct.pack("<BIBHH", 3, 5, 1, 256, 0)), ERR_FRAME),
        ("bench_request", "card missing", sealed(b"", struct.pack("<BIBHH", 3, 5, 1, 1, 9)), ERR_FRAME),
        (
            "bench",
            "times missing",
            sealed(b"", struct.pack("<BIBIBIII", 0x83, 5, 1, 1, 9, 1, 2, 3)),
            ERR_FRAME,
        ),
    ]
    return tests + [bad_frame(kind, comment, data, error=error) for kind, comment, data, error in hostile]


def main():
    write(
        "cobs.json", "wire.md: coded is what stands on serial, the ending 0x00 included", tests=cobs_vectors()
    )
    write("packing.json", "wire.md, Packed symbols", tests=packing_vectors())
    write("coordinates.json", "wire.md, Which k of the d coordinates", tests=coordinate_vectors())
    write(
        "frames.json",
        "wire.md. A frame is given with its tag. error: the code of the ERROR that answers it (1 frame, 2 tag); the "
        "tag is looked at first in a ROUND and last in the others",
        schema=[case("the text that is hashed", "valid", text=schema_text(), hash=SCHEMA.hex())],
        tags=tag_vectors(),
        frames=round_vectors() + report_vectors() + small_vectors(),
    )


if __name__ == "__main__":
    main()
