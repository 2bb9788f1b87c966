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

# "parameters": words of MicroPython's static table that parameters get as names. They may be names
# of methods, since parameters are local, but not of built-in functions, which they would hide.
# "foreign": public names that both the library and MicroPython have, and that therefore stay.
_WORDS = json.loads(Path(__file__).with_suffix(".json").read_text())
_NAMES = _WORDS["parameters"].split()
_FOREIGN = _WORDS["foreign"].split()

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def public_names(
    sources: Mapping[str, str],
    library: tuple[tuple[str, str], ...],
    programs: Iterable[str] = (),
    whole: Collection[str] = (),
) -> dict[str, str]:
    """Replace public names of the library by short ones, except for those that programs may use.

    Only the library and these programs are on the board, so that other names can be shortened; this
    makes the modules smaller.

    sources: the texts of the modules that a board gets, by the module's name. library: (name, text)
    of all modules of the library, so that a name gets the same short one on every board. programs:
    texts whose words all stay. whole: names of modules that programs call, in which the names of
    functions, classes and parameters stay. Returns the new texts, by the module's name.
    """
    kept_names: set[str] = set()
    for program in programs:
        kept_names |= words(program)
    for module in whole:
        tree = ast.parse(sources[module])
        kept_names |= _defined(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                kept_names.add(node.arg)

    short = {}
    for name, short_name in short_names(library).items():
        if name not in kept_names and short_name not in kept_names:
            short[name] = short_name
    return {module: rename(text, short) for module, text in sources.items()}


@functools.cache
def short_names(library: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Choose a short name for each public name of the library that only the library uses.

    library: (name, text) of each module. Returns the short names, by name. No short name is a word
    that a module uses already.
    """
    kept_names = set(_FOREIGN)
    candidates: set[str] = set()
    used_words: set[str] = set()
    for name, text in library:
        tree = ast.parse(text)
        words_of_module = words(text)
        used_words |= words_of_module
        candidates |= _defined(tree)
        kept_names |= set(name.split("."))
        kept_names |= set(_used_elsewhere(tree))
        if "asm_" in text:  # in assembler, words are also instructions and registers
            kept_names |= words_of_module
    long_names = sorted(name for name in candidates - kept_names if len(name) > 2)
    free_names = pairs(used_words | kept_names)
    return dict(zip(long_names, free_names, strict=False))


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


def _used_elsewhere(tree: ast.Module) -> Iterator[str]:
    """Yield the names in a module that something outside of the library may know.

    Such a name cannot be shortened. Those are strings, since they may name attributes; keywords of
    calls; what the module imports from MicroPython; and the attributes of that, such as `sleep` in
    `time.sleep`.
    """
    foreign_names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg or "_"  # a call such as f(**options) has a keyword without a name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            for alias in node.names:
                package, _, _ = (module or alias.name).partition(".")
                # tern.compat passes on names of MicroPython.
                is_foreign = package != "tern" or module == "tern.compat"
                if is_foreign:
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
    """Replace the names of parameters by shorter ones, except for those that a call uses as keywords.

    sources: the modules' texts by name. programs: other texts whose calls count, too. whole: modules
    whose public classes keep the names of their parameters.
    """
    keywords: set[str | None] = set()
    for text in [*sources.values(), *programs]:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.keyword):
                keywords.add(node.arg)
    uses_unknown_keywords = None in keywords  # a call such as f(**options)
    if uses_unknown_keywords:
        return dict(sources)
    shortened = {}
    for module, text in sources.items():
        shortened[module] = _with_short_parameters(text, keywords, whole=module in whole)
    return shortened


def _with_short_parameters(text: str, keywords: set[str | None], whole: bool) -> str:
    """Replace the names of parameters in a module's text by shorter ones, and return the text.

    keywords: names that calls use, which stay. whole: whether those of public methods of public
    classes stay, too. Functions in assembler and those with inner functions are left.
    """
    tree = ast.parse(text)
    edits = Edits(text.encode())
    kept_functions: list[ast.AST] = []
    if whole:
        kept_functions = _public_methods(tree)
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or node in kept_functions:
            continue
        body_nodes: list[ast.AST] = []
        for statement in node.body:
            body_nodes += ast.walk(statement)
        # A parameter of assembler is a register, such as r0.
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        is_assembler = any("asm_" in decorator for decorator in decorators)
        # An inner function may use the parameters, or have its own of the same name.
        has_inner_scope = any(isinstance(inner, _SCOPES) for inner in body_nodes)
        if not is_assembler and not has_inner_scope:
            _rename_parameters(node, body_nodes, keywords, edits)
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


def _rename_parameters(
    function: _Function, body_nodes: list[ast.AST], keywords: set[str | None], edits: Edits
) -> None:
    """Rename the parameters of a function, there and in its body, to words of _NAMES.

    Only words that the function does not use yet are taken; once they are used up, the other
    parameters keep their names. body_nodes: all nodes of the function's body. keywords: names that
    stay. edits: get the changes.
    """
    used_names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            used_names.add(node.arg)
    for node in body_nodes:
        if isinstance(node, ast.Name):
            used_names.add(node.id)
    free_names = [name for name in _NAMES if name not in used_names]

    parameters = []
    for parameter in function.args.posonlyargs + function.args.args:
        if parameter.arg != "self" and parameter.arg not in keywords:
            parameters.append(parameter)
    short: dict[str, str] = {}
    for parameter, short_name in zip(parameters, free_names, strict=False):
        short[parameter.arg] = short_name
        edits.rename(parameter, short_name)
    for node in body_nodes:
        if isinstance(node, ast.Name) and node.id in short:
            edits.replace(node, short[node.id])
