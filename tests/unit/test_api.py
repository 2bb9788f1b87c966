"""The public Python API: what `import ternhost` gives, runs as objects, and their results."""

import asyncio
import json
import pkgutil
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from simulating import PEOPLE

import ternhost
from ternhost import (
    Emulated,
    FedAvg,
    FedSGD,
    Infer,
    Ports,
    Protection,
    Run,
    Simulated,
    Values,
    datasets,
)
from ternhost.learn.base import ALGORITHMS
from ternhost.options import options_of
from ternhost.run.status import END

pytestmark = pytest.mark.usefixtures("here")

DEVICES = Simulated(1000)


def small(**options):
    """A run of 1,000 simulated clients, each of which reports once, in four rounds."""
    return {"learner": FedSGD(reports=1000, group=250, **options), "fleet": DEVICES} | {
        "data": "breast-cancer"
    }


LIST_NEW_MODULES = """
import sys
before = set(sys.modules)
import ternhost
dir(ternhost)
new = set(sys.modules) - before
print(sorted(name for name in new if name.startswith(("tern", "numpy"))))
"""


def test_importing_ternhost_imports_nothing_else():
    words = [sys.executable, "-c", LIST_NEW_MODULES]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed == (
        "['ternhost', 'ternhost.device_library', 'ternhost.errors', 'ternhost.text']\n"
    )


LIST_MODULES_OF_ALL_NAMES = """
import sys
import ternhost
for name in ternhost.__all__:
    getattr(ternhost, name)
print(*sys.modules)
"""
SLOW_PACKAGES = {"matplotlib", "nicegui", "pandas", "scipy", "sklearn"}


def test_no_public_name_imports_a_package_that_takes_long():
    words = [sys.executable, "-c", LIST_MODULES_OF_ALL_NAMES]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    packages = {name.partition(".")[0] for name in printed.split()}
    assert packages & SLOW_PACKAGES == set()


@pytest.mark.parametrize("name", ternhost.__all__)
def test_what_is_exported_is_there_and_described(name):
    assert getattr(ternhost, name).__doc__


def test_there_is_nothing_that_is_not_exported():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ternhost.nothing


def test_modules_can_still_be_reached():
    assert ternhost.reach.fleet


# Results


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The result of a small run, in a directory of its own."""
    directory = tmp_path_factory.mktemp("runs")
    parts = small(epsilon=4, k=2)
    return ternhost.train(**parts, name="mine", directory=directory)


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    return ternhost.collect(
        Values(epsilon="4"), Simulated(500), data="wine", directory=directory, name="mine"
    )


@pytest.fixture(scope="module")
def inferred(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    return ternhost.infer(Infer(), Simulated(300), directory=directory, name="mine")


@pytest.fixture(params=["trained", "collected", "inferred"])
def result(request):
    """A result of each kind."""
    return request.getfixturevalue(request.param)


def test_a_result_is_what_the_run_has_stored(trained):
    stored = json.loads((trained.directory / "result.json").read_text())
    assert dict(trained) == trained.to_dict() == stored


def test_a_stored_result_can_be_loaded(trained):
    loaded = ternhost.TrainResult.load("mine", trained.directory.parent)
    assert loaded.to_dict() == trained.to_dict()


def test_a_result_is_loaded_as_what_it_is(result):
    assert type(ternhost.Result.load(result.directory)) is type(result)


def test_a_result_of_another_kind_is_not_loaded(collected):
    with pytest.raises(ternhost.UsageError):
        ternhost.TrainResult.load(collected.directory)


def test_a_result_cannot_be_changed(result):
    with pytest.raises(AttributeError):
        result.reports = 7


def test_a_result_is_shown_in_a_terminal_with_its_figures_and_its_privacy(result):
    assert result.name in repr(result)
    assert "epsilon" in repr(result)


def test_a_result_is_shown_in_a_notebook_as_a_table(result):
    html = result._repr_html_()
    assert html.startswith("<table>")
    assert all(name in html for name in result.figures)


def test_each_picture_of_a_result_is_a_figure_of_matplotlib(result):
    assert result.pictures
    assert all(isinstance(result.plot(name), Figure) for name in result.pictures)


def test_the_first_picture_is_drawn_by_default(result):
    assert isinstance(result.plot(), Figure)


def test_a_picture_that_is_not_there_is_refused(result):
    with pytest.raises(ternhost.UsageError):
        result.plot("nothing")


def test_a_result_of_training_has_weights(trained):
    assert trained.weights.tolist() == trained["weights"]


def test_a_result_of_training_has_figures_by_name(trained):
    assert trained.accuracy == trained.figures["accuracy"] == trained["accuracy"]
    assert {"auc", "auc_baseline", "auc_optimum"} <= trained.figures.keys()


def test_a_figure_that_the_run_is_not_judged_by_is_refused(trained):
    with pytest.raises(ternhost.UsageError):
        _ = trained.squared_error


def test_a_result_of_training_is_a_frame_of_its_rounds(trained):
    assert trained.to_frame()["reports"].tolist() == [250] * 4


def test_a_notebook_shows_what_was_collected(collected):
    mean = collected.attributes[0]
    assert f"<th>{mean.name}, mean</th><td>{mean.estimate:.4g}" in collected._repr_html_()


def test_a_result_of_collecting_is_a_frame_of_its_attributes(collected):
    frame = collected.to_frame()
    assert len(frame) == 13
    assert (frame["low"] <= frame["estimate"]).all()
    squared_error = np.mean((frame["estimate"] - frame["true"]) ** 2)
    assert squared_error == pytest.approx(collected.figures["mean_squared_error"])


def test_categories_of_an_attribute_have_a_row_each(monkeypatch):
    monkeypatch.setitem(datasets.TABLES, "people", lambda: PEOPLE)
    result = ternhost.collect(Values(epsilon=4), Simulated(500), data="people")
    categories = [each for each in result.attributes if each.category is not None]
    assert len(categories) > len({each.name for each in categories})


def test_a_result_of_inference_has_a_score(inferred):
    assert inferred.score == inferred["score"]


def test_without_pandas_a_data_frame_names_the_extra_that_installs_it(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(ternhost.UsageError, match="pandas is not installed") as caught:
        trained.to_frame()
    assert "'data'" in caught.value.hint


# Runs


def test_a_run_tells_its_status():
    statuses = []
    ternhost.train(**small(), on_status=statuses.append)
    assert [status.round for status in statuses if status.event == END] == [1, 2, 3, 4]


def test_a_run_gives_each_round_as_it_ends():
    assert [status.round for status in Run(**small())] == [1, 2, 3, 4]


def test_a_run_that_was_iterated_has_the_result_of_train():
    run = Run(**small())
    for _status in run:
        pass
    assert run.result.figures == ternhost.train(**small()).figures


def test_a_run_has_no_result_before_it_ends():
    with pytest.raises(ternhost.UsageError):
        _ = Run(**small()).result


def test_nothing_is_written_before_a_run_begins(tmp_path):
    Run(**small())
    assert not (tmp_path / "runs").exists()


def left_after_two_rounds():
    """A run whose loop was left when its second round had ended."""
    run = Run(**small(), name="cut")
    for status in run:
        if status.round == 2:
            break
    return run


def test_a_run_that_is_left_early_has_the_result_of_its_rounds():
    assert left_after_two_rounds().result.reports == 500


def test_a_run_that_was_left_early_can_be_resumed():
    left_after_two_rounds()
    assert ternhost.list_runs()[0]["status"] == "stopped", "no process has its store open"
    assert [status.round for status in Run.resume("cut")] == [3, 4]


def test_resume_carries_a_run_out_to_its_end():
    left_after_two_rounds()
    assert ternhost.resume("cut").reports == 1000


def test_an_error_in_the_body_of_the_loop_leaves_a_run_that_can_be_resumed():
    class Stopped(Exception):
        pass

    def stop_in_round_two():
        with Run(**small(), name="cut") as run:
            for status in run:
                if status.round == 2:
                    raise Stopped

    with pytest.raises(Stopped):
        stop_in_round_two()
    assert ternhost.resume("cut").reports == 1000


def test_an_error_of_a_callback_leaves_a_run_that_can_be_resumed():
    class Stopped(Exception):
        pass

    def stop(status):
        if status.event == END and status.round == 2:
            raise Stopped

    with pytest.raises(Stopped):
        ternhost.train(**small(), name="cut", on_status=stop)
    assert ternhost.resume("cut").reports == 1000


def test_a_run_in_an_event_loop_gives_each_round_as_it_ends():
    async def rounds():
        async with Run(**small()) as run:
            return [status.round async for status in run], run.result.reports

    assert asyncio.run(rounds()) == ([1, 2, 3, 4], 1000)


def test_the_event_loop_goes_on_while_a_round_is_under_way():
    """The callback of a run waits for something that only the event loop can do."""
    loop_went_on = threading.Event()

    def wait(status):
        assert loop_went_on.wait(timeout=30)

    async def first_round():
        asyncio.get_running_loop().call_later(0.05, loop_went_on.set)
        async with Run(**small(), on_status=wait) as run:
            return [status.round async for status in run]

    assert asyncio.run(first_round()) == [1, 2, 3, 4]


def test_a_run_whose_task_is_cancelled_can_be_resumed():
    begun = threading.Event()

    async def cut():
        async with Run(**small(), name="cut", on_status=lambda status: begun.set()) as run:
            async for _status in run:
                pass

    async def cancel():
        task = asyncio.create_task(cut())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert ternhost.resume("cut").reports == 1000


def test_train_works_where_an_event_loop_runs_as_in_a_notebook():
    async def cell():
        return ternhost.train(**small()).reports

    assert asyncio.run(cell()) == 1000


@pytest.mark.parametrize("learner", [FedSGD(), FedSGD(epsilon=1), FedAvg()])
def test_a_served_run_of_another_learner_is_not_gone_on_with(learner, tmp_path):
    """The run in the store spends epsilon 4 in a round, and a learner by default 2."""
    store, schedule = tmp_path / "s.sqlite", ternhost.Schedule(rounds=1)
    ternhost.serve(FedSGD(epsilon=4), "simulated:300", store=store, schedule=schedule)
    with pytest.raises(ternhost.UsageError):
        ternhost.serve(learner, "simulated:300", store=store, schedule=ternhost.Schedule(rounds=2))


def test_a_served_fleet_stops_after_the_rounds_of_its_schedule():
    result = ternhost.serve(FedSGD(), "simulated:300", schedule=ternhost.Schedule(rounds=3))
    assert result.rounds == 3


def test_runs_are_listed_and_kept_in_the_directory_that_is_named(tmp_path):
    ternhost.train(**small(), name="first", directory=tmp_path / "mine")
    listed = [(entry["run"], entry["status"]) for entry in ternhost.list_runs(tmp_path / "mine")]
    assert listed == [("first", "finished")]
    assert ternhost.list_runs() == []


# What a run is made of


LEARNERS = {
    learner.Options: name
    for name, learner in ALGORITHMS.items()
    if "ternhost" in learner.__module__
}


@pytest.mark.parametrize("options", LEARNERS, ids=LEARNERS.get)
def test_each_learner_of_the_host_is_exported_and_describes_its_parameters(options):
    exported = [getattr(ternhost, name) for name in ternhost.__all__]
    (learner,) = [each for each in exported if isinstance(each, type) and issubclass(each, options)]
    words = re.findall(r"\w+", learner.__doc__)
    assert {option.name for option in options_of(learner)} <= set(words)


@pytest.mark.parametrize("options", LEARNERS, ids=LEARNERS.get)
def test_an_exported_learner_declares_no_parameter_of_its_own(options):
    exported = [getattr(ternhost, name) for name in ternhost.__all__]
    (learner,) = [each for each in exported if isinstance(each, type) and issubclass(each, options)]
    assert options_of(learner) == options_of(options)


@pytest.mark.parametrize(
    ("fleet", "name"),
    [
        (Simulated(20), "simulated:20"),
        (Simulated(np.int64(20)), "simulated:20"),
        (Emulated(2), "emulated:2"),
        (Emulated(2, "pico"), "pico-emulated:2"),
        (Ports("a0", "u1"), "port:a0,u1"),
        (ternhost.Broker("my-broker"), "mqtt:my-broker"),
    ],
)
def test_a_fleet_stands_for_its_name(fleet, name):
    assert str(fleet) == name


def test_a_fleet_may_be_given_by_its_name():
    parts = small() | {"fleet": "simulated:1000"}
    assert ternhost.train(**parts).reports == 1000


def test_a_number_may_be_written_in_any_way():
    from decimal import Decimal

    assert FedSGD(epsilon=4) == FedSGD(epsilon="4") == FedSGD(epsilon=Decimal(4))


def test_without_a_learner_one_is_chosen_as_by_the_command():
    """Iris has two classes by default, and declares public rows."""
    assert ternhost.train(fleet=Simulated(100), data="iris").learner == "direct"


@pytest.mark.parametrize(
    ("function", "learner"), [(ternhost.train, "fedsum"), (ternhost.collect, "means")]
)
def test_the_unit_of_a_protection_chooses_a_learner_that_has_it(function, learner):
    result = function(
        fleet=Simulated(10), data="synthetic-logistic", protection=Protection(unit="record")
    )
    assert result.learner == learner


def test_a_learner_without_a_unit_refuses_one():
    with pytest.raises(ternhost.UsageError):
        ternhost.train(FedSGD(), DEVICES, protection=Protection(unit="record"))


def test_two_values_for_one_option_are_refused():
    with pytest.raises(ternhost.UsageError):
        ternhost.train(FedSGD(data="wine"), DEVICES, data="iris")


def test_a_learner_of_another_command_is_refused():
    with pytest.raises(ternhost.UsageError) as caught:
        ternhost.train(Values(), DEVICES)
    assert "ternhost.collect" in caught.value.hint


def test_options_that_contradict_each_other_are_refused_before_a_run_begins(tmp_path):
    with pytest.raises(ternhost.UsageError):
        ternhost.train(FedSGD(epsilon=3, epsilons="1:0.5,2:0.5"), DEVICES)
    assert not (tmp_path / "runs").exists()


# Cards


def test_a_card_has_the_epsilon_that_its_integers_keep():
    assert ternhost.design("three-outputs", 2).epsilon == pytest.approx(2, abs=1e-5)


def test_a_card_is_certified_at_an_epsilon_that_it_keeps():
    card = ternhost.design("three-outputs", 2)
    assert card.certify(2)
    assert not card.certify(1.9)


def test_a_card_is_saved_and_loaded(tmp_path):
    card = ternhost.design("pm-sub", 2, 7)
    assert ternhost.Card.load(card.save(tmp_path / "mine.card")).data == card.data


def test_a_file_that_is_not_there_is_no_card():
    with pytest.raises(ternhost.UsageError):
        ternhost.Card.load("nothing.card")


def test_the_probabilities_of_a_card_add_up_to_1():
    assert ternhost.design("pm-sub", 2, 7).distribution(0.5).sum() == pytest.approx(1)


def test_a_card_is_drawn():
    assert isinstance(ternhost.design("pm-sub", 2, 7).plot(), Figure)


def test_a_card_is_shown_in_a_notebook_as_a_table():
    assert ternhost.design("pm-sub", 2, 7)._repr_html_().startswith("<table>")


def test_a_card_may_be_an_object_or_bytes_or_a_file(tmp_path):
    card = ternhost.design("pm-sub", 2, 7)
    path = card.save(tmp_path / "mine.card")
    for source in (card, card.data, path, str(path)):
        assert ternhost.train(**small(card=source, epsilon=2))["card"] == card.data.hex()


def test_the_mechanisms_and_the_cards_that_come_with_tern_are_listed():
    mechanisms, shipped = ternhost.list_cards()
    assert "three-outputs" in mechanisms
    assert shipped


# Accounts


def test_the_epsilons_of_reports_add_up():
    assert ternhost.account(1, rounds=4).pure == 4


def test_many_reports_together_cost_less_than_their_sum():
    account = ternhost.account(ternhost.design("three-outputs", "0.1"), rounds=1000)
    assert account.epsilon == account.exact < account.zcdp < account.pure


def test_a_shuffler_hides_a_report_among_others():
    assert ternhost.account(1, shuffled=10_000).epsilon < 0.1


def test_an_account_is_a_frame_and_a_picture():
    account = ternhost.account(1, rounds=30)
    assert account.to_frame()["rounds"].tolist() == [1, 2, 5, 10, 20, 30]
    assert isinstance(account.plot(), Figure)


# Statements


def test_the_statement_of_a_run_is_written_where_it_is_wanted(trained, tmp_path):
    files = ternhost.write_statement(trained.directory, tmp_path / "statement")
    assert files["html"].read_text().startswith("<!doctype html>")


# Plans


def test_a_plan_is_a_frame_of_numbers_of_devices():
    plan = ternhost.plan(FedSGD(data="devices:5"), [100, 300], runs=2, workers=1)
    assert plan.to_frame()["devices"].tolist() == [100, 300]


def test_a_plan_is_a_picture():
    plan = ternhost.plan(FedSGD(data="devices:5"), [100, 300, 1000], runs=2, workers=1)
    assert isinstance(plan.plot(), Figure)


def test_a_plan_of_a_fleet_that_exists_is_a_picture():
    learner = ternhost.FedSum(data="devices:5", records=20, unit="record", run_epsilon=4)
    plan = ternhost.plan(learner, 5, runs=2, workers=1)
    assert isinstance(plan.plot(), Figure)


def test_a_plan_over_years_divides_the_epsilon_of_the_run_among_its_rounds():
    rounds = ternhost.RoundsForYears(1, every="1d", run_epsilon=10)
    plan = ternhost.plan(FedSGD(data="devices:5"), 100, rounds=rounds, runs=2, workers=1)
    assert plan["rounds"]["rounds"] == 365
    assert plan["epsilon"] == plan["rounds"]["epsilon_rho"] < 10


def test_a_plan_over_years_refuses_a_learner_with_an_epsilon_of_its_own():
    rounds = ternhost.RoundsForYears(1, every="1d")
    with pytest.raises(ternhost.UsageError, match="epsilon"):
        ternhost.plan(FedSGD(epsilon=3), 100, rounds=rounds)


def test_a_plan_refuses_options_of_a_learner_that_it_does_not_use():
    with pytest.raises(ternhost.UsageError):
        ternhost.plan(FedSGD(group=3), 100)


# The page about it

PAGE = Path(__file__).parents[2] / "docs/reference/python.md"
NAMED = sorted(set(re.findall(r"`((?:ternhost|terntools)\.[\w.]+)`", PAGE.read_text())))


@pytest.mark.parametrize("name", NAMED)
def test_a_function_that_the_page_names_is_there(name):
    assert pkgutil.resolve_name(name)


@pytest.mark.parametrize("name", ternhost.__all__)
def test_the_page_or_the_page_of_learners_has_what_is_exported(name):
    thing = getattr(ternhost, name)
    is_on_the_page_of_learners = is_dataclass(thing) and bool(options_of(thing))
    is_error = name.endswith("Error")
    assert is_on_the_page_of_learners or is_error or f"::: ternhost.{name}\n" in PAGE.read_text()


# One thread carries out a run


def error_in_another_thread(function):
    """What a function raises in a thread of its own; None if nothing."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).exception()


def test_another_thread_cannot_carry_out_a_run_that_has_begun():
    run = Run(**small())
    with run:
        next(iter_of_run := iter(run))
        assert isinstance(error_in_another_thread(run.finish), ternhost.UsageError)
        iter_of_run.close()


def test_another_thread_that_tries_a_run_does_no_harm_to_it():
    run = Run(**small())
    for status in run:
        if status.round == 1:
            error_in_another_thread(run.finish)
            error_in_another_thread(run.close)
    assert run.result.rounds == 4


def test_boards_of_the_same_names_are_the_same_fleet():
    assert Ports("a0", "u1") == Ports("a0", "u1")
    assert len({Ports("a0"), Ports("a0")}) == 1


def test_a_figure_whose_name_is_no_text_is_refused(trained):
    with pytest.raises(ternhost.UsageError):
        trained.figure([])


def test_a_delta_may_be_written_as_a_text_and_as_a_number():
    learner = ternhost.FedSum(delta="1e-5")
    run = Run(learner, Simulated(20), protection=Protection(delta=0.00001))
    run.check()


def test_each_learner_can_be_told_to_protect_devices():
    Run(FedSGD(), Simulated(20), protection=Protection(unit="device")).check()
