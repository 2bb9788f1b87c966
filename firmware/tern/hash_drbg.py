"""The generator of a device whose MicroPython has no AES; every stock firmware has it."""

import hashlib

from tern.wire import HASH_DRBG


class HashDrbg:
    """Hash_DRBG with SHA-256 (SP 800-90A, 10.1.1).

    `known`: as CtrDrbg's, of NIST's "SHA-256".
    """

    state = HASH_DRBG
    known = (
        "a65ad0f345db4e0effe875c3a2e71f42c7129d620ff5c119a9ef55f05185e0fb8581f9317517276e06e9607ddbcbcc2e",
        128,
        "d3e160c35b99f340b2628264d1751060e0045da383ff57a57d73a673d2b8d80d",
    )

    def __init__(self, seed):
        self._start(bytes(seed))

    def _start(self, material):
        v = _hash_df(material)
        self._v = self._data = int.from_bytes(v, "big")
        self._c = int.from_bytes(_hash_df(b"\x00" + v), "big")
        self._requests = 1

    def reseed(self, seed):
        self._start(b"\x01" + self._v.to_bytes(55, "big") + bytes(seed))

    def generate(self, out):
        """Fill `out` (a multiple of 32 bytes)."""
        for i in range(0, len(out), 32):
            out[i : i + 32] = hashlib.sha256(self._data.to_bytes(55, "big")).digest()
            self._data = (self._data + 1) % _SEED_RANGE

    def end_request(self):
        """Change the state, so that it does not tell what was generated."""
        h = hashlib.sha256(b"\x03" + self._v.to_bytes(55, "big")).digest()
        self._v = (self._v + int.from_bytes(h, "big") + self._c + self._requests) % _SEED_RANGE
        self._data = self._v
        self._requests += 1


_SEED_RANGE = 1 << 440


def _hash_df(material):
    # SP 800-90A, 10.3.1, for 440 bits
    parts = [hashlib.sha256(bytes((i, 0, 0, 1, 184)) + material).digest() for i in (1, 2)]
    return (parts[0] + parts[1])[:55]
