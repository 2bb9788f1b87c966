"""The commands that run a learner to its end: `tern train`, `tern collect` and `tern infer`.

Their parsers are made from the options of their learners. A command has a page of help with the
options that its learners share, and one for each learner with the options of its own.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ternhost import listed_commands
from ternhost import options as fields
from ternhost.command import ListedCommand, add_command, print_result, warn
from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS, option_classes
from ternhost.learn.base import ALGORITHMS, Learner, algorithms_of
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import option
from ternhost.run.options import RunOptions, classes_of_run, default_fleet
from ternhost.run.plugins import learner_of

if TYPE_CHECKING:  # pages of help do not need these, which are slow to load
    from ternhost.run.begin import Place
    from ternhost.run.run import Run
    from ternhost.run.status import Watcher

# Options of learners that stand on the page of the command, since they say what a run is about.
# All others stand on the pages of their learners.
_ABOUT_THE_RUN = (
    "data",
    "by",
    "time",
    "held_out",
    "model",
    "threshold",
    "seed",
    "unit",
    "epsilon",
    "run_epsilon",
)
_OF_BOTH = "delta"  # an option that a run and its learner both have, with the same value


@dataclass(frozen=True)
class PlaceOptions:
    """Where a run is kept."""

    name: str | None = option(
        None,
        metavar="NAME",
        shown="the time",
        group="result",
    )
    store: str | None = option(
        None,
        metavar="FILE",
        shown="the fleet's own, or one in the run's directory",
        group="result",
    )
    anew: bool = option(
        False,
        group="result",
    )
    report: bool = option(True, "write no pictures and no report.html", group="result")


@dataclass(frozen=True)
class RunCommand:
    """A command that runs those learners whose `command` is its name."""

    listed: ListedCommand
    example: str

    def add_parser(self, subparsers: Any) -> None:
        """Add the command's parser, and one for each of its learners if there are several."""
        name = self.listed.name
        learners = algorithms_of(name)
        parser = add_command(subparsers, name, self.listed.summary, self.example, run)
        parser.set_defaults(learner=None)
        shared = (*classes_of_run(), PlaceOptions)
        fleet = default_fleet(name)
        # The options of how a run goes on stand on the page of `tern train` alone.
        elsewhere = set()
        if name != "train":
            elsewhere = fields.names_of(Terms) | names_of_rare_options()
        if len(learners) > 1:
            add_pages_of_learners(parser, learners, shared, _default_learner(learners))
            add_run_options(parser, learners, shared, fleet, elsewhere=elsewhere)
        else:  # the options of the only learner stand on the page of the command
            add_run_options(parser, learners, shared, fleet, shows_all=True, elsewhere=elsewhere)
        point_to_train(parser, elsewhere)


def names_of_rare_options() -> set[str]:
    """Return the names of options that only few runs need, whatever their learner."""
    names = {"after_round", "anew"}
    for each in option_classes():  # of extensions
        names |= fields.names_of(each)
    return names


def point_to_train(parser: argparse.ArgumentParser, names: Collection[str]) -> None:
    """Say in the help of a command which of its options stand in that of `tern train`."""
    if names:
        flags = ", ".join(sorted(map(fields.flag, names)))
        more = f"It also takes these options of 'tern train --help': {flags}."
        parser.epilog = f"{textwrap.fill(more, 78)}\n{parser.epilog}"


def add_run_options(
    parser: argparse.ArgumentParser,
    learners: Mapping[str, type[Learner]],
    shared: Sequence[Any],
    fleet: str | None,
    leave_out: Collection[str] = (),
    shows_all: bool = False,
    elsewhere: Collection[str] = (),
) -> None:
    """Add the options of learners and of every run to the parser of a command.

    The help shows those that say what a run is about. The parser takes all others, too: an option
    that only some learners have selects among them.

    shared: dataclasses of options that all learners share. fleet: the default of --fleet; None: it
    has none. leave_out: names of options that the command does not take. shows_all: whether the
    help shows all options of learners. elsewhere: names of options that the help does not show,
    since they stand on another page.
    """
    classes = [learner.Options for learner in learners.values()]
    shared_names = {name for each in shared for name in fields.names_of(each)}
    left_out = shared_names | set(leave_out)
    about_the_run = set(_ABOUT_THE_RUN) - set(elsewhere)
    shown = None if shows_all else about_the_run
    # The default learner protects devices, whatever the unit of those that have the option.
    defaults = {"fleet": fleet, "unit": "device"}
    fields.add_arguments(parser, RunOptions, only=("fleet",), defaults=defaults)
    fields.add_arguments(parser, *classes, only=shown, leave_out=left_out, defaults=defaults)
    fields.add_arguments(parser, *shared, leave_out={*leave_out, *elsewhere, "fleet"})
    fields.add_arguments(parser, *shared, only=elsewhere, leave_out=leave_out, hidden=True)
    if not shows_all:
        hidden_left_out = {*left_out, *about_the_run}
        fields.add_arguments(parser, *classes, leave_out=hidden_left_out, hidden=True)


def add_pages_of_learners(
    parser: argparse.ArgumentParser,
    learners: Mapping[str, type[Learner]],
    shared: Sequence[Any],
    default: str,
    leave_out: Collection[str] = (),
    own_page: bool = True,
) -> None:
    """Add a parser for each learner of a command: `tern train fedsgd`.

    Its help shows the learner's own options. It takes those of all learners and of every run, too,
    so that an option of another learner is refused by a message that names its learners.

    shared, leave_out: as in `add_run_options`. default: which learner runs if none is named.
    own_page: False if the learner's own options stand on the page of another command.
    """
    title = f"learners (default: {default})"
    parser.usage = f"{parser.prog} [OPTION ...] [LEARNER [OPTION ...]]"
    children = parser.add_subparsers(
        title=title, dest="learner", metavar="LEARNER", prog=parser.prog
    )
    shared_names = {name for each in shared for name in fields.names_of(each)}
    all_classes = [learner.Options for learner in learners.values()]
    of_all_pages = {name for each in all_classes for name in fields.names_of(each)}
    of_all_pages &= set(_ABOUT_THE_RUN) - {"unit"}  # which every learner takes for devices
    for name, learner in learners.items():
        hint = f"It also takes the options of '{parser.prog} --help'"
        not_taken = sorted(of_all_pages - fields.names_of(learner.Options))
        if not_taken:
            hint += f", but not {' and '.join(map(fields.flag, not_taken))}"
        hints = [f"{hint}."]
        example = learner.example
        if learner.like and own_page:
            hints.append(f"Further ones stand in '{parser.prog} {learner.like} --help'.")
        if not own_page:
            example = "--fleet mqtt:my-broker"
            hints.append(f"Those of its own stand in 'tern {learner.command} {name} --help'.")
        child = children.add_parser(
            name,
            help=learner.about,
            usage=f"{parser.prog} {name} [OPTION ...]",
            description=f"{learner.about[:1].upper()}{learner.about[1:]}.",
            epilog="\n".join([*hints, "example:", f"  {parser.prog} {name} {example}"]),
        )
        child.set_defaults(**{**parser._defaults, "learner": name, "prog": child.prog})
        own_names: set[str] = set()
        if own_page:
            own_names = fields.names_of(learner.Options) - shared_names - set(_ABOUT_THE_RUN)
            if learner.like:
                own_names -= fields.names_of(ALGORITHMS[learner.like].Options)
            fields.add_arguments(child, learner.Options, only=own_names, absent=argparse.SUPPRESS)
        others = (*shared, *all_classes)
        # The values of options before the name of the learner stay.
        fields.add_arguments(
            child,
            *others,
            leave_out={*own_names, *leave_out},
            hidden=True,
            absent=argparse.SUPPRESS,
        )


def _default_learner(learners: Mapping[str, type[Learner]]) -> str:
    """Return which learner a command chooses, in words."""
    if "direct" in learners:
        return "direct or fedsgd, by data and options"
    return f"{next(iter(learners))}, or by the options"


TRAIN = RunCommand(
    listed_commands.TRAIN,
    """tern train --data flights --fleet emulated:8 --epsilon 2
    tern train --unit record --run-epsilon 4 --fleet simulated:20
    tern train fedsgd --mechanism pm-sub --epsilon 4 --reports 20000""",
)
COLLECT = RunCommand(
    listed_commands.COLLECT,
    """tern collect --data wine --epsilon 4 --fleet emulated:2
    tern collect --quantiles median,p90 --data wine --epsilon 1 --fleet simulated:20000
    tern collect --unit record --run-epsilon 1 --records 500 --fleet simulated:20
    tern collect levels --epsilon 4""",
)
INFER = RunCommand(
    listed_commands.INFER,
    """tern infer --data digits --epsilon 8 --fleet emulated:2
    tern infer --data digits --answer label --epsilon 4 --fleet simulated:1000
    tern infer --data digits --classifier runs/first --score-rounds 5 --epsilon 20 --fleet simulated:179""",
)


def named(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the run's options that the user has given, by name.

    `algorithm` is one of them, the learner.
    """
    option_classes = [algorithm.Options for algorithm in ALGORITHMS.values()]
    classes = (*option_classes, Schedule, *classes_of_run())
    values = fields.given(args, *classes)
    for name in _overridden(args, values, classes):
        values.pop(name, None)
    learner = getattr(args, "learner", None)
    if learner:
        values["algorithm"] = learner
    return values


def parsed(
    args: argparse.Namespace, learners: Mapping[str, type[Learner]], served: bool = False
) -> RunOptions:
    """Return the options of a new run, from the command line and the project file.

    learners: among which the run may choose, by name; the first one is the default. served: the
    run is of `tern serve`. Raises UsageError for options that do not fit.
    """
    values = named(args)
    learner = values.pop("algorithm", None)

    optional = _optional(args, learners)
    required = {name: value for name, value in values.items() if name not in optional}
    options = RunOptions.parse(learner, required, learners, served)
    _require_own_names(options)
    learner_options = ALGORITHMS[options.algorithm].Options
    own_names = fields.names_of(learner_options)
    of_learner = {}
    for name in values.keys() & optional & own_names:
        # A learner of several units may have an option for some of them only.
        if fields.misfit(learner_options, name, values) is None:
            of_learner[name] = values[name]
    if not of_learner:
        return options
    values = {**required, **of_learner}
    return replace(
        RunOptions.parse(options.algorithm, values, learners, served), reason=options.reason
    )


def _require_own_names(options: RunOptions) -> None:
    """Raise UsageError if a learner or an extension has an option with a name that all runs have.

    The command line has one option of a name: the one of the package would never get its value.
    """
    of_all_runs = set()
    for each in (RunOptions, Terms, PlaceOptions):
        of_all_runs |= fields.names_of(each)
    learner = ALGORITHMS[options.algorithm]
    _require_free(f"the learner {learner.name}", learner.Options, of_all_runs - {_OF_BOTH})
    for extension in EXTENSIONS.available():
        if extension.Options is not None:
            _require_free(f"the extension {extension.name}", extension.Options, of_all_runs)


def _require_free(who: str, declares: Any, taken: Collection[str]) -> None:
    """Raise UsageError if a dataclass declares an option with a name that is taken.

    who: has the options, in words.
    """
    names = sorted(fields.names_of(declares) & set(taken))
    if names:
        flags = ", ".join(map(fields.flag, names))
        text = f"{who} declares {flags}, which every run has already"
        raise UsageError(text, hint="give the option another name in its Options")


def _optional(args: argparse.Namespace, learners: Mapping[str, type[Learner]]) -> set[str]:
    """Return the names of shared settings of the project file that some learners do not have.

    They do not select a learner, and one that does not have them ignores them: only what the unit
    of privacy is must not be ignored.
    """
    names_of_all = set.intersection(*(fields.names_of(each.Options) for each in learners.values()))
    names_of_all |= {
        name for each in (Schedule, *classes_of_run()) for name in fields.names_of(each)
    }
    optional = set()
    for name, setting in args.from_project.items():
        if not setting.table and name not in names_of_all and name != "unit":
            optional.add(name)
    return optional


def _overridden(args: argparse.Namespace, values: Mapping[str, Any], classes: Any) -> set[str]:
    """Return the names of settings of the project file that an option given excludes.

    values: all values, by name. classes: the dataclasses of options.
    """
    from_project = set(args.from_project)
    given = values.keys() - from_project
    overridden = set()
    for each in classes:
        for declared in fields.options_of(each):
            for other in declared.instead_of:
                if declared.name in given and other in from_project:
                    overridden.add(other)
                if other in given and declared.name in from_project:
                    overridden.add(declared.name)
    return overridden


def run(args: argparse.Namespace) -> int:
    """Begin a run, run it to its end, draw its report, and print its result.

    Returns the exit code.
    """
    from ternhost.run.run import Run  # slow to load

    options = parsed(args, algorithms_of(args.command))
    place = place_of(args)

    def begin(watcher: Watcher) -> Run:
        """Begin the run."""
        return Run.begin(options, place, watcher)

    return run_to_its_end(args, begin)


def place_of(args: argparse.Namespace) -> Place:
    """Return where the command line has a run kept."""
    from ternhost.run.begin import Place  # slow to load

    given = fields.given(args, PlaceOptions)
    return Place(given.get("name"), store=given.get("store"), anew=given.get("anew", False))


def run_to_its_end(args: argparse.Namespace, begin: Any) -> int:
    """Run a run to its end, draw its report, and print its result; return the exit code.

    begin: a function that gets the run's watcher, and returns the run.
    """
    from ternhost.cli.progress import ProgressPrinter  # slow to load
    from ternhost.run import result as results

    printer = ProgressPrinter(quiet=args.quiet)
    try:
        with begin(printer.watcher()) as active_run:
            result = active_run.run()
        if args.report is not False:
            printer.say("drawing the report")
            result |= results.draw(result)
    finally:
        printer.close()
    return print_run(args, result)


def print_run(args: argparse.Namespace, result: dict[str, Any]) -> int:
    """Print the result of a run, with a warning if something is missing; return the exit code."""
    from ternhost.run import result as results  # slow to load

    lines = [*learner_of(result).summary(result), *results.privacy_words(result)]
    lines.append(f"the run {result['run']} is in {result['directory']}")
    if "report" in result:
        lines.append(f"report: {result['report']}")
    print_result(result, "\n".join(lines), args.json)
    warning = results.missing_words(result)
    if warning:
        warn(warning)
    return results.exit_code(result)
