"""`tern infer`: protected inference on a fleet, judged by the clusters of its results."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from ternhost.algorithms import inference
from ternhost.cli import add_command
from ternhost.cli.running import add_where, default_of, perform, store_at
from ternhost.errors import UsageError
from ternhost.runs import inference_run
from ternhost.runs.inference_run import Options
from ternhost.runs.session import Watcher

_DEFAULTS = Options()
_default = partial(default_of, _DEFAULTS)


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "infer",
        "let devices classify their records and send the probabilities under exact noise",
        """tern infer --dataset digits --epsilon 8 --fleet emulated:2
        tern infer --dataset iris --laplace-eval-eps 4 --eval-type CALINSKI_HARABASZ --fleet simulated:1000 --json
        tern infer --resume runs/20260102-030405""",
    )
    what = parser.add_argument_group("what to classify")
    what.add_argument(
        "--dataset",
        metavar="NAME",
        help=f"{', '.join(inference.CLASSES)}, or two classes of another; {_default('dataset')}",
    )
    what.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="of the records, for the clients; the classifier is trained on the rest; "
        + _default("held_out"),
    )
    what.add_argument(
        "--cluster-client-num", type=int, metavar="N", help="clients that are asked; default 1000 or all"
    )
    what.add_argument(
        "--eval-type",
        choices=(inference.NOT_EVAL, inference.SILHOUETTE_SCORE, inference.CALINSKI_HARABASZ),
        help=_default("eval_type"),
    )
    what.add_argument("--seed", type=int, metavar="S", help="of who holds which record; " + _default("seed"))

    how = parser.add_argument_group("privacy")
    how.add_argument("--epsilon", metavar="E", help="true privacy loss of a result, the whole vector")
    how.add_argument(
        "--laplace-eval-eps",
        metavar="X",
        help="the same as MindSpore has it: half of the true epsilon; " + _default("laplace_eval_eps"),
    )
    how.add_argument(
        "--privacy-eval-type",
        choices=(inference.NOT_ENCRYPT, inference.LAPLACE),
        help="without noise on simulated fleets only; " + _default("privacy_eval_type"),
    )

    add_where(parser, _DEFAULTS)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    def begin(options: dict[str, Any], watcher: Watcher) -> dict[str, Any]:
        if "epsilon" in options and "laplace_eval_eps" in options:
            raise UsageError("--epsilon and --laplace-eval-eps say the same", hint="give one of them")
        return inference_run.begin(Options(**options), store_at(args.store), watcher, args.anew)

    def resume(watcher: Watcher) -> dict[str, Any]:
        return inference_run.resume(args.resume, watcher, args.fleet)

    return perform(args, _DEFAULTS, begin, resume, summary)


def summary(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [_score(result)]
    if result["epsilon_true"] is not None:
        lines.append(
            f"{result['reports']:,} results of {result['bytes_per_report']} bytes in {result['seconds']:.1f} s; "
            f"true epsilon {result['epsilon_per_client']:g} a client "
            f"(laplace_eval_eps {result['laplace_eval_eps']:g})"
        )
    sizes = ", ".join(f"{label}: {size}" for label, size in result["clusters"].items())
    lines += [f"clients by cluster: {sizes}", f"all of it is in {result['directory']}"]
    return "\n".join(lines)


def _score(result: dict[str, Any]) -> str:
    def figure(value: float | None) -> str:
        return "none (a single cluster has no score)" if value is None else f"{value:.4f}"

    line = "not scored"
    if result["eval_type"] != inference.NOT_EVAL:
        line = f"{result['eval_type']} {figure(result['score'])}"
        if result["agreement"] is not None:
            line += f"   (without noise {figure(result['score_without_noise'])})"
    if result["agreement"] is not None:
        line += f"; {100 * result['agreement']:.1f} % of the clients keep their cluster"
    return line
