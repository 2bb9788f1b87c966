"""`tern serve`: run rounds for a live fleet on a broker."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ternhost import datasets, mechanisms
from ternhost.aggregate.store import Store
from ternhost.algorithms import training
from ternhost.cli import add_command, print_result
from ternhost.cli.running import default_of
from ternhost.errors import OK, UsageError
from ternhost.fleet.broker import HOST, Access
from ternhost.mechanisms import cards
from ternhost.runs import session
from ternhost.runs.serve import Plan, Server, Status, summary

_DEFAULTS = session.Options()
_default = partial(default_of, _DEFAULTS)
_EMBEDDED = "embedded"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "serve",
        "run rounds for a live fleet on a broker, until Ctrl-C",
        """tern serve --store my-fleet/store.sqlite --broker my-broker --interval 3600 --deadline 600 --quorum 0.9
        tern serve --store my-fleet/store.sqlite --broker embedded --rounds 10 --json""",
    )
    parser.add_argument("--store", required=True, metavar="FILE", help="keys, rounds, reports and models")
    parser.add_argument(
        "--broker",
        required=True,
        metavar="DIR",
        help=f"made by 'tern broker config' (or its host.json); {_EMBEDDED}: a broker in this process, for a first try",
    )
    what = parser.add_argument_group("what to learn")
    what.add_argument(
        "--dataset", choices=tuple(datasets.DATASETS), default=_DEFAULTS.dataset, help=_default("dataset")
    )
    what.add_argument(
        "--dimension", type=int, metavar="D", help="of the devices' own records, without a data set"
    )
    what.add_argument(
        "--model", choices=tuple(training.MODELS), default=_DEFAULTS.model, help=_default("model")
    )
    what.add_argument(
        "--batch", type=int, default=0, metavar="B", help="records a report uses, 0 for all of a device's"
    )
    what.add_argument(
        "--new-model",
        action="store_true",
        help="begin another model than the store holds; its keys, rounds and models stay",
    )
    what.add_argument("--learning-rate", type=float, metavar="X", help="default: follows from the noise")
    what.add_argument("--regularisation", type=float, metavar="X", default=_DEFAULTS.regularisation)
    what.add_argument(
        "--horizon",
        type=int,
        metavar="N",
        help="rounds for which that rate is chosen (default: all of --rounds, or 100)",
    )

    how = parser.add_argument_group("privacy")
    how.add_argument("--mechanism", choices=mechanisms.NAMES, metavar="NAME", help=_default("mechanism"))
    how.add_argument("--epsilon", metavar="E", help="of a whole report; " + _default("epsilon"))
    how.add_argument(
        "--levels", type=int, metavar="N", help="how many outputs, where the mechanism has a choice"
    )
    how.add_argument("--card", metavar="FILE", help="a card of 'tern card design' instead of a mechanism")
    how.add_argument("--k", type=int, metavar="K", help="coordinates a report gives, each at epsilon / K")
    how.add_argument(
        "--k-rule", choices=session.K_RULES, help="how K follows from epsilon; " + _default("k_rule")
    )

    when = parser.add_argument_group("rounds")
    when.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="stop when the model has had so many, those of earlier starts included (default: never)",
    )
    when.add_argument(
        "--interval",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="from the start of one to the next (default 0)",
    )
    when.add_argument(
        "--deadline", type=float, default=600.0, metavar="SECONDS", help="that ends a round (default 600)"
    )
    when.add_argument(
        "--quorum",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of all reports that ends a round (default 1)",
    )
    when.add_argument(
        "--patience",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="without news until boards are asked again; doubles with every time (default 2)",
    )
    parser.add_argument(
        "--metrics", type=int, metavar="PORT", help="serve figures for Prometheus on this loopback port"
    )
    parser.add_argument("--quiet", action="store_true", help="no line a round")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object a line: what happens, then the result"
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    if args.card and args.mechanism:
        raise UsageError("--card and --mechanism say the same", hint="give one of them")
    dataset = None if args.dimension else datasets.load(args.dataset)
    dimension = args.dimension or (dataset.dimension if dataset else 0)
    with Store(args.store, create=False) as store:
        server_result = asyncio.run(_serve(args, store, _plan(args, dimension)))
    if dataset:
        server_result["accuracy"] = training.judge(dataset, np.array(server_result["weights"]))
    text = f"{server_result['rounds']} rounds, {server_result['reports']:,} reports" + (
        f", accuracy {server_result['accuracy']:.4f}" if dataset else ""
    )
    print_result({"event": "result", **server_result} if args.json else server_result, text, args.json)
    return OK


def _plan(args: argparse.Namespace, dimension: int) -> Plan:
    named = ("mechanism", "epsilon", "levels", "k", "k_rule")
    options = {name: value for name in named if (value := getattr(args, name)) is not None}
    if args.card:
        options["card"] = cards.load(args.card).hex()
    design = session.design_report(session.Options(model=args.model, batch=args.batch, **options), dimension)
    return Plan(
        training.MODELS[args.model],
        dimension,
        bytes(design.card.data),
        design.k,
        batch=args.batch,
        quorum=args.quorum,
        deadline=args.deadline,
        interval=args.interval,
        rounds=args.rounds,
        horizon=args.horizon or args.rounds or 100,
        patience=args.patience,
        learning_rate=args.learning_rate,
        regularisation=args.regularisation,
    )


async def _serve(args: argparse.Namespace, store: Store, plan: Plan) -> dict[str, Any]:
    from ternhost.links.mqtt import MqttLink

    async with AsyncExitStack() as stack:
        if args.broker == _EMBEDDED:
            from ternhost.embedded import EmbeddedBroker

            broker = await stack.enter_async_context(
                EmbeddedBroker(Path(args.store).parent / "broker", store)
            )
            access = broker.access
        else:
            path = Path(args.broker)
            access = Access.load(path / HOST if path.is_dir() else path)
        watchers: list[Callable[[Status], None]] = []
        if args.json:
            watchers.append(lambda status: print(json.dumps(asdict(status)), flush=True))
        elif not args.quiet:
            watchers.append(_print_line)
        if args.metrics is not None:
            watchers.append(_metrics(args.metrics))

        def tell(status: Status) -> None:
            for watch in watchers:
                watch(status)

        server = Server(store, MqttLink(access), plan, tell, args.new_model)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.stop)
        await server.run()
        return summary(server)


def _print_line(status: Status) -> None:
    if status.event == "end":
        why = ", ".join(f"{name} {count}" for name, count in status.reasons.items())
        print(
            f"round {status.round}: {status.reports} of {status.asked} reports, {status.refusals} refusals"
            + (f" ({why})" if why else "")
            + f", {status.ended}; {status.boards} boards"
            + (f", {status.strangers} of another version (tern deploy)" if status.strangers else ""),
            flush=True,
        )
    elif status.event == "broker":
        print("connected to the broker" if status.connected else "the broker is gone", flush=True)


def _metrics(port: int) -> Callable[[Status], None]:
    from ternhost.runs.metrics import Metrics

    try:
        return Metrics(port).update
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} cannot be had: {error}", hint="give another --metrics") from error
