"""`tern bench`: measurements, one module an action, which offers `add_action(actions)`."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ternhost.cli import add_command

_ACTIONS = (
    "terntools.cli.bench_latency",
    "terntools.cli.bench_energy",
    "terntools.cli.bench_battery",
)


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "bench",
        "measure boards",
        "tern bench latency --fleet pico-emulated:1",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for module in _ACTIONS:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).add_action(actions)
