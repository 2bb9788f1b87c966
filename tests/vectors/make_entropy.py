"""Write the vectors of entropy.md: health tests and generators.

    python tests/vectors/make_entropy.py

Written from the text and SP 800-90A with Python's own hashlib, wide integers and the AES of
`cryptography`, without the device library, so that the two can disagree.
"""

import hashlib
from collections import deque

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from parts import VECTORS, case, stream, write

# --- Health tests
# ---------------------------------------------------------------------------------------------


def first_failure(data):
    """The index of the byte at which a test first fails, or None, by SP 800-90B, 4.4.1 and 4.4.2."""
    repetitions = next((i for i in range(8, len(data)) if len(set(data[i - 8 : i + 1])) == 1), None)
    proportion = None
    for start in range(0, len(data), 512):
        window = data[start : start + 512]
        count = 0
        for i, value in enumerate(window):
            count += value == window[0]
            if count == 71 and proportion is None:
                proportion = start + i
    return min((i for i in (repetitions, proportion) if i is not None), default=None)


def mixed(n, places, value=255):
    """n varied bytes below 255, and `value` at these places."""
    data = bytearray(1 + i % 200 for i in range(n))
    for i in places:
        data[i] = value
    return bytes(data)


def health_vectors():
    varied = bytes(range(256))
    every = [7 * i for i in range(71)]
    over = mixed(600, [*every[:70], 512])
    cases = [
        ("1280 bytes that vary", stream("a good source", 1280)),
        ("8 equal bytes", varied + bytes([7]) * 8),
        ("9 equal bytes", varied + bytes([7]) * 9),
        ("9 equal bytes at the very start", bytes([7]) * 9),
        ("a source that stands still at 0", bytes(16)),
        ("a source that stands still at 255", b"\xff" * 16),
        ("9 equal bytes on both sides of a window's end", mixed(600, range(508, 517))),
        ("70 of a window's 512 are its first byte", mixed(512, every[:70])),
        ("71 of a window's 512 are its first byte", mixed(512, every)),
        ("71 are equal, but not to the window's first byte", mixed(512, [1 + i for i in every])),
        ("71 from a window's first byte on, the last of them in the next window", over),
        ("71 of the second window", mixed(1024, [512 + i for i in every])),
    ]
    failures = [(comment, data, first_failure(data)) for comment, data in cases]
    return [
        case(comment, "valid" if at is None else "invalid", raw=data, fails_at=at)
        for comment, data, at in failures
    ]


# --- Generators
# -----------------------------------------------------------------------------------------------


class Ctr:
    """CTR_DRBG, AES-256, no derivation function: SP 800-90A, 10.2.1."""

    def __init__(self, seed):
        self.key, self.v = bytes(32), 0
        self.update(seed)

    def block(self):
        self.v = (self.v + 1) % 2**128
        cipher = Cipher(algorithms.AES(self.key), modes.ECB()).encryptor()
        return cipher.update(self.v.to_bytes(16, "big"))

    def update(self, provided=bytes(48)):
        temp = b"".join(self.block() for _ in range(3))
        temp = bytes(a ^ b for a, b in zip(temp, provided, strict=True))
        self.key, self.v = temp[:32], int.from_bytes(temp[32:], "big")

    reseed = update

    def piece(self):
        return b"".join(self.block() for _ in range(12))

    def end_request(self):
        self.update()


class Hash:
    """Hash_DRBG, SHA-256: SP 800-90A, 10.1.1."""

    def __init__(self, seed):
        self.set(seed)

    def set(self, material):
        self.v = self.derive(material)
        self.c = self.derive(b"\0" + self.v.to_bytes(55, "big"))
        self.counter, self.data = 1, self.v

    @staticmethod
    def derive(material):
        blocks = [
            hashlib.sha256(bytes([i]) + (440).to_bytes(4, "big") + material).digest()
            for i in (1, 2)
        ]
        return int.from_bytes(b"".join(blocks)[:55], "big")

    def reseed(self, seed):
        self.set(b"\1" + self.v.to_bytes(55, "big") + seed)

    def piece(self):
        piece = b""
        while len(piece) < 192:
            piece += hashlib.sha256(self.data.to_bytes(55, "big")).digest()
            self.data = (self.data + 1) % 2**440
        return piece

    def end_request(self):
        h = int.from_bytes(hashlib.sha256(b"\3" + self.v.to_bytes(55, "big")).digest(), "big")
        self.v = self.data = (self.v + h + self.c + self.counter) % 2**440
        self.counter += 1


def drawn(kind, raw, also, portion, reports):
    """The bytes that reports draw, one after the other. reports: the number of bytes in each."""
    raw = deque(raw)
    digests, waiting = [], b""

    def take(n):
        """Take n raw bytes; return the seed that they complete, or None."""
        nonlocal waiting
        waiting += bytes(raw.popleft() for _ in range(n))
        if len(waiting) < 128:
            return None
        digests.append(hashlib.sha256(waiting + also).digest())
        waiting = b""
        return (digests[-2] + digests[-1])[:48] if len(digests) % 2 == 0 else None

    for _ in range(10):
        seed = take(128)
    generator = kind(seed)
    pool, out = b"", b""
    for number, n in enumerate(reports, 1):
        is_open = False
        while len(pool) < n:
            pool += generator.piece()
            is_open = True
        out += pool[:n]
        pool = pool[(n + 15) // 16 * 16 :]
        if is_open:
            generator.end_request()
        if number % (4 * portion) == 0:
            seed = take(portion)
            if seed:
                pool = b""
                generator.reseed(seed)
    return out


def generator_vectors():
    tests, untested = [], b"\x5a" * 32
    for comment, portion, also, runs, shown in (
        ("reports of 2 bytes: twelve from a piece of 192", 128, b"", [[14, 2]], 28),
        ("reports of 28 bytes", 128, b"", [[8, 28]], 224),
        (
            "one of 500 bytes: a request of three pieces; then others",
            128,
            b"",
            [[1, 500], [3, 20]],
            560,
        ),
        (
            "whole slices, one byte more, none",
            128,
            b"",
            [[1, 16], [1, 17], [1, 0], [1, 32], [1, 1]],
            66,
        ),
        ("a raw byte every fourth report: new seed after 1024", 1, b"", [[1020, 1], [8, 3]], 64),
        (
            "raw bytes 64 at a time, and others that are not tested",
            64,
            untested,
            [[1024, 1], [3, 40]],
            130,
        ),
    ):
        for kind, name in ((Ctr, "CTR_DRBG"), (Hash, "Hash_DRBG")):
            raw = stream(comment, 2048)
            reports = [n for count, n in runs for _ in range(count)]
            last_drawn = drawn(kind, raw, also, portion, reports)[-shown:]
            given = {
                "generator": name,
                "raw_of": comment,
                "portion": portion,
                "also": also,
                "reports": runs,
            }
            tests.append(case(comment, "valid", **given, last_drawn=last_drawn))
    return tests


def main():
    path = VECTORS / "entropy.json"
    write(path, "entropy.md", health=health_vectors(), generators=generator_vectors())


if __name__ == "__main__":
    main()
