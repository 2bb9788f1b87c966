"""LHP on every interpreter: ranges, cards that fit, and which draws a report takes."""

from tern.card import TABLE, WINDOW, T, decode
from tern.entropy import Replay
from tern.lhp import Hierarchy

HEADER = (20_000_000).to_bytes(4, "little")


def _grr(m, threshold):
    body = m.to_bytes(2, "little") + b"\x01\x00" + threshold.to_bytes(4, "little")
    return decode(bytes((1 << 4 | WINDOW,)) + HEADER + body)


def _duchi(threshold):
    body = b"\x00\x02\xff\x01" + threshold.to_bytes(4, "little") + (T - threshold).to_bytes(4, "little")
    return decode(bytes((1 << 4 | TABLE,)) + HEADER + body)


def _hierarchy():
    return Hierarchy((5000, -3000), [_grr(3, T // 2)] * 3, [_duchi(3 * T // 4)] * 3)


def _raises(call, *args):
    try:
        call(*args)
    except ValueError:
        return True
    return False


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
    assert _raises(Hierarchy, (0,), [grr] * 3, [duchi] * 3)
    assert _raises(Hierarchy, (5, 5), [grr] * 3, [duchi] * 3)
    assert _raises(Hierarchy, (5, 0), [grr] * 3, [duchi] * 2)
    assert _raises(Hierarchy, (5, 0), [_grr(4, T // 2)] * 3, [duchi] * 3)
    assert _raises(Hierarchy, (5, 0), [grr, grr, duchi], [duchi] * 3)
    assert _raises(Hierarchy, (5, 0), [grr] * 3, [duchi, duchi, grr])
    assert _raises(Hierarchy, (), [grr], [duchi])
