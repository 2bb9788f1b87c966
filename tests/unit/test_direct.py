"""One answer of each device: who is asked what, what the model makes of public rows, and when it is
chosen.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from harness import in_process  # noqa: F401
from simulating import begin, finished, fleet_of, rounds

from tern.wire import LOGISTIC, VALUES
from ternhost import datasets
from ternhost.errors import UsageError
from ternhost.learn import choice
from ternhost.learn.base import Population, algorithms_of
from ternhost.learn.direct import Direct, Options
from ternhost.learn.observations import DIRECTION
from ternhost.learn.parameters import quantise
from ternhost.learn.public import read
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import names_of
from ternhost.run.begin import Place
from ternhost.run.costs import costs
from ternhost.run.options import RunOptions
from ternhost.run.report import training
from ternhost.run.run import Run
from ternhost.run.serve import serve
from ternhost.run.status import Watcher
from ternhost.store.reader import Reader
from ternhost.watch.page import elements

SMALL = {"dataset": "synthetic-logistic", "epsilon": "4", "reports": 6000}


def asked(learner, count):
    """The (model, device) of each question of the next round."""
    return [
        (question.model, device)
        for question, devices in learner.cohorts(range(1, count + 1))
        for device in devices
    ]


def test_each_device_is_asked_once_and_learns_a_good_model():
    learner, devices = begin("direct", **SMALL), Counter()
    for result in rounds(learner, fleet_of(learner)):
        assert (result.reports, result.ended) == (3000, "complete")
        devices.update({cohort.question.model: cohort.reports for cohort in result.cohorts})
    assert devices == {LOGISTIC: 6000}
    assert learner.figures()["accuracy"] > 0.82
    halves = begin("direct", **SMALL)
    first = asked(halves, 6000)
    halves._round = 1
    assert sorted(device for _, device in first + asked(halves, 6000)) == list(range(1, 6001))


def test_the_second_half_is_asked_at_the_model_of_the_first_if_that_is_clear():
    learner = begin("direct", **{**SMALL, "epsilon": "8"})
    driver, weights = fleet_of(learner), []
    for result in rounds(learner, driver):
        weights.append(np.abs(result.cohorts[0].question.parameters).max())
    assert weights[0] == 0 < weights[1]
    unsure = begin("direct", **{**SMALL, "epsilon": "0.1"})
    assert [
        np.any(result.cohorts[0].question.parameters) for result in rounds(unsure, fleet_of(unsure))
    ] == [False] * 2


def test_rows_of_another_population_are_left_out_and_the_result_says_so(tmp_path):
    data = datasets.load("flights-planned")
    rows = data.features[data.training[::290]] / 16384  # in order of time
    cosine = data.feature_names.index("month_cos")
    january = data.features[data.training]
    january = january[january[:, cosine] == january[:, cosine].max()][:1000] / 16384
    found = {}
    for name, public in (("right", rows), ("january", january)):
        np.savetxt(tmp_path / f"{name}.csv", public, delimiter=",")
        learner = finished(
            begin(
                "direct",
                dataset="flights-planned",
                epsilon="4",
                reports=20_000,
                public=str(tmp_path / f"{name}.csv"),
            )
        )
        found[name] = (
            learner.result([]),
            "\n".join(learner.summary({**learner.result([]), **AFTER})),
        )
    assert found["right"][0]["public_rows"]["suited"]
    assert found["right"][0]["public_rows"]["misfit"] < 3
    assert not found["january"][0]["public_rows"]["suited"]
    assert found["january"][0]["public_rows"]["misfit"] > 5
    assert "are of another population" in found["january"][1]
    assert "the second moment of the features is that of the rows of" in found["right"][1]
    alone = finished(
        begin("direct", dataset="flights-planned", epsilon="4", reports=20_000, moments=0.0)
    )
    assert found["january"][0]["auc"] > alone.figures()["auc"] - 0.03
    assert found["right"][0]["auc"] > 0.67


AFTER = {"reports": 1, "rounds": 2, "seconds": 1.0, "epsilon_paid": 4.0, "options": {}}


def test_without_public_rows_a_share_of_the_devices_tells_of_features():
    learner = begin("direct", **SMALL, moments=0.2)
    assert learner.rounds == 6
    models = Counter(model for model, _ in asked(learner, 6000))
    assert models[LOGISTIC] + models[VALUES] == 1000
    assert 150 < models[VALUES] < 250
    finished(learner)
    assert learner.figures()["accuracy"] > 0.8
    result = learner.result([])
    assert result["public_rows"]["from"] == ""
    assert len(result["weights_error"]) == 16
    direction = learner._features.gradient
    features = learner.dataset.features[learner.dataset.training] / 16384
    true = (features / np.linalg.norm(features, axis=1)[:, None]).mean(axis=0)
    assert np.abs(direction - true).max() < 5 * learner._features.variance**0.5


def test_the_second_half_goes_on_by_descent_where_the_rows_limit_the_model():
    options = {"dataset": "synthetic-logistic", "epsilon": "8", "reports": 40_000, "moments": 0.15}
    without, learner = finished(begin("direct", **options, then="none")), begin("direct", **options)
    results, devices, entries = rounds(learner, fleet_of(learner)), [], []
    while not learner.done:
        devices += [device for _, device in asked(learner, 40_000)]
        next(results)
        entries.append(learner.chosen())
    assert sorted(devices) == list(range(1, 40_001))
    assert learner.figures()["log_loss"] < without.figures()["log_loss"] - 0.05
    assert learner.figures()["auc"] > without.figures()["auc"] - 0.005
    assert (learner.rounds, len(entries)) == (43, 43)
    result = learner.result(entries)
    assert result["then"] == {"algorithm": "fedsgd", "rounds": 40}
    assert sum(result["taus"].values()) == 40
    summary = "\n".join(learner.summary({**result, **AFTER}))
    assert "the second half of the devices went on by descent, in 40 rounds" in summary
    assert without.result([])["then"] is None


def test_a_run_tells_how_many_rounds_it_has_by_now(tmp_path):
    options = RunOptions("direct", Options(dataset="iris", then="fedsgd"), "simulated:2000")
    with Run.begin(options, Place("r", tmp_path)) as run, Reader(run.files.store) as reader:
        assert reader.snapshot().run.planned == 2
        result = run.run()
        now = reader.snapshot()
    assert now.run.planned == now.run.rounds == result["rounds"] == 3
    assert result["optimiser"] == "direct, then averaging"
    assert "reported values of the last round" in training._gradient(result)[1]
    elements.first(now)


def test_descent_takes_no_device_that_good_rows_or_few_answers_need():
    learner = finished(begin("direct", **SMALL))
    assert (learner.rounds, learner.result([])["then"]) == (2, None)
    few = finished(begin("direct", **{**SMALL, "epsilon": "1"}, moments=0.15))
    assert np.array_equal(
        few.weights, quantise(few._observations.weights).values
    )  # made-up rows do not tell its length
    assert (few.rounds, few.result([])["then"]) == (6, None)
    assert finished(begin("direct", **SMALL, then="fedsgd")).rounds == 7


def test_descent_begins_after_half_of_any_number_of_devices():
    for devices in (2, 3, 5, 7):
        learner = finished(
            begin("direct", dataset="iris", then="fedsgd", moments=0.2, reports=devices)
        )
        assert learner._second_half == slice(devices // 2, devices)
        assert learner._descent.options.reports == devices - devices // 2, devices


def test_descent_costs_what_the_run_says():
    for more in ({"epsilon": "20"}, {"epsilons": "15:0.5,20:0.5"}):
        learner = finished(begin("direct", **{**SMALL, "epsilon": "2", **more}, then="fedsgd"))
        assert max(costs(learner)) < 15_000_000, "no projection of 16 values costs more"
        assert max(costs(learner._descent)) <= max(costs(learner))
        assert len(learner._descent.designs) == len(learner.designs)


def test_the_fit_knows_each_clip_of_a_device():
    learner = begin("direct", dataset="flights-planned", epsilon="4", reports=20_000)
    results = rounds(learner, fleet_of(learner))
    question = next(results).cohorts[0].question
    seen = learner._observations._answers[0]
    assert (seen.tau, seen.radius) == (2.0**-question.range, DIRECTION)
    steep = np.array([[0.9, 0.1], [0.1, 0.1]])
    assert np.abs(replace(seen, radius=0.6).clipped(steep)).max() == seen.tau == 0.5


def test_a_fit_does_not_overshoot():
    options = {"dataset": "breast-cancer", "epsilon": "4", "reports": 300_000, "moments": 0.15}
    learner = finished(begin("direct", **options, seed=3, then="none"))
    assert learner.figures()["accuracy"] > 0.9


def test_a_stopped_run_goes_on_from_its_state():
    for more in ({}, {"moments": 0.3}, {"epsilon": "0.5"}, {"then": "fedsgd"}):
        options = {**SMALL, "reports": 2000, **more}
        whole = finished(begin("direct", **options))
        parts = begin("direct", **options)
        driver = fleet_of(parts)
        for number, _ in enumerate(rounds(parts, driver), 1):
            again = begin("direct", **options)
            again.restore(parts.state())
            assert again.state() == parts.state()
            assert np.array_equal(again.weights, parts.weights), number
        assert np.array_equal(whole.weights, parts.weights)


def test_a_coordinate_is_asked_where_that_promises_more():
    narrow = begin("direct", dataset="synthetic-logistic", epsilon="0.5", reports=20_000)
    assert (narrow.designs[0].mechanism, narrow._range) == ("three-outputs", 4)
    assert narrow.modules == ()
    whole = begin("direct", dataset="flights-planned", epsilon="0.5", reports=20_000)
    assert (whole.designs[0].mechanism, whole.modules) == ("projection", ("projection",))
    assert begin("direct", dataset="iris", epsilon="1", reports=500, public="none").modules == (
        "collect",
        "projection",
    )
    learned = finished(narrow)
    assert learned.figures()["accuracy"] > 0.68


def test_personalised_budgets_are_combined():
    options = {"dataset": "flights-planned", "reports": 8000, "epsilons": "1:0.5,4:0.5"}
    learner = begin("direct", **options)
    driver = fleet_of(learner)
    for result in rounds(learner, driver):
        assert len(result.cohorts) == 2
        cards = [cohort.card.epsilon for cohort in result.cohorts]
        assert cards == [1_000_000, 4_000_000]
    assert learner.figures()["auc"] > 0.62


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "svm"}, "learns no svm model"),
        ({"dataset": "diabetes"}, "learns no linear model"),
        ({"public": "9", "moments": 0.1}, "--moments takes the place"),
        ({"moments": 1.0}, "--moments must be"),
        ({"reports": 0}, "--reports must be"),
        ({"public": "nowhere.csv"}, "cannot read nowhere.csv"),
        ({"dimension": 5, "public": "9"}, "--public needs a file"),
        ({"then": "hiera"}, "--then"),
        ({"dataset": "iris", "public": "4"}, "4 public rows for 5 features"),
        ({"public": "0"}, "0 public rows"),
        ({"then": "fedsgd", "reports": 1}, "no second half"),
        ({"epsilon": "0.00001"}, "too little for a projection"),
    ],
)
def test_what_makes_no_sense_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        Direct(Options(**options), Population(clients=100, knows_records=False))


@pytest.mark.parametrize(
    ("named", "algorithm", "words"),
    [
        ({}, "direct", "public rows are known"),
        ({"dataset": "flights-planned"}, "direct", "two classes"),
        ({"group": 500}, "fedsgd", "--group is an option of it"),
        ({"mechanism": "pm-sub"}, "fedsgd", "--mechanism"),
        ({"dataset": "diabetes"}, "fedsgd", "two classes"),
        ({"model": "softmax"}, "fedsgd", "two classes"),
        ({"dimension": 9}, "fedsgd", "no public rows"),
        ({"dimension": 9, "public": "a.csv"}, "direct", ""),
        ({"dataset": "iris", "public": "none"}, "fedsgd", "to be no public rows"),
        ({"unit": "record"}, "fedsum", ""),
        ({"dataset": "iris", "public": "none", "moments": 0.1}, "direct", "--moments is"),
        ({"then": "none"}, "direct", "--then is an option of it"),
        ({"moments": 0.1}, "direct", "--moments is"),
        ({"rounds": 9}, "fedsgd", "--rounds is an option of it"),
        ({"moments": 0.1, "rounds": 9}, "fedsgd", "--rounds"),
    ],
)
def test_train_chooses_by_data_and_options(named, algorithm, words):
    chosen, reason = choice.choose(named, algorithms_of("train"), names_of(RunOptions))
    assert chosen == algorithm
    assert words in reason


def test_boards_that_may_lack_the_module_go_round_after_round():
    chosen, reason = choice.choose({}, algorithms_of("train"), names_of(RunOptions), made=False)
    assert chosen == "fedsgd"
    assert "--algorithm direct" in reason
    chosen, reason = choice.choose(
        {"then": "none"}, algorithms_of("train"), names_of(RunOptions), made=False
    )
    assert (chosen, "--then is an option of it" in reason) == ("direct", True)
    served = choice.choose({}, algorithms_of("train"), names_of(RunOptions), served=True)
    assert served == ("fedsgd", "")


def test_public_rows_have_the_constant_first_and_may_have_a_head_and_labels(tmp_path):
    iris = datasets.load("iris", classes=True)
    rows = iris.records(iris.public) / 16384
    path = tmp_path / "rows.csv"
    np.savetxt(
        path,
        rows,
        delimiter=",",
        header=",".join((*iris.feature_names, "species")),
        comments="\ufeff",
    )
    assert np.array_equal(read(path, iris.dimension), rows[:, :-1])
    np.savetxt(path, rows[:, 1:], delimiter=",")
    with pytest.raises(
        UsageError, match="record 1: the first of the 5 features must be the constant 1"
    ):
        read(path, iris.dimension)


def test_an_option_of_the_other_algorithm_is_refused_with_the_reason_of_the_choice():
    given = {"dataset": "iris", "fleet": "simulated:100"}
    parsed = RunOptions.parse(None, {**given, "public": "none"}, algorithms_of("train"))
    assert parsed.algorithm == "fedsgd"
    with pytest.raises(
        UsageError, match=r"this run is fedsgd: .*--group is an option of it"
    ) as refused:
        RunOptions.parse(None, {**given, "public": "30", "group": 9}, algorithms_of("train"))
    assert "direct" in refused.value.hint


def test_the_choice_is_told_and_in_the_result(here, tern):
    printed = tern("train", "--fleet", "simulated:200", "--dataset", "iris", "--no-report", code=0)
    assert "one answer of each device (--algorithm direct)" in printed.err + printed.out
    result = tern(
        "train",
        "--fleet",
        "simulated:200",
        "--dataset",
        "iris",
        "--no-report",
        "--json",
        "--quiet",
        code=0,
    )
    assert '"reason": "one answer of each device' in result.out
    assert '"algorithm": "direct"' in result.out


def test_a_served_fleet_is_asked_until_each_device_has_answered(here):
    notes = []
    options = RunOptions(
        "direct",
        Options(dataset="iris", epsilon="1"),
        "inprocess:1",
        Terms(deadline=60.0),
        Schedule(rounds=2, share=0.5),
    )
    with pytest.raises(UsageError, match="asks each device once"):
        serve(replace(options, fleet="simulated:9"), store="t.sqlite", watcher=Watcher())
    with serve(options, store="s.sqlite", watcher=Watcher(note=notes.append)) as run:
        result = run.run()
        devices = Counter(
            device
            for round_ in run.store.rounds()
            for cohort in round_.cohorts
            for device in cohort.devices
        )
    assert set(devices.values()) == {1}
    assert result["reports"] == len(devices) == sum(entry["asked"] for entry in result["history"])
    assert result["accounting"][0]["releases"][0]["times"] == 1
    assert any("spends epsilon 1 in total" in note for note in notes)
