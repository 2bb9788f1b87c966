"""Prints the size as .mpy of what each board gets of the device library, beside the sizes kept in firmware/sizes.json.

python tests/sizes.py [--keep]      --keep writes the file anew
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from terntools.boards import mpy

KEPT = mpy.FIRMWARE / "sizes.json"
_NO_PART = ("streams",)  # of any board's


def measure() -> dict[str, dict[str, int]]:
    """The size in bytes of each module, by board."""
    sizes = {}
    for name, board in mpy.BOARDS.items():
        with tempfile.TemporaryDirectory(prefix="tern-sizes-") as folder:
            sizes[name] = mpy.compile_set(board, Path(folder))
    return sizes


def added(more: Sequence[str]) -> dict[str, dict[str, int]]:
    """What these modules for a program of one's own add to each module, in bytes, by board."""
    found = {}
    for name, board in mpy.BOARDS.items():
        with tempfile.TemporaryDirectory(prefix="tern-sizes-") as folder:
            before = mpy.compile_set(board, Path(folder, "before"))
            after = mpy.compile_set(board, Path(folder, "after"), more=more)
        grown = {module: size - before.get(module, 0) for module, size in after.items()}
        found[name] = {module: size for module, size in grown.items() if size}
    return found


def _print(title: str, sizes: dict[str, dict[str, int]]) -> None:
    print(f"{title:24}" + "".join(f"{board:>12}" for board in sizes))
    for module in sorted({module for modules in sizes.values() for module in modules}):
        print(f"{module:24}" + "".join(f"{modules.get(module, ''):>12}" for modules in sizes.values()))
    print(f"{'total':24}" + "".join(f"{sum(modules.values()):12}" for modules in sizes.values()))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="size of what each board gets, as .mpy")
    parser.add_argument("--keep", action="store_true", help=f"write the sizes to {KEPT}")
    args = parser.parse_args(argv)
    sizes = measure()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    _print("bytes", sizes)
    totals = {board: sum(modules.values()) for board, modules in sizes.items()}
    before = [sum(kept.get(board, {}).values()) for board in sizes]
    print(
        f"{'change to ' + KEPT.name:24}"
        + "".join(f"{total - old:+12}" for total, old in zip(totals.values(), before, strict=True))
    )
    for name in mpy.BEYOND:
        if name not in _NO_PART:
            print()
            _print(f"added --with {name}", added([name]))
    if args.keep:
        KEPT.write_text(json.dumps(sizes, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
