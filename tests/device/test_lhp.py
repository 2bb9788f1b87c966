"""LHP on every interpreter: ranges, cards that fit, and which draws a report takes."""

from array import array

from raising import raises
from spec.cards import two_levels, window

from tern.card import T, decode
from tern.lhp import Hierarchy, extremes
from tern.streams import Keyed, Replay

COMPILED = True
EPSILON = 20_000_000


def _grr(m, threshold):
    return decode(window(EPSILON, m, 1, threshold))


def _duchi(threshold):
    return decode(two_levels(EPSILON, threshold, T - threshold))


def _hierarchy():
    return Hierarchy((5000, -3000), [_grr(3, T // 2)] * 3, [_duchi(3 * T // 4)] * 3)


def test_ranges():
    levels = _hierarchy()
    assert [levels.level(x) for x in (-16384, -3001, -3000, 4999, 5000, 16384)] == [2, 2, 1, 1, 0, 0]


def test_draws():
    levels = _hierarchy()
    # inside (first byte below half): the own level; then the sign
    assert levels.draw(Replay(b"\x00\x00"), 16384) == 0
    assert levels.draw(Replay(b"\x00\xff"), 16384) == 1
    assert levels.draw(Replay(b"\x00\xff"), -16384) == 5
    # outside: one of the other two levels, by a second byte
    assert levels.draw(Replay(b"\xff\x00\x00"), 16384) == 2
    assert levels.draw(Replay(b"\xff\x01\x00"), 16384) == 4
    assert levels.draw(Replay(b"\xff\x00\x00"), -16384) == 0
    # in the middle -1 and 1 are equally likely
    assert levels.draw(Replay(b"\x00\x7f"), 0) == 2
    assert levels.draw(Replay(b"\x00\x80"), 0) == 3


def test_inputs_are_saturated():
    assert _hierarchy().draw(Replay(b"\x00\xff"), 99999) == 1
    assert _hierarchy().draw(Replay(b"\x00\xff"), -99999) == 5


def test_what_does_not_fit():
    grr, duchi = _grr(3, T // 2), _duchi(3 * T // 4)
    raises(ValueError, Hierarchy, (0,), [grr] * 3, [duchi] * 3)
    raises(ValueError, Hierarchy, (5, 5), [grr] * 3, [duchi] * 3)
    raises(ValueError, Hierarchy, (5, 0), [grr] * 3, [duchi] * 2)
    raises(ValueError, Hierarchy, (5, 0), [_grr(4, T // 2)] * 3, [duchi] * 3)
    raises(ValueError, Hierarchy, (5, 0), [grr, grr, duchi], [duchi] * 3)
    raises(ValueError, Hierarchy, (5, 0), [grr] * 3, [duchi, duchi, grr])
    raises(ValueError, Hierarchy, (), [grr], [duchi])


def wide_extremes(ends, inside, job):
    """extremes(), by integers of any size."""
    m, reported, left, right = job
    found = []
    for i in range(2 * m):
        p = inside[i // 2] * (m - 1) if i // 2 == reported else T - inside[i // 2]
        found.append(p * (left * (32768 - ends[i]) + right * ends[i]))
    return min(found), max(found)


def test_extremes_are_exact():
    stream = Keyed(b"extremes", b"")
    counts = (1, 2, 32767, 32768, 32769, T // 2, T - 32768, T - 2, T - 1)

    def some():
        return counts[stream.uniform(len(counts))] if stream.uniform(2) else 1 + stream.uniform(T - 1)

    found = array("I", bytes(24))
    for case in range(300):
        m = 2 + case % 15
        ends = array("H", [stream.uniform(32769) for _ in range(2 * m)])
        ends[case % m] = 32768 * (case & 1)
        inside = array("I", [some() for _ in range(m)])
        if case % 3 == 0:  # all nearly equal: every limb decides
            near, end = some(), stream.uniform(32766)
            inside = array("I", [max(1, near - stream.uniform(2)) for _ in range(m)])
            ends = array("H", [end + stream.uniform(3) for _ in range(2 * m)])
        job = array("I", (m, stream.uniform(m), some(), some()))
        extremes(ends, inside, job, found)
        least, most = [found[i] << 60 | found[i + 1] << 30 | found[i + 2] for i in (0, 3)]
        assert (least, most) == wide_extremes(ends, inside, job), (ends, inside, job)


def test_the_largest_products_do_not_overflow():
    found = array("I", bytes(24))
    for m in (2, 16):
        for high in (T - 1, 1):
            for end in (0, 32768):
                ends, inside = array("H", [end] * (2 * m)), array("I", [high] * m)
                job = array("I", (m, m - 1, T - 1, T - 1))
                extremes(ends, inside, job, found)
                least, most = [found[i] << 60 | found[i + 1] << 30 | found[i + 2] for i in (0, 3)]
                assert (least, most) == wide_extremes(ends, inside, job)
