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
    """Give public names of the library short ones, except for those that these programs use.

    sources: texts by the module's name, with dots. library: (name, text) of all modules, so that a
    name has the same short one on every board. whole: modules whose own names stay.
    """
    kept_names: set[str] = set()
    for program in programs:
        kept_names |= words(program)
    for module in whole:
        tree = ast.parse(sources[module])
        kept_names |= _defined(tree)
        kept_names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}

    short = {}
    for name, short_name in short_names(library).items():
        if name not in kept_names and short_name not in kept_names:
            short[name] = short_name
    return {module: rename(text, short) for module, text in sources.items()}


@functools.cache
def short_names(library: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Choose short names for public names of these modules, which no module uses as a word.

    library: (name, text) of each module. Returns the short name of each name.
    """
    kept_names = set(_FOREIGN)
    candidates: set[str] = set()
    used_words: set[str] = set()
    for name, text in library:
        tree = ast.parse(text)
        words_of_module = words(text)
        used_words |= words_of_module
        candidates |= _defined(tree)
        kept_names |= {*name.split("."), *_elsewhere(tree)}
        if "asm_" in text:  # it has names of instructions
            kept_names |= words_of_module
    long_names = sorted(name for name in candidates - kept_names if len(name) > 2)
    return dict(zip(long_names, pairs(used_words | kept_names), strict=False))


def _defined(tree: ast.Module) -> set[str]:
    """Return the public names of functions, classes and attributes of `self` in a module."""
    defined = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                defined.add(node.attr)
    return {name for name in defined if not is_private(name)}


def _elsewhere(tree: ast.Module) -> Iterator[str]:
    """Yield names that something outside of the library may know.

    They are those in strings, of keywords, and of what modules other than the library's have.
    """
    foreign_names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg or "_"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            for alias in node.names:
                package = (module or alias.name).partition(".")[0]
                if package != "tern" or module == "tern.compat":
                    foreign_names.add(alias.asname or alias.name)
                    yield alias.name
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in foreign_names:
            yield node.attr


def parameters(
    sources: Mapping[str, str], programs: Iterable[str] = (), whole: Collection[str] = ()
) -> dict[str, str]:
    """Give parameters short names, except for those that a call uses as keywords.

    sources: texts by the module's name, with dots. programs: texts whose calls count, too. whole:
    modules whose public classes keep the names of their parameters.
    """
    keywords: set[str | None] = set()
    for text in [*sources.values(), *programs]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.keyword):
                keywords.add(node.arg)
    if None in keywords:  # f(**options) says what only when it runs
        return dict(sources)
    shortened = {}
    for module, text in sources.items():
        shortened[module] = _of_module(text, keywords, module in whole)
    return shortened


def _of_module(text: str, keywords: set[str | None], whole: bool) -> str:
    """Give the parameters of a module's functions short names.

    keywords: names that calls use, which stay. whole: public methods of public classes stay, too.
    """
    tree = ast.parse(text)
    edits = Edits(text.encode())
    kept_functions = _public_methods(tree) if whole else []
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or node in kept_functions:
            continue
        body_nodes: list[ast.AST] = []
        for statement in node.body:
            body_nodes += ast.walk(statement)
        # A parameter of assembler such as r0 is a register.
        is_assembler = any("asm_" in ast.unparse(decorator) for decorator in node.decorator_list)
        has_inner_scope = any(isinstance(inner, _SCOPES) for inner in body_nodes)
        if not is_assembler and not has_inner_scope:
            _replace(node, body_nodes, keywords, edits)
    return edits.result()


def _public_methods(tree: ast.Module) -> list[ast.AST]:
    """Return the public methods and constructors of a module's public classes."""
    methods: list[ast.AST] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or is_private(node.name):
            continue
        for method in node.body:
            if not isinstance(method, _Function):
                continue
            if method.name == "__init__" or not is_private(method.name):
                methods.append(method)
    return methods


def _replace(
    function: _Function, body_nodes: list[ast.AST], keywords: set[str | None], edits: Edits
) -> None:
    """Give the parameters of a function names of _NAMES that it does not use yet.

    body_nodes: all nodes of its body. keywords: names that stay.
    """
    used_names = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    used_names |= {node.id for node in body_nodes if isinstance(node, ast.Name)}
    free_names = (name for name in _NAMES if name not in used_names)
    short: dict[str, str] = {}
    for parameter in function.args.posonlyargs + function.args.args:
        if parameter.arg == "self" or parameter.arg in keywords:
            continue
        short_name = next(free_names, "")
        if short_name:
            short[parameter.arg] = short_name
            edits.rename(parameter, short_name)
    for node in body_nodes:
        if isinstance(node, ast.Name) and node.id in short:
            edits.replace(node, short[node.id])
