"""Declared options: the parser made from them, and the messages that refuse wrong ones."""

from argparse import ArgumentParser
from dataclasses import dataclass, fields, replace

import pytest
from simulating import run

from ternhost import options
from ternhost.errors import USAGE, UsageError
from ternhost.learn.base import ALGORITHMS
from ternhost.options import flag, given, names_of, option
from ternhost.run.options import RunOptions
from ternhost.store import round_numbers
from ternhost.store.store import Store


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


def test_only_declared_fields_are_options():
    assert names_of(Cake) == {"layers", "cream_share", "taste", "candles", "warm"}
    assert flag("cream_share") == "--cream-share"


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
    assert ("epsilons", "epsilon") in pairs or name in ("fedsum", "means")
    for names in pairs:
        assert set(names) <= names_of(cls)
        with pytest.raises(UsageError, match="exclude each other") as caught:
            options.check_named(cls, dict.fromkeys(names, "x"))
        assert caught.value.hint == "give one of them"


@pytest.mark.parametrize(
    ("algorithm", "named", "message"),
    [
        ("fedsgd", {"seed": -1}, "--seed must be 0 or more, not -1"),
        ("fedsgd", {"batch": 33}, r"--batch must be 0 \(all\) to 32 records, not 33"),
        ("fedsgd", {"reports": 0}, "--reports must be 1 or more, not 0"),
        (
            "fedsgd",
            {"reports": 10, "group": 11},
            "--group must be 1 to 10, all the reports, not 11",
        ),
        ("fedsgd", {"model": "tree"}, "no model 'tree'"),
        ("fedsgd", {"epsilon": "much"}, "epsilon"),
        ("fedsgd", {"epsilons": "1"}, "not a class of devices"),
        ("infer", {"held_out": 1.0}, "--held-out must be above 0 and below 1"),
        ("infer", {"epsilon": "21"}, "epsilon"),
        (
            "infer",
            {"laplace_eval_eps": "much"},
            "must be a number above 0, half of the true epsilon",
        ),
        ("infer", {"laplace_eval_eps": "-1"}, "must be a number above 0"),
        ("infer", {"laplace_eval_eps": "nan"}, "must be a number above 0"),
        ("infer", {"laplace_eval_eps": "11", "answer": "label"}, "true epsilon of 22, above 20"),
        ("infer", {"noise": 0.0}, "--noise must be above 0, not 0"),
        ("infer", {"noise": float("inf")}, "--noise must be above 0"),
        ("infer", {"noise": 0.5, "probability": 1.0}, "--probability must be above 0 and below 1"),
        ("infer", {"probability": 0.5}, "--probability is how often noise is at most --noise"),
        ("infer", {"noise": 0.5, "answer": "label"}, "--noise is of vectors"),
        (
            "infer",
            {"noise": 0.5, "privacy_eval_type": "NOT_ENCRYPT"},
            "--noise says how much noise",
        ),
        ("infer", {"score_rounds": 0, "classifier": "x"}, "--score-rounds must be 1 or more"),
        ("infer", {"score_rounds": 2}, "--score-rounds needs --classifier"),
        (
            "infer",
            {"score_rounds": 2, "classifier": "x", "answer": "label"},
            "--score-rounds scores vectors",
        ),
        (
            "infer",
            {"score_rounds": 2, "classifier": "x", "eval_type": "NOT_EVAL"},
            "--score-rounds scores vectors",
        ),
        (
            "infer",
            {"eval_type": "SILHOUETTE_WITH_ITSELF", "answer": "label"},
            "labels have no such score",
        ),
        (
            "infer",
            {"privacy_eval_type": "RSA"},
            "--privacy-eval-type must be NOT_ENCRYPT or LAPLACE",
        ),
        ("infer", {"eval_type": "F1"}, "--eval-type must be NOT_EVAL or"),
        ("infer", {"cluster_client_num": 1}, "--cluster-client-num must be 2 or more"),
        ("infer", {"seed": -1}, "--seed must be 0 or more"),
        (
            "infer",
            {"epsilon": "1", "privacy_eval_type": "NOT_ENCRYPT"},
            "--epsilon says how much noise",
        ),
        (
            "infer",
            {"epsilons": "1:1", "privacy_eval_type": "NOT_ENCRYPT"},
            "--epsilons says how much noise",
        ),
    ],
)
def test_invalid_options_of_an_algorithm_are_refused(algorithm, named, message):
    with pytest.raises(UsageError, match=message):
        ALGORITHMS[algorithm].Options(**named)


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


@pytest.mark.parametrize(
    ("algorithm", "fleet", "named", "message"),
    [
        ("collect", "simulated:178", {"method": "guess"}, "--method must be algorithm6"),
        ("collect", "simulated:178", {"epsilon": "0"}, "epsilon"),
        ("collect", "simulated:178", {"clients": -1}, "0 \\(all\\) or more"),
        ("collect", "simulated:178", {"seed": -1}, "--seed must be 0 or more, not -1"),
        ("collect", "simulated:178", {"dataset": "wine", "clients": 10_000}, "there are 178"),
        ("collect", "emulated:4", {"dataset": "wine", "clients": 3}, "without one"),
        ("collect", "emulated:2", {"dataset": "wine", "k": 14}, "--k must be 1 to 13"),
        ("collect", "emulated:2", {"dataset": "nothing"}, "no data set"),
        ("collect", "emulated:2", {"dataset": "wine", "k_rule": "own"}, "unknown rule"),
        ("collect", "nowhere", {"dataset": "wine"}, "no fleet"),
        ("infer", "simulated:75", {"dataset": "diabetes"}, "has no classes"),
        ("infer", "emulated:2", {"cluster_client_num": 76}, "there are 75"),
        ("infer", "emulated:80", {}, "leave boards without one"),
        ("infer", "simulated:75", {"epsilon": "0.000001"}, "too small"),
        ("infer", "emulated:1", {"privacy_eval_type": "NOT_ENCRYPT"}, "no device sends"),
        (
            "infer",
            "emulated:1",
            {"laplace_eval_eps": "230260"},
            "true epsilon of 460,520, above 20",
        ),
        ("infer", "emulated:1", {"noise": 1e-5}, "true epsilon of 460,517.0186, above 20"),
        ("infer", "simulated:75", {"classifier": "nowhere"}, "No such file"),
        ("infer", "emulated", {}, "number of boards"),
    ],
)
@pytest.mark.usefixtures("here")
def test_runs_that_their_algorithm_refuses(algorithm, fleet, named, message):
    with pytest.raises(UsageError, match=message):
        run(algorithm, fleet, **named)


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
        ("train --local-epochs 3", "--local-epochs belongs to fedavg, and this run is fedsgd"),
        ("train --algorithm fedavg --optimiser adam", "--optimiser belongs to fedsgd"),
        ("train --mechanism duchi --window best", "duchi has no option --window"),
        ("train --dimension 3", "--dimension is for devices with records of their own"),
        ("train --dimension 3 --dataset iris", "--dimension and --dataset exclude each other"),
        ("train --epsilon 1 --epsilons 1:0.5,2:0.5", "--epsilons and --epsilon exclude each other"),
        ("train --algorithm fedavg --group 5", "--group belongs to fedsgd"),
        ("train --knots 5", "--knots"),
        ("infer --knots 5", "unrecognized arguments: --knots"),
        (
            "train --with a.py",
            "--with a.py must stand before the command\n  tern --with a.py train",
        ),
        ("infer --epsilon 2 --laplace-eval-eps 2", "exclude each other"),
        ("infer --epsilon 2 --noise 0.5", "--noise and --epsilon exclude each other"),
        (
            "infer --classifier runs/a --held-out 0.5",
            "--classifier and --held-out exclude each other",
        ),
        ("infer --privacy-eval-type NOT_ENCRYPT --epsilon 2", "--epsilon"),
        (
            "collect --unit record --epsilon 2",
            "--epsilon belongs to collect",
        ),
        ("collect --unit 60 --records 50", "--unit must be at most --records, 50, not 60"),
        ("collect --life 2", "--life belongs to means, and this run is collect"),
        ("collect --resume x --k 1", "keeps its options"),
        (
            "train --algorithm fedavg --choices tau --tau 1",
            "--choices and --tau exclude each other",
        ),
        ("device ping a0 --count 0", "tern: --count must be 1 or more, not 0"),
        ("device info", "tern: one of the arguments BOARD --fleet is required"),
        ("scale none.csv", "cannot be read"),
        ("device info --fleet simulated:5", "no boards"),
        ("hil --hardware-map m --timeout nan", "tern: --timeout must be a number above 0, not nan"),
        ("emulator run --blank", "tern: --blank needs --volume DIR"),
        ("emulator build --what toaster", "tern: --what takes device, pico,"),
        ("train --metrics 70000", "--metrics must be 0 (any) to 65535, not 70000"),
        (
            "serve --fleet simulated:9 --dashboard 70000",
            "--dashboard must be 0 (any) to 65535, not 70000",
        ),
        ("plan --reports a", "--reports must be whole numbers, not 'a'"),
        ("plan --reports 0,5", "--reports must be numbers of 1 or more, not 0"),
        ("plan --runs 1", "--runs must be 2 or more, not 1"),
        ("plan --epsilon 0", "epsilon 0 is not a number"),
        ("plan --dimension 1", "--dimension must be 2 to 128, not 1"),
        ("plan --goal nan", "--goal must be 0 to 1, the range of accuracy, not nan"),
        ("plan --goal 2", "--goal must be 0 to 1, the range of accuracy, not 2.0"),
        (
            "plan --dataset diabetes --goal -1",
            "--goal must be 0 or more, the range of mean squared error, not -1.0",
        ),
        ("plan --reports 1000000000000", "--reports must be numbers of 1,000,000,000 or less"),
        (
            "plan --dataset diabetes --model logistic --reports 100",
            "labels of diabetes are numbers",
        ),
        ("plan --plot a.bmpp", "there is no format .bmpp"),
        ("plan --life 2", "--life is about a fleet that exists"),
        ("plan --devices 2 --epsilon 2", "--epsilon is about devices that report once"),
        ("plan --devices 0", "--devices must be 1 to 20,000, not 0"),
        ("plan --devices 2 --unit device", "planned for a unit within a device"),
        ("plan --devices 2 --life 21", "life 21 is not a number"),
        ("plan --devices 2 --unit 501", "--unit must be at most --records, 500"),
        ("plan --workers 0", "--workers must be 1 or more, not 0"),
        ("plan --dataset flights --dimension 3", "not allowed with"),
        (
            "broker config new --for nats --name n1 --name n2",
            "a cluster has 3 nodes or more, not 2",
        ),
        ("broker config new --for nats --port 65535", "a port is 1 to 65535, not 65536"),
        (
            "broker config new --for nats --prefix farm.a",
            "NATS has no topics with a '.', such as 'farm.a'",
        ),
        (
            "broker config new --for nats --address 0.0.0.0",
            "--address and --bridge are for Mosquitto",
        ),
        ("broker config new --for nats --bridge lab", "--address and --bridge are for Mosquitto"),
        ("card design nonsense --epsilon 1", "one of: duchi, "),
        ("card design duchi --epsilon 0", "epsilon 0"),
        ("card design duchi --epsilon nan", "epsilon nan"),
        ("card design duchi --epsilon -1", "epsilon -1"),
        ("card design duchi --epsilon 21", "epsilon 21"),
        ("card design duchi --epsilon 1 --levels 3", "has 2"),
        ("card design pm-sub --epsilon 1 --levels 257", "2 to 256"),
        ("card design duchi --epsilon 1 --window best", "no option --window"),
        ("card design laplace --epsilon 1 --grid a", "--grid must be a whole number, not 'a'"),
        ("card show duchi", "--epsilon"),
        ("card show c --levels 3 --window best", "--window and --levels would change nothing"),
        ("card design duchi", "--epsilon"),
        ("card certify no-such-file --epsilon 1", "No such file"),
        ("card show no-such-file", "No such file"),
        ("card account --reports 100 --delta 1e-6", "the local epsilon is missing"),
        (
            "card account --reports 100 --delta 1e-6 --epsilon 1 --levels 4",
            "--levels is an option of a mechanism",
        ),
        ("card account --reports 100 --delta 1e-6 three-outputs", "three-outputs is a mechanism"),
        (
            "card account --reports 100 --epsilon 1 --delta 2",
            "--delta must be between 0 and 1, not 2",
        ),
        ("card account --delta 1e-6 --epsilon 1 --reports 0", "--reports must be from 1"),
        ("card account --reports 100 --epsilon 1 --delta 1e-310", "--delta must be 1e-300 or more"),
        (
            "card account --reports 100 --delta 1e-6 --epsilon 1 --plot a.bmpp",
            "there is no format .bmpp",
        ),
        (
            "card account --reports 9 --delta 0.1 --epsilon 1 --values 0",
            "--values must be 1 or more, not 0",
        ),
    ],
)
def test_a_command_that_cannot_run_says_why_and_writes_nothing(here, tern, command, message):
    refused = tern(*command.split(), code=USAGE)
    assert message in refused.err
    assert not refused.out
    assert not list(here.iterdir())
