"""One answer of each device: who is asked what, what the model makes of public rows, and when it is
chosen.
"""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from simulating import ask, begin, finished, fleet_of, rounds

from tern.fixed import ONE
from tern.wire import ERR_MODEL, LOGISTIC, VALUES
from ternhost import datasets
from ternhost.count.rounds import Refusal
from ternhost.errors import UsageError
from ternhost.learn import choice
from ternhost.learn.base import Population, algorithms_of
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.one_answer.direct_options import Options
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import names_of
from ternhost.run.costs import costs
from ternhost.run.options import RunOptions
from ternhost.run.serve import serve
from ternhost.run.status import Watcher

SMALL = {"data": "synthetic-logistic", "epsilon": "4", "reports": 6000}


def devices_of_rounds(learner):
    """Run all rounds: the devices that each question was for, by its model."""
    devices = {LOGISTIC: [], VALUES: []}
    driver = fleet_of(learner)
    results = rounds(learner, driver)
    while not learner.done:
        for question, asked in learner.cohorts(driver.devices):
            devices[question.model] += list(asked)
        next(results)
    return devices


def test_each_device_is_asked_once_and_a_good_model_is_learned():
    learner = begin("direct", **SMALL)
    devices = devices_of_rounds(learner)
    assert sorted(devices[LOGISTIC] + devices[VALUES]) == list(range(1, 6001))
    assert learner.figures()["accuracy"] > 0.82


@pytest.mark.parametrize("more", [{}, {"public": "none"}, {"records": 5}, {"at_once": True}])
def test_the_smallest_question_is_for_about_as_many_devices_as_planned(more):
    learner = begin("direct", **SMALL, **more)
    planned = learner.fewest_asked
    sizes = []
    driver = fleet_of(learner)
    results = rounds(learner, driver)
    while not learner.done:
        for _question, asked in learner.cohorts(driver.devices):
            sizes.append(len(asked))
        next(results)
    assert min(sizes) == pytest.approx(planned, rel=0.2)


@pytest.mark.parametrize(("epsilon", "is_clear"), [("8", True), ("0.1", False)])
def test_the_second_half_is_asked_at_the_model_of_the_first_if_that_is_clear(epsilon, is_clear):
    """`direct` asks every device once. Half of them are asked at the model 0. If their answers
    stand out from their noise, as they do at epsilon 8, the other half is asked at the model that
    they make; else at 0 as well.
    """
    learner = begin("direct", **{**SMALL, "epsilon": epsilon})
    asked_at_a_model = []  # a truth value for each round: its model is not 0
    for result in rounds(learner, fleet_of(learner)):
        (cohort, *_) = result.cohorts
        asked_at_a_model.append(np.any(cohort.question.parameters))
    assert asked_at_a_model == [False, False, is_clear]


def test_without_public_rows_a_share_of_the_devices_tells_of_features():
    learner = begin("direct", **SMALL, moments=0.2)
    devices = devices_of_rounds(learner)
    assert sorted(devices[LOGISTIC] + devices[VALUES]) == list(range(1, 6001))
    assert len(devices[VALUES]) == pytest.approx(0.2 * 6000, rel=0.15)
    assert learner.figures()["accuracy"] > 0.8


# Public rows that do not suit


@pytest.fixture
def rows_in_another_unit(here):
    """A file of public rows whose features are a fifth of those of the records."""
    data = datasets.load(SMALL["data"])
    rows = data.features[data.public] / ONE
    rows[:, 1:] /= 5
    np.savetxt("fifth.csv", rows, "%.6f", delimiter=",")
    return "fifth.csv"


def test_rows_in_another_unit_are_dropped_and_the_result_tells_it(rows_in_another_unit):
    learner = finished(begin("direct", **SMALL, public=rows_in_another_unit))
    rows = learner.result([])["public_rows"]
    assert not rows["suited"]
    assert rows["dropped"] is not None
    assert rows["distance"] > 0.1


def test_right_rows_are_kept_and_the_result_tells_it():
    rows = finished(begin("direct", **SMALL)).result([])["public_rows"]
    assert rows["suited"]
    assert rows["dropped"] is None
    assert rows["distance"] < 0.02


def test_only_a_twelfth_of_the_devices_tell_of_features_where_the_rows_are_right():
    """They check the rows in the first half of the run, in which a share of .15 reports them."""
    devices = devices_of_rounds(begin("direct", **SMALL))
    assert 0 < len(devices[VALUES]) < 6000 / 12


def test_after_wrong_rows_a_share_of_the_devices_tells_of_features(rows_in_another_unit):
    learner = begin("direct", **SMALL, public=rows_in_another_unit)
    devices = devices_of_rounds(learner)
    assert sorted(devices[LOGISTIC] + devices[VALUES]) == list(range(1, 6001))
    assert len(devices[VALUES]) == pytest.approx(0.15 * 6000, rel=0.15)


def test_wrong_rows_do_not_make_the_model_worse_than_none(rows_in_another_unit):
    """The log-loss of a run differs by the noise of the reports, so that four runs are compared."""
    with_wrong_rows, without_rows = [], []
    for seed in range(4):
        options = {**SMALL, "seed": seed}
        wrong = finished(begin("direct", **options, public=rows_in_another_unit))
        without = finished(begin("direct", **options, moments=0.15))
        with_wrong_rows.append(wrong.figures()["log_loss"])
        without_rows.append(without.figures()["log_loss"])
    assert np.mean(with_wrong_rows) < np.mean(without_rows) + 0.03


def test_rows_of_another_part_of_the_population_are_dropped(here):
    """Of these rows the first feature is positive, so that their gradients show nothing odd."""
    data = datasets.load(SMALL["data"])
    rows = data.features[data.training] / ONE
    np.savetxt("part.csv", rows[rows[:, 1] > 0][:1000], "%.6f", delimiter=",")
    options = {**SMALL, "reports": 20_000, "public": "part.csv"}
    assert finished(begin("direct", **options)).result([])["public_rows"]["dropped"] == 1


def test_public_rows_that_are_too_few_are_dropped_after_the_first_round():
    """The data set has 16 features, of which 20 rows show hardly anything."""
    learner = finished(begin("direct", **SMALL, public="20"))
    assert learner.result([])["public_rows"]["dropped"] == 1


def test_boards_need_the_module_for_features_also_with_public_rows():
    """Rows that turn out not to suit are replaced by what the boards tell of their features."""
    assert "collect" in begin("direct", **SMALL).modules


def test_devices_that_lack_the_module_for_features_are_asked_for_gradients_alone(
    rows_in_another_unit,
):
    learner = begin("direct", **SMALL, public=rows_in_another_unit)
    driver = fleet_of(learner)
    result = ask(driver, learner.cohorts(driver.devices))
    cohorts = []
    for cohort in result.cohorts:
        if cohort.question.model == VALUES:
            cohort = replace(cohort, reports=0)
        cohorts.append(cohort)
    refusals = {1: Refusal(1, result.number, ERR_MODEL, 0)}
    learner.learn(replace(result, cohorts=cohorts, refusals=refusals), driver.devices)

    models = [question.model for question, _ in learner.cohorts(driver.devices)]
    assert models == [LOGISTIC]
    assert learner.result([])["public_rows"]["features_refused"]


# Descent


def test_the_second_half_goes_on_by_descent_where_the_rows_limit_the_model():
    """`direct` asks every device once, and makes the model from the answers and public rows. If it
    is these rows that limit the model, the second half of the devices answers for steps of gradient
    descent instead, which needs no rows: the model becomes better than without (`then="none"`).
    """
    options = {"data": "synthetic-logistic", "epsilon": "8", "reports": 40_000, "moments": 0.15}
    with_descent = begin("direct", **options)
    devices_asked = devices_of_rounds(with_descent)  # for gradients and for values of features
    without = finished(begin("direct", **options, then="none"))

    # Each of 40,000 devices once.
    assert sorted(devices_asked[LOGISTIC] + devices_asked[VALUES]) == list(range(1, 40_001))
    assert with_descent.figures()["log_loss"] < without.figures()["log_loss"] - 0.05


@pytest.mark.parametrize("classes", [{"epsilon": "20"}, {"epsilons": "15:0.5,20:0.5"}])
def test_descent_costs_what_the_run_says(classes):
    learner = finished(begin("direct", **{**SMALL, **classes}, then="fedsgd"))
    assert max(costs(learner)) < 15_000_000  # no projection of 16 values costs more
    assert max(costs(learner._descent)) <= max(costs(learner))


@pytest.mark.parametrize("more", [{}, {"moments": 0.3}, {"then": "fedsgd"}], ids=str)
def test_a_stopped_run_goes_on_from_its_state(more):
    """After every round another learner takes over the state: it has the same state and weights.
    The learner that is asked to save them ends as one that never was.
    """
    options = {**SMALL, "reports": 2000, **more}
    whole = finished(begin("direct", **options))

    parts = begin("direct", **options)
    for _ in rounds(parts, fleet_of(parts)):
        restored = begin("direct", **options)
        restored.restore(parts.state())
        assert restored.state() == parts.state()
        assert np.array_equal(restored.weights, parts.weights)

    assert np.array_equal(whole.weights, parts.weights)


def test_a_stopped_run_that_has_dropped_its_rows_goes_on_without_them(rows_in_another_unit):
    options = {**SMALL, "public": rows_in_another_unit}
    whole = begin("direct", **options)
    driver = fleet_of(whole)
    number = 0
    while not whole.done:
        stopped = begin("direct", **options)
        stopped.restore(json.loads(json.dumps(whole.state())))
        number += 1
        result = ask(driver, whole.cohorts(driver.devices), number)
        for learner in (whole, stopped):
            learner.learn(result, driver.devices)
        assert stopped.state() == whole.state()
        assert stopped.rounds == whole.rounds
    assert whole.rounds > 3


@pytest.mark.parametrize(
    "options",
    [
        {"data": "diabetes"},  # a regression
        {"public": "9", "moments": 0.1},
        {"data": "devices:5", "public": "9"},
        {"data": "iris", "public": "4"},  # for 5 features
        {"epsilon": "0.00001"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(UsageError):
        Direct(Options(**options), Population(clients=100, knows_records=False))


# The choice of an algorithm


def algorithm_chosen_for(named, **how):
    return choice.choose_algorithm(named, algorithms_of("train"), names_of(RunOptions), **how)


@pytest.mark.parametrize(
    ("named", "algorithm", "reason"),
    [
        ({}, "direct", "public rows are known"),
        ({"group": 500}, "fedsgd", "--group is an option of this algorithm"),
        ({"data": "diabetes"}, "fedsgd", "two classes"),
        ({"data": "devices:9"}, "fedsgd", "no public rows"),
        ({"unit": "record"}, "fedsum", ""),
        ({"unit": "record", "records": 500}, "fedsum", ""),
        ({"moments": 0.1}, "direct", "--moments is"),
        ({"records": 500}, "direct", "up to 500"),
        ({"records": 500, "public": "none"}, "direct", "up to 500"),
        ({"records": 1, "public": "none"}, "fedsgd", "no public rows"),
        ({"records": 10, "data": "diabetes"}, "fedsgd", "no public rows"),
        ({"records": 10, "data": "diabetes", "public": 50}, "direct", "--public is"),
        ({"records": 10, "data": "diabetes", "public": "none"}, "fedsgd", "no public rows"),
        ({"records": 10, "data": "iris", "model": "softmax"}, "direct", "up to 10"),
        ({"records": 10, "data": "digits", "model": "softmax"}, "fedsgd", "at most 128 weights"),
        ({"records": 10, "data": "devices:20:7"}, "fedsgd", "at most 128 weights"),
        ({"records": 10, "model": "svm"}, "fedsgd", "svm"),
        ({"records": 500, "group": 10}, "fedsgd", "--group"),
    ],
)
def test_train_chooses_by_data_and_options(named, algorithm, reason):
    name, given_reason = algorithm_chosen_for(named)
    assert name == algorithm
    assert reason in given_reason


def test_boards_that_may_lack_the_module_and_served_fleets_go_round_after_round():
    assert algorithm_chosen_for({}, made=False)[0] == "fedsgd"
    assert (
        algorithm_chosen_for({"then": "none"}, made=False)[0] == "direct"
    )  # an option of it is named
    assert algorithm_chosen_for({}, served=True)[0] == "fedsgd"


def test_a_served_fleet_is_asked_until_each_device_has_answered(here):
    """`direct` takes one answer of each device. Served (run for a standing fleet), it asks half of
    the devices a round, and after two rounds has asked no device twice.
    """
    learning = Options(data="iris", epsilon="1")
    schedule = Schedule(rounds=2, share=0.5)
    options = RunOptions("direct", learning, "inprocess:1", Terms(deadline=60.0), schedule)

    with serve(options, store="s.sqlite", watcher=Watcher()) as run:
        result = run.run()
        asked = Counter()  # how often, by device
        for of_round in run.store.rounds():
            for cohort in of_round.cohorts:
                asked.update(cohort.devices)

    assert set(asked.values()) == {1}
    assert result["reports"] == len(asked)
