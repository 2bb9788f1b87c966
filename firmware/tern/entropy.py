"""Random bytes: health-tested source, cryptographic generator, pool, exact draws
(shared_specs/entropy.md).

Samplers read `pool[position:end]` of a `Stream` in order. When it runs out they undo the unfinished
coordinate and call `refill`, which keeps the rest. So a draw depends only on the stream of bytes,
not on how it was cut into pools.
"""

import hashlib
import os
from array import array

from tern.compat import MICROPYTHON, const, micropython, ptr8
from tern.wire import CTR_DRBG, FAILED

try:
    from cryptolib import aes
except ImportError:
    aes = None  # type: ignore[misc]

POSITION = const(0)  # indices of Stream.cursor
END = const(1)
# bytes that a sampler may read past the end before it looks; their values never count
SLACK = const(16)

_MARGIN = const(128)  # a draw that needs more bytes at once is one in a million
_FRESH = const(192)  # bytes generated at a time: whole AES blocks, whole SHA-256 digests
_REQUEST = const(65536)  # SP 800-90A: most bytes of one request before the key changes
# a report takes whole slices of the pool; so with k = 1 no refill depends on the data
_SLICE = const(16)

_RAW = const(128)  # raw bytes hashed into 32: 512 bits of assessed entropy for 256
# times _RAW at the start: test 1024 raw samples (SP 800-90B, 4.3), then take a seed
_SEEDS = const(10)
_PACE = const(4)  # reports from one raw byte to the next
# SP 800-90B 4.4.1: 1 + ceil(30 / H), H = 4 bits a byte, false alarms 2**-30
_REPETITIONS = const(9)
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
        raise EntropyError("stream ends")

    def byte(self):
        """Return the next byte of the pool. Raises EntropyError where there is none."""
        cursor = self.cursor
        if cursor[POSITION] >= cursor[END]:
            self.refill()
        value = self.pool[cursor[POSITION]]
        cursor[POSITION] += 1
        return value

    def below(self, threshold):
        """Return whether a uniform 30-bit integer is below `threshold`.

        It is drawn byte by byte, and bytes are read only while all so far are equal to those of
        `threshold`.
        """
        while threshold:
            difference = self.byte() - (threshold >> 22)
            if difference:
                return difference < 0
            threshold = (threshold & 0x3FFFFF) << 8
        return False


class Health:
    """The continuous tests of SP 800-90B, 4.4, over raw bytes.

    The bytes are assessed at 4 bits of min-entropy each.
    """

    def __init__(self):
        self.failed = False
        self._last = self._sample = -1
        self._run = self._seen = self._matches = 0

    def check(self, data):
        """Test `data` (bytes); return whether no test has failed so far.

        The repetition count test (4.4.1) counts equal bytes in a row, the adaptive proportion test
        (4.4.2) how often the first byte of a window comes again in it.
        """
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
    """Write counter + 1 .. counter + n into `blocks`, and leave `counter` at the last.

    Each has 16 bytes, big-endian.
    """
    at = 0
    while n:
        j = 16
        value = 0
        while value == 0 and j:  # carry
            j -= 1
            value = (counter[j] + 1) & 255
            counter[j] = value
        j = 0
        while j < 16:
            blocks[at] = counter[j]
            blocks[at + 1] = counter[j + 1]
            at += 2
            j += 2
        n -= 1


@micropython.viper
def move(source: ptr8, start: int, out: ptr8, at: int, n: int):
    """out[at + i] = source[start + i], for i < n."""
    i = 0
    while i < n:
        out[at + i] = source[start + i]
        i += 1


@micropython.viper
def erase(pool: ptr8, n: int):
    """Overwrite pool[:n] with zeros."""
    i = 0
    while i < n:
        pool[i] = 0
        i += 1


class CtrDrbg:
    """CTR_DRBG with AES-256 and no derivation function (SP 800-90A, 10.2.1.5.1).

    `known`: the first case of NIST's CAVP (drbgvectors_no_reseed, "AES-256 no df"): entropy input
    and nonce, bytes per request, and the first 32 bytes of the second request.
    """

    state = CTR_DRBG
    known = (
        b"\xdf\x5d\x73\xfa\xa4\x68\x64\x9e\xdd\xa3\x3b\x5c\xca\x79\xb0\xb0\x56\x00\x41\x9c\xcb\x7a\x87\x9d"
        b"\xdf\xec\x9d\xb3\x2e\xe4\x94\xe5\x53\x1b\x51\xde\x16\xa3\x0f\x76\x92\x62\x47\x4c\x73\xbe\xc0\x10",
        64,
        b"\xd1\xc0\x7c\xd9\x5a\xf8\xa7\xf1\x10\x12\xc8\x4c\xe4\x8b\xb8\xcb"
        b"\x87\x18\x9e\x99\xd4\x0f\xcc\xb1\x77\x1c\x61\x9b\xdf\x82\xab\x22",
    )

    def __init__(self, seed):
        self._state = bytearray(48)
        self._key = memoryview(self._state)[:32]
        self._counter = memoryview(self._state)[32:]
        self._aes = None  # while a request is open
        self.reseed(seed)

    def generate(self, out):
        """Fill `out` (a multiple of 16 bytes)."""
        if not self._aes:
            self._aes = aes(self._key, 1)
        count_up(self._counter, out, len(out) // 16)
        self._aes.encrypt(out, out)

    def reseed(self, seed):
        """Mix `seed`, 48 bytes of full entropy, into the state."""
        self.end_request()
        for i in range(48):
            self._state[i] ^= seed[i]

    def end_request(self):
        """Change the key, so that it does not tell what was generated."""
        self.generate(self._state)  # its third block is the counter itself, as it should be
        self._aes = None


def known_answer(drbg):
    """Return whether the class `drbg` gives its known answer."""
    seed, length, answer = drbg.known
    generator = drbg(seed)
    out = bytearray(length)
    generator.generate(out)
    generator.end_request()
    generator.generate(out)
    return out[:32] == answer


class Generator(Stream):
    """The device's random bytes: `source(n)`, health tests, SHA-256 conditioning, CtrDrbg (without
    AES: hash_drbg).

    `state`: CTR_DRBG, HASH_DRBG or, for good, FAILED: then every draw raises EntropyError.
    `portion`: bytes per call of the source, a divisor of 128; `also(n)`: untested bytes, hashed in.
    Call `end_report` after each report, which makes its draws irrecoverable.
    """

    def __init__(self, source=os.urandom, drbg=None, portion=_RAW, also=None):
        """Test the source, and seed the generator from it.

        Parameters: see the class; drbg: a class such as CtrDrbg, by default that one.
        """
        super().__init__(b"")
        self._resize(_MARGIN)
        self._source = source
        self._portion = portion
        self._also = also
        self._health = Health()
        self._hash = hashlib.sha256()
        self._raw = self._requested = self._reports = 0  # _raw: bytes in the hash
        self._seed = b""
        self._drbg = None
        self.state = FAILED
        if drbg is None:
            drbg = CtrDrbg
            if not aes:
                # `tern deploy` puts it there where it is needed
                from tern.hash_drbg import HashDrbg

                drbg = HashDrbg
        for _ in range(_SEEDS):
            seed = self._gather(_RAW)
        if not self._health.failed and known_answer(drbg):
            self._drbg = drbg(seed)
            self.state = drbg.state
        if not MICROPYTHON:
            _generators.add(self)

    def _gather(self, n):
        """Take n raw bytes; return a seed of 48 bytes whenever there are enough for one, else None.

        Each 128 raw bytes are hashed into 32 of full entropy; a seed takes two such hashes.
        """
        try:
            data = self._source(n)
        except OSError:
            data = b""
        if len(data) != n or not self._health.check(data):
            self.state = FAILED
            self._health.failed = True
            self.discard()
        self._hash.update(data)
        self._raw += n
        if self._raw < _RAW:
            return None
        if self._also:
            self._hash.update(self._also(32))
        seed = self._seed + self._hash.digest()
        self._hash = hashlib.sha256()
        self._raw = 0
        self._seed = b"" if self._seed else seed
        return None if self._seed else seed[:48]

    def _resize(self, margin):
        """Make a new pool, with room for `margin` bytes in front of the fresh ones; whole slices.

        What is left of a pool is put into the margin.
        """
        pool = bytearray(margin + _FRESH + SLACK)
        self._fresh = memoryview(pool)[margin : margin + _FRESH]
        self.pool = pool
        self._margin = margin

    def refill(self):
        """Generate fresh bytes behind those that are left in the pool.

        Raises EntropyError once a health test has failed.
        """
        # Few variables: more than 11 words with those of a call would lie on the heap.
        cursor = self.cursor
        old = self.pool
        left = cursor[END] - cursor[POSITION]
        cursor[POSITION] = cursor[END]  # if memory runs out below, nothing of half a pool counts
        if left > self._margin:  # one draw that needs this many bytes is rare, yet must stay exact
            self._resize((left + _SLICE - 1) & -_SLICE)
        at = self._margin - left
        move(old, cursor[END] - left, self.pool, at, left)
        if old is not self.pool:
            erase(old, len(old))
        if self._requested >= _REQUEST:
            self._new_key()
        if self.state == FAILED:
            raise EntropyError("entropy source failed")
        self._requested += _FRESH
        self._drbg.generate(self._fresh)
        cursor[POSITION] = at
        cursor[END] = self._margin + _FRESH

    def discard(self):
        """Erase all bytes of the pool, drawn or not."""
        self.cursor[POSITION] = self.cursor[END] = 0
        erase(self.pool, len(self.pool))
        if self._margin > _MARGIN:  # HELLO tells the heap that is free: not how long a draw was
            self._resize(_MARGIN)

    def _new_key(self):
        """Change the key, if it was used, so that it does not tell what was generated."""
        if self.state != FAILED:
            self._drbg.end_request()
            self._requested = 0

    def end_report(self):
        """Make the draws of a report irrecoverable: erase its bytes, change a key that was used.

        Now and then this takes raw bytes for a new seed.
        """
        # Whole slices, so that what is left does not tell how many bytes were drawn.
        cursor = self.cursor
        position = cursor[POSITION] = (cursor[POSITION] + _SLICE - 1) & -_SLICE
        if self._margin > _MARGIN:
            self.discard()
        else:
            erase(self.pool, position)
        if self._requested:
            self._new_key()
        self._reports += 1
        if self._reports % (_PACE * self._portion) == 0:
            self._renew(self._gather(self._portion))

    def _renew(self, seed):
        """Reseed with `seed`, unless it is None or the source has failed."""
        if seed and self.state != FAILED:
            self.discard()
            self._drbg.reseed(seed)


if not MICROPYTHON:
    import weakref

    _generators: weakref.WeakSet[Generator] = weakref.WeakSet()

    def _reseed_all():
        for generator in list(_generators):
            generator._renew(generator._gather(_RAW) or generator._gather(_RAW))

    if hasattr(os, "register_at_fork"):  # a forked process must not draw what its parent draws
        os.register_at_fork(after_in_child=_reseed_all)
