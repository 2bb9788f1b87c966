"""What the pages of learners say is what a command line does, for each option and each pair."""

import argparse
import itertools

import pytest

from ternhost.cli import running
from ternhost.cli.parser import subparsers_of
from ternhost.cli.tree import build_parser
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS, algorithms_of
from ternhost.options import names_of

PARSER = (
    build_parser(["train"]),
    build_parser(["collect"]),
    build_parser(["infer"]),
    build_parser(["serve"]),
)
COMMANDS = dict(zip(("train", "collect", "infer", "serve"), PARSER, strict=True))
PAGES = [
    (command, learner)
    for command in ("train", "collect")
    for learner in subparsers_of(subparsers_of(COMMANDS[command])[command])
]
# A value for each option that is no switch, and has no fixed list of values.
VALUES = {
    "--data": "iris",
    "--by": "home",
    "--time": "hour",
    "--held-out": "0.2",
    "--threshold": "0.3",
    "--seed": "2",
    "--epsilon": "1",
    "--unit": "record",
    "--run-epsilon": "2",
    "--epsilons": "1:0.5,2:0.5",
    "--batch": "1",
    "--reports": "100",
    "--group": "10",
    "--rounds": "4",
    "--rate": "0.5",
    "--regularisation": "0.01",
    "--tolerance": "0.05",
    "--clip": "2",
    "--mechanism": "duchi",
    "--k": "2",
    "--clients": "100",
    "--records": "4",
    "--share": "0.5",
    "--local-epochs": "1",
    "--local-rate": "1",
    "--tau": "0.5",
    "--public": "100",
    "--moments": "0.2",
    "--share-of-positives": "0.4",
    "--proportions": "5,4,3,2,1",
    "--mu": "1",
    "--quorum": "0.5",
    "--deadline": "60",
    "--silence": "10",
    "--budget": "100",
    "--delta": "1e-5",
    "--fleet": "simulated:100",
    "--name": "mine",
    "--store": "store.sqlite",
    "--publish": "0.99",
    "--quantiles": "0.5,p90",
    "--attributes": "petal width",
    "--bins": "64",
    "--toward-server": "1",
    "--honest": "0.5",
    "--after-round": "0",
}
# Options that a learner takes only with another one, by its name: the values of that.
NEEDED = {("quantiles", "--records"): {"unit": "record"}}


@pytest.fixture(scope="module")
def card_file(tmp_path_factory):
    from ternhost.privacy import mechanisms

    path = tmp_path_factory.mktemp("cards") / "duchi.card"
    path.write_bytes(mechanisms.design("duchi", "2").card)
    return str(path)


def shown(*parsers):
    """The options that the help of these parsers shows."""
    return [
        action
        for parser in parsers
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    ]


def words_of(action, card_file):
    """An option on a command line, with a value that it takes."""
    name = action.option_strings[0]
    if action.nargs == 0:
        return [name]
    if action.choices is not None:
        return [name, str(next(iter(action.choices)))]
    return [name, card_file if name == "--card" else VALUES[name]]


def needed_by(learner, action):
    """The words that a learner needs beside an option; mostly none."""
    needed = NEEDED.get((learner, action.option_strings[0]), {})
    return [word for name, value in needed.items() for word in (f"--{name}", value)]


def parse(command, *words):
    """Parse a command line to the options of a run, without beginning it."""
    root = COMMANDS[command]
    args = root.parse_args([command, *words], argparse.Namespace(from_project={}))
    return running.parsed(args, algorithms_of(command))


def refusal(command, *words):
    """The error that refuses a command line; None if it is taken."""
    try:
        parse(command, *words)
    except UsageError as error:
        return error
    return None


def own_page(command, learner):
    """The options that the page of a learner adds to that of its command."""
    parser_of_command = subparsers_of(COMMANDS[command])[command]
    parser_of_learner = subparsers_of(parser_of_command)[learner]
    return shown(parser_of_learner)


def page(command, learner):
    """The options on the page of a command, and on that of its learner."""
    return shown(subparsers_of(COMMANDS[command])[command]) + own_page(command, learner)


def takers(command, action):
    """The learners of a command that take an option."""
    return [
        name
        for name, learner in algorithms_of(command).items()
        if action.dest in names_of(learner.Options)
    ]


def options_of_all_learners(command):
    """The options on the pages of the learners of a command."""
    return [action for learner in algorithms_of(command) for action in own_page(command, learner)]


@pytest.mark.parametrize(("command", "learner"), PAGES)
def test_an_option_of_a_learner_s_page_is_taken_alone(command, learner, card_file):
    for action in own_page(command, learner):
        words = [*words_of(action, card_file), *needed_by(learner, action)]
        assert parse(command, learner, *words).algorithm == learner


@pytest.mark.parametrize(("command", "learner"), PAGES)
def test_two_options_of_a_learner_s_pages_are_taken_or_the_refusal_says_why(
    command, learner, card_file
):
    """A refusal of two options that stand on the pages names both of them, or says that one
    belongs to other learners: that one stands on the page of the command for these.
    """
    for one, other in itertools.combinations(page(command, learner), 2):
        error = refusal(command, learner, *words_of(one, card_file), *words_of(other, card_file))
        if error is None:
            continue
        names = [*one.option_strings, *other.option_strings]
        named = [name for name in names if name in error.message]
        assert named, error.message
        if "option of" in error.message:
            name = named[0].removeprefix("--").replace("-", "_")
            assert name not in names_of(ALGORITHMS[learner].Options), error.message


def foreign_options(command, learner):
    """The options that a learner does not take: (name of a learner that takes it, option)."""
    own = names_of(ALGORITHMS[learner].Options)
    found = []
    for other in algorithms_of(command):
        found += [(other, action) for action in own_page(command, other) if action.dest not in own]
    return found


@pytest.mark.parametrize(("command", "learner"), PAGES)
def test_the_refusal_of_another_learner_s_option_names_a_learner_that_takes_it(
    command, learner, card_file
):
    for other, action in foreign_options(command, learner):
        refused = refusal(command, learner, *words_of(action, card_file))
        assert refused is not None
        assert action.option_strings[0] in refused.message
        assert other in refused.message


@pytest.mark.parametrize(("command", "learner"), PAGES)
def test_an_option_of_a_learner_s_page_sets_nothing_else(command, learner, card_file):
    for action in own_page(command, learner):
        words = [*words_of(action, card_file), *needed_by(learner, action)]
        options = parse(command, learner, *words).learning
        needed = NEEDED.get((learner, action.option_strings[0]), {})
        value = getattr(options, action.dest)
        assert options == ALGORITHMS[learner].Options(**{action.dest: value}, **needed)


@pytest.mark.parametrize("command", ["train", "collect"])
def test_an_option_alone_chooses_a_learner_that_takes_it(command, card_file):
    for action in options_of_all_learners(command):
        words = words_of(action, card_file)
        if refusal(command, *words) is None:
            assert parse(command, *words).algorithm in takers(command, action), words


@pytest.mark.parametrize("command", ["train", "collect"])
def test_the_refusal_of_an_option_alone_names_all_learners_that_take_it(command, card_file):
    """Some options fit no default, such as --run-epsilon, so the user has to name a learner."""
    for action in options_of_all_learners(command):
        refused = refusal(command, *words_of(action, card_file))
        if refused is not None:
            explanation = f"{refused.message} {refused.hint}"
            for learner in takers(command, action):
                assert learner in explanation


@pytest.mark.parametrize(
    ("words", "learner"),
    [
        ("train --tau 0.5", "fedavg"),
        ("train --local-epochs 2 --clients 100", "fedavg"),
        ("train --unit device --run-epsilon 2", "fedsum"),
        ("collect --unit device --run-epsilon 2", "means"),
        ("collect --unit record --run-epsilon 2", "means"),
        ("collect --unit record --quantiles median --run-epsilon 2", "quantiles"),
        ("collect --quantiles 0.5 --clients 100 --epsilon 1", "quantiles"),
        ("collect --unit device --bins 64", "quantiles"),
        ("train --k 2", "fedsgd"),
    ],
)
def test_the_options_choose_a_learner_that_has_all_of_them(words, learner):
    command, *rest = words.split()
    assert parse(command, *rest).algorithm == learner


@pytest.mark.parametrize("command", ["train", "collect"])
def test_a_device_stays_protected_unless_another_unit_is_named(command):
    """The learners with --run-epsilon protect records by default."""
    with pytest.raises(UsageError, match="--run-epsilon"):
        parse(command, "--run-epsilon", "2")


@pytest.mark.parametrize("learner", ["direct", "fedsgd", "fedavg"])
def test_every_learner_can_be_told_to_protect_devices(learner):
    assert parse("train", learner, "--unit", "device").algorithm == learner


def test_a_named_unit_reaches_the_learner_that_has_it():
    assert parse("train", "--unit", "device", "--run-epsilon", "2").learning.unit == "device"
