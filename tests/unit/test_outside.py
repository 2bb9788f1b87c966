"""What another package brings in one file and one line works wherever tern's own does: an algorithm with Adam, an
optimiser, a mechanism with an option of its own, and a driver with its fleet kind.

tests/outside/ has the files; each is registered by a line of a program, or by an entry point.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tern.boards.emulated import Board
from tern.client import Client
from ternhost import datasets
from ternhost.cli import main
from ternhost.errors import INTERRUPTED, REFUSED
from ternhost.experiments import Options, variance
from ternhost.files import write_file
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import epsilon_spent, provision_from
from ternhost.reach.fleet import KINDS
from ternhost.registry import Registry
from ternhost.run.run import Run

OUTSIDE = Path(__file__).parent.parent / "outside"
TRAIN = ["train", "--dataset", "iris", "--reports", "100", "--group", "10", "--epsilon", "8"]
SIGNS = [*TRAIN, "--algorithm", "signs", "--dead-zone", "0.01", "--mechanism", "flipped", "--flip", "0.2"]


@pytest.fixture
def registries(monkeypatch, tmp_path):
    """Gives one test registries of its own."""
    for registry in (ALGORITHMS, OPTIMISERS, mechanisms.REGISTRY, KINDS):
        for table in ("_places", "_loaded"):
            monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
        monkeypatch.setattr(registry, "_complete", registry._complete)
    monkeypatch.syspath_prepend(OUTSIDE)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def outside(registries):
    """Registers each file by its line, for one test."""
    import amsgrad
    import flipped
    import folder_fleet
    import signs

    ALGORITHMS.register("signs", signs.SignSGD)
    OPTIMISERS.register("amsgrad", amsgrad.AmsGrad)
    KINDS.register("folder", folder_fleet.FolderFleet)
    mechanisms.REGISTRY.register("flipped", flipped.FLIPPED)


@pytest.fixture
def tern(registries, capsys):
    """Runs a command and returns its result."""

    def command(*argv, code=0):
        found = main([*argv, "--json"])
        told = capsys.readouterr()
        assert found == code, told.err
        return json.loads(told.out)

    return command


def whole(result):
    """What does not depend on the clock and on the name of a run."""
    other = {"run", "directory", "store", "seconds", "reports_per_second", "report", "pictures"}
    return {name: value for name, value in result.items() if name not in other}


def test_each_is_a_choice_of_the_command_line(outside, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--algorithm {fedsgd,fedavg,hiera,signs}" in text
    assert "--dead-zone X up to which size a mean gradient counts as 0" in text
    assert "--flip P flipped: the least probability of the wrong sign" in text
    assert "--optimiser {averaging,momentum,adam,amsgrad}" in text


def test_an_algorithm_with_adam_trains_and_has_a_report(outside, tern):
    result = tern(*SIGNS, "--fleet", "simulated:100")
    assert (result["algorithm"], result["optimiser"], result["mechanism"]) == ("signs", "adam", "flipped")
    assert (result["rounds"], result["reports"], result["stopped"]) == (10, 100, "rounds")
    assert result["options"]["dead_zone"] == 0.01
    assert result["options"]["mechanism_options"] == {"flip": 0.2}
    assert result["accuracy_optimum"] > 0.8
    page = Path(result["report"]).read_text()
    for words in ("signs", "flipped", "adam", "at a learning rate of"):
        assert words in page
    assert {Path(path).stem for path in result["pictures"]} == {
        "accuracy", "bytes", "gradient", "card", "epsilon",
    }  # fmt: skip
    assert all(Path(path).stat().st_size > 5000 for path in result["pictures"])


def test_the_dead_zone_reaches_the_algorithm(outside, tern):
    own = tern(*SIGNS, "--fleet", "simulated:100", "--no-report")
    wide = tern(*SIGNS, "--fleet", "simulated:100", "--no-report", "--dead-zone", "0.99", "--range", "0")
    assert wide["weights"] != own["weights"]
    assert wide["accuracy_optimum"] == own["accuracy_optimum"]
    assert set(wide["weights"]) != {0.0}  # a report says more than 0.99 or nothing


def test_an_interrupted_run_of_it_comes_to_the_same_end(outside, tern, monkeypatch, capsys):
    run = tern(*SIGNS, "--fleet", "simulated:100", "--name", "whole", "--no-report")
    learned = Run._learn

    def until_the_fourth(self, *args):
        learned(self, *args)
        if self._state["rounds"] == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "_learn", until_the_fourth)
    assert main([*SIGNS, "--fleet", "simulated:100", "--name", "cut", "--quiet"]) == INTERRUPTED
    assert "tern train --resume cut" in capsys.readouterr().err
    monkeypatch.setattr(Run, "_learn", learned)
    assert whole(tern("train", "--resume", "cut", "--no-report")) == whole(run)
    assert [(line["algorithm"], line["status"]) for line in tern("runs")["runs"]] == [
        ("signs", "finished")
    ] * 2


def test_devices_answer_it(outside, tern, undrawn):
    argv = [*SIGNS, "--reports", "12", "--group", "6", "--optimiser", "amsgrad"]
    result = tern(*argv, "--fleet", "emulated:1")
    assert (result["rounds"], result["reports"], result["missing"]) == (2, 12, 0)
    assert result["optimiser"] == "amsgrad"
    assert [epsilon for epsilon, _ in result["epsilon_spent"]] == [result["epsilon_per_client"]]
    assert Path(result["report"]).exists()


@pytest.mark.parametrize("algorithm", ["fedsgd", "hiera"])
def test_an_optimiser_moves_any_model(outside, tern, algorithm):
    argv = [*TRAIN, "--algorithm", algorithm, "--fleet", "simulated:100", "--no-report"]
    ams, adam = (tern(*argv, "--optimiser", name) for name in ("amsgrad", "adam"))
    assert ams["optimiser"] == "amsgrad"
    assert ams["weights"] != adam["weights"]
    assert ams["learning_rate"] == adam["learning_rate"]  # as it says for itself


def test_means_are_collected_by_the_mechanism(outside, tern, undrawn):
    argv = ["collect", "--dataset", "iris", "--epsilon", "4", "--fleet", "simulated:20000"]
    flat, plain = (tern(*argv, "--mechanism", "flipped", *own) for own in (("--flip", "0.4"), ()))
    duchi = tern(*argv, "--mechanism", "duchi", "--no-report")
    for result in (flat, plain):
        assert result["parts"][0]["mechanism"] == "flipped"
        assert "flipped" in Path(result["report"]).read_text()
        for entry in result["attributes"]:
            assert abs(entry["mean"] - entry["true"]) < entry["interval"][1] - entry["interval"][0]

    def widths(result):
        return [entry["interval"][1] - entry["interval"][0] for entry in result["attributes"]]

    assert min(widths(flat)) > 1.5 * max(widths(plain))
    assert widths(plain) == pytest.approx(widths(duchi), rel=0.05)  # which it is, without its option


def test_its_card_is_designed_by_a_command_and_taken_by_another(outside, tern):
    plain = tern("card", "design", "flipped", "--epsilon", "2")
    assert plain["worst_case_variance"] == pytest.approx(1 / math.tanh(1) ** 2, rel=1e-5)
    assert "flipped" in tern("card", "list")["mechanisms"]
    tern("card", "design", "flipped", "--epsilon", "8", "--flip", "0.2", "-o", "f.card")
    assert tern("card", "show", "flipped", "--epsilon", "8", "--flip", "0.2")["worst_case_variance"] == (
        pytest.approx(1 / 0.6**2)
    )
    card = Path("f.card").read_bytes().hex()
    own = ["--fleet", "simulated:100", "--no-report"]
    named, given = tern(*SIGNS, "--k", "1", *own), tern(*SIGNS[:-4], "--k", "1", "--card", "f.card", *own)
    assert named["card"] == given["card"] == card
    assert named["weights"] == given["weights"]


def test_its_mechanism_is_compared_with_tern_s_own(outside):
    assert mechanisms.added() == ["flipped"]
    assert [one.name for one in variance._drawn(Options(quick=True), [1.0]).values()].count("flipped") == 1
    assert list(Options().compared("duchi")) == ["duchi", "flipped"]


def test_what_they_refuse_is_told_as_tern_s_own(outside, capsys):
    for argv, words in (
        ([*SIGNS[:-2], "--flip", "0.7"], "--flip must be 0 or more and less than 0.5, not 0.7"),
        ([*TRAIN, "--dead-zone", "0.1"], "--dead-zone belongs to signs, and this run is fedsgd"),
        ([*SIGNS, "--dead-zone", "1"], "--dead-zone must be 0 or more and below 1, not 1.0"),
        ([*TRAIN, "--flip", "0.1"], "three-outputs has no option --flip"),
        ([*SIGNS, "--mu", "0.1"], "--mu belongs to hiera, and this run is signs"),
    ):
        assert main([*argv, "--fleet", "simulated:100"]) == 2
        assert words in capsys.readouterr().err


@contextmanager
def devices_of_a_folder(folder, board):
    """The device library on the files of a board, which answers the requests in a folder."""
    client, ended = Client(Board(str(board))), threading.Event()

    def answer(path):
        reply = []
        client.respond(memoryview(path.read_bytes()), lambda frame, n: reply.append(bytes(frame[:n])))
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


def test_a_driver_reaches_devices_in_another_way(outside, tern, tmp_path, capsys):
    store, board = tmp_path / "keys.sqlite", tmp_path / "board"
    policy = Policy(8_000_000, 8_000_000)
    provision_from(store, [board], datasets.held("iris"), 12, 1, policy)
    argv = [*TRAIN[:3], "--reports", "12", "--group", "6", "--epsilon", "8", "--store", str(store)]
    with devices_of_a_folder(tmp_path / "stick", board):
        result = tern(*argv, "--fleet", f"folder:{tmp_path / 'stick'}", "--name", "carried", "--no-report")
        assert (result["rounds"], result["reports"], result["missing"]) == (2, 12, 0)
        assert epsilon_spent([board]) == [[result["epsilon_per_client"], 12]]
        assert main([*argv, "--fleet", f"folder:{tmp_path / 'stick'}", "--quiet"]) == REFUSED
    assert "their budget is spent" in capsys.readouterr().err


@pytest.mark.slow
def test_entry_points_of_a_package_do_the_same(tmp_path):
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
        words, place = [sys.executable, "-c", program, *argv, "--json"], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=place)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    result = tern(*SIGNS, "--optimiser", "amsgrad", "--fleet", "simulated:100", "--no-report")
    assert (result["algorithm"], result["optimiser"], result["mechanism"]) == ("signs", "amsgrad", "flipped")


@pytest.mark.parametrize("name", ["infer", "collect"])
def test_another_algorithm_of_a_command_is_chosen_by_its_name(outside, tern, undrawn, capsys, name):
    """Those of `tern infer` and `tern collect` are not the only ones that these can run."""
    own = type("Again", (ALGORITHMS[name],), {"name": "again"})
    ALGORITHMS.register("again", own)
    argv = [name, "--dataset", "iris", "--fleet", "simulated:75", "--epsilon", "8"]
    result = tern(*argv, "--algorithm", "again", "--name", "mine")
    assert result["algorithm"] == "again"
    assert Path(result["report"]).exists()
    assert whole(tern(*argv, "--no-report")) == whole(result) | {"algorithm": name}
    assert main([name, "--resume", "mine"]) == 2
    assert "has finished" in capsys.readouterr().err


def test_an_entry_that_is_lent_leaves_the_registry_as_it_was():
    names = Registry("thing", "tern.things", {"first": "json:loads"})
    names.register("mine", "own")
    before = dict(names)
    with names.lent("borrowed", "lent"), names.lent("first", "too"), names.lent("mine", "not"):
        assert [names[name] for name in ("borrowed", "first", "mine")] == ["lent", "too", "not"]
    assert dict(names) == before
    assert list(names) == list(before)


# tern --with FILE.py


WITH = [f"--with={OUTSIDE / name}.py" for name in ("signs", "amsgrad", "flipped")]


def test_files_that_are_named_bring_what_they_define(tern, request):
    argv = [*SIGNS, "--optimiser", "amsgrad", "--fleet", "simulated:100", "--no-report"]
    assert "signs" not in ALGORITHMS
    named = whole(tern(*WITH, *argv))
    request.getfixturevalue("outside")  # registers other classes, of the same files
    assert named == whole(tern(*argv))


def test_a_run_whose_plugin_is_missing_names_it(tern, undrawn, monkeypatch, capsys):
    def interrupted(self, *args):
        raise KeyboardInterrupt

    Path("crowd.py").write_text(
        "from ternhost.reach.simulated.fleet import Simulated\n"
        "class Crowd(Simulated):\n    form, about = 'crowd:N', 'N simulated clients'\n"
    )
    files = [*WITH, "--with", "crowd.py"]
    argv = [*files, *SIGNS, "--optimiser", "amsgrad", "--fleet", "crowd:100", "--name", "cut", "--quiet"]
    with monkeypatch.context() as cut:
        cut.setattr(Run, "_learn", interrupted)
        assert main(argv) == INTERRUPTED
    named = "".join(f"--with {word.removeprefix('--with=')} " for word in [*WITH, "crowd.py"])
    assert f"go on with: tern {named}train --resume cut" in capsys.readouterr().err
    for registry, name in (
        (ALGORITHMS, "signs"),
        (OPTIMISERS, "amsgrad"),
        (mechanisms.REGISTRY, "flipped"),
        (KINDS, "crowd"),
    ):
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
    told = tern("runs", "--draw", "cut", code=2)
    assert "the run cut needs the algorithm 'signs'" in told["error"]
    assert Path(tern(*files, "runs", "--draw", "cut")["report"]).exists()


def test_an_option_of_a_plugin_may_have_the_name_of_another(tern):
    example = str(OUTSIDE.parents[1] / "examples/own_mechanism.py")
    own = ["--fleet", "simulated:100", "--no-report", "--quiet"]
    assert tern("--with", example, *TRAIN, "--mechanism", "quiet", "--zero", "0.2", *own)["levels"] == 3
    Path("own.py").write_text((OUTSIDE / "flipped.py").read_text().replace("flip", "quiet"))
    assert tern("--with", "own.py", *TRAIN, "--mechanism", "quietped", *own)["mechanism"] == "quietped"
    Path("own.py").write_text((OUTSIDE / "signs.py").read_text().replace("dead_zone", "anew"))
    told = tern("--with", "own.py", *TRAIN, code=2)
    assert "two options of 'tern train' have one name" in told["error"]
    assert "--anew" in told["error"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "there is no Python file"), ("1 / 0", "ZeroDivisionError"), ("import nowhere", "nowhere")],
)
def test_a_file_that_cannot_be_loaded_is_refused(tern, content, words):
    if content is not None:
        Path("mine.py").write_text(content)
    assert words in tern("--with", "mine.py", "runs", code=2)["error"]
