"""Write the vectors of wire.md: cobs and packing. make_frames.py makes the frames.

    PYTHONPATH=tests python tests/vectors/make_wire.py

Written from the two texts with Python's own hashlib, struct and wide integers, without the device
library, so that the two can disagree.
"""

import random

from parts import VECTORS, case, write
from spec.frames import cobs, packed

words = random.Random(20240229)


# --- COBS
# -----------------------------------------------------------------------------------------------------


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
    tests = [case(c, "valid", frame=d, coded=cobs(d)) for c, d in good]
    for c, d in [("empty frame: a credit", b"\0"), ("a code alone, of an empty frame", b"\1\0")]:
        tests.append(case(c, "valid", ["decode only"], frame="", coded=d))
    for c, d in [
        ("block cut short by the end", b"\x05\x11\x22\0"),
        ("code without its block", b"\xff\0"),
        ("zero inside a full block", b"\xff" + b"\x11" * 100 + b"\0"),
        ("2561 bytes: longer than any frame", cobs(bytes(1 + i % 255 for i in range(2561)))),
        ("4000 bytes of noise without a zero", bytes(1 + i * i % 255 for i in range(4000)) + b"\0"),
    ]:
        tests.append(case(c, "invalid", ["hostile"], coded=d))
    return tests


# --- Packed symbols
# -------------------------------------------------------------------------------------------


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
                    data = packed(symbols, base)
                    comment = f"{comment}, base {base}"
                    tests.append(case(comment, "valid", base=base, symbols=symbols, packed=data))
    for base, k in ((3, 1), (3, 5), (3, 28), (5, 28), (15, 7), (641, 3), (65535, 128)):
        size = len(packed([0] * k, base))
        for comment, data in (
            ("base**k, the smallest number too large", (base**k).to_bytes(size, "little")),
            ("every bit set", b"\xff" * size),
            ("a byte too many", bytes(size + 1)),
            ("a byte too few", bytes(size - 1)),
        ):
            tests.append(case(comment, "invalid", ["hostile"], base=base, k=k, packed=data))
    return tests


def main():
    notes = "wire.md: coded is what stands on serial, the ending 0x00 included"
    write(VECTORS / "cobs.json", notes, tests=cobs_vectors())
    write(VECTORS / "packing.json", "wire.md, Packed symbols", tests=packing_vectors())


if __name__ == "__main__":
    main()
