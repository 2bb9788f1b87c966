"""Writes firmware/package.json, by which MicroPython's `mip` installs the device library as source.

python -m terntools.boards.package
"""

from __future__ import annotations

import json

import tern
from terntools.boards import modules, mpy

PACKAGE = mpy.FIRMWARE / "package.json"
_BOARDS = (modules.Board("", "rp2", True, aes=False), modules.Board("", "esp32", True, aes=False))


def text() -> str:
    """What package.json should hold: every module that some board can use."""
    sources = mpy.library()
    names = sorted({name for board in _BOARDS for name in modules.usable(sources, board)})
    files = [f"{mpy.file_of(name)}.py" for name in names]
    lines = ",\n".join(f"    {json.dumps([file, file])}" for file in sorted(files))
    return f'{{\n  "version": "{tern.__version__}",\n  "deps": [],\n  "urls": [\n{lines}\n  ]\n}}\n'


if __name__ == "__main__":
    PACKAGE.write_text(text())
