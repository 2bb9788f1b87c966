import gc

from tern import entropy
from tern.compat import MICROPYTHON
from tern.entropy import END, POSITION, EntropyError, Generator, Health
from tern.hash_drbg import HashDrbg
from tern.streams import Keyed, Replay


def raises(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return True
    return False


def counting_source():
    state = [12345]

    def source(n):
        out = bytearray(n)
        for i in range(n):
            state[0] = (state[0] * 1103515245 + 12345) & 0x3FFFFFFF
            out[i] = state[0] >> 16 & 255
        return bytes(out)

    return source


def test_known_answers():
    assert entropy.known_answer(HashDrbg)
    if entropy.aes:
        assert entropy.known_answer(entropy.CtrDrbg)


def test_wrong_known_answer_is_seen():
    class Broken(HashDrbg):
        def end_request(self):
            pass

    assert not entropy.known_answer(Broken)
    assert Generator(drbg=Broken).state == entropy.FAILED


def test_counter_carries():
    counter = bytearray(b"\xff" * 15 + b"\xfe")
    blocks = bytearray(48)
    entropy.count_up(counter, blocks, 3)
    assert bytes(blocks) == b"\xff" * 16 + bytes(16) + bytes(15) + b"\x01"
    assert bytes(counter) == bytes(15) + b"\x01"


def test_health_accepts_a_good_source():
    assert Health().check(counting_source()(4096))


def test_repetition_count():
    varied = bytes(range(256))
    assert Health().check(varied + b"\x07" * 8)
    assert not Health().check(varied + b"\x07" * 9)


def test_repetition_across_calls():
    health = Health()
    assert health.check(b"\x01\x07\x07\x07\x07")
    assert not health.check(b"\x07\x07\x07\x07\x07")
    assert not health.check(bytes(range(256)))  # and stays failed


def test_adaptive_proportion():
    def window(matches):
        data = bytearray(1 + i % 200 for i in range(512))
        for i in range(matches):
            data[i * 7] = 255
        return bytes(data)

    assert Health().check(window(70))
    assert not Health().check(window(71))


def test_stuck_source_gives_nothing():
    generator = Generator(lambda n: bytes(n))
    assert generator.state == entropy.FAILED
    assert raises(EntropyError, generator.byte)


def test_source_that_gets_stuck_later():
    good = counting_source()
    stuck = [False]
    generator = Generator(lambda n: b"\x55" * n if stuck[0] else good(n))
    generator.byte()
    stuck[0] = True
    for _ in range(255):
        generator.end_report()
    generator.byte()
    generator.end_report()  # takes new seed
    assert generator.state == entropy.FAILED
    assert raises(EntropyError, generator.uniform, 10)


def test_short_source_fails():
    good = counting_source()
    assert Generator(lambda n: good(n)[:-1]).state == entropy.FAILED


def test_a_source_that_gives_nothing_any_more():
    good = counting_source()
    left = [0]

    def source(n):
        if not left[0]:
            raise OSError("no entropy")
        left[0] -= 1
        return good(n)

    for calls in range(11):  # 8 are tested at start-up, 2 make the first seed
        left[0] = calls
        generator = Generator(source)
        assert (generator.state == entropy.FAILED) == (calls < 10), calls
        if calls < 10:
            assert raises(EntropyError, generator.byte)
    for _ in range(256):
        generator.end_report()
    assert generator.state == entropy.FAILED
    assert raises(EntropyError, generator.byte)


def test_generators_differ_by_seed_and_repeat_by_seed():
    a = Generator(counting_source())
    b = Generator(counting_source())
    c = Generator()
    first = [a.byte() for _ in range(600)]
    assert first == [b.byte() for _ in range(600)]
    assert first != [c.byte() for _ in range(600)]


def test_end_report_forgets():
    generator = Generator(counting_source())
    before = [generator.byte() for _ in range(10)]
    generator.end_report()
    assert generator.cursor[POSITION] == generator.cursor[END]
    assert not any(generator.pool)
    assert before != [generator.byte() for _ in range(10)]
    size = len(generator.pool)
    generator.end_report()
    generator.refill()
    generator.refill()
    assert len(generator.pool) > size
    generator.end_report()
    assert len(generator.pool) == size, "the heap does not tell how long a draw was"
    assert len([generator.byte() for _ in range(1000)]) == 1000


def test_where_memory_runs_out_no_byte_counts_that_was_not_generated():
    class Short(HashDrbg):
        fails = False

        def generate(self, out):
            if Short.fails:
                raise MemoryError
            super().generate(out)

    def full(*arguments):
        raise MemoryError

    for name in ("generate", "bytearray", "memoryview"):
        generator = Generator(counting_source(), Short)
        generator.refill()
        assert generator.cursor[END] - generator.cursor[POSITION] > 128  # more than there is room for
        try:
            Short.fails = name == "generate"
            if not Short.fails:
                setattr(entropy, name, full)
            assert raises(MemoryError, generator.refill)
        finally:
            Short.fails = False
            if hasattr(entropy, name):
                delattr(entropy, name)
        drawn = bytes([generator.byte() for _ in range(800)])
        assert not any(bytes(8) == drawn[i : i + 8] for i in range(793)), name
        assert generator.cursor[END] <= len(generator.pool) - entropy.SLACK


def test_stream_does_not_depend_on_the_pools():
    whole = Keyed(b"key", b"label")
    cut = Keyed(b"key", b"label")
    expected = [whole.byte() for _ in range(1000)]
    got = []
    while len(got) < 900:
        got.append(cut.byte())
        if len(got) % 50 == 49:
            cut.refill()  # keeps what is left, however much that is
            break
    got += [cut.byte() for _ in range(1000 - len(got))]
    assert got == expected


def test_uniform_is_exact():
    for n in (1, 2, 3, 5, 200, 256):
        counts = [0] * n
        for value in range(256):
            stream = Replay(bytes((value,)))
            try:
                counts[stream.uniform(n)] += 1
            except EntropyError:
                pass  # rejected
        assert min(counts) == max(counts) > 0


def test_uniform_wide_is_in_range_and_rejects():
    assert Replay(b"\xff\xff\x01\x00").uniform(300) == 1
    assert Replay(b"\x2b\x01").uniform(300) == 299
    assert Replay(b"\xff\xff\xff\x3f").uniform(1 << 30) == (1 << 30) - 1
    assert raises(ValueError, Replay(b"").uniform, 0)


def test_below_reads_no_more_than_it_needs():
    threshold = 0x2ABCDEF5
    top = threshold >> 22
    for data, expected, used in (
        (bytes((top - 1, 9, 9, 9)), True, 1),
        (bytes((top + 1, 9, 9, 9)), False, 1),
        (bytes((top, threshold >> 14 & 255, threshold >> 6 & 255, (threshold & 63) << 2)), False, 4),
        (bytes((top, threshold >> 14 & 255, threshold >> 6 & 255, ((threshold & 63) << 2) - 1)), True, 4),
    ):
        stream = Replay(data)
        assert stream.below(threshold) == expected
        assert stream.cursor[POSITION] == used


def test_refill_with_aes_does_not_allocate():
    if not MICROPYTHON or not entropy.aes:
        return
    import micropython

    generator = Generator()
    generator.refill()
    cursor = generator.cursor
    gc.collect()
    micropython.heap_lock()
    try:
        for _ in range(20):
            cursor[POSITION] = cursor[END]
            generator.refill()
    finally:
        micropython.heap_unlock()
