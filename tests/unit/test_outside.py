"""Extensions of another package work wherever tern's own do: an algorithm with Adam, an optimiser,
a mechanism with an option of its own, and a driver with its fleet kind.

tests/outside/ has a file for each. A line of a program or an entry point registers it.
"""

import json
import math
import os
import re
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
from ternhost.errors import INTERRUPTED, REFUSED
from ternhost.files import write_file
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import dealt_records, epsilon_spent, provision_fleet
from ternhost.reach.fleet import KINDS
from ternhost.registry import Registry
from ternhost.run.round_loop import RoundLoop
from ternhost.store.store import Store

OUTSIDE = Path(__file__).parent.parent / "outside"
TRAIN = ["train", "--dataset", "iris", "--reports", "100", "--group", "10", "--epsilon", "8"]
SIGNS = [
    *TRAIN,
    "--algorithm",
    "signs",
    "--dead-zone",
    "0.01",
    "--mechanism",
    "flipped",
    "--flip",
    "0.2",
]


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


def test_every_extension_is_a_choice_of_the_command_line(outside, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"--algorithm \{fedsgd,fedavg,fedsum,direct,[a-z,]*signs[a-z,]*\}", text)
    assert "--dead-zone X up to which size a mean gradient counts as 0" in text
    assert "--flip P flipped: the least probability of the wrong sign" in text
    assert "--optimiser {averaging,momentum,adam,amsgrad}" in text


def test_an_algorithm_with_adam_trains_and_has_a_report(outside, tern):
    result = tern(*SIGNS, "--fleet", "simulated:100")
    assert (result["algorithm"], result["optimiser"], result["mechanism"]) == (
        "signs",
        "adam",
        "flipped",
    )
    assert (result["rounds"], result["reports"], result["stopped"]) == (10, 100, "rounds")
    assert result["options"]["dead_zone"] == 0.01
    assert result["options"]["mechanism_options"] == {"flip": 0.2}
    assert result["accuracy_optimum"] > 0.8
    page = Path(result["report"]).read_text()
    for words in ("signs", "flipped", "adam", "at a learning rate of"):
        assert words in page
    pictures = {Path(path).stem for path in result["pictures"]}
    assert pictures == {"accuracy", "bytes", "gradient", "card", "epsilon"}
    assert all(Path(path).stat().st_size > 5000 for path in result["pictures"])


def test_the_dead_zone_reaches_the_algorithm(outside, tern):
    narrow = tern(*SIGNS, "--fleet", "simulated:100", "--no-report")
    wide = tern(
        *SIGNS, "--fleet", "simulated:100", "--no-report", "--dead-zone", "0.99", "--range", "0"
    )
    assert wide["weights"] != narrow["weights"]
    assert wide["accuracy_optimum"] == narrow["accuracy_optimum"]
    assert set(wide["weights"]) != {0.0}  # a report says more than 0.99 or nothing


def test_an_interrupted_run_of_an_extension_is_resumed_exactly(outside, tern, monkeypatch, capsys):
    run = tern(*SIGNS, "--fleet", "simulated:100", "--name", "whole", "--no-report")
    learned = RoundLoop.learn

    def until_the_fourth(self, *args):
        learned(self, *args)
        if self._run.state.rounds == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(RoundLoop, "learn", until_the_fourth)
    assert main([*SIGNS, "--fleet", "simulated:100", "--name", "cut", "--quiet"]) == INTERRUPTED
    assert "tern train --resume cut" in capsys.readouterr().err
    monkeypatch.setattr(RoundLoop, "learn", learned)
    assert outcome(tern("train", "--resume", "cut", "--no-report")) == outcome(run)
    runs = [(line["algorithm"], line["status"]) for line in tern("runs")["runs"]]
    assert runs == [("signs", "finished")] * 2


def test_boards_serve_an_algorithm_and_mechanism_from_outside(outside, tern, undrawn):
    argv = [*SIGNS, "--reports", "12", "--group", "6", "--optimiser", "amsgrad"]
    result = tern(*argv, "--fleet", "emulated:1")
    assert (result["rounds"], result["reports"], result["missing"]) == (2, 12, 0)
    assert result["optimiser"] == "amsgrad"
    assert [epsilon for epsilon, _ in result["epsilon_spent"]] == [result["epsilon_paid"]]
    assert Path(result["report"]).exists()


def test_an_optimiser_from_outside_serves_another_algorithm(outside, tern):
    argv = [
        *TRAIN,
        "--reports",
        "1000",
        "--algorithm",
        "fedsgd",
        "--fleet",
        "simulated:100",
        "--no-report",
    ]
    ams, adam = (tern(*argv, "--optimiser", name) for name in ("amsgrad", "adam"))
    assert ams["optimiser"] == "amsgrad"
    assert ams["weights"] != adam["weights"]
    assert ams["learning_rate"] == adam["learning_rate"]  # amsgrad takes Adam's automatic rate


def test_a_mechanism_from_outside_collects_means(outside, tern, undrawn):
    argv = ["collect", "--dataset", "iris", "--epsilon", "4", "--fleet", "simulated:20000"]
    flat, plain = (tern(*argv, "--mechanism", "flipped", *flip) for flip in (("--flip", "0.4"), ()))
    duchi = tern(*argv, "--mechanism", "duchi", "--no-report")
    for result in (flat, plain):
        assert result["parts"][0]["mechanism"] == "flipped"
        assert "flipped" in Path(result["report"]).read_text()
        for entry in result["attributes"]:
            assert abs(entry["mean"] - entry["true"]) < entry["interval"][1] - entry["interval"][0]

    def widths(result):
        return [entry["interval"][1] - entry["interval"][0] for entry in result["attributes"]]

    assert min(widths(flat)) > 1.5 * max(widths(plain))
    assert widths(plain) == pytest.approx(
        widths(duchi), rel=0.05
    )  # without --flip it is Duchi's mechanism


def test_a_card_of_a_mechanism_from_outside_is_designed_and_used(outside, tern):
    plain = tern("card", "design", "flipped", "--epsilon", "2")
    assert plain["worst_case_variance"] == pytest.approx(1 / math.tanh(1) ** 2, rel=1e-5)
    assert "flipped" in tern("card", "list")["mechanisms"]
    tern("card", "design", "flipped", "--epsilon", "8", "--flip", "0.2", "-o", "f.card")
    flipped = tern("card", "show", "flipped", "--epsilon", "8", "--flip", "0.2")
    assert flipped["worst_case_variance"] == pytest.approx(1 / 0.6**2)
    card = Path("f.card").read_bytes().hex()
    fleet = ["--fleet", "simulated:100", "--no-report"]
    named, given = (
        tern(*SIGNS, "--k", "1", *fleet),
        tern(*SIGNS[:-4], "--k", "1", "--card", "f.card", *fleet),
    )
    assert named["card"] == given["card"] == card
    assert named["weights"] == given["weights"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*SIGNS[:-2], "--flip", "0.7"], "--flip must be 0 or more and less than 0.5, not 0.7"),
        ([*TRAIN, "--dead-zone", "0.1"], "--dead-zone belongs to signs, and this run is fedsgd"),
        ([*SIGNS, "--dead-zone", "1"], "--dead-zone must be 0 or more and below 1, not 1.0"),
        ([*TRAIN, "--flip", "0.1"], "three-outputs has no option --flip"),
        ([*SIGNS, "--records", "2"], "--records belongs to fedavg"),
    ],
)
def test_wrong_options_of_extensions_are_refused_like_tern_s_own(outside, capsys, argv, message):
    assert main([*argv, "--fleet", "simulated:100"]) == 2
    assert message in capsys.readouterr().err


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


def test_a_driver_from_outside_runs_rounds(outside, tern, tmp_path, capsys):
    store, board = tmp_path / "keys.sqlite", tmp_path / "board"
    policy = Policy(8_000_000, 8_000_000)
    rows = dealt_records(datasets.held("iris"), clients=12, each=1, seed=1)
    with Store(store) as opened:
        provision_fleet(opened, [board], rows, policy)
    argv = [*TRAIN[:3], "--reports", "12", "--group", "6", "--epsilon", "8", "--store", str(store)]
    with devices_of_a_folder(tmp_path / "stick", board):
        result = tern(
            *argv, "--fleet", f"folder:{tmp_path / 'stick'}", "--name", "carried", "--no-report"
        )
        assert (result["rounds"], result["reports"], result["missing"]) == (2, 12, 0)
        assert epsilon_spent([board]) == [[result["epsilon_paid"], 12]]
        assert main([*argv, "--fleet", f"folder:{tmp_path / 'stick'}", "--quiet"]) == REFUSED
    assert "their budget is spent" in capsys.readouterr().err


@pytest.mark.slow
def test_entry_points_register_extensions(tmp_path):
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

    def tern(*argv):
        program = "import sys; from ternhost.cli import main; sys.exit(main())"
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        words, place = (
            [sys.executable, "-c", program, *argv, "--json"],
            {**os.environ, "PYTHONPATH": path},
        )
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=place)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    result = tern(*SIGNS, "--optimiser", "amsgrad", "--fleet", "simulated:100", "--no-report")
    assert (result["algorithm"], result["optimiser"], result["mechanism"]) == (
        "signs",
        "amsgrad",
        "flipped",
    )


@pytest.mark.parametrize("name", ["infer", "collect"])
def test_infer_and_collect_run_an_algorithm_from_outside(outside, tern, undrawn, capsys, name):
    """`tern infer` and `tern collect` can run other algorithms than their own."""
    ALGORITHMS.register("again", type("Again", (ALGORITHMS[name],), {"name": "again"}))
    argv = [name, "--dataset", "iris", "--fleet", "simulated:75", "--epsilon", "8"]
    result = tern(*argv, "--algorithm", "again", "--name", "mine")
    assert result["algorithm"] == "again"
    assert Path(result["report"]).exists()
    assert outcome(tern(*argv, "--no-report")) == outcome(result) | {"algorithm": name}
    assert main([name, "--resume", "mine"]) == 0
    assert "has finished" in capsys.readouterr().err


def test_a_lent_entry_leaves_the_registry_unchanged():
    names = Registry("thing", "tern.things", {"first": "json:loads"})
    names.register("mine", "own")
    before = dict(names)
    with names.lent("borrowed", "lent"), names.lent("first", "too"), names.lent("mine", "not"):
        assert [names[name] for name in ("borrowed", "first", "mine")] == ["lent", "too", "not"]
    assert dict(names) == before
    assert list(names) == list(before)


# tern --with FILE.py

WITH = [f"--with={OUTSIDE / name}.py" for name in ("signs", "amsgrad", "flipped")]


def test_the_option_with_registers_the_definitions_of_its_files(tern, request):
    argv = [*SIGNS, "--optimiser", "amsgrad", "--fleet", "simulated:100", "--no-report"]
    assert "signs" not in ALGORITHMS
    named = outcome(tern(*WITH, *argv))
    request.getfixturevalue("outside")  # registers other classes of the same files
    assert named == outcome(tern(*argv))


def test_a_run_without_its_extension_names_the_missing_one(tern, undrawn, monkeypatch, capsys):
    Path("crowd.py").write_text(
        "from ternhost.reach.simulated.fleet import Simulated\n"
        "class Crowd(Simulated):\n    form, about = 'crowd:N', 'N simulated clients'\n"
    )
    files = [*WITH, "--with", "crowd.py"]
    argv = [
        *files,
        *SIGNS,
        "--optimiser",
        "amsgrad",
        "--fleet",
        "crowd:100",
        "--name",
        "cut",
        "--quiet",
    ]
    with monkeypatch.context() as cut:
        cut.setattr(RoundLoop, "learn", Mock(side_effect=KeyboardInterrupt))
        assert main(argv) == INTERRUPTED
    named = "".join(f"--with {word.removeprefix('--with=')} " for word in [*WITH, "crowd.py"])
    assert f"go on with: tern {named}train --resume cut" in capsys.readouterr().err
    extensions = {
        "signs": ALGORITHMS,
        "amsgrad": OPTIMISERS,
        "flipped": mechanisms.REGISTRY,
        "crowd": KINDS,
    }
    for name, registry in extensions.items():
        capsys.readouterr()
        with monkeypatch.context() as missing:
            missing.delitem(registry._places, name)
            missing.delitem(registry._loaded, name)
            assert main(["train", "--resume", "cut"]) == 2
        error = capsys.readouterr().err
        assert f"the run cut needs the {registry.what} '{name}', which is not registered" in error
        assert "tern --with FILE.py" in error
    assert tern("train", "--resume", "cut", "--no-report")["algorithm"] == "signs"
    del ALGORITHMS._places["signs"], ALGORITHMS._loaded["signs"]
    refused = tern("runs", "--draw", "cut", code=2)
    assert "the run cut needs the algorithm 'signs'" in refused["error"]
    assert Path(tern(*files, "runs", "--draw", "cut")["report"]).exists()


def test_a_mechanism_but_no_algorithm_may_repeat_an_option_of_a_command(tern):
    example = str(OUTSIDE.parents[1] / "examples/own_mechanism.py")
    fleet = ["--fleet", "simulated:100", "--no-report", "--quiet"]
    assert (
        tern("--with", example, *TRAIN, "--mechanism", "quiet", "--zero", "0.2", *fleet)["levels"]
        == 3
    )
    Path("own.py").write_text((OUTSIDE / "flipped.py").read_text().replace("flip", "quiet"))
    assert (
        tern("--with", "own.py", *TRAIN, "--mechanism", "quietped", *fleet)["mechanism"]
        == "quietped"
    )
    Path("own.py").write_text((OUTSIDE / "signs.py").read_text().replace("dead_zone", "anew"))
    refused = tern("--with", "own.py", *TRAIN, code=2)
    assert "two options of 'tern train' have one name" in refused["error"]
    assert "--anew" in refused["error"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no Python file"),
        ("1 / 0", "ZeroDivisionError"),
        ("import nowhere", "nowhere"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(tern, content, words):
    if content is not None:
        Path("mine.py").write_text(content)
    assert words in tern("--with", "mine.py", "runs", code=2)["error"]
