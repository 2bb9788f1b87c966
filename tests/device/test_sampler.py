"""The sampler draws as cards.md specifies: by its vectors, by a literal implementation, and by
enumeration.
"""

import gc
from array import array

from checks import raises, without_heap
from spec.cards import table, window
from streams import Drip, Keyed, Replay, uniform
from vectors import load

from tern import sampler
from tern.card import T, decode
from tern.entropy import POSITION, EntropyError, Generator


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


def any_table(draws, p, m):
    """Rows of thresholds of a table card, many of them as close to each other, to 0 or to T as
    allowed.
    """
    rows = []
    for _ in range((1 << p) + 1):
        kind = uniform(draws, 4)
        if kind == 0:
            row = range(1, m)
        elif kind == 1:
            row = range(T - m + 1, T)
        elif kind == 2:
            row = range((1 << 22) - 2, (1 << 22) + m - 3)
        else:
            row = set()
            while len(row) < m - 1:
                row.add(1 + uniform(draws, T - 1))
        rows.append(sorted(row))
    return rows


def test_tables_are_drawn_as_specified():
    draws = Keyed(b"sampler", b"tables")
    for turn in range(40):
        p = turn % 6
        m = 2 + (turn * 7) % 15
        rows = any_table(draws, p, m)
        card = decode(table(20_000_000, range(m), rows, p))
        knots = (-16384, -16383, 16383, 16384, 0, 1, -1, 32767, -32768)
        xs = [
            uniform(draws, 32769) - 16384 if i % 2 else knots[uniform(draws, 9)] for i in range(12)
        ]
        data = b""
        for x in xs:  # its bytes begin like one of the thresholds
            t = interpolated(rows, p, x)[uniform(draws, m - 1)] << 3
            same = uniform(draws, 7)
            data += bytes([t >> s & 255 for s in (40, 32, 24, 16, 8, 0)][:same])
            if same < 6:
                data += bytes([(t >> 40 - 8 * same) + (1, 255, 128)[uniform(draws, 3)] & 255])
        data += bytes([draws.byte() for _ in range(80)])
        expected = []
        at = 0
        for x in xs:
            symbol, at = specified(interpolated(rows, p, x), 45, data, at)
            expected.append(symbol)
        stream = Replay(data)
        assert sampled(card, stream, xs) == expected
        assert stream.cursor[POSITION] == at


def test_single_thresholds_are_drawn_as_specified():
    for threshold in (
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
    ):
        card = decode(window(20_000_000, 2, 1, threshold))
        for same in range(5):
            for off in (1, 255):
                data = bytearray(
                    [threshold << 2 >> s & 255 for s in (24, 16, 8, 0)][:same] + [0] * 5
                )
                if same < 4:
                    data[same] = (threshold << 2 >> 24 - 8 * same) + off & 255
                answer, at = specified([threshold], 30, data, 0)
                stream = Replay(data)
                assert stream.below(threshold) == (answer == 0)
                assert stream.cursor[POSITION] == at
                # The same for a window card: at the start of its first window, and rounded between
                # two starts.
                stream = Replay(data)
                assert (sampled(card, stream, [-16384]), stream.cursor[POSITION]) == ([answer], at)
                f = threshold >> 15 & 32767
                up, begins = specified([f], 15, data, 0)
                inside, at = specified([threshold], 30, data + bytes(5), begins)
                stream = Replay(data + bytes(5))
                drawn = sampled(card, stream, [f - 16384])
                assert (drawn, stream.cursor[POSITION]) == ([inside ^ 1 ^ up], at)


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
    for case, card in cases():
        if "thresholds" in case["flags"]:
            for knot in range((1 << card.knot_bits) + 1):
                x = (knot << (15 - card.knot_bits)) - 16384
                columns = card.symbols - 1
                ends = [0] + list(card.thresholds[knot * columns : (knot + 1) * columns]) + [T]
                expected = [(ends[j + 1] - ends[j]) * ((1 << 32) // T) for j in range(card.symbols)]
                assert exact_counts(card, x) == expected


def test_inputs_are_saturated():
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
