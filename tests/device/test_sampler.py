"""The sampler draws as cards.md specifies: by its vectors, by a literal implementation, and by
enumeration.
"""

import binascii
import gc
import hashlib
from array import array

from checks import raises, without_heap
from spec.cards import table, window
from streams import Drip, Keyed, Replay, uniform
from vectors import load

from tern import sampler
from tern.card import T, decode
from tern.compat import MICROPYTHON
from tern.entropy import END, POSITION, SLACK, EntropyError, Generator, Stream


def cases():
    """(case, decoded card) of each vector."""
    for case in load("sampler.json")["tests"]:
        yield case, decode(bytes.fromhex(case["card"]))


def sampled(card, stream, xs):
    """The symbols that the sampler draws for inputs."""
    out = array("H", [0] * len(xs))
    sampler.sample(card, stream, array("h", xs), out, len(xs))
    return list(out)


def test_vectors():
    for case, card in cases():
        stream = Replay(bytes.fromhex(case["stream"]))
        assert sampled(card, stream, case["xs"]) == case["symbols"], case["comment"]
        assert stream.cursor[POSITION] == case["bytes_used"], case["comment"]


def specified(thresholds, bits, data, at):
    """(answer, start of the next draw in `data`) of a draw by thresholds out of 2**bits: cards.md,
    literally.
    """
    known = m = 0
    while True:
        answer = 0
        is_open = False
        for threshold in thresholds:
            if threshold << 8 * m <= known << bits:
                answer += 1
            elif threshold << 8 * m < (known + 1) << bits:
                is_open = True
        if not is_open:
            return answer, at + m
        known = known << 8 | data[at + m]
        m += 1


def interpolated(rows, p, x):
    """The thresholds, out of 2**45, of a draw by a table card: cards.md, literally."""
    b = (min(max(x, -16384), 16384) + 16384) << p
    i = b >> 15
    f = b & 32767
    if f == 0:
        return [c << 15 for c in rows[i]]
    return [(2**15 - f) * c + f * after for c, after in zip(rows[i], rows[i + 1])]


def any_row(draws, count):
    """Thresholds of a table card, many of them as close to each other, to 0 or to T as allowed."""
    kind = uniform(draws, 4)
    if kind == 0:
        return list(range(1, count + 1))
    if kind == 1:
        return list(range(T - count, T))
    if kind == 2:
        return list(range((1 << 22) - 2, (1 << 22) - 2 + count))
    thresholds = set()
    while len(thresholds) < count:
        thresholds.add(1 + uniform(draws, T - 1))
    return sorted(thresholds)


def bytes_near(draws, threshold):
    """Bytes that begin like a threshold out of 2**48, up to one that is off by 1 or half of it."""
    digits = [threshold >> shift & 255 for shift in (40, 32, 24, 16, 8, 0)]
    same = uniform(draws, 7)
    begin = digits[:same]
    if same < 6:
        begin.append(digits[same] + (1, 255, 128)[uniform(draws, 3)] & 255)
    return bytes(begin)


INPUTS = (-16384, -16383, 16383, 16384, 0, 1, -1, 32767, -32768)


class TableDraws:
    """A random table card, inputs, bytes close to their thresholds, and what is specified for them.

    symbols: of the inputs. ends: where in `data` the draw of each input ends.
    """

    def __init__(self, draws, knot_bits, levels):
        """Draw all from a Stream: a card of 2**knot_bits + 1 knots and so many levels."""
        rows = [any_row(draws, levels - 1) for _ in range((1 << knot_bits) + 1)]
        self.card = decode(table(20_000_000, range(levels), rows, knot_bits))
        self.xs = []
        for _ in range(6):
            self.xs += [INPUTS[uniform(draws, 9)], uniform(draws, 32769) - 16384]
        self.data = b""
        for x in self.xs:
            thresholds = interpolated(rows, knot_bits, x)
            self.data += bytes_near(draws, thresholds[uniform(draws, levels - 1)] << 3)
        self.data += bytes([draws.byte() for _ in range(80)])

        self.symbols = []
        self.ends = []
        end = 0
        for x in self.xs:
            symbol, end = specified(interpolated(rows, knot_bits, x), 45, self.data, end)
            self.symbols.append(symbol)
            self.ends.append(end)


def test_tables_are_drawn_as_specified():
    # A table card gives, for each input, thresholds by which random bytes become a symbol. The
    # fast sampler must draw the same symbol from the same bytes, and use as many of them, as
    # specified(), which follows the specification word by word. Random tables, inputs at the
    # limits, and bytes close to thresholds.
    draws = Keyed(b"sampler", b"tables")
    for turn in range(40):
        case = TableDraws(draws, knot_bits=turn % 6, levels=2 + (turn * 7) % 15)
        stream = Replay(case.data)
        assert sampled(case.card, stream, case.xs) == case.symbols
        assert stream.cursor[POSITION] == case.ends[-1]


# SHA-256 of the symbols for all inputs, from -32768 to 32767, as little-endian uint16.
ALL_INPUTS = b"371f1d759b6029b3b4c903c463817277b3b4c58479b08aa19e316bc9ad947e20"


def test_all_inputs_are_drawn_as_specified():
    draws = Keyed(b"sampler", b"all inputs")
    knot_bits, levels = 3, 5
    rows = [any_row(draws, levels - 1) for _ in range((1 << knot_bits) + 1)]
    card = decode(table(20_000_000, range(levels), rows, knot_bits))
    stream = Keyed(b"sampler", b"bytes for all inputs")
    digest = hashlib.sha256()
    for begin in range(-32768, 32768, 1024):
        digest.update(array("H", sampled(card, stream, range(begin, begin + 1024))))
    assert binascii.hexlify(digest.digest()) == ALL_INPUTS

    # The slow way, which shows that this is the digest of what is specified.
    if not MICROPYTHON:
        stream = Keyed(b"sampler", b"bytes for all inputs")
        data = bytes([stream.byte() for _ in range(70_000)])
        symbols = array("H")
        end = 0
        for x in range(-32768, 32768):
            symbol, end = specified(interpolated(rows, knot_bits, x), 45, data, end)
            symbols.append(symbol)
        assert hashlib.sha256(symbols).hexdigest().encode() == ALL_INPUTS


class TwoPools(Stream):
    """Bytes of which a pool holds so many, and the pool after its refill all.

    other_byte: what follows the end of the first pool, in place of the bytes that come later.
    position_at_refill: the position when the first pool ended, or None.
    """

    def __init__(self, data, first_length, other_byte):
        super().__init__(bytearray(data[:first_length] + bytes([other_byte] * SLACK)))
        self.cursor[END] = first_length
        self.data = data
        self.position_at_refill = None

    def refill(self):
        assert self.position_at_refill is None
        self.position_at_refill = self.cursor[POSITION]
        self.pool = bytearray(self.data + bytes(SLACK))
        self.cursor[END] = len(self.data)


def test_a_pool_may_end_at_any_byte_of_a_draw_from_a_table():
    # A draw that needs more bytes than the pool has is undone, and drawn again after a refill. All
    # draws before it count. Whatever follows the end of the pool makes no difference.
    draws = Keyed(b"sampler", b"ends")
    for turn in range(10):
        case = TableDraws(draws, knot_bits=turn % 3, levels=2 + turn)
        for first_length in range(case.ends[-1]):
            last_end = max([end for end in [0] + case.ends if end <= first_length])
            for other_byte in (0, 255):
                stream = TwoPools(case.data, first_length, other_byte)
                assert sampled(case.card, stream, case.xs) == case.symbols
                assert stream.position_at_refill == last_end
                assert stream.cursor[POSITION] == case.ends[-1]


THRESHOLDS = (
    1,
    63,
    64,
    1 << 14,
    1 << 22,
    T >> 1,
    T - 1,
    T - 64,
    T - (1 << 22),
    0x12345678,
    0x2AAAAA00,
)


def streams_near(threshold):
    """Bytes that begin like a threshold out of 2**32, for each number of equal bytes."""
    digits = [threshold >> shift & 255 for shift in (24, 16, 8, 0)]
    for same in range(4):
        for off in (1, 255):
            yield bytes(digits[:same] + [digits[same] + off & 255] + [0] * 9)
    yield bytes(digits + [0] * 6)


def test_single_thresholds_are_drawn_as_specified():
    for threshold in THRESHOLDS:
        for data in streams_near(threshold << 2):
            answer, end = specified([threshold], 30, data, 0)
            stream = Replay(data)
            assert stream.below(threshold) == (answer == 0)
            assert stream.cursor[POSITION] == end


def test_windows_are_drawn_as_specified():
    # A window card draws symbols inside or outside a window of likely ones, here of two symbols.
    # The fast sampler must agree with specified(), which follows the specification word by word,
    # for bytes close to each threshold.
    for threshold in THRESHOLDS:
        card = decode(window(20_000_000, 2, 1, threshold))
        # At the start of the first window; and between two starts, of which one is drawn first.
        fraction = threshold >> 15 & 32767
        for data in streams_near(threshold << 2):
            answer, end = specified([threshold], 30, data, 0)
            stream = Replay(data)
            assert sampled(card, stream, [-16384]) == [answer]
            assert stream.cursor[POSITION] == end

            start, begin = specified([fraction], 15, data, 0)
            inside, end = specified([threshold], 30, data, begin)
            stream = Replay(data)
            assert sampled(card, stream, [fraction - 16384]) == [inside ^ 1 ^ start]
            assert stream.cursor[POSITION] == end


def test_draws_do_not_depend_on_how_bytes_arrive():
    for case, card in cases():
        for step in (1, 3):
            stream = Drip(bytes.fromhex(case["stream"]), step)
            assert sampled(card, stream, case["xs"]) == case["symbols"], case["comment"]


def exact_counts(card, x):
    """Run the sampler on every string of 4 bytes; return how many of the 2**32 give each symbol."""
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


def test_the_distribution_at_the_knots_is_exact():
    # A table card states probabilities at some inputs, its knots. exact_counts() runs the sampler
    # on all strings of 4 bytes: each symbol must come exactly as often as stated, or devices would
    # leak more than the card promises.
    for case, card in cases():
        if "thresholds" in case["flags"]:
            for knot in range((1 << card.knot_bits) + 1):
                x = (knot << (15 - card.knot_bits)) - 16384
                columns = card.symbols - 1
                ends = [0] + list(card.thresholds[knot * columns : (knot + 1) * columns]) + [T]
                expected = [(ends[j + 1] - ends[j]) * ((1 << 32) // T) for j in range(card.symbols)]
                assert exact_counts(card, x) == expected


def test_inputs_are_saturated():
    # Inputs count from -1 to 1 (16384 stands for 1). One beyond is drawn as the bound, with the
    # same random bytes: else an outlier would have less privacy than the card states.
    keyed = Keyed(b"sampler", b"saturated")
    data = bytes([keyed.byte() for _ in range(4000)])
    for _, card in cases():
        for beyond, bound in ((16385, 16384), (32767, 16384), (-16385, -16384), (-32768, -16384)):
            assert sampled(card, Replay(data), [beyond] * 64) == sampled(
                card, Replay(data), [bound] * 64
            )


def test_no_symbol_is_left_when_the_stream_ends():
    for case, card in cases():
        n = len(case["xs"])
        out = array("H", [1] * n)
        short = bytes.fromhex(case["stream"])[: case["bytes_used"] - 1]
        raises(EntropyError, sampler.sample, card, Replay(short), array("h", case["xs"]), out, n)
        assert not any(out)


def test_sampling_does_not_allocate():
    # Garbage of a board would lead to pauses for its collection, at moments that depend on the
    # draws.
    # Always the same draws: one draw in a million needs a larger pool (see entropy).
    seed = Keyed(b"sampler", b"seed")
    generator = Generator(lambda n: bytes([seed.byte() for _ in range(n)]))
    for _, card in cases():
        n = 200
        xs = array("h", [i * 160 - 16000 for i in range(n)])
        out = array("H", [0] * n)
        sampler.sample(card, generator, xs, out, n)
        gc.collect()
        without_heap(lambda: sampler.sample(card, generator, xs, out, n))  # noqa: B023
