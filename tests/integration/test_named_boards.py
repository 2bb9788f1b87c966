"""`tern emulator run --name desk`: an emulated board that keeps its port and its flash."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from ternhost.errors import NO_DEVICE, USAGE
from ternhost.reach import named
from ternhost.reach.ports import names
from terntools.boards.repl import Repl

KIND = "rv32"  # it starts within a second
RUN = ("emulator", "run", KIND, "--name")


@pytest.fixture(autouse=True)
def boards_folder(tmp_path, monkeypatch):
    """An empty folder of named boards."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data/tern/boards"


@contextlib.contextmanager
def running(name):
    """A named board in a process of its own: the process, and the port that it has printed."""
    command = [sys.executable, "-m", "ternhost", *RUN, name, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process, json.loads(process.stdout.readline())["port"]
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        process.wait(60)


def test_a_named_board_has_the_same_port_after_a_restart():
    with running("desk") as (_, first_port):
        pass
    with running("desk") as (_, second_port), Repl(second_port) as repl:
        assert repl.evaluate("2 + 2") == 4
    assert second_port == first_port


def test_a_named_board_keeps_its_files():
    with running("desk") as (_, port), Repl(port) as repl:
        repl.files.write("/note.txt", b"kept")
    with running("desk") as (_, port), Repl(port) as repl:
        assert repl.evaluate("open('/note.txt').read()") == "kept"


def test_a_running_named_board_is_listed_with_its_name(tern):
    with running("desk") as (_, port):
        (listed,) = [
            each
            for each in tern("board", "list", "--json").json["devices"]
            if each["serial_number"] == "desk"
        ]
    assert listed["port"] == port


def test_a_named_board_that_is_off_is_not_listed():
    with running("desk"):
        pass
    assert "desk" not in [each.serial_number for each in names.find()]


def test_commands_call_a_named_board_by_its_name():
    with running("desk") as (_, port), running("desk2"):
        assert names.resolve("id:desk") == port


def test_the_only_board_is_never_an_emulated_one(tern, monkeypatch):
    """Who means the board that is plugged in must not flash another one."""
    monkeypatch.setattr(names.list_ports, "comports", list)
    with running("desk"):
        tern("board", "info", "auto", code=NO_DEVICE)


def test_a_second_board_of_the_same_name_is_refused(tern):
    with running("desk") as (_, port):
        refused = tern(*RUN, "desk", code=USAGE)
        assert port in refused.err
        with Repl(port) as repl:  # the first one runs on
            assert repl.evaluate("2 + 2") == 4


def test_a_board_that_was_killed_leaves_nothing_in_the_way():
    with running("desk") as (process, first_port):
        process.kill()
        process.wait()
    with running("desk") as (_, port), Repl(port) as repl:
        assert repl.evaluate("2 + 2") == 4
        assert port == first_port


def test_a_name_of_another_kind_of_board_is_refused(boards_folder, tern):
    (boards_folder / "desk").mkdir(parents=True)
    (boards_folder / "desk/pico.bin").touch()
    refused = tern(*RUN, "desk", code=USAGE)
    assert "tern emulator run pico --name desk" in refused.err


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a,b", "port:x", "x" * 41, "ä"])
def test_a_name_that_is_no_name_of_a_folder_is_refused(name, tern):
    tern("emulator", "run", KIND, f"--name={name}", code=USAGE)
    assert not named.all_boards()


def test_a_name_and_a_flash_exclude_each_other(tern):
    tern(*RUN, "desk", "--flash", "desk.bin", code=USAGE)
