"""Writes the packages with which MicroPython's `mip` installs the device library as source:
firmware/package.json for the whole library, and firmware/package-<piece>.json for each piece.
firmware/manifest.py freezes the same pieces.

python tests/mip_packages.py

A package names the files beside it and depends on no other, since `mip` cannot resolve the address
of a package relative to another. So each piece is complete, and two installed pieces have the same
versions of their common files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import tern
from terntools.boards import modules, mpy

PACKAGE = mpy.FIRMWARE / "package.json"
_NO_PLATFORM = ("__init__", "emulated", "this")
_PLATFORMS = sorted({path.stem for path in (mpy.LIBRARY / "boards").glob("*.py")} - {*_NO_PLATFORM})
_SERIAL = tuple(modules.Board("", platform, False, aes=False) for platform in _PLATFORMS)
_BOARDS = tuple(modules.Board("", platform, True, aes=False) for platform in _PLATFORMS)
# limits, model and links.beside come with app; boards do not use the others
_NO_PIECE = ("bench", "host_frames", "limits", "links.beside", "model")


def pieces(sources: modules.Sources) -> dict[str, set[str]]:
    """The modules of each piece.

    core: a client at its port; mqtt: a client on a broker, too; client: with all modules on demand;
    and each module for a user's program, with its own modules and the core.
    """
    program = mpy.MAIN.read_text()
    start = modules.imports(program)
    without = {f"tern.{name}" for name in modules.on_demand(sources)}

    def of(
        boards: Iterable[modules.Board], more: Iterable[str] = (), unwanted: Iterable[str] = ()
    ) -> set[str]:
        names: set[str] = set()
        for board in boards:
            usable = modules.usable(sources, board)
            names |= modules.needed(usable, {*start, *more}, set(unwanted)).keys()
        return names

    names_by_piece = {
        "core": of(_SERIAL, unwanted=without),
        "mqtt": of(_BOARDS, unwanted=without),
        "client": of(_BOARDS),
    }
    for name in modules.beyond(sources, program):
        if name not in _NO_PIECE:
            added = modules.at_top(sources, {f"tern.{name}"})
            names_by_piece[name] = of(_SERIAL, added, without - added)
    return names_by_piece


def text(names: Iterable[str] | None = None) -> str:
    """The content of a package with these modules; None: every module that some board can use."""
    if names is None:
        sources = mpy.library()
        names = {name for board in _BOARDS for name in modules.usable(sources, board)}
    files = [f"{mpy.file_of(name)}.py" for name in names]
    lines = ",\n".join(f"    {json.dumps([file, file])}" for file in sorted(files))
    return f'{{\n  "version": "{tern.__version__}",\n  "deps": [],\n  "urls": [\n{lines}\n  ]\n}}\n'


def packages() -> dict[str, str]:
    """The packages: name of the file -> content."""
    of_pieces = {
        f"package-{name}.json": text(names) for name, names in pieces(mpy.library()).items()
    }
    return {PACKAGE.name: text(), **of_pieces}


if __name__ == "__main__":
    for old in mpy.FIRMWARE.glob("package-*.json"):
        old.unlink()
    for file, content in packages().items():
        (mpy.FIRMWARE / file).write_text(content)
