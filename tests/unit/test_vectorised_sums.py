"""The vectorised twin computes the sums of units, and draws their noise, as the firmware does from
the same bytes.
"""

from array import array
from types import SimpleNamespace

import numpy as np
import pytest
from spec.cards import sum_card
from streams import Replay

from tern import card as cards
from tern import noise as firmware_noise
from tern import sums as firmware
from tern import wire
from tern.entropy import POSITION
from ternhost import vectorised
from ternhost.vectorised import ReplayLanes


def card_of(norm=2, unit=1, radius=128, reach=1 << 17, noise=(512, 947, 1), coarse=3, bits=10):
    """A card of a sum; noise: t, c and m of Gaussian noise, of which Laplace noise has t alone."""
    t, c, m = noise
    shape = {"t": t, "c": c, "m": m, "coarse": coarse, "bits": bits}
    return cards.decode(sum_card(20_000_000, norm, unit, radius, reach, 92, -36, **shape))


def sums_by_firmware(card, model, parameters, exponent, records, range_=0, first=0, categories=1):
    weights = np.asarray(parameters)
    softmax = model == wire.SOFTMAX_GRADIENT
    collects = model in (wire.VALUES, wire.CATEGORIES)
    values = np.count_nonzero(weights) * categories if collects else weights.size
    request = SimpleNamespace(
        model=model,
        range=range_,
        batch=0,
        values=int(values) + 1,
        classes=len(weights) if softmax else categories,
        d=weights.shape[-1],
        exponent=exponent,
        asked=weights.reshape(-1).tolist(),
        parameters=array("h", weights.reshape(-1).tolist()),
    )
    answerer = firmware.Answerer(request)
    answerer.unit = card.body.unit
    answerer.cost(card)
    result = []
    for rows in records:

        def take(index, row, rows=rows):
            row[:] = array("h", rows[index].tolist())
            return first + index

        held = SimpleNamespace(count=len(rows), take=take)
        answerer.values(SimpleNamespace(start=0, records=0), held, card)
        result.append(list(answerer._sums))
    return np.array(result).reshape(len(records), -1), answerer


def some_question(random, model):
    """A model, parameters, exponent, range, and number of categories of a question."""
    d, range_ = int(random.integers(1, 20)), int(random.integers(0, 11))
    exponent, categories = int(random.integers(-30, -11)), 1
    if model in (wire.VALUES, wire.CATEGORIES):
        parameters = np.append(random.integers(0, 2, d - 1), 1)  # the features that are asked for
    else:
        parameters = random.integers(-32768, 32768, (3, d) if model == wire.SOFTMAX_GRADIENT else d)
    if model == wire.CATEGORIES:
        categories = int(random.integers(2, 20))
        exponent = int(random.choice([0, 1, 4, 7]))  # 0: features are categories, and not numbers
        if exponent:
            categories = 2**exponent
    return d, parameters, exponent, range_, categories


def some_records(random, model, d, categories, hostile):
    """Records of four clients; those of the last one have one feature that is not 0."""
    most = 32767 if hostile else 16384
    shape = (4, int(random.integers(0, 25)), d + 1)
    records = random.integers(-most - hostile, most + 1, shape).astype(np.int16)
    if hostile:
        records[:2] = random.choice([-32768, 32767, 0, 1], records[:2].shape)
        records[2] >>= 9
    records[3, :, 1:] = 0
    if model == wire.SOFTMAX_GRADIENT:
        records[:, :, -1] = random.integers(-1, 4, shape[:2])  # of three classes, or of none
    if model == wire.CATEGORIES and random.integers(2):  # else there is any number
        records[2:] = random.integers(-1, categories + 1, records[2:].shape)
    return records


MODELS = [
    wire.LINEAR,
    wire.LOGISTIC,
    wire.SVM,
    wire.VALUES,
    wire.CATEGORIES,
    wire.SOFTMAX_GRADIENT,
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("hostile", [False, True])
def test_sums_equal_those_of_the_firmware(model, norm, hostile, monkeypatch):
    """A device clips the vector of each of its runs of records, and adds them up in integers. The
    NumPy twin gives the same sums for random questions, cards and records; hostile records have the
    extremes of int16. It works in chunks of some clients, whose size must not matter.
    """
    random = np.random.default_rng([model, norm, hostile])
    for trial in range(12):
        d, parameters, exponent, range_, categories = some_question(random, model)
        records = some_records(random, model, d, categories, hostile)
        bits = random.uniform(0, 30) if hostile else random.uniform(12 + range_, 16 + range_)
        card = card_of(
            norm,
            unit=int(random.choice([0, 1, 2, 7])),
            radius=int(random.choice([1, 2, 3, 127, 128, 4096])),
            reach=max(1, min(int(2**bits), (1 << 30) - 1)),
        )
        first = int(random.integers(0, 20))  # the number of the first record
        question = model, parameters, exponent
        facts = records, range_, first, categories
        expected, _ = sums_by_firmware(card, *question, *facts)

        chunk = 1 << (6 + trial)  # from a client at a time to all of them
        monkeypatch.setattr(vectorised.sums, "_CHUNK", chunk)
        sums = vectorised.sums.sums(card, vectorised.ModelParameters(*question), *facts)
        assert np.array_equal(sums, expected)


# t, c and m of Gaussian noise; Laplace noise has t alone.
NOISES = [
    (1, 1, 2),
    (2, 1, 1),
    (1, 7, 3),
    (8, 8, 1),
    (512, 947, 1),
    (16, 333, 8),
    (70001, 60000, 3),
]


def bytes_of_lanes(random, lanes, length):
    """Random bytes; half of the lanes have many zeros, so that decays go on and offsets are 0."""
    data = random.integers(0, 256, (lanes, length), np.uint8)
    half = lanes // 2
    data[:half] = np.where(random.random((half, length)) < 0.5, 0, data[:half])
    data[: half // 2, :4] = 0
    return data


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("norm", [1, 2])
def test_noise_equals_that_of_the_firmware_draw_for_draw(norm, noise):
    """Given the same random bytes, the NumPy twin draws the same noise for each client as the
    device's code, and takes as many bytes.
    """
    card = card_of(norm, noise=noise)
    data = bytes_of_lanes(np.random.default_rng(noise), 400, 3000)
    lanes, job = ReplayLanes(data), card.body.job
    drawn = vectorised.sums.noise(card, lanes)
    # The device's code keeps the position in its bytes, and their end, in job[0] and job[1].
    for i, row in enumerate(data):
        job[0], job[1] = 0, 3000
        assert drawn[i] == firmware_noise.noise(row.tobytes(), job)
        assert lanes._position[i] == job[0]


@pytest.mark.parametrize("noise", NOISES[2:5], ids=str)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(("coarse", "bits"), [(0, 16), (3, 4)])
def test_symbols_equal_those_of_the_firmware_draw_for_draw(norm, noise, coarse, bits):
    """The report of a sum is symbols: each is a sum with noise, in steps of 2**coarse, folded to so
    many bits. From the same random bytes, the NumPy twin gives the device's symbols, here of the
    values 2 and 0.
    """
    random = np.random.default_rng(noise)
    card = card_of(norm, noise=noise, coarse=coarse, bits=bits)
    data = bytes_of_lanes(random, 100, 3000)
    records = random.integers(-16384, 16385, (100, 3, 3)).astype(np.int16)
    question = wire.LOGISTIC, [9000, -9000], -13
    totals, _ = sums_by_firmware(card, *question, records, 4)  # 4 is the range

    lanes, places = ReplayLanes(data), (2, 0)
    drawn = vectorised.sums.symbols(card, lanes, totals[:, places])

    for i, row in enumerate(data):
        stream, symbols = Replay(row.tobytes()), array("H", [0, 0])
        _, answerer = sums_by_firmware(card, *question, records[i : i + 1], 4)
        answerer.draw(card, stream, places, symbols, 2)
        assert drawn[i].tolist() == list(symbols)
        assert lanes._position[i] == stream.cursor[POSITION]
