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
from tern.gradient import Gradient
from tern.local import LocalTrainer
from ternhost import vectorised
from ternhost.privacy import base
from ternhost.privacy.certify import distribution
from ternhost.privacy.mechanisms import design
from ternhost.vectorised import RandomLanes, ReplayLanes, random_bits

CLIENTS = 300
STREAM = 4096  # bytes of a client, enough for a laplace draw


def _table(rng, knot_bits, levels):
    cuts = [
        np.sort(rng.choice(T - 2, levels - 1, replace=False) + 1)
        for _ in range((1 << knot_bits) + 1)
    ]
    return base.table(range(levels), [np.diff([0, *cut, T]).tolist() for cut in cuts])


def _cards():
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
        cards[f"table {knot_bits}"] = _table(rng, knot_bits, 2 + 2 * knot_bits)
    cards["table of 16"] = _table(rng, 2, 16)
    cards["mixture"] = base.mixture(T // 2 + 12345, cards["pm-sub 15"], cards["table 3"])
    cards["mixture of windows"] = base.mixture(77, cards["two levels"], cards["window of one"])
    return cards


CARDS = _cards()


def _streams(card, rng):
    """Random bytes, many of them the card's own, so that comparisons tie more often than once in
    256.
    """
    shape = (CLIENTS, STREAM)
    words = rng.integers(0, 256, shape, np.uint8)
    outer = decode(card)
    numbers = [outer.t] if outer.shape == LAPLACE else []
    for part in (outer.first, outer.second, outer) if outer.shape == MIXTURE else (outer,):
        numbers += (
            part.thresholds
            if part.shape == TABLE
            else [part.threshold]
            if part.shape != LAPLACE
            else []
        )
    digits = [number >> s & 255 for number in numbers for s in (22, 14, 6)] + [
        n << 2 & 255 for n in numbers
    ]
    copied = rng.choice(np.array(digits, np.uint8), shape)
    return np.where(rng.random(shape) < 0.4, copied, words)


def _by_firmware(card, streams, xs, draw=sampler.sample):
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
    rng = np.random.default_rng(list(name.encode()))
    card = CARDS[name]
    k = 3
    xs = rng.integers(-17000, 17000, (CLIENTS, k)).astype(np.int16)
    xs[0], xs[1], xs[2], xs[3] = -16384, 16384, 0, 1
    xs[4:40] = rng.integers(-4, 5, (36, k)) << 12  # knots, where nothing is rounded
    xs[40], xs[41] = 32767, -32768  # saturated
    streams = _streams(card, rng)
    lanes = ReplayLanes(streams)
    symbols = vectorised.sample(decode(card), lanes, xs)
    assert (symbols.tolist(), lanes._position.tolist()) == _by_firmware(decode(card), streams, xs)


@pytest.mark.parametrize(
    "name", [name for name in CARDS if "table" in name] + ["three-outputs", "duchi"]
)
def test_ties_with_interpolated_thresholds_end_as_in_the_firmware(name):
    # Each lane begins with bytes of a threshold for its input.
    rng = np.random.default_rng(list(name.encode()))
    card = decode(CARDS[name])
    columns = card.symbols - 1
    thresholds = np.array(card.thresholds, np.int64).reshape(-1, columns)
    xs = rng.integers(-16384, 16385, (CLIENTS, 1)).astype(np.int16)
    xs[:6, 0] = -16384, -16383, -1, 0, 16383, 16384
    position = (xs[:, 0].astype(np.int64) + 16384) << card.knot_bits
    row, fraction = position >> 15, (position & 32767)[:, None]
    after = thresholds[np.minimum(row + 1, len(thresholds) - 1)]
    compared = (((2**15 - fraction) * thresholds[row] + fraction * after) << 3)[
        np.arange(CLIENTS), rng.integers(0, columns, CLIENTS)
    ]
    streams = rng.integers(0, 256, (CLIENTS, 20), np.uint8)
    same = rng.integers(0, 7, CLIENTS)
    for i in range(6):
        digit = compared >> (40 - 8 * i) & 255
        neighbour = digit + rng.choice([-1, 1], CLIENTS) & 255
        streams[:, i] = np.where(i < same, digit, np.where(i == same, neighbour, streams[:, i]))
    lanes = ReplayLanes(streams)
    symbols = vectorised.sample(card, lanes, xs)
    assert (symbols.tolist(), lanes._position.tolist()) == _by_firmware(card, streams, xs)


@pytest.mark.parametrize("name", ["window of one", "two levels", "256 levels"])
def test_categories_equal_those_of_the_firmware(name):
    rng = np.random.default_rng(3)
    card = decode(CARDS[name])
    starts = rng.integers(0, card.symbols - card.window + 1, (CLIENTS, 1))
    streams = _streams(CARDS[name], rng)
    symbols = vectorised.sample_categories(card, ReplayLanes(streams), starts[:, 0])
    expected, _ = _by_firmware(card, streams, starts, sampler.sample_categories)
    assert symbols.reshape(-1, 1).tolist() == expected


@pytest.mark.parametrize(
    "name", ["three-outputs", "pm-sub 15", "table 5", "mixture", "coarse laplace", "narrow laplace"]
)
def test_symbols_of_random_bytes_have_the_distribution_of_the_card(name):
    card = decode(CARDS[name])
    n = 400_000
    for x in (-16384, 5001):
        symbols = vectorised.sample(
            card, RandomLanes(random_bits(11, x + 16384), n), np.full(n, x, np.int16)
        )
        counts = np.bincount(symbols, minlength=card.symbols)
        expected = n * np.array([float(p) for p in distribution(card, x)])
        chi_squared = ((counts - expected) ** 2 / expected).sum()
        freedom = card.symbols - 1
        assert chi_squared < freedom + 5 * (2 * freedom) ** 0.5 + 12


@pytest.mark.parametrize(
    ("d", "k"),
    [(28, 1), (28, 5), (128, 127), (7, 7), (1, 1), (2, 1), (256, 9), (257, 9), (1024, 400)],
)
def test_coordinates_equal_those_of_the_firmware(d, k):
    streams = np.empty((50, 1920), np.uint8)
    expected = np.empty((50, k), np.uint16)
    for i in range(50):
        question = random.Random(i).randbytes(32)
        keyed = Keyed(question, b"")
        streams[i] = [*question[24:], *(keyed.byte() for _ in range(1912))]
        out = array("H", bytes(2 * k))
        choose(question, d, k, out)
        expected[i] = out
    assert np.array_equal(vectorised.choose(ReplayLanes(streams), d, k), expected)


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
@pytest.mark.parametrize("exponent", [-30, -21, -14, -12])
@pytest.mark.parametrize(
    ("batch", "range_"), [(1, 0), (3, 0), (32, 0), (1, 2), (1, 12), (3, 1), (3, 5)]
)
def test_gradients_equal_those_of_the_firmware(model, exponent, batch, range_):
    rng = np.random.default_rng(model * 100 + batch)
    for d in (1, 28, 128):
        clients = 12
        records = rng.integers(-16384, 16385, (clients * batch, d + 1)).astype(np.int16)
        records[: clients // 2, :d] = rng.choice([-16384, 16384, -32768, 32767], (clients // 2, d))
        for parameters in (
            rng.integers(-32768, 32768, d),
            rng.integers(-100, 101, d),
            np.full(d, -32768),
        ):
            gradients = vectorised.gradients(
                model, parameters, exponent, records, None, batch, range_
            )
            gradient, out = Gradient(d), array("h", bytes(2 * d))
            mantissas = array("h", parameters.tolist())
            for i in range(clients):
                gradient.reset(range_)
                for row in records[i * batch : (i + 1) * batch]:
                    gradient.add(model, mantissas, exponent, array("h", row.tolist()))
                gradient.finish(out)
                assert gradients[i].tolist() == list(out)
            shuffled = rng.permuted(np.tile(np.arange(d), (clients, 1)), axis=1)
            chosen = np.sort(shuffled[:, : (d + 1) // 2], axis=1)
            part = vectorised.gradients(model, parameters, exponent, records, chosen, batch, range_)
            assert np.array_equal(part, np.take_along_axis(gradients, chosen, 1))


@pytest.mark.parametrize("exponent", [-30, -14, -12])
@pytest.mark.parametrize(("batch", "range_"), [(1, 0), (1, 7), (3, 0), (3, 12)])
def test_softmax_gradients_equal_those_of_the_firmware(exponent, batch, range_):
    rng = np.random.default_rng(batch + range_)
    clients = 6
    for classes, d in ((2, 1), (10, 65), (128, 8), (8, 128)):
        records = rng.integers(-16384, 16385, (clients * batch, d + 1)).astype(np.int16)
        records[:, -1] = rng.integers(0, classes, clients * batch)
        parameters = rng.integers(-9000, 9000, (classes, d))
        gradients = vectorised.softmax_gradients(parameters, exponent, records, batch, range_)
        for i in range(clients):
            rows = records[i * batch : (i + 1) * batch].tolist()
            assert gradients[i].tolist() == _answered(parameters, exponent, rows, range_)
        chosen = np.sort(rng.integers(0, classes * d, (clients, 5)), axis=1).astype(np.uint16)
        part = vectorised.softmax_gradients(parameters, exponent, records, batch, range_, chosen)
        assert np.array_equal(part, np.take_along_axis(gradients, chosen.astype(np.intp), 1))


def _answered(parameters, exponent, rows, range_):
    """The answer of the device library to a question for a softmax gradient over these records."""
    request = SimpleNamespace(
        model=wire.SOFTMAX_GRADIENT,
        d=parameters.shape[1],
        classes=len(parameters),
        parameters=array("h", parameters.reshape(-1).tolist()),
        exponent=exponent,
        range=range_,
        round=len(rows),
        batch=len(rows),
    )
    client = SimpleNamespace(start=0, records=len(rows))
    store = SimpleNamespace(read=lambda at, out: out.__setitem__(slice(None), array("h", rows[at])))
    return softmax.Answerer(request).values(client, store, None).tolist()


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
@pytest.mark.parametrize(
    ("epochs", "batch", "count"), [(1, 0, 1), (2, 3, 7), (3, 1, 4), (1, 32, 40)]
)
@pytest.mark.parametrize(("exponent", "rate"), [(-12, 0), (-12, 9), (-16, 3), (-14, 16)])
def test_local_training_equals_that_of_the_firmware(model, epochs, batch, count, exponent, rate):
    rng = np.random.default_rng(model + 10 * count)
    clients, d = 6, 5
    records = rng.integers(-16384, 16385, (clients, count, d + 1)).astype(np.int16)
    parameters = rng.integers(-32768, 32768, d)
    tau = rng.integers(1, 1 << 23, clients)
    moved = vectorised.train_locally(model, parameters, exponent, records, epochs, batch, rate)
    shares = vectorised.shares(moved, tau)
    trainer, out = LocalTrainer(d), array("h", bytes(2 * d))
    for i in range(clients):

        def read(at, row, i=i):
            row[:] = array("h", records[i, at].tolist())

        start = array("h", parameters.tolist())
        list(trainer.steps(model, start, exponent, read, count, epochs, batch, rate))
        trainer.report(int(tau[i]), out)
        assert shares[i].tolist() == list(out)
