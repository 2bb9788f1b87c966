"""The commands that run an algorithm: `tern train`, `tern collect` and `tern infer`.

Their parsers are made from the options of their algorithms.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ternhost import options as fields
from ternhost.cli.progress import ProgressPrinter
from ternhost.command import add_command, add_option, print_result, warn
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS, Learner, algorithms_of
from ternhost.learn.schedule import Schedule
from ternhost.privacy import mechanisms
from ternhost.run import result as results
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions, classes_of_run, default_fleet
from ternhost.run.plugins import learner_of
from ternhost.run.run import Run
from ternhost.run.status import Watcher

if TYPE_CHECKING:
    from ternhost.watch.metrics import Metrics

NAME = "name of the run and of its directory in runs (default: the time)"
METRICS = "serve metrics for Prometheus on this loopback port ('tern watch' writes a dashboard and alerts)"


@dataclass(frozen=True)
class RunCommand:
    """A command that runs those algorithms whose `command` is its name, by default the first one."""

    name: str
    summary: str
    example: str

    def add_parser(self, subparsers: Any) -> None:
        """Add the command's parser, with the options of all of its algorithms."""
        parser = add_command(subparsers, self.name, self.summary, self.example, run)

        # The algorithms and their options.
        algorithms = algorithms_of(self.name)
        if len(algorithms) > 1:
            default = next(iter(algorithms))
            if "direct" in algorithms:
                default = "direct or fedsgd, by data and options"
            text = f"algorithm to run (default: {default})"
            add_option(parser, "--algorithm", text, choices=tuple(algorithms))
        option_classes = [algorithm.Options for algorithm in algorithms.values()]
        fields.add_arguments(parser, *option_classes, *classes_of_run(), leave_out=("fleet",))

        # The run itself.
        self._add_place(parser.add_argument_group("the run"))
        add_option(parser, "--metrics PORT", METRICS, type=int)
        add_option(parser, "--quiet", "print no progress, only warnings")

        # The options of mechanisms come last: one is left out if there is one of the same name.
        has_mechanisms = any(hasattr(options, "mechanism") for options in option_classes)
        if has_mechanisms:
            mechanisms.add_options(parser)
        parser.set_defaults(command=self.name)

    def _add_place(self, group: Any) -> None:
        """Add the options that say on which devices the run takes place, and where it is stored.

        group: the argument group of the parser that gets them.
        """
        text = f"the devices, in a form that 'tern fleet kinds' lists (default: {default_fleet(self.name)})"
        add_option(group, "--fleet KIND", text, metavar="KIND:...")
        add_option(group, "--name NAME", NAME)
        text = "file with the fleet's keys and rounds (default: the fleet's own, or one in the run's directory)"
        add_option(group, "--store FILE", text)
        add_option(group, "--anew", "abandon an unfinished run of the store, and begin a new one")
        text = (
            "resume this run: its name, directory or store; with --fleet if its boards have moved"
        )
        add_option(group, "--resume RUN", text)
        add_option(group, "--no-report", "write no pictures and no report.html")


TRAIN = RunCommand(
    "train",
    "train a model on a fleet under local differential privacy",
    """tern train --fleet emulated:8 --epsilon 2 --reports 20000 --group 500
    tern train --mechanism pm-sub --levels 15 --epsilon 4 --fleet emulated:2 --reports 2000 --json
    tern train --epsilons 1:0.5,2:0.3,4:0.2 --fleet simulated:100000 --reports 100000 --json
    tern train --algorithm fedavg --mechanism pdpm --epsilon 8 --tau 0.25 --local-epochs 2 --fleet emulated:4
    tern train --algorithm hiera --dataset synthetic-linear --model linear --epsilon 8 --fleet mqtt:my-broker
    tern train --resume 20260102-030405""",
)
COLLECT = RunCommand(
    "collect",
    "estimate means and frequencies of attributes under local differential privacy",
    """tern collect --dataset wine --epsilon 4 --fleet emulated:2
    tern collect --dataset flights --mechanism pm-sub --epsilon 4 --fleet simulated:300000 --json
    tern collect --dataset flights-table --fleet simulated:300000 --name frequencies
    tern collect --method hiera --epsilon 4 --fleet emulated:2
    tern collect --unit record --life 1 --delta 1e-6 --records 500 --fleet simulated:20
    tern collect --resume 20260102-030405""",
)
INFER = RunCommand(
    "infer",
    "classify records on the devices, and collect the results under local differential privacy",
    """tern infer --dataset digits --epsilon 8 --fleet emulated:2
    tern infer --dataset iris --laplace-eval-eps 4 --eval-type CALINSKI_HARABASZ --fleet simulated:1000 --json
    tern infer --dataset digits --answer label --epsilon 4 --fleet simulated:1000
    tern infer --dataset digits --classifier runs/first --score-rounds 5 --epsilon 20 --fleet simulated:179
    tern infer --resume 20260102-030405""",
)


def metrics(args: argparse.Namespace) -> "Metrics | None":
    """Start the server of metrics for Prometheus that --metrics asks for.

    Returns None without that option. Raises UsageError if its port is not available.
    """
    if args.metrics is None:
        return None
    from ternhost.watch.metrics import Metrics  # needs an optional package

    fields.require_port(args.metrics, "metrics")
    try:
        return Metrics(args.metrics)
    except OSError as error:
        text = f"port {args.metrics} is not available: {error}"
        raise UsageError(text, hint="give another --metrics") from error


def named(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the run's options that the user has given, by name.

    `algorithm` is one of them.
    """
    option_classes = [algorithm.Options for algorithm in ALGORITHMS.values()]
    values = fields.given(args, *option_classes, Schedule, *classes_of_run())
    algorithm = getattr(args, "algorithm", None)
    if algorithm:
        values["algorithm"] = algorithm
    return values


def parsed(
    args: argparse.Namespace, algorithms: Mapping[str, type[Learner]], served: bool = False
) -> RunOptions:
    """Return the options of a new run, from the command line.

    algorithms: among which the run may choose, by name; the first one is the default. served: the
    run is of `tern serve`. Raises UsageError for options that do not fit.
    """
    values = named(args)
    algorithm = values.pop("algorithm", None)
    # Every algorithm protects whole devices by default. If `--unit device` stayed among the values,
    # only an algorithm with that option could be chosen.
    if algorithm is None and values.get("unit") == "device":
        del values["unit"]

    mechanism_options = mechanisms.options_named(args)
    if mechanism_options:
        default_algorithm = next(iter(algorithms))
        algorithm_options = algorithms[algorithm or default_algorithm].Options
        default_mechanism = getattr(algorithm_options, "mechanism", None)
        mechanism = values.get("mechanism", default_mechanism)
        has_ready_card = "card" in values  # it replaces a mechanism
        if mechanism is None or has_ready_card:
            option = mechanism_options[0]
            text = f"{option} is an option of a mechanism, and this run chooses none"
            raise UsageError(text, hint="leave it out")
        values["mechanism_options"] = mechanisms.options_given(args, mechanism)
    return RunOptions.parse(algorithm, values, algorithms, served)


def run(args: argparse.Namespace) -> int:
    """Begin or resume a run, run it to its end, draw its report, and print its result.

    Returns the exit code.
    """
    metrics_server = metrics(args)
    printer = ProgressPrinter(quiet=args.quiet)
    watcher = printer.watcher()
    if metrics_server is not None:
        watcher = watcher.also(metrics_server.update)
    try:
        with begun(args, watcher) as active_run:
            if metrics_server is not None:
                metrics_server.add_store(active_run.files.store, active_run.files.name)
            result = active_run.run()
        if not args.no_report:
            printer.say("drawing the report")
            result |= results.draw(result)
    finally:
        printer.close()
    return print_run(args, result)


def begun(args: argparse.Namespace, watcher: Watcher) -> Run:
    """Begin a new run, or resume the run that --resume names.

    watcher: gets the statuses of the run. Raises UsageError for options that do not fit, and other
    errors of tern if the run cannot begin.
    """
    if args.resume is None:
        options = parsed(args, algorithms_of(args.command))
        place = Place(args.name, store=args.store, anew=args.anew)
        return Run.begin(options, place, watcher)

    # Only two options may be given again: the others are stored with the run.
    changed = sorted(named(args).keys() - {"fleet", "after_round"})
    changed += [name for name in ("store", "name", "anew") if getattr(args, name)]
    if changed:
        text = f"a resumed run keeps its options: {fields.flag(changed[0])} cannot be changed"
        raise UsageError(text, hint=f"tern {args.command} --resume {args.resume}")
    run = Run.resume(args.resume, watcher, args.fleet, args.after_round)
    right_command = run.algorithm.command
    if right_command != args.command:
        with run:  # closes its store
            hint = f"tern {right_command} --resume {args.resume}"
            raise UsageError(f"{args.resume} is a run of tern {right_command}", hint)
    return run


def print_run(args: argparse.Namespace, result: dict[str, Any]) -> int:
    """Print the result of a run, with a warning if something is missing; return the exit code."""
    lines = [*learner_of(result).summary(result), *results.privacy_words(result)]
    lines.append(f"the run {result['run']} is in {result['directory']}")
    if "report" in result:
        lines.append(f"report: {result['report']}")
    print_result(result, "\n".join(lines), args.json)
    warning = results.missing_words(result)
    if warning:
        warn(warning)
    return results.exit_code(result)
