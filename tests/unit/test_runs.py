"""Runs from beginning to end: where they are, how they are found again, what they leave, what they cost and say."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from harness.in_process import InProcessLink

from ternhost import datasets, errors
from ternhost.cli import main as tern
from ternhost.count.rounds import Cohort, Round
from ternhost.privacy.accounting import Policy
from ternhost.provision import boards as provision
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.run import directory
from ternhost.run import result as results
from ternhost.run.status import END, Watcher
from ternhost.store.runs import ABANDONED, FINISHED, PREPARING, RUNNING, StoredRun
from ternhost.store.store import Store

SIMULATED = ["--fleet", "simulated:200", "--reports", "200", "--group", "50", "--no-report", "--quiet"]
pytestmark = pytest.mark.usefixtures("here")

BOARDS = ["--fleet", "inprocess:2", "--reports", "40", "--group", "10", "--no-report", "--quiet"]


@pytest.fixture
def said(capsys):
    """What a command says: `said(*words)` is its exit code, result (JSON), and standard error."""

    def say(*words):
        capsys.readouterr()
        code = tern([*words, "--json"])
        told = capsys.readouterr()
        return code, json.loads(told.out) if told.out else None, told.err

    return say


def stored(name):
    place = directory.find(name)
    with Store(place.store, create=False, beside=True) as store:
        return store.run(place.name)


@pytest.fixture
def cut(said, monkeypatch):
    """A command and Ctrl-C: `cut(when, *words)`, where `when` says of a status that it is time."""

    def command(when, *words):
        def note(status):
            if when(status):
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            watcher = Watcher(status=note)
            patched.setattr("ternhost.cli.progress.ProgressPrinter.watcher", lambda self: watcher)
            return said(*words)

    return command


def after(number):
    """When this round has ended."""
    return lambda status: status.event == END and status.round == number


# Where a run is


def test_every_run_has_a_directory_of_its_own_and_nothing_overwrites_it(said):
    code, first, _ = said("train", *SIMULATED)
    kept = Path(first["directory"], "result.json").read_bytes()
    _, second, _ = said("train", *SIMULATED, "--seed", "2")
    _, third, _ = said("train", *SIMULATED, "--name", "mine")
    assert code == 0
    assert len({first["directory"], second["directory"], third["directory"]}) == 3
    assert third["directory"] == "runs/mine"
    assert Path(first["directory"], "result.json").read_bytes() == kept
    assert json.loads(kept)["accuracy"] == first["accuracy"]
    code, told, _ = said("train", *SIMULATED, "--name", "mine")
    assert (code, told["error"]) == (errors.USAGE, "there is a run mine already")
    assert "--resume" in told["hint"]
    assert "the same tern serve" in told["hint"]
    assert "report" not in third
    files = {path.name for path in Path("runs/mine").iterdir() if "store" not in path.name}
    assert files == {"result.json", "run.json"}, "and no picture or page"


def test_a_store_holds_many_runs_each_with_its_directory(said):
    store = "two/s.sqlite"
    for name in ("a", "b"):
        assert said("train", *SIMULATED, "--store", store, "--name", name)[0] == 0
    _, listed, _ = said("runs", store)
    assert [(run["run"], run["directory"]) for run in listed["runs"]] == [
        ("a", str(Path("runs/a").resolve())),
        ("b", str(Path("runs/b").resolve())),
    ]
    with Store(store) as opened:
        assert [run.status for run in opened.runs()] == [FINISHED] * 2
    for path in Path("runs/a").iterdir():
        path.unlink()
    Path("runs/a").rmdir()
    code, told, _ = said("train", *SIMULATED, "--store", store, "--name", "a")
    assert (code, told["error"]) == (errors.USAGE, "there is a run a already"), "its name is in the store"


def test_runs_are_listed(said, capsys):
    assert said("runs")[1] == {"runs": []}
    said("train", *SIMULATED, "--name", "first")
    said("collect", "--fleet", "simulated:50", "--quiet", "--no-report", "--name", "second")
    _, listed, _ = said("runs")
    assert [(run["run"], run["status"], run["algorithm"]) for run in listed["runs"]] == [
        ("first", FINISHED, "fedsgd"),
        ("second", FINISHED, "collect"),
    ]
    assert (listed["runs"][0]["rounds"], listed["runs"][0]["reports"]) == (4, 200)
    assert listed["runs"][0]["figures"].keys() == {"auc", "accuracy", "log_loss"}
    for place in ("runs", "runs/first", "runs/first/store.sqlite"):
        assert tern(["runs", place]) == 0
        assert re.search(r"^first .* finished +fedsgd on flights", capsys.readouterr().out, re.MULTILINE), (
            place
        )
    code, told, _ = said("runs", "nowhere")
    assert (code, told["error"]) == (errors.USAGE, "there is no directory or store nowhere")
    Path("runs/first/store.sqlite").unlink()
    _, listed, _ = said("runs")
    assert "no store" in next(run["status"] for run in listed["runs"] if run["run"] == "first")
    Path("runs/first/run.json").write_text("{")
    _, listed, _ = said("runs")
    assert {run["run"] for run in listed["runs"]} == {"first", "second"}, "one that is broken hides no other"
    assert "does not name a run" in next(run["status"] for run in listed["runs"] if run["run"] == "first")


def test_a_report_that_could_not_be_written_is_drawn_later(said, undrawn):
    said("train", *SIMULATED, "--name", "mine")
    Path("runs/mine/report.html").mkdir()
    code, told, _ = said("runs", "--draw", "mine")
    assert (code, told["hint"]) == (errors.STORAGE, "make room, then draw it: tern runs --draw runs/mine")
    Path("runs/mine/report.html").rmdir()
    Path("runs").rename("moved")
    code, told, _ = said("runs", "moved", "--draw", "mine")
    assert (code, told["report"]) == (0, "moved/mine/report.html")
    assert all(Path(picture).parent == Path("moved/mine") for picture in told["pictures"])
    assert {*told["pictures"]} == {*map(str, Path("moved/mine").glob("*.png"))}
    for draw in ("none", "moved/mine/run.json"):
        assert said("runs", "moved", "--draw", draw)[0] == errors.USAGE


def test_what_is_listed_is_drawn_whatever_else_lies_there(said, undrawn):
    said("train", *SIMULATED, "--store", "other/s.sqlite", "--name", "mine")
    for place in ("other", "other/s.sqlite", "runs", "runs/mine"):
        assert [run["run"] for run in said("runs", place)[1]["runs"]] == ["mine"]
        assert results.load("mine", Path(place))["run"] == "mine"
    Path("runs/broken.sqlite").write_bytes(b"no store")
    code, told, _ = said("runs", "--draw", "mine")
    assert (code, Path(told["report"])) == (0, Path("runs/mine/report.html"))
    assert said("runs", "--draw", "none")[0] == errors.STORAGE


def test_a_listing_makes_nothing_and_a_run_whose_directory_is_gone_goes_on(said, cut):
    cut(after(1), "train", *SIMULATED, "--store", "other/s.sqlite", "--name", "mine")
    for path in Path("runs/mine").iterdir():
        path.unlink()
    Path("runs/mine").rmdir()
    (line,) = said("runs", "other/s.sqlite")[1]["runs"]
    assert not Path(line["directory"]).exists()
    code, result, _ = said("train", "--resume", "other/s.sqlite", "--no-report")
    assert (code, result["directory"]) == (0, line["directory"])
    assert (Path(line["directory"]) / "result.json").exists()


@pytest.mark.parametrize("what", ["ternhost.run.report.page.write", "tarfile.TarFile.add"])
def test_ctrl_c_while_a_report_is_drawn_or_boards_are_packed_says_that_the_run_has_finished(
    what, said, monkeypatch, here
):
    def interrupted(*what):
        raise KeyboardInterrupt

    monkeypatch.setattr(what, interrupted)
    boards = [word for word in BOARDS if word != "--no-report"]
    code, told, _ = said("train", *boards, "--name", "mine")
    assert code == errors.INTERRUPTED
    assert "the run has finished: see runs/mine/result.json" in told["error"]
    assert "tern runs --draw runs/mine" in told["hint"]
    packed = "tarfile" not in what
    assert (here / "runs/mine/fleet/board-000/clients.bin").exists() != packed
    assert (here / "runs/mine/fleet.tar.gz").exists() == packed


@pytest.mark.parametrize(
    "words", [["--resume", ""], ["--store", ""], ["--name", ""], ["--name", "../x"], ["--name", "x\ny"]]
)
def test_an_empty_name_is_none(words, said, here):
    rest = SIMULATED[-2:] if words[0] == "--resume" else SIMULATED
    code, told, _ = said("train", *words, *rest)
    assert code == errors.USAGE
    assert words[0] in told["error"]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--after-round", str(2**21)], "--after-round must be at most 1048575"),
        (["--budget", "1"], "each client would spend epsilon 2"),
        (["--fleet", "inprocess:50", "--reports", "40"], "50 boards for 40 clients"),
        (["--fleet", "simulated:10"], "there are 10 clients"),
        (["--fleet", "mqtt:nowhere"], "nowhere"),
        (["--reports", str(10**7)], "each of which reports once"),
        (["--k", "99"], "coordinates"),
        (["--mechanism", "nothing"], "there is no mechanism 'nothing'"),
        (["--store", "/proc/no/store"], "/proc/no"),
    ],
)
def test_what_is_refused_late_leaves_nothing(words, message, said, here):
    code, told, _ = said("train", *SIMULATED[:-4], "--group", "10", "--store", "s.sqlite", *words)
    assert code in (errors.USAGE, errors.REFUSED, errors.STORAGE)
    assert message in told["error"]
    assert list(here.iterdir()) == []


def test_what_only_the_store_can_refuse_leaves_it_as_it_was(said, here):
    assert said("train", *SIMULATED, "--store", "s.sqlite", "--name", "a")[0] == 0
    with Store("s.sqlite") as store:
        store.open_round(Round(2**30 - 2, [Cohort(b"body", [1])], 1))
        store.end_round(2**30 - 2, ABANDONED)
    code, told, _ = said("train", *SIMULATED, "--store", "s.sqlite", "--name", "b")
    assert code == errors.USAGE
    assert "would go beyond" in told["error"]
    assert [path.name for path in Path("runs").iterdir()] == ["a"]
    with Store("s.sqlite") as store:
        assert [run.name for run in store.runs()] == ["a"]


# Going on


@pytest.mark.parametrize(
    ("fleet", "named"),
    [(SIMULATED, "runs/mine"), (BOARDS, "runs/mine/store.sqlite")],
    ids=["directory", "store"],
)
def test_an_interrupted_run_goes_on_and_ends_as_it_would_have(named, fleet, said, cut):
    code, told, _ = cut(after(2), "train", *fleet, "--name", "mine")
    assert code == errors.INTERRUPTED
    assert told["hint"] == "go on with: tern train --resume mine"
    assert stored("mine").status == RUNNING
    code, result, _ = said("train", "--resume", named, "--no-report")
    assert code == 0
    assert (result["rounds"], result["reports"], len(result["history"])) == (4, int(fleet[3]), 4)
    if fleet is SIMULATED:
        assert result["weights"] == said("train", *SIMULATED)[1]["weights"]
    else:
        assert result["epsilon_spent"] == [[2.0, 40]]
    code, told, _ = said("train", "--resume", named)
    assert (code, told["error"]) == (errors.USAGE, "the run mine has finished")
    assert "result.json" in told["hint"]


def test_a_store_with_a_directory_of_its_own_names_its_run(said, cut):
    assert cut(after(1), "train", *SIMULATED, "--store", "two/s.sqlite")[0] == errors.INTERRUPTED
    code, told, _ = said("train", *SIMULATED, "--store", "two/s.sqlite")
    assert code == errors.USAGE
    assert "has not finished" in told["error"]
    assert "--resume" in told["hint"]
    assert "--anew" in told["hint"]
    assert said("train", "--resume", "two", "--no-report")[0] == 0


def test_a_run_can_be_given_up_for_another(said, cut):
    cut(after(1), "train", *BOARDS, "--store", "s.sqlite", "--name", "a")
    code, result, _ = said("train", *BOARDS, "--store", "s.sqlite", "--name", "b", "--anew")
    assert (code, result["epsilon_before"]) == (0, 0), "boards that are made for a run have spent nothing"
    with Store("s.sqlite") as store:
        assert {run.name: run.status for run in store.runs()} == {"a": ABANDONED, "b": FINISHED}
    code, told, _ = said("train", "--resume", "a")
    assert (code, told["error"]) == (errors.USAGE, "the run a was abandoned")


def test_options_of_a_run_that_goes_on_stay(said, cut):
    cut(after(1), "train", *SIMULATED, "--name", "a")
    for words in (["--epsilon", "1"], ["--store", "x"], ["--name", "b"], ["--anew"], ["--quorum", "0.5"]):
        code, told, _ = said("train", "--resume", "a", *words)
        assert code == errors.USAGE
        assert f"{words[0]} cannot be changed" in told["error"]
    for words in (["--fleet", "simulated:300"], ["--fleet", "port:/dev/null"]):
        code, told, _ = said("train", "--resume", "a", *words)
        assert (code, told["error"]) == (errors.USAGE, "a resumed run keeps its fleet, simulated:200")
    code, told, _ = said("collect", "--resume", "a")
    assert (code, told["error"], told["hint"]) == (
        errors.USAGE,
        "a is a run of tern train",
        "tern train --resume a",
    )
    assert said("train", "--resume", "a", "--no-report", "--fleet", "simulated:200")[0] == 0


def test_interrupted_while_boards_are_made_another_begins(said, monkeypatch):
    whole = provision.provision_board
    with monkeypatch.context() as patched:

        def provision_board(path, *rest):
            whole(path, *rest)
            if path.name == "board-001":
                raise KeyboardInterrupt

        patched.setattr(provision, "provision_board", provision_board)
        code, _, _ = said("train", *BOARDS, "--name", "a", "--store", "s.sqlite")
    assert code == errors.INTERRUPTED
    with Store("s.sqlite") as store:
        assert store.run("a").status == PREPARING
    code, result, _ = said("train", *BOARDS, "--name", "b", "--store", "s.sqlite")
    assert (code, result["reports"]) == (0, 40)


def test_killed_while_boards_are_made_it_goes_on(said):
    kill = (
        "import os, sys; from harness import in_process; "
        "from ternhost.provision import boards as provision; from ternhost.cli import main; "
        "whole = provision.provision_board;"
        "provision.provision_board = lambda path, *rest: (whole(path, *rest), os.kill(os.getpid(), 9));"
        "sys.exit(main(sys.argv[1:]))"
    )
    where = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"}
    ended = subprocess.run([sys.executable, "-c", kill, "train", *BOARDS, "--name", "a"], env=where)
    assert ended.returncode == -signal.SIGKILL
    assert stored("a").status == PREPARING
    code, result, _ = said("train", "--resume", "a", "--no-report")
    assert (code, result["reports"], result["epsilon_spent"]) == (0, 40, [[2.0, 40]])


# What a run of any length costs


def test_a_round_costs_the_same_after_any_number_of_rounds(said, monkeypatch):
    sizes = []
    written = Store.end_run_round

    def end_run_round(self, name, number, ended, state, entry, *more):
        sizes.append(len(json.dumps([state, entry])))
        written(self, name, number, ended, state, entry, *more)

    monkeypatch.setattr(Store, "end_run_round", end_run_round)
    options = ["--fleet", "simulated:80", "--reports", "80", "--group", "1", "--no-report", "--quiet"]
    assert said("train", *options)[0] == 0
    assert len(sizes) == 80
    assert max(sizes[-20:]) < 1.1 * max(sizes[20:40]), "what is written does not grow"


def test_a_round_reads_nothing_of_earlier_ones(said, monkeypatch):
    statements = []
    opened = Store._check_schema

    def check_schema(self):
        opened(self)
        self._db.set_trace_callback(statements.append)

    monkeypatch.setattr(Store, "_check_schema", check_schema)
    counts = []
    for reports in ("24", "12"):
        statements.clear()
        said("train", "--fleet", "inprocess:1", "--reports", reports, "--group", "1", *BOARDS[-2:])
        counts.append([sum(word in line for line in statements) for word in ("SELECT", "INSERT", "COMMIT")])
    for many, few in zip(*counts, strict=True):
        assert many <= 2 * few + 4, counts


# How a run ends


@pytest.fixture
def provisioned(here):
    """Two boards of 20 clients with records of flights: `provisioned(reports)` makes them, each with a budget for so
    many reports at epsilon 2, and is how a command names them."""

    def make(*reports):
        rows = datasets.load("flights").records(range(40))
        policies = [Policy(2_000_000, 2_000_000 * reports[i % len(reports)]) for i in range(40)]
        boards = [here / "a", here / "b"]
        with Store("keys.sqlite") as store:
            provision.provision_fleet(store, boards, rows, policies)
        ports = ",".join(f"inprocess:{board}" for board in boards)
        return ["--fleet", f"port:{ports}", "--store", "keys.sqlite", *BOARDS[2:]]

    return make


def test_devices_that_refuse_end_it_with_4_and_what_was_there_stays(provisioned, said):
    fleet = provisioned(1)
    assert said("train", *fleet, "--name", "kept")[0] == 0
    kept = Path("runs/kept/result.json").read_bytes()
    code, told, err = said("train", *fleet, "--name", "again")
    assert code == errors.REFUSED
    assert "their budget is spent" in told["error"]
    assert told["hint"]
    assert "a board says that an epsilon of 0 is left: it will refuse the rest" in err
    assert "round 5: 10 of 10 devices refuse" in err
    assert Path("runs/kept/result.json").read_bytes() == kept
    assert stored("again").status == FINISHED


def test_where_some_refuse_there_is_a_result_and_words_and_4(provisioned, said):
    fleet = provisioned(1, 2)
    said("train", *fleet)
    code, result, err = said("train", *fleet)
    assert code == errors.REFUSED
    assert (result["rounds"], result["reports"], result["refusals"], result["missing"]) == (4, 20, 20, 20)
    assert "20 of 40 reports that were asked for are missing: 20 were refused" in err
    assert Path(result["directory"], "result.json").exists()


def test_reports_that_do_not_come_are_told_of_with_6(said, monkeypatch):
    send = InProcessLink.send

    def deaf(self, frame):
        if not self.name.endswith("board-001"):
            send(self, frame)

    monkeypatch.setattr(InProcessLink, "send", deaf)
    began = time.monotonic()
    code, result, err = said("train", *BOARDS, "--silence", "0.5")
    assert code == errors.SHORT
    assert (result["reports"], result["missing"], result["rounds"]) == (20, 20, 4)
    assert "has been silent for 0.5 s" in err
    assert "board-001 is left out" in err
    assert "20 of 40 reports that were asked for are missing: 20 did not come" in err
    assert time.monotonic() - began < 60, "no round waited for its deadline"


def test_a_run_that_nobody_answers_ends(said, monkeypatch):
    monkeypatch.setattr(InProcessLink, "send", lambda self, frame: None)
    code, told, _ = said("train", *BOARDS, "--silence", "0.3")
    assert code == errors.NO_DEVICE
    assert "silent for 0.3 s" in told["error"]
    code, told, _ = said("train", *BOARDS, "--deadline", "0.5", "--name", "short")
    assert code == errors.NO_DEVICE
    assert told["error"] == "no device reported in 3 rounds"
    assert "--deadline" in told["hint"]
    assert stored("short").status == FINISHED


def test_a_round_that_nobody_answers_is_one_without_reports(said, monkeypatch):
    send, opened = InProcessLink.send, BoardsDriver.open
    rounds = []

    def open_round(self, number, cohorts):
        rounds.append(number)
        opened(self, number, cohorts)

    monkeypatch.setattr(BoardsDriver, "open", open_round)
    monkeypatch.setattr(
        InProcessLink, "send", lambda self, frame: None if len(rounds) == 2 else send(self, frame)
    )
    code, result, _ = said("train", *BOARDS, "--deadline", "0.5")
    assert code == errors.SHORT
    assert [entry["reports"] for entry in result["history"]] == [10, 0, 10, 10]
    assert [entry["ended"] for entry in result["history"]][1] == "deadline"
    assert result["missing"] == 10


def test_a_quorum_that_was_reached_is_no_lack(said, monkeypatch):
    code, result, _ = said("train", *BOARDS, "--quorum", "0.5")
    assert (code, result["missing"]) == (0, 0)
    assert result["reports"] >= 20


def test_what_a_killed_board_leaves_beside_its_ledgers_is_no_client(said, monkeypatch):
    spent = results.epsilon_spent

    def after_a_power_cut(boards):
        (boards[0] / "ledger/00000001.new").write_bytes(b"")
        (boards[1] / "ledger/00000028").write_bytes(b"cut short")
        return spent(boards)

    monkeypatch.setattr(results, "epsilon_spent", after_a_power_cut)
    code, result, _ = said("train", *BOARDS)
    assert (code, result["epsilon_spent"]) == (0, [[2.0, 39]])


# What a run costs


def test_the_cost_is_said_before_it_starts_and_for_life(provisioned, said):
    fleet = [word for word in provisioned(5) if word != "--quiet"]
    code, result, err = said("train", *fleet)
    assert "each client spends epsilon 2 in total: one report of one coordinate at epsilon 2" in err
    assert "for life" not in err
    assert "will refuse" not in err
    assert err.index("each client spends") < err.index("round 1/4")
    assert "found 2 boards with 40 clients\n" in err
    assert result["epsilon_before"] == 0
    code, result, err = said("train", *fleet, "--budget", "10")
    assert (code, result["epsilon_before"]) == (0, 2)
    assert "; earlier runs cost up to 2, 4 together, of a budget of 10; the boards say that 8 is left" in err
    code, result, err = said("train", *fleet, "--epsilon", "1.5")
    assert (code, result["epsilon_before"]) == (0, 4)
    assert "; earlier runs cost up to 4, 5.5 together; the boards say that 6 is left" in err


def test_a_budget_that_is_named_counts_what_was_spent_before(provisioned, said):
    fleet = provisioned(5)
    assert said("train", *fleet)[0] == 0
    code, told, _ = said("train", *fleet, "--budget", "3", "--name", "more")
    assert (code, told["exit_code"]) == (errors.REFUSED, errors.REFUSED)
    assert "with the epsilon of 2 that was spent before, this would cost a client 4" in told["error"]
    assert "--budget" in told["hint"]
    with Store("keys.sqlite") as store:
        assert store.run("more").status == FINISHED
        assert store.last_round() == 4, "nothing was asked"
    assert said("train", *fleet, "--budget", "4")[0] == 0


def test_who_goes_on_is_not_warned_of_the_round_under_way(provisioned, said, cut):
    words = ["train", *provisioned(1), "--group", "40", "--name", "cut", "--no-report"]
    assert cut(lambda status: status.reports, *words)[0] == errors.INTERRUPTED
    assert stored("cut").state["rounds"] == 0
    code, result, err = said("train", "--resume", "cut", "--quiet", "--no-report")
    assert (code, result["missing"]) == (0, 0)
    assert "will refuse" not in err


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_a_squared_error_is_not_called_accuracy(model, capsys):
    data = {"linear": "synthetic-linear", "logistic": "synthetic-logistic"}[model]
    tern(["train", "--model", model, "--dataset", data, *SIMULATED[:-1], "--name", "mine"])
    told = capsys.readouterr()
    result = json.loads(Path("runs/mine/result.json").read_text())
    assert ("accuracy" in told.out + told.err) == ("accuracy" in json.dumps(result)) == (model == "logistic")
    assert ("squared error" in told.out) == (result["measure"] == "squared_error") == (model == "linear")


# Reports of runs


@pytest.mark.sampled(2)  # `tern demo` has one of fedsgd
@pytest.mark.parametrize(
    "words",
    [
        "collect --fleet simulated:100",
        "train --fleet simulated:100 --reports 100",
        "train --algorithm fedavg --fleet simulated:50 --rounds 2 --mechanism pdpm",
        "train --algorithm hiera --fleet simulated:100 --reports 100",
        "train --dataset synthetic-linear --model linear --fleet simulated:100 --reports 100",
        "infer --dataset iris --fleet simulated:50",
    ],
    ids=["collect", "fedsgd", "fedavg", "hiera", "regression", "infer"],
)
def test_every_run_ends_with_a_report_of_one_file(words, said, coarse):
    words = words.split()
    code, result, _ = said(*words, "--quiet")
    assert code == 0
    source = Path(result["report"]).read_text()
    assert "http" not in source
    assert not re.search(r"<(script|link|iframe|object)|url\(", source)
    assert source.count("<img src='data:image/png;base64,") == len(result["pictures"]) > 1
    for picture in result["pictures"]:
        assert Path(picture).read_bytes().startswith(b"\x89PNG")


def test_a_run_whose_directory_is_gone_does_not_take_anothers(said, here):
    quick = ("--fleet", "simulated:40", "--reports", "40", "--group", "20", "--no-report")
    said("train", *quick, "--name", "a")
    with Store("runs/a/store.sqlite") as store:
        known = store.run("a")
        asked = {**known.asked, "directory": str(here / "gone")}
        store.begin_run(StoredRun("b", 9.0, RUNNING, asked, {**known.state, "algorithm": None, "rounds": 0}))
    code, told, _ = said("train", "--resume", "runs/a/store.sqlite", "--no-report")
    assert (code, told["run"]) == (0, "b")
    assert json.loads(Path("runs/a/result.json").read_text())["run"] == "a"
