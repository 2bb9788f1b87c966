"""Writes the packages by which MicroPython's `mip` installs the device library as source: firmware/package.json, all of
it, and of pieces firmware/package-<piece>.json. firmware/manifest.py freezes the same pieces.

python tests/mip_packages.py

A package names its files beside itself and depends on no other: `mip` takes no address of a package relative to
another one's. So each piece is whole, and two that are installed agree on the files that both have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import tern
from terntools.boards import modules, mpy

PACKAGE = mpy.FIRMWARE / "package.json"
_SERIAL = (modules.Board("", "rp2", False, aes=False), modules.Board("", "esp32", False, aes=False))
_BOARDS = (modules.Board("", "rp2", True, aes=False), modules.Board("", "esp32", True, aes=False))
# model comes with app; a board has no use for the others
_NO_PIECE = ("bench", "host_frames", "model")


def pieces(sources: modules.Sources) -> dict[str, set[str]]:
    """The modules of each piece.

    core: a client at its port; mqtt: one on a broker, too; client: with all that it has on demand; and each module for
    a program of one's own, with what belongs to it and the core.
    """
    program = mpy.MAIN.read_text()
    start = modules.imports(program)
    without = {f"tern.{name}" for name in modules.on_demand(sources)}

    def of(
        boards: Iterable[modules.Board], more: Iterable[str] = (), unwanted: Iterable[str] = ()
    ) -> set[str]:
        found: set[str] = set()
        for board in boards:
            usable = modules.usable(sources, board)
            found |= modules.needed(usable, {*start, *more}, set(unwanted)).keys()
        return found

    found = {
        "core": of(_SERIAL, unwanted=without),
        "mqtt": of(_BOARDS, unwanted=without),
        "client": of(_BOARDS),
    }
    for name in modules.beyond(sources, program):
        if name not in _NO_PIECE:
            added = modules.at_top(sources, {f"tern.{name}"})
            found[name] = of(_SERIAL, added, without - added)
    return found


def text(names: Iterable[str] | None = None) -> str:
    """What package.json should hold: every module that some board can use; or these."""
    if names is None:
        sources = mpy.library()
        names = {name for board in _BOARDS for name in modules.usable(sources, board)}
    files = [f"{mpy.file_of(name)}.py" for name in names]
    lines = ",\n".join(f"    {json.dumps([file, file])}" for file in sorted(files))
    return f'{{\n  "version": "{tern.__version__}",\n  "deps": [],\n  "urls": [\n{lines}\n  ]\n}}\n'


def packages() -> dict[str, str]:
    """Name of each file -> what it should hold."""
    of_pieces = {f"package-{name}.json": text(names) for name, names in pieces(mpy.library()).items()}
    return {PACKAGE.name: text(), **of_pieces}


if __name__ == "__main__":
    for old in mpy.FIRMWARE.glob("package-*.json"):
        old.unlink()
    for file, content in packages().items():
        (mpy.FIRMWARE / file).write_text(content)
