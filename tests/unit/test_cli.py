"""The entry point: help with examples that parse, errors as messages, and the documented exit
codes.
"""

import argparse
import fcntl
import json
import os
import shlex
import subprocess
import sys
import types
from pathlib import Path
from unittest.mock import Mock

import pytest

from ternhost import cli, errors
from ternhost.cli import everywhere, tree
from ternhost.cli.parser import subparsers_of
from ternhost.command import CommandGroup, ListedCommand, add_command
from ternhost.registry import Registry

TERN = [sys.executable, "-m", "ternhost"]


def commands(parser, path=("tern",)):
    """Every command at the end of the tree: its words and its parser."""
    subparsers = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not subparsers:
        is_missing = parser.get_default("func") is None  # its package was taken away
        return [] if is_missing else [(" ".join(path), parser)]
    children = subparsers[0].choices.items()
    return [command for name, child in children for command in commands(child, (*path, name))]


PARSER = tree.build_parser()
COMMANDS = commands(PARSER)


@pytest.mark.parametrize(("words", "parser"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_help_shows_examples_that_parse(words, parser):
    """Each command's help ends with an example, and every example is a command that exists with
    options that exist.
    """
    help_text = parser.format_help()
    _, _, end = help_text.partition("example:\n")
    examples = [line.strip() for line in end.splitlines()]
    assert any(example.startswith(words) for example in examples)
    for example in examples:
        if example.startswith("tern "):
            words = everywhere.taken_from(shlex.split(example)[1:]).words
            assert callable(PARSER.parse_args(words).func)


def run_command(monkeypatch, function):
    """Run `tern try`, which calls `function`."""

    def add_parser(subparsers):
        add_command(subparsers, "try", "try it", "tern try").set_defaults(func=function)

    commands = Registry("command", "tern.none", {})
    commands.register("try", types.SimpleNamespace(add_parser=add_parser))
    monkeypatch.setattr(cli, "COMMANDS", commands)
    monkeypatch.setattr(tree, "COMMANDS", commands)
    return cli.main(["try"])


def test_the_list_of_commands_names_the_verbs_that_their_parsers_have():
    listed = {}
    for name, command in tree.COMMANDS.items():
        if isinstance(command, ListedCommand | CommandGroup):
            listed[name] = list(command.verbs)
    parsers = subparsers_of(PARSER)
    verbs_of_groups = {}
    for name in listed:
        only_groups_others = parsers[name].get_default("func") is None
        verbs_of_groups[name] = list(subparsers_of(parsers[name])) if only_groups_others else []
    assert listed == verbs_of_groups


def test_the_list_of_commands_is_the_same_whether_they_are_imported_or_not():
    assert tree.build_parser(["--help"]).format_help() == PARSER.format_help()


LIST_MODULES = """
import contextlib, io, sys
from ternhost.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
print(*sys.modules)
"""


def test_the_list_of_commands_imports_none_of_them():
    """NumPy takes longer to import than the rest, and nearly every command imports it."""
    words = [sys.executable, "-c", LIST_MODULES]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    modules = set(ended.stdout.split())
    assert "ternhost.listed_commands" in modules
    assert "ternhost.cli.running" not in modules
    assert "numpy" not in modules


NO_GMQTT = ModuleNotFoundError("No module named 'gmqtt'", name="gmqtt")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (errors.TernError("not certified"), 1, "not certified"),
        (errors.UsageError("no such", hint="there are: duchi"), 2, "there are: duchi"),
        (errors.DeviceError("nothing answers"), 3, "nothing answers"),
        (errors.RefusedError("budget spent"), 4, "budget spent"),
        (errors.StorageError("disk full"), 5, "disk full"),
        (errors.InterruptedByUser("interrupted", hint="go on"), 130, "interrupted\n  go on"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left", "store.db"), 5, "store.db: No space left"),
        (FileNotFoundError(2, "No such file", "card.bin"), 2, "card.bin: No such file"),
        (NO_GMQTT, 2, "'mqtt'"),
        (ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_errors_become_a_message_and_a_code(monkeypatch, capsys, error, code, words):
    monkeypatch.delenv("TERN_DEBUG", raising=False)
    assert run_command(monkeypatch, Mock(side_effect=error)) == code
    output = capsys.readouterr()
    assert output.err.startswith("tern: ")
    assert words in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def tern_process(*words, **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([*TERN, *words], text=True, **streams)


def test_output_to_a_full_disk_is_a_storage_error():
    with Path("/dev/full").open("w") as full:
        ended = tern_process("emulator", "info", stdout=full)
    assert ended.returncode == errors.STORAGE
    assert ended.stderr.startswith("tern: No space left on device\n")


def test_output_to_a_closed_pipe_ends_tern_without_a_message():
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        ended = tern_process("emulator", "info", stdout=closed)
    assert (ended.returncode, ended.stderr) == (errors.BROKEN_PIPE, "")


# A command that fails says so to people and to programs, also where streams are closed or full


def tern_with_closed(streams, *words):
    """Run tern with these of the standard streams closed, as a shell closes them with `>&-`."""
    redirections = " ".join(f"{number}>&-" for number in streams)
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *TERN, *words], capture_output=True
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("card show nonsense:2 --json", errors.USAGE),
        ("card show --jason --json", errors.USAGE),
        ("--json", errors.USAGE),
        ("board monitor a99 --json", errors.NO_DEVICE),
    ],
)
def test_with_json_a_failure_is_printed_as_an_object(words, code, tern):
    printed = tern(*words.split(), code=code)
    failure = json.loads(printed.out)
    assert failure.keys() == {"error", "hint", "exit_code"}
    assert failure["exit_code"] == code
    assert printed.err.startswith(f"tern: {failure['error']}")


def test_with_all_streams_closed_no_text_ends_up_in_a_file(tmp_path):
    card = tmp_path / "a.card"
    words = ("card", "design", "duchi", "--epsilon", "2", "--output", str(card))
    assert tern_with_closed([0, 1, 2], *words).returncode == errors.OK
    data = card.read_bytes()
    assert tern_process(*words).returncode == errors.OK
    assert card.read_bytes() == data


@pytest.mark.parametrize(
    "words",
    [
        "card show no.card",
        "train --card no.card --fleet simulated:9",
        "train --fleet mqtt:no",
        "resume no",
        "serve --fleet mqtt:no",
        "runs no",
        "watch no",
        "dashboard no",
        "keys list no",
        "relay a0 --broker no",
        "board deploy a0 --main no.py",
        "data scale no.csv",
        "hil --hardware-map no.yaml",
        "--with no.py train",
    ],
)
def test_a_file_that_is_not_there_is_bad_input_with_a_remedy_in_every_command(words, here, tern):
    message, remedy = tern(*words.split(), code=errors.USAGE).err.split("\n", 1)
    assert message.startswith("tern: ")
    assert remedy.startswith("  ")
    assert list(here.iterdir()) == []


@pytest.fixture
def cache(tmp_path, monkeypatch, tern):
    """`cache(*words)`: what `tern cache` prints about a cache with a file of each kind."""
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    held = {"datasets/a.npz": 300, "board-1-abc/thing": 50, "board-1-abc.lock": 0, "data/mine": 7}
    for name, size in held.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    return lambda *words, code=0: tern("cache", *words, "--json", code=code).json


HELD = {"emulators": 50, "datasets": 300, "optima": 0, "data": 7}


def test_the_cache_is_cleared_by_kind_and_without_one_but_for_the_user_s_own_files(cache):
    assert cache()["bytes"] == HELD
    assert cache("clear", "datasets", "--yes")["freed"] == {"datasets": 300}
    assert cache()["bytes"] == HELD | {"datasets": 0}
    cache("clear", "--yes")
    assert cache()["bytes"] == dict.fromkeys(HELD, 0) | {"data": 7}


def test_a_part_of_the_cache_that_is_in_use_stays(cache, tmp_path):
    with (tmp_path / "board-1-abc.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cache("clear", "--yes")["in_use"] == ["board-1-abc"]
    assert cache()["bytes"]["emulators"] == 50


def test_clearing_the_cache_leaves_what_others_keep_in_its_folder(tmp_path, monkeypatch, tern):
    """The user named a folder for the cache that holds other things, too. Only entries that tern
    has made go, and never what a link points to.
    """
    cache = tmp_path / "home"
    monkeypatch.setenv("TERN_CACHE", str(cache))
    of_others = [cache / "letters/one", cache / "notes.lock"]
    of_tern = [cache / name for name in ("board-1-abc/thing", "board-1-abc.tmp-9/work")]
    lock, behind_a_link = cache / "board-1-abc.lock", tmp_path / "elsewhere/flights.npz"
    for path in (*of_others, *of_tern, lock, behind_a_link):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    (cache / "datasets").symlink_to(behind_a_link.parent)

    tern("cache", "clear", "--yes")

    assert behind_a_link.is_file()
    left = {path.name for path in cache.iterdir()}
    assert left == {"letters", "notes.lock", lock.name}, "the link itself has gone"
