"""The generator of a device whose MicroPython has no AES; every stock firmware has it."""

import hashlib

from tern.wire import HASH_DRBG


class HashDrbg:
    """Hash_DRBG with SHA-256 (SP 800-90A, 10.1.1).

    Its state is two numbers of 440 bits, V and C of the standard. known: a published test, as that
    of entropy.CtrDrbg, of NIST's "SHA-256".
    """

    state = HASH_DRBG
    known = (
        b"\xa6\x5a\xd0\xf3\x45\xdb\x4e\x0e\xff\xe8\x75\xc3\xa2\xe7\x1f\x42\xc7\x12\x9d\x62\x0f\xf5\xc1\x19"
        b"\xa9\xef\x55\xf0\x51\x85\xe0\xfb\x85\x81\xf9\x31\x75\x17\x27\x6e\x06\xe9\x60\x7d\xdb\xcb\xcc\x2e",
        128,
        b"\xd3\xe1\x60\xc3\x5b\x99\xf3\x40\xb2\x62\x82\x64\xd1\x75\x10\x60"
        b"\xe0\x04\x5d\xa3\x83\xff\x57\xa5\x7d\x73\xa6\x73\xd2\xb8\xd8\x0d",
    )

    def __init__(self, seed):
        """Begin with a seed of 48 bytes of full entropy."""
        self._start(bytes(seed))

    def _start(self, material):
        """Instantiate or reseed the state from seed material: V = df(material), C = df(0 | V).

        df is the derivation function _hash_df(); `|` joins bytes.
        """
        # generate() hashes `_data`, which counts up from V until the request ends.
        v = _hash_df(material)
        self._v = self._data = int.from_bytes(v, "big")
        self._c = int.from_bytes(_hash_df(b"\x00" + v), "big")
        self._requests = 1

    def reseed(self, seed):
        """Mix `seed` into the state."""
        self._start(b"\x01" + self._v.to_bytes(55, "big") + bytes(seed))

    def generate(self, out, n):
        """Fill `out`, which has n bytes, a multiple of 32."""
        for i in range(0, n, 32):
            out[i : i + 32] = hashlib.sha256(self._data.to_bytes(55, "big")).digest()
            self._data = (self._data + 1) % _SEED_RANGE

    def end_request(self):
        """Change the state, so that it does not tell what was generated.

        V becomes V + SHA-256(3 | V) + C + the number of requests, mod 2**440.
        """
        hashed = hashlib.sha256(b"\x03" + self._v.to_bytes(55, "big")).digest()
        self._v = (self._v + int.from_bytes(hashed, "big") + self._c + self._requests) % _SEED_RANGE
        self._data = self._v
        self._requests += 1


_SEED_RANGE = 1 << 440


def _hash_df(material):
    """Return 55 bytes derived from `material`: Hash_df of SP 800-90A, 10.3.1, for 440 bits."""
    # Before the material: the number of the hash, and 440 in four bytes (1 * 256 + 184).
    parts = [hashlib.sha256(bytes((i, 0, 0, 1, 184)) + material).digest() for i in (1, 2)]
    return (parts[0] + parts[1])[:55]
