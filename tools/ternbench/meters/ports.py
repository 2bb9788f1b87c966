"""The option --meter-port, for meters at a port of this computer."""

import argparse

from ternhost.errors import UsageError
from ternhost.reach.ports import names


def meter_port(args: argparse.Namespace) -> str:
    """Return the port that --meter-port names. Raises UsageError and DeviceError."""
    if args.meter_port is None:
        text = f"--meter-port is missing: the port of the {args.meter}"
        raise UsageError(text, hint="such as --meter-port a1; see `tern board list`")
    return names.resolve(args.meter_port)
