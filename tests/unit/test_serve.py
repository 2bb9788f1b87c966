"""`tern serve` runs rounds by a schedule and continues after a restart.

Fleets on a broker: see tests/integration.
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import warm
from harness import in_process  # noqa: F401, registers inprocess:N
from harness.in_process import InProcessLink

from ternhost import errors
from ternhost.learn.fedsgd import Options
from ternhost.learn.schedule import Schedule, Terms
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.run.options import RunOptions
from ternhost.run.serve import serve
from ternhost.run.status import END, Watcher
from ternhost.store.runs import FINISHED, RUNNING, StoredRun
from ternhost.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("here")]  # each starts one or more hosts

FLEET = ["--fleet", "simulated:60", "--store", "s.sqlite", "--no-report"]


@pytest.fixture
def command(tern):
    """`command(*words, code=None)`: the exit code of `tern serve`, its last line, and all of its
    lines.
    """

    def run(*words, code=None):
        printed = tern("serve", *words, "--json", code=code)
        lines = [json.loads(line) for line in printed.out.splitlines()]
        return printed.code, lines[-1], lines

    return run


@pytest.mark.sampled(3)
@pytest.mark.parametrize("algorithm", ["fedsgd", "fedavg", "collect", "infer"])
def test_every_algorithm_that_asks_again_is_served_and_continues_its_count_of_rounds(
    algorithm, command
):
    words = [*FLEET, "--algorithm", algorithm, "--dataset", "iris"]
    code, first, lines = command(*words, "--rounds", "2")
    assert (code, first["event"], first["rounds"]) == (0, "result", 2)
    assert [line["round"] for line in lines if line["event"] == END] == [1, 2]
    code, again, lines = command(*words, "--rounds", "2")
    assert (code, again["rounds"], [line for line in lines if line["event"] == END]) == (0, 2, [])
    code, last, lines = command(*words, "--rounds", "5")
    assert (code, last["rounds"], len(last["history"])) == (0, 5, 5)
    assert [line["round"] for line in lines if line["event"] == END] == [3, 4, 5]
    assert (last["run"], last["reports"]) == (first["run"], 5 * first["reports"] // 2)
    with Store("s.sqlite") as store:
        assert [run.status for run in store.runs()] == [FINISHED]


def test_a_continued_run_equals_one_without_a_stop(command):
    command(*FLEET, "--rounds", "3", "--horizon", "6")
    _, stopped, _ = command(*FLEET, "--rounds", "6")
    _, whole, _ = command("--fleet", "simulated:60", "--rounds", "6", "--no-report")
    assert stopped["weights"] == whole["weights"]
    assert stopped["epsilon_paid"] == whole["epsilon_paid"] == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "svm"], "has --model logistic, not svm"),
        (["--algorithm", "fedavg"], "this store holds a run of fedsgd, not of fedavg"),
    ],
)
def test_a_store_has_one_served_model(command, words, message):
    command(*FLEET, "--rounds", "1")
    _, refused, _ = command(*FLEET, "--rounds", "2", *words, code=errors.USAGE)
    assert message in refused["error"]
    assert "--new-model" in refused["hint"]


def test_a_new_model_replaces_the_served_one_and_may_be_asked_in_another_way(command):
    _, first, _ = command(*FLEET, "--rounds", "1")
    _, second, _ = command(*FLEET, "--rounds", "1", "--model", "svm", "--new-model")
    _, again, _ = command(*FLEET, "--rounds", "2", "--model", "svm", "--quorum", "0.5")
    assert again["run"] == second["run"] != first["run"]
    with Store("s.sqlite") as store:
        assert {run.name: run.status for run in store.runs()} == {
            first["run"]: FINISHED,
            second["run"]: FINISHED,
        }


def test_a_store_in_a_directory_is_found_again_and_the_last_round_makes_a_page(
    command, here, undrawn
):
    (here / "mine").mkdir()
    for rounds in ("1", "2"):
        code, result, _ = command(*FLEET[:2], "--store", "mine", "--rounds", rounds)
        assert (code, result["rounds"]) == (0, int(rounds))
        assert Path(result["report"]).is_file()
    assert command("--fleet", "simulated:60", "--store", "", "--rounds", "1")[0] == errors.USAGE


def test_the_cost_of_a_run_without_an_end_is_shown_by_the_round(command):
    words = [*warm.TERN, "serve", *FLEET, "--interval", "0.01", "--json"]
    with warm.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        lines = []
        for line in served.stdout:
            lines.append(json.loads(line))
            if lines[-1]["event"] == END and lines[-1]["round"] == 3:
                served.send_signal(signal.SIGTERM)
        assert served.wait() == 0
    assert lines[0]["message"].startswith(
        "each client spends epsilon 2 in every round: one report of "
    )
    result = lines[-1]
    assert result["event"] == "result"
    assert result["rounds"] >= 3
    assert result["epsilon_paid"] == 2 * result["rounds"]
    assert result["accounting"][0]["epsilon_user_level"] == 2 * result["rounds"]
    code, result, _ = command(*FLEET, "--rounds", str(result["rounds"] + 2))
    assert code == 0, "the run can be continued"


def test_a_signal_between_rounds_ends_the_run_with_a_result():
    words = [
        "serve",
        "--fleet",
        "inprocess:1",
        "--store",
        "s.sqlite",
        "--interval",
        "3600",
        "--json",
    ]
    code = f"import sys; sys.path[:] = {sys.path}; from harness import in_process; from ternhost.cli import main; "
    code += "sys.exit(main())"
    with warm.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True
    ) as served:
        for line in served.stdout:
            if json.loads(line)["event"] == END:
                served.send_signal(signal.SIGINT)  # it waits for the next round
                break
        began, rest = time.monotonic(), served.stdout.read()
        assert served.wait() == 0
        assert time.monotonic() - began < 60
    result = json.loads(rest.splitlines()[-1])
    assert (result["event"], result["rounds"]) == ("result", 1)


# Schedules


def served(watcher=None, deadline=60.0, **schedule):
    options = RunOptions(
        "fedsgd", Options(), "inprocess:1", Terms(deadline=deadline), Schedule(**schedule)
    )
    return serve(options, store="s.sqlite", watcher=watcher)


def test_rounds_begin_an_interval_apart():
    with served(rounds=3, interval=0.5) as run:
        began = time.monotonic()
        run.run()
    assert time.monotonic() - began >= 1.0


def test_shares_of_the_devices_take_turns(command):
    _, result, _ = command(*FLEET, "--rounds", "4", "--share", "0.25")
    assert [entry["asked"] for entry in result["history"]] == [15] * 4
    assert result["reports"] == 60


def test_a_device_asked_twice_because_others_joined_counts_twice(monkeypatch):
    whole = BoardsDriver.devices
    with served(rounds=2, share=0.5) as run:
        joining = property(
            lambda driver: whole.fget(driver)[: 10 if run.store.last_round() == 0 else None]
        )
        monkeypatch.setattr(BoardsDriver, "devices", joining)
        result = run.run()
        assert [entry["asked"] for entry in result["history"]] == [5, 20]
        cohorts = [cohort for round_ in run.store.rounds() for cohort in round_.cohorts]
        asked = Counter(device for cohort in cohorts for device in cohort.devices)
    assert max(asked.values()) == 2
    assert result["accounting"][0]["releases"][0]["times"] == 2


def test_a_client_pays_only_for_rounds_that_ask_its_share(command, tern):
    fleet = ["--fleet", "inprocess:2", "--store", "s.sqlite", "--no-report", "--epsilon", "2"]
    _, result, _ = command(*fleet, "--share", "0.1", "--rounds", "3", "--budget", "10")
    account = result["accounting"][0]
    assert (account["epsilon_user_level"], account["epsilon_budget"]) == (2, 10)
    cost = "each client spends epsilon 2 in total: one report of one coordinate at epsilon 2\n"
    assert cost in tern("serve", *fleet, "--new-model", "--share", "0.1", "--rounds", "3").out


def test_rounds_after_a_silent_one_begin_later_and_later(monkeypatch):
    monkeypatch.setattr(InProcessLink, "send", lambda self, frame: None)
    ends = []

    def note(status):
        if status.event == END:
            ends.append(time.monotonic())
        if len(ends) == 4:
            run.stop()

    with served(Watcher(status=note), deadline=0.2, patience=0.2) as run:
        assert run.run()["reports"] == 0
    pauses = [after - before for before, after in pairwise(ends)]
    # The least time from one round to the next doubles with every silent round.
    for pause, least in zip(pauses, (0.4, 0.8, 1.6), strict=True):
        assert pause >= least


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--fleet must name the devices"),
        (["--fleet", "port:/dev/null"], "--store must name the store with the devices' keys"),
        (["--fleet", "mqtt:no-such-directory"], "no-such-directory"),
    ],
)
def test_a_fleet_must_be_named(words, message, command, here):
    code, refused, _ = command(*words)
    assert code in (errors.USAGE, errors.STORAGE)
    assert message in refused["error"]
    assert list(here.iterdir()) == []


def test_a_run_under_way_keeps_its_store_to_itself(command):
    command(*FLEET, "--rounds", "1")
    with Store("s.sqlite") as store:
        first = next(run for run in store.runs())
        store.begin_run(StoredRun("other", 2.0, RUNNING, {**first.asked, "schedule": None}, {}))
    code, refused, _ = command(*FLEET, "--rounds", "2")
    assert (code, refused["error"]) == (
        errors.USAGE,
        "s.sqlite holds another unfinished run, other",
    )
    assert refused["hint"] == "tern train --resume other"


def test_a_continued_run_keeps_its_name_and_can_skip_rounds(command):
    words = ["--fleet", "inprocess:2", *FLEET[2:]]
    command(*words, "--rounds", "1", "--name", "mine")
    _, result, _ = command(*words, "--rounds", "2", "--name", "other", code=errors.USAGE)
    assert "the run mine goes on" in result["error"]
    _, result, _ = command(*words, "--rounds", "2", "--after-round", "70", "--name", "mine")
    assert [entry["round"] for entry in result["history"]] == [1, 71]
    _, result, _ = command(*words, "--rounds", "3", "--after-round", "70")
    assert [entry["round"] for entry in result["history"]] == [1, 71, 72]
    _, result, _ = command(
        *words, "--rounds", "4", "--after-round", str(2**30 - 2), code=errors.USAGE
    )
    assert "the store's last round is 72" in result["error"]


def test_a_collection_asks_everybody_and_costs_a_report_per_round(command):
    words = ("--algorithm", "collect", "--dataset", "iris", *FLEET)
    _, result, _ = command(*words, "--rounds", "1", "--share", "0.1", code=errors.USAGE)
    assert "--share must be 1" in result["error"]
    _, once, _ = command(*words, "--rounds", "1")
    _, result, _ = command(*words, "--rounds", "3")
    assert result["run"] == once["run"]
    assert (result["clients"], result["reports"]) == (once["clients"], 3 * once["reports"])
    assert result["epsilon_paid"] == 3 * once["epsilon_paid"]
