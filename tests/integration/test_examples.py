"""The examples, each as a user starts it, with small sizes."""

import os
import subprocess
import sys
from pathlib import Path

from ternhost.reach.broker.mosquitto import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
TERN = f'#!/bin/sh\nexec {sys.executable} -c "import sys; from ternhost.cli import main; sys.exit(main())" "$@"\n'


def run(directory, command, **environment):
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(directory, name, *argv):
    return run(directory, [sys.executable, EXAMPLES / name, *argv])


def test_all_are_named_where_they_are_listed():
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    listed = (EXAMPLES / "README.md").read_text()
    tested = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert there
    assert all(f"[{name}]({name})" in listed and f'"{name}"' in tested for name in there)


def test_training_makes_a_picture(tmp_path):
    said = python(tmp_path, "train_and_plot.py", "--clients", "2000", "--picture", "mine.png")
    assert said.count("accuracy 0.") == 3
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 3


def test_means_on_boards(tmp_path):
    said = python(tmp_path, "collect_on_boards.py", "--fleet", "emulated:1")
    assert "13 intervals hold the true mean" in said
    assert "an epsilon of 4" in said


def test_a_mechanism_of_one_s_own(tmp_path):
    said = python(tmp_path, "own_mechanism.py", "--clients", "2000")
    assert "0 with probability 0.25" in said
    assert said.count("accuracy 0.") == 2


def test_an_algorithm_of_one_s_own_stops_when_it_knows_enough(tmp_path):
    wide = python(tmp_path, "own_algorithm.py", "--width", "0.3")
    narrow = python(tmp_path, "own_algorithm.py", "--width", "0.1")
    reports = [int(said.split("after ")[1].split(" reports")[0].replace(",", "")) for said in (wide, narrow)]
    assert reports[0] < reports[1] < 10_000


def test_a_first_fleet(tmp_path):
    command = tmp_path / "tern"
    command.write_text(TERN)
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = run(tmp_path, [EXAMPLES / "first_fleet.sh", "mine"], PATH=path, PORT=str(free_port()))
    assert "100 reports of 18 bytes in 2 rounds" in said
    assert "fedsgd on flights, mqtt:mine" in said
    assert "collect on flights, mqtt:mine" in said
