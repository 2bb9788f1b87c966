"""A user's program for a board: its main.py, what it imports, and the library that it needs."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tern.update import MAIN
from ternhost.command import warn
from ternhost.errors import TernError, UsageError
from terntools.boards import modules, mpy

EMULATED = "emulated"  # a board of this computer runs the sources
MACHINES = (*mpy.BOARDS, EMULATED)
_ALWAYS = ("update",)  # without it a board takes no further package

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
    """A program of the user's."""

    main: bytes
    modules: Mapping[str, bytes] = field(default_factory=dict)  # content by path below its folder
    missing: tuple[str, ...] = ()  # imports that are nowhere
    name: str = "main.py"  # of its file

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of main.py and of the modules."""
        return tuple(data.decode() for data in (self.main, *self.modules.values()))


def read_file(path: str | Path) -> bytes:
    """A file of the user. Raises UsageError where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def read(path: str | Path) -> Program:
    """Read a user's program, with the modules and packages beside it that it needs.

    Those are its imports, and theirs. Warns of imports that are neither there nor in MicroPython or
    tern. Raises UsageError, also for a file that is not Python.
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
        may_be_absent = {*_FROZEN.split(), *map(_top, modules.guarded(source))}
        names = set(map(_top, modules.imports(source))) - seen
        seen |= names
        for name in names:
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
    return Program(main, dict(sorted(copied_files.items())), tuple(sorted(missing)), str(path))


def _files_of(folder: Path, name: str) -> dict[str, bytes]:
    """Read the files of a package or module in a folder, by their path below it.

    The result is empty if the folder has no such package or module.
    """
    paths = list((folder / name).rglob("*.py")) or list(folder.glob(f"{name}.py"))
    return {path.relative_to(folder).as_posix(): _python(path) for path in paths}


def _top(name: str) -> str:
    """The package of a module, or the module itself."""
    return name.partition(".")[0]


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
    """Return the files of a program on `machine`, one of MACHINES, by path in its folder.

    program: it must import tern.update. extra_modules: of the library. other_files: the user's, by
    name. Raises UsageError.
    """
    try:
        for name, text in zip((program.name, *program.modules), program.texts, strict=True):
            mpy.compiled(text, "armv6m", name)  # one that does not would be rolled back
    except TernError as error:
        raise UsageError(f"{program.name} is not a program for MicroPython: {error}") from error
    if "tern.update" not in modules.imports(program.texts[0]):
        raise UsageError(
            f"{program.name} does not import tern.update: it would take no further package, "
            "and be rolled back",
            hint="give its App an Update(board), out of tern.update: docs/guides/application.md",
        )
    extra_modules = [*extra_modules, *_ALWAYS]
    if machine == EMULATED:
        sources = mpy.sources_for(mpy.Board("", "linux", True), whole=True, more=extra_modules)
        files = {f"{mpy.file_of(name)}.py": source.encode() for name, source in sources.items()}
    else:
        files = mpy.files_of(
            mpy.compile_set(mpy.BOARDS[machine], more=extra_modules, programs=program.texts)
        )
    return {**files, **program.modules, **(other_files or {}), MAIN: program.main}
