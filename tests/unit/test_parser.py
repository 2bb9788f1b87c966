"""The parser of command lines: words that it does not know, and values of the wrong form."""

import json

import pytest

from ternhost.errors import USAGE


def refused(tern, words):
    """The error of a command line, as an object."""
    return json.loads(tern(*words.split(), "--json", code=USAGE).out)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("plan --runs x", "--runs"),
        ("plan --goal x", "--goal"),
        ("plan --records x", "--records"),
        ("card design lhp --proportions 1,x", "--proportions"),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_by_the_name_of_its_option(tern, words, option):
    assert refused(tern, words)["error"].startswith(f"{option} must be ")


def test_a_percentage_is_shown_as_the_number_that_it_means(tern):
    error = refused(tern, "train direct --share-of-positives 24%")
    assert error["hint"].endswith(" 0.24")


def test_an_option_of_other_learners_names_those_that_are_no_baselines(tern):
    error = refused(tern, "train fedsum --rounds 3 --fleet simulated:100")
    assert "fedsgd or fedavg" in error["hint"]
    assert "hiera" not in error["hint"]


def test_a_word_for_something_that_tern_calls_otherwise_gets_the_word_of_tern(tern):
    assert "did you mean quantile?" in refused(tern, "plan --statistic median")["hint"]


@pytest.mark.parametrize("words", ["plan --runs x", "plan --records x", "plan --model x"])
def test_the_hint_of_a_wrong_value_names_the_help_of_the_command(tern, words):
    assert "'tern plan --help'" in refused(tern, words)["hint"]


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("card desing", "design"),
        ("papers zaho", "zhao"),
        ("plan --rusn 3", "--runs"),
        ("cache claer", "clear"),
    ],
)
def test_a_typo_gets_the_most_similar_word(tern, words, suggestion):
    assert f"did you mean {suggestion}?" in refused(tern, words)["hint"]


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("flash", "tern board flash"),
        ("rotate 3", "tern keys rotate"),
        ("fedavg", "tern train fedavg"),
    ],
)
def test_a_verb_or_a_learner_without_its_command_gets_it(tern, words, suggestion):
    assert f"did you mean '{suggestion}'?" in refused(tern, words)["hint"]


def test_an_unknown_short_option_is_refused_by_its_name(tern):
    assert "-e" in refused(tern, "train -e 2")["error"]


def test_a_missing_value_is_reported_without_the_words_of_argparse(tern):
    assert refused(tern, "train --epsilon")["error"] == "--epsilon needs a value"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train --fleet emulatd:3", "emulated:3"),
        ("train --data flihgts", "flights"),
        ("train --mechanism tree-outputs --fleet simulated:9 --data iris", "three-outputs"),
    ],
)
def test_the_most_similar_value_is_suggested(tern, words, meant):
    assert f"did you mean {meant}?" in refused(tern, words)["hint"]
