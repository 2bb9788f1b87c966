"""What installs the device library names all of it, and its boards start what they must."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import tern
from terntools import fold, mpy

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


def leaves() -> Iterator[tuple[str, ast.FunctionDef, dict[str, int]]]:
    """The viper functions of the library, public constants folded in; and the private constants of their modules."""
    for module, source in fold.fold(mpy.library()).items():
        tree = ast.parse(source)
        constants = {
            ast.unparse(node.targets[0]): ast.literal_eval(node.value.args[0])
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "const"
            and isinstance(node.value.args[0], ast.Constant)
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and "micropython.viper" in map(
                ast.unparse, node.decorator_list
            ):
                yield module, node, constants


def test_no_leaf_stores_at_a_constant_index_but_0() -> None:
    """The compiler in MicroPython 1.25 for the ESP32, S2 and S3 stores the wrong register there."""
    found = list(leaves())
    assert len(found) > 15
    for module, leaf, constants in found:
        for node in ast.walk(leaf):
            if not (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)):
                continue
            names = {part.id for part in ast.walk(node.slice) if isinstance(part, ast.Name)}
            assert not names <= constants.keys() or eval(ast.unparse(node.slice), dict(constants)) == 0, (
                f"{module}.{leaf.name}: {ast.unparse(node)} = ... wants its index in a variable"
            )
