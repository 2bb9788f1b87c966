"""Random bytes: a health-tested source, a cryptographic generator, a pool, and exact draws from it.

See shared_specs/entropy.md. The source gives raw noise, which is tested and hashed into seeds. The
generator makes bytes from a seed, into the pool of a `Stream`.

Samplers read `pool[position:end]` in order. When it runs out they undo the unfinished coordinate
and call `refill`, which keeps the bytes that are left. So a draw depends only on the stream of
bytes, not on how it was cut into pools.
"""

import hashlib
import os
from array import array

from tern.compat import MICROPYTHON, const, micropython, ptr8
from tern.fill import count_up, erase
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
# SP 800-90A: a request has at most 65,536 bytes, which are 341 times _FRESH; then the key changes.
_REQUEST = const(65536 // 192)
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

        So the result is true with probability threshold / 2**30. The integer is drawn byte by byte,
        the highest first, and only as long as all bytes so far equal those of `threshold`.
        """
        # threshold >> 22 is the first byte of 30 bits; the other 22 bits move up by 8. Once they
        # are 0, the integer cannot be below any more.
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
        self.failed = False  # for good, once a test has failed
        # The byte before; the first byte of a window; no byte is -1.
        self._last = self._sample = -1
        # How often the byte before came in a row; how many bytes of the window have come, and how
        # many of those equal the first one.
        self._run = self._seen = self._matches = 0

    def check(self, data):
        """Test `data` (bytes); return whether no test has failed so far.

        The repetition count test (4.4.1) counts equal bytes in a row, the adaptive proportion test
        (4.4.2) how often the first byte of a window of 512 comes again in it. Either fails where
        true noise would give such a number with a probability of 2**-30.
        """
        for value in data:
            self._run = self._run + 1 if value == self._last else 1
            self._last = value
            if self._seen == 0:  # a new window begins
                self._sample = value
                self._matches = 0
            if value == self._sample:
                self._matches += 1
            self._seen = (self._seen + 1) % _WINDOW
            if self._run >= _REPETITIONS or self._matches >= _PROPORTION:
                self.failed = True
        return not self.failed


@micropython.viper
def move(source: ptr8, start: int, out: ptr8, at: int, n: int):
    """Copy n bytes: out[at + i] = source[start + i], for i < n."""
    i = 0
    while i < n:
        out[at + i] = source[start + i]
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
        """Begin with a seed of 48 bytes of full entropy."""
        # SP 800-90A: the key, 32 bytes, and the counter V, 16 bytes, which reseed() fills.
        self._state = bytearray(48)
        self._key = memoryview(self._state)[:32]
        self._counter = memoryview(self._state)[32:]
        self._encrypt = None  # while a request is open
        self.reseed(seed)

    def generate(self, out, n):
        """Fill `out`, which has n bytes, a multiple of 16."""
        encrypt = self._encrypt
        if not encrypt:
            encrypt = self._encrypt = aes(self._key, 1).encrypt
        count_up(self._counter, out, n)
        encrypt(out, out)

    def reseed(self, seed):
        """Mix `seed`, 48 bytes of full entropy, into the state: new bytes, XORed with the seed."""
        self.end_request()
        for i in range(48):
            self._state[i] ^= seed[i]

    def end_request(self):
        """Change the key, so that the new one does not tell what the old one generated.

        Three generated blocks replace the key, in two of them, and the counter, in the third.
        """
        # The counter blocks are written into the state itself, whose third block is the counter: it
        # counts up and is then replaced by its own ciphertext, as the standard wants.
        self.generate(self._state, 48)
        self._encrypt = None


def known_answer(drbg):
    """Return whether the generator class `drbg` gives the answer of a published test (`known`).

    A generator is tested before each use, as SP 800-90A (11.3) wants.
    """
    seed, length, answer = drbg.known
    generator = drbg(seed)
    out = bytearray(length)
    generator.generate(out, length)
    generator.end_request()
    generator.generate(out, length)
    return out[:32] == answer


class Generator(Stream):
    """The device's random bytes, from a noise source to the pool.

    Raw bytes of `source` are tested, hashed by SHA-256 into seeds of full entropy, and stretched by
    a generator: CtrDrbg, or hash_drbg on boards without AES. Call end_report() after each report,
    which makes its draws irrecoverable.

    state: CTR_DRBG or HASH_DRBG, the generator in use; or FAILED, for good: then every draw raises
    EntropyError.
    """

    def __init__(self, source=os.urandom, drbg=None, portion=_RAW, also=None):
        """Test the source, and seed the generator from it.

        source: a function that returns so many raw bytes. drbg: the class of the generator; None
        for CtrDrbg, or HashDrbg without AES. portion: how many bytes to take from the source at
        once, a divisor of 128. also: a function that returns so many bytes which are not tested,
        but hashed in as well; or None.
        """
        super().__init__(b"")
        self._resize(_MARGIN)
        self._source = source
        self._portion = portion
        self._also = also
        self._health = Health()
        self._hash = hashlib.sha256()
        # Raw bytes in the hash; reports so far.
        self._raw = self._reports = 0
        # How many times _FRESH bytes the key may still generate; 0 after a failure.
        self._blocks_left = 0
        self._seed = b""  # the first half of the next seed, if it is there
        self._drbg = None
        self.state = FAILED
        if drbg is None:
            drbg = CtrDrbg
            if not aes:
                # `tern board deploy` puts it there where it is needed
                from tern.hash_drbg import HashDrbg

                drbg = HashDrbg
        for _ in range(_SEEDS):
            seed = self._gather(_RAW)
        if not self._health.failed and known_answer(drbg):
            self._drbg = drbg(seed)
            self._generate = self._drbg.generate
            self._blocks_left = _REQUEST
            self.state = drbg.state
        if not MICROPYTHON:
            _generators.add(self)

    def _gather(self, n):
        """Take n raw bytes; return a seed of 48 bytes whenever there are enough for one, else None.

        Each 128 raw bytes are hashed into 32 of full entropy; a seed takes two such hashes. A
        failed test sets `state`, and erases the pool.
        """
        try:
            data = self._source(n)
        except OSError:
            data = b""
        if len(data) != n or not self._health.check(data):
            self.state = FAILED
            self._blocks_left = 0
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
        # Keep the first hash; after the second one, return both together, and begin again.
        self._seed = b"" if self._seed else seed
        return None if self._seed else seed[:48]

    def _resize(self, margin):
        """Make a new pool without bytes, with room for `margin` bytes in front of the fresh ones.

        A refill puts the bytes that are left into the margin. margin: a multiple of _SLICE.
        """
        pool = bytearray(margin + _FRESH + SLACK)
        self._fresh = memoryview(pool)[margin : margin + _FRESH]
        self.pool = pool
        self._margin = margin
        self.cursor[POSITION] = self.cursor[END] = margin + _FRESH

    def refill(self):
        """Generate fresh bytes behind those that are left in the pool.

        Raises EntropyError once a health test has failed.
        """
        # Few variables: with more than 11 words, those of a call included, MicroPython would
        # allocate the frame on the heap.
        cursor = self.cursor
        end = cursor[END]
        left = end - cursor[POSITION]
        if left:
            end = self._keep(left)
        blocks = self._blocks_left
        if not blocks:
            self._new_key()
            if self.state == FAILED:
                raise EntropyError("entropy source failed")
            blocks = self._blocks_left
        self._blocks_left = blocks - 1
        self._generate(self._fresh, _FRESH)
        # If memory ran out above, the pool has no bytes; now those that are left count again.
        cursor[POSITION] = end - (_FRESH + left)

    def _keep(self, left):
        """Move the last `left` bytes of the pool right in front of the place of fresh ones.

        The pool then counts as empty. Returns the end of the pool, which may have become larger.
        """
        old = self.pool
        end = self.cursor[POSITION] = self.cursor[END]
        # A draw that needs more bytes than the margin holds is rare, yet must stay exact: make
        # room. _SLICE is a power of 2, so that the mask -_SLICE rounds up to a multiple of it.
        if left > self._margin:
            self._resize((left + _SLICE - 1) & -_SLICE)
        move(old, end - left, self.pool, self._margin - left, left)
        if old is not self.pool:
            erase(old, len(old))
        return self.cursor[END]

    def discard(self):
        """Erase all bytes of the pool, drawn or not."""
        self.cursor[POSITION] = self.cursor[END]
        erase(self.pool, len(self.pool))
        # A pool that was made larger for a long draw would show in the free heap that HELLO states.
        if self._margin > _MARGIN:
            self._resize(_MARGIN)

    def _new_key(self):
        """Change the key, if it was used, so that it does not tell what was generated."""
        if self.state != FAILED:
            self._drbg.end_request()
            self._blocks_left = _REQUEST

    def end_report(self):
        """Make the draws of a report irrecoverable: erase its bytes, change a key that was used.

        Now and then this takes raw bytes for a new seed.
        """
        # Use up whole slices (the mask rounds up), so that what is left does not tell how many
        # bytes were drawn.
        cursor = self.cursor
        position = cursor[POSITION] = (cursor[POSITION] + _SLICE - 1) & -_SLICE
        if self._margin > _MARGIN:
            self.discard()
        else:
            erase(self.pool, position)
        if self._blocks_left < _REQUEST:
            self._new_key()
        self._reports += 1
        # On average one raw byte for every _PACE reports.
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
        """Give every generator of this process a new seed, which takes two gathers at most."""
        for generator in list(_generators):
            generator._renew(generator._gather(_RAW) or generator._gather(_RAW))

    if hasattr(os, "register_at_fork"):  # a forked process must not draw what its parent draws
        os.register_at_fork(after_in_child=_reseed_all)
