"""The vectorised twin computes the symbols, coordinates and gradients of the firmware from the same
bytes.
"""

import random
from array import array
from types import SimpleNamespace

import numpy as np
import pytest
from streams import Keyed, Replay

from tern import sampler, softmax, wire
from tern.card import LAPLACE, MIXTURE, TABLE, T, decode
from tern.coordinates import choose
from tern.fixed import ONE, bin_of
from tern.gradient import Gradient
from tern.local import LocalTrainer
from ternhost import vectorised
from ternhost.privacy import base
from ternhost.privacy.mechanisms import design
from ternhost.vectorised import ReplayLanes

CLIENTS = 300
STREAM = 4096  # bytes of a client, enough for a laplace draw


def random_table(rng, knot_bits, levels):
    cuts = [
        np.sort(rng.choice(T - 2, levels - 1, replace=False) + 1)
        for _ in range((1 << knot_bits) + 1)
    ]
    return base.table(range(levels), [np.diff([0, *cut, T]).tolist() for cut in cuts])


def cards_of_all_shapes():
    rng = np.random.default_rng(7)
    cards = {
        "three-outputs": design("three-outputs", 1).card,
        "duchi": design("duchi", 2).card,
        "pm-sub 15": design("pm-sub", 2, 15).card,
        "pm-sub 255": design("pm-sub", 4, 255).card,
        "window of one": base.window(129, 1, T // 3),
        "all but one": base.window(129, 128, T - 5),
        "two levels": base.window(2, 1, 700_000_000),
        "256 levels": base.window(256, 31, T // 2 + 1),
        "fine laplace": base.laplace(8, 70001, 130, -2000, 2100),
        "middle laplace": base.laplace(10, 1000, 3, -1024, 1024),
        "coarse laplace": base.laplace(0, 3, 1, -5, 1),
        "narrow laplace": base.laplace(6, 256, 2, -64, 64),
        "grid of all inputs": base.laplace(14, 50000, 1, -32767, 32767),
    }
    for knot_bits in range(6):
        cards[f"table {knot_bits}"] = random_table(rng, knot_bits, 2 + 2 * knot_bits)
    cards["table of 16"] = random_table(rng, 2, 16)
    cards["mixture"] = base.mixture(T // 2 + 12345, cards["pm-sub 15"], cards["table 3"])
    cards["mixture of windows"] = base.mixture(77, cards["two levels"], cards["window of one"])
    return cards


CARDS = cards_of_all_shapes()


def thresholds_of(card):
    """The numbers of a card that its sampler compares random bytes with."""
    if card.shape == LAPLACE:
        return [card.t]
    if card.shape == MIXTURE:
        return [card.threshold, *thresholds_of(card.first), *thresholds_of(card.second)]
    if card.shape == TABLE:
        return list(card.thresholds)
    return [card.threshold]


def streams_with_ties(card, rng):
    """Random bytes, many of them the card's own, so that comparisons tie more often than once in
    256.
    """
    shape = (CLIENTS, STREAM)
    digits = []
    for number in thresholds_of(decode(card)):
        digits += [number >> shift & 255 for shift in (22, 14, 6)] + [number << 2 & 255]
    copied = rng.choice(np.array(digits, np.uint8), shape)
    return np.where(rng.random(shape) < 0.4, copied, rng.integers(0, 256, shape, np.uint8))


def symbols_by_firmware(card, streams, xs, draw=sampler.sample):
    """The symbols of the firmware, and how many bytes of each stream it took."""
    symbols, taken = [], []
    for words, row in zip(streams, xs, strict=True):
        out, stream = array("H", bytes(2 * len(row))), Replay(words.tobytes())
        draw(card, stream, array("h", row.tolist()), out, len(row))
        symbols.append(list(out))
        taken.append(stream.cursor[0])
    return symbols, taken


@pytest.mark.parametrize("name", CARDS)
def test_symbols_equal_those_of_the_firmware(name):
    """The host simulates fleets by NumPy code. For cards of all kinds, the tables from which a
    device draws its report, it draws the same symbol as the device's code from the same random
    bytes, and takes as many. The bytes often equal a card's own thresholds, where a comparison
    wrong by one would show.
    """
    random = np.random.default_rng(list(name.encode()))
    values = random.integers(-17000, 17000, (CLIENTS, 3)).astype(np.int16)  # also beyond -1 and 1
    values[0], values[1], values[2], values[3] = -16384, 16384, 0, 1
    values[4:40] = random.integers(-4, 5, (36, 3)) << 12  # knots, where nothing is rounded
    values[40], values[41] = 32767, -32768  # saturated

    card = decode(CARDS[name])
    streams = streams_with_ties(CARDS[name], random)
    lanes = ReplayLanes(streams)
    symbols = vectorised.sample(card, lanes, values)

    expected_symbols, expected_positions = symbols_by_firmware(card, streams, values)
    assert symbols.tolist() == expected_symbols
    assert lanes._position.tolist() == expected_positions, "as many bytes are drawn"


@pytest.mark.parametrize(
    ("d", "k"),
    # One, some, nearly all and all of them; 256 is the most that a byte can number.
    [(28, 1), (28, 5), (128, 127), (7, 7), (1, 1), (2, 1), (256, 9), (257, 9), (1024, 400)],
)
def test_coordinates_equal_those_of_the_firmware(d, k):
    """A device reports k of d coordinates, chosen by a generator whose key is the question. The
    NumPy twin, given that generator's bytes, chooses the same ones.
    """
    streams = np.empty((50, 1920), np.uint8)
    expected = np.empty((50, k), np.uint16)

    # 50 questions: the device's choice, and the bytes that its generator gives.
    for i in range(50):
        question = random.Random(i).randbytes(32)
        keyed = Keyed(question, b"")
        streams[i] = [*question[24:], *(keyed.byte() for _ in range(1912))]
        out = array("H", bytes(2 * k))
        choose(question, d, k, out)
        expected[i] = out
    assert np.array_equal(vectorised.choose(ReplayLanes(streams), d, k), expected)


EVERY_INT16 = np.arange(-32768, 32768)


@pytest.mark.parametrize("exponent", range(1, wire.MAX_BIN_EXPONENT + 1))
def test_bins_are_of_equal_width_and_hold_what_lies_beyond(exponent):
    """2**exponent bins divide [-1, 1]. Numbers are exact in floats, so rounding down is exact too."""
    as_share = (EVERY_INT16 / ONE + 1) / 2  # of the way from -1 to 1
    bin_of_share = np.clip(np.floor(as_share * 2**exponent), 0, 2**exponent - 1)
    assert np.array_equal(vectorised.bins(EVERY_INT16, exponent), bin_of_share)


@pytest.mark.parametrize("exponent", range(1, wire.MAX_BIN_EXPONENT + 1))
def test_bins_equal_those_of_the_firmware(exponent):
    of_firmware = [bin_of(value, exponent) for value in EVERY_INT16.tolist()]
    assert vectorised.bins(EVERY_INT16, exponent).tolist() == of_firmware


def gradient_by_firmware(model, parameters, exponent, rows, range_):
    """The clipped mean gradient of these records, by the device library."""
    d = len(parameters)
    gradient, out = Gradient(d, many=True), array("h", bytes(2 * d))
    gradient.reset(range_)
    for row in rows.tolist():
        gradient.add(model, array("h", parameters.tolist()), exponent, array("h", row))
    gradient.finish(out)
    return list(out)


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
@pytest.mark.parametrize("exponent", [-30, -21, -14, -12])  # of the weights, from the least on
@pytest.mark.parametrize(
    ("batch", "range_"), [(1, 0), (3, 0), (32, 0), (1, 12), (3, 5), (33, 11), (100, 5)]
)
@pytest.mark.parametrize("d", [1, 28, 128])
@pytest.mark.parametrize("largest", [100, 32768])
def test_gradients_equal_those_of_the_firmware(model, exponent, batch, range_, d, largest):
    """For many clients at once, the host computes the gradient of a model in the fixed point
    arithmetic of the device: bit for bit the same, also with the extremes of int16, where sums
    saturate, and when some coordinates alone are asked for.
    """
    random = np.random.default_rng(model * 100 + batch)
    clients = 8
    records = random.integers(-16384, 16385, (clients * batch, d + 1)).astype(np.int16)
    ends = [-16384, 16384, -32768, 32767]
    records[: clients // 2, :d] = random.choice(ends, (clients // 2, d))
    parameters = random.integers(-largest, largest, d)
    question = model, parameters, exponent

    # Whole gradients, each of a batch of records of its client.
    asked = vectorised.ModelParameters(*question)
    gradients = vectorised.gradients(asked, records, None, batch, range_)
    for i in range(clients):
        rows = records[i * batch : (i + 1) * batch]
        assert gradients[i].tolist() == gradient_by_firmware(*question, rows, range_)

    # Half of the coordinates of each client, in order.
    shuffled = random.permuted(np.tile(np.arange(d), (clients, 1)), axis=1)
    coordinates = np.sort(shuffled[:, : (d + 1) // 2], axis=1)
    chosen = vectorised.gradients(asked, records, coordinates, batch, range_)
    assert np.array_equal(chosen, np.take_along_axis(gradients, coordinates, 1))


@pytest.mark.parametrize("exponent", [-30, -14, -12])
@pytest.mark.parametrize(("batch", "range_"), [(1, 0), (1, 7), (3, 0), (3, 12), (40, 9)])
@pytest.mark.parametrize(("classes", "d"), [(2, 1), (10, 65), (128, 8), (8, 128)])
def test_softmax_gradients_equal_those_of_the_firmware(exponent, batch, range_, classes, d):
    """As above for a softmax model, whose gradient has d values for each class: the NumPy twin
    gives the device's integers, for whole gradients and for some coordinates.
    """
    random = np.random.default_rng(batch + range_)
    clients = 4
    records = random.integers(-16384, 16385, (clients * batch, d + 1)).astype(np.int16)
    records[:, -1] = random.integers(0, classes, clients * batch)
    parameters = random.integers(-9000, 9000, (classes, d))

    gradients = vectorised.softmax_gradients(parameters, exponent, records, batch, range_)
    for i in range(clients):
        rows = records[i * batch : (i + 1) * batch].tolist()
        assert gradients[i].tolist() == softmax_gradient_by_firmware(
            parameters, exponent, rows, range_
        )

    # Five coordinates of each client, in order.
    coordinates = np.sort(random.integers(0, classes * d, (clients, 5)), axis=1)
    part = vectorised.softmax_gradients(
        parameters, exponent, records, batch, range_, coordinates.astype(np.uint16)
    )
    assert np.array_equal(part, np.take_along_axis(gradients, coordinates, 1))


def softmax_gradient_by_firmware(parameters, exponent, rows, range_):
    """The softmax gradient over these records, by the device library."""
    request = SimpleNamespace(
        model=wire.SOFTMAX_GRADIENT,
        d=parameters.shape[1],
        changes=1,
        classes=len(parameters),
        parameters=array("h", parameters.reshape(-1).tolist()),
        exponent=exponent,
        range=range_,
        round=len(rows),
        batch=0,
    )
    client = SimpleNamespace(start=0, records=len(rows))
    store = SimpleNamespace(read=lambda at, out: out.__setitem__(slice(None), array("h", rows[at])))
    return softmax.Answerer(request).values(client, store, None).tolist()


def train_by_firmware(trainer, parameters, records, tau, settings):
    """The moves that a client with these records reports, by the device library."""
    model, exponent, epochs, batch, rate = settings

    def read(index, row):
        row[:] = array("h", records[index].tolist())

    start = array("h", parameters.reshape(-1).tolist())
    list(trainer.steps(model, start, exponent, read, len(records), epochs, batch, rate))
    moves = array("h", bytes(2 * len(start)))
    trainer.report(tau, moves)
    return list(moves)


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (wire.LINEAR, 1),
        (wire.LOGISTIC, 1),
        (wire.SVM, 1),
        (wire.SOFTMAX_GRADIENT, 2),
        (wire.SOFTMAX_GRADIENT, 128),
    ],
)
@pytest.mark.parametrize(
    # The last batch of a client with 7 or 40 records is not full; batch 0 has all of them.
    ("epochs", "batch", "count"),
    [(1, 0, 1), (2, 3, 7), (3, 1, 4), (1, 32, 40)],
)
@pytest.mark.parametrize(("exponent", "rate"), [(-12, 9), (-16, 3), (-14, 16)])
def test_local_training_equals_that_of_the_firmware(
    model, classes, epochs, batch, count, exponent, rate
):
    """In federated averaging, a client trains on its own records and reports how far each weight
    moved, as a share of tau. The NumPy twin does so for all clients at once, with the very integers
    of the device.
    """
    random = np.random.default_rng(model + 10 * count)
    clients, d = 4, 5
    records = random.integers(-16384, 16385, (clients, count, d + 1)).astype(np.int16)
    if classes == 1:
        parameters = random.integers(-32768, 32768, d)
    else:
        parameters = random.integers(-500, 500, (classes, d))
        records[:, :, d] = random.integers(0, classes, (clients, count))  # labels
    taus = random.integers(1, 1 << 23, clients)

    # The twin, for all clients at once.
    start = vectorised.ModelParameters(model, parameters, exponent)
    moved = vectorised.train_locally(start, records, epochs, batch, rate)
    reported = vectorised.shares(moved, taus)

    # The device's code, for one client after the other.
    trainer = LocalTrainer(d, classes)
    settings = model, exponent, epochs, batch, rate
    for i in range(clients):
        expected = train_by_firmware(trainer, parameters, records[i], int(taus[i]), settings)
        assert reported[i].tolist() == expected
