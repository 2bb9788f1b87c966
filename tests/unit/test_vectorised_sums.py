"""The vectorised twin computes the sums of units, and draws their noise, as the firmware does from
the same bytes.
"""

import struct
from array import array
from types import SimpleNamespace

import numpy as np
import pytest
from streams import Replay

from tern import card as cards
from tern import sums as firmware
from tern import wire
from tern.entropy import POSITION
from ternhost import vectorised
from ternhost.privacy import sums
from ternhost.vectorised import RandomLanes, ReplayLanes, random_bits
from ternhost.vectorised.sums import MOST_TOTAL, clipped_vectors


def _card(
    norm=2,
    unit=1,
    radius=128,
    reach=1 << 17,
    tally=(92, -36),
    noise=(512, 947, 1),
    coarse=3,
    bits=10,
):
    t, c, m = noise if norm == 2 else (noise[0], 0, 0)
    body = struct.pack(firmware.BODY, norm, unit, radius, reach, *tally, t, c, m, coarse, bits)
    return cards.decode(
        struct.pack(cards.HEADER, cards.VERSION << 4 | cards.SUM, 20_000_000) + body
    )


def _by_firmware(card, model, parameters, exponent, records, range_=0, first=0, categories=1):
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


def _parameters(rng, model, d):
    if model in (wire.VALUES, wire.CATEGORIES):
        return np.append(rng.integers(0, 2, d - 1), 1)
    return rng.integers(-32768, 32768, (3, d) if model == wire.SOFTMAX_GRADIENT else d)


@pytest.mark.parametrize(
    "model",
    [wire.LINEAR, wire.LOGISTIC, wire.SVM, wire.VALUES, wire.CATEGORIES, wire.SOFTMAX_GRADIENT],
)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("hostile", [False, True])
def test_sums_equal_those_of_the_firmware(model, norm, hostile, monkeypatch):
    rng = np.random.default_rng([model, norm, hostile])
    for trial in range(12):
        d, count, range_ = (
            int(rng.integers(1, 20)),
            int(rng.integers(0, 25)),
            int(rng.integers(0, 11)),
        )
        unit, first = int(rng.choice([0, 1, 2, 7])), int(rng.integers(0, 20))
        radius = int(rng.choice([1, 2, 3, 127, 128, 4096]))
        reach = (
            int(2 ** rng.uniform(0, 30))
            if hostile
            else int(2 ** rng.uniform(12 + range_, 16 + range_))
        )
        card = _card(norm, unit, radius, max(1, min(reach, (1 << 30) - 1)))
        most = 32767 if hostile else 16384
        records = rng.integers(-most - hostile, most + 1, (4, count, d + 1)).astype(np.int16)
        if hostile and trial % 3 == 0:
            records[:2] = rng.choice([-32768, 32767, 0, 1], records[:2].shape)
        if hostile and trial % 4 == 0:
            records[2:] >>= 9
        records[3, :, 1:] = 0
        if model == wire.SOFTMAX_GRADIENT:
            records[:, :, -1] = rng.integers(-1, 4, records.shape[:2])
        categories = 1
        if model == wire.CATEGORIES:
            categories = int(rng.integers(2, 20))
            records[2:] = rng.integers(-1, categories + 1, records[2:].shape)
        weights, exponent = _parameters(rng, model, d), int(rng.integers(-30, -11))
        asked = model, weights, exponent, records, range_, first, categories
        expected, _ = _by_firmware(card, *asked)
        monkeypatch.setattr(
            vectorised.sums, "_CHUNK", 1 << (6 + trial)
        )  # from a client at a time to all
        assert np.array_equal(vectorised.sums.sums(card, *asked), expected)


@pytest.mark.parametrize("norm", [1, 2])
def test_numbers_of_a_unit_are_held_after_each_record(norm):
    """Sums that leave 2**29 and come back do not depend on how they are added."""
    rng = np.random.default_rng(norm)
    records = np.full((3, 60, 4), 32767, np.int16)
    records[0, 30:, 0] = -32768
    records[1] = rng.choice([-32768, 32767], (60, 4))
    card = _card(norm, 0, 4096, (1 << 30) - 1)
    for model, parameters in ((wire.VALUES, [1, 1, 1]), (wire.LINEAR, [32767, 32767, -32768])):
        asked = model, parameters, -12, records, 10
        assert np.array_equal(vectorised.sums.sums(card, *asked), _by_firmware(card, *asked)[0])


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("radius", [1, 5, 128, 4096])
def test_no_vector_exceeds_the_radius_whatever_the_numbers(norm, radius):
    rng = np.random.default_rng(radius)
    for d in (1, 2, 28, 255):
        totals = np.rint(rng.normal(size=(4000, d)) * 2 ** rng.uniform(0, 29, (4000, 1)))
        totals = np.clip(totals, -MOST_TOTAL, MOST_TOTAL).astype(np.int64)
        totals[:500] = rng.choice([-MOST_TOTAL, MOST_TOTAL, 0, -1, 1], (500, d))
        for reach in (1, 77, 1 << 14, 1 << 20, (1 << 30) - 1):
            vectors, clipped = clipped_vectors(
                _card(norm, 1, radius, reach).body, totals.T.astype(np.int32)
            )
            vectors = vectors.T.astype(np.int64)
            assert ((np.abs(vectors) ** norm).sum(axis=1) <= radius**norm).all()
            true = (np.abs(totals.astype(np.float64)) ** norm).sum(axis=1) ** (1 / norm)
            assert clipped[true > reach].all() > clipped[true < 0.998 * reach - 2].any()
            n = np.maximum(true, reach)[:, None]  # rounded up in the vectors' n
            assert (np.abs(vectors - totals * radius / n) <= 1 + radius * (0.002 + 2 / n)).all()


NOISES = ["1 1 2", "2 1 1", "1 7 3", "8 8 1", "512 947 1", "16 333 8", "70001 60000 3", "40 25 9"]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("norm", [1, 2])
def test_noise_and_symbols_equal_those_of_the_firmware_draw_for_draw(norm, noise):
    noise = [int(number) for number in noise.split()]  # t, c, m
    rng = np.random.default_rng(noise)
    card = _card(norm, noise=noise, coarse=int(rng.integers(0, 4)), bits=int(rng.integers(2, 17)))
    data = rng.integers(0, 256, (400, 3000), np.uint8)
    data[:200] = np.where(
        rng.random((200, 3000)) < 0.5, 0, data[:200]
    )  # decays go on, offsets are 0
    data[:100, :4] = 0
    records = rng.integers(-16384, 16385, (400, 3, 3)).astype(np.int16)
    totals, _ = _by_firmware(card, wire.LOGISTIC, [9000, -9000], -13, records, 4)
    lanes, one, values, job = ReplayLanes(data), ReplayLanes(data), (2, 0), card.body.job
    drawn, z = (
        vectorised.sums.symbols(card, lanes, totals[:, values]),
        vectorised.sums.noise(card, one),
    )
    for i in range(len(data)):
        stream, out = Replay(data[i].tobytes()), array("H", [0, 0])
        _, answerer = _by_firmware(card, wire.LOGISTIC, [9000, -9000], -13, records[i : i + 1], 4)
        answerer.draw(card, stream, values, out, 2)
        assert (drawn[i].tolist(), lanes._position[i]) == (list(out), stream.cursor[POSITION])
        job[0], job[1] = 0, 3000
        assert (z[i], one._position[i]) == (firmware.noise(data[i].tobytes(), job), job[0])


@pytest.mark.parametrize("norm", [1, 2])
def test_random_lanes_draw_the_law(norm):
    card = _card(norm, noise=(8, 37, 3), coarse=0, bits=12)
    z = vectorised.sums.noise(card, RandomLanes(random_bits(5), 200_000))
    at = np.arange(-60, 61)
    law = np.exp(-np.abs(at) / 8) if norm == 1 else np.exp(-(at**2) / 2 / (37 * 8 / 3))
    law /= law.sum() if norm == 2 else (1 + np.exp(-1 / 8)) / (1 - np.exp(-1 / 8))
    counts = np.bincount(z + 4000, minlength=8000)[4000 + at]
    assert (np.abs(counts - 200_000 * law) < 5 * np.sqrt(200_000 * law) + 5).all()
    assert z.var() == pytest.approx(sums.variance(card.body), rel=0.02)
