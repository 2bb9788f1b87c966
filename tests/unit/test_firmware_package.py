"""What installs the device library names all of it, and its boards start what they must."""

from __future__ import annotations

import ast
import graphlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tern
from terntools.boards import fold, modules, mpy, package

FIRMWARE = Path(tern.__file__).parents[1]


def test_package_json_lists_every_module_of_a_board() -> None:
    assert package.PACKAGE.read_text() == package.text(), "python -m terntools.boards.package writes it anew"
    listed = json.loads(package.text())
    assert listed["version"] == tern.__version__
    files = {path.relative_to(FIRMWARE).as_posix() for path in (FIRMWARE / "tern").rglob("*.py")}
    assert {tuple(one) for one in listed["urls"]} == {
        (file, file) for file in files - {"tern/boards/emulated.py"}
    }


def test_the_library_says_which_of_its_modules_a_board_may_lack() -> None:
    sources = {
        "tern.client": (
            "try:\n from tern.new import Answerer\nexcept ImportError:\n pass\nfrom tern import links"
        ),
        "tern.links": "MODULES = {'new.json': 'tern.links.new'}\ndef open_link():\n import socket",
        "tern.links.new": "from tern.tcp import Connection",
        "tern.tcp": "import socket",
        "tern.new": "from tern import helper",
        "tern.helper": "",
        "tern.boards.new": "",
        "tern.boards.emulated": "",
    }
    assert modules.on_demand(sources) == ("new",)
    assert modules.networked(sources) == {"tern.links.new", "tern.tcp"}
    client = {"tern.client", "tern.links", "tern.links.new", "tern.tcp"}
    assert set(modules.needed(sources, ["tern.client"], ["tern.new"])) == client
    assert set(modules.needed(sources, ["tern.client"])) == client | {"tern.new", "tern.helper"}
    assert modules.at_top(sources, ["tern.new", "tern.none"]) == {"tern.new", "tern.helper"}
    assert modules.at_top(sources, ["tern.client"]) == {"tern.client", "tern.links"}
    of_a_board = modules.usable(sources, modules.Board("armv6m", "new", network=False))
    assert set(sources) - set(of_a_board) == {"tern.links.new", "tern.tcp", "tern.boards.emulated"}


def test_what_a_module_on_demand_needs_comes_with_it() -> None:
    board = mpy.Board("armv6m", "rp2", False, True)
    plain = mpy.sources_for(board).keys()
    assert mpy.sources_for(board, more=["softmax"]).keys() - plain == {"tern.softmax", "tern.inference"}
    assert mpy.sources_for(board, more=["collect"]).keys() - plain == {"tern.collect"}


def test_no_module_comes_back_to_itself_by_its_imports() -> None:
    library = mpy.library()
    imports = {name: modules.imports(source) & library.keys() for name, source in library.items()}
    order = list(graphlib.TopologicalSorter(imports).static_order())  # raises CycleError, which names them
    assert order.index("tern.shapes") < order.index("tern.card") < order.index("tern.client")


@pytest.mark.parametrize(
    ("there", "base"), [("firmware/tern", "."), ("tern", "..")], ids=["checkout", "package"]
)
def test_manifest_freezes_the_package_and_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, base: str
) -> None:
    (tmp_path / "firmware").mkdir()
    (tmp_path / there).mkdir()
    monkeypatch.chdir(tmp_path / "firmware")  # as MicroPython's build does, in the manifest's folder
    said: list[tuple[str, str, str | None]] = []

    def word(name: str) -> Any:
        return lambda what, base_path=None, opt=None: said.append((name, what, base_path))

    exec(
        (FIRMWARE / "manifest.py").read_text(),
        {name: word(name) for name in ("include", "package", "module")},
    )
    assert ("package", "tern", base) in said
    assert ("module", "main.py", None) in said


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


def subscripts(leaf: ast.FunctionDef) -> Iterator[ast.Subscript]:
    """What a leaf loads and stores."""
    return (node for node in ast.walk(leaf) if isinstance(node, ast.Subscript))


def constant(index: ast.expr, constants: dict[str, int]) -> int | None:
    """The value of an index if it is known to the compiler."""
    names = {part.id for part in ast.walk(index) if isinstance(part, ast.Name)}
    return eval(ast.unparse(index), dict(constants)) if names <= constants.keys() else None


def variables(leaf: ast.FunctionDef) -> list[str]:
    """Parameters and variables, in the order in which MicroPython numbers them: that of the text."""
    names = [argument.arg for argument in leaf.args.args]
    found = sorted(
        (node.lineno, node.col_offset, node.id)
        for node in ast.walk(leaf)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return list(dict.fromkeys([*names, *(name for _, _, name in found)]))


def test_no_leaf_has_what_a_compiler_is_known_to_get_wrong() -> None:
    """See firmware/BOARDS.md for which compilers these are, and tern.compat for the rules."""
    found = list(leaves())
    assert len(found) > 15
    for module, leaf, constants in found:
        where = f"{module}.{leaf.name}"
        wide = {
            argument.arg
            for argument in leaf.args.args
            if argument.annotation and ast.unparse(argument.annotation) in ("ptr16", "ptr32")
        }
        in_registers = variables(leaf)[:3]
        for node in subscripts(leaf):
            known = constant(node.slice, constants)
            if isinstance(node.ctx, ast.Store):
                assert known in (None, 0), f"{where}: {ast.unparse(node)} = ... wants its index in a variable"
            assert known is None or 0 <= known < 256, f"{where}: {ast.unparse(node)}"
            if ast.unparse(node.value) in wide:
                assert ast.unparse(node.slice) not in in_registers, (
                    f"{where}: the index of {ast.unparse(node)} is one of its first three variables"
                )
        for node in ast.walk(leaf):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)):
                assert isinstance(node.operand, ast.Constant), f"{where}: {ast.unparse(node)} of a variable"
