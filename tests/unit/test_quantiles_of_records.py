"""Quantiles and histograms of devices with many records each, of which units are protected."""

import json

import numpy as np
import pytest
from simulating import ask, finished, fleet_of

from ternhost import datasets, vectorised
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn import liars
from ternhost.learn.base import Population
from ternhost.learn.distributions.quantiles_of_records import QuantilesOfRecords
from ternhost.learn.schedule import Schedule
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO

HARDLY_ANY_NOISE = {"run_epsilon": "900", "delta": "0.5"}
DEVICES, RECORDS = 10, 200


def skewed(n, seed=1):
    """A column of numbers in [-1, 1], most of them small."""
    return 2 * np.random.default_rng(seed).beta(1.5, 6, n) - 1


def table_of(*columns, **more):
    numbers = datasets.to_fixed(np.stack(columns, axis=1))
    names = tuple(f"x{i}" for i in range(len(columns)))
    return Table("numbers", names, numbers, **more)


def quantiles_of(table, devices=None, **options):
    options = {"unit": "record", "quantiles": "0.5", **options}
    return QuantilesOfRecords(
        QuantilesOfRecords.Options(**options), Population(clients=devices), table
    )


def cumulative_of(algorithm):
    """The cumulative shares of the first attribute: estimated and true, as arrays."""
    cumulative = algorithm.result([])["attributes"][0]["cumulative"]
    return np.array(cumulative["shares"]), np.array(cumulative["true"])


# What devices compute


@pytest.mark.parametrize("run_epsilon", ["0.05", "1", "900"])
@pytest.mark.parametrize(
    ("attributes", "records", "unit"),
    [(1, 1, "record"), (1, 500, "record"), (7, 500, "record"), (3, 500, 7), (7, 600, 200)],
)
@pytest.mark.parametrize("are_equal", [True, False])
def test_devices_round_no_count(attributes, records, unit, run_epsilon, are_equal):
    """A unit whose records are all in the same bins has the longest vector."""
    columns = np.random.default_rng(2).uniform(-1, 1, (attributes, records))
    if are_equal:
        columns[:] = 0.3
    algorithm = quantiles_of(
        table_of(*columns), 1, records=records, unit=unit, run_epsilon=run_epsilon
    )
    for part in algorithm._parts:
        card = part.design.card
        question = algorithm._question(part)
        flags = np.array(question.parameters)
        parameters = vectorised.ModelParameters(question.model, flags, question.exponent)
        of_device = algorithm.holdings.records[algorithm.holdings.order][None]
        steps = vectorised.sums.sums(card, parameters, of_device, categories=part.bins)[0]
        expected = []
        for column in part.columns:
            bins = vectorised.bins(of_device[0, :, column], part.exponent)
            expected.append(np.bincount(bins, minlength=part.bins))
        counts = steps[:-1] * sums.grid(sums.of(card), question.range)
        assert (counts == np.concatenate(expected)).all()


def test_the_tally_counts_records_where_each_is_a_unit():
    algorithm = quantiles_of(table_of(skewed(50)), 1, records=50)
    (part, *_) = algorithm._parts
    question = algorithm._question(part)
    parameters = vectorised.ModelParameters(question.model, np.array([1]), question.exponent)
    of_device = algorithm.holdings.records[None]
    steps = vectorised.sums.sums(part.design.card, parameters, of_device, categories=part.bins)
    assert steps[0, -1] == 50 * part.tally


# The plan


def test_each_level_asks_for_every_attribute_once():
    algorithm = quantiles_of(table_of(*np.zeros((60, 40))), 4, records=10, bins=64)
    asked = {4: [], 16: [], 64: []}
    for part in algorithm._parts:
        asked[part.bins] += part.columns
    assert all(columns == list(range(60)) for columns in asked.values())


def test_all_levels_share_the_budget():
    algorithm = quantiles_of(table_of(*np.zeros((5, 40))), 4, records=10)
    costs = [part.design.cost for part in algorithm._parts]
    assert 0.999 * algorithm._budget < sum(costs) <= algorithm._budget


def test_attributes_that_nobody_wants_are_not_asked_for():
    table = table_of(skewed(40), skewed(40), skewed(40))
    algorithm = quantiles_of(table, 4, records=10, attributes="x1")
    assert {part.columns for part in algorithm._parts} == {(1,)}


@pytest.mark.parametrize(("run_epsilon", "bins"), [("4", 64), ("0.05", 16)])
def test_there_are_fewer_bins_where_noise_is_large(run_epsilon, bins):
    algorithm = quantiles_of(table_of(skewed(1000)), 10, records=100, run_epsilon=run_epsilon)
    assert algorithm._parts[-1].bins == bins


@pytest.mark.parametrize(
    ("option", "value"), [("bins", 256), ("unit", 32769), ("run_epsilon", "0.001")]
)
def test_counts_that_devices_cannot_make_are_refused(option, value):
    options = {"records": 40_000, option: value}
    with pytest.raises(UsageError) as refused:
        quantiles_of(table_of(*np.zeros((60, 40_000))), 1, **options)
    assert f"--{option.replace('_', '-')}" in str(refused.value)


def test_a_fleet_that_is_served_without_an_end_is_refused():
    served = Population(schedule=Schedule(every=1.0), knows_records=False)
    options = QuantilesOfRecords.Options(unit="record")
    with pytest.raises(UsageError):
        QuantilesOfRecords(options, served, table_of(skewed(40)))


# Estimates


@pytest.mark.parametrize("unit", ["record", "10"])
@pytest.mark.parametrize("devices", [1, DEVICES])
def test_one_device_or_many_show_the_distribution_of_their_records(devices, unit):
    values = skewed(DEVICES * RECORDS)
    algorithm = quantiles_of(
        table_of(values), devices, records=len(values) // devices, unit=unit, **HARDLY_ANY_NOISE
    )
    estimated, true = cumulative_of(finished(algorithm))
    assert estimated == pytest.approx(true, abs=0.02)


def test_the_quantile_is_that_of_the_records():
    values = skewed(DEVICES * RECORDS)
    algorithm = quantiles_of(table_of(values), DEVICES, records=RECORDS, **HARDLY_ANY_NOISE)
    (quantile,) = finished(algorithm).result([])["attributes"][0]["quantiles"]
    assert quantile["true"] == pytest.approx(np.median(values), abs=0.002)
    assert quantile["value"] == pytest.approx(quantile["true"], abs=0.02)


def test_a_device_can_count_65535_equal_records():
    algorithm = quantiles_of(table_of(np.ones(65535)), 1, records=65535, **HARDLY_ANY_NOISE)
    result = finished(algorithm).result([])
    assert result["records"] == pytest.approx(65535, abs=200)
    assert result["attributes"][0]["histogram"]["shares"][-1] == pytest.approx(1, abs=0.005)


def test_estimates_are_unbiased_and_their_intervals_hold():
    """The noise of a cumulative share is about .03, and that of the number of records about 90 of
    2,000.
    """
    runs = 40
    algorithm = quantiles_of(table_of(skewed(DEVICES * RECORDS)), DEVICES, records=RECORDS)
    initial_state = algorithm.state()
    deviations, shares_covered, medians_covered, record_errors = [], [], [], []
    for seed in range(1, runs + 1):
        algorithm.restore(initial_state)
        result = finished(algorithm, fleet_of(algorithm, seed=seed)).result([])
        record_errors.append((result["records"] - DEVICES * RECORDS) / result["records_error"])
        (entry,) = result["attributes"]
        cumulative, (median,) = entry["cumulative"], entry["quantiles"]
        low, high = np.transpose(cumulative["intervals"])
        true = np.array(cumulative["true"])
        deviations.append(np.array(cumulative["shares"]) - true)
        shares_covered.append(((low <= true) & (true <= high))[:-1])
        medians_covered.append(median["interval"][0] <= median["true"] <= median["interval"][1])

    standard_errors = np.std(deviations, axis=0) / np.sqrt(runs)
    assert (np.abs(np.mean(deviations, axis=0)) < 4.5 * standard_errors + 1e-9).all()
    assert 0.9 < np.mean(shares_covered) < 0.99
    assert np.mean(medians_covered) > 0.85
    assert 0.7 < np.std(record_errors) < 1.3  # within 2.7 standard errors of 1


def owned(counts):
    """A table of devices with so many records each; the records of later ones are larger."""
    owners = np.repeat(np.arange(len(counts)), counts)
    names = tuple(f"home {i}" for i in range(len(counts)))
    return table_of(owners / len(counts), owners=owners, owner_names=names)


@pytest.mark.parametrize("unit", ["record", "32"])
def test_devices_with_different_numbers_of_records_count_by_their_records(unit):
    """Units of 32 records would be 2 of each device with 33 records."""
    counts = [33] * 30 + [320]
    algorithm = quantiles_of(owned(counts), None, unit=unit, **HARDLY_ANY_NOISE)
    result = finished(algorithm).result([])
    assert result["records"] == pytest.approx(sum(counts), rel=0.04)


def test_levels_that_fewer_devices_answered_count_as_if_all_had():
    algorithm = quantiles_of(
        table_of(skewed(DEVICES * RECORDS)), DEVICES, records=RECORDS, **HARDLY_ANY_NOISE
    )
    driver = fleet_of(algorithm)
    for number in range(1, algorithm.rounds + 1):
        ((question, devices),) = algorithm.cohorts(driver.devices)
        if number == algorithm.rounds:
            devices = devices[1:]
        algorithm.learn(ask(driver, [(question, devices)], number), devices)
    assert algorithm.result([])["records"] == pytest.approx(DEVICES * RECORDS, rel=0.01)


def unanswered(algorithm, missed):
    """The result of a run of which nobody answered the rounds `missed`."""
    finished(algorithm)
    for number in missed:
        answer = algorithm._answers[number]
        nothing = np.zeros(len(answer["totals"])).tolist()
        algorithm._answers[number] = {"totals": nothing, "errors": nothing, "reports": 0}
    return algorithm.result([])


def test_a_level_that_nobody_answered_leaves_a_coarser_histogram():
    algorithm = quantiles_of(table_of(skewed(400)), 4, records=100, bins=64)
    (entry,) = unanswered(algorithm, missed=[2])["attributes"]
    assert len(entry["histogram"]["shares"]) == 16
    assert [level["reports"] for level in entry["levels"]] == [4, 4, 0]


def test_a_run_that_nobody_answered_has_no_attributes():
    algorithm = quantiles_of(table_of(skewed(400)), 4, records=100, bins=64)
    result = unanswered(algorithm, missed=[0, 1, 2])
    assert (result["attributes"], result["records"]) == ([], 0)


def test_a_run_goes_on_from_its_stored_state():
    table = table_of(skewed(400))
    whole = finished(quantiles_of(table, 4, records=100, bins=64))
    resumed = quantiles_of(table, 4, records=100, bins=64)
    driver = fleet_of(resumed)
    resumed.learn(ask(driver, resumed.cohorts(driver.devices), 1), driver.devices)
    state = json.loads(json.dumps(resumed.state()))
    resumed = quantiles_of(table, 4, records=100, bins=64)
    resumed.restore(state)
    for number in (2, 3):  # 16 and 64 bins
        resumed.learn(ask(driver, resumed.cohorts(driver.devices), number), driver.devices)
    assert resumed.result([]) == whole.result([])


def test_a_run_keeps_its_bins_if_the_fleet_has_grown():
    table = table_of(skewed(4000))
    of_few = quantiles_of(table, 4, records=100)
    of_many = quantiles_of(table, 40, records=100)
    assert of_many.state() != of_few.state()
    of_many.restore(of_few.state())
    assert [part.bins for part in of_many._parts] == [part.bins for part in of_few._parts]


def test_the_result_says_what_was_spent():
    algorithm = quantiles_of(table_of(skewed(400)), 4, records=100, run_epsilon="2")
    result = finished(algorithm).result([])
    assert sums.epsilon_of(round(result["rho"] * MICRO), result["delta"]) <= 2
    assert result["unit"] == 1


# What lies can do


def attacked(state, parts, random):
    """The state of a run after one more device has reported any symbols."""
    answers = []
    for part, answer in zip(parts, state["answers"], strict=True):
        body = sums.of(part.design.card)
        steps = random.choice(liars.range_of_sums(body), size=len(answer["totals"]))
        steps[:-1] *= sums.grid(body, 0)
        factor = np.sqrt(1 + 1 / answer["reports"])  # of errors, by one more report
        answers.append(
            {
                "totals": (np.array(answer["totals"]) + steps).tolist(),
                "errors": (factor * np.array(answer["errors"])).tolist(),
                "reports": answer["reports"] + 1,
            }
        )
    return {**state, "answers": answers}


def test_lies_of_a_device_leave_quantiles_and_shares_within_their_bounds():
    """The honest devices are 199 of 200."""
    table = table_of(skewed(199 * 20), skewed(199 * 20, seed=2))
    algorithm = finished(quantiles_of(table, 199, records=20, run_epsilon="20"))
    honest_state, random = algorithm.state(), np.random.default_rng(3)
    honest = algorithm.entries()
    widths = []
    for _ in range(20):
        algorithm.restore(attacked(honest_state, algorithm._parts, random))
        for entry, of_honest, moved in zip(
            algorithm.entries(), honest, algorithm._moved_attributes(), strict=True
        ):
            assert moved["liars"] == 2  # 1 % of 200
            ((low, high),) = [(each["low"], each["high"]) for each in moved["quantiles"]]
            assert low <= of_honest["quantiles"][0]["value"] <= high
            widths.append(high - low)
            shares = np.array(entry["cumulative"]["shares"][:-1])
            honest_shares = np.array(of_honest["cumulative"]["shares"][:-1])
            bounds = np.array(moved["bounds"], float)
            assert (np.abs(shares - honest_shares) <= bounds).all()
    assert np.mean(widths) < 1.5  # of 2: the ranges tell something


def test_a_run_shows_what_it_has_counted_so_far():
    algorithm = quantiles_of(table_of(skewed(400)), 4, records=100, bins=64)
    driver = fleet_of(algorithm)
    assert algorithm.entries() == []
    bins = []
    for number in (1, 2, 3):
        algorithm.learn(ask(driver, algorithm.cohorts(driver.devices), number), driver.devices)
        (entry,) = algorithm.entries()
        bins.append(len(entry["histogram"]["shares"]))
    assert bins == [4, 16, 64]
