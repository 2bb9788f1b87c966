"""Random bytes: health-tested pool -> cryptographic generator -> exact uniform draws.

Every random draw of the device library goes through a `Stream`. A sampler reads the bytes `pool[position:end]` in
order; when they do not suffice it undoes the unfinished coordinate and calls `refill`, which keeps what is left
in front of the new bytes. So a draw depends on the stream of bytes alone, not on how it was cut into pools, and a
test can replay or enumerate every draw.
"""

import hashlib
import os
from array import array

from tern.compat import const, micropython, ptr8
from tern.wire import CTR_DRBG, FAILED

try:
    from cryptolib import aes
except ImportError:
    aes = None  # type: ignore[misc]

POSITION = const(0)  # indices of Stream.cursor
END = const(1)
SLACK = const(16)  # bytes that a sampler may read past the end before it looks; their values never count

_MARGIN = const(128)  # a draw that needs more bytes at once is one in a million
_FRESH = const(192)  # bytes generated at a time: whole AES blocks, whole SHA-256 digests
_REQUEST = const(65536)  # SP 800-90A: most bytes of one request before the key changes
_RESEED_REPORTS = const(256)

_RAW = const(128)  # raw bytes hashed into 32: 512 bits of assessed entropy for 256
_STARTUP = const(1024)  # raw samples tested before first use (SP 800-90B, 4.3)
_REPETITIONS = const(9)  # SP 800-90B 4.4.1: 1 + ceil(30 / H), H = 4 bits a byte, false alarms 2**-30
_WINDOW = const(512)  # SP 800-90B 4.4.2
_PROPORTION = const(71)  # 1 + critical value of Binomial(512, 2**-H) at 2**-30


class EntropyError(Exception):
    """No random bytes: a health test failed, or a replayed stream is at its end."""


class Stream:
    """A pool of random bytes, `pool[cursor[POSITION]:cursor[END]]`, and exact draws from it."""

    def __init__(self, pool):
        self.pool = pool
        self.cursor = array("i", (0, 0))

    def refill(self):
        """Add at least one byte behind those left. Raises EntropyError where none can be had."""
        raise EntropyError("stream at its end")

    def byte(self):
        """Return the next byte."""
        cursor = self.cursor
        if cursor[POSITION] >= cursor[END]:
            self.refill()
        value = self.pool[cursor[POSITION]]
        cursor[POSITION] += 1
        return value

    def uniform(self, n):
        """Return an integer in 0..n-1, all equally likely, for 1 <= n <= 2**30 (rejection: no modulo bias)."""
        if n < 1:
            raise ValueError("n < 1")
        mask = n - 1
        mask |= mask >> 1
        mask |= mask >> 2
        mask |= mask >> 4
        mask |= mask >> 8
        mask |= mask >> 16
        while True:
            value = shift = 0
            while mask >> shift:
                value |= self.byte() << shift
                shift += 8
            value &= mask
            if value < n:
                return value

    def below(self, threshold):
        """Return whether a uniform 30-bit integer is below `threshold`, reading bytes only while in doubt."""
        while threshold:
            difference = self.byte() - (threshold >> 22)
            if difference:
                return difference < 0
            threshold = (threshold & 0x3FFFFF) << 8
        return False


class Replay(Stream):
    """The given bytes, once."""

    def __init__(self, data):
        super().__init__(bytearray(bytes(data) + bytes(SLACK)))
        self.cursor[END] = len(data)


class Keyed(Stream):
    """The public stream SHA-256(key | label | 0) | SHA-256(key | label | 1) | ... (counters u32, little-endian)."""

    def __init__(self, key, label):
        super().__init__(bytes(SLACK))
        self._prefix = bytes(key) + bytes(label)
        self._counter = 0

    def refill(self):
        left = self.pool[self.cursor[POSITION] : self.cursor[END]]
        block = hashlib.sha256(self._prefix + self._counter.to_bytes(4, "little")).digest()
        self._counter += 1
        self.pool = left + block + bytes(SLACK)
        self.cursor[POSITION] = 0
        self.cursor[END] = len(left) + len(block)


class Health:
    """The continuous tests of SP 800-90B, 4.4, over raw bytes assessed at 4 bits of min-entropy each."""

    def __init__(self):
        self.failed = False
        self._last = -1
        self._run = 0
        self._sample = -1
        self._seen = 0
        self._matches = 0

    def check(self, data):
        """Test `data` (bytes). Return False from the first failure on."""
        for value in data:
            self._run = self._run + 1 if value == self._last else 1
            self._last = value
            if self._seen == 0:
                self._sample = value
                self._matches = 0
            if value == self._sample:
                self._matches += 1
            self._seen = (self._seen + 1) % _WINDOW
            if self._run >= _REPETITIONS or self._matches >= _PROPORTION:
                self.failed = True
        return not self.failed


@micropython.viper
def count_up(counter: ptr8, blocks: ptr8, n: int):
    """Write counter+1 .. counter+n (16 bytes each, big-endian) into `blocks` and leave `counter` at the last."""
    at = 0
    while at < n << 4:
        j = 15
        value = (counter[j] + 1) & 255
        counter[j] = value
        while value == 0 and j > 0:  # carry
            j -= 1
            value = (counter[j] + 1) & 255
            counter[j] = value
        j = 0
        while j < 16:
            blocks[at + j] = counter[j]
            blocks[at + j + 1] = counter[j + 1]
            j += 2
        at += 16


class CtrDrbg:
    """CTR_DRBG with AES-256 and no derivation function (SP 800-90A, 10.2.1.5.1).

    `known`: of NIST's CAVP (drbgvectors_no_reseed, "AES-256 no df"), the first case: entropy input and nonce; bytes a
    request; the first 32 bytes of the second request.
    """

    state = CTR_DRBG
    known = (
        "df5d73faa468649edda33b5cca79b0b05600419ccb7a879ddfec9db32ee494e5531b51de16a30f769262474c73bec010",
        64,
        "d1c07cd95af8a7f11012c84ce48bb8cb87189e99d40fccb1771c619bdf82ab22",
    )

    def __init__(self, seed):
        self._aes = aes(bytes(32), 1)
        self._counter = bytearray(16)
        self._scratch = bytearray(48)
        self._update(seed)

    def _update(self, provided):
        scratch = self._scratch
        count_up(self._counter, scratch, 3)
        self._aes.encrypt(scratch, scratch)
        if provided:
            for i in range(48):
                scratch[i] ^= provided[i]
        self._aes = aes(bytes(scratch[:32]), 1)
        self._counter[:] = scratch[32:]

    reseed = _update

    def generate(self, out):
        """Fill `out` (a multiple of 16 bytes)."""
        count_up(self._counter, out, len(out) // 16)
        self._aes.encrypt(out, out)

    def end_request(self):
        """Change the key, so that it does not tell what was generated."""
        self._update(None)


def known_answer(drbg):
    """Return whether the class `drbg` gives its known answer."""
    seed, length, answer = drbg.known
    generator = drbg(bytes.fromhex(seed))
    out = bytearray(length)
    generator.generate(out)
    generator.end_request()
    generator.generate(out)
    return bytes(out[:32]) == bytes.fromhex(answer)


class Generator(Stream):
    """The device's random bytes: `source(n)`, health tests, SHA-256 conditioning, CtrDrbg (without AES: hash_drbg).

    `state` is CTR_DRBG or HASH_DRBG (wire.py), or FAILED for good once a health test or a known answer fails: then
    every draw raises EntropyError. Call `end_report` after each report: its draws do not follow from the new state.
    """

    def __init__(self, source=os.urandom, drbg=None):
        super().__init__(b"")
        self._resize(_MARGIN)
        self._source = source
        self._health = Health()
        self._drbg = None
        self._requested = 0
        self._reports = 0
        self.state = FAILED
        if drbg is None:
            drbg = CtrDrbg
            if not aes:
                from tern.hash_drbg import HashDrbg as drbg  # `tern deploy` puts it there where it is needed
        for _ in range(_STARTUP // _RAW):
            self._raw()
        if not self._health.failed and known_answer(drbg):
            self._drbg = drbg(self._seed())
            if not self._health.failed:
                self.state = drbg.state

    def _raw(self):
        try:
            data = self._source(_RAW)
        except OSError:
            data = b""
        if len(data) != _RAW or not self._health.check(data):
            self.fail()
        return data

    def _seed(self):
        return (hashlib.sha256(self._raw()).digest() + hashlib.sha256(self._raw()).digest())[:48]

    def fail(self):
        """Give no more random bytes."""
        self.state = FAILED
        self._health.failed = True
        self.discard()

    def _resize(self, margin):
        # margin: room for what is left of a pool, in front of the fresh bytes
        pool = bytearray(margin + _FRESH + SLACK)
        self._fresh = memoryview(pool)[margin : margin + _FRESH]
        self.pool = pool
        self._margin = margin

    def refill(self):
        cursor = self.cursor
        old = self.pool
        position = cursor[POSITION]
        left = cursor[END] - position
        cursor[POSITION] = cursor[END]  # where memory runs out below, nothing counts of a pool half made
        if left > self._margin:  # one draw that needs this many bytes is rare, yet must stay exact
            self._resize(left)
        at = self._margin - left
        for i in range(left):
            self.pool[at + i] = old[position + i]
        if self._requested >= _REQUEST:
            self._new_key()
        if self.state == FAILED:
            raise EntropyError("entropy source failed its health test")
        self._drbg.generate(self._fresh)
        self._requested += _FRESH
        cursor[POSITION] = at
        cursor[END] = self._margin + _FRESH

    def discard(self):
        """Forget the bytes not yet drawn, and those drawn."""
        self.cursor[POSITION] = self.cursor[END] = 0
        self.pool[:] = bytes(len(self.pool))
        if self._margin > _MARGIN:  # HELLO tells the heap that is free: not how long a draw was
            self._resize(_MARGIN)

    def _new_key(self):
        if self.state != FAILED:
            self._drbg.end_request()
            self._requested = 0

    def end_report(self):
        """Change the key and forget the pool; take new seed now and then."""
        self.discard()
        self._new_key()
        self._reports += 1
        if self.state != FAILED and self._reports % _RESEED_REPORTS == 0:
            seed = self._seed()
            if self.state != FAILED:
                self._drbg.reseed(seed)
