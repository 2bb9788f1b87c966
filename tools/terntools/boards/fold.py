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
    name: str
    source: bytes
    tree: ast.Module
    # how often each name is assigned, imported or a parameter
    bound: Counter[str] = field(default_factory=Counter)


def fold(sources: Mapping[str, str]) -> dict[str, str]:
    """Fold the constants of all modules into the places that use them.

    sources: texts by the module's name, with dots. Values are those on this interpreter. A program
    that wants a constant by its name needs the unfolded modules. Raises TernError.
    """
    modules = {
        name: _Module(name, text.encode(), ast.parse(text)) for name, text in sources.items()
    }
    for module in modules.values():
        _count_bindings(module)
    constants = {name: _constants(module) for name, module in modules.items()}
    short_names = _short_names(modules.values())
    folded = {}
    for name, module in modules.items():
        text = _without_idle_errors(_fold(module, constants))
        folded[name] = rename(text, short_names)
    return folded


def _without_idle_errors(text: str) -> str:
    """Remove `as error` from handlers that do not use the error any more.

    Only the text of a refusal named it, which is gone. Each name costs 10 bytes on a board.
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
    """Remove from a module's text what only a type checker reads.

    Parameters of viper keep their types, which decide how they are compiled.
    """
    edits = Edits(text.encode())
    tree = ast.parse(text)
    compiled_nodes = _nodes_in_viper(tree)
    for node in ast.walk(tree):
        if _is_type_checking(node):
            for statement in node.body:
                edits.replace(statement, "pass")
        elif id(node) not in compiled_nodes:
            for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                if annotation:
                    edits.replace(annotation, "None")
    return edits.result()


def _nodes_in_viper(tree: ast.Module) -> set[int]:
    """Return the ids of all nodes of functions that viper compiles."""
    nodes: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if any("viper" in ast.unparse(decorator) for decorator in node.decorator_list):
            nodes.update(id(part) for part in ast.walk(node))
    return nodes


def _is_type_checking(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a node is a statement `if TYPE_CHECKING:`."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Name):
        return False
    return node.test.id == "TYPE_CHECKING"


def fold_program(program: str, sources: Mapping[str, str]) -> str:
    """A program for the folded modules `sources` that names what is private in them, also as text."""
    modules = (_Module(name, text.encode(), ast.parse(text)) for name, text in sources.items())
    return rename(program, _short_names(modules))


def prune(sources: Mapping[str, str], programs: Iterable[str]) -> dict[str, str]:
    """Remove the functions and classes that nothing names, again and again until none is left.

    sources: texts by the module's name. programs: texts whose names count as uses, too.
    """
    names_in_programs: set[str] = set()
    for text in programs:
        names_in_programs |= _named(ast.parse(text))
    while True:
        trees = {name: ast.parse(text) for name, text in sources.items()}
        used_names = names_in_programs.union(*map(_named, trees.values()))
        pruned = {}
        for name, text in sources.items():
            edits = Edits(text.encode())
            for node in ast.walk(trees[name]):
                if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name in used_names:
                    continue
                if not node.name.startswith("__"):
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

    A constant gets an underscore and two letters, since the compiler drops constants with an
    underscore. Any other name gets two letters that no module uses as a word.
    """
    private: set[str] = set()
    used_words: set[str] = set()
    for module in modules:
        used_words |= words(module.source.decode())
        for node in ast.walk(module.tree):
            names = _bound_names(node)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names = [node.attr]
            for name in names:
                if name.startswith("_") and not name.startswith("__") and name != "_":
                    private.add(name)

    constants = sorted(filter(str.isupper, private))
    letters = product(string.ascii_letters, repeat=2)
    short_names = {}
    for name, (first, second) in zip(constants, letters, strict=False):
        short_names[name] = f"_{first}{second}"
    others = sorted(private - short_names.keys())
    return short_names | dict(zip(others, pairs(used_words), strict=False))


def words(text: str) -> set[str]:
    """All names in a text, in its strings and comments, too."""
    return set(re.findall(r"\w+", text))


def is_private(name: str) -> bool:
    """Whether a name of a folded module was a private one, or is."""
    return name.startswith("_") or bool(re.fullmatch("[a-z][A-Z]", name))


def pairs(used: Collection[str]) -> Iterator[str]:
    """Yield short names that are not used: a small letter and a capital.

    Nobody gives such a name to what a class of his own has, except for units.
    """
    for first, second in product(string.ascii_lowercase, string.ascii_uppercase):
        name = first + second
        if name not in used and name not in _UNITS:
            yield name


def rename(source: str, short: Mapping[str, str]) -> str:
    """Replace names in a text: where they are names, and where they are whole strings.

    short: the new name of each.
    """
    lines = source.splitlines(keepends=True)
    # From the end on, so that the columns of earlier tokens stay right.
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        text = token.string
        quote = ""
        if token.type == tokenize.STRING and text[0] in "'\"":
            quote = text[0]
        elif token.type != tokenize.NAME:
            continue
        name = text.strip(quote) if quote else text
        if name in short:
            row, start = token.start
            _, end = token.end
            line = lines[row - 1]
            lines[row - 1] = line[:start] + quote + short[name] + quote + line[end:]
    return "".join(lines)


def _count_bindings(module: _Module) -> None:
    """Count how often a module assigns, imports or takes each name."""
    for node in ast.walk(module.tree):
        names = _bound_names(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name for alias in node.names]
        module.bound.update(names)


def _assigned(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper() and not name.startswith("_"):
            return name
    return None


def _constants(module: _Module) -> Constants:
    """Return the constants of a module, by name: those that it assigns once, with plain values."""
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
        if type(value) in (int, str, bytes):
            values[name] = value
    return {**values, **_ON_DEVICE.get(module.name, {})}


def _fold(module: _Module, constants: Mapping[str, Constants]) -> str:
    """Return the text of a module with the constants of all modules in the places that use them."""
    values, modules = _imported_constants(module, constants)
    values = {**constants[module.name], **values}
    edits = Edits(module.source)
    _fold_attributes(module.tree, modules, edits)

    remaining: set[str] = set()  # names that are looked up in the folded module
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

    _fold_imports(module.tree, (values.keys() | modules.keys()) - remaining, edits)
    for statement in module.tree.body:
        if _assigned(statement) in constants[module.name]:
            edits.replace(statement, "pass")
    return edits.result()


def _imported_constants(
    module: _Module, constants: Mapping[str, Constants]
) -> tuple[dict[str, int | str | bytes], dict[str, Constants]]:
    """Find the constants that a module imports.

    Returns the values of imported constants by name, and the constants of imported modules by the
    module's name. Raises TernError if the module gives such a name another meaning.
    """
    values: dict[str, int | str | bytes] = {}
    modules: dict[str, Constants] = {}
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ImportFrom) or node.level != 0 or not node.module:
            continue
        for alias in node.names:
            name = alias.asname or alias.name
            value = constants.get(node.module, {}).get(alias.name)
            constants_of_module = constants.get(f"{node.module}.{alias.name}")
            if value is None and constants_of_module is None:
                continue
            if module.bound[name] != 1:
                text = f"{module.name} gives {name}, which it imports, another meaning"
                raise TernError(text, hint="rename one of them")
            if value is not None:
                values[name] = value
            elif constants_of_module:
                modules[name] = constants_of_module
    return values, modules


def _fold_attributes(tree: ast.Module, modules: Mapping[str, Constants], edits: "Edits") -> None:
    """Replace constants that are attributes of modules, such as `wire.MAX_FRAME`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        values = modules.get(node.value.id, {})
        if isinstance(node.ctx, ast.Load) and node.attr in values:
            edits.replace(node, _literal(values[node.attr]))
            node.value.id = ""  # no use of the module any more


def _fold_imports(tree: ast.Module, unused: Collection[str], edits: "Edits") -> None:
    """Remove unused names from imports, and those that the compiler knows by itself."""
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
            edits.replace(
                statement, ast.unparse(ast.ImportFrom(statement.module, remaining_aliases, 0))
            )


def _fold_raise(call: ast.Call, edits: "Edits") -> None:
    """Leave the class alone of an exception that has a text and nothing else: raising it makes one."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name in _REFUSING and len(call.args) == 1 and _is_text(call.args[0]):
        edits.replace(call, name)


def _is_text(argument: ast.expr) -> bool:
    """Return whether an argument is a string, or a string with values put in by `%`."""
    text = argument
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Mod):
        text = argument.left
    return isinstance(text, ast.Constant) and isinstance(text.value, str)


def _fold_text(call: ast.Call, edits: "Edits") -> None:
    """Remove the text of a refusal from its call; before a detail, replace it by an empty one."""
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
    return f"({value})" if isinstance(value, int) and value < 0 else repr(value)


class Edits:
    """Replacements in a text, which keep the numbers of its lines.

    One within another is left out.
    """

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._edits: list[tuple[int, int, bytes]] = []

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Replace a node, with its decorators, by `text`."""
        first_line = node.lineno
        for decorator in getattr(node, "decorator_list", ()):
            first_line = min(first_line, decorator.lineno)
        start = self._offset(first_line, node.col_offset)
        end = self._end(node)
        lines = self._source[start:end].count(b"\n")
        # A statement may go on after it only with a line end; an expression of several lines is
        # never replaced.
        self._edits.append((start, end, text.encode() + b"\n" * lines))

    def cut(self, before: ast.expr, last: ast.expr) -> None:
        """Remove the last argument of a call, and the comma that separates it from `before`."""
        start = self._source.index(b",", self._end(before))
        end = self._end(last)
        lines = self._source[start:end].count(b"\n")
        self._edits.append((start, end, b"\n" * lines))

    def rename(self, parameter: ast.arg, name: str) -> None:
        """Give a parameter this name, and leave its annotation."""
        start = self._offset(parameter.lineno, parameter.col_offset)
        self._edits.append((start, start + len(parameter.arg.encode()), name.encode()))

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        return sum(map(len, self._lines[: line - 1])) + column

    def result(self) -> str:
        """Return the text with all replacements made."""
        parts = []
        position = 0
        # An outer replacement comes before those within it, which are then left out.
        for start, end, text in sorted(self._edits, key=lambda edit: (edit[0], -edit[1])):
            if start >= position:
                parts += [self._source[position:start], text]
                position = end
        parts.append(self._source[position:])
        return b"".join(parts).decode()
