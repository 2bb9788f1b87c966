"""Runs from beginning to end: their directories and stores, resuming them, their costs, messages
and reports.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from harness.in_process import InProcessLink

from ternhost import datasets, errors
from ternhost.cli import main
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.privacy.accounting import Policy
from ternhost.provision import boards as provision
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.run import directory
from ternhost.run import result as results
from ternhost.run.report import page
from ternhost.run.status import END, Watcher
from ternhost.store.runs import ABANDONED, FINISHED, PREPARING, RUNNING, StoredRun
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here")
SIMULATED = [
    "--fleet",
    "simulated:200",
    "--reports",
    "200",
    "--group",
    "50",
    "--no-report",
    "--quiet",
]
IN_RHO = 1_523_189  # millionths, of an epsilon of 2: 2 tanh(1)
BOARDS = ["--fleet", "inprocess:2", "--reports", "40", "--group", "10", "--no-report", "--quiet"]


@pytest.fixture
def command(tern):
    """`command(*words, code=None)`: the exit code, the result (JSON) and the standard error of a
    command.
    """

    def run(*words, code=None):
        printed = tern(*words, "--json", code=code)
        return printed.code, printed.json if printed.out else None, printed.err

    return run


def stored(name):
    place = directory.find(name)
    with Store(place.store, create=False, beside=True) as store:
        return store.run(place.name)


@pytest.fixture
def cut(command, monkeypatch):
    """`cut(when, *words)` runs `command(*words)` and presses Ctrl-C at the first status with
    when(status).
    """

    def interrupted(when, *words):
        def note(status):
            if when(status):
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            watcher = Watcher(status=note)
            patched.setattr("ternhost.cli.progress.ProgressPrinter.watcher", lambda self: watcher)
            return command(*words)

    return interrupted


def after(number):
    """The condition that this round has ended."""
    return lambda status: status.event == END and status.round == number


# Where a run is


def test_every_run_has_its_own_directory_and_is_never_overwritten(command):
    code, first, _ = command("train", *SIMULATED)
    kept = Path(first["directory"], "result.json").read_bytes()
    _, second, _ = command("train", *SIMULATED, "--seed", "2")
    _, third, _ = command("train", *SIMULATED, "--name", "mine")
    assert code == 0
    assert len({first["directory"], second["directory"], third["directory"]}) == 3
    assert third["directory"] == "runs/mine"
    assert Path(first["directory"], "result.json").read_bytes() == kept
    assert json.loads(kept)["accuracy"] == first["accuracy"]
    code, refused, _ = command("train", *SIMULATED, "--name", "mine")
    assert (code, refused["error"]) == (errors.USAGE, "there is a run mine already")
    assert "--resume" in refused["hint"]
    assert "the same tern serve" in refused["hint"]
    assert "report" not in third
    files = {path.name for path in Path("runs/mine").iterdir() if "store" not in path.name}
    assert files == {"result.json", "run.json"}, "no picture and no page"


def test_a_store_holds_many_runs_with_their_directories(command):
    store = "two/s.sqlite"
    for name in ("a", "b"):
        assert command("train", *SIMULATED, "--store", store, "--name", name)[0] == 0
    _, listed, _ = command("runs", store)
    runs = [(run["run"], run["directory"]) for run in listed["runs"]]
    assert runs == [(name, str(Path(f"runs/{name}").resolve())) for name in ("a", "b")]
    with Store(store) as opened:
        assert [run.status for run in opened.runs()] == [FINISHED] * 2
    shutil.rmtree("runs/a")
    code, refused, _ = command("train", *SIMULATED, "--store", store, "--name", "a")
    assert (code, refused["error"]) == (errors.USAGE, "there is a run a already"), (
        "its name is in the store"
    )


def test_runs_are_listed(command, tern):
    assert command("runs")[1] == {"runs": []}
    command("train", *SIMULATED, "--name", "first")
    command("collect", "--fleet", "simulated:50", "--quiet", "--no-report", "--name", "second")
    _, listed, _ = command("runs")
    runs = [(run["run"], run["status"], run["algorithm"]) for run in listed["runs"]]
    assert runs == [("first", FINISHED, "fedsgd"), ("second", FINISHED, "collect")]
    assert (listed["runs"][0]["rounds"], listed["runs"][0]["reports"]) == (4, 200)
    assert listed["runs"][0]["figures"].keys() == {"auc", "accuracy", "log_loss"}
    for place in ("runs", "runs/first", "runs/first/store.sqlite"):
        assert re.search(r"(?m)^first .* finished +fedsgd on flights", tern("runs", place).out), (
            place
        )
    code, refused, _ = command("runs", "nowhere")
    assert (code, refused["error"]) == (errors.USAGE, "there is no directory or store nowhere")
    Path("runs/first/store.sqlite").unlink()
    _, listed, _ = command("runs")
    assert "no store" in next(run["status"] for run in listed["runs"] if run["run"] == "first")
    Path("runs/first/run.json").write_text("{")
    _, listed, _ = command("runs")
    assert {run["run"] for run in listed["runs"]} == {"first", "second"}, (
        "one that is broken hides no other"
    )
    assert "run.json is not JSON" in next(
        run["status"] for run in listed["runs"] if run["run"] == "first"
    )


def test_a_report_that_cannot_be_written_is_drawn_later(command, undrawn):
    command("train", *SIMULATED, "--name", "mine")
    Path("runs/mine/report.html").mkdir()
    code, result, _ = command("runs", "--draw", "mine")
    assert (code, result["hint"]) == (
        errors.STORAGE,
        "make room, then draw it: tern runs --draw runs/mine",
    )
    Path("runs/mine/report.html").rmdir()
    Path("runs").rename("moved")
    code, result, _ = command("runs", "moved", "--draw", "mine")
    assert (code, result["report"]) == (0, "moved/mine/report.html")
    assert all(Path(picture).parent == Path("moved/mine") for picture in result["pictures"])
    assert {*result["pictures"]} == {*map(str, Path("moved/mine").glob("*.png"))}
    for draw in ("none", "moved/mine/run.json"):
        assert command("runs", "moved", "--draw", draw)[0] == errors.USAGE


def test_every_listed_run_can_be_drawn(command, undrawn):
    command("train", *SIMULATED, "--store", "other/s.sqlite", "--name", "mine")
    for place in ("other", "other/s.sqlite", "runs", "runs/mine"):
        assert [run["run"] for run in command("runs", place)[1]["runs"]] == ["mine"]
        assert results.load("mine", Path(place))["run"] == "mine"
    Path("runs/broken.sqlite").write_bytes(b"no store")
    code, result, _ = command("runs", "--draw", "mine")
    assert (code, Path(result["report"])) == (0, Path("runs/mine/report.html"))
    assert command("runs", "--draw", "none")[0] == errors.STORAGE


def test_a_listing_creates_nothing_and_a_run_without_its_directory_is_resumed(command, cut):
    cut(after(1), "train", *SIMULATED, "--store", "other/s.sqlite", "--name", "mine")
    shutil.rmtree("runs/mine")
    (line,) = command("runs", "other/s.sqlite")[1]["runs"]
    assert not Path(line["directory"]).exists()
    code, result, _ = command("train", "--resume", "other/s.sqlite", "--no-report")
    assert (code, result["directory"]) == (0, line["directory"])
    assert (Path(line["directory"]) / "result.json").exists()


@pytest.mark.parametrize("step", ["ternhost.run.report.page.write", "tarfile.TarFile.add"])
def test_ctrl_c_after_the_last_round_says_that_the_run_has_finished(
    step, command, monkeypatch, here
):
    monkeypatch.setattr(step, Mock(side_effect=KeyboardInterrupt))
    boards = [word for word in BOARDS if word != "--no-report"]
    _, interruption, _ = command("train", *boards, "--name", "mine", code=errors.INTERRUPTED)
    assert "the run has finished: see runs/mine/result.json" in interruption["error"]
    assert "tern runs --draw runs/mine" in interruption["hint"]
    packed = "tarfile" not in step
    assert (here / "runs/mine/fleet/board-000/clients.bin").exists() != packed
    assert (here / "runs/mine/fleet.tar.gz").exists() == packed


@pytest.mark.parametrize(
    "words",
    [["--resume", ""], ["--store", ""], ["--name", ""], ["--name", "../x"], ["--name", "x\ny"]],
)
def test_an_empty_name_is_refused(words, command, here):
    rest = SIMULATED[-2:] if words[0] == "--resume" else SIMULATED
    _, refused, _ = command("train", *words, *rest, code=errors.USAGE)
    assert words[0] in refused["error"]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--after-round", str(2**21)], "--after-round must be at most 1048575"),
        (["--budget", "1"], "each client would spend epsilon 2"),
        (["--fleet", "inprocess:50", "--reports", "40"], "50 boards for 40 clients"),
        (["--fleet", "simulated:9"], "there are 9 clients to ask in a round, not 10"),
        (["--fleet", "mqtt:nowhere"], "nowhere"),
        (["--reports", str(10**7)], "and no budget for life is above 1000"),
        (["--fleet", "inprocess:2", "--reports", str(10**7)], "each of which reports once"),
        (["--k", "99"], "coordinates"),
        (["--mechanism", "nothing"], "there is no mechanism 'nothing'"),
        (["--store", "/proc/no/store"], "/proc/no"),
    ],
)
def test_a_run_that_is_refused_late_leaves_nothing(words, message, command, here):
    code, refused, _ = command(
        "train", *SIMULATED[:-4], "--group", "10", "--store", "s.sqlite", *words
    )
    assert code in (errors.USAGE, errors.REFUSED, errors.STORAGE)
    assert message in refused["error"]
    assert list(here.iterdir()) == []


def test_a_run_that_the_store_refuses_leaves_it_unchanged(command, here):
    assert command("train", *SIMULATED, "--store", "s.sqlite", "--name", "a")[0] == 0
    with Store("s.sqlite") as store:
        store.open_round(StoredRound(2**30 - 2, [StoredCohort(b"body", [1])], 1))
        store.end_round(2**30 - 2, ABANDONED)
    _, refused, _ = command(
        "train", *SIMULATED, "--store", "s.sqlite", "--name", "b", code=errors.USAGE
    )
    assert "would go beyond" in refused["error"]
    assert [path.name for path in Path("runs").iterdir()] == ["a"]
    with Store("s.sqlite") as store:
        assert [run.name for run in store.runs()] == ["a"]


# Resuming


@pytest.mark.parametrize(
    ("fleet", "named"),
    [(SIMULATED, "runs/mine"), (BOARDS, "runs/mine/store.sqlite")],
    ids=["directory", "store"],
)
def test_an_interrupted_run_is_resumed_to_the_same_end(named, fleet, command, cut):
    code, stopped, _ = cut(after(2), "train", *fleet, "--name", "mine")
    assert code == errors.INTERRUPTED
    assert stopped["hint"] == "go on with: tern train --resume mine"
    assert stored("mine").status == RUNNING
    line = command("runs")[1]["runs"][0]
    assert (line["status"], line["resume"]) == ("stopped", "tern train --resume mine")
    _, result, _ = command("train", "--resume", named, "--no-report", code=0)
    assert (result["rounds"], result["reports"], len(result["history"])) == (4, int(fleet[3]), 4)
    if fleet is SIMULATED:
        assert result["weights"] == command("train", *SIMULATED)[1]["weights"]
    else:
        assert result["epsilon_spent"] == [[2.0, 40]]
    assert command("runs")[1]["runs"][0]["status"] == "finished"
    code, again, err = command("train", "--resume", named, "--no-report")
    assert (code, again["weights"], again["reports"]) == (0, result["weights"], result["reports"])
    assert "the run mine has finished" in err


def test_a_run_is_resumed_by_the_directory_of_its_store(command, cut):
    assert cut(after(1), "train", *SIMULATED, "--store", "two/s.sqlite")[0] == errors.INTERRUPTED
    _, refused, _ = command("train", *SIMULATED, "--store", "two/s.sqlite", code=errors.USAGE)
    assert "has not finished" in refused["error"]
    assert "--resume" in refused["hint"]
    assert "--anew" in refused["hint"]
    assert command("train", "--resume", "two", "--no-report")[0] == 0


def test_a_run_can_be_abandoned_for_another(command, cut):
    cut(after(1), "train", *BOARDS, "--store", "s.sqlite", "--name", "a")
    code, result, _ = command("train", *BOARDS, "--store", "s.sqlite", "--name", "b", "--anew")
    assert (code, result["epsilon_before"]) == (0, 0), (
        "boards that are made for a run have spent nothing"
    )
    with Store("s.sqlite") as store:
        assert {run.name: run.status for run in store.runs()} == {"a": ABANDONED, "b": FINISHED}
    code, refused, _ = command("train", "--resume", "a")
    assert (code, refused["error"]) == (errors.USAGE, "the run a was abandoned")


def test_a_resumed_run_keeps_its_options(command, cut):
    cut(after(1), "train", *SIMULATED, "--name", "a")
    for words in (
        ["--epsilon", "1"],
        ["--store", "x"],
        ["--name", "b"],
        ["--anew"],
        ["--quorum", "0.5"],
    ):
        _, refused, _ = command("train", "--resume", "a", *words, code=errors.USAGE)
        assert f"{words[0]} cannot be changed" in refused["error"]
    for words in (["--fleet", "simulated:300"], ["--fleet", "port:/dev/null"]):
        code, refused, _ = command("train", "--resume", "a", *words)
        assert (code, refused["error"]) == (
            errors.USAGE,
            "a resumed run keeps its fleet, simulated:200",
        )
    code, refused, _ = command("collect", "--resume", "a")
    assert (code, refused["error"]) == (errors.USAGE, "a is a run of tern train")
    assert refused["hint"] == "tern train --resume a"
    assert command("train", "--resume", "a", "--no-report", "--fleet", "simulated:200")[0] == 0


def test_a_run_interrupted_while_boards_are_made_does_not_hinder_another(command, monkeypatch):
    whole = provision.provision_board
    with monkeypatch.context() as patched:

        def provision_board(path, *rest):
            whole(path, *rest)
            if path.name == "board-001":
                raise KeyboardInterrupt

        patched.setattr(provision, "provision_board", provision_board)
        _, _, _ = command(
            "train", *BOARDS, "--name", "a", "--store", "s.sqlite", code=errors.INTERRUPTED
        )
    with Store("s.sqlite") as store:
        assert store.run("a").status == PREPARING
    code, result, _ = command("train", *BOARDS, "--name", "b", "--store", "s.sqlite")
    assert (code, result["reports"]) == (0, 40)


def test_a_run_killed_while_boards_are_made_is_resumed(command):
    kill = (
        "import os, sys; from harness import in_process; "
        "from ternhost.provision import boards as provision; from ternhost.cli import main; "
        "whole = provision.provision_board;"
        "provision.provision_board = lambda path, *rest: (whole(path, *rest), os.kill(os.getpid(), 9));"
        "sys.exit(main(sys.argv[1:]))"
    )
    where = {
        **os.environ,
        "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}",
    }
    ended = subprocess.run([sys.executable, "-c", kill, "train", *BOARDS, "--name", "a"], env=where)
    assert ended.returncode == -signal.SIGKILL
    assert stored("a").status == PREPARING
    code, result, _ = command("train", "--resume", "a", "--no-report")
    assert (code, result["reports"], result["epsilon_spent"]) == (0, 40, [[2.0, 40]])


# Long runs


def test_a_round_costs_the_same_after_any_number_of_rounds(command, monkeypatch):
    sizes, written = [], Store.end_run_round

    def end_run_round(self, run, state, ended):
        sizes.append(len(json.dumps([state, ended.entry])))
        written(self, run, state, ended)

    monkeypatch.setattr(Store, "end_run_round", end_run_round)
    options = [
        "--fleet",
        "simulated:80",
        "--reports",
        "80",
        "--group",
        "1",
        "--no-report",
        "--quiet",
    ]
    assert command("train", *options)[0] == 0
    assert len(sizes) == 80
    assert max(sizes[-20:]) < 1.1 * max(sizes[20:40]), "the rows that are written do not grow"


def test_a_round_reads_nothing_of_earlier_ones(command, monkeypatch):
    statements, opened = [], Store._check_schema

    def check_schema(self):
        opened(self)
        self._db.set_trace_callback(statements.append)

    monkeypatch.setattr(Store, "_check_schema", check_schema)
    counts = []
    for reports in ("24", "12"):
        statements.clear()
        command(
            "train", "--fleet", "inprocess:1", "--reports", reports, "--group", "1", *BOARDS[-2:]
        )
        counts.append(
            [sum(word in line for line in statements) for word in ("SELECT", "INSERT", "COMMIT")]
        )
    for many, few in zip(*counts, strict=True):
        assert many <= 2 * few + 4, counts


# How a run ends


@pytest.fixture
def provisioned(here):
    """`provisioned(*reports)`: the options of a command for two boards of 20 clients with records
    of flights. Each client has a budget for this number of reports at epsilon 2.
    """

    def make(*reports, clients=40, price=2_000_000):
        rows = datasets.load("flights").records(range(clients))
        policies = [
            Policy(price, price * reports[i % len(reports)], price == IN_RHO)
            for i in range(clients)
        ]
        boards = [here / "a", here / "b"][:clients]
        with Store("keys.sqlite") as store:
            provision.provision_fleet(store, boards, rows, policies)
        ports = ",".join(f"inprocess:{board}" for board in boards)
        return ["--fleet", f"port:{ports}", "--store", "keys.sqlite", *BOARDS[2:]]

    return make


def test_a_run_that_nobody_can_pay_for_does_not_begin_and_changes_no_earlier_result(
    provisioned, command
):
    fleet = provisioned(1)
    assert command("train", *fleet, "--name", "kept")[0] == 0
    kept = Path("runs/kept/result.json").read_bytes()
    _, refused, err = command("train", *fleet, "--name", "again", code=errors.REFUSED)
    assert (
        "40 of the 40 devices whose budget is known cannot pay that: they have epsilon 0 left"
        in refused["error"]
    )
    assert "round 5" not in err
    assert Path("runs/kept/result.json").read_bytes() == kept
    assert [run["run"] for run in command("runs")[1]["runs"]] == ["kept"]


@pytest.mark.parametrize(
    ("price", "left"),
    [(2_000_000, "epsilon 10"), (IN_RHO, "rho 7.61 (epsilon 26.9 at delta 1e-06)")],
)
def test_one_board_reports_in_several_rounds_as_far_as_its_budget_goes(
    price, left, provisioned, command
):
    fleet = [*provisioned(5, clients=1, price=price)[:4], "--algorithm", "fedsgd", "--no-report"]
    _, refused, _ = command("train", *fleet, "--reports", "10", code=errors.REFUSED)
    assert refused["error"].endswith(f"the device has {left} left, enough for 5 of its 10 reports")
    assert "ask for --reports 5 or --epsilon" in refused["hint"]
    assert not Path("runs").exists()
    code, result, err = command("train", *fleet, "--reports", "4")
    assert (
        "epsilon 8 in total: 4 reports of one coordinate, each at epsilon 2 (one a round: --rounds"
        in err
    )
    assert (code, result["reports"], result["rounds"], result["epsilon_paid"]) == (0, 4, 4, 8)
    assert page.spent(result) == {8.0: 1}
    code, result, _ = command("train", *fleet)  # by default, a report of each device
    assert (code, result["reports"], result["options"]["reports"], result["epsilon_before"]) == (
        0,
        1,
        1,
        8,
    )
    assert command("train", *fleet)[0] == errors.REFUSED


@pytest.mark.parametrize(
    ("port", "code", "remedy"),
    [
        ("/dev/ttyNOPE", errors.NO_DEVICE, "ports found"),
        (None, errors.REFUSED, "tern provision BOARD --store"),
    ],
)
def test_a_missing_port_and_a_rotated_key_leave_no_run(port, code, remedy, provisioned, command):
    fleet = provisioned(1, clients=1)
    with Store("keys.sqlite") as store:
        store.add_devices({1: bytes(32)})
    failed = command(
        "train", *fleet[:4], "--no-report", *(["--fleet", f"port:{port}"] if port else [])
    )
    assert failed[0] == code
    assert remedy in failed[1]["hint"]
    assert not Path("runs").exists()
    assert command("runs", "keys.sqlite")[1] == {"runs": []}


def test_a_served_fleet_that_has_spent_its_budget_is_told_of_once_and_ends(provisioned, tern):
    fleet = provisioned(2)[:4]
    printed = tern("serve", *fleet, "--patience", "0.01", "--name", "mine", code=errors.REFUSED)
    assert printed.out.count("their budget is spent") == 1
    assert printed.out.count("40 refusals (budget 40)") == 5
    assert "tern fleet emulate N --dir NEW-DIR" in printed.err
    result = json.loads(Path("runs/mine/result.json").read_text())
    assert (result["reports"], result["rounds"], result["epsilon_paid"]) == (80, 7, 4)
    assert ", AUC 0." in (listed := tern("runs").out)
    assert ", log-loss " in listed


def test_a_run_that_some_devices_refuse_has_a_result_and_ends_with_4(provisioned, command):
    fleet = provisioned(
        2, 1
    )  # each board speaks for its first device, which has more than every other one
    command("train", *fleet)
    _, result, err = command("train", *fleet, code=errors.REFUSED)
    assert (result["rounds"], result["reports"], result["refusals"], result["missing"]) == (
        4,
        20,
        20,
        20,
    )
    assert "20 of 40 reports that were asked for are missing: 20 were refused" in err
    assert Path(result["directory"], "result.json").exists()


def test_a_run_with_missing_reports_has_a_result_and_ends_with_6(command, monkeypatch):
    send = InProcessLink.send

    def deaf(self, frame):
        if not self.name.endswith("board-001"):
            send(self, frame)

    monkeypatch.setattr(InProcessLink, "send", deaf)
    began = time.monotonic()
    _, result, err = command("train", *BOARDS, "--silence", "0.5", code=errors.SHORT)
    assert (result["reports"], result["missing"], result["rounds"]) == (20, 20, 4)
    assert "has been silent for 0.5 s" in err
    assert "board-001 is left out" in err
    assert "20 of 40 reports that were asked for are missing: 20 did not come" in err
    assert time.monotonic() - began < 60, "no round waited for its deadline"


def test_a_run_without_any_answer_ends(command, monkeypatch):
    monkeypatch.setattr(InProcessLink, "send", lambda self, frame: None)
    _, failed, _ = command("train", *BOARDS, "--silence", "0.3", code=errors.NO_DEVICE)
    assert "silent for 0.3 s" in failed["error"]
    _, failed, _ = command(
        "train", *BOARDS, "--deadline", "0.5", "--name", "short", code=errors.NO_DEVICE
    )
    assert failed["error"] == "no device reported in 3 rounds"
    assert "--deadline" in failed["hint"]
    assert stored("short").status == FINISHED


def test_a_round_without_any_answer_has_no_reports(command, monkeypatch):
    send, opened = InProcessLink.send, BoardsDriver.open
    rounds = []

    def open_round(self, number, cohorts):
        rounds.append(number)
        opened(self, number, cohorts)

    monkeypatch.setattr(BoardsDriver, "open", open_round)
    monkeypatch.setattr(
        InProcessLink, "send", lambda *sent: None if len(rounds) == 2 else send(*sent)
    )
    _, result, _ = command("train", *BOARDS, "--deadline", "0.5", code=errors.SHORT)
    assert [entry["reports"] for entry in result["history"]] == [10, 0, 10, 10]
    assert [entry["ended"] for entry in result["history"]][1] == "deadline"
    assert result["missing"] == 10


def test_a_round_that_reached_its_quorum_misses_no_report(command):
    code, result, _ = command("train", *BOARDS, "--quorum", "0.5")
    assert (code, result["missing"]) == (0, 0)
    assert result["reports"] >= 20


def test_files_that_a_power_cut_leaves_beside_ledgers_are_no_clients(command, monkeypatch):
    spent = results.epsilon_spent

    def after_a_power_cut(boards, delta):
        (boards[0] / "ledger/00000001.new").write_bytes(b"")
        (boards[1] / "ledger/00000028").write_bytes(b"cut short")
        return spent(boards, delta)

    monkeypatch.setattr(results, "epsilon_spent", after_a_power_cut)
    code, result, _ = command("train", *BOARDS)
    assert (code, result["epsilon_spent"]) == (0, [[2.0, 39]])


# Costs


def test_the_cost_is_shown_before_the_run_and_with_earlier_runs(provisioned, command):
    fleet = [word for word in provisioned(5) if word != "--quiet"]
    protects = "protects a device with all of its records with epsilon"
    code, result, err = command("train", *fleet)
    assert "each client spends epsilon 2 in total: one report of one coordinate at epsilon 2" in err
    assert f"this run {protects} 2\n" in err
    assert "all runs so far" not in err
    assert "will refuse" not in err
    assert err.index("each client spends") < err.index("round 1/4")
    assert "found 2 boards with 40 clients\n" in err
    assert result["epsilon_before"] == 0
    code, result, err = command("train", *fleet, "--budget", "10")
    assert (code, result["epsilon_before"]) == (0, 2)
    words = "; earlier runs cost up to {}; the boards say that an epsilon of {} is left"
    assert words.format("2, of a budget of 10", 8) in err
    assert f"all runs so far together {protects.replace('protects', 'protect')} 4\n" in err
    (promised,) = result["guarantees"]
    assert promised["life"]["bounds"]["pure"] == 4
    code, result, err = command("train", *fleet, "--epsilon", "1.5")
    assert (code, result["epsilon_before"]) == (0, 4)
    assert words.format("4", 6) in err
    assert f"this run {protects} 1.5\n" in err
    assert f"all runs so far together {protects.replace('protects', 'protect')} 5.5\n" in err


def test_a_budget_includes_the_cost_of_earlier_runs(provisioned, command):
    fleet = provisioned(5)
    assert command("train", *fleet)[0] == 0
    code, refused, _ = command("train", *fleet, "--budget", "3", "--name", "more")
    assert (code, refused["exit_code"]) == (errors.REFUSED, errors.REFUSED)
    assert (
        "with the epsilon of 2 that was spent before, this would cost a client 4"
        in refused["error"]
    )
    assert "--budget" in refused["hint"]
    with Store("keys.sqlite") as store:
        assert store.run("more") is None
        assert store.last_round() == 4, "nothing was asked"
    (_,) = Path("runs").iterdir()  # a run that is refused before its first round is taken back
    assert command("train", *fleet, "--budget", "4")[0] == 0


def test_a_resumed_run_does_not_warn_of_the_round_under_way(provisioned, command, cut):
    words = ["train", *provisioned(1), "--group", "40", "--name", "cut", "--no-report"]
    assert cut(lambda status: status.reports, *words)[0] == errors.INTERRUPTED
    assert stored("cut").state["rounds"] == 0
    code, result, err = command("train", "--resume", "cut", "--quiet", "--no-report")
    assert (code, result["missing"]) == (0, 0)
    assert "will refuse" not in err


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_a_squared_error_is_not_called_accuracy(model, capsys):
    data = {"linear": "synthetic-linear", "logistic": "synthetic-logistic"}[model]
    main(["train", "--model", model, "--dataset", data, *SIMULATED[:-1], "--name", "mine"])
    printed = capsys.readouterr()
    result = json.loads(Path("runs/mine/result.json").read_text())
    assert (
        ("accuracy" in printed.out + printed.err)
        == ("accuracy" in json.dumps(result))
        == (model == "logistic")
    )
    assert (
        ("squared error" in printed.out)
        == (result["measure"] == "squared_error")
        == (model == "linear")
    )


# Reports of runs


@pytest.mark.sampled(2)  # `tern demo` has one of fedsgd
@pytest.mark.parametrize(
    "words",
    [
        "collect --fleet simulated:100",
        "train --fleet simulated:100 --reports 100",
        "train --algorithm fedavg --fleet simulated:50 --rounds 2 --mechanism duchi",
        "train --dataset synthetic-linear --model linear --fleet simulated:100 --reports 100",
        "infer --dataset iris --fleet simulated:50",
    ],
    ids=["collect", "fedsgd", "fedavg", "regression", "infer"],
)
def test_every_run_ends_with_a_report_of_one_file(words, command, coarse):
    words = words.split()
    _, result, _ = command(*words, "--quiet", code=0)
    source = Path(result["report"]).read_text()
    assert "http" not in source
    assert not re.search(r"<(script|link|iframe|object|img)|url\((?!#)|href=\"[^#]", source)
    assert source.count("<svg") == len(result["pictures"]) > 1
    for picture in result["pictures"]:
        assert Path(picture).read_bytes().startswith(b"\x89PNG")


def test_a_run_without_its_directory_does_not_take_the_directory_of_another(command, here):
    quick = ("--fleet", "simulated:40", "--reports", "40", "--group", "20", "--no-report")
    command("train", *quick, "--name", "a")
    with Store("runs/a/store.sqlite") as store:
        known = store.run("a")
        asked = {**known.asked, "directory": str(here / "gone")}
        store.begin_run(
            StoredRun("b", 9.0, RUNNING, asked, {**known.state, "algorithm": None, "rounds": 0})
        )
    code, result, _ = command("train", "--resume", "runs/a/store.sqlite", "--no-report")
    assert (code, result["run"]) == (0, "b")
    assert json.loads(Path("runs/a/result.json").read_text())["run"] == "a"
