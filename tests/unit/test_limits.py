"""Limits of features on the host: what devices get, and that both find the same in a row."""

import math
from array import array

import numpy as np
import pytest
from simulating import finished, fleet_of, rounds

import ternhost
from tern import wire
from tern.fixed import ONE
from tern.frames import FrameError
from tern.limits import Limits
from ternhost import DeviceModel, datasets
from ternhost.count.questions import Averaged
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.distributions.quantile_options import Options
from ternhost.learn.distributions.quantiles import Quantiles
from ternhost.learn.models.limits import NOTHING_UNUSUAL, Publication, first_unusual, limits_of
from ternhost.learn.schedule import Schedule
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


# Limits that a run of quantiles publishes

ALMOST_NO_NOISE = "20"  # an epsilon at which one report of 16 in 30 million is a wrong bin


def people(clients):
    """A table of clients: two numbers, evenly spread, and a category."""
    spread = np.linspace(-ONE, ONE, clients).astype(np.int16)
    numbers = np.stack([spread, spread[::-1] // 2], axis=1)
    categories = np.zeros((clients, 1), np.int16)
    return Table("people", ("age", "pay"), numbers, ("sex",), categories, (("f", "m"),))


def learner_of(table, schedule=None, **options):
    population = Population(clients=len(table.numeric), schedule=schedule)
    return Quantiles(Options(epsilon=ALMOST_NO_NOISE, **options), population, table)


@pytest.mark.parametrize("written", ["0.99", 0.99, "p99", np.float64(0.99)])
def test_the_published_quantile_is_estimated_with_the_others(written):
    options = Options(quantiles="0.5", publish=written)
    assert options.published_quantile() == 0.99
    assert options.parsed_quantiles() == (0.5, 0.99)


def test_a_published_quantile_that_is_wanted_anyway_is_estimated_once():
    assert Options(quantiles="0.5,0.99", publish="p99").parsed_quantiles() == (0.5, 0.99)


@pytest.mark.parametrize("wrong", ["", "1", "0", "often", "0.5,0.9", 2])
def test_what_is_no_quantile_cannot_be_published(wrong):
    with pytest.raises(UsageError, match="--publish"):
        Options(publish=wrong)


def test_devices_get_the_estimates_in_the_order_of_a_record():
    learner = finished(learner_of(people(4000), publish="0.9"))
    result = learner.result([])

    age, pay = (entry["quantiles"][-2]["value"] for entry in result["attributes"])
    assert age == pytest.approx(0.8, abs=0.05)
    assert pay == pytest.approx(0.4, abs=0.05)
    expected = [math.ceil(age * ONE), math.ceil(pay * ONE), wire.NO_LIMIT]
    assert learner.published == Averaged(wire.LIMITS, expected, wire.LIMITS_EXPONENT)
    assert result["published"] == {"quantile": 0.9, "limits": expected}


def test_a_number_that_nobody_was_asked_for_has_no_limit():
    learner = finished(learner_of(people(2000), publish="0.9", attributes="pay"))
    age, pay, sex = learner.published.parameters
    assert (age, sex) == (wire.NO_LIMIT, wire.NO_LIMIT)
    assert abs(pay) <= ONE


def entry_of(name, interval):
    """The entry of an attribute in a result, with a p90 of 0.5."""
    return {"name": name, "quantiles": [{"quantile": 0.9, "value": 0.5, "interval": interval}]}


def test_a_number_whose_quantile_may_be_anything_has_no_limit():
    publication = Publication(0.9, {"age": 0, "pay": 1}, width=2)
    vague = entry_of("age", [-1.0, 1.0])
    assert publication.limits([vague]) is None
    limits = publication.limits([vague, entry_of("pay", [0.25, 1.0])])
    assert limits.parameters == [wire.NO_LIMIT, ONE // 2]


def test_nothing_is_published_before_the_first_report():
    assert learner_of(people(100), publish="0.9").published is None


def test_nothing_is_published_unless_it_is_wanted():
    learner = finished(learner_of(people(100)))
    assert learner.published is None
    assert "published" not in learner.result([])


def test_a_served_fleet_gets_limits_of_all_rounds_so_far():
    learner = learner_of(people(2000), schedule=Schedule(rounds=2), publish="0.9")
    published = []
    for _ in rounds(learner, fleet_of(learner)):
        published.append(learner.published)
    of_first_round, of_both = published
    assert of_first_round != of_both
    assert learner.result([])["published"]["limits"] == of_both.parameters


def test_a_program_on_the_host_finds_the_rows_of_a_table_that_are_unusual(here):
    fleet = ternhost.Simulated(300)
    result = ternhost.collect(ternhost.Quantiles(epsilon=8, publish=0.9), fleet, data="wine")
    limits = result.limits
    rows = np.stack([limits, np.array(limits) + 1])  # at all limits, and above all
    assert ternhost.first_unusual(limits, rows).tolist() == [-1, 0]


def test_a_run_that_publishes_nothing_has_no_limits(here):
    result = ternhost.collect(ternhost.Quantiles(), ternhost.Simulated(100), data="wine")
    assert result.limits is None


def test_boards_get_a_quantile_of_all_records_of_a_fleet():
    """Where records are protected, the limit is that of all records of all devices, and devices get
    it when all levels have been counted.
    """
    spread = np.linspace(-ONE, ONE, 20_000).astype(np.int16)
    table = Table("delays", ("delay",), np.random.default_rng(2).permutation(spread)[:, None])
    options = Options(publish="p90", unit="record", run_epsilon="8", records=1000, epsilon="2")
    learner = Quantiles.suited(options, Population(clients=20), table)
    published = []
    for _ in rounds(learner, fleet_of(learner)):
        published.append(learner.published)

    assert published[:-1] == [None] * (len(published) - 1)
    (limit,) = published[-1].parameters
    assert limit / ONE == pytest.approx(0.8, abs=0.02)
    assert learner.result([])["published"]["limits"] == [limit]


def test_about_the_expected_share_of_a_fleet_is_above_its_limits():
    """Over 30 runs, at an epsilon of 2, the mean share of devices above the p95 is near 5 %. The
    share of a single run has a standard deviation of 0.02.
    """
    draw = np.random.default_rng(8)
    shares = []
    for seed in range(30):
        values = np.clip(draw.normal(-0.2, 0.2, 10_000), -1, 1)
        fixed = datasets.to_fixed(values[:, None])
        table = Table("delays", ("delay",), fixed)
        options = Options(epsilon="2", publish="0.95", seed=seed)
        learner = finished(Quantiles(options, Population(clients=10_000), table))
        found = first_unusual(learner.published.parameters, fixed)
        shares.append((found == 0).mean())
    assert np.mean(shares) == pytest.approx(0.05, abs=4 * 0.02 / math.sqrt(30))
