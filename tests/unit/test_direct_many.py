"""One answer of each device about all of its records: who is asked what, and what is learned."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from simulating import ask, finished, fleet_of, rounds

import ternhost
from tern import card as cards
from tern.fixed import ONE
from ternhost.count.rounds import COMPLETE, RoundResult
from ternhost.datasets.shipped import synthetic
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.one_answer.direct_many import DirectOfMany, labels_line
from ternhost.learn.one_answer.direct_options import Options
from ternhost.learn.schedule import Schedule, Terms
from ternhost.privacy import projection
from ternhost.run.options import RunOptions
from ternhost.run.serve import serve
from ternhost.run.status import Watcher

DATA = synthetic.logistic(12_000, 5, seed=2)  # its optimum is far from 0: the AUC is .98
RECORDS = 50  # of a device
CLASSES = {"epsilon": None, "epsilons": "1:0.5,4:0.5"}  # of devices


def begun(clients=20, data=DATA, schedule=None, **options):
    """The learner for devices with many records each."""
    options = {
        "data": data.name,
        "model": "logistic",
        "records": RECORDS,
        "epsilon": "4",
        **options,
    }
    given = {name: value for name, value in options.items() if value is not None}
    population = Population(clients=clients, schedule=schedule)
    return Direct.suited(Options(**given), population, data)


def with_owners(*counts):
    """The data, where each owner has so many records."""
    owners = np.repeat(np.arange(len(counts)), counts)
    rest = len(DATA.labels) - len(owners)
    return replace(
        DATA,
        owners=np.concatenate([owners, np.full(rest, len(counts))]),
        owner_names=tuple(f"owner {number}" for number in range(len(counts) + 1)),
    )


# Owners with many and with few records in turn. A fifth of them are held out, or public.
OF_TWO_SIZES = with_owners(*[400, 4] * 8)


def nobody_answers(number):
    """The result of a round that nobody answered."""
    return RoundResult(number, COMPLETE, 20, 0, {}, [])


def asked_devices(learner):
    """The devices that each round asks, if nobody answers."""
    devices_of_rounds = []
    while not learner.done:
        cohorts = learner.cohorts(range(1, learner.clients + 1))
        devices_of_rounds.append([device for _, devices in cohorts for device in devices])
        learner.learn(nobody_answers(len(devices_of_rounds)), range(1, learner.clients + 1))
    return devices_of_rounds


def card_of(question):
    return cards.decode(question.card)


def radius_of(question):
    return projection.real_radius(projection.of(card_of(question)), question.range)


# Who is asked


@pytest.mark.parametrize("clients", [1, 2, 3, 5, 7, 8, 20])
def test_each_device_is_asked_once(clients):
    asked = asked_devices(begun(clients))
    assert sorted(chain(*asked)) == list(range(1, clients + 1))


@pytest.mark.parametrize(("clients", "reports"), [(1, 3), (3, 30), (7, 20), (20, 45), (20, 200)])
def test_with_more_reports_than_devices_no_round_asks_a_device_twice(clients, reports):
    for devices in asked_devices(begun(clients, reports=reports)):
        assert len(devices) == len(set(devices))


@pytest.mark.parametrize(("clients", "reports"), [(1, 3), (3, 30), (7, 20), (20, 45), (20, 200)])
def test_with_more_reports_than_devices_all_reports_are_asked_for(clients, reports):
    assert sum(map(len, asked_devices(begun(clients, reports=reports)))) == reports


@pytest.mark.parametrize(("clients", "reports"), [(1, 3), (3, 30), (7, 20), (20, 45), (20, 200)])
def test_no_device_is_asked_more_often_than_its_budget_says(clients, reports):
    learner = begun(clients, reports=reports)
    turns = Counter(chain(*asked_devices(learner)))
    assert max(turns.values()) == learner.times


def test_fewer_reports_than_devices_leave_some_out():
    assert sum(map(len, asked_devices(begun(20, reports=6)))) == 6


def test_with_fewer_reports_than_devices_each_is_asked_once_at_most():
    assert begun(20, reports=6).times == 1


def test_a_device_keeps_its_class_when_it_is_asked_again():
    learner = begun(20, reports=100, **CLASSES)
    epsilons = {}  # that each device was asked for
    while not learner.done:
        for question, devices in learner.cohorts(range(1, 21)):
            for device in devices:
                epsilons.setdefault(device, set()).add(card_of(question).epsilon)
        learner.learn(nobody_answers(learner._round + 1), range(1, 21))
    assert all(len(of_device) == 1 for of_device in epsilons.values())


# What is asked


def test_the_first_question_is_asked_at_the_share_that_was_named():
    learner = begun(share_of_positives=0.2)
    (question,) = {str(q.parameters): q for q, _ in learner.cohorts(range(1, 21))}.values()
    weights = np.array(question.parameters) * 2.0**question.exponent
    assert weights == pytest.approx([np.log(0.2 / 0.8), *[0] * (learner.d - 1)], abs=1e-3)


def test_without_a_share_the_first_question_is_asked_at_one_half():
    learner = begun(public="none")
    (question,) = [question for question, _ in learner.cohorts(range(1, 21))]
    assert not any(question.parameters)


def test_a_question_is_about_all_records():
    (question,) = [question for question, _ in begun().cohorts(range(1, 21))]
    assert question.batch == 0


def test_the_radius_follows_from_the_batch_where_it_has_fewer_records():
    """--batch 5 of 50 records gives the radius of devices with 5 records."""
    (of_batch,) = [question for question, _ in begun(batch=5).cohorts(range(1, 21))]
    (of_five,) = [question for question, _ in begun(records=5).cohorts(range(1, 21))]
    assert radius_of(of_batch) == radius_of(of_five)


def test_a_batch_larger_than_the_records_changes_nothing():
    (of_batch,) = [question for question, _ in begun(batch=32, records=5).cohorts(range(1, 21))]
    (of_five,) = [question for question, _ in begun(records=5).cohorts(range(1, 21))]
    assert radius_of(of_batch) == radius_of(of_five)


def test_all_classes_of_devices_are_asked_at_the_same_model():
    cohorts = begun(**CLASSES).cohorts(range(1, 21))
    assert len({str(question.parameters) for question, _ in cohorts}) == 1


def test_the_guarantee_of_a_report_is_that_of_its_card():
    """Whatever is asked, a report costs what its class pays."""
    learner = begun(clients=40, **CLASSES)
    driver = fleet_of(learner)
    while not learner.done:
        cohorts = learner.cohorts(driver.devices)
        costs = {card_of(question).epsilon for question, _ in cohorts}
        assert costs <= {1_000_000, 4_000_000}
        learner.learn(ask(driver, cohorts, learner._round + 1), driver.devices)


# Classes of numbers of records


def test_devices_of_different_numbers_of_records_get_questions_of_their_own():
    learner = begun(clients=16, data=OF_TWO_SIZES, records=None, ask_by_records=True)
    records = {planned.records for planned in learner._planned(range(1, 17))}
    assert records == {4, 256}  # rounded to powers of 2


def test_devices_with_more_records_get_a_smaller_radius():
    learner = begun(clients=16, data=OF_TWO_SIZES, records=None, ask_by_records=True)
    radii = {}
    for planned in learner._planned(range(1, 17)):
        radii[planned.records] = radius_of(planned.question)
    assert radii[256] < radii[4] / 3


def test_a_named_number_of_records_makes_one_class():
    learner = begun(clients=16, data=OF_TWO_SIZES, records=300)
    assert {planned.records for planned in learner._planned(range(1, 17))} == {300}


def test_all_devices_are_asked_alike_unless_the_user_wants_classes():
    learner = begun(clients=16, data=OF_TWO_SIZES, records=None)
    assert len({planned.records for planned in learner._planned(range(1, 17))}) == 1


def test_classes_need_data_that_say_which_device_has_which_records():
    with pytest.raises(UsageError, match="--ask-by-records"):
        begun(clients=16, records=20, ask_by_records=True)


def test_two_classes_with_the_same_question_keep_their_own_numbers_of_records(monkeypatch):
    """With many records the radius hardly depends on their number, so that questions may be equal."""
    learner = begun(clients=16, data=OF_TWO_SIZES, records=None, ask_by_records=True)
    question = learner.question_for(learner.designs[0])
    monkeypatch.setattr(learner, "_question", lambda design, records: question)
    driver = fleet_of(learner)
    learner.learn(ask(driver, learner.cohorts(driver.devices)), driver.devices)
    records = {answer.records for fit in learner._fits for answer in fit._answers}
    assert records == {4, 256}


# What is learned


def test_a_good_model_is_learned_of_twenty_devices():
    assert finished(begun()).figures()["auc"] > 0.93


def test_more_reports_of_each_device_give_a_better_model():
    once = [finished(begun(seed=seed)).figures()["log_loss"] for seed in range(2)]
    often = [finished(begun(seed=seed, reports=60)).figures()["log_loss"] for seed in range(2)]
    assert np.mean(often) < np.mean(once)


def test_each_answer_is_used():
    """The certainty of all answers together is that of the reports of all devices."""
    learner = begun(clients=40, **CLASSES)
    driver = fleet_of(learner)
    certainty = 0  # of a coordinate: its inverse variance, summed up over reports
    while not learner.done:
        cohorts = learner.cohorts(driver.devices)
        for question, devices in cohorts:
            body = projection.of(card_of(question))
            certainty += len(devices) / projection.variance(body, question.range)
        learner.learn(ask(driver, cohorts, learner._round + 1), driver.devices)
    for fit in learner._fits:
        used = sum(1 / answer.observed.variance for answer in fit._answers)
        assert used == pytest.approx(certainty)


def test_the_share_of_the_labels_is_found_where_nobody_knows_it():
    learner = finished(begun(clients=200, public="none"))
    share = float((DATA.labels[DATA.training] > 0).mean())
    assert learner.result([])["label_means"]["found"] == pytest.approx([share], abs=0.1)


def test_rows_of_another_scale_make_room_for_made_up_rows(tmp_path):
    rows = DATA.features[DATA.public] / ONE
    rows[:, 1:] /= 5
    np.savetxt(tmp_path / "fifth.csv", rows, "%.6f", delimiter=",")
    learner = begun(clients=200, public=str(tmp_path / "fifth.csv"))
    assert not finished(learner).result([])["public_rows"]["suited"]


def test_the_right_rows_are_kept():
    assert finished(begun(clients=200)).result([])["public_rows"]["suited"]


@pytest.fixture
def file_of_rows(tmp_path):
    """A file with the right public rows."""
    path = tmp_path / "rows.csv"
    np.savetxt(path, DATA.features[DATA.public] / ONE, delimiter=",", fmt="%.5f")
    return str(path)


def test_right_rows_of_a_file_are_used_where_the_answers_are_clear(file_of_rows):
    learner = finished(begun(clients=200, public=file_of_rows, epsilon="8"))
    assert learner.result([])["public_rows"]["suited"]


def test_rows_of_a_file_are_not_used_before_an_answer_speaks_for_them(file_of_rows):
    assert not begun(public=file_of_rows).result([])["public_rows"]["suited"]


def test_of_the_labels_of_public_rows_only_their_share_is_used():
    """Which public row has which label changes nothing."""
    labels = DATA.labels.copy()
    labels[DATA.public] = np.random.default_rng(1).permutation(labels[DATA.public])
    shuffled = replace(DATA, labels=labels)
    assert not np.array_equal(labels, DATA.labels)
    assert finished(begun(data=shuffled)).state() == finished(begun()).state()


@pytest.mark.parametrize("label", [-ONE, ONE])
def test_public_rows_of_one_label_do_not_make_the_other_impossible(label):
    """Ten public rows of one label tell that it is frequent. The devices tell the rest."""
    labels = DATA.labels.copy()
    labels[DATA.public] = label
    learner = begun(data=replace(DATA, labels=labels), public="10")
    known = learner.result([])["label_means"]["known"]
    assert 0.05 < known[0] < 0.95


@pytest.mark.parametrize("epsilon", ["0.05", "20"])
@pytest.mark.parametrize("public", ["", "none"])
@pytest.mark.parametrize("records", [2, 300])
def test_extreme_epsilons_give_a_finite_model(epsilon, public, records):
    learner = finished(begun(epsilon=epsilon, public=public, records=records))
    assert np.isfinite(learner.weights).all()


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_hardly_any_devices_give_a_finite_model(clients):
    assert np.isfinite(finished(begun(clients)).weights).all()


# Rounds without answers


def test_a_round_that_nobody_answers_changes_nothing_but_the_round():
    learner = begun()
    before = learner.state()
    learner.learn(nobody_answers(1), range(1, 21))
    assert learner.state() == {**before, "round": 1}


def test_a_run_without_any_answer_ends_with_the_share():
    learner = begun(share_of_positives=0.2)
    asked_devices(learner)
    assert learner.result([])["label_means"]["found"] == pytest.approx([0.2])


def test_a_class_of_devices_that_does_not_answer_is_left_out():
    learner = begun(clients=80, **CLASSES)
    driver = fleet_of(learner)
    result = ask(driver, learner.cohorts(driver.devices))
    first, second = result.cohorts
    nobody = replace(
        first, reports=0, counts=np.zeros_like(first.counts), vectors=np.zeros_like(first.vectors)
    )
    partly = replace(result, cohorts=[nobody, second], reports=second.reports)
    learner.learn(partly, driver.devices)
    (answer,) = learner._by_made_up._answers
    variance = projection.variance(projection.of(second.card), second.question.range)
    assert answer.observed.variance == pytest.approx(variance / second.reports)


# A run that stops


CASES = {
    "one class": {},
    "classes of epsilons": CLASSES,
    "a share that nobody knows": {"public": "none"},
    "several reports of each device": {"clients": 5, "reports": 40},
    "classes of records": {
        "clients": 16,
        "data": OF_TWO_SIZES,
        "records": None,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_identically_after_each_round(case):
    learner = begun(**CASES[case])
    states = [json.dumps(learner.state())]
    for _ in rounds(learner, fleet_of(learner)):
        states.append(json.dumps(learner.state()))
    for stopped_after in (1, len(states) - 2):
        state = states[stopped_after]
        resumed = begun(**CASES[case])
        resumed.restore(json.loads(state))
        for _ in rounds(resumed, fleet_of(resumed), first=stopped_after + 1):
            pass
        assert json.dumps(resumed.state()) == states[-1]


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_asks_the_question_again_that_was_open(case):
    learner = begun(**CASES[case])
    driver = fleet_of(learner)
    next(rounds(learner, driver))
    resumed = begun(**CASES[case])
    resumed.restore(json.loads(json.dumps(learner.state())))
    asked = [(str(q), list(devices)) for q, devices in learner.cohorts(driver.devices)]
    assert [(str(q), list(devices)) for q, devices in resumed.cohorts(driver.devices)] == asked


def test_the_state_of_devices_with_one_record_is_refused():
    of_one = Direct(Options(data="synthetic-logistic", reports=600, epsilon="4"), Population())
    with pytest.raises(UsageError):
        begun().restore(of_one.state())


# A served fleet


def test_a_served_fleet_is_asked_without_an_end():
    schedule = Schedule(share=0.25)
    learner = begun(clients=None, schedule=schedule)
    assert isinstance(learner, DirectOfMany)
    assert learner.rounds is None
    assert not learner.done


def test_a_round_of_a_served_fleet_asks_a_share_of_the_devices():
    learner = begun(clients=None, schedule=Schedule(share=0.25))
    ((_, devices),) = learner.cohorts(range(1, 41))
    assert len(devices) == 10


def served(rounds, here):
    """The result of serving boards with several records each, and how often it asked each device."""
    learning = Options(data="synthetic-logistic", epsilon="4", records=1_000)
    schedule = Schedule(rounds=rounds, share=0.5)
    options = RunOptions("direct", learning, "inprocess:1", Terms(deadline=60.0), schedule)
    with serve(options, store="s.sqlite", watcher=Watcher()) as run:
        result = run.run()
        times_asked = Counter()
        for of_round in run.store.rounds():
            for cohort in of_round.cohorts:
                times_asked.update(cohort.devices)
    return result, times_asked


def test_boards_that_are_served_answer_once(here):
    result, times_asked = served(2, here)
    assert set(times_asked.values()) == {1}
    assert result["reports"] == len(times_asked) > 1


def test_the_result_of_a_served_fleet_says_how_many_records_a_board_holds(here):
    result, _ = served(1, here)
    assert result["records"] == 1_000


# Options that need devices with one record


@pytest.mark.parametrize(
    "options", [{"moments": 0.1}, {"then": "fedsgd"}, {"model": "svm"}, {"share_of_positives": 0}]
)
def test_options_for_devices_with_one_record_are_refused(options):
    with pytest.raises(UsageError):
        begun(**options)


def test_a_share_of_positives_is_refused_where_devices_have_one_record():
    with pytest.raises(UsageError):
        begun(records=None, share_of_positives=0.2)


def test_more_devices_than_there_are_records_for_are_refused():
    with pytest.raises(UsageError):
        begun(clients=1_000)


def test_where_one_device_needs_too_many_records_the_hint_says_to_lower_their_number():
    with pytest.raises(UsageError) as refused:
        begun(clients=100_000, records=60_000)
    assert "--records" in refused.value.hint


# What is said about a run


def test_devices_with_many_records_are_not_told_to_have_many_records(here):
    learner = ternhost.Direct(data="synthetic-logistic", epsilon="0.001", records=50, seed=2)
    result = str(ternhost.train(learner, "simulated:3"))
    assert "chance" in result
    assert "--records" not in result


def test_where_rounds_cannot_be_chosen_no_option_for_them_is_named(here, caplog):
    caplog.set_level("INFO")
    learner = ternhost.Direct(data="synthetic-logistic", records=50, reports=9)
    ternhost.train(learner, "simulated:3")
    assert "--reports" in caplog.text
    assert "--rounds" not in caplog.text


def test_a_mean_label_is_told_in_the_unit_of_the_label():
    unit = {"name": "warmth", "unit": "C", "low": 10.0, "high": 30.0}
    labels = {"model": "linear", "from": "somebody", "known": [0.0], "found": [0.5]}
    rows = {"from": None, "suited": False}
    result = {"label_means": labels, "label_unit": unit, "public_rows": rows}
    line = labels_line(result)
    assert "20 by somebody" in line
    assert "25 by the model" in line
