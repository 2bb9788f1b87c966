"""`tern board deploy`: install or update the device library on a board, and start its program."""

import argparse
from collections.abc import Sequence
from typing import Any

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.reach.ports import names
from ternhost.terminal import confirm
from ternhost.text import counted
from ternhost.words import HELP
from terntools.boards import devices, mpy
from terntools.boards.file_changes import Changes
from terntools.boards.files import FileProgress
from terntools.boards.installing import install, plan
from terntools.boards.program import Program, of_options
from terntools.boards.repl import Repl
from terntools.boards.slot import slot_of
from terntools.boards.starting import require_started, wait_for_hello
from terntools.terminal import Bar

FIRST_SECONDS = 3.0  # of a program, in which it shows whether it starts
_TESTING = "testing the library on the board"


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
            require_started(program, port, slot, output)
            summary["modules"] = list(program.modules)
            summary["missing"] = list(program.missing)
        else:
            hello = wait_for_hello(port, slot)
            summary["hello"] = hello.text
            summary["clients"] = hello.clients
            summary["heap_free"] = hello.heap
        bar.step("done")
    return summary


def _then_testing(bar: Bar) -> FileProgress:
    """Return what shows the progress of files on a bar, and then that the new library is tested."""

    def show(done: int, total: int) -> None:
        bar.update(done, total)
        if done == total:
            bar.step(_TESTING)

    return show


def confirm_renaming(changes: Changes) -> None:
    """Ask the user whether to rename what hides the library. Raises UsageError if not."""
    paths = ", ".join(changes.move)
    confirm(f"rename {paths} on the board, so that the library in /lib is not hidden")


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
