"""`tern collect`: means and frequencies of what the clients of a fleet hold."""

from __future__ import annotations

from typing import Any

from ternhost.cli.running import add_run_command


def add_parser(subparsers: Any) -> None:
    add_run_command(
        subparsers,
        "collect",
        "estimate means and frequencies of what devices hold",
        """tern collect --dataset wine --epsilon 4 --fleet emulated:2
        tern collect --dataset flights --mechanism pm-sub --epsilon 4 --fleet simulated:300000 --json
        tern collect --dataset flights-table --fleet simulated:300000 --name frequencies
        tern collect --method hiera --epsilon 4 --fleet emulated:2
        tern collect --resume 20260102-030405""",
    )
