"""Declared options: the parser that is made from them, and the values that are refused."""

from dataclasses import replace
from typing import ClassVar

import pytest
from simulating import run

from ternhost import options
from ternhost.errors import USAGE, UsageError
from ternhost.learn.base import ALGORITHMS
from ternhost.options import flag, names_of
from ternhost.run.options import RunOptions
from ternhost.store import round_numbers

# The options of tern itself


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_of_an_algorithm_are_accepted(name):
    cls = ALGORITHMS[name].Options
    assert replace(cls()) == cls()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_alternatives_of_an_algorithm_exclude_each_other(name):
    cls = ALGORITHMS[name].Options
    for field in options.options_of(cls):
        for other in field.instead_of:
            assert {field.name, other} <= names_of(cls)
            with pytest.raises(UsageError, match="exclude each other"):
                options.check_named(cls, {field.name: "x", other: "x"})


# Options that are lists


@pytest.mark.parametrize(
    "elements", [["a"], ["a", "b c"], ["a, b", "c"], ['say "a"', "b"], ["0.5", "p90"]], ids=str
)
def test_a_list_from_python_is_read_back_from_its_text(elements):
    assert options.elements_of(options.joined(elements), "names") == elements
    assert options.elements_of(options.joined(tuple(elements)), "names") == elements


def test_a_text_or_a_number_is_a_list_of_one():
    assert options.elements_of(options.joined("a"), "names") == ["a"]
    assert options.elements_of(options.joined(0.5), "names") == ["0.5"]


@pytest.mark.parametrize("wrong", [b"a", {"a": 1}, {"a"}, None, [None], [True], 1j], ids=str)
def test_what_is_no_list_of_texts_and_numbers_is_refused(wrong):
    with pytest.raises(TypeError):
        options.joined(wrong)


# Options that need others


class Coat:
    """A dataclass of options would have these, with their defaults."""

    weather = "dry"
    ONLY_WITH: ClassVar = {"umbrella": ("weather", "wet")}
    NOT_WITH: ClassVar = {"hat": ("weather", "wet")}


@pytest.mark.parametrize(
    ("name", "weather", "fits"),
    [
        ("umbrella", "wet", True),
        ("umbrella", "dry", False),
        ("umbrella", None, False),
        ("hat", "wet", False),
        ("hat", None, True),
        ("scarf", "wet", True),
    ],
)
def test_an_option_may_need_a_value_of_another_one(name, weather, fits):
    named = {name: "x"}
    if weather is not None:
        named["weather"] = weather
    assert (options.misfit(Coat, name, named) is None) == fits


def test_round_numbers_can_be_skipped_but_not_far(store):
    for after, last in ((7, 7), (3, 7), (None, 7), (6 + 2**20, 6 + 2**20)):
        round_numbers.skip(store, after)
        assert round_numbers.last_number(store) == last
    with pytest.raises(UsageError, match=f"must be at most {last + 2**20 - 1}"):
        round_numbers.skip(store, last + 2**20)
    assert round_numbers.last_number(store) == last


NO_NOISE = {"no_noise": True}


@pytest.mark.parametrize(
    ("algorithm", "named"),
    [
        ("fedsgd", {"batch": 33}),  # of 32 records at most
        ("fedsgd", {"reports": 10, "group": 11}),
        ("fedsgd", {"epsilon": "much"}),
        ("fedsgd", {"records": 0}),
        ("direct", {"records": 2**16}),  # more than a device can hold
        ("infer", {"epsilon": "21", "answer": "label"}),  # 20 at most
        ("infer", {"score_rounds": 2}),  # of a classifier, which is not named
        ("infer", {"score": "silhouette-self", "answer": "label"}),
        ("infer", {"clients": 1}),
        ("infer", {"epsilon": "1", **NO_NOISE}),
        ("infer", {"epsilons": "1:1", **NO_NOISE}),
    ],
)
def test_invalid_options_of_an_algorithm_are_refused(algorithm, named):
    with pytest.raises(UsageError):
        ALGORITHMS[algorithm].Options(**named)


def test_a_fleet_is_not_asked_without_end_and_without_a_pause_unless_the_user_says_so():
    with pytest.raises(UsageError, match="--every"):
        RunOptions.parse("fedsgd", {}, ALGORITHMS, served=True)
    assert (
        RunOptions.parse("fedsgd", {"every": "0"}, ALGORITHMS, served=True).schedule.interval == 0
    )


@pytest.mark.parametrize(
    "named",
    [
        {"every": "-1"},
        {"share": 1.5},
        {"quorum": 0.0},
        {"deadline": float("nan")},
        {"after_round": 2**30 - 1},
    ],
)
def test_invalid_options_of_a_run_are_refused_by_name(named):
    (name,) = named
    with pytest.raises(UsageError, match=flag(name)):
        RunOptions.parse("fedsgd", named, ALGORITHMS, served=True)


WINE = {"data": "wine"}  # 178 records of 13 attributes


@pytest.mark.parametrize(
    ("algorithm", "fleet", "named"),
    [
        ("values", "emulated:4", {**WINE, "clients": 3}),  # a board would have none
        ("values", "emulated:2", {**WINE, "k": 14}),
        ("values", "nowhere", WINE),
        ("infer", "simulated:75", {"data": "diabetes"}),  # which has no classes
        ("infer", "simulated:75", {"epsilon": "0.000001"}),
        ("infer", "emulated:1", NO_NOISE),  # no device sends its records as they are
        ("infer", "emulated:1", {"epsilon": "21"}),  # above 20
    ],
)
def test_runs_that_their_algorithm_refuses(algorithm, fleet, named, here):
    with pytest.raises(UsageError):
        run(algorithm, fleet, **named)


@pytest.mark.parametrize(
    "command",
    [
        "train fedavg --optimiser adam",
        "train --mechanism duchi --window best",
        "train --epsilon 1 --epsilons 1:0.5,2:0.5",
        "infer --classifier runs/a --held-out 0.5",
        "collect --unit record --epsilon 2",
        "collect --unit 60 --records 50",
        "collect --run-epsilon 2",
        "plan --epsilon 0",
        "plan --data diabetes --model logistic --devices 100",
        "plan --devices 2 --records 9 --epsilon 2 --run-epsilon 2",
        "card design duchi --epsilon nan",
        "card account any:1 --shuffled 100 --plot a.bmpp",
    ],
)
def test_a_command_that_cannot_run_says_so_and_writes_nothing(here, tern, command):
    refused = tern(*command.split(), code=USAGE)
    assert "tern: " in refused.err
    assert "unrecognized" not in refused.err, "the command has these options, and refuses values"
    assert not refused.out
    assert not list(here.iterdir())
