"""What installs the device library names all of it, and its boards start what they must."""

from __future__ import annotations

import json
from pathlib import Path

import tern

FIRMWARE = Path(tern.__file__).parents[1]


def modules() -> set[str]:
    found = {path.relative_to(FIRMWARE).as_posix() for path in (FIRMWARE / "tern").rglob("*.py")}
    return found - {"tern/boards/emulated.py"}


def test_package_json_lists_every_module_of_a_board() -> None:
    package = json.loads((FIRMWARE / "package.json").read_text())
    assert package["version"] == tern.__version__
    assert all(target == source for target, source in package["urls"])
    assert {target for target, _ in package["urls"]} == modules(), "list the new module in package.json"


def test_manifest_freezes_the_package_and_the_entry() -> None:
    said: list[tuple[str, ...]] = []
    words = {
        word: lambda *args, word=word, opt=None: said.append((word, *args))
        for word in ("include", "package", "module")
    }
    exec((FIRMWARE / "manifest.py").read_text(), words)  # as MicroPython's build does
    assert ("package", "tern") in said
    assert ("module", "main.py") in said
