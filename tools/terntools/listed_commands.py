"""The commands of terntools, as `tern --help` lists them."""

from ternhost.command import ListedCommand

FLEET = ListedCommand(
    name="fleet",
    heading="Fleets",
    summary="emulated boards for other commands, and a list of all kinds of fleets",
    place="terntools.emulators.fleet_command",
    verbs=("emulate", "kinds"),
)
KEYS = ListedCommand(
    name="keys",
    heading="Fleets",
    summary="the keys of a fleet's devices, and what is left of their budgets",
    place="terntools.boards.device_keys",
    verbs=("add", "rotate", "revoke", "list"),
)
RELAY = ListedCommand(
    name="relay",
    heading="Fleets",
    summary="connect boards on USB to a broker, as if they had Wi-Fi, until Ctrl-C",
    place="terntools.boards.relay_command",
)
HIL = ListedCommand(
    name="hil",
    heading="Measure",
    summary="run the board tests on all boards of a hardware map at once",
    place="terntools.testing.hil",
)
EMULATOR = ListedCommand(
    name="emulator",
    heading="Set up",
    summary="build, list and run emulated boards",
    place="terntools.emulators.emulator_command",
    verbs=("build", "run", "info"),
)
