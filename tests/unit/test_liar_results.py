"""Results say how far lying devices could have moved them, for JSON and in words."""

import math

import numpy as np
import pytest

import ternhost
from tern import card as cards
from ternhost import Direct, FedAvg, FedSGD, FedSum, Means, Quantiles, Simulated, Values
from ternhost.learn import liar_results
from ternhost.privacy import certify


def entry(length=0.5, relative=2.0, reports=200):
    return {"liars": {"reports": reports, "liars": 2, "length": length, "relative": relative}}


def test_a_bound_is_compared_with_the_length_of_the_estimate():
    moved = liar_results.of_length(1.0, np.array([3.0, 4.0]), reports=200)
    assert moved == {"reports": 200, "liars": 2, "length": 1.0, "relative": 0.2}


@pytest.mark.parametrize("length", [math.nan, math.inf])
def test_no_bound_is_none(length):
    moved = liar_results.of_length(length, np.array([1.0]), reports=1)
    assert moved["length"] is None
    assert moved["relative"] is None


def test_a_value_without_reports_counts_as_nothing():
    moved = liar_results.of_length(1.0, np.array([2.0, np.nan]), reports=200)
    assert moved["relative"] == 0.5


def test_a_training_has_its_largest_bound():
    history = [entry(length=0.5), {"accuracy": 1}, entry(length=0.75)]
    assert liar_results.of_history(history)["length"] == 0.75


def test_a_training_has_no_bound_if_a_round_has_none():
    history = [entry(), entry(length=None, relative=None)]
    assert liar_results.of_history(history)["length"] is None


def test_rounds_without_bounds_say_nothing():
    assert liar_results.of_history([{"accuracy": 1}]) is None


def test_a_result_of_an_earlier_version_says_nothing():
    assert liar_results.training_lines({"weights": []}) == []
    assert liar_results.collecting_lines({"attributes": []}) == []


def moved(name, bounds, reports=1000):
    return liar_results.of_attribute(name, reports, np.array(bounds))


def result_of(attributes, entries):
    return {"liars": liar_results.of_attributes(attributes), "attributes": entries}


def test_the_mean_that_lies_move_farthest_is_named():
    result = result_of(
        [moved("age", [0.1]), moved("pulse", [0.2])],
        [{"name": "age", "mean": 0.0}, {"name": "pulse", "mean": 0.0}],
    )
    (line,) = liar_results.collecting_lines(result)
    assert "pulse" in line
    assert "0.2" in line


def test_a_bound_is_in_the_unit_of_its_attribute():
    """A tenth of the range from -1 to 1 is a tenth of half the range from 30 to 50."""
    entry = {"name": "temperature", "mean": 0.0, "low": 30, "high": 50, "unit": "degC"}
    (line,) = liar_results.collecting_lines(result_of([moved("temperature", [0.1])], [entry]))
    assert "1 degC" in line


def test_means_and_shares_have_a_line_each():
    result = result_of(
        [moved("age", [0.1]), moved("colour", [0.2, 0.3])],
        [{"name": "age", "mean": 0.0}, {"name": "colour", "frequencies": [0.5, 0.5]}],
    )
    assert len(liar_results.collecting_lines(result)) == 2


@pytest.mark.parametrize(("reports", "subject"), [(99, "one lying device"), (100, "1 %")])
def test_few_reports_have_one_liar(reports, subject):
    result = result_of([moved("age", [0.1], reports)], [{"name": "age", "mean": 0.0}])
    (line,) = liar_results.collecting_lines(result)
    assert line.startswith(subject)


# Runs


@pytest.mark.parametrize(
    ("learner", "fleet"),
    [
        (FedSGD(reports=1000, group=250), Simulated(1000)),
        (FedSGD(reports=1000, group=250, mechanism="projection"), Simulated(1000)),
        (FedAvg(rounds=4, clients=60), Simulated(60)),
        (FedSum(records=10), Simulated(20)),
        (Direct(reports=1000), Simulated(1000)),
    ],
)
@pytest.mark.usefixtures("here")
def test_every_round_of_a_training_has_the_bound_of_its_gradient(learner, fleet):
    result = ternhost.train(learner, fleet, data="breast-cancer")
    with_reports = [entry for entry in result["history"] if entry["reports"]]
    assert with_reports
    for entry in with_reports:
        assert entry["liars"]["length"] > 0
        # Some devices of `direct` report about their features instead.
        assert 0 < entry["liars"]["reports"] <= entry["reports"]


@pytest.mark.usefixtures("here")
def test_the_bound_of_a_mean_follows_from_the_card_and_the_number_of_reports():
    """With n reports, l lies and the largest value v of a symbol, it is l / (n - l) times the larger
    distance of the mean from v and from -v.
    """
    result = ternhost.collect(Values(epsilon="4"), Simulated(3000), data="wine")
    card = cards.decode(bytes.fromhex(result["parts"][0]["card"]))
    largest = float(max(certify.values(card)))
    for entry, moved in zip(result["attributes"], result["liars"]["attributes"], strict=True):
        reports = entry["reports"]
        lies = max(1, reports // 100)
        expected = lies / (reports - lies) * (largest + abs(entry["mean"]))
        assert moved["bounds"] == [pytest.approx(expected, rel=1e-6)]


@pytest.mark.usefixtures("here")
def test_a_lying_device_among_few_can_move_a_mean_of_sums():
    result = ternhost.collect(Means(records=50, run_epsilon="8"), Simulated(20), data="flights")
    for moved in result["liars"]["attributes"]:
        assert moved["liars"] == 1
        assert moved["bounds"][0] > 0


@pytest.mark.usefixtures("here")
def test_quantiles_have_a_range_in_which_they_are_without_the_lies():
    learner = Quantiles(quantiles="0.25,median", attributes="alcohol", epsilon="4")
    result = ternhost.collect(learner, Simulated(3000), data="wine")
    (entry,) = result["attributes"]
    (moved,) = result["liars"]["attributes"]
    assert [each["quantile"] for each in moved["quantiles"]] == [0.25, 0.5]
    for estimate, without_lies in zip(entry["quantiles"], moved["quantiles"], strict=True):
        assert without_lies["low"] <= estimate["value"] <= without_lies["high"]
