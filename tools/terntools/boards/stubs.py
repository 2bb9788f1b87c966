"""The typed stubs of the device library (firmware/tern/*.pyi), for editors: their docstrings come from the sources.

python -m terntools.boards.stubs      writes the docstrings anew; then: ruff check --fix firmware; ruff format firmware

Types are written by hand. Of a docstring the first sentence is taken.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from terntools.boards import mpy

_WIDTH = 100
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def stubs() -> dict[Path, Path]:
    """Each stub -> its source, of those that have one; but for that of tern.compat, which no program imports."""
    found = {path: path.with_suffix(".py") for path in sorted(mpy.LIBRARY.rglob("*.pyi"))}
    return {stub: source for stub, source in found.items() if source.exists() and source.stem != "compat"}


def first_sentence(docstring: str) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph)[0]


def definitions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> dict[str, _Definition]:
    """The functions and classes of a module, and the methods of these classes, by name: "Window", "Window.push"."""
    found: dict[str, _Definition] = {}
    for node in tree.body:
        if isinstance(node, _Definition):
            found[prefix + node.name] = node
            if isinstance(node, ast.ClassDef):
                found |= definitions(node, f"{prefix}{node.name}.")
    return found


def refreshed(stub: str, source: str) -> str:
    """A stub with the first sentences of the source's docstrings."""
    tree = ast.parse(stub)
    there = definitions(ast.parse(source))
    for name, node in definitions(tree).items():
        told = ast.get_docstring(there[name]) if name in there else ast.get_docstring(node)
        body = [
            part
            for part in node.body
            if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        ]
        if told:
            indent = 4 * (name.count(".") + 1) * " "
            lines = textwrap.wrap(first_sentence(told), _WIDTH - len(indent))
            text = lines[0] if len(lines) == 1 else f"\n{indent}".join(lines) + f"\n{indent}"
            body.insert(0, ast.Expr(ast.Constant(text)))
        node.body = body or [ast.Expr(ast.Constant(...))]
    return ast.unparse(tree) + "\n"


if __name__ == "__main__":
    for path, module in stubs().items():
        path.write_text(refreshed(path.read_text(), module.read_text()))
