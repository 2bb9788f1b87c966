"""`tern bench`: measures latency, energy and battery life of boards, and profiles a report.

Each verb, such as `tern bench latency`, is in a module of its own.
"""

from ternhost.command import CommandGroup

BENCH = CommandGroup(
    name="bench",
    heading="Measure",
    summary="measure latency, energy and battery life of boards",
    example="tern bench latency --fleet pico-emulated:1",
    verbs={
        "latency": "ternbench.latency_command",
        "profile": "ternbench.profile_command",
        "energy": "ternbench.energy_command",
        "battery": "ternbench.battery_command",
    },
)
