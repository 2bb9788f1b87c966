"""A command that fails says so wherever it is heard: to people, to programs, over streams that are closed or odd."""

import json
import os
import signal
import subprocess
import sys

import pytest

from ternhost import cli, errors

TERN = [sys.executable, "-c", "import sys; from ternhost.cli import main; sys.exit(main())"]


def tern(*words, **options):
    return subprocess.run(
        [*TERN, *words], **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    )


def tern_with_closed(streams, *words):
    """Run tern with these of the standard streams closed, as `>&-` of a shell leaves them."""
    redirections = " ".join(f"{number}>&-" for number in streams)
    return subprocess.run(["sh", "-c", f'exec "$@" {redirections}', "sh", *TERN, *words], capture_output=True)


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["card", "show", "nonsense", "--epsilon", "2", "--json"], errors.USAGE, "one of: "),
        (["card", "show", "--json"], errors.USAGE, "tern card show --help"),
        (["card", "show", "--js"], errors.USAGE, "tern card show --help"),
        (["nonsense", "--json"], errors.USAGE, "tern --help"),
        (["--json"], errors.USAGE, "tern --help"),
        (["emulator", "build", "--json", "--what", "toaster"], errors.USAGE, "with commas"),
        (["monitor", "a99", "--json"], errors.NO_DEVICE, None),
        (["card", "certify", "no-such-file", "--epsilon", "2", "--json"], errors.USAGE, None),
    ],
)
def test_json_tells_of_a_failure(words, code, hint, capsys):
    assert cli.main(words) == code
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert told.keys() == {"error", "hint", "exit_code"}
    assert told["exit_code"] == code
    assert told["error"]
    assert said.err.startswith(f"tern: {told['error']}")
    if hint:
        assert hint in told["hint"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["device", "ping", "a0", "--count", "0"], "--count must be 1 or more, not 0"),
        (["device", "info"], "one of the arguments BOARD --fleet is required"),
        (
            ["bench", "latency", "a0", "--fleet", "emulated:1"],
            "argument --fleet: not allowed with argument BOARD",
        ),
        (["experiment", "mean", "--runs", "0"], "--runs must be 1 or more, not 0"),
        (["experiment", "mean", "--seed", "-1"], "--seed must be 0 or more, not -1"),
        (
            ["hil", "--hardware-map", "none.yaml", "--timeout", "nan"],
            "--timeout must be a number above 0, not nan",
        ),
        (["emulator", "run", "--blank"], "--blank needs --volume DIR"),
        (["emulator", "build", "--what", "toaster"], "--what must be of device, pico,"),
    ],
)
def test_a_refused_value_is_told_as_what_it_must_be(words, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == errors.USAGE
    assert capsys.readouterr().err.startswith(f"tern: {message}")
    assert list(tmp_path.iterdir()) == []


def test_without_json_standard_output_stays_empty(capsys):
    assert cli.main(["card", "show", "nonsense", "--epsilon", "2"]) == errors.USAGE
    assert capsys.readouterr().out == ""


def test_an_interrupted_command_tells_programs_as_well(monkeypatch, capsys):
    def interrupt(argv):
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()

    monkeypatch.setattr(cli, "_run", interrupt)
    assert cli.main(["train", "--json"]) == errors.INTERRUPTED
    assert json.loads(capsys.readouterr().out) == {"error": "interrupted", "hint": None, "exit_code": 130}


def test_a_closed_standard_output_is_no_fault():
    ended = tern_with_closed([1], "card", "show", "duchi", "--epsilon", "2")
    assert (ended.returncode, ended.stderr) == (errors.OK, b"")
    ended = tern_with_closed([1], "card", "show", "nonsense", "--epsilon", "2", "--json")
    assert ended.returncode == errors.USAGE
    assert b"nonsense" in ended.stderr


def test_all_streams_closed_and_no_file_takes_their_place(tmp_path):
    card = tmp_path / "a.card"
    words = ("card", "design", "duchi", "--epsilon", "2", "-o", str(card))
    assert tern_with_closed([0, 1, 2], *words).returncode == errors.OK
    found = card.read_bytes()
    assert tern(*words).returncode == errors.OK
    assert card.read_bytes() == found, "nothing that was printed is in the file"


def test_a_full_disk_under_both_streams_keeps_the_exit_code():
    with open("/dev/full", "w") as full:
        ended = tern("card", "show", "nonsense", "--epsilon", "2", "--json", stdout=full, stderr=full)
    assert ended.returncode == errors.USAGE


def test_an_experiment_says_beforehand_that_its_results_have_no_place(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["experiment", "mean", "--output", str(tmp_path / "file" / "below")]) == errors.STORAGE
    assert "--output" in capsys.readouterr().err


def test_an_experiment_that_is_refused_leaves_no_directory(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["experiment", "variance", "--dataset", "iris"]) == errors.USAGE
    assert list((tmp_path / "runs").iterdir()) == []
    (tmp_path / "runs").rmdir()
    (tmp_path / "runs").touch()
    assert cli.main(["experiment", "variance"]) == errors.STORAGE
    assert "--output" in capsys.readouterr().err
