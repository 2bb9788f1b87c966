"""The commands that run an algorithm.

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
    """A command that runs the algorithms whose `command` is its name, by default the first."""

    name: str
    summary: str
    example: str

    def add_parser(self, subparsers: Any) -> None:
        """Add the command's parser, with the options of all of its algorithms."""
        parser = add_command(subparsers, self.name, self.summary, self.example, run)
        algorithms = algorithms_of(self.name)
        if len(algorithms) > 1:
            default = next(iter(algorithms))
            if "direct" in algorithms:
                default = "direct or fedsgd, by data and options"
            text = f"algorithm to run (default: {default})"
            add_option(parser, "--algorithm", text, choices=tuple(algorithms))
        learning = [cls.Options for cls in algorithms.values()]
        fields.add_arguments(parser, *learning, *classes_of_run(), leave_out=("fleet",))
        self._add_place(parser.add_argument_group("the run"))
        add_option(parser, "--metrics PORT", METRICS, type=int)
        add_option(parser, "--quiet", "print no progress, only warnings")
        # Last: an option of the command hides one of the same name.
        if any(hasattr(options, "mechanism") for options in learning):
            mechanisms.add_options(parser)
        parser.set_defaults(command=self.name)

    def _add_place(self, group: Any) -> None:
        """Add the options that say where the run takes place."""
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
    """Start the metrics server of --metrics; None without that option.

    Raises UsageError if its port is not available.
    """
    if args.metrics is None:
        return None
    from ternhost.watch.metrics import Metrics  # needs an extra

    fields.require_port(args.metrics, "metrics")
    try:
        return Metrics(args.metrics)
    except OSError as error:
        text = f"port {args.metrics} is not available: {error}"
        raise UsageError(text, hint="give another --metrics") from error


def named(args: argparse.Namespace) -> dict[str, Any]:
    """The values of the run's options that the command line names, `algorithm` among them."""
    learning = [cls.Options for cls in ALGORITHMS.values()]
    values = fields.given(args, *learning, Schedule, *classes_of_run())
    algorithm = getattr(args, "algorithm", None)
    if algorithm:
        values["algorithm"] = algorithm
    return values


def parsed(
    args: argparse.Namespace, algorithms: Mapping[str, type[Learner]], served: bool = False
) -> RunOptions:
    """The options of a new run, from the command line. Raises UsageError."""
    values = named(args)
    algorithm = values.pop("algorithm", None)
    # A device is what every algorithm protects, unless it protects another unit.
    if algorithm is None and values.get("unit") == "device":
        del values["unit"]
    of_mechanism = mechanisms.options_named(args)
    if of_mechanism:
        first = algorithms[algorithm or next(iter(algorithms))].Options
        mechanism = values.get("mechanism", getattr(first, "mechanism", None))
        if mechanism is None or "card" in values:
            text = f"{of_mechanism[0]} is an option of a mechanism, and this run chooses none"
            raise UsageError(text, hint="leave it out")
        values["mechanism_options"] = mechanisms.options_given(args, mechanism)
    return RunOptions.parse(algorithm, values, algorithms, served)


def run(args: argparse.Namespace) -> int:
    """Begin or resume a run, run it to its end, and print its result. Raises TernError."""
    figures = metrics(args)
    printer = ProgressPrinter(quiet=args.quiet)
    watcher = printer.watcher()
    if figures is not None:
        watcher = watcher.also(figures.update)
    try:
        with begun(args, watcher) as active_run:
            if figures is not None:
                figures.add_store(active_run.files.store, active_run.files.name)
            result = active_run.run()
        if not args.no_report:
            printer.say("drawing the report")
            result |= results.draw(result)
    finally:
        printer.close()
    return print_run(args, result)


def begun(args: argparse.Namespace, watcher: Watcher) -> Run:
    """Begin a new run, or resume that of --resume. Raises TernError."""
    if args.resume is None:
        options = parsed(args, algorithms_of(args.command))
        place = Place(args.name, store=args.store, anew=args.anew)
        return Run.begin(options, place, watcher)
    changed = sorted(named(args).keys() - {"fleet", "after_round"})
    changed += [name for name in ("store", "name", "anew") if getattr(args, name)]
    if changed:
        text = f"a resumed run keeps its options: {fields.flag(changed[0])} cannot be changed"
        raise UsageError(text, hint=f"tern {args.command} --resume {args.resume}")
    run = Run.resume(args.resume, watcher, args.fleet, args.after_round)
    if run.algorithm.command != args.command:
        with run:
            hint = f"tern {run.algorithm.command} --resume {args.resume}"
            raise UsageError(f"{args.resume} is a run of tern {run.algorithm.command}", hint)
    return run


def print_run(args: argparse.Namespace, result: dict[str, Any]) -> int:
    """Print the result of a run, and return the exit code."""
    lines = [*learner_of(result).summary(result), *results.privacy_words(result)]
    lines.append(f"the run {result['run']} is in {result['directory']}")
    if "report" in result:
        lines.append(f"report: {result['report']}")
    print_result(result, "\n".join(lines), args.json)
    missing = results.missing_words(result)
    if missing:
        warn(missing)
    return results.exit_code(result)
