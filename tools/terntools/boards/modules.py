"""Which boards get which modules of the device library: its own imports decide.

- A client needs the modules that its main.py reaches by imports, and by names of modules that it
  has as text.
- A module whose import may fail with ImportError is there on demand.
- A module that imports `socket` or `network` at its top, directly or not, needs a network; so does
  one that only such modules import.
- Any other module is for a user's program, and comes by its name or the program's import. Its
  constant BRINGS names modules that belong to it and that only the program imports.
- Of tern.boards a board gets its platform's module, and tern.hash_drbg only where MicroPython has
  no AES.
"""

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

Sources = Mapping[str, str]  # name of a module, with dots -> its text

_LIBRARY = "tern."
_NETWORK = {"socket", "network"}
_BOARDS = "tern.boards."
_ANY_BOARD = "tern.boards.this"
_BRINGS = re.compile(r'^BRINGS = "(.+)"', re.MULTILINE)


@dataclass(frozen=True)
class Board:
    """The properties of a board that decide its modules."""

    processor: str  # as mpy-cross calls it
    platform: str  # sys.platform
    network: bool
    aes: bool = True


@functools.lru_cache(maxsize=1000)
def imports(source: str) -> frozenset[str]:
    """Return the modules that a module imports, at its top or later, or names in a string.

    For `from a import b` these are "a" and "a.b", since b may be a module.
    """
    return frozenset(_imported_names(ast.walk(ast.parse(source))))


@functools.lru_cache(maxsize=1000)
def _imports_at_top(source: str) -> frozenset[str]:
    """Return the modules that a module imports, but not those within functions and blocks."""
    return frozenset(_imported_names(ast.parse(source).body))


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the modules that these nodes of a syntax tree import, or name in a string.

    nodes: only these are looked at, and not what is below them.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and str(node.value).startswith(_LIBRARY):
            yield str(node.value)


def guarded(source: str) -> set[str]:
    """Return the imports of a module that may fail with ImportError, in a `try` statement."""
    names: set[str] = set()
    if "ImportError" not in source:  # which saves the time for its syntax tree
        return names
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and _catches_import_error(node):
            for statement in node.body:
                names.update(_imported_names(ast.walk(statement)))
    return names


def _catches_import_error(statement: ast.Try) -> bool:
    for handler in statement.handlers:
        if handler.type is not None and "ImportError" in ast.unparse(handler.type):
            return True
    return False


def on_demand(sources: Sources) -> tuple[str, ...]:
    """Return the modules that the library can do without, sorted, without "tern.".

    Each is imported in a `try` statement that catches ImportError.
    """
    optional: set[str] = set()
    for source in sources.values():
        optional |= guarded(source)
    return _short_names(optional & sources.keys())


def beyond(sources: Sources, program: str) -> tuple[str, ...]:
    """Return the modules that a client never imports, sorted, without "tern.".

    They are for users' programs. program: the text of the main.py that starts a client.
    """
    others = sources.keys() - needed(sources, imports(program)).keys()
    return _short_names(name for name in others if not name.startswith(_BOARDS))


def _short_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of modules without "tern.", sorted."""
    return tuple(sorted(name.removeprefix(_LIBRARY) for name in names))


def at_top(sources: Sources, names: Iterable[str]) -> set[str]:
    """Return these modules, and all modules without which they are of no use.

    Those are the ones that they import at their top, the ones that they bring, which are named by
    the constant BRINGS in their text, the ones that those import at their top, and so on. What a
    function imports when it is called does not count.

    sources: the texts of all modules, by name. names: those of other modules are left out.
    """
    reached: set[str] = set()
    new_names = set(names) & sources.keys()
    while new_names:
        reached |= new_names
        next_names: set[str] = set()
        for name in new_names:
            next_names |= _imports_at_top(sources[name]) | _brought_by(sources[name])
        new_names = next_names & sources.keys() - reached
    return reached


def brought(sources: Sources, names: Iterable[str]) -> set[str]:
    """Return those of `names` that are modules, and the modules that their BRINGS name."""
    result = set(names) & sources.keys()
    for name in list(result):
        result |= _brought_by(sources[name]) & sources.keys()
    return result


def _brought_by(source: str) -> set[str]:
    """Return the modules that the constant BRINGS of a module names; none if it has no BRINGS."""
    constant = _BRINGS.search(source)
    if constant is None:
        return set()
    return {f"{_LIBRARY}{name}" for name in constant[1].split(", ")}


def public(source: str) -> set[str]:
    """Return the names of a module's public classes, and of their public methods."""
    names = set()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        names.add(node.name)
        for member in node.body:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(member.name)
    return {name for name in names if not name.startswith("_")}


def lacking(sources: Sources, program: str) -> list[str]:
    """Return what a program uses of the library although these modules do not have it.

    sources: the modules of the library that the board gets. The result has names such as
    "tern.wire.ROUND".
    """
    tree = ast.parse(program)
    missing: list[str] = []
    module_of_name: dict[str, str] = {}  # the module that a name of the program stands for
    # First what the program imports,
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_of_library(node.module):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if not _has(sources, str(node.module), alias.name):
                    missing.append(name)
                module_of_name[alias.asname or alias.name] = name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_of_library(alias.name) and alias.name not in sources:
                    missing.append(alias.name)
                module_of_name[alias.asname or alias.name] = alias.name

    # then the attributes of imported modules.
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = module_of_name.get(ast.unparse(node.value))
            if module is None or module not in sources:
                continue
            if not _has(sources, module, node.attr):
                missing.append(f"{module}.{node.attr}")
    return missing


def _is_of_library(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "tern"


def _has(sources: Sources, module: str, name: str) -> bool:
    """Return whether a module binds a name, or is a package with a module of this name."""
    if f"{module}.{name}" in sources:
        return True
    return module in sources and name in _bound_names(sources[module])


def _bound_names(source: str) -> set[str]:
    """Return the names that a module defines, assigns or imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                names.add((alias.asname or alias.name).partition(".")[0])
    return names


def networked(sources: Sources) -> set[str]:
    """Return the modules that are of no use without a network.

    Such a module imports the network or another such module at its top, or only such modules
    import it. So more are found again and again, until there are no more.
    """
    importers: dict[str, set[str]] = {name: set() for name in sources}  # by imported module
    for importer, source in sources.items():
        for name in imports(source) & sources.keys():
            importers[name].add(importer)

    useless: set[str] = set()
    while True:
        found = set()
        for name in sources.keys() - useless:
            needs_network = bool(_imports_at_top(sources[name]) & (_NETWORK | useless))
            serves_only_useless = bool(importers[name]) and importers[name] <= useless
            if needs_network or serves_only_useless:
                found.add(name)
        if not found:
            return useless
        useless |= found


def usable(sources: Sources, board: Board) -> dict[str, str]:
    """Return the modules that a board can use, by name.

    Left out are modules that need a network, if the board has none; the random generator for boards
    without AES, if it has AES; and the modules in tern.boards that are for other platforms.
    """
    unusable: set[str] = set()
    if not board.network:
        unusable |= networked(sources)
    if board.aes:
        unusable.add("tern.hash_drbg")
    platform_module = _BOARDS + board.platform
    if platform_module not in sources:  # a platform without a module of its own
        platform_module = _BOARDS + "emulated"
    for name in sources:
        if name.startswith(_BOARDS) and name not in (platform_module, _ANY_BOARD):
            unusable.add(name)
    return {name: source for name, source in sources.items() if name not in unusable}


def needed(
    sources: Sources, roots: Iterable[str], unwanted: Collection[str] = ()
) -> dict[str, str]:
    """Return the modules that `roots` need, by name, sorted.

    Those are the roots themselves, what they import, and so on, and the packages of all of them.
    unwanted: modules to leave out, with what only they need.
    """
    reached: dict[str, str] = {}
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        if name.endswith("."):  # a string to which the name of a module is added on the board
            waiting |= {module for module in sources if module.startswith(name)}
        is_new = name in sources and name not in reached
        if is_new and name not in unwanted:
            reached[name] = sources[name]
            package, _, _ = name.rpartition(".")
            waiting.add(package)
            waiting |= imports(sources[name])
    return dict(sorted(reached.items()))
