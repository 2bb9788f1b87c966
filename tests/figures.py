"""Prints the sizes as .mpy of each board's modules of the device library, and the change to
firmware/figures.json.

python tests/figures.py                     print the sizes and the change
python tests/figures.py --keep              measure on emulated boards, too, and rewrite the file
python tests/figures.py --history PICTURE   draw each figure by commit, and print what changed it
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import figures_history

from ternbench.cases import Case
from ternhost.errors import TernError
from ternhost.plots import canvas
from terntools.boards import mpy

KEPT = mpy.FIRMWARE / "figures.json"
COUNTING = ("rv32", "xtensa")  # instructions, on QEMU
_NO_PART = ("bench", "host_frames")  # on no board

# The sum over 500 records of `tern demo`. As an epsilon it has the rho of one of its 73 rounds.
OF_DEMO = {
    "us_per_sum_of_500_flights": Case("gaussian", epsilon="0.000333", d=31, k=31, records=500),
}


def sizes_by_board() -> dict[str, dict[str, int]]:
    """The size in bytes of each module, by board."""
    return {name: sizes_of(board) for name, board in mpy.BOARDS.items()}


def sizes_of(board: mpy.Board, more: Sequence[str] = ()) -> dict[str, int]:
    """The size in bytes of each module that a board gets."""
    return {module: len(data) for module, data in mpy.compile_set(board, more=more).items()}


def on_the_emulated_pico() -> tuple[dict[str, float], dict[str, Any]]:
    """The figures for the file, the same in every boot of a build; and all main figures of `tern
    bench latency`.
    """
    from ternbench import cases, latency, subjects

    case = cases.Case()
    with subjects.subject("pico-emulated:1") as on:
        bench = latency.Bench(on)
        figures = latency.main_figures(bench, case, (case.mechanism,))
        request_bytes = len(bench.messages(case, 1)[0])
        of_demo = {name: bench.report(each, 2)["median"] for name, each in OF_DEMO.items()}
    kept = {
        "request_bytes": request_bytes,
        "report_bytes": case.report_bytes,
        "garbage_bytes_per_report": figures["heap"]["garbage_per_report"],
        "us_per_report": figures["us_per_report"]["median"],
        "us_per_coordinate": figures["us_per_coordinate"][case.mechanism],
        "us_per_coordinate_plain_float": figures["us_per_coordinate_plain_float"][case.mechanism],
        **of_demo,
    }
    return kept, figures


def on_qemu(name: str) -> dict[str, float]:
    """The figures for the file of a machine of QEMU that counts instructions: "rv32" or "xtensa".

    The instructions of a report are a median of 30, which varies by a few from boot to boot.
    """
    from ternbench import cases, latency, subjects

    case = cases.Case()
    with subjects.subject(f"{name}-emulated:1") as on:
        bench = latency.Bench(on)
        garbage_bytes = bench.heap(case)["garbage_per_report"]
        bench.prepare(case)
        reports = []
        for _ in range(3):
            reports += bench.answers(case)[0]
        bench.prepare(case)
        return {
            "garbage_bytes_per_report": garbage_bytes,
            "instructions_per_report": round(median(reports), -2),
            "instructions_per_coordinate": bench.units(case.card, "sample"),
        }


def added(more: Sequence[str]) -> dict[str, dict[str, int]]:
    """The bytes that these modules for a user's program add to each module, by board."""
    growth = {}
    for name, board in mpy.BOARDS.items():
        before, after = sizes_of(board), sizes_of(board, more)
        grown = {module: size - before.get(module, 0) for module, size in after.items()}
        growth[name] = {module: size for module, size in grown.items() if size}
    return growth


def _print(title: str, sizes: dict[str, dict[str, int]]) -> None:
    print(f"{title:24}" + "".join(f"{board:>12}" for board in sizes))
    for module in sorted({module for modules in sizes.values() for module in modules}):
        print(
            f"{module:24}" + "".join(f"{modules.get(module, ''):>12}" for modules in sizes.values())
        )
    print(f"{'total':24}" + "".join(f"{sum(modules.values()):12}" for modules in sizes.values()))


def print_history(picture: Path) -> None:
    """Print which commit changed which figure by at least 1 %, and draw all figures by commit.

    Raises TernError if there is no history here, or if the picture cannot be written.
    """
    canvas.check_place(picture)
    history = figures_history.commits(KEPT)
    for line in figures_history.changes(history):
        print(line)
    canvas.save(figures_history.draw(history), picture)
    print(f"{len(history)} commits changed {KEPT.name}; {picture} shows each figure by commit")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="sizes of the modules of each board, as .mpy")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--keep", action="store_true", help=f"write all figures to {KEPT}")
    help_of_history = "draw each figure by commit into this picture, and print what changed it"
    what.add_argument("--history", metavar="PICTURE", type=Path, help=help_of_history)
    args = parser.parse_args(argv)
    if args.history:
        try:
            print_history(args.history)
        except TernError as error:
            parser.error(str(error))
        return 0
    print_sizes(keep=args.keep)
    return 0


def print_sizes(*, keep: bool) -> None:
    """Print the size of each module by board, and write all figures to the file if `keep` is true."""
    sizes = sizes_by_board()
    kept = json.loads(KEPT.read_text())["mpy_bytes"]
    _print("bytes", sizes)
    totals = {board: sum(modules.values()) for board, modules in sizes.items()}
    before = [sum(kept.get(board, {}).values()) for board in sizes]
    print(
        f"{'change to ' + KEPT.name:24}"
        + "".join(f"{total - old:+12}" for total, old in zip(totals.values(), before, strict=True))
    )
    for name in mpy.beyond():
        if name not in _NO_PART:
            print()
            _print(f"added --with {name}", added([name]))
    if keep:
        figures = {
            "pico_emulated": on_the_emulated_pico()[0],
            **{f"{name}_emulated": on_qemu(name) for name in COUNTING},
            "mpy_bytes": sizes,
        }
        KEPT.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
