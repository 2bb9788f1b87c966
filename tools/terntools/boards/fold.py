"""Folds constants into the places that use them, takes out the texts of refusals, and shortens
private names.

A constant is a public name in capitals that its module assigns once, on a line of its own: an int,
a string or bytes. Its value replaces each use, in all modules; then the assignment goes, and
unneeded imports. Lines keep their numbers. mpy-cross does the same for `_NAME = const(...)` within
one module only.

A private name, with one underscore, becomes the same short one in every module and in programs
(fold_program). A constant keeps its underscore: without it the compiler would store it.
"""

import ast
import functools
import io
import re
import string
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TypeGuard

from ternhost import device_library
from ternhost.errors import TernError

# Refusals: their text, the last argument or the one before the detail, is for people at a host.
_REFUSING = (
    "require",
    "_require",
    "FrameError",
    "CardError",
    "LedgerError",
    "StorageError",
    "EntropyError",
    "ValueError",
)

# Names of tern.compat that the compiler for a device knows by itself: in decorators, annotations
# and casts of viper.
COMPILED = {"const", "micropython", "ptr8", "ptr16", "ptr32"}

# Units that a program may use as names.
_UNITS = ("dB", "kB", "kV", "mA", "mJ", "mS", "mV", "mW", "pH", "uA", "uJ", "uV", "uW")

# Constants of tern.compat that are others on a device.
_ON_DEVICE = {"tern.compat": {"MICROPYTHON": True, "TYPE_CHECKING": False}}

Constants = Mapping[str, "int | str | bytes"]  # of one module: name -> value


@dataclass
class _Module:
    """A module of the library, parsed."""

    name: str  # with dots
    source: bytes
    tree: ast.Module
    # how often each name is assigned, imported or a parameter
    bound: Counter[str] = field(default_factory=Counter)

    @classmethod
    def parsed(cls, name: str, text: str) -> "_Module":
        """Parse a module's text."""
        return cls(name, text.encode(), ast.parse(text))


def fold(sources: Mapping[str, str]) -> dict[str, str]:
    """Return the modules' texts with each constant replaced by its value, and private names shortened.

    This makes the modules smaller, since a compiled module holds the names that it uses. A program
    that uses a constant by its name needs the modules as they were.

    sources: texts by the module's name, with dots. The values of constants are read by importing
    the modules here. Raises TernError if a module uses the name of a constant that it imports for
    something else as well.
    """
    modules = {}
    for name, text in sources.items():
        modules[name] = _Module.parsed(name, text)
        _count_bindings(modules[name])  # a name that is bound more than once is no constant
    constants = {name: _constants(module) for name, module in modules.items()}
    short = _short_names(modules.values())
    folded = {}
    for name, module in modules.items():
        text = _without_unused_errors(_fold(module, constants))
        folded[name] = rename(text, short)
    return folded


def _without_unused_errors(text: str) -> str:
    """Remove `as error` from exception handlers that do not use the error any more.

    They used it only in the text of a new exception, which has been removed. Each such name would
    cost 10 bytes on a board.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        used_names: set[str] = set()
        for statement in node.body:
            used_names |= _named(statement)
        if node.name not in used_names:
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = line.replace(f" as {node.name}:", ":")
    return "".join(lines)


@functools.cache
def without_types(text: str) -> str:
    """Remove from a module's text what only a type checker reads: imports, and annotations.

    Functions that MicroPython's viper compiles to machine code keep their annotations, by which
    viper decides how to compile them.
    """
    edits = Edits(text.encode())
    tree = ast.parse(text)
    compiled_nodes = _nodes_in_viper(tree)
    for node in ast.walk(tree):
        if _is_type_checking(node):
            for statement in node.body:
                edits.replace(statement, "pass")
        elif id(node) not in compiled_nodes:
            for kind in ("annotation", "returns"):  # of a parameter or variable, and of a function
                annotation = getattr(node, kind, None)
                if annotation:
                    edits.replace(annotation, "None")
    return edits.result()


def _nodes_in_viper(tree: ast.Module) -> set[int]:
    """Return the ids of all nodes of functions that viper compiles."""
    nodes: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if "viper" in ast.unparse(decorator):
                nodes.update(id(part) for part in ast.walk(node))
    return nodes


def _is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a node is a statement `if TYPE_CHECKING:`."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Name):
        return False
    return node.test.id == "TYPE_CHECKING"


def fold_program(program: str, sources: Mapping[str, str]) -> str:
    """Rename the private names of the library in a program, as `fold` renames them in the library.

    So a program can look into the folded library, which matters for tests. sources: the texts of the
    library's modules before they are folded, by name.
    """
    return rename(program, short_names(sources))


def short_names(sources: Mapping[str, str]) -> dict[str, str]:
    """Return the short name that `fold` gives to each private name of these modules.

    sources: the texts of the library's modules before they are folded, by name.
    """
    return _short_names([_Module.parsed(name, text) for name, text in sources.items()])


def prune(sources: Mapping[str, str], programs: Iterable[str]) -> dict[str, str]:
    """Remove the functions and classes that no text names.

    What a removed function named may have no other use; so this is repeated until nothing more can
    be removed. sources: the modules' texts by name. programs: other texts that may use them.
    """
    names_in_programs: set[str] = set()
    for text in programs:
        names_in_programs |= _named(ast.parse(text))
    while True:
        trees = {}
        used_names = set(names_in_programs)
        for name, text in sources.items():
            trees[name] = ast.parse(text)
            used_names |= _named(trees[name])

        pruned = {}
        for name, text in sources.items():
            edits = Edits(text.encode())
            for node in ast.walk(trees[name]):
                if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                    continue
                is_special = node.name.startswith("__")  # called by the interpreter
                if node.name not in used_names and not is_special:
                    edits.replace(node, "pass")
            pruned[name] = edits.result()
        if pruned == sources:
            return pruned
        sources = pruned


def _named(tree: ast.AST) -> set[str]:
    """Return all names, attributes, imported names and strings in a syntax tree."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                names.add(name)
            case ast.Constant(value=str(name)):
                names.add(name)
    return names


def _bound_names(node: ast.AST) -> list[str]:
    """Return the names that a node itself assigns, deletes, defines or takes as a parameter.

    Names of imports are not among them.
    """
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.ExceptHandler(name=str(name)):
            return [name]
    return []


def _short_names(modules: Iterable[_Module]) -> dict[str, str]:
    """Choose a short name for each private name of these modules, the same in all of them.

    A constant gets an underscore and two letters, since mpy-cross stores no name for a constant
    that begins with an underscore. Any other name gets two letters that no module uses as a word.
    """
    private: set[str] = set()
    used_words: set[str] = set()
    for module in modules:
        used_words |= words(module.source.decode())
        for node in ast.walk(module.tree):
            names = _bound_names(node)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names = [node.attr]  # such as self._size
            for name in names:
                is_special = name.startswith("__") or name == "_"
                if name.startswith("_") and not is_special:
                    private.add(name)

    constants = sorted(filter(str.isupper, private))
    letters = product(string.ascii_letters, repeat=2)
    short_names = {}
    for name, (first, second) in zip(constants, letters, strict=False):
        short_names[name] = f"_{first}{second}"
    others = sorted(private - short_names.keys())
    return short_names | dict(zip(others, pairs(used_words), strict=False))


def words(text: str) -> set[str]:
    """Return all words of a program's text, those in its strings and comments included."""
    return set(re.findall(r"\w+", text))


def is_private(name: str) -> bool:
    """Return whether a name of a folded module is private, or was so before `fold` renamed it."""
    return name.startswith("_") or bool(re.fullmatch("[a-z][A-Z]", name))


def pairs(used: Collection[str]) -> Iterator[str]:
    """Yield two-letter names that are not in `used`: a small letter and a capital, such as "aB".

    A user's class that inherits from the library hardly has an attribute of such a name, unless it
    is a unit of measurement. Those are left out.
    """
    for first, second in product(string.ascii_lowercase, string.ascii_uppercase):
        name = first + second
        if name not in used and name not in _UNITS:
            yield name


def rename(source: str, short: Mapping[str, str]) -> str:
    """Replace names in a program's text, both as identifiers and as whole strings.

    A string may name an attribute, as in getattr(). short: the new name of each name.
    """
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    # From the last token on, so that the columns of the others stay right.
    for token in reversed(tokens):
        name = token.string
        quote = ""
        if token.type == tokenize.STRING and token.string[0] in "'\"":
            quote = token.string[0]
            name = token.string.strip(quote)
        elif token.type != tokenize.NAME:
            continue
        if name in short:
            row, start = token.start
            _, end = token.end
            line = lines[row - 1]
            lines[row - 1] = line[:start] + quote + short[name] + quote + line[end:]
    return "".join(lines)


def _count_bindings(module: _Module) -> None:
    """Count in `module.bound` how often the module assigns, imports or takes as a parameter each name."""
    for node in ast.walk(module.tree):
        names = _bound_names(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name for alias in node.names]
        module.bound.update(names)


def _assigned(statement: ast.stmt) -> str | None:
    """Return the public constant that a statement assigns, None if it assigns none."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper() and not name.startswith("_"):
            return name
    return None


def _constants(module: _Module) -> Constants:
    """Return the values of a module's public constants, by name.

    A constant is assigned once, and is an int, a string or bytes. Its value is that in the imported
    module, or for some modules the one that it has on a device.
    """
    names = []
    for statement in module.tree.body:
        name = _assigned(statement)
        if name and module.bound[name] == 1:
            names.append(name)
    if not names:
        return {}
    loaded_module = device_library.module(module.name)
    values = {}
    for name in names:
        value = getattr(loaded_module, name)
        if type(value) in (int, str, bytes):  # not isinstance, since a bool is an int
            values[name] = value
    values.update(_ON_DEVICE.get(module.name, {}))
    return values


def _fold(module: _Module, constants: Mapping[str, Constants]) -> str:
    """Return a module's text with values in the place of constants, and without texts of exceptions.

    constants: of all modules, by the module's name. Constants and imports that are not needed any
    more are removed.
    """
    imported_values, imported_modules = _imported_constants(module, constants)
    values = {**constants[module.name], **imported_values}
    edits = Edits(module.source)
    _fold_attributes(module.tree, imported_modules, edits)

    remaining: set[str] = set()  # names that the folded module still looks up
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            _fold_raise(node.exc, edits)
        if isinstance(node, ast.Call):
            _fold_text(node, edits)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in values:
                edits.replace(node, _literal(values[node.id]))
            else:
                remaining.add(node.id)

    unused = (values.keys() | imported_modules.keys()) - remaining
    _fold_imports(module.tree, unused, edits)
    for statement in module.tree.body:
        if _assigned(statement) in constants[module.name]:
            edits.replace(statement, "pass")
    return edits.result()


def _imported_constants(
    module: _Module, constants: Mapping[str, Constants]
) -> tuple[dict[str, int | str | bytes], dict[str, Constants]]:
    """Find the constants that a module imports, and the modules with constants that it imports.

    constants: of all modules, by the module's name. The first result has the values of the imported
    constants, the second one the constants of the imported modules, both by the name that this
    module gives them. Raises TernError if the module binds such a name to something else as well.
    """
    values: dict[str, int | str | bytes] = {}
    modules: dict[str, Constants] = {}
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ImportFrom) or node.level != 0 or not node.module:
            continue
        for alias in node.names:
            name = alias.asname or alias.name
            # `from a import b` imports a constant of the module a, or the module a.b.
            value = constants.get(node.module, {}).get(alias.name)
            constants_of_module = constants.get(f"{node.module}.{alias.name}")
            if value is None and constants_of_module is None:
                continue
            is_bound_again = module.bound[name] != 1
            if is_bound_again:
                text = f"{module.name} gives {name}, which it imports, another meaning"
                raise TernError(text, hint="rename one of them")
            if value is not None:
                values[name] = value
            elif constants_of_module:
                modules[name] = constants_of_module
    return values, modules


def _fold_attributes(tree: ast.Module, modules: Mapping[str, Constants], edits: "Edits") -> None:
    """Replace constants that are attributes of modules, such as `wire.MAX_FRAME`.

    modules: the constants of the imported modules, by the name that this module gives them. edits:
    collects the replacements. In the syntax tree, the names of modules in the replaced places
    become "", so that `_fold` does not count them as uses of the modules.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        values = modules.get(node.value.id, {})
        if isinstance(node.ctx, ast.Load) and node.attr in values:
            edits.replace(node, _literal(values[node.attr]))
            node.value.id = ""


def _fold_imports(tree: ast.Module, unused: Collection[str], edits: "Edits") -> None:
    """Remove names that need no import any more from the `from ... import` statements of a module.

    Those are the `unused` ones, and the names in COMPILED, which a module imports from tern.compat
    and the compiler for a device knows by itself. A statement without any names left becomes
    "pass".
    """
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.ImportFrom):
            continue
        remaining_aliases = []
        for alias in statement.names:
            name = alias.asname or alias.name
            is_built_in = statement.module == "tern.compat" and name in COMPILED
            if name not in unused and not is_built_in:
                remaining_aliases.append(alias)
        if not remaining_aliases:
            edits.replace(statement, "pass")
        elif len(remaining_aliases) < len(statement.names):
            shorter = ast.ImportFrom(statement.module, names=remaining_aliases, level=0)
            edits.replace(statement, ast.unparse(shorter))


def _fold_raise(call: ast.Call, edits: "Edits") -> None:
    """Replace `raise SomeError("text")` by `raise SomeError`, which needs less memory.

    call: what is raised. An exception with more arguments than a text is left.
    """
    if not isinstance(call.func, ast.Name) or call.func.id not in _REFUSING:
        return
    if len(call.args) == 1 and _is_text(call.args[0]):
        edits.replace(call, call.func.id)


def _is_text(argument: ast.expr) -> bool:
    """Return whether an argument is a string, or a string with values put in by `%`."""
    text = argument
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Mod):
        text = argument.left
    return isinstance(text, ast.Constant) and isinstance(text.value, str)


def _fold_text(call: ast.Call, edits: "Edits") -> None:
    """Remove the text for people from a call such as `require(condition, "text")`.

    Where another argument follows the text, an empty text takes its place.
    """
    name = ""
    if isinstance(call.func, ast.Attribute):
        name = call.func.attr
    elif isinstance(call.func, ast.Name):
        name = call.func.id
    if name not in _REFUSING:
        return
    for index, argument in enumerate(call.args):
        if not _is_text(argument):
            continue
        if argument is not call.args[-1]:
            edits.replace(argument, "''")
        elif index > 0:
            edits.cut(call.args[index - 1], argument)
        else:
            edits.replace(argument, "")


def _literal(value: int | str | bytes) -> str:
    """Return a value as source text, which can stand within any expression."""
    if isinstance(value, int) and value < 0:
        return f"({value})"
    return repr(value)


class Edits:
    """Replacements in a program's text, which are collected first and then made at once.

    Every line keeps its number. A replacement within another one is left out.
    """

    def __init__(self, source: bytes) -> None:
        """source: the text, in bytes, since the columns of a syntax tree count bytes."""
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._edits: list[tuple[int, int, bytes]] = []  # start, end, and what takes the place

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Replace a node of the syntax tree, with its decorators, by `text`.

        Empty lines follow the text if the node has several lines, so that what comes after the node
        keeps its line number. They would break an expression that goes on behind the node; but only
        nodes of one line are replaced within expressions.
        """
        first_line = node.lineno
        for decorator in getattr(node, "decorator_list", ()):
            first_line = min(first_line, decorator.lineno)
        start = self._offset(first_line, node.col_offset)
        end = self._end(node)
        line_ends = self._source[start:end].count(b"\n")
        self._edits.append((start, end, text.encode() + b"\n" * line_ends))

    def cut(self, before: ast.expr, last: ast.expr) -> None:
        """Remove the last argument of a call, and the comma that separates it from `before`."""
        start = self._source.index(b",", self._end(before))
        end = self._end(last)
        line_ends = self._source[start:end].count(b"\n")
        self._edits.append((start, end, b"\n" * line_ends))

    def rename(self, parameter: ast.arg, name: str) -> None:
        """Give a parameter another name, and leave its annotation."""
        start = self._offset(parameter.lineno, parameter.col_offset)
        self._edits.append((start, start + len(parameter.arg.encode()), name.encode()))

    def _end(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset in bytes of the end of a node."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        """Return the offset in bytes of a place of the text. line: from 1. column: from 0."""
        return sum(map(len, self._lines[: line - 1])) + column

    def result(self) -> str:
        """Return the text with all replacements made."""
        parts = []
        position = 0  # up to which the text is in `parts`
        for start, end, text in sorted(self._edits, key=_outer_first):
            is_within_another = start < position
            if is_within_another:
                continue
            parts.append(self._source[position:start])
            parts.append(text)
            position = end
        parts.append(self._source[position:])
        return b"".join(parts).decode()


def _outer_first(edit: tuple[int, int, bytes]) -> tuple[int, int]:
    """Sort replacements by where they begin, and a longer one before those within it."""
    start, end, _ = edit
    return start, -end
