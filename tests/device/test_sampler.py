import gc
import struct
from array import array

from vectors import load

from tern import sampler
from tern.card import T, count, decode
from tern.compat import MICROPYTHON
from tern.entropy import END, POSITION, EntropyError, Generator, Stream
from tern.streams import Keyed, Replay


def draws():
    for case in load("sampler.json")["tests"]:
        yield case, decode(bytes.fromhex(case["card"]))


def pool_of(case):
    return Replay(bytes.fromhex(case["stream"]))


def test_vectors():
    for case, card in draws():
        xs = array("h", case["xs"])
        out = array("H", [0] * len(xs))
        stream = pool_of(case)
        sampler.sample(card, stream, xs, out, len(xs))
        assert list(out) == case["symbols"], case["comment"]
        assert stream.cursor[POSITION] == case["bytes_used"], case["comment"]


class Drip(Stream):
    """The same bytes, given a few at a time: leaves have to undo and go on."""

    def __init__(self, data, step):
        super().__init__(bytearray(data + bytes(16)))
        self.limit = len(data)
        self.step = step

    def refill(self):
        if self.cursor[END] == self.limit:
            raise EntropyError("end")
        self.cursor[END] = min(self.limit, self.cursor[END] + self.step)


def test_draws_do_not_depend_on_the_pools():
    for case, card in draws():
        for step in (1, 3):
            xs = array("h", case["xs"])
            out = array("H", [0] * len(xs))
            sampler.sample(card, Drip(bytes.fromhex(case["stream"]), step), xs, out, len(xs))
            assert list(out) == case["symbols"], case["comment"]


def exact_counts(card, x):
    """Run the sampler on every string of bytes; return how often each symbol comes, of 2**32 strings of 4 bytes."""
    counts = [0] * card.symbols
    xs = array("h", (x,))
    out = array("H", (0,))
    prefixes = [b""]
    while prefixes:
        prefix = prefixes.pop()
        for value in range(256):
            data = prefix + bytes((value,))
            try:
                sampler.sample(card, Replay(data), xs, out, 1)
                counts[out[0]] += 1 << 8 * (4 - len(data))
            except EntropyError:
                prefixes.append(data)
    return counts


def test_exact_distribution_at_the_knots():
    for case, card in draws():
        if "thresholds" in case["flags"]:
            for knot in range((1 << card.knot_bits) + 1):
                x = (knot << (15 - card.knot_bits)) - 16384
                expected = [count(card, knot, j) * ((1 << 32) // T) for j in range(card.symbols)]
                assert exact_counts(card, x) == expected


def test_inputs_are_saturated():
    for _, card in draws():
        n = 64
        out = array("H", [0] * n)
        end = array("H", [0] * n)
        data = bytes((i * 89 + 7) & 255 for i in range(4000))
        for beyond, bound in ((16385, 16384), (32767, 16384), (-16385, -16384), (-32768, -16384)):
            sampler.sample(card, Replay(data), array("h", [beyond] * n), out, n)
            sampler.sample(card, Replay(data), array("h", [bound] * n), end, n)
            assert list(out) == list(end)


def test_categories_by_randomised_response():
    card = decode(struct.pack("<BIHHI", 0x12, 2_000_000, 5, 1, T // 2))
    out = array("H", [0] * 5)
    # first byte 0: inside; 255: outside, then uniform(4)
    sampler.sample_categories(card, Replay(bytes(5)), array("h", range(5)), out, 5)
    assert list(out) == [0, 1, 2, 3, 4]
    sampler.sample_categories(card, Replay(b"\xff\x03" * 5), array("h", range(5)), out, 5)
    assert list(out) == [4, 4, 4, 4, 3]
    sampler.sample(card, Replay(bytes(5)), array("h", [-16384] * 5), out, 5)
    assert list(out) == [0] * 5  # numeric again


def test_nothing_is_left_when_the_stream_ends():
    for case, card in draws():
        n = len(case["xs"])
        out = array("H", [1] * n)
        short = bytes.fromhex(case["stream"])[: case["bytes_used"] - 1]
        try:
            sampler.sample(card, Replay(short), array("h", case["xs"]), out, n)
        except EntropyError:
            assert not any(out)
            continue
        raise AssertionError("stream was too short, yet all was drawn")


def test_leaves_agree_with_their_plain_twins():
    source = sampler.__file__
    if not MICROPYTHON or not source.endswith(".py"):
        return
    with open(source) as file:
        text = file.read()
    for name in ("xs: ptr16, out: ptr16, thresholds: ptr32, pool: ptr8, cursor: ptr32, job: ptr32",):
        text = text.replace(name, "xs, out, thresholds, pool, cursor, job")
    plain = {}
    exec(text.replace("@micropython.viper\n", ""), plain)  # the module's own text
    generator = Generator()
    for case, card in draws():
        n = 100
        data = bytes(generator.byte() for _ in range(3000))
        xs = array("h", [generator.uniform(32769) - 16384 for _ in range(n)])
        native = array("H", [0] * n)
        twin = array("H", [0] * n)
        sampler.sample(card, Replay(data), xs, native, n)
        plain["sample"](card, Replay(data), xs, twin, n)
        assert list(native) == list(twin), case["comment"]


def test_sampling_does_not_allocate():
    if not MICROPYTHON:
        return
    import micropython

    # Always the same draws: of others, one in a million needs a larger pool (see entropy).
    seed = Keyed(b"sampler", b"seed")
    generator = Generator(lambda n: bytes([seed.byte() for _ in range(n)]))
    for _, card in draws():
        n = 200
        xs = array("h", [i * 160 - 16000 for i in range(n)])
        out = array("H", [0] * n)
        sampler.sample(card, generator, xs, out, n)
        gc.collect()
        micropython.heap_lock()
        try:
            sampler.sample(card, generator, xs, out, n)
        finally:
            micropython.heap_unlock()
