"""A user's program for a board: its main.py, what it imports, its schema, and the library it needs."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tern.update import MAIN
from ternhost import files
from ternhost.command import warn
from ternhost.datasets.schemas.schema import Schema
from ternhost.errors import TernError, UsageError
from ternhost.guides import guide
from terntools.boards import modules, mpy, syntax

EMULATED = "emulated"  # a board of this computer runs the sources
MACHINES = (*mpy.BOARDS, EMULATED)
_ALWAYS = ("update",)  # without it a board takes no further package
COLUMNS = "columns.json"  # in a board's directory, where tern.columns finds the schema

# MicroPython's modules in C and asyncio, which a file of that name does not replace; and others
# that boards may have.
_BUILT_IN = """
_asyncio _onewire _thread array asyncio binascii bluetooth btree builtins cmath collections cryptolib deflate errno esp
esp32 espnow framebuf gc hashlib heapq io json lwip machine math micropython network os platform random re rp2 select
socket ssl struct sys time tls uasyncio uctypes vfs websocket
"""
_FROZEN = "aioespnow apa106 dht ds18x20 mip neopixel ntptime onewire requests umqtt webrepl"


@dataclass(frozen=True)
class Program:
    """A user's program, with the modules beside it that it imports."""

    main: bytes
    modules: Mapping[str, bytes] = field(default_factory=dict)  # contents by path below its folder
    missing: tuple[str, ...] = ()  # imports for which there is no module anywhere
    name: str = "main.py"  # the file that became main.py
    schema: bytes = b""  # the content of COLUMNS, by which it makes records; empty: it needs none

    @property
    def named_modules(self) -> tuple[str, ...]:
        """The modules of the library that it needs, whatever it imports, without "tern."."""
        return ("columns",) if self.schema else ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of main.py and of the modules, main.py first."""
        return tuple(data.decode() for data in (self.main, *self.modules.values()))


def read_file(path: str | Path) -> bytes:
    """Return the content of a user's file. Raises UsageError if it cannot be read."""
    try:
        return files.read_whole(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def read_schema(path: str | Path) -> bytes:
    """Return the file COLUMNS of boards whose programs make records by the schema in a file.

    Raises UsageError for a schema that cannot be read, or that no board can use.
    """
    return Schema.read(path).for_board()


def of_options(main: str | Path | None, schema: str | Path | None) -> Program | None:
    """Return the program of --main with the schema of --schema; None if no program is named.

    Raises UsageError for a file that cannot be read, and for a schema without a program.
    """
    if main is None:
        if schema is not None:
            raise UsageError(
                f"--schema {schema} is for a program, and no --main FILE is named",
                hint="name the program that makes records by this schema: --main FILE",
            )
        return None
    columns = read_schema(schema) if schema is not None else b""
    return replace(read(main), schema=columns)


def read(path: str | Path) -> Program:
    """Read a user's program, with the modules and packages beside it that it imports.

    What those import is read as well, and so on. The user is warned of imports that are neither
    there nor in MicroPython or tern. Raises UsageError for a file that cannot be read, or that is
    not Python.
    """
    main = _python(path)
    folder = Path(path).parent
    copied_files: dict[str, bytes] = {}
    missing: set[str] = set()
    seen = {"tern", "main", *_BUILT_IN.split()}
    seen |= {f"u{name}" for name in _BUILT_IN.split()}  # MicroPython's other names for them
    waiting = [main]
    while waiting:
        source = waiting.pop().decode()
        new_names = set(map(_top, modules.imports(source))) - seen
        seen |= new_names
        # Modules that the board may have, or that the program can do without.
        may_be_absent = set(_FROZEN.split()) | set(map(_top, modules.guarded(source)))
        for name in new_names:
            files = _files_of(folder, name)
            copied_files |= files
            waiting += files.values()
            if not files and name not in may_be_absent:
                missing.add(name)
    if missing:
        warn(
            f"{path} imports {', '.join(sorted(missing))}: neither a file beside it nor a module of "
            "MicroPython or tern\n  it stops there unless the board has this module in its firmware "
            "or in /lib (mpremote mip install)"
        )
    return Program(
        main=main,
        modules=dict(sorted(copied_files.items())),
        missing=tuple(sorted(missing)),
        name=str(path),
    )


def _files_of(folder: Path, name: str) -> dict[str, bytes]:
    """Read the files of a package or a module in a folder, and return them by their path below it.

    The result is empty if the folder has no such package or module.
    """
    paths = list((folder / name).rglob("*.py"))
    if not paths:
        paths = list(folder.glob(f"{name}.py"))
    return {path.relative_to(folder).as_posix(): _python(path) for path in paths}


def _top(name: str) -> str:
    """Return the name of the outermost package of a module, or the module itself if it has none."""
    package, _, _ = name.partition(".")
    return package


def _python(path: str | Path) -> bytes:
    """Read a Python file. Raises UsageError if it is not Python."""
    data = read_file(path)
    try:
        ast.parse(data.decode())
    except (SyntaxError, ValueError) as error:
        hint = "correct it, or name another --main FILE.py"
        raise UsageError(f"{path} is not a Python program: {error}", hint) from error
    return data


def program_files(
    machine: str,
    program: Program,
    extra_modules: Iterable[str] = (),
    other_files: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return the files of an update by their path: the library, the program, and its modules.

    machine: the kind of board, one of MACHINES; an emulated board gets the library's sources, any
    other one compiled modules. program: must import tern.update, so that the board can be updated
    again. extra_modules: optional modules of the library that the board gets as well.
    other_files: more files of the user's, by name. Raises UsageError if the program cannot run on
    the board.
    """
    # A program that does not compile would reach the board and be rolled back there, so it is
    # compiled here first, for any processor.
    names = (program.name, *program.modules)
    for name, text in zip(names, program.texts, strict=True):
        try:
            mpy.compiled(text, "armv6m", name)
        except UsageError:  # there is no compiler
            raise
        except TernError as error:
            raise syntax.explained(name, text, error) from error
    if "tern.update" not in modules.imports(program.texts[0]):
        raise UsageError(
            f"{program.name} does not import tern.update: it would take no further package, "
            "and be rolled back",
            hint=f"give its App an Update(board), out of tern.update: {guide('application.md')}",
        )
    extra_modules = [*extra_modules, *_ALWAYS]
    files = {}
    if machine == EMULATED:
        board = mpy.Board(processor="", platform="linux", network=True)
        sources = mpy.sources_for(board, whole=True, more=extra_modules)
        for name, source in sources.items():
            files[f"{mpy.file_of(name)}.py"] = source.encode()
    else:
        board = mpy.BOARDS[machine]
        compiled = mpy.compile_set(board, more=extra_modules, programs=program.texts)
        files = mpy.files_of(compiled)
    files |= program.modules
    if other_files:
        files |= other_files
    files[MAIN] = program.main
    return files
