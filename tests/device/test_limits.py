"""The limits of a fleet on the device: which ones it keeps, and which features are above them."""

from array import array

import scratch
import vectors
from checks import raises, taken_by
from small_board import put_fleet

from tern import frames, host_frames, wire
from tern.frames import FrameError
from tern.limits import Limits
from tern.model import Model

ONE = 16384
KEY = bytes(range(32))
_out = bytearray(wire.MAX_FRAME)


def frame_of(number, values, kind=wire.LIMITS, exponent=wire.LIMITS_EXPONENT, device=wire.FLEET):
    n = host_frames.encode_model(_out, KEY, device, number, kind, values, exponent)
    return memoryview(bytearray(memoryview(_out)[:n]))


def opened(folder):
    limits = Limits()
    limits.open(folder)
    return limits


def with_limits(*values):
    limits = opened(scratch.folder())
    limits.take_model(frame_of(1, values), KEY)
    return limits


# --- Which features are unusual


def test_a_feature_is_unusual_above_its_limit():
    limits = with_limits(wire.NO_LIMIT, 5000, -200)
    assert limits.unusual(array("h", (ONE, 5001, -200))) == 1
    assert limits.unusual(array("h", (ONE, 5000, -199))) == 2


def test_a_feature_at_its_limit_is_usual():
    limits = with_limits(wire.NO_LIMIT, 5000, -200)
    assert limits.unusual(array("h", (ONE, 5000, -200))) == -1


def test_a_feature_without_a_limit_is_never_unusual():
    limits = with_limits(wire.NO_LIMIT, wire.NO_LIMIT)
    assert limits.unusual(array("h", (ONE, 32767))) == -1


def test_the_search_may_go_on_behind_an_unusual_feature():
    limits = with_limits(wire.NO_LIMIT, 0, 0, 0)
    row = array("h", (ONE, 1, 0, 1))
    first = limits.unusual(row)
    second = limits.unusual(row, first + 1)
    assert (first, second) == (1, 3)
    assert limits.unusual(row, second + 1) == -1


def test_what_follows_the_features_of_a_row_does_not_count():
    limits = with_limits(wire.NO_LIMIT, 0)
    label = ONE
    assert limits.unusual(array("h", (ONE, 0, label))) == -1


def test_rows_of_fewer_features_have_no_limits():
    limits = with_limits(wire.NO_LIMIT, 0)
    raises(RuntimeError, limits.unusual, array("h", (ONE,)))


def test_nothing_is_unusual_or_usual_before_the_first_limits():
    limits = opened(scratch.folder())
    assert not limits.ready
    raises(RuntimeError, limits.unusual, array("h", (ONE, 0)))
    raises(RuntimeError, limits.limit, 0)


def test_a_program_can_read_the_limit_of_a_feature():
    limits = with_limits(wire.NO_LIMIT, -7)
    assert [limits.limit(feature) for feature in range(limits.d)] == [wire.NO_LIMIT, -7]
    for feature in (-1, 2):
        raises(RuntimeError, limits.limit, feature)


def test_a_look_at_a_row_allocates_nothing():
    # A program may look at every sample of a sensor.
    limits = with_limits(*[wire.NO_LIMIT] * wire.MAX_DIMENSION)
    row = array("h", [ONE] * wire.MAX_DIMENSION)
    limits.unusual(row)
    assert taken_by(lambda: limits.unusual(row)) == 0


def test_limits_vectors():
    # models.json, which other implementations share, holds limits and rows with the feature that
    # every device must find.
    for case in vectors.cases("models.json", "limits"):
        limits = with_limits(*case["limits"])
        found = [limits.unusual(array("h", row)) for row in case["rows"]]
        assert found == case["unusual"], case["comment"]


# --- Which limits a board keeps


def test_limits_survive_a_restart():
    folder = scratch.folder()
    opened(folder).take_model(frame_of(3, (100, 200)), KEY)
    limits = opened(folder)
    assert limits.ready and limits.round == 3
    assert [limits.limit(0), limits.limit(1)] == [100, 200]


def test_older_limits_are_refused_also_after_a_restart():
    folder = scratch.folder()
    opened(folder).take_model(frame_of(3, (100,)), KEY)
    limits = opened(folder)
    limits.take_model(frame_of(2, (999,)), KEY)
    assert limits.limit(0) == 100
    limits.take_model(frame_of(3, (300,)), KEY)
    assert limits.limit(0) == 300


def test_a_new_fleet_key_lets_any_round_follow():
    folder = scratch.folder()
    put_fleet(folder, KEY, epoch=1000)
    limits = opened(folder)
    limits.take_model(frame_of(wire.MAX_ROUND, (100,)), KEY)
    put_fleet(folder, KEY, epoch=1001)
    limits.forget_round()
    limits.take_model(frame_of(1, (200,)), KEY)
    assert limits.limit(0) == 200


def test_a_board_has_a_model_and_limits():
    # Each has a file of its own, and numbers of rounds of its own.
    folder = scratch.folder()
    model, limits = Model(), opened(folder)
    model.open(folder)
    model.take_model(frame_of(9, (1, 2), wire.LOGISTIC), KEY)
    limits.take_model(frame_of(4, (100, 200)), KEY)

    model, limits = Model(), opened(folder)
    model.open(folder)
    assert model.round == 9 and model.score(array("h", (ONE, 0))) == 1
    assert limits.round == 4 and limits.limit(1) == 200


def test_limits_are_no_model_and_a_model_is_no_limits():
    folder = scratch.folder()
    model, limits = Model(), opened(folder)
    model.open(folder)
    raises(FrameError, model.take_model, frame_of(1, (5, 6)), KEY)
    raises(FrameError, limits.take_model, frame_of(1, (5, 6), wire.LINEAR), KEY)
    assert not model.ready and not limits.ready


def hostile_limits():
    """MODEL frames of limits that must be refused."""
    good = bytes(frame_of(2, (4, 5, 6)))
    for n in range(len(good)):
        yield good[:n]
    for at in range(len(good)):
        yield good[:at] + bytes((good[at] ^ 1 << at % 8,)) + good[at + 1 :]
    # Fields out of bounds under the right key: the exponent, classes, and d, which is 0.
    for at, value in ((10, 0xF3), (11, 0), (11, 3), (12, 0)):
        changed = bytearray(good)
        changed[at] = value
        frames.seal(KEY, changed, len(changed) - wire.TAG_BYTES)
        yield bytes(changed)


def test_hostile_limits_change_nothing():
    folder = scratch.folder()
    limits = opened(folder)
    limits.take_model(frame_of(1, (1, 2, 3)), KEY)
    for frame in hostile_limits():
        raises(FrameError, limits.take_model, memoryview(frame), KEY)
    for kept in (limits, opened(folder)):
        assert kept.round == 1
        assert [kept.limit(feature) for feature in range(3)] == [1, 2, 3]


def test_a_damaged_file_counts_as_no_limits():
    folder = scratch.folder()
    opened(folder).take_model(frame_of(1, (1, 2, 3)), KEY)
    path = folder + Limits.FILE
    with open(path, "rb") as file:
        content = bytearray(file.read())
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1
        scratch.write(path, bytes(damaged))
        assert not opened(folder).ready, at


def test_limits_of_the_largest_number_of_features_fit_a_frame():
    limits = with_limits(*range(wire.MAX_DIMENSION))
    assert limits.d == wire.MAX_DIMENSION
    raises(FrameError, frame_of, 1, range(wire.MAX_DIMENSION + 1))
