"""Random bytes: health tests and generators agree with the vectors, fail closed, and keep nothing
that was drawn.
"""

import hashlib
import sys

import vectors
from checks import no_memory, raises, replaced, without_heap

from tern import entropy
from tern.compat import MICROPYTHON
from tern.entropy import END, POSITION, EntropyError, Generator, Health
from tern.fill import count_up, erase
from tern.hash_drbg import HashDrbg


def counting_source():
    state = [12345]

    def source(n):
        out = bytearray(n)
        for i in range(n):
            state[0] = (state[0] * 1103515245 + 12345) & 0x3FFFFFFF
            out[i] = state[0] >> 16 & 255
        return bytes(out)

    return source


def test_a_generator_with_a_wrong_known_answer_fails():
    class Broken(HashDrbg):
        def end_request(self):
            pass

    assert not entropy.known_answer(Broken)
    assert Generator(drbg=Broken).state == entropy.FAILED


def test_no_request_of_the_generator_exceeds_65536_bytes():
    """SP 800-90A allows no more bytes of one key, however much a report draws."""

    requests = [0]  # bytes of each

    class Counting(HashDrbg):
        def generate(self, out, n):
            requests[-1] += n
            super().generate(out, n)

        def end_request(self):
            requests.append(0)
            super().end_request()

    generator = Generator(counting_source(), drbg=Counting)
    requests[:] = [0]  # without what the known answer has drawn
    for _ in range(700):  # of 192 bytes
        generator.discard()
        generator.refill()
    assert max(requests) == 65536 // 192 * 192


def test_the_counter_carries():
    counter = bytearray(b"\xff" * 15 + b"\xfe")
    blocks = bytearray(48)
    count_up(counter, blocks, 48)
    assert bytes(blocks) == b"\xff" * 16 + bytes(16) + bytes(15) + b"\x01"
    assert bytes(counter) == bytes(15) + b"\x01"


def test_no_other_bytes_are_erased_or_filled():
    # Neighbours of a buffer hold keys. So nothing behind the bytes that are named is written.
    for n in (0, 4, 16, 48):
        buffer = bytearray(b"\xa5" * 52)
        erase(buffer, n)
        assert buffer == bytes(n) + b"\xa5" * (52 - n)
        if n % 16 == 0:
            buffer = bytearray(b"\xa5" * 52)
            count_up(bytearray(16), buffer, n)
            assert buffer[n:] == b"\xa5" * (52 - n)


def test_a_stuck_or_a_short_source_gives_nothing():
    good = counting_source()
    for source in (bytes, lambda n: good(n)[:-1]):
        assert_failed(Generator(source))


def test_a_generator_fails_once_its_source_is_stuck():
    # The generator mixes raw hardware noise into the random bytes that protect privacy. A source
    # that sticks at one value is noticed, and then nothing is drawn any more.
    # A portion of raw bytes is taken every 4 * portion reports; the ninth equal byte is a failure.
    for portion, reports in ((128, 4 * 128), (1, 9 * 4)):
        good = counting_source()
        stuck = [False]
        generator = Generator(lambda n: b"\x55" * n if stuck[0] else good(n), portion=portion)  # noqa: B023
        generator.byte()
        stuck[0] = True
        for _ in range(reports - 1):
            generator.end_report()
        generator.byte()  # not yet noticed
        generator.end_report()
        assert_failed(generator)


def assert_failed(generator):
    assert generator.state == entropy.FAILED
    raises(EntropyError, generator.byte)


def source_of(calls):
    """A good source that gives nothing after this number of calls."""
    good = counting_source()
    left = [calls]

    def source(n):
        if not left[0]:
            raise OSError("no entropy")
        left[0] -= 1
        return good(n)

    return source


CALLS_AT_START = 10  # 8 are tested, 2 make the first seed


def test_a_generator_without_a_whole_seed_has_failed():
    for calls in range(CALLS_AT_START):
        assert_failed(Generator(source_of(calls)))


def test_a_generator_fails_once_its_source_gives_nothing():
    generator = Generator(source_of(CALLS_AT_START))
    assert generator.state != entropy.FAILED
    for _ in range(4 * 128):  # then the next portion is taken
        generator.end_report()
    assert_failed(generator)


def test_drawn_bytes_are_erased():
    # Whoever later reads the memory could subtract noise whose random bytes were still there. So
    # each byte that was drawn is overwritten at the end of the report.
    generator = Generator(counting_source())
    for drawn in range(40):
        before = bytes([generator.byte() for _ in range(drawn)])
        pool = generator.pool

        generator.end_report()

        assert not any(pool[: generator.cursor[POSITION]])
        left = bytes(generator.pool)
        # No three drawn bytes in a row are left anywhere.
        assert all(before[i : i + 3] not in left for i in range(len(before) - 2))


def test_a_long_draw_leaves_no_trace_in_the_heap():
    # The pool of random bytes grows when a report needs many. The long buffer is erased, and
    # dropped at the end of the report, after which all waiting bytes are used up as before.
    generator = Generator(counting_source())
    size = len(generator.pool)
    generator.refill()
    generator.refill()
    long = generator.pool
    assert len(long) > size

    generator.refill()  # may move to a longer pool again
    if generator.pool is not long:
        assert not any(long), "erased before it is garbage"

    generator.end_report()
    assert len(generator.pool) == size
    assert generator.cursor[POSITION] == generator.cursor[END]
    assert len([generator.byte() for _ in range(1000)]) == 1000


def test_health_vectors():
    # entropy.json, which other implementations share, holds raw noise and the byte at which a
    # health check of NIST SP 800-90B must fail; None means that all is well.
    for case in vectors.load("entropy.json")["health"]:
        health = Health()
        failed_at = None
        raw = bytes.fromhex(case["raw"])
        for i in range(len(raw)):
            if not health.check(raw[i : i + 1]):
                failed_at = i
                break
        assert failed_at == case["fails_at"], case["comment"]
        assert health.check(bytes(range(64))) == (failed_at is None), "a failure is for good"
        assert Health().check(raw) == (case["result"] == "valid"), case["comment"]


def aes_of_this_machine():
    """The device's AES; on CPython a class with the same methods, made from `cryptography`."""
    if MICROPYTHON:
        return entropy.aes
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    class Aes:
        def __init__(self, key, mode):
            self._cipher = Cipher(algorithms.AES(bytes(key)), modes.ECB())

        def encrypt(self, data, out):
            out[:] = self._cipher.encryptor().update(bytes(data))

    return Aes


class Repeated:
    """A source of known bytes: SHA-256(text 0) | SHA-256(text 1) | ..."""

    def __init__(self, text):
        self._text = text
        self._bytes = b""
        self._blocks = 0

    def __call__(self, n):
        while len(self._bytes) < n:
            self._bytes += hashlib.sha256(("%s %d" % (self._text, self._blocks)).encode()).digest()
            self._blocks += 1
        taken = self._bytes[:n]
        self._bytes = self._bytes[n:]
        return taken


def test_generator_vectors():
    # entropy.json, which other implementations share, holds raw noise and what a generator
    # (Hash_DRBG or CTR_DRBG of NIST SP 800-90A) draws from it; CTR_DRBG needs AES, which some
    # machines lack.
    with replaced(entropy, aes=aes_of_this_machine()):
        for case in vectors.load("entropy.json")["generators"]:
            drbg = HashDrbg if case["generator"] == "Hash_DRBG" else entropy.CtrDrbg
            if drbg is not HashDrbg and not entropy.aes:
                continue
            also = bytes.fromhex(case["also"])
            more = (lambda n: also) if also else None  # noqa: B023
            generator = Generator(Repeated(case["raw_of"]), drbg, case["portion"], more)
            expected = bytes.fromhex(case["last_drawn"])
            drawn = b""
            for reports, n in case["reports"]:
                for _ in range(reports):
                    drawn = (drawn + bytes([generator.byte() for _ in range(n)]))[-len(expected) :]
                    generator.end_report()
            assert drawn == expected, (case["comment"], case["generator"])


def test_a_forked_process_draws_other_bytes():
    # A child process of fork() begins with a copy of the generator's state. Both processes must
    # not draw the same noise, from whose reports a host could cancel it.
    if MICROPYTHON:
        return
    import os
    import pickle

    generators = [Generator(), Generator(counting_source())]
    for generator in generators:
        generator.byte()  # and leaves the rest of its pool
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(
            sending, pickle.dumps([bytes([each.byte() for _ in range(300)]) for each in generators])
        )
        os._exit(0)
    os.waitpid(child, 0)
    theirs = pickle.loads(os.read(receiving, 60000))
    os.close(receiving)
    os.close(sending)
    for generator, drawn in zip(generators, theirs):
        ours = bytes([generator.byte() for _ in range(300)])
        assert all(ours[i : i + 16] not in drawn for i in range(0, 284))  # no 16 bytes in a row


def test_a_stopped_oscillator_is_noticed_at_start():
    # The noise of an RP2040 comes from its ring oscillator, which a program can stop. A generator
    # that starts then must fail.
    if sys.platform != "rp2" or "RP2040" not in sys.implementation._machine:
        return
    from machine import mem32

    from tern.boards.rp2 import Board

    # RP2040 datasheet, 2.17.8: ROSC CTRL, of which bits 12..23 are 0xD1E to stop it, 0xFAB to start.
    control = 0x40060000
    running = mem32[control]
    assert Board().generator().state != entropy.FAILED
    try:
        mem32[control] = 0xD1E000 | running & 0xFFF
        assert_failed(Board().generator())
    finally:
        mem32[control] = 0xFAB000 | running & 0xFFF
    assert Board().generator().state != entropy.FAILED


def test_only_generated_bytes_are_drawn_after_a_refill_without_memory():
    # When memory runs out during a refill (in each of the three named functions), a later draw
    # must not return the zeros of a buffer that was never filled: eight zeros in a row would be
    # such.
    for name in ("_generate", "bytearray", "memoryview"):
        generator = Generator(counting_source(), HashDrbg)
        generator.refill()
        waiting = generator.cursor[END] - generator.cursor[POSITION]
        assert waiting > 128, "more than there is room for"
        with replaced(generator if name == "_generate" else entropy, **{name: no_memory}):
            raises(MemoryError, generator.refill)
        drawn = bytes([generator.byte() for _ in range(800)])
        assert not any(bytes(8) == drawn[i : i + 8] for i in range(793)), name
        assert generator.cursor[END] <= len(generator.pool) - entropy.SLACK


def test_refill_with_aes_does_not_allocate():
    # On a board a garbage collection takes time that would show in the answers, so that refilling
    # the pool of random bytes must not touch the heap.
    if not MICROPYTHON or not entropy.aes:
        return
    generator = Generator()
    generator.refill()
    cursor = generator.cursor

    def refills():
        for _ in range(20):
            cursor[POSITION] = cursor[END]
            generator.refill()

    without_heap(refills)
