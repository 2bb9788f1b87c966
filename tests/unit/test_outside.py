"""Extensions of another package work wherever tern's own do: an algorithm with Adam, an optimiser,
a mechanism with an option of its own, and a driver with its fleet kind.

tests/outside/ has a file for each. A line of a program or an entry point registers it.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from tern.boards.emulated import Board
from tern.client import Client
from ternhost import datasets
from ternhost.cli import main
from ternhost.errors import INTERRUPTED, USAGE
from ternhost.files import write_file
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.models.optimisers import OPTIMISERS
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import dealt_records, epsilon_spent, provision_fleet
from ternhost.reach.fleet import KINDS
from ternhost.run.round_loop import RoundLoop
from ternhost.store.store import Store

OUTSIDE = Path(__file__).parent.parent / "outside"
TRAIN = ["train", "--data", "iris", "--reports", "100", "--group", "10", "--epsilon", "8"]
SIGNS = [
    *TRAIN,
    *["signs", "--dead-zone", "0.01", "--mechanism", "flipped"],
]
SIMULATED = ["--fleet", "simulated:100", "--no-report"]


@pytest.fixture
def registries(monkeypatch, tmp_path):
    """Registries that last for one test."""
    for registry in (ALGORITHMS, OPTIMISERS, mechanisms.REGISTRY, KINDS):
        for table in ("_places", "_loaded"):
            monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
        monkeypatch.setattr(registry, "_complete", registry._complete)
    monkeypatch.syspath_prepend(OUTSIDE)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def outside(registries):
    """Every extension is registered by its line, for one test."""
    import amsgrad
    import flipped
    import folder_fleet
    import signs

    ALGORITHMS.register("signs", signs.SignSGD)
    OPTIMISERS.register("amsgrad", amsgrad.AmsGrad)
    KINDS.register("folder", folder_fleet.FolderFleet)
    mechanisms.REGISTRY.register("flipped", flipped.FLIPPED)


@pytest.fixture
def tern(registries, tern):
    """`tern(*argv, code)`: the result of a command, which ends with that code."""
    return lambda *argv, code=0: tern(*argv, "--json", code=code).json


def outcome(result):
    """The part of a result that does not depend on the clock or the name of the run."""
    varying = {"run", "directory", "store", "seconds", "reports_per_second", "report", "pictures"}
    return {name: value for name, value in result.items() if name not in varying}


def test_an_algorithm_with_adam_trains(outside, tern):
    result = tern(*SIGNS, *SIMULATED)
    assert (result["algorithm"], result["mechanism"]) == ("signs", "flipped")
    assert result["optimiser"] == "adam"
    assert result["options"]["dead_zone"] == 0.01
    assert (result["rounds"], result["reports"]) == (10, 100)


def test_boards_serve_an_algorithm_and_mechanism_from_outside(outside, tern):
    words = [*SIGNS, "--reports", "12", "--group", "6", "--optimiser", "amsgrad"]
    result = tern(*words, "--fleet", "emulated:1", "--no-report")
    assert (result["rounds"], result["reports"], result["missing"]) == (2, 12, 0)
    assert result["optimiser"] == "amsgrad"
    assert [epsilon for epsilon, _ in result["epsilon_spent"]] == [result["epsilon_paid"]]


def test_a_card_of_a_mechanism_from_outside_is_designed(outside, tern):
    flipped = tern("card", "design", "flipped", "--epsilon", "8", "--flip", "0.2")
    # Its reports are -1 or 1; one in five is flipped, so they are divided by 1 - 2 / 5.
    assert flipped["worst_case_variance"] == pytest.approx(1 / (1 - 2 * 0.2) ** 2)
    assert "flipped" in tern("card", "list")["mechanisms"]


@pytest.mark.parametrize(
    "words",
    [
        ["card", "design", "flipped", "--epsilon", "8", "--flip", "0.7"],  # a half at most
        [*SIGNS, *SIMULATED, "--tau", "2"],  # an option of fedavg
        [*TRAIN, *SIMULATED, "--flip", "0.1"],  # an option of a mechanism, not of a run
    ],
)
def test_wrong_options_of_extensions_are_refused_like_tern_s_own(outside, tern, words):
    refused = tern(*words, code=USAGE)
    assert words[-2] in refused["error"]


@contextmanager
def devices_of_a_folder(folder, board):
    """Run the device library on the files of a board: it answers the requests in a folder."""
    client, ended = Client(Board(str(board))), threading.Event()

    def answer(path):
        reply = []
        client.respond(
            memoryview(path.read_bytes()), lambda frame, n: reply.append(bytes(frame[:n]))
        )
        path.unlink()
        for frame in reply:
            write_file(folder / "reports" / path.name, frame)

    def run():
        while not ended.wait(0.01):
            for path in folder.glob("requests/[0-9]*.frame"):
                answer(path)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def board_in_a_folder(tmp_path):
    """Twelve clients, who pay for one report each, answer requests in a folder.

    (the options of a command for this fleet, the directory of the board)
    """
    store, board, stick = tmp_path / "keys.sqlite", tmp_path / "board", tmp_path / "stick"
    one_report = Policy(largest=8_000_000, budget=8_000_000)
    rows = dealt_records(datasets.load("iris"), clients=12, each=1, seed=1)
    with Store(store) as opened:
        provision_fleet(opened, [board], rows, one_report)
    with devices_of_a_folder(stick, board):
        yield ["--fleet", f"folder:{stick}", "--store", str(store), "--no-report"], board


def test_a_driver_from_outside_runs_rounds(outside, tern, board_in_a_folder):
    """A driver is how a host reaches its devices. One of another package, which exchanges frames as
    files in a folder, trains over two rounds of six devices.
    """
    fleet, board = board_in_a_folder
    two_rounds = ["--data", "iris", "--reports", "12", "--group", "6", "--epsilon", "8"]

    result = tern("train", *two_rounds, *fleet)

    # Two rounds of six devices: twelve reports, and none is missing.
    assert (result["rounds"], result["reports"], result["missing"]) == (2, 12, 0)
    assert epsilon_spent([board]) == [[result["epsilon_paid"], 12]], "12 devices paid it"


@pytest.mark.slow
def test_entry_points_register_extensions(tmp_path):
    """An installed package extends tern by its entry points alone. Its metadata name a learning
    algorithm, an optimiser and a privacy mechanism; a command in a new process uses all three.
    """
    for name in ("signs", "amsgrad", "flipped"):
        shutil.copy(OUTSIDE / f"{name}.py", tmp_path)
    about = tmp_path / "outside-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[tern.algorithms]\nsigns = signs:SignSGD\n"
        "[tern.optimisers]\namsgrad = amsgrad:AmsGrad\n"
        "[tern.mechanisms]\nflipped = flipped:FLIPPED\n"
    )

    # A process that finds this package on its path trains on simulated devices.
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    words = [sys.executable, "-m", "ternhost", *SIGNS, "--optimiser", "amsgrad", *SIMULATED]
    ended = subprocess.run(
        [*words, "--json"],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )

    result = json.loads(ended.stdout)
    assert (result["algorithm"], result["mechanism"]) == ("signs", "flipped")
    assert result["optimiser"] == "amsgrad"


# tern --with FILE.py

WITH = [f"--with={OUTSIDE / name}.py" for name in ("signs", "amsgrad", "flipped")]


def test_the_option_with_registers_the_definitions_of_its_files(tern, request):
    words = [*SIGNS, "--optimiser", "amsgrad", *SIMULATED]
    assert "signs" not in ALGORITHMS
    named = outcome(tern(*WITH, *words))
    request.getfixturevalue("outside")  # registers other classes of the same files
    assert named == outcome(tern(*words))


CROWD = """
from ternhost.reach.simulated.fleet import Simulated

class Crowd(Simulated):
    form, about = 'crowd:N', 'N simulated clients'
"""


@pytest.fixture
def hint_of_interrupted_run(tern, monkeypatch):
    """What the run "cut" of four extensions said about going on, when it was interrupted."""
    Path("crowd.py").write_text(CROWD)
    words = [*WITH, "--with=crowd.py", *SIGNS, "--optimiser", "amsgrad", "--fleet", "crowd:100"]
    with monkeypatch.context() as interrupted:
        interrupted.setattr(RoundLoop, "learn", Mock(side_effect=KeyboardInterrupt))
        return tern(*words, "--name", "cut", code=INTERRUPTED)["hint"]


def test_the_hint_of_an_interrupted_run_names_the_files_of_its_extensions(
    hint_of_interrupted_run,
):
    named = " ".join(word.replace("=", " ") for word in [*WITH, "--with=crowd.py"])
    assert hint_of_interrupted_run == f"go on with: tern {named} resume cut"


@pytest.mark.usefixtures("hint_of_interrupted_run")
@pytest.mark.parametrize(
    ("name", "registry"), [("signs", ALGORITHMS), ("flipped", mechanisms.REGISTRY)]
)
def test_a_run_without_its_extension_names_the_missing_one(tern, monkeypatch, name, registry):
    with monkeypatch.context() as missing:
        missing.delitem(registry._places, name)
        missing.delitem(registry._loaded, name)
        refused = tern("resume", "cut", code=USAGE)
    assert f"needs the {registry.what} '{name}'" in refused["error"]
    assert "tern --with FILE.py" in str(refused)


@pytest.mark.parametrize(
    ("file", "reason"),
    [("missing.py", "there is no Python file"), ("mine.py", "ZeroDivisionError")],
)
def test_a_file_that_cannot_be_loaded_is_refused(tern, file, reason):
    Path("mine.py").write_text("1 / 0")
    assert reason in tern("--with", file, "runs", code=USAGE)["error"]


TAKES_A_NAME_OF_ALL_RUNS = """
from dataclasses import dataclass
from ternhost.learn.models import fedsgd
from ternhost.options import option

@dataclass(frozen=True)
class Options(fedsgd.Options):
    {name}: str = option('', 'an option of mine')

class Mine(fedsgd.FedSGD):
    name = 'mine'
    Options = Options
"""


@pytest.mark.parametrize("name", ["store", "name", "budget", "quorum"])
def test_a_learner_must_not_declare_an_option_that_all_runs_have(tern, name):
    Path("mine.py").write_text(TAKES_A_NAME_OF_ALL_RUNS.format(name=name))
    refused = tern("--with=mine.py", "train", "mine", "--fleet=simulated:9", code=USAGE)
    assert f"--{name}" in refused["error"]


@pytest.mark.usefixtures("registries")
def test_an_option_without_a_group_has_a_heading_in_the_help(capsys):
    Path("mine.py").write_text(TAKES_A_NAME_OF_ALL_RUNS.format(name="mood"))
    with pytest.raises(SystemExit):
        main(["--with=mine.py", "train", "mine", "--help"])
    lines = capsys.readouterr().out.splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("  --mood")]
    headings = [line for line in lines[:number] if line.endswith(":")]
    assert len(headings[-1]) > 1
