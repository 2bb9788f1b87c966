"""`tern board`: finds, flashes and sets up boards, and asks how they are.

Each verb, such as `tern board flash`, is in a module of its own.
"""

from ternhost.command import CommandGroup

_HERE = "terntools.boards"

BOARD = CommandGroup(
    name="board",
    heading="Boards",
    summary="find, flash, set up and watch boards at a port",
    example="tern board list",
    verbs={
        "list": f"{_HERE}.devices",
        "up": f"{_HERE}.up",
        "flash": f"{_HERE}.flash",
        "deploy": f"{_HERE}.deploy",
        "provision": f"{_HERE}.provision_command",
        "update": f"{_HERE}.update_command",
        "info": f"{_HERE}.device",
        "monitor": f"{_HERE}.monitor",
        "records": f"{_HERE}.device_records",
    },
)
