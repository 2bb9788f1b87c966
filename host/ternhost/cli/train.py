"""`tern train`: train a model on a fleet under local differential privacy."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from ternhost import datasets, mechanisms
from ternhost.algorithms import averaging as fedavg
from ternhost.algorithms import base as algorithms
from ternhost.algorithms import training
from ternhost.cli import add_command
from ternhost.cli.running import add_where, default_of, perform, store_at
from ternhost.errors import UsageError
from ternhost.mechanisms import cards
from ternhost.runs.session import K_RULES, Options, Session, Watcher

_DEFAULTS = Options()
_default = partial(default_of, _DEFAULTS)
K_RULE_HELP = (
    "how K follows from epsilon: paper, floor(epsilon / 2.5), better for gradients, which are mostly near 0; "
    "wide, floor(epsilon / 2.5 + 0.6), better where many are near 1 or -1"
)


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "train",
        "train a model on a fleet under local differential privacy",
        """tern train --fleet emulated:8 --epsilon 2 --reports 20000 --group 500
        tern train --mechanism pm-sub --levels 15 --epsilon 4 --fleet emulated:2 --reports 2000 --json
        tern train --epsilons 1:0.5,2:0.3,4:0.2 --fleet simulated:100000 --reports 100000 --json
        tern train --algorithm fedavg --mechanism pdpm --epsilon 8 --tau 0.25 --local-epochs 2 --fleet emulated:4
        tern train --algorithm hiera --dataset synthetic-linear --model linear --epsilon 8 --fleet emulated:4
        tern train --resume runs/20260102-030405""",
    )
    what = parser.add_argument_group("what to learn")
    what.add_argument(
        "--dataset",
        metavar="D",
        help=f"{', '.join(datasets.DATASETS)}; or NAME:PATH for one that is a file; {_default('dataset')}",
    )
    what.add_argument("--algorithm", choices=algorithms.ALGORITHMS, help=_default("algorithm"))
    what.add_argument("--model", choices=tuple(training.MODELS), help=_default("model"))
    what.add_argument("--reports", type=int, metavar="R", help=_default("reports") + "; one a device")
    what.add_argument(
        "--group", type=int, metavar="G", help="devices asked in a round; " + _default("group") + " or all"
    )
    what.add_argument("--batch", type=int, metavar="B", help="records a report uses, 0 for all of a device's")
    what.add_argument("--learning-rate", type=float, metavar="X", help="default: follows from the noise")
    what.add_argument("--regularisation", type=float, metavar="X", help=_default("regularisation"))
    what.add_argument(
        "--seed", type=int, metavar="S", help="of groups; privacy does not use it; " + _default("seed")
    )

    how = parser.add_argument_group("privacy")
    how.add_argument("--mechanism", choices=mechanisms.NAMES, metavar="NAME", help=_default("mechanism"))
    how.add_argument("--epsilon", metavar="E", help="of a whole report; " + _default("epsilon"))
    how.add_argument(
        "--epsilons",
        metavar="E:SHARE,...",
        help="of classes of devices, each with a share of them: personalised budgets",
    )
    how.add_argument(
        "--budget",
        metavar="E",
        help="of a device, for life; a run beyond it does not start; default: the run",
    )
    how.add_argument(
        "--levels", type=int, metavar="N", help="how many outputs, where the mechanism has a choice"
    )
    how.add_argument("--card", metavar="FILE", help="a card of 'tern card design' instead of a mechanism")
    how.add_argument("--k", type=int, metavar="K", help="coordinates a report gives, each at epsilon / K")
    how.add_argument("--k-rule", choices=K_RULES, help=f"{K_RULE_HELP}; {_default('k_rule')}")

    average = parser.add_argument_group(
        "fedavg", "Devices train on records of their own and report their weights."
    )
    average.add_argument("--clients", type=int, metavar="N", help="default all, on boards at most 1000")
    average.add_argument("--records", type=int, metavar="N", help="of a client; " + _default("records"))
    average.add_argument("--rounds", type=int, metavar="N", help=_default("rounds"))
    average.add_argument(
        "--share", type=float, metavar="GAMMA", help="of the clients in a round; " + _default("share")
    )
    average.add_argument("--local-epochs", type=int, metavar="E", help=_default("local_epochs"))
    average.add_argument(
        "--rate", type=int, metavar="N", help="local learning rate, as 2**-N; " + _default("rate")
    )
    average.add_argument(
        "--tau", type=float, metavar="TAU", help="how far a weight may move in a round; " + _default("tau")
    )
    average.add_argument(
        "--choices",
        metavar="TAU:E:SHARE,...",
        help=f"safe range and epsilon of classes of clients, or a mode: {', '.join(fedavg.MODES)}",
    )
    average.add_argument(
        "--weights", choices=fedavg.WEIGHTS, help="how classes are put together; " + _default("weights")
    )

    levels = parser.add_argument_group("hiera", "Devices report level and sign of one coordinate (LHP).")
    levels.add_argument(
        "--budgets", metavar="B,B,...", help="of the levels, in these proportions; " + _default("budgets")
    )
    levels.add_argument("--mu", type=float, metavar="MU", help="share of reports reused; " + _default("mu"))

    add_where(parser, _DEFAULTS)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    def finish(session: Session) -> dict[str, Any]:
        with session:
            return session.run()

    return perform(
        args,
        _DEFAULTS,
        lambda options, watcher: finish(begin(options, args.store, watcher, args.anew)),
        lambda watcher: finish(Session.resume(args.resume, watcher, args.fleet)),
        summary,
    )


# Options that only some of the algorithms know.
_KNOWN_BY = {
    (algorithms.FEDSGD, algorithms.HIERA): ("reports", "group", "learning_rate", "regularisation"),
    (algorithms.FEDSGD, algorithms.FEDAVG): ("mechanism", "levels", "card", "k", "k_rule", "epsilons"),
    (algorithms.FEDAVG,): (
        "clients", "records", "rounds", "share", "local_epochs", "rate", "tau", "choices", "weights",
    ),
    (algorithms.HIERA,): ("budgets", "mu"),
}  # fmt: skip


def _check_algorithm(options: dict[str, Any]) -> None:
    chosen = options.get("algorithm", _DEFAULTS.algorithm)
    for known_by, names in _KNOWN_BY.items():
        if chosen not in known_by and (named := [name for name in names if name in options]):
            raise UsageError(
                f"--{named[0].replace('_', '-')} belongs to {' and '.join(known_by)}, and this run is {chosen}",
                hint=f"leave it out, or say --algorithm {known_by[0]}",
            )
    if "choices" in options and (
        named := [name for name in ("epsilon", "epsilons", "tau") if name in options]
    ):
        raise UsageError(f"--choices says what --{named[0]} says", hint="give one of them")
    if "card" in options and (named := [name for name in ("mechanism", "levels") if name in options]):
        raise UsageError(f"--card says what --{named[0]} says", hint="give one of them")
    if "epsilons" in options and "epsilon" in options:
        raise UsageError("--epsilons and --epsilon say the same", hint="give one of them")


def begin(options: dict[str, Any], store: str | None, watcher: Watcher, anew: bool = False) -> Session:
    """Begin a run with the store named, or in a new directory under runs/; anew: see Session.begin."""
    _check_algorithm(options)
    if card := options.get("card"):
        options["card"] = cards.load(card).hex()
    checked = Options(**options)
    return Session.begin(checked, store_at(store), watcher, anew)


def summary(result: dict[str, Any]) -> str:
    """The result for people."""
    figure, trivial = "accuracy", "majority"
    if result["task"] == datasets.REGRESSION:
        figure, trivial = "mean squared error", "mean label"
    low, high = result["accuracy_interval"]
    stated = []
    if "epsilon_stated" in result:
        stated = [f"the paper would say epsilon {result['epsilon_stated']:g} of the same reports"]
    return "\n".join(
        (
            f"{figure} {result['accuracy']:.4f}   (held out: 95 % interval {low:.4f} to {high:.4f}; without noise "
            f"{result['accuracy_nonprivate']:.4f}, {trivial} {result['accuracy_baseline']:.4f})",
            f"{result['reports']:,} reports of {result['bytes_per_report']} bytes in {result['rounds']} rounds and "
            f"{result['seconds']:.1f} s; epsilon {result['epsilon_per_client']:g} a client, {result['mechanism']}, "
            f"{result['k']} of {result['d']} {'weights' if result['classes'][0]['tau'] else 'coordinates'}",
            *(_class(own) for own in result["classes"] if len(result["classes"]) > 1),
            *stated,
            f"all of it is in {result['directory']}",
        )
    )


def _class(own: dict[str, Any]) -> str:
    tau = "" if own["tau"] is None else f", tau {own['tau']:g}"
    return (
        f"  {own['clients']:,} clients at epsilon {own['epsilon']:g} a report{tau}: "
        f"{own['epsilon_per_client']:g} in the run"
    )
