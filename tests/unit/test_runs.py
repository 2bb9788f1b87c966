"""Runs from beginning to end: their directories and stores, resuming them, their costs, messages
and reports.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from harness.in_process import InProcessLink

from ternhost import datasets, errors
from ternhost.privacy.accounting import Policy
from ternhost.provision import boards as provision
from ternhost.run import directory
from ternhost.run import result as results
from ternhost.run.status import END, Watcher
from ternhost.store.runs import ABANDONED, FINISHED, PREPARING
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here")
QUIET = ["--no-report", "--quiet"]
FOUR_ROUNDS_OF_40 = ["--data", "iris", "--reports", "40", "--group", "10", *QUIET]
SIMULATED = ["--fleet", "simulated:40", *FOUR_ROUNDS_OF_40]
BOARDS = ["--fleet", "inprocess:2", *FOUR_ROUNDS_OF_40]


class Ended(NamedTuple):
    """How a command has ended: its exit code, its result (JSON), and its standard error."""

    code: int
    result: dict | None
    err: str


@pytest.fixture
def command(tern):
    """`command(*words, code=None)` runs a command, and returns how it has ended."""

    def run(*words, code=None):
        printed = tern(*words, "--json", code=code)
        return Ended(printed.code, printed.json if printed.out else None, printed.err)

    return run


def stored_run(name):
    """A run as its store has it."""
    place = directory.find(name)
    with Store(place.store, create=False, beside=True) as store:
        return store.run(place.name)


@pytest.fixture
def interrupted_after_round(command, monkeypatch):
    """`interrupted_after_round(number, *words)`: run a command; press Ctrl-C after this round."""

    def interrupt(number, *words):
        def note(status):
            if status.event == END and status.round == number:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            watcher = Watcher(status=note)
            patched.setattr("ternhost.cli.progress.ProgressPrinter.watcher", lambda self: watcher)
            return command(*words)

    return interrupt


# Where a run is


def test_every_run_has_its_own_directory_and_is_never_overwritten(command):
    first = command("train", *SIMULATED, code=0).result
    kept = Path(first["directory"], "result.json").read_bytes()
    second = command("train", *SIMULATED, "--seed", "2", code=0).result
    assert first["directory"] != second["directory"]
    assert Path(first["directory"], "result.json").read_bytes() == kept
    assert json.loads(kept)["accuracy"] == first["accuracy"]


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        (lambda: Path("runs/first/store.sqlite").unlink(), "no store"),
        (lambda: Path("runs/first/run.json").write_text("{"), "run.json is not JSON"),
    ],
    ids=["no store", "no JSON"],
)
def test_a_broken_run_is_listed_and_hides_no_other(command, damage, status):
    """`tern runs` lists all directories of runs. One that has lost its store, or whose description
    is garbled, says so, and the run beside it is still shown.
    """
    for name in ("first", "second"):
        command("train", *SIMULATED, "--name", name)
    damage()

    listed = command("runs").result["runs"]

    status_by_name = {run["run"]: run["status"] for run in listed}
    assert status in status_by_name["first"]
    assert status_by_name["second"] == FINISHED


@pytest.mark.parametrize("name", ["x.sqlite", "run.json"])
def test_a_run_that_has_the_name_of_a_file_is_listed_beside_others(command, name):
    for each in (name, "other"):
        command("train", *SIMULATED, "--name", each, code=0)
    listed = command("runs", code=0).result["runs"]
    assert {run["run"]: run["status"] for run in listed} == {name: FINISHED, "other": FINISHED}


def test_a_run_that_has_the_name_of_a_store_is_watched_and_has_a_statement(command):
    command("train", *SIMULATED, "--name", "x.sqlite", code=0)
    command("watch", "--once", code=0)
    command("privacy", "x.sqlite", code=0)


def test_a_run_without_its_directory_is_resumed(command, interrupted_after_round):
    interrupted_after_round(1, "train", *SIMULATED, "--store", "other/s.sqlite", "--name", "mine")
    shutil.rmtree("runs/mine")

    result = command("resume", "other/s.sqlite", "--no-report", code=0).result

    assert (Path(result["directory"]) / "result.json").exists()


def test_ctrl_c_after_the_last_round_says_that_the_run_has_finished(command, monkeypatch):
    """Ctrl-C while the report is drawn, after the last round, loses no result: the error says that
    the run has finished and how to draw the report, and the simulated boards are packed into an
    archive as after any other run.
    """
    monkeypatch.setattr("ternhost.run.report.page.write", Mock(side_effect=KeyboardInterrupt))
    boards = [word for word in BOARDS if word != "--no-report"]
    interruption = command("train", *boards, "--name", "mine", code=errors.INTERRUPTED).result
    assert "the run has finished" in interruption["error"]
    assert "tern runs --draw runs/mine" in interruption["hint"]

    # The boards were packed.
    assert Path("runs/mine/fleet.tar.gz").exists()
    assert not Path("runs/mine/fleet/board-000/clients.bin").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--store", ""],
        ["--name", ""],
        ["--name", "../x"],
        ["--name", "x\ny"],
        ["--name", "x" * 256],
    ],
    ids=["empty store", "empty name", "path", "two lines", "too long"],
)
def test_an_impossible_name_is_refused(words, command, here):
    command("train", *words, *SIMULATED, code=errors.USAGE)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--budget", "1"], errors.REFUSED),  # a report costs 2
        (["--fleet", "simulated:9"], errors.USAGE),  # fewer clients than a group
        (["--fleet", "mqtt:nowhere"], errors.USAGE),
        (["--store", "/proc/no/store"], errors.STORAGE),
    ],
    ids=["budget", "few clients", "no broker", "no store"],
)
def test_a_run_that_is_refused_late_leaves_nothing(words, code, command, here):
    command("train", *SIMULATED, "--store", "s.sqlite", *words, code=code)
    assert list(here.iterdir()) == []


# Resuming


def test_an_interrupted_run_is_resumed_to_its_end(interrupted_after_round, command):
    """Ctrl-C after the second of four rounds, of ten devices each: the resumed run asks the other
    two rounds alone, and resuming it once more asks nobody.
    """
    ended = interrupted_after_round(2, "train", *BOARDS, "--name", "mine")
    assert ended.code == errors.INTERRUPTED
    assert ended.result["hint"] == "go on with: tern resume mine"

    resume = ["resume", "runs/mine/store.sqlite", "--no-report"]
    result = command(*resume, code=0).result
    assert (result["rounds"], result["reports"]) == (4, 40)
    assert result["epsilon_spent"] == [[2.0, 40]], "all 40 devices paid epsilon 2, and none twice"
    assert stored_run("mine").status == FINISHED

    again = command(*resume, code=0).result
    assert again["weights"] == result["weights"], "it has ended, and asks nobody"


def test_a_run_can_be_abandoned_for_another(command, interrupted_after_round):
    """A store allows one unfinished run of its devices. `--anew` abandons it and begins another
    one, after which it can no longer be resumed.
    """
    interrupted_after_round(1, "train", *BOARDS, "--store", "s.sqlite", "--name", "a")
    anew = ["train", *BOARDS, "--store", "s.sqlite", "--name", "b", "--anew"]
    result = command(*anew, code=0).result

    assert result["epsilon_before"] == 0, "boards that are made for a run have spent nothing"
    with Store("s.sqlite") as store:
        assert {run.name: run.status for run in store.runs()} == {"a": ABANDONED, "b": FINISHED}
    command("resume", "a", code=errors.USAGE)


def test_a_resumed_run_keeps_the_fleet_that_tern_made(command, interrupted_after_round):
    interrupted_after_round(1, "train", *SIMULATED, "--name", "a")
    command("resume", "a", "--fleet", "simulated:300", code=errors.USAGE)
    command("resume", "a", "--no-report", "--fleet", "simulated:40", code=0)


KILLED_AT_THE_FIRST_BOARD = """
import os, sys
from harness import in_process
from ternhost.cli import main
from ternhost.provision import boards

whole = boards.provision_board
boards.provision_board = lambda *board: (whole(*board), os.kill(os.getpid(), 9))
sys.exit(main(sys.argv[1:]))
"""


def test_a_run_killed_while_boards_are_made_is_resumed(command):
    """A run on simulated boards makes their files first. The process is killed after the first
    board; the resumed run makes the others, and every device pays once.
    """
    words = ["train", *BOARDS, "--name", "a"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    program = [sys.executable, "-c", KILLED_AT_THE_FIRST_BOARD]
    subprocess.run([*program, *words], env=environment)
    assert stored_run("a").status == PREPARING

    result = command("resume", "a", "--no-report", code=0).result

    # All 40 devices have paid epsilon 2 for one report each.
    assert (result["reports"], result["epsilon_spent"]) == (40, [[2.0, 40]])


# Long runs


@pytest.fixture
def sql_statements(monkeypatch):
    """The SQL statements that stores execute."""
    executed, check_schema = [], Store._check_schema

    def check_schema_and_trace(self):
        check_schema(self)
        self._db.set_trace_callback(executed.append)

    monkeypatch.setattr(Store, "_check_schema", check_schema_and_trace)
    return executed


def test_a_round_reads_nothing_of_earlier_ones(command, sql_statements):
    """A run of many rounds does not get slower: the number of SQL statements grows in proportion to
    the number of rounds, and not with its square.
    """
    one_report_a_round = ["train", "--fleet", "inprocess:1", "--data", "iris", "--group", "1"]
    count_by_rounds = {}
    for rounds in (12, 6):
        sql_statements.clear()
        command(*one_report_a_round, "--reports", str(rounds), *QUIET, code=0)
        count_by_rounds[rounds] = Counter(line.split()[0] for line in sql_statements)

    for verb in ("SELECT", "INSERT", "COMMIT"):
        # Twice the rounds, twice the statements; some more come at any end of a run.
        assert count_by_rounds[12][verb] <= 2 * count_by_rounds[6][verb] + 4, verb


# How a run ends


@pytest.fixture
def provisioned(here):
    """`provisioned(*reports)`: the options of a command for two boards of 20 clients.

    By turns, clients have a budget for these numbers of reports at epsilon 2.
    """

    def make(*reports, clients=40):
        rows = datasets.load("iris").records(range(clients))
        policies = [
            Policy(2_000_000, 2_000_000 * reports[i % len(reports)]) for i in range(clients)
        ]
        boards = [here / "a", here / "b"][:clients]
        with Store("keys.sqlite") as store:
            provision.provision_fleet(store, boards, rows, policies)
        ports = ",".join(f"inprocess:{board}" for board in boards)
        fleet = ["--fleet", f"port:{ports}", "--store", "keys.sqlite", "--data", "iris"]
        return [*fleet, "--no-report"]

    return make


TEN_A_ROUND = ["--reports", "40", "--group", "10"]


def test_a_board_with_another_key_leaves_no_run(provisioned, command):
    """A host and its boards share a key by device. If the store has another one, the command is
    refused with a remedy, and neither a directory nor a run in the store is left.
    """
    fleet = provisioned(1, clients=1)
    with Store("keys.sqlite") as store:
        store.add_devices({1: bytes(32)})

    failed = command("train", *fleet, code=errors.REFUSED).result

    assert "tern board provision BOARD --store" in failed["hint"]
    assert not Path("runs").exists()
    assert command("runs", "keys.sqlite").result == {"runs": []}


def test_a_run_that_some_devices_refuse_has_a_result_and_ends_with_4(provisioned, command):
    """Half of 40 devices have a budget for two reports, and half for one; so of two runs of one
    report each, the second is refused by half. It trains on the reports of the others. The first
    device of each board, from which the host takes the budget of the others, has budget for two:
    the host cannot foresee the refusals. Exit code 4 is errors.REFUSED.
    """
    words = ["train", *provisioned(2, 1), *TEN_A_ROUND]
    command(*words, code=0)
    result = command(*words, code=errors.REFUSED).result
    assert (result["reports"], result["refusals"], result["missing"]) == (20, 20, 20)
    assert Path(result["directory"], "result.json").exists()


def test_a_run_with_missing_reports_has_a_result_and_ends_with_6(command, monkeypatch):
    """One of two boards gets no frame, and is left out after half a second of silence. The run ends
    with the other's reports, and with exit code 6, errors.SHORT.
    """
    send = InProcessLink.send

    def send_but_to_the_second_board(self, frame):
        if not self.name.endswith("board-001"):
            send(self, frame)

    monkeypatch.setattr(InProcessLink, "send", send_but_to_the_second_board)

    ended = command("train", *BOARDS, "--silence", "0.5", code=errors.SHORT)

    # Of 40 devices, 20 are on each of both boards.
    assert (ended.result["reports"], ended.result["missing"]) == (20, 20)
    assert "board-001 is left out" in ended.err


def test_a_run_without_any_answer_ends(command, monkeypatch):
    monkeypatch.setattr(InProcessLink, "send", lambda self, frame: None)
    command("train", *BOARDS, "--silence", "0.3", code=errors.NO_DEVICE)


def test_files_that_a_power_cut_leaves_beside_ledgers_are_no_clients(command, monkeypatch):
    """Each device keeps what it has spent in a ledger, a file named after it. A power cut can leave
    a half-written copy (.new) beside it, which does not count as a device, and a ledger that cannot
    be read, whose device alone is missing in the result.
    """
    spent = results.epsilon_spent

    def after_a_power_cut(boards, delta):
        (boards[0] / "ledger/00000001.new").write_bytes(b"")
        (boards[1] / "ledger/00000028").write_bytes(b"cut short")  # of device 40
        return spent(boards, delta)

    monkeypatch.setattr(results, "epsilon_spent", after_a_power_cut)
    result = command("train", *BOARDS, code=0).result
    assert result["epsilon_spent"] == [[2.0, 39]], "of 40, all but the one that cannot be read"


# Costs


def test_the_cost_of_a_run_and_of_earlier_ones_is_shown_before_its_first_round(
    provisioned, command
):
    """Before anybody is asked, a run says what it costs each device (epsilon 1.5), and what it
    costs together with an earlier run on the same devices (epsilon 2): the epsilons add up. Its
    result promises the same.
    """
    words = ["train", *provisioned(5), *TEN_A_ROUND]
    command(*words, code=0)
    ended = command(*words, "--epsilon", "1.5", "--budget", "10", code=0)

    whom = "a device with all of its records with epsilon"
    assert f"this run protects {whom} 1.5\n" in ended.err
    assert f"all runs so far together protect {whom} 3.5\n" in ended.err
    assert ended.err.index("all runs so far") < ended.err.index("round 1/4")
    assert ended.result["epsilon_before"] == 2
    (promised,) = ended.result["guarantees"]
    assert promised["life"]["bounds"]["pure"] == 3.5


# Reports of runs


@pytest.mark.parametrize(
    "words",
    ["collect --fleet simulated:100", "infer --fleet simulated:50"],
    ids=["collect", "infer"],
)
def test_every_run_ends_with_a_report_of_one_file(words, command, coarse):
    """The report of a run is an HTML page that can be sent to somebody: it loads nothing from
    elsewhere, and contains all pictures, which lie beside it as PNG files too.
    """
    result = command(*words.split(), "--data", "iris", "--quiet", code=0).result
    source = Path(result["report"]).read_text()

    # No element and no style refers to another file; links lead to places of the page.
    assert "http" not in source
    assert not re.search(r"<(script|link|iframe|object|img)|url\((?!#)|href=\"[^#]", source)
    assert source.count("<svg") == len(result["pictures"]) > 1
    for picture in result["pictures"]:
        assert Path(picture).read_bytes().startswith(b"\x89PNG")
