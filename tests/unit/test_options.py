"""Declared options: the parser made from them, and the messages that refuse wrong ones."""

from argparse import ArgumentParser
from dataclasses import dataclass, fields, replace

import pytest
from simulating import run

from ternhost import options
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.fedsgd import Options as FedSGDOptions
from ternhost.options import flag, given, names_of, option
from ternhost.run.options import RunOptions
from ternhost.store import round_numbers
from ternhost.store.store import Store


@dataclass(frozen=True)
class Cake:
    """Options of a cake."""

    layers: int = option(2, "how many layers", group="the cake", metavar="N")
    cream_share: float = option(0.5, "share of cream in %", group="the cake", metavar="X")
    taste: str = option("plum", "what it tastes of", group="the cake", choices=lambda: ("plum", "nut"))
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


def test_only_declared_fields_are_options():
    assert names_of(Cake) == {"layers", "cream_share", "taste", "candles", "warm"}
    assert flag("cream_share") == "--cream-share"


def test_only_named_options_are_given(parser):
    named = given(parser.parse_args(["--layers", "3", "--cream-share", "0.25", "--no-warm"]), Cake, Pie)
    assert named == {"layers": 3, "cream_share": 0.25, "warm": False}
    assert given(parser.parse_args([]), Cake, Pie) == {}
    assert Cake(**named) == Cake(3, 0.25)


def test_the_help_shows_defaults_and_groups(parser):
    text = " ".join(parser.format_help().split())
    assert "the cake: --layers N how many layers (default: 2)" in text
    assert "share of cream in % (default: 0.5)" in text
    assert "--taste {plum,nut} what it tastes of (default: plum)" in text
    assert "the feast: --candles CANDLES candles on it (default: by age)" in text
    assert "serve it warm (default" not in text
    assert "another text" not in text  # an option of two classes is there once
    assert "--baker" not in text
    shorter = ArgumentParser("bake")
    options.add_arguments(shorter, Cake, leave_out=("taste",))
    assert "--taste" not in shorter.format_help()


def test_values_of_another_type_are_refused(parser, capsys):
    for wrong in (["--layers", "x"], ["--taste", "fish"], ["--baker", "me"]):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong)
        assert "--" in capsys.readouterr().err


# The options of tern itself


@pytest.mark.parametrize("name", ALGORITHMS)
def test_defaults_of_an_algorithm_are_accepted(name):
    cls = ALGORITHMS[name].Options
    assert names_of(cls) <= {field.name for field in fields(cls)}
    assert replace(cls()) == cls()
    for field in options.options_of(cls):
        assert field.help[:1].islower()
        assert not field.help.endswith(".")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_alternatives_of_an_algorithm_are_its_own_options(name):
    cls = ALGORITHMS[name].Options
    pairs = [(field.name, name) for field in options.options_of(cls) for name in field.instead_of]
    assert ("epsilons", "epsilon") in pairs
    for names in pairs:
        assert set(names) <= names_of(cls)
        with pytest.raises(UsageError, match="exclude each other") as caught:
            options.check_named(cls, dict.fromkeys(names, "x"))
        assert caught.value.hint == "give one of them"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"seed": -1}, "--seed must be 0 or more, not -1"),
        ({"batch": 33}, r"--batch must be 0 \(all\) to 32 records, not 33"),
        ({"reports": 0}, "--reports must be 1 or more, not 0"),
        ({"reports": 10, "group": 11}, "--group must be 1 to 10, all the reports, not 11"),
        ({"model": "tree"}, "no model 'tree'"),
        ({"epsilon": "much"}, "epsilon"),
        ({"epsilons": "1"}, "not a class of devices"),
    ],
)
def test_invalid_options_of_an_algorithm_are_refused(named, message):
    with pytest.raises(UsageError, match=message):
        FedSGDOptions(**named)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"rounds": 0}, "--rounds must be 1 or more, not 0"),
        ({"interval": -1.0}, "--interval must be 0 or more seconds, not -1"),
        ({"interval": float("nan")}, "--interval"),
        ({"patience": 0.0}, "--patience must be"),
        ({"share": 0.0}, "--share must be above 0 and at most 1, not 0"),
        ({"share": 1.5}, "--share must be above 0 and at most 1, not 1.5"),
        ({"horizon": 0}, "--horizon must be 1 or more, not 0"),
        ({"model_every": 0}, "--model-every"),
        ({"quorum": 0.0}, "--quorum must be a share above 0 and at most 1, not 0"),
        ({"quorum": 2.0}, "--quorum must be"),
        ({"quorum": float("nan")}, "--quorum must be"),
        ({"deadline": 0.0}, "--deadline must be"),
        ({"deadline": float("nan")}, "--deadline must be"),
        ({"silence": 0.0}, "--silence must be"),
        ({"silence": float("nan")}, "--silence must be"),
        ({"after_round": -1}, "--after-round must be 0 to"),
        ({"after_round": 2**30 - 1}, "--after-round must be 0 to"),
        ({"budget": "0"}, "budget 0 is not a number"),
        ({"fleet": "nowhere"}, "no fleet"),
        ({"fleet": "emulated"}, "number of boards"),
    ],
)
def test_invalid_options_of_a_run_are_refused(named, message):
    with pytest.raises(UsageError, match=message):
        RunOptions.parse("fedsgd", named, ALGORITHMS, served=True)


def test_round_numbers_can_be_skipped_but_not_far(here):
    options = {"dataset": "iris", "reports": 50, "group": 10}
    result = run("fedsgd", "simulated:50", None, {"after_round": 2**20 - 1}, **options)
    assert [entry["round"] for entry in result["history"]] == [2**20 + i for i in range(5)]
    with Store(here / "store.sqlite") as store:
        assert round_numbers.last_number(store) == 0
        for after, last in ((7, 7), (3, 7), (None, 7), (6 + 2**20, 6 + 2**20)):
            round_numbers.skip(store, after)
            assert round_numbers.last_number(store) == last
        with pytest.raises(UsageError, match=f"must be at most {last + 2**20 - 1}"):
            round_numbers.skip(store, last + 2**20)
        assert round_numbers.last_number(store) == last


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --algorithm hiera --k 3", "--k belongs to fedsgd and fedavg, and this run is hiera"),
        ("train --local-epochs 3", "--local-epochs belongs to fedavg, and this run is fedsgd"),
        ("train --algorithm fedavg --optimiser adam", "--optimiser belongs to fedsgd and hiera"),
        ("train --mechanism duchi --window best", "duchi has no option --window"),
        ("train --algorithm hiera --window best", "--window is an option of a mechanism"),
        ("train --dimension 3", "--dimension is for devices with records of their own"),
        ("train --dimension 3 --dataset iris", "--dimension and --dataset exclude each other"),
        ("train --epsilon 1 --epsilons 1:0.5,2:0.5", "--epsilons and --epsilon exclude each other"),
        ("train --algorithm fedavg --group 5", "--group belongs to"),
        ("train --knots 5", "--knots"),
        ("infer --knots 5", "unrecognized arguments: --knots"),
        ("train --with a.py", "--with a.py must stand before the command\n  tern --with a.py train"),
        ("infer --epsilon 2 --laplace-eval-eps 2", "exclude each other"),
        ("infer --privacy-eval-type NOT_ENCRYPT --epsilon 2", "--epsilon"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(here, tern, command, message):
    assert message in tern(*command.split(), code=2).err
    assert not list(here.iterdir())
