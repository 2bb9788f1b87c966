"""Limits of features on the host: what devices get, and that both find the same in a row."""

import math
from array import array

import numpy as np
import pytest

from tern import wire
from tern.fixed import ONE
from tern.frames import FrameError
from tern.limits import Limits
from ternhost import DeviceModel
from ternhost.count.questions import Averaged
from ternhost.errors import UsageError
from ternhost.learn.limits import NOTHING_UNUSUAL, first_unusual, limits_of
from ternhost.store import kept_model
from ternhost.store.store import Store

KEY = bytes(range(32))


def test_a_limit_is_the_quantile_rounded_up_so_that_it_is_not_exceeded_itself():
    limits = limits_of({0: 0.1, 1: -0.1, 2: 0.25}, 3).parameters
    assert limits == [math.ceil(0.1 * ONE), math.ceil(-0.1 * ONE), ONE // 4]


def test_features_without_an_estimate_have_no_limit():
    assert limits_of({1: 0.5, 2: math.nan}, 4).parameters == [
        wire.NO_LIMIT,
        ONE // 2,
        wire.NO_LIMIT,
        wire.NO_LIMIT,
    ]


@pytest.mark.parametrize(("value", "limit"), [(1.7, ONE), (1.0, ONE), (-1.0, -ONE), (-3.0, -ONE)])
def test_limits_are_cut_to_the_interval_of_values(value, limit):
    assert limits_of({0: value}, 1).parameters == [limit]


def test_more_features_than_a_record_has_do_not_fit_a_frame():
    with pytest.raises(FrameError):
        limits_of({}, wire.MAX_DIMENSION + 1).frame(1, KEY)


def device_with(averaged, folder):
    """The Limits of a device that has got these."""
    limits = Limits()
    limits.open(str(folder))
    limits.take_model(memoryview(averaged.frame(5, KEY)), KEY)
    return limits


def test_devices_find_what_the_host_finds(tmp_path):
    draw = np.random.default_rng(3)
    width = 9
    rows = draw.integers(-ONE, ONE + 1, (300, width), dtype=np.int16)
    averaged = limits_of(dict(enumerate(np.quantile(rows / ONE, 0.95, axis=0)[2:], 2)), width)
    device = device_with(averaged, tmp_path)

    found = first_unusual(averaged.parameters, rows)

    assert [device.unusual(array("h", row.tolist())) for row in rows] == found.tolist()
    assert 0 < (found == NOTHING_UNUSUAL).sum() < len(rows)


def test_a_label_behind_the_features_does_not_count():
    assert first_unusual([wire.NO_LIMIT, 0], [[ONE, 0, ONE]]).tolist() == [NOTHING_UNUSUAL]


def test_rows_of_fewer_features_are_refused():
    with pytest.raises(UsageError):
        first_unusual([1, 2, 3], [[0, 0]])


def test_a_device_model_is_not_made_of_limits():
    with pytest.raises(UsageError):
        DeviceModel.of_frame(limits_of({0: 0.5}, 2).frame(5, KEY), KEY)


def untagged(averaged, number):
    """The MODEL frame of a round, without its tag."""
    return averaged.frame(number, KEY)[: -wire.TAG_BYTES]


def test_a_store_keeps_a_model_and_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "last_round", lambda store: 4)
    model = Averaged(wire.LOGISTIC, [1, 2], -14)
    limits = limits_of({1: 0.5}, 2)
    with Store(tmp_path / "store.sqlite") as store:
        kept_model.keep(store, model)
        kept_model.keep(store, limits)
        assert kept_model.kept(store) == untagged(model, 4)
        assert kept_model.kept_limits(store) == untagged(limits, 4)
