"""`tern train`: train a model on a fleet under local differential privacy."""

from __future__ import annotations

from typing import Any

from ternhost.cli.running import add_run_command


def add_parser(subparsers: Any) -> None:
    add_run_command(
        subparsers,
        "train",
        "train a model on a fleet under local differential privacy",
        """tern train --fleet emulated:8 --epsilon 2 --reports 20000 --group 500
        tern train --mechanism pm-sub --levels 15 --epsilon 4 --fleet emulated:2 --reports 2000 --json
        tern train --epsilons 1:0.5,2:0.3,4:0.2 --fleet simulated:100000 --reports 100000 --json
        tern train --algorithm fedavg --mechanism pdpm --epsilon 8 --tau 0.25 --local-epochs 2 --fleet emulated:4
        tern train --algorithm hiera --dataset synthetic-linear --model linear --epsilon 8 --fleet mqtt:my-broker
        tern train --resume 20260102-030405""",
    )
