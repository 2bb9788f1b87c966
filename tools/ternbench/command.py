"""`tern bench`: measurements of boards.

Each action, such as `tern bench latency`, is in a module of its own with a function
`add_action(actions)`.
"""

from typing import Any

from ternbench import battery_command, energy_command, latency_command
from ternhost.command import add_group

HEADING = "Measure"  # of tern --help


def add_parser(subparsers: Any) -> None:
    """Add `tern bench` and its actions to the commands."""
    summary = "measure latency, energy and battery life of boards"
    actions = add_group(subparsers, "bench", summary, "tern bench latency --fleet pico-emulated:1")
    for module in (latency_command, energy_command, battery_command):
        module.add_action(actions)
