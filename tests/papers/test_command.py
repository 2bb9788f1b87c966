"""The command `tern experiment`: what it lists, refuses and leaves behind."""

import contextlib
import os
import pty
import subprocess
from dataclasses import replace

import pytest
import warm

from ternhost import errors
from ternhost.privacy import mechanisms
from ternhost.privacy.mechanisms.duchi import DUCHI
from ternpapers.base import Options, others
from ternpapers.experiments import variance
from ternpapers.papers import hao


def test_a_paper_without_a_figure_lists_its_figures_and_runs_none(tern, here):
    listed = tern("experiment", "hao", "--json").json
    assert listed == {
        "experiment": "hao",
        "figures": {n: each.title for n, each in hao.FIGURES.items()},
    }
    assert "table-1" in tern("experiment", "zhao").out
    assert not list(here.iterdir())
    assert (
        "--figure, one of: 1, 2, 3, cost" in tern("experiment", "hao", "--figure", "9", code=2).err
    )
    assert "is of no paper" in tern("experiment", "rates", "--figure", "2", code=2).err
    assert (
        "exclude each other"
        in tern("experiment", "hao", "--figure=2", "--quick", "--in-full", code=2).err
    )


def test_an_experiment_is_refused_at_once_if_its_output_cannot_be_written(tmp_path, tern):
    (tmp_path / "file").touch()
    refused = tern(
        "experiment", "mean", "--output", str(tmp_path / "file" / "below"), code=errors.STORAGE
    )
    assert "--output" in refused.err


def test_an_experiment_that_is_refused_leaves_no_directory(tmp_path, tern, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tern("experiment", "variance", "--dataset", "iris", code=errors.USAGE)
    assert list((tmp_path / "runs").iterdir()) == []
    (tmp_path / "runs").rmdir()
    (tmp_path / "runs").touch()
    assert "--output" in tern("experiment", "variance", code=errors.STORAGE).err


@pytest.mark.parametrize(
    ("term", "escapes"),
    [("dumb", False), pytest.param("xterm", True, marks=pytest.mark.exhaustive)],
)
def test_an_experiment_writes_no_escapes_to_a_dumb_terminal(term, escapes, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", term)
    words = ["experiment", "rates", "--dataset", "diabetes", "--quick", "--runs", "1"]
    far, near = pty.openpty()
    with open(far, "rb", buffering=0) as screen:
        process = warm.Popen(
            [*warm.TERN, *words, "--output", str(tmp_path / "out")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=near,
            cwd=tmp_path,
        )
        os.close(near)
        output = b""
        with contextlib.suppress(OSError):  # EIO: the far end is closed
            while data := screen.read(1 << 16):
                output += data
        assert process.wait() == 0
    assert (b"\x1b" in output) == escapes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("experiment mean --runs 0", "--runs must be 1 or more, not 0"),
        ("experiment mean --seed -1", "--seed must be 0 or more, not -1"),
        ("experiment erm --window best", "--window is an option of a mechanism"),
        ("experiment erm --mechanism duchi --window best", "duchi has no option --window"),
        ("experiment mean --mechanism lhp", "cannot be averaged"),
    ],
)
def test_wrong_options_are_refused(tern, here, words, message):
    assert message in tern(*words.split(), code=errors.USAGE).err


@pytest.fixture
def flipped():
    """A mechanism of another package is registered."""
    with mechanisms.REGISTRY.lent("flipped", replace(DUCHI, name="flipped")):
        yield


def test_experiments_compare_a_mechanism_from_outside(flipped):
    assert others() == ["flipped"]
    assert list(Options().compared("duchi")) == ["duchi", "flipped"]


def test_the_variance_of_a_mechanism_from_outside_is_drawn_once(flipped):
    drawn = [mechanism.name for mechanism in variance._drawn(Options(quick=True), [1.0]).values()]
    assert drawn.count("flipped") == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--window odd", "one of paper, best, not 'odd'"),
        ("--knots 9", "it is for optimal"),
    ],
)
def test_a_card_of_a_mechanism_of_the_papers_with_a_wrong_option_is_refused(tern, option, message):
    design = "card design pm --epsilon 1"
    assert message in tern(*design.split(), *option.split(), code=errors.USAGE).err
