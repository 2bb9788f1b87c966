"""Sums of units: vectors and noise agree with integers of any size; the runs of records."""

from array import array

import scratch
from checks import raises
from spec.cards import sum_card
from spec.sums import bits, length_of, noise, norm_of, sums_of, symbol, unit_vector
from streams import Drip, Keyed, Replay, Words
from vectors import cases

from tern import sums, wire
from tern.entropy import POSITION, EntropyError
from tern.recorder import Recorder

MOST = 1 << 29  # of a total
UNITS = 500  # random ones; with --exhaustive a million (tests/unit/test_sums_law.py)


class Question:
    """A ROUND that asks for the sums of `d` features, all of them or those `asked`."""

    model = wire.VALUES
    classes = 1
    range = batch = 0

    def __init__(self, d, asked=None):
        self.d = d
        self.asked = bytes(asked or [1] * d)
        self.values = sum(self.asked) + 1


def answerer_of(card, question):
    answerer = sums.Answerer(question)
    answerer._sum = sums.Sum(card)
    return answerer


def vector_of(answerer, totals, norm, steps, reach):
    """The device's vector of a unit, and 1 if it is clipped, else -1."""
    n = len(totals)
    answerer._sum = sums.Sum(sum_card(1, norm, 0, steps, reach, 1, -1))
    answerer._room(n)
    for j in range(n):
        answerer._source.totals[j] = totals[j]
        answerer._sums[j] = 0
    answerer._sums[n] = 0
    answerer._end(n)
    return list(answerer._sums)


def check_unit(answerer, totals, norm, steps, reach):
    """The device's vector is that of the specification, and within the radius."""
    n = len(totals)
    got = vector_of(answerer, totals, norm, steps, reach)
    vector, clipped = unit_vector(totals, norm, steps, reach)
    assert got == vector + [1 if clipped else -1], (totals, norm, steps, reach, got)
    assert length_of(got[:n], norm) <= steps**norm, (totals, norm, steps, reach, got)


def check_units(seed, count):
    """Random and hostile totals, radii and grids."""
    words = Words(seed)
    answerers = [answerer_of(sum_card(1), Question(n)) for n in (1, 2, 3, 7)]
    most = (MOST, MOST - 1, 1 << 14, (1 << 14) - 1, 1 << 13, 0, 1)
    for _ in range(count):
        answerer = words.one_of(answerers)
        top = 1 << words.below(30)
        kind = words.below(4)
        totals = []
        for _ in range(answerer._request.d):
            value = top - words.below(3) if kind == 0 else words.below(1 << 20) * top >> 20
            if kind == 1:
                value = words.one_of(most)
            totals.append(value if words.below(2) else -value)
        norm = 1 + words.below(2)
        reach = 1 << words.below(30)
        if words.below(2) and any(totals):  # just clipped, just not, just so
            reach = max(1, min(norm_of(totals, norm)[2] + words.below(3) - 1, (1 << 30) - 1))
        steps = words.one_of((1, 2, 3, 4095, 4096, 1 + words.below(4096), 1 << words.below(13)))
        check_unit(answerer, totals, norm, steps, reach)


def test_vectors_of_units():
    # A device adds up features over a unit, the run of records that is protected together, and
    # clips the sums to a radius R in a grid. arithmetic.json, which other implementations share,
    # holds totals and the vectors that follow; the last value is 1 if it was clipped.
    answerers = {}
    for case in cases("arithmetic.json", "units"):
        totals = case["totals"]
        n = len(totals)
        answerer = answerers[n] = answerers.get(n) or answerer_of(sum_card(1), Question(n))
        got = vector_of(answerer, totals, case["norm"], case["R"], case["r"])
        assert got == case["vector"] + [1 if case["clipped"] else -1], case["comment"]


def test_vectors_of_draws():
    for case in cases("sampler.json", "sums"):
        card, stream = Card(bytes.fromhex(case["card"])), bytes.fromhex(case["stream"])
        check_draws(card, case["sums"], stream, case["symbols"], case["bytes_used"])


def test_random_units_are_within_the_radius():
    check_units(1, UNITS)


def check_int16(step):
    answerer = answerer_of(sum_card(1), Question(2))
    for x in range(-32768, 32768, step):
        check_unit(answerer, [x, 5], 1 + (x & 1), 4096 >> (x & 7), 1 << (x & 15))


# Noise of t, c and m: Gaussian of variance c t / m, and Laplace of scale t.
NOISES = (
    (1, 1, 2),
    (2, 7, 6),
    (64, 64, 1),
    (1 << 10, 1 << 14, 1 << 10),
    (1, 1 << 14, 1 << 20),  # c at its bound, t m at its bound
    (1 << 20, 1 << 19, 1),
    (1, 0, 0),
    (257, 0, 0),
    (1 << 20, 0, 0),
)


def check_draws(card, values, data, symbols, used):
    """The symbols drawn for these sums, however the bytes arrive; none where one byte is missing."""
    answerer = answerer_of(card.data, Question(1))
    answerer._sums = array("i", values)
    k = len(values)
    places = array("h", range(k))
    out = array("H", bytes(2 * k))
    for stream in (Replay(data), Drip(data, 1), Drip(data, 7)):
        answerer.draw(card, stream, places, out, k)
        assert (list(out), stream.cursor[POSITION]) == (symbols, used), card.data
    raises(EntropyError, answerer.draw, card, Replay(data[: used - 1]), places, out, k)
    assert not any(out)


def roundings(t):
    """(coarse, b): noise of scale t is rounded to multiples of 2**coarse, and sent in b bits."""
    finest_that_fits = max(0, bits(t) - 12)
    return (finest_that_fits, 16), (3, 4), (20, 2)


def test_noise_is_drawn_as_specified():
    # A sum card adds Gaussian or Laplace noise, in integers. From the same random bytes the fast
    # code draws the same symbols as noise() and symbol(), which follow the specification word by
    # word.
    for t, c, m in NOISES:
        norm = 2 if c else 1  # Gaussian or Laplace
        for coarse, b in roundings(t):
            card = Card(sum_card(20_000_000, norm, t=t, c=c, m=m, coarse=coarse, bits=b))
            half_a_step = (1 << coarse) // 2
            below_all_symbols = -(1 << coarse + b)
            values = [0, -1234, 999, half_a_step, -half_a_step, below_all_symbols, 1 << 28]

            keyed = Keyed(b"sums", b"noise %d %d %d" % (t, c, m))
            data = bytes([keyed.byte() for _ in range(3000)])
            specified = Replay(data)
            symbols = [
                symbol(value + noise(specified.byte, t, c, m), coarse, b) for value in values
            ]
            check_draws(card, values, data, symbols, specified.cursor[POSITION])


class Card:
    def __init__(self, data):
        self.data = data
        self.body = sums.Sum(data)


# Runs


class Client:
    """A client with one record in records.bin, which does not matter beside a recorder."""

    start = 0
    records = 1


def totals_of(places, rows, unit):
    """The totals of each unit's rows, which are those at consecutive places; 0: of the device."""
    totals = {}
    for place, row in zip(places, rows):
        total = totals.setdefault(place // unit if unit else 0, [0] * len(row))
        for j, value in enumerate(row):
            total[j] += value
    return list(totals.values())


def features(number):
    """Those features of a record that are asked for, the first three."""
    return [(number * 977 * (j + 1) + 31 * j) % 16385 - 8192 for j in range(3)]


def check_recorder(book, first, end, bound=0):
    """Sums of the recorder are those over the records `first` .. `end` - 1, for units of each size.

    bound: the device takes at most so many of its newest records; 0 for all.
    """
    steps, reach, clipped, kept = 4096, 30_000, 7, -2
    numbers = range(first, end)
    for unit in (1, 3, 60, 0):  # records of a unit; 0: all records of the device are one
        for norm in (1, 2):
            card = sum_card(1, norm, unit, steps, reach, clipped, kept)
            answerer = answerer_of(card, Question(book.d, [1] * 3 + [0] * (book.d - 3)))
            answerer.bound = bound
            answerer.values(Client, book, None)
            units = totals_of(numbers, [features(number) for number in numbers], unit)
            expected = sums_of(units, 4, norm, steps, reach, clipped, kept)
            assert list(answerer._sums) == expected, (unit, norm, numbers)


def record(book, first, end):
    for number in range(first, end):
        book.append(array("h", features(number) + [0] * (book.d - 3)), 9)


# A recorder writes new records to the flash HOLD at a time: fewer do not count yet. It keeps the
# newest CAPACITY records: whenever it writes, it drops as many of the oldest.
HOLD = 7
CAPACITY = 10 * HOLD
# A record of 30 features takes 62 bytes, so that a segment of the ring has 63 records: the valid
# records begin and end in the middle of segments.
FEATURES = 30
# After so many records the tests look: before and after the first write, before and after the ring
# is full, and when it has gone round several times, with records that are not written yet.
RECORDED = (6, 7, 69, 75, 200, 334)


def opened_recorder(folder, least=HOLD):
    """The recorder of a folder. With fewer than `least` records it counts as empty for gradients."""
    book = Recorder(FEATURES, CAPACITY, HOLD, least)
    book.open(folder)
    return book


def written(recorded):
    """How many of these records are on the flash; the rest waits in RAM."""
    return recorded - recorded % HOLD


def test_an_empty_recorder_has_no_units():
    book = opened_recorder(scratch.folder())
    check_recorder(book, 0, 0)
    book.close()


def test_units_of_a_recorder_stay_aligned():
    # A unit is a run of records (say, an hour) that is protected together. Units must begin at the
    # same records as ever when the oldest records are dropped, or one run would count in two units
    # and be protected less.
    book = opened_recorder(scratch.folder())
    recorded = 0
    for total in RECORDED:
        record(book, recorded, total)
        recorded = total
        end = written(total)
        check_recorder(book, max(0, end - CAPACITY), end)
    book.close()


def test_units_of_a_recorder_stay_aligned_in_a_sum_of_its_newest_records():
    newest = 10  # records that a sum may take
    book = opened_recorder(scratch.folder())
    recorded = 0
    for total in RECORDED:
        record(book, recorded, total)
        recorded = total
        end = written(total)
        check_recorder(book, max(0, end - newest), end, bound=newest)
    book.close()


def test_a_sum_counts_the_records_of_a_recorder_that_has_fewer_than_its_least():
    # With fewer than `least` records, a device computes its gradient of zeros. A sum tells how many
    # units there are, under noise of its own, so it counts all records.
    book = opened_recorder(scratch.folder(), least=CAPACITY)
    record(book, 0, HOLD)
    check_recorder(book, 0, HOLD)
    book.close()


def test_units_of_a_recorder_stay_aligned_when_it_is_opened_again():
    folder = scratch.folder()
    recorded = RECORDED[-1]
    book = opened_recorder(folder)
    record(book, 0, recorded)
    book.close()  # writes the last records, too

    again = opened_recorder(folder)
    check_recorder(again, recorded - CAPACITY, recorded)
    more = recorded + HOLD
    record(again, recorded, more)
    check_recorder(again, more - CAPACITY, more)
    again.close()


class Odd:
    """A recorder whose records are at these places."""

    def __init__(self, places):
        self._places = places

    @property
    def count(self):
        return len(self._places)

    def take(self, index, row):
        row[0] = 100
        return self._places[index % len(self._places)]


def test_a_unit_counts_once_whatever_the_flash_says():
    # Sums are over units of two records, whose places are 0-1, 2-3 and so on. Damaged flash may
    # return places out of order; a unit that has been counted must not count again, as it would be
    # protected less. _sums[1] is the number of units.
    for places, units in (((0, 1, 3, 2, 3, 0, 9), 3), ((5, 4, 3), 1), ((), 0)):
        answerer = answerer_of(sum_card(1, 1, 2, 4096, 4096, 1, 1), Question(1))
        answerer.values(Client, Odd(places), None)
        assert answerer._sums[1] == units, places


def test_units_whose_records_are_removed_in_the_middle_of_a_sum_do_not_count():
    # Units are of one record. The program removes all records after two of the four were taken.
    answerer = answerer_of(sum_card(1, 1, 1, 4096, 4096, 1, 1), Question(1))
    book = Odd([0, 1, 2, 3])
    for step, _ in enumerate(answerer.steps(Client, book)):
        if step == 1:  # the program removes its records
            book._places = []
    assert answerer._sums[1] == 2
