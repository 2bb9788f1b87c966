"""`tern serve` runs rounds by a schedule and continues after a restart.

Fleets on a broker: see tests/integration.
"""

import json
import shlex
import signal
import subprocess
import time
from itertools import pairwise
from typing import NamedTuple

import pytest
import warm
from harness import in_process  # noqa: F401, registers inprocess:N
from harness.in_process import InProcessLink

from ternhost import errors
from ternhost.learn.models.fedsgd import Options
from ternhost.learn.schedule import Schedule, Terms
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.run.directory import resume_command
from ternhost.run.options import RunOptions
from ternhost.run.serve import serve
from ternhost.run.status import END, Watcher
from ternhost.store.reader import Reader
from ternhost.watch.page.privacy import guarantees_table
from ternhost.watch.words import ENDLESS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("here")]  # each starts one or more hosts

SIMULATED = ["--fleet", "simulated:60", "--data", "iris"]
FLEET = [*SIMULATED, "--store", "s.sqlite", "--no-report"]


class Served(NamedTuple):
    """How `tern serve` has ended: the last line that it printed, and all of its lines."""

    last: dict
    lines: list

    @property
    def ended_rounds(self):
        return [line["round"] for line in self.lines if line["event"] == END]


@pytest.fixture
def command(tern):
    """`command(*words, code=None)` runs `tern serve`, which ends with this code."""

    def run(*words, code=None):
        printed = tern("serve", *words, "--json", code=code)
        lines = [json.loads(line) for line in printed.out.splitlines()]
        return Served(lines[-1], lines)

    return run


def test_a_run_that_goes_on_says_which_options_it_keeps(command):
    """The second start names no epsilon: the run keeps its own, and not the default."""
    command(*FLEET, "--every", "0.01", "--rounds", "1", "--epsilon", "0.7", code=0)
    resumed = command(*FLEET, "--every", "0.01", "--rounds", "2", code=0)
    notes = [line["message"] for line in resumed.lines if line["event"] == "note"]
    assert any("--epsilon 0.7" in note for note in notes)


@pytest.mark.parametrize("algorithm", ["fedavg", "values", "quantiles", "infer"])
def test_a_served_fleet_continues_its_count_of_rounds(algorithm, command):
    """`tern serve` asks rounds up to a total number. Started again with the same total it asks
    none; with a larger one it continues the same run with the next round.
    """
    words = [*FLEET, algorithm]
    first = command(*words, "--rounds", "2", code=0)
    assert (first.last["rounds"], first.ended_rounds) == (2, [1, 2])

    again = command(*words, "--rounds", "2", code=0)
    assert (again.last["rounds"], again.ended_rounds) == (2, []), "it has ended"

    longer = command(*words, "--rounds", "5", code=0)
    assert (longer.last["rounds"], longer.ended_rounds) == (5, [3, 4, 5])
    assert longer.last["run"] == first.last["run"]
    # Every round has as many reports: two rounds at first, five in the end.
    assert longer.last["reports"] == 5 * first.last["reports"] // 2


def test_a_continued_run_equals_one_without_a_stop(command):
    command(*FLEET, "--rounds", "3", "--horizon", "6")
    stopped = command(*FLEET, "--rounds", "6").last
    whole = command(*SIMULATED, "--rounds", "6", "--no-report").last
    assert stopped["weights"] == whole["weights"]
    assert stopped["epsilon_paid"] == whole["epsilon_paid"] == 12  # six reports at epsilon 2


@pytest.mark.parametrize("words", [["--model", "svm"], ["fedavg"]])
def test_a_store_has_one_served_model(command, words):
    command(*FLEET, "--rounds", "1")
    refused = command(*FLEET, "--rounds", "2", *words, code=errors.USAGE).last
    assert "--anew" in refused["hint"]


def test_a_run_without_an_end_ends_with_sigterm_and_shows_the_cost_of_a_round():
    """A service without a number of rounds cannot say beforehand what it will cost; so it states
    the cost of a round. After SIGTERM it ends in good order, and states the cost of those it has
    asked.
    """
    words = [*warm.TERN, "serve", *FLEET, "--every", "0.01", "--json"]
    with warm.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        lines = []
        for line in served.stdout:
            lines.append(json.loads(line))
            if lines[-1]["event"] == END and lines[-1]["round"] == 3:
                served.send_signal(signal.SIGTERM)
        assert served.wait() == 0

    assert lines[0]["message"].startswith("each client spends epsilon 2 in every round")
    result = lines[-1]
    assert result["rounds"] >= 3, "some may begin before the signal arrives"
    assert result["epsilon_paid"] == 2 * result["rounds"]
    assert result["accounting"][0]["epsilon_user_level"] == 2 * result["rounds"]


def test_the_command_that_continues_a_served_run_has_its_schedule_terms_and_store():
    with served(rounds=1, every="0.5", deadline=30.0) as run:
        run.run()
        (stored,) = run.store.runs()
        words = shlex.split(resume_command(stored, run.store.path))
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options == {
        "--fleet": "inprocess:1",
        "--store": "s.sqlite",
        "--rounds": "1",
        "--every": "0.5",
        "--deadline": "30.0",
    }


# Schedules


def served(watcher=None, deadline=60.0, tolerance=0.0, **schedule):
    learning = Options(data="iris", tolerance=tolerance)
    options = RunOptions(
        "fedsgd", learning, "inprocess:1", Terms(deadline=deadline), Schedule(**schedule)
    )
    return serve(options, store="s.sqlite", watcher=watcher)


def test_a_served_run_ends_after_a_round_that_hardly_moved_the_model():
    """Its boards then have the budget of the rounds that it does not begin."""
    with served(rounds=5, every=0, tolerance=100.0) as run:
        result = run.run()
    assert (result["stopped"], result["rounds"]) == ("close", 1)


def test_a_device_asked_twice_because_others_joined_counts_twice(monkeypatch):
    """Half of the devices are asked in each round, so that each answers once in two rounds. Of the
    5 that are asked among 10 at first, some are asked again among 40 after others have joined: the
    privacy account counts two reports of a device.
    """
    devices = BoardsDriver.devices
    with served(rounds=2, share=0.5) as run:

        def ten_devices_at_first(driver):
            is_first = run.store.last_round() == 0
            return devices.fget(driver)[: 10 if is_first else None]

        monkeypatch.setattr(BoardsDriver, "devices", property(ten_devices_at_first))
        result = run.run()
        assert [entry["asked"] for entry in result["history"]] == [5, 20]

    (release,) = result["accounting"][0]["releases"]  # what a device has told
    assert release["times"] == 2


@pytest.mark.parametrize("rounds", [None, 2])
def test_nothing_is_promised_of_a_whole_run_if_nobody_knows_its_rounds(rounds):
    """What was proved at the start of a run without an end is about one round."""

    def stop_after_two(status):
        if status.event == END and status.round == 2:
            run.stop()

    with served(Watcher(status=stop_after_two), rounds=rounds, every=0) as run:
        run.run()
        with Reader(run.store.path) as reader:
            promises = guarantees_table(reader.snapshot())

    is_endless = rounds is None
    assert (ENDLESS in promises) is is_endless


def test_rounds_after_a_silent_one_begin_later_and_later(monkeypatch):
    """While nobody answers, `tern serve` waits twice as long after each round (exponential
    backoff).
    """
    monkeypatch.setattr(InProcessLink, "send", lambda self, frame: None)
    ends = []

    def note(status):
        if status.event == END:
            ends.append(time.monotonic())
        if len(ends) == 4:
            run.stop()

    with served(Watcher(status=note), every=0, deadline=0.05, patience=0.05) as run:
        assert run.run()["reports"] == 0

    pauses = [after - before for before, after in pairwise(ends)]
    # The least time from one round to the next doubles with every silent round.
    for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True):
        assert pause >= least


def test_a_continued_run_can_skip_round_numbers(command):
    words = ["--fleet", "inprocess:2", *FLEET[2:]]
    command(*words, "--rounds", "1")
    result = command(*words, "--rounds", "2", "--after-round", "70").last
    assert [entry["round"] for entry in result["history"]] == [1, 71]
    largest_number = str(2**30 - 2)
    command(*words, "--rounds", "4", "--after-round", largest_number, code=errors.USAGE)
