"""Declared options: the parser that is made from them, and the values that are refused."""

from argparse import ArgumentParser
from dataclasses import dataclass, replace

import pytest
from simulating import run

from ternhost import options
from ternhost.errors import USAGE, UsageError
from ternhost.learn.base import ALGORITHMS
from ternhost.options import flag, given, names_of, option
from ternhost.run.options import RunOptions
from ternhost.store import round_numbers


@dataclass(frozen=True)
class Cake:
    """Options of a cake."""

    layers: int = option(2, "how many layers", group="the cake", metavar="N")
    cream_share: float = option(0.5, "share of cream in %", group="the cake", metavar="X")
    taste: str = option(
        "plum", "what it tastes of", group="the cake", choices=lambda: ("plum", "nut")
    )
    candles: int | None = option(None, "candles on it", group="the feast", shown="by age")
    warm: bool = option(False, "serve it warm", group="the feast", shown="")
    baker: str = "nobody"  # not an option


@dataclass(frozen=True)
class Pie:
    """Shares one option name with Cake."""

    taste: str = option("apple", "another text", group="the cake")
    crust: str = option("thin", "how thick", group="the pie")


@pytest.fixture
def parser():
    cakes = ArgumentParser("bake")
    options.add_arguments(cakes, Cake, Pie)
    return cakes


def test_only_named_options_are_given(parser):
    named = given(
        parser.parse_args(["--layers", "3", "--cream-share", "0.25", "--no-warm"]), Cake, Pie
    )
    assert named == {"layers": 3, "cream_share": 0.25, "warm": False}
    assert given(parser.parse_args([]), Cake, Pie) == {}
    assert Cake(**named) == Cake(3, 0.25)


def test_the_help_shows_defaults_and_groups(parser):
    text = " ".join(parser.format_help().split())
    assert "the cake: --layers N how many layers (default: 2)" in text
    assert "--taste {plum,nut} what it tastes of (default: plum)" in text
    assert "the feast: --candles CANDLES candles on it (default: by age)" in text
    assert "--baker" not in text, "a field that is not declared as an option"


def test_an_option_of_two_classes_is_there_once(parser):
    assert "another text" not in parser.format_help()


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


def test_a_run_begins_after_the_named_round(here):
    five_rounds = {"dataset": "iris", "reports": 50, "group": 10}
    result = run("fedsgd", "simulated:50", None, {"after_round": 2**20 - 1}, **five_rounds)
    assert [entry["round"] for entry in result["history"]] == [2**20 + i for i in range(5)]


def test_round_numbers_can_be_skipped_but_not_far(store):
    for after, last in ((7, 7), (3, 7), (None, 7), (6 + 2**20, 6 + 2**20)):
        round_numbers.skip(store, after)
        assert round_numbers.last_number(store) == last
    with pytest.raises(UsageError, match=f"must be at most {last + 2**20 - 1}"):
        round_numbers.skip(store, last + 2**20)
    assert round_numbers.last_number(store) == last


NAN = float("nan")
NO_NOISE = {"privacy_eval_type": "NOT_ENCRYPT"}


@pytest.mark.parametrize(
    ("algorithm", "named"),
    [
        ("fedsgd", {"seed": -1}),
        ("fedsgd", {"batch": 33}),  # of 32 records at most
        ("fedsgd", {"reports": 0}),
        ("fedsgd", {"reports": 10, "group": 11}),
        ("fedsgd", {"model": "tree"}),
        ("fedsgd", {"epsilon": "much"}),
        ("infer", {"held_out": 1.0}),
        ("infer", {"epsilon": "21"}),  # above 20
        ("infer", {"laplace_eval_eps": "-1"}),
        ("infer", {"laplace_eval_eps": "11", "answer": "label"}),  # half of the true epsilon
        ("infer", {"noise": 0.0}),
        ("infer", {"noise": 0.5, "probability": 1.0}),
        ("infer", {"probability": 0.5}),  # of noise, which is not named
        ("infer", {"noise": 0.5, "answer": "label"}),
        ("infer", {"noise": 0.5, **NO_NOISE}),
        ("infer", {"score_rounds": 0, "classifier": "x"}),
        ("infer", {"score_rounds": 2}),
        ("infer", {"score_rounds": 2, "classifier": "x", "eval_type": "NOT_EVAL"}),
        ("infer", {"eval_type": "SILHOUETTE_WITH_ITSELF", "answer": "label"}),
        ("infer", {"privacy_eval_type": "RSA"}),
        ("infer", {"cluster_client_num": 1}),
        ("infer", {"epsilon": "1", **NO_NOISE}),
        ("infer", {"epsilons": "1:1", **NO_NOISE}),
    ],
)
def test_invalid_options_of_an_algorithm_are_refused(algorithm, named):
    with pytest.raises(UsageError):
        ALGORITHMS[algorithm].Options(**named)


@pytest.mark.parametrize(
    "named",
    [
        {"rounds": 0},
        {"interval": -1.0},
        {"interval": NAN},
        {"patience": 0.0},
        {"share": 1.5},
        {"horizon": 0},
        {"model_every": 0},
        {"quorum": 0.0},
        {"quorum": NAN},
        {"deadline": 0.0},
        {"deadline": NAN},
        {"silence": 0.0},
        {"after_round": 2**30 - 1},
    ],
)
def test_invalid_options_of_a_run_are_refused_by_name(named):
    (name,) = named
    with pytest.raises(UsageError, match=flag(name)):
        RunOptions.parse("fedsgd", named, ALGORITHMS, served=True)


WINE = {"dataset": "wine"}  # 178 records of 13 attributes


@pytest.mark.parametrize(
    ("algorithm", "fleet", "named"),
    [
        ("collect", "simulated:178", {"method": "guess"}),
        ("collect", "simulated:178", {**WINE, "clients": 10_000}),
        ("collect", "emulated:4", {**WINE, "clients": 3}),  # a board would have none
        ("collect", "emulated:2", {**WINE, "k": 14}),
        ("collect", "emulated:2", {**WINE, "k_rule": "own"}),
        ("collect", "nowhere", WINE),
        ("infer", "simulated:75", {"dataset": "diabetes"}),  # which has no classes
        ("infer", "emulated:2", {"cluster_client_num": 76}),  # of 75
        ("infer", "emulated:80", {}),
        ("infer", "simulated:75", {"epsilon": "0.000001"}),
        ("infer", "emulated:1", NO_NOISE),  # no device sends its records as they are
        ("infer", "emulated:1", {"laplace_eval_eps": "230260"}),
        ("infer", "emulated:1", {"noise": 1e-5}),  # a true epsilon of 460,517
        ("infer", "simulated:75", {"classifier": "nowhere"}),
        ("infer", "emulated", {}),
    ],
)
def test_runs_that_their_algorithm_refuses(algorithm, fleet, named, here):
    with pytest.raises(UsageError):
        run(algorithm, fleet, **named)


@pytest.mark.parametrize(
    "command",
    [
        "train --local-epochs 3",
        "train --algorithm fedavg --optimiser adam",
        "train --mechanism duchi --window best",
        "train --dimension 3 --dataset iris",
        "train --epsilon 1 --epsilons 1:0.5,2:0.5",
        "train --algorithm fedavg --group 5",
        "train --with a.py",
        "train --algorithm fedavg --choices tau --tau 1",
        "train --metrics 70000",
        "infer --epsilon 2 --laplace-eval-eps 2",
        "infer --classifier runs/a --held-out 0.5",
        "collect --unit record --epsilon 2",
        "collect --unit 60 --records 50",
        "collect --life 2",
        "collect --resume x --k 1",
        "serve --fleet simulated:9 --dashboard 70000",
        "device ping a0 --count 0",
        "device info",
        "hil --hardware-map m --timeout nan",
        "emulator run --blank",
        "plan --reports a",
        "plan --epsilon 0",
        "plan --goal nan",
        "plan --dataset diabetes --goal -1",
        "plan --dataset diabetes --model logistic --reports 100",
        "plan --life 2",
        "plan --devices 0",
        "plan --devices 2 --epsilon 2",
        "plan --devices 2 --unit device",
        "plan --dataset flights --dimension 3",
        "broker config new --for nats --name n1 --name n2",
        "broker config new --for nats --prefix farm.a",
        "broker config new --for nats --address 0.0.0.0",
        "card design nonsense --epsilon 1",
        "card design duchi",
        "card design duchi --epsilon nan",
        "card design duchi --epsilon 1 --levels 3",
        "card design duchi --epsilon 1 --window best",
        "card design laplace --epsilon 1 --grid a",
        "card show c --levels 3 --window best",
        "card account --reports 100 --delta 1e-6 --epsilon 1 --plot a.bmpp",
    ],
)
def test_a_command_that_cannot_run_says_so_and_writes_nothing(here, tern, command):
    refused = tern(*command.split(), code=USAGE)
    assert "tern: " in refused.err
    assert "unrecognized" not in refused.err, "the command has these options, and refuses values"
    assert not refused.out
    assert not list(here.iterdir())


def test_a_command_refuses_an_option_that_it_does_not_have(tern):
    assert "--knots" in tern("infer", "--knots", "5", code=USAGE).err
