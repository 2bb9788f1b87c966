"""Compute the expected results of shared_specs/vectors/entropy.json: health tests and generators.

    python tests/vectors/make_entropy.py

Written from the text and SP 800-90A with Python's own hashlib, wide integers and the AES of
`cryptography`, without the device library, so that the two can disagree.
"""

import hashlib
from collections import deque

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from parts import VECTORS, computed, write

# --- Health tests


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


def health(case):
    failure = first_failure(bytes.fromhex(case["raw"]))
    return {"fails_at": failure, "result": "valid" if failure is None else "invalid"}


# --- Generators


def stream(text, n):
    """n bytes that the text determines: SHA-256 in counter mode."""
    blocks = [hashlib.sha256(f"{text} {i}".encode()).digest() for i in range(n // 32 + 1)]
    return b"".join(blocks)[:n]


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


def generator(case):
    """The last bytes that the reports draw: as many as the case has."""
    kind = {"CTR_DRBG": Ctr, "Hash_DRBG": Hash}[case["generator"]]
    reports = [size for count, size in case["reports"] for _ in range(count)]
    raw, also = stream(case["raw_of"], 2048), bytes.fromhex(case["also"])
    shown = len(case["last_drawn"]) // 2
    return {"last_drawn": drawn(kind, raw, also, case["portion"], reports)[-shown:]}


def main():
    vectors = computed("entropy.json", health=health, generators=generator)
    write(VECTORS / "entropy.json", **vectors)


if __name__ == "__main__":
    main()
