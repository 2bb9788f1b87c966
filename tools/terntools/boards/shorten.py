"""Shortens parameters, and public names that the library alone uses; saves 4.5 %.

A .mpy file holds the names of parameters. Those that no call uses as keywords, and no program may,
are replaced, one function at a time, by names of MicroPython's static table (py/makeqstrdata.py),
of which a file holds a number. A public name becomes a short one in all modules, unless a program,
a string, a keyword or MicroPython has that word: nobody can tell whose method `x.read` is.
"""

import ast
import functools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from terntools.boards.fold import Edits, is_private, pairs, rename, words

# parameters: instead of their names; no builtin functions among them, and no methods that would be
# looked up by these names: they are local ones. foreign: what the library gives to things of its
# own, and MicroPython to others.
_WORDS = json.loads(Path(__file__).with_suffix(".json").read_text())
_NAMES, _FOREIGN = (_WORDS[kind].split() for kind in ("parameters", "foreign"))

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def public_names(
    sources: Mapping[str, str],
    library: tuple[tuple[str, str], ...],
    programs: Iterable[str] = (),
    whole: Collection[str] = (),
) -> dict[str, str]:
    """The same modules (name with dots -> source) with short public names where these programs have
    none.

    library: (name, text) of all modules, so that a name has the same short one on every board.
    whole: modules whose own names stay.
    """
    named = set().union(*map(words, programs))
    for name in whole:
        tree = ast.parse(sources[name])
        named |= _defined(tree) | {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    short = {
        name: instead
        for name, instead in short_names(library).items()
        if not {name, instead} & named
    }
    return {name: rename(text, short) for name, text in sources.items()}


@functools.cache
def short_names(library: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Short names for public names of these modules (name, text): name -> a short one that no
    module has.
    """
    stay = set(_FOREIGN)
    candidates: set[str] = set()
    used: set[str] = set()
    for name, text in library:
        tree = ast.parse(text)
        here = words(text)
        used |= here
        candidates |= _defined(tree)
        stay |= {*name.split("."), *_elsewhere(tree)}
        if "asm_" in text:  # it has names of instructions
            stay |= here
    candidates = {name for name in candidates - stay if len(name) > 2}
    return dict(zip(sorted(candidates), pairs(used | stay), strict=False))


def _defined(tree: ast.Module) -> set[str]:
    """The public names of functions, classes and attributes of `self`."""
    defined = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                defined.add(node.attr)
    return {name for name in defined if not is_private(name)}


def _elsewhere(tree: ast.Module) -> Iterator[str]:
    """Names in strings, of keywords, and of what other modules than the library's have."""
    foreign = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg or "_"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            of = getattr(node, "module", None) or ""
            for alias in node.names:
                if (of or alias.name).partition(".")[0] != "tern" or of == "tern.compat":
                    foreign.add(alias.asname or alias.name)
                    yield alias.name
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in foreign
        ):
            yield node.attr


def parameters(
    sources: Mapping[str, str], programs: Iterable[str] = (), whole: Collection[str] = ()
) -> dict[str, str]:
    """The same modules (name with dots -> source), as these programs call them; `whole`: with their
    public classes.
    """
    called = {
        node.arg
        for text in [*sources.values(), *programs]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword)
    }
    if None in called:  # f(**options) says what only when it runs
        return dict(sources)
    return {name: _of_module(text, called, name in whole) for name, text in sources.items()}


def _of_module(text: str, called: set[str | None], whole: bool) -> str:
    tree = ast.parse(text)
    edits = Edits(text.encode())
    kept = [
        method
        for node in tree.body
        if whole and isinstance(node, ast.ClassDef) and not is_private(node.name)
        for method in node.body
        if isinstance(method, _Function)
        and (not is_private(method.name) or method.name == "__init__")
    ]
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or node in kept:
            continue
        inner = [one for statement in node.body for one in ast.walk(statement)]
        in_assembler = any(
            "asm_" in ast.unparse(one) for one in node.decorator_list
        )  # r0 is a register
        if not in_assembler and not any(isinstance(one, _SCOPES) for one in inner):
            _replace(node, inner, called, edits)
    return edits.result()


def _replace(
    function: _Function, inner: list[ast.AST], called: set[str | None], edits: Edits
) -> None:
    parameters = function.args.posonlyargs + function.args.args
    named = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    named |= {one.id for one in inner if isinstance(one, ast.Name)}
    free = (name for name in _NAMES if name not in named)
    short = {
        one.arg: name
        for one in parameters
        if one.arg not in {*called, "self"} and (name := next(free, ""))
    }
    for one in parameters:
        if one.arg in short:
            edits.rename(one, short[one.arg])
    for node in inner:
        if isinstance(node, ast.Name) and node.id in short:
            edits.replace(node, short[node.id])
