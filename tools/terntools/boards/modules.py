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

_NETWORK = {"socket", "network"}
_BOARDS = "tern.boards."
_ANY_BOARD = "tern.boards.this"
_BRINGS = re.compile(r'^BRINGS = "(.+)"', re.MULTILINE)


@dataclass(frozen=True)
class Board:
    """The properties of a board that decide its modules: its processor for mpy-cross, sys.platform,
    a network, AES.
    """

    processor: str
    platform: str
    network: bool
    aes: bool = True


@functools.lru_cache(maxsize=1000)
def imports(source: str) -> frozenset[str]:
    """The imports of a module, at its top or later, and its names: modules, and `module.name` out
    of one.
    """
    return frozenset(_names(ast.walk(ast.parse(source))))


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("tern."):
            yield str(node.value)


def guarded(source: str) -> set[str]:
    """The imports of a module that may fail with ImportError."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)) if "ImportError" in source else ():
        if isinstance(node, ast.Try) and any(
            handler.type and "ImportError" in ast.unparse(handler.type) for handler in node.handlers
        ):
            names.update(name for part in node.body for name in _names(ast.walk(part)))
    return names


def on_demand(sources: Sources) -> tuple[str, ...]:
    """The modules that the library can do without, without `tern.`, sorted."""
    optional = set().union(*map(guarded, sources.values())) & sources.keys()
    return tuple(sorted(name.removeprefix("tern.") for name in optional))


def at_top(sources: Sources, names: Iterable[str]) -> set[str]:
    """These modules and all that they need: modules that they import at their top or bring, and so
    on.
    """
    reached: set[str] = set()
    left = set(names) & sources.keys()
    while left:
        reached |= left
        left = {other for name in left for other in _top(sources[name]) | _brought(sources[name])}
        left &= sources.keys() - reached
    return reached


def brought(sources: Sources, names: Iterable[str]) -> set[str]:
    given = set(names) & sources.keys()
    return given | {other for name in given for other in _brought(sources[name])} & sources.keys()


def _brought(source: str) -> set[str]:
    constant = _BRINGS.search(source)
    return {f"tern.{name}" for name in constant[1].split(", ")} if constant else set()


def beyond(sources: Sources, program: str) -> tuple[str, ...]:
    """The modules to which neither the client, which `program` starts, nor one on demand comes,
    without `tern.`.
    """
    rest = sources.keys() - needed(sources, imports(program)).keys()
    return tuple(
        sorted(name.removeprefix("tern.") for name in rest if not name.startswith(_BOARDS))
    )


def public(source: str) -> set[str]:
    """The public classes of a module, and their public methods."""
    return {
        part.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for part in (node, *node.body)
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not part.name.startswith("_")
    }


def lacking(sources: Sources, program: str) -> list[str]:
    """Names that a program takes from these modules and that they lack, such as "tern.wire.ROUND"."""
    lack: list[str] = []
    known: dict[str, str] = {}  # what a module is called in the program -> its name
    tree = ast.parse(program)

    def take(module: str, name: str) -> None:
        if f"{module}.{name}" not in sources and name not in _bound(sources[module]):
            lack.append(f"{module}.{name}")

    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.partition(".")[0] == "tern"
        ):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if node.module in sources:
                    take(node.module, alias.name)
                else:
                    lack.append(whole)
                if whole in sources:
                    known[alias.asname or alias.name] = whole
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in sources:
                    known[alias.asname or alias.name] = alias.name
                elif alias.name.partition(".")[0] == "tern":
                    lack.append(alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in known:
            take(known[ast.unparse(node.value)], node.attr)
    return lack


def _bound(source: str) -> set[str]:
    bound = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return bound


@functools.lru_cache(maxsize=1000)
def _top(source: str) -> frozenset[str]:
    return frozenset(_names(ast.parse(source).body))


def networked(sources: Sources) -> set[str]:
    """The modules that are of no use without a network."""
    tops = {name: _top(source) for name, source in sources.items()}
    users = {
        name: {other for other in sources if name in imports(sources[other])} for name in sources
    }
    useless: set[str] = set()

    def is_useless(name: str) -> bool:
        return bool(tops[name] & (_NETWORK | useless)) or set() < users[name] <= useless

    while more := set(filter(is_useless, sources.keys() - useless)):
        useless |= more
    return useless


def usable(sources: Sources, board: Board) -> dict[str, str]:
    """The modules that `board` can use."""
    unusable = set() if board.network else networked(sources)
    if board.aes:
        unusable.add("tern.hash_drbg")
    its_own = _BOARDS + board.platform
    if its_own not in sources:
        its_own = _BOARDS + "emulated"
    unusable |= {name for name in sources if name.startswith(_BOARDS)} - {its_own, _ANY_BOARD}
    return {name: source for name, source in sources.items() if name not in unusable}


def needed(
    sources: Sources, roots: Iterable[str], unwanted: Collection[str] = ()
) -> dict[str, str]:
    """The modules that the `roots` among them need, with their packages, without the unwanted;
    sorted.
    """
    reached: dict[str, str] = {}
    left = set(roots)
    while left:
        name = left.pop()
        if name in sources and name not in reached and name not in unwanted:
            reached[name] = sources[name]
            left |= {name.rpartition(".")[0]} | imports(sources[name])
    return dict(sorted(reached.items()))
