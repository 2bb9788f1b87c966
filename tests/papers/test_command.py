"""The command `tern papers`: what it lists, refuses and leaves behind."""

from dataclasses import replace

import pytest

from ternhost import errors
from ternhost.privacy import mechanisms
from ternhost.privacy.mechanisms.duchi import DUCHI
from ternpapers.base import Options, others
from ternpapers.experiments import variance
from ternpapers.papers import hao


def test_a_paper_without_a_figure_lists_its_figures_and_runs_none(tern, here):
    titles = {number: figure.title for number, figure in hao.FIGURES.items()}
    listed = tern("papers", "hao", "--json").json
    assert listed == {"experiment": "hao", "figures": titles}
    assert not list(here.iterdir())


def test_an_output_that_cannot_be_written_is_refused_at_once(here, tern):
    (here / "file").touch()
    words = ("papers", "mean", "--output", "file/below")
    assert "--output" in tern(*words, code=errors.STORAGE).err


def test_an_experiment_that_is_refused_leaves_no_directory(here, tern):
    tern("papers", "variance", "--data", "iris", code=errors.USAGE)
    assert list((here / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("papers hao --figure 9", "--figure"),
        ("papers erm --mechanism pm --window best", "--window"),
        ("papers rates --mechanism duchi", "'rates' compares no mechanisms"),
        ("papers mean --mechanism lhp", "--mechanism"),
        ("card design duchi --epsilon 1 --window best", "pm-sub, hm, hm-tp, pm, pm-opt"),
        ("card design pm --epsilon 1 --window odd", "one of paper, best"),
    ],
)
def test_a_command_with_wrong_options_says_what_is_wrong(tern, here, words, message):
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
    drawn = variance._drawn(Options(quick=True), [1.0]).values()
    assert [mechanism.name for mechanism in drawn].count("flipped") == 1
