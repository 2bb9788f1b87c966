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
from ternhost.errors import DeviceError, RefusedError, TernError, UsageError
from ternhost.reach.links import open_link
from ternhost.reach.patience import patience_for
from ternhost.reach.ports import names
from ternhost.terminal import confirm
from ternhost.text import counted
from ternhost.words import HELP
from terntools.boards import devices, hiding, modules, mpy, room, self_check
from terntools.boards.program import COLUMNS, Program, of_options
from terntools.boards.repl import FileProgress, Repl
from terntools.boards.self_check import MiscompiledError
from terntools.boards.slot import slot_of
from terntools.terminal import Bar

LIBRARY = "/lib/tern"
MAIN = "/main.py"
PROGRAM = "/lib/main.py"  # started by the loader
UPDATE = "update"  # the module whose boards have a loader
FIRST_SECONDS = 3.0  # of a program, in which it shows whether it starts
HELLO_WAIT = 20.0  # seconds until a board that was started says hello, if it has no slot
_SECONDS_TO_ANSWER = 10.0  # in which a user's program that was started says hello, if it does
_TESTING = "testing the library on the board"
_SECONDS_TO_FAIL = 10.0  # in which a program that does not answer shows an exception
# A program that imports one of these modules answers the host.
_SERVING = {"tern.app", "tern.supervisor"}

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


# Runs on the board at the end of a deployment, and ends any update in the field that was under way:
# from now on the loader starts the files in /lib. For that it sets two fields of boot.bin, the folder
# whose program works (byte 4; 0 is /lib) and the state of the last package (byte 5). The number of
# that package (bytes 6 to 9) stays, so that the board accepts no older one.
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


# Ends the names of a board's old files while it gets new ones. Its main.py is _UNDOER then, a
# program that gives these files their own names back and then starts the old main.py.
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


# Asks a board for the kinds of .mpy files that it runs (as a number), sys.platform, its description,
# the version of MicroPython, whether it has a network, and whether it has AES.
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
    """The kind of a board, on which it depends which files it gets."""

    processor: str  # as mpy-cross calls it
    platform: str  # sys.platform
    description: str  # such as "Raspberry Pi Pico with RP2040"
    version: str  # of MicroPython
    network: bool  # whether its MicroPython has a network
    aes: bool  # whether its MicroPython has AES

    @classmethod
    def of(cls, repl: Repl) -> Self:
        """Ask the board what it is.

        Raises TooOldError if its MicroPython cannot run the native code that mpy-cross makes.
        """
        mpy_code, platform, description, version_numbers, network, aes = repl.value(_TELL_MACHINE)
        version = ".".join(map(str, version_numbers))
        # sys.implementation._mpy has the version of .mpy files in its lowest 8 bits, then 2 bits of
        # the version of native code, then 4 bits of the processor (MicroPython, "MicroPython .mpy
        # files").
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
                hint=f"flash MicroPython {_MIN_MICROPYTHON} or later: tern board flash",
            )
        return cls(
            processor=processor,
            platform=platform,
            description=description,
            version=version,
            network=network,
            aes=aes,
        )


@dataclass(frozen=True)
class Changes:
    """The changes to a board's files that a deployment makes."""

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
        line = ", ".join(steps)
        if not steps:
            line = "nothing to change"
        if self.note:
            line += f"; {self.note}"
        return line

    def lines(self) -> list[str]:
        """Describe the changes in a line for each file; the note, if there is one, comes last."""
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
    """Return the files that a board of this kind gets, by path, main.py last.

    They are the compiled library, the program, the modules that the program imports, and its
    schema.

    machine: the kind of board. whole: install every module that the board can use, with line
    numbers for tracebacks, instead of the needed ones. more: names of optional modules of the
    library to install as well, out of `mpy.choices`. program: the user's program; None for tern's
    own, which only serves the host. Raises UsageError if mpy-cross is not installed.
    """
    program_texts: Sequence[str] = ()
    if program:
        program_texts = program.texts
    takes_updates = UPDATE in more
    for text in program_texts:
        if f"tern.{UPDATE}" in modules.imports(text):
            takes_updates = True
    # A board that takes updates has a loader as main.py, which starts the program in /lib.
    folder = "/"
    if takes_updates:
        folder = "/lib/"
    if not program:
        program = Program(mpy.MAIN.read_bytes())

    board = mpy.Board(machine.processor, machine.platform, machine.network, machine.aes)
    compiled = mpy.compile_set(board, whole, {*more, *program.named_modules}, program_texts)
    files = {}
    for path, data in sorted(mpy.files_of(compiled).items()):
        files[f"/lib/{path}"] = data
    for path, data in program.modules.items():
        files[folder + path] = data
    if program.schema:
        files[f"/{COLUMNS}"] = program.schema
    files[folder + "main.py"] = program.main
    if takes_updates:
        files[MAIN] = mpy.LOADER.read_bytes()
    return files


def digest(data: bytes) -> str:
    """Return the digest of a file's bytes, as Repl.hashes returns it for a file on a board."""
    return hashlib.sha256(data).digest()[:8].hex()


def compare(repl: Repl, files: Mapping[str, bytes], prune: str | None = None) -> Changes:
    """Find the changes after which the board has `files`, and no others under `prune`.

    files: contents by path. prune: a folder of the board, or None to remove nothing. The files that
    an interrupted deployment renamed, to undo it, are not removed.
    """
    digests_on_board = repl.hashes(list(files))
    changed = {}
    for path, data in files.items():
        if digests_on_board.get(path) != digest(data):
            changed[path] = data
    stale = []
    if prune:
        for path in sorted(repl.directory(prune)):
            if path not in files and not path.endswith(UNDO):
                stale.append(path)
    return Changes(write=changed, remove=tuple(stale), main=files.get(MAIN, b""))


def apply(repl: Repl, changes: Changes, progress: FileProgress | None = None) -> None:
    """Write and remove the files of the board as `changes` says.

    After an interruption every file is whole, the old one or the new one, and the same call makes
    the changes that are left. progress: is called with the bytes written until now and with the
    bytes of all files.
    """
    bytes_done = 0  # of the files before the current one
    for path, data in changes.write.items():
        # As a default value, bytes_done is that of this turn of the loop.
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
    """Make the changes to the board's files, and check that the new library computes right.

    First a test is compiled and run, to show that the compiler is right for this processor. Then
    the files are written. Until the library is checked, main.py is a program that gives the old
    files their names back. So a board whose deployment is interrupted runs its old program, and
    never sends a wrong report. At the end the board is at its prompt, with a fresh heap.

    machine: the kind of the board. changes: from `plan`. Raises MiscompiledError if something is
    computed wrong, and StorageError if the flash has no room for the new files beside the old ones.
    """
    room.require(repl, changes.size)
    if changes:
        self_check.require_compiler(repl, machine.processor)

    # Files such as /tern.py hide the library, and get other names.
    new_names = hiding.new_paths(repl, changes.move)
    all_but_main = {path: data for path, data in changes.write.items() if path != MAIN}
    paths_to_keep = [*all_but_main, *changes.remove]
    kept_for_undo = _keep_for_undo(repl, paths_to_keep, new_names)
    hiding.rename(repl, new_names)
    apply(repl, Changes(all_but_main, changes.remove), progress)

    try:
        self_check.require_library(repl)
    except MiscompiledError:
        # Neither the old program nor a wrong library is to run. A board that crashed restarts, and
        # then cannot be reached here.
        with contextlib.suppress(TernError):
            repl.remove(MAIN)
        raise

    # From here on the new program counts, and the old files are removed.
    repl.run(_SETTLE)
    repl.write_file(MAIN, changes.main or mpy.MAIN.read_bytes())
    repl.run(f"import os\nfor path in {kept_for_undo!r}:\n os.remove(path)")


def _keep_for_undo(repl: Repl, paths: Iterable[str], new_names: Mapping[str, str]) -> list[str]:
    """Rename the files at `paths`, and make main.py the program that gives them their names back.

    A file gets the ending UNDO behind its name. If the deployment is interrupted, the board starts
    main.py at its next reset, which undoes it. If an earlier deployment was interrupted, and not
    undone, its renamed files are kept, since they belong to the last program that worked.

    new_names: the new paths, by old path, of other files that the deployment renames, and that the
    program renames back as well. Returns the paths of the renamed files, which end with UNDO; that
    of the old main.py is the last one.
    """
    paths_on_board = set(repl.directory("/"))
    old_main = b""
    if MAIN in paths_on_board:
        old_main = repl.read_file(MAIN)
    # The files that an earlier deployment renamed.
    kept_paths = {path for path in paths_on_board if path.endswith(UNDO)}

    first_line_of_undoer, _, _ = _UNDOER.partition(b"\n")
    was_interrupted = old_main.startswith(first_line_of_undoer)
    if was_interrupted:
        # The kept files are those of the last program that worked; they are still to come back.
        new_names = {**renamed_before(old_main), **new_names}
    else:
        for path in kept_paths:  # left by a deployment that was completed
            repl.remove(path)
        kept_paths = set()
        if old_main:
            repl.write_file(MAIN + UNDO, old_main)
            kept_paths.add(MAIN + UNDO)

    # main.py comes first: from the first renamed file on, a restart must undo what was done.
    repl.write_file(MAIN, undoer(new_names))
    paths_to_move = []
    for path in paths:
        if path in paths_on_board and path + UNDO not in kept_paths:
            paths_to_move.append(path)
    repl.run(f"import os\nfor path in {paths_to_move!r}:\n os.rename(path, path + '{UNDO}')")
    kept_paths.update(path + UNDO for path in paths_to_move)
    return sorted(kept_paths, key=_is_old_main)  # False sorts first


def _is_old_main(path: str) -> bool:
    return path == MAIN + UNDO


def undoer(new_names: Mapping[str, str]) -> bytes:
    """Return the main.py that undoes an interrupted deployment.

    new_names: the new paths, by old path, of files that hid the library and were renamed.
    """
    return _UNDOER.replace(b"{}", repr(dict(new_names)).encode(), 1)


def renamed_before(main: bytes) -> dict[str, str]:
    """Return the new paths, by old path, of the files that an interrupted deployment renamed.

    The main.py that it left, `main`, has them in a line such as
    RENAMED = {'/tern.py': '/tern.py.hidden'}. A main.py of an earlier release of tern has no such
    line, and the result is empty.
    """
    _, separator, rest = main.partition(b"\nRENAMED = ")
    if not separator:
        return {}
    literal, _, _ = rest.partition(b"\n")
    new_names: dict[str, str] = ast.literal_eval(literal.decode())
    return new_names


def plan(
    repl: Repl,
    whole: bool = False,
    more: Collection[str] = (),
    program: Program | None = None,
) -> tuple[Machine, Changes]:
    """Return the kind of the board, and the changes that `tern board deploy` would make to it.

    Optional modules (`mpy.choices`) that are on the board already are kept, and brought up to date.
    As a side effect the board imports nothing from its root until its next reset. whole, more,
    program: as in `library_files`. Raises TooOldError, and UsageError for a firmware that has
    another release of tern built in.
    """
    hiding.ignore_root(repl)
    machine = Machine.of(repl)
    if not whole:
        library_on_board = repl.directory(LIBRARY)
        requested_modules = list(more)
        more = []
        for name in mpy.choices():
            is_on_board = f"{LIBRARY}/{name}.mpy" in library_on_board
            if is_on_board or name in requested_modules:
                more.append(name)
    files = library_files(machine, whole, more, program)
    changes = compare(repl, files, prune=LIBRARY)
    return machine, replace(changes, move=hiding.find(repl, files))


def confirm_renaming(changes: Changes) -> None:
    """Ask the user whether to rename what hides the library. Raises UsageError if not."""
    paths = ", ".join(changes.move)
    confirm(f"rename {paths} on the board, so that the library in /lib is not hidden")


def wait_for_hello(
    port: str, slot: float = 0.0, patience: float | None = None
) -> host_frames.Hello:
    """Wait until a board that was just started answers, and return its HELLO frame.

    slot: that of the board, in seconds. patience: seconds that a board without a slot gets for a
    first sign that it reads, by default HELLO_WAIT. Raises DeviceError if the board does not answer
    in time, and RefusedError if it uses another version of the protocol.
    """
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            return link.hello(patience_for(slot, patience or HELLO_WAIT))
    except DeviceError as error:
        reason = _reason_of_silence(port)
        text = f"the files are on the board, but no tern answers on {port}{reason}"
        raise DeviceError(text, hint="press its reset button, and see 'tern board list'") from error


def _reason_of_silence(port: str) -> str:
    """Return why a board's program does not answer, as the end of a message.

    For that the board is started once more. The result is "" if the program does not end by an
    exception then, or if the board has no prompt.
    """
    try:
        lines = traceback_in(_output_at_start(port))
    except TernError:
        return ""
    if not lines:
        return ""
    return f": main.py ends with {lines[-1]}"


def _output_at_start(port: str) -> str:
    """Start the program of a board once more, and return what it prints until it ends.

    A program that goes on is given up after _SECONDS_TO_FAIL. Raises TernError.
    """
    with Repl(port, visits=True) as repl:
        repl.start_main()
        return repl.listen(_SECONDS_TO_FAIL)


def traceback_in(output: str) -> list[str]:
    """Return the lines of the traceback with which a program has ended; none if there is none.

    output: what a board has printed since it was started.
    """
    _, _, after_head = output.partition("Traceback (most recent call last):")
    traceback, _, _ = after_head.partition("\nMicroPython v")  # which greets at the prompt
    return traceback.strip("\r\n").splitlines()


def add_parser(subparsers: Any) -> None:
    """Add `tern board deploy` to the commands."""
    example = """tern board deploy a0
        tern board deploy a0 --module local
        tern board deploy a0 --main my_program.py --schema my.toml
        tern board deploy socket://127.0.0.1:7777 --json"""
    summary = "install or update the device library on a board"
    parser = add_command(subparsers, "deploy", summary, example, _run)
    devices.add_board(parser)
    add_option(
        parser,
        "--module NAME...",
        f"{HELP['module']}: {', '.join(mpy.choices())}",
        choices=mpy.choices(),
        dest="modules",
    )
    add_option(parser, "--main FILE", shown="one that only serves the host")
    add_option(parser, "--schema FILE.toml")
    text = "install every module, with line numbers: for your own programs and their tracebacks"
    add_option(parser, "--whole", text)
    add_option(parser, "--yes")


def run_deploy(
    port: str,
    whole: bool = False,
    more: Sequence[str] = (),
    program: Program | None = None,
    renames_without_asking: bool = False,
) -> dict[str, Any]:
    """Deploy to the board on `port`, start its program, and return a summary for JSON.

    The summary ends with what the board says about itself, or for a user's program with the modules
    that were installed and those that it imports but were not found.

    whole, more, program: as in `library_files`. renames_without_asking: rename files that hide the
    library without asking the user. Raises UsageError if the user does not agree to that, and
    TernError for a program that stops as soon as it is started.
    """
    output = ""  # of the user's program
    with Bar("deploying") as bar:
        bar.step("waiting for the board's console")
        with Repl(port, visits=True) as repl:
            bar.step("comparing the board's files")
            machine, changes = plan(repl, whole, more, program)
            bar.say(f"{machine.description}, MicroPython {machine.version}, {machine.processor}")
            if changes.move and not renames_without_asking:
                confirm_renaming(changes)
            bar.step(_TESTING)
            install(repl, machine, changes, _then_testing(bar))
            slot = slot_of(repl)
            bar.step("starting the program")
            repl.start_main()
            if program:
                output = repl.listen(FIRST_SECONDS)

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
        bar.step("waiting for the program to answer")
        if program is not None:
            _require_started(program, port, slot, output)
            summary["modules"] = list(program.modules)
            summary["missing"] = list(program.missing)
        else:
            hello = wait_for_hello(port, slot)
            summary["hello"] = hello.text
            summary["clients"] = hello.clients
            summary["heap_free"] = hello.heap
        bar.step("done")
    return summary


def _require_started(program: Program, port: str, slot: float, output: str) -> None:
    """Raise TernError if a program was started and stopped by an exception.

    slot: that of the board, in seconds. output: what the program has printed so far.
    """
    _require_running(program, port, output)
    if _has_ended(program, port, slot):
        _require_running(program, port, _output_at_start(port))


def _then_testing(bar: Bar) -> FileProgress:
    """Return what shows the progress of files on a bar, and then that the new library is tested."""

    def show(done: int, total: int) -> None:
        bar.update(done, total)
        if done == total:
            bar.step(_TESTING)

    return show


def _has_ended(program: Program, port: str, slot: float) -> bool:
    """Return whether a program that was started is known to have ended.

    A program that answers the host at its port is waited for. slot: that of the board, in seconds.
    """
    imported = modules.imports(program.texts[0])
    if imported.isdisjoint(_SERVING):
        return False
    try:
        with contextlib.closing(open_link(port, SimpleQueue())) as link:
            link.hello(patience_for(slot, _SECONDS_TO_ANSWER))
    except RefusedError:  # it has answered, in the protocol of another release
        return False
    except DeviceError:
        with contextlib.suppress(DeviceError):  # the board may sleep
            return devices.find_prompt(port) is not None
    return False


def _require_running(program: Program, port: str, output: str) -> None:
    """Raise TernError if a program's first output has a traceback: then it has stopped.

    The message quotes the last four lines of the traceback.
    """
    traceback_lines = traceback_in(output)
    if not traceback_lines:
        return
    last_lines = "\n  ".join(traceback_lines[-4:])
    raise TernError(
        f"{program.name} is main.py on {port}, but stopped as soon as it was started:\n"
        f"  {last_lines}",
        hint=f"correct it and deploy it again: tern board deploy {port} --main {program.name}",
    )


def _run(args: argparse.Namespace) -> int:
    """Deploy to the named board, and print what was changed."""
    program = of_options(args.main, args.schema)
    result = run_deploy(
        names.resolve(args.board),
        whole=args.whole,
        more=args.modules,
        program=program,
        renames_without_asking=args.yes,
    )
    written = len(result["written"])
    removed = len(result["removed"])
    files = f"  files written: {written} ({result['bytes']:,} bytes), removed: {removed}"
    if program is not None:
        with_modules = ""
        if program.modules:
            with_modules = f" with {', '.join(program.modules)}"
        head = f"{args.main} is main.py on {result['port']}{with_modules}, and has been started"
        text = f"{head}\n{files}"
    else:
        clients = "not provisioned: tern board provision"
        if result["clients"]:
            clients = counted(result["clients"], "client")
        text = f"{result['hello']}\n{files}; {devices.heap(result['heap_free'])}; {clients}"
    print_result(result, text, args.json)
    return errors.OK
