"""`tern infer`: protected inference on a fleet, its results judged."""

from __future__ import annotations

from typing import Any

from ternhost.cli.running import add_run_command


def add_parser(subparsers: Any) -> None:
    add_run_command(
        subparsers,
        "infer",
        "let devices classify their records and send the result under exact noise",
        """tern infer --dataset digits --epsilon 8 --fleet emulated:2
        tern infer --dataset iris --laplace-eval-eps 4 --eval-type CALINSKI_HARABASZ --fleet simulated:1000 --json
        tern infer --dataset digits --answer label --epsilon 4 --fleet simulated:1000
        tern infer --resume 20260102-030405""",
    )
