"""Mechanisms by their records: each says what is so. For those from outside see test_outside.py."""

from argparse import ArgumentParser

import numpy as np
import pytest

from tern import card as cards
from ternhost.errors import UsageError
from ternhost.privacy import mechanisms
from ternhost.privacy.mechanisms import optimal


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


@pytest.mark.slow
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
