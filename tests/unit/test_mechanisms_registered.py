"""Mechanisms by their records: tern's own are consistent, and one from outside works wherever one is named."""

import json
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pytest

from tern import card as cards
from ternhost.errors import UsageError
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import optimal

OUTSIDE = Path(__file__).parent.parent / "outside" / "flipped.py"
TERN = "import sys; from ternhost.cli import main; sys.exit(main())"


@pytest.mark.parametrize("name", list(mechanisms.NAMES))
def test_a_record_says_what_is_so(name):
    mechanism = mechanisms.REGISTRY[name]
    assert mechanism.name == name
    for options in mechanism.tuned.values():
        for option, value in options.items():
            assert value in (mechanism.option(option).choices or [value])
    for tried in [*mechanism.tries(2), *mechanism.tries(256)]:
        assert tried.keys() <= {"levels", *(option.name for option in mechanism.options)}
    if mechanism.variance and mechanism.worst_variance:
        for epsilon in (0.5, 1.0, 4.0):
            most = max(mechanism.variance(epsilon, x) for x in np.linspace(-1, 1, 2001))
            assert mechanism.worst_variance(epsilon) == pytest.approx(most, rel=1e-5)
    if not mechanism.slow:
        design = mechanisms.design(name, "1.5")
        assert design.mechanism == name
        assert (cards.decode(design.card).shape != cards.HIERARCHY) == mechanism.single_valued
        if mechanism.levels:
            assert cards.decode(design.card).symbols == mechanism.levels


def test_a_card_tuned_for_gradients_unless_its_objective_is_named():
    small = optimal.design(1_000_000, 3, objective="mean-second-moment", prior="small")
    tuned = mechanisms.design("optimal", 1, 3, use=mechanisms.GRADIENTS)
    assert tuned.card == small.card
    worst = mechanisms.design("optimal", 1, 4, use=mechanisms.GRADIENTS, objective="worst-variance")
    assert worst == mechanisms.design("optimal", 1, 4)
    assert worst.notes == ("a shipped card",)
    plain = mechanisms.design("duchi", 1, use=mechanisms.GRADIENTS)
    assert plain == mechanisms.design("duchi", 1)


def test_options_of_the_command_line():
    parser = ArgumentParser()
    parser.add_argument("--k", type=int)
    mechanisms.add_options(parser.add_argument_group("mechanism"))
    args = parser.parse_args(["--k", "3", "--window", "best"])
    assert args.k == 3
    assert mechanisms.options_named(args) == ["--window"]
    assert mechanisms.options_given(args, "hm") == {"window": "best"}
    with pytest.raises(UsageError, match="duchi has no option --window") as caught:
        mechanisms.options_given(args, "duchi")
    assert caught.value.hint == "it is for pm, pm-sub, pm-opt, hm, hm-tp"
    assert mechanisms.options_given(parser.parse_args(["--budgets", "3,1.5"]), "lhp") == {"budgets": (3, 1.5)}
    assert mechanisms.options_given(parser.parse_args(["--grid", "4"]), "laplace") == {"grid": 4}
    with pytest.raises(UsageError, match="no mechanism 'none'"):
        mechanisms.options_given(args, "none")


def test_a_design_refuses_options_that_are_not_its_own():
    with pytest.raises(UsageError, match="duchi has no option --window") as caught:
        mechanisms.design("duchi", 1, window="best")
    assert caught.value.hint == "it has no options of its own"
    with pytest.raises(UsageError, match="has no option --grid"):
        mechanisms.design("pm", 1, grid=None)


def run(program, *argv, path):
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r}); {program}", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture(params=["register", "entry point"])
def tern(request, tmp_path):
    """`tern` with one more mechanism: a file outside the package, and one line."""
    shutil.copy(OUTSIDE, tmp_path)
    line = "import flipped; from ternhost.privacy import mechanisms; "
    line += "mechanisms.REGISTRY.register('flipped', flipped.FLIPPED); "
    if request.param == "entry point":
        line = ""
        about = tmp_path / "flipped-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flipped\nVersion: 1\n")
        (about / "entry_points.txt").write_text("[tern.mechanisms]\nflipped = flipped:FLIPPED\n")
    return lambda program, *argv: run(line + (program or TERN), *argv, path=tmp_path)


def test_a_mechanism_from_outside_is_designed_shown_and_listed(tern, tmp_path):
    path = tmp_path / "f.card"
    plain = json.loads(tern("", "card", "design", "flipped", "--epsilon", "2", "--json"))
    assert plain["worst_case_variance"] == pytest.approx(1 / np.tanh(1) ** 2, rel=1e-5)
    argv = ("flipped", "--epsilon", "2", "--flip", "0.25")
    tern("", "card", "design", *argv, "-o", str(path))
    card = cards.decode(path.read_bytes())
    assert float(certify.moments(card).worst_variance()[0]) == pytest.approx(4)
    assert "flipped (table)" in tern("", "card", "show", *argv)
    assert "flipped" in json.loads(tern("", "card", "list", "--json"))["mechanisms"]
    assert "flipped: the least probability of the wrong sign" in tern("", "card", "design", "--help")


def test_a_mechanism_from_outside_is_compared_with_tern_s_own(tern):
    program = """
from ternhost.privacy import mechanisms
from ternhost.experiments import Options, variance
print(mechanisms.added())
print([of.name for of in variance._drawn(Options(quick=True), [1.0]).values()].count("flipped"))
print(list(Options().compared("duchi")))
"""
    found = tern(f"exec({program!r})").splitlines()
    assert found == ["['flipped']", "1", "['duchi', 'flipped']"]
