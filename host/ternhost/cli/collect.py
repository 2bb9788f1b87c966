"""`tern collect`: means and frequencies of what the clients of a fleet hold."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from ternhost import datasets, mechanisms
from ternhost.cli import add_command
from ternhost.cli.running import add_where, default_of, perform, store_at
from ternhost.errors import UsageError
from ternhost.runs import collection_run
from ternhost.runs.collection_run import HIERA, METHODS, Options
from ternhost.runs.session import K_RULES, Watcher

_DEFAULTS = Options()
_default = partial(default_of, _DEFAULTS)
_SHOWN = 12  # attributes, for people


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "collect",
        "estimate means and frequencies of what devices hold",
        """tern collect --dataset wine --epsilon 4 --fleet emulated:2
        tern collect --dataset flights --mechanism pm-sub --epsilon 4 --fleet simulated:300000 --json
        tern collect --method hiera --epsilon 4 --fleet emulated:2
        tern collect --resume runs/20260102-030405""",
    )
    what = parser.add_argument_group("what to collect")
    what.add_argument(
        "--dataset",
        metavar="D",
        help=f"{', '.join(datasets.DATASETS)}; or NAME:PATH for one that is a file; {_default('dataset')}",
    )
    what.add_argument("--clients", type=int, metavar="N", help="default all, on emulated boards at most 1000")
    what.add_argument("--seed", type=int, metavar="S", help="of who holds which record; " + _default("seed"))

    how = parser.add_argument_group("privacy")
    how.add_argument("--method", choices=METHODS, help=_default("method"))
    how.add_argument("--epsilon", metavar="E", help="of all that a client reports; " + _default("epsilon"))
    how.add_argument("--mechanism", choices=mechanisms.NAMES, metavar="NAME", help=_default("mechanism"))
    how.add_argument("--levels", type=int, metavar="N", help="outputs, where the mechanism has a choice")
    how.add_argument("--k", type=int, metavar="K", help="numeric attributes that a client reports")
    how.add_argument("--k-rule", choices=K_RULES, help="how K follows from epsilon; " + _default("k_rule"))
    how.add_argument(
        "--budgets",
        metavar="B,B,...",
        help="hiera: proportions of the levels' budgets; " + _default("budgets"),
    )
    how.add_argument(
        "--mu", type=float, metavar="MU", help="hiera: share of reports reused; " + _default("mu")
    )

    add_where(parser, _DEFAULTS)
    parser.set_defaults(func=run)


# What only one of the methods knows.
_ONLY = {HIERA: ("budgets", "mu"), collection_run.ALGORITHM6: ("mechanism", "levels", "k", "k_rule")}


def run(args: argparse.Namespace) -> int:
    def begin(options: dict[str, Any], watcher: Watcher) -> dict[str, Any]:
        for method, names in _ONLY.items():
            other = [name for name in names if name in options]
            if other and method != options.get("method", _DEFAULTS.method):
                raise UsageError(
                    f"--{other[0].replace('_', '-')} belongs to {method}", hint=f"say --method {method}"
                )
        return collection_run.begin(Options(**options), store_at(args.store), watcher, args.anew)

    def resume(watcher: Watcher) -> dict[str, Any]:
        return collection_run.resume(args.resume, watcher, args.fleet)

    return perform(args, _DEFAULTS, begin, resume, summary)


def summary(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [_line(entry) for entry in result["attributes"][:_SHOWN]]
    if (more := len(result["attributes"]) - _SHOWN) > 0:
        lines.append(f"and {more} more")
    lines.append(
        f"{result['reports']:,} reports of {result['clients']:,} clients in {result['seconds']:.1f} s; "
        f"epsilon {result['epsilon_per_client']:g} a client"
        + (f" (the paper would say {result['epsilon_stated']:g})" if "epsilon_stated" in result else "")
    )
    if result["mean_squared_error"] is not None:
        lines.append(f"mean squared error of the means {result['mean_squared_error']:.3g}")
    lines.append(f"all of it is in {result['directory']}")
    return "\n".join(lines)


def _line(entry: dict[str, Any]) -> str:
    if "frequencies" in entry:
        shares = ", ".join(
            f"{name} {share:.3f}"
            for name, share in zip(entry["categories"], entry["frequencies"], strict=True)
            if share is not None
        )
        return f"{entry['name']}: {shares}"
    line = f"{entry['name']}: {entry['mean']:+.3f}"
    if entry["interval"]:
        line += f"  (95 % interval {entry['interval'][0]:+.3f} to {entry['interval'][1]:+.3f})"
    return line + (f"  truly {entry['true']:+.3f}" if "true" in entry else "")
