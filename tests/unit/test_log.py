"""The log of commands that run until they are stopped: time, level and fields of each message."""

import io
import json
import logging
import os
import re
import socket
import subprocess
import sys

import pytest
import warm

from ternhost import errors, log

STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (info|warning|error): .*")
SERVE = (
    *("serve", "--fleet", "simulated:20", "--data", "iris", "--rounds", "2", "--every", "0.01"),
    *("--store", "s.sqlite", "--no-report", "--name", "mine"),
)

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def printed(monkeypatch):
    """What the log prints: `printed(style, level, message, **fields)`."""

    def say(style, level, message, **fields):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        with log.printed():
            log.use(style)
            log.say(level, message, **fields)
        return stream.getvalue()

    return say


def test_each_line_of_a_served_run_has_its_time_and_level(tern):
    lines = tern(*SERVE).err.splitlines()
    assert lines
    assert [line for line in lines if not STAMPED.fullmatch(line)] == []


def test_each_line_of_a_message_has_the_time_and_the_level(printed):
    lines = printed(log.TEXT, logging.WARNING, "two boards are away\n  switch them on").splitlines()
    assert len(lines) == 2
    assert all(STAMPED.fullmatch(line) for line in lines)


def test_a_log_in_json_has_the_run_and_the_round_of_each_round(tern):
    entries = [json.loads(line) for line in tern(*SERVE, "--log-format", "json").err.splitlines()]
    assert all({"time", "level", "message"} <= entry.keys() for entry in entries)
    ended = [entry for entry in entries if entry.get("event") == "end"]
    assert [(entry["run"], entry["round"], entry["reports"]) for entry in ended] == [
        ("mine", 1, 20),
        ("mine", 2, 20),
    ]


def test_with_json_the_events_stay_on_standard_output(tern):
    events = [json.loads(line) for line in tern(*SERVE, "--json").out.splitlines()]
    assert [event["round"] for event in events if event["event"] == "end"] == [1, 2]
    assert events[-1]["event"] == "result"


def test_with_json_the_log_does_not_repeat_the_events(tern):
    assert tern(*SERVE, "--json").err == ""


def test_with_json_and_a_format_the_log_has_the_rounds_too(tern):
    err = tern(*SERVE, "--json", "--log-format", "json").err
    ended = [line for line in err.splitlines() if json.loads(line).get("event") == "end"]
    assert len(ended) == 2


def test_a_quiet_command_logs_no_rounds(tern):
    assert tern(*SERVE, "--quiet").err == ""


def test_a_quiet_log_keeps_warnings(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with log.printed():
        log.use(log.TEXT, quiet=True)
        log.say(logging.INFO, "a round has ended")
        log.say(logging.WARNING, "a board is away")
    (line,) = stream.getvalue().splitlines()
    assert "a board is away" in line


def test_a_command_that_cannot_start_says_so_as_any_other(tern):
    err = tern("serve", "--fleet", "mqtt:no", code=errors.USAGE).err
    assert err.startswith("tern: ")


def test_the_error_of_a_command_with_a_json_log_is_an_object_with_its_exit_code(tern):
    words = ("serve", "--fleet", "mqtt:no", "--log-format", "json")
    (line,) = tern(*words, code=errors.USAGE).err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["exit_code"]) == ("error", errors.USAGE)


def test_a_message_about_a_board_names_it_in_a_field(printed):
    message = log.Message("board 00000001 is back", board="00000001")
    entry = json.loads(printed(log.JSON, logging.WARNING, message, run="mine"))
    assert (entry["board"], entry["run"]) == ("00000001", "mine")


def test_control_characters_of_a_message_do_not_reach_the_log(printed):
    assert "\x1b" not in printed(log.TEXT, logging.WARNING, "board \x1b[2J is away")


@pytest.mark.parametrize(("level", "priority"), [(logging.INFO, 6), (logging.WARNING, 4)])
@pytest.mark.parametrize("style", log.FORMATS)
def test_the_journal_gets_the_level_as_a_number(style, level, priority):
    """systemd sets JOURNAL_STREAM to the device and inode of the pipe that the journal reads."""
    code = (
        "import os; from ternhost import log; status = os.fstat(2); "
        "os.environ['JOURNAL_STREAM'] = f'{status.st_dev}:{status.st_ino}'; "
        f"log.use({style!r}); log.say({level}, 'a board is away')"
    )
    ended = warm.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.startswith(f"<{priority}>")


def test_a_log_whose_reader_is_gone_does_not_end_the_command(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [*warm.TERN, *SERVE]
    ended = subprocess.run(command, stderr=writing, stdout=subprocess.DEVNULL, cwd=tmp_path)
    os.close(writing)
    assert ended.returncode == 0


def test_a_served_run_tells_systemd_when_it_is_ready(tmp_path):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        environment = {**os.environ, "NOTIFY_SOCKET": address}
        subprocess.run([*warm.TERN, *SERVE], env=environment, cwd=tmp_path, check=True)
        listener.settimeout(10)
        assert listener.recv(100) == b"READY=1"
