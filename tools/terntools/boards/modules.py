"""Which boards get which modules of the device library. Its own imports say so; nothing is listed anywhere else.

- What a client needs is what its main.py comes to by its imports, and by the names of modules that it has as text.
- A module that is imported where an ImportError is expected is there on demand: the client does without it.
- A module that imports `socket` or `network` at its top, or another that does, needs a network.
- Of tern.boards a board gets the module of its platform, and tern.hash_drbg only where MicroPython has no AES.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

Sources = Mapping[str, str]  # name of a module, with dots -> its text

_NETWORK = {"socket", "network"}
_BOARDS = "tern.boards."
_ANY_BOARD = "tern.boards.this"


@dataclass(frozen=True)
class Board:
    """What decides which modules a board can use: mpy-cross's name of its processor, sys.platform, a network, AES."""

    processor: str
    platform: str
    network: bool
    aes: bool = True


def imports(source: str) -> set[str]:
    """What a module imports, at its top or later, and what it names: modules, and `module.name` out of one."""
    return set(_names(ast.walk(ast.parse(source))))


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("tern.")
        ):
            yield node.value


def on_demand(sources: Sources) -> tuple[str, ...]:
    """The modules that the library can do without, without `tern.`, sorted."""
    found = set()
    for source in sources.values():
        if "ImportError" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Try) and any(
                handler.type and "ImportError" in ast.unparse(handler.type) for handler in node.handlers
            ):
                found |= {name for part in node.body for name in _names(ast.walk(part)) if name in sources}
    return tuple(sorted(name.removeprefix("tern.") for name in found))


def at_top(sources: Sources, names: Iterable[str]) -> set[str]:
    """These modules, and those that they cannot do without: what they import at their top, and so on."""
    found: set[str] = set()
    left = set(names) & sources.keys()
    while left:
        found |= left
        left = {other for name in left for other in _top(sources[name])} & sources.keys() - found
    return found


def _top(source: str) -> set[str]:
    return set(_names(ast.parse(source).body))


def networked(sources: Sources) -> set[str]:
    """The modules that are of no use without a network."""
    tops = {name: _top(source) for name, source in sources.items()}
    found: set[str] = set()
    while more := {name for name, wants in tops.items() if wants & (_NETWORK | found)} - found:
        found |= more
    return found


def usable(sources: Sources, board: Board) -> dict[str, str]:
    """Those of the modules that `board` can use."""
    unusable = set() if board.network else networked(sources)
    if board.aes:
        unusable.add("tern.hash_drbg")
    its_own = _BOARDS + board.platform
    if its_own not in sources:
        its_own = _BOARDS + "emulated"
    unusable |= {name for name in sources if name.startswith(_BOARDS)} - {its_own, _ANY_BOARD}
    return {name: source for name, source in sources.items() if name not in unusable}


def needed(sources: Sources, roots: Iterable[str], unwanted: Collection[str] = ()) -> dict[str, str]:
    """Those of the modules that the `roots` among them come to, with their packages, without the unwanted; sorted."""
    found: dict[str, str] = {}
    left = set(roots)
    while left:
        name = left.pop()
        if name in sources and name not in found and name not in unwanted:
            found[name] = sources[name]
            left |= {name.rpartition(".")[0]} | imports(sources[name])
    return dict(sorted(found.items()))
