"""Gives parameters of the library's functions names that every MicroPython has, so that theirs need not reach a device.

A .mpy file holds the names of all parameters, since one may call a function with them. Those with which something is
called stay, and those of what a program of one's own may call. The others are replaced one function at a time: names
of MicroPython's static table (py/makeqstrdata.py), of which a file holds a number.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from terntools.boards.fold import Edits

# No builtin functions among them, and no methods that would be looked up by these names: they are local ones.
_NAMES = (
    "self", "args", "key", "end", "start", "step", "stop", "value", "sep", "send", "find", "index", "format"
)  # fmt: skip

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def shorten(
    sources: Mapping[str, str], programs: Iterable[str] = (), whole: Collection[str] = ()
) -> dict[str, str]:
    """The same modules (name with dots -> source), as these programs call them.

    whole: modules whose public classes keep what one may call them with.
    """
    called = {
        node.arg
        for text in [*sources.values(), *programs]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword)
    }
    if None in called:  # f(**options) says what only when it runs
        return dict(sources)
    return {name: _shorten(text, called, name in whole) for name, text in sources.items()}


def _shorten(text: str, called: set[str | None], whole: bool) -> str:
    tree = ast.parse(text)
    edits = Edits(text.encode())
    kept = [
        method
        for node in tree.body
        if whole and isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for method in node.body
        if isinstance(method, _Function) and (not method.name.startswith("_") or method.name == "__init__")
    ]
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or node in kept:
            continue
        inner = [one for statement in node.body for one in ast.walk(statement)]
        in_assembler = any("asm_" in ast.unparse(one) for one in node.decorator_list)  # r0 is a register
        if not in_assembler and not any(isinstance(one, _SCOPES) for one in inner):
            _replace(node, inner, called, edits)
    return edits.result()


def _replace(function: _Function, inner: list[ast.AST], called: set[str | None], edits: Edits) -> None:
    parameters = function.args.posonlyargs + function.args.args
    named = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    named |= {one.id for one in inner if isinstance(one, ast.Name)}
    free = (name for name in _NAMES if name not in named)
    short = {
        one.arg: name for one in parameters if one.arg not in {*called, "self"} and (name := next(free, ""))
    }
    for one in parameters:
        if one.arg in short:
            edits.rename(one, short[one.arg])
    for node in inner:
        if isinstance(node, ast.Name) and node.id in short:
            edits.replace(node, short[node.id])
