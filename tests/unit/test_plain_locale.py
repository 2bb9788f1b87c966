"""In the locale C, names of files in any script are read, and printed as well as it can be."""

import os
import subprocess
import sys

import pytest

RUN = "日本語の実行"
FOLDER = "jörg"
LOCALES = {
    "C": {"LC_ALL": "C"},
    "POSIX without UTF-8": {
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    },
    "C with ASCII alone": {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    },
}


@pytest.fixture(params=LOCALES.values(), ids=LOCALES)
def tern_in_locale(tmp_path, request):
    """`tern(*words)` runs a command in a folder with an umlaut, and returns what it printed."""
    folder = tmp_path / FOLDER
    folder.mkdir()

    def run(*words):
        ended = subprocess.run(
            [sys.executable, "-m", "ternhost", *words],
            cwd=folder,
            env={**os.environ, **request.param},
            capture_output=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.decode()

    return run


def test_a_run_may_have_a_japanese_name(tern_in_locale, tmp_path):
    words = "fedsgd --data flights --fleet simulated:100 --reports 4 --group 2 --no-report --name"
    tern_in_locale("train", *words.split(), RUN)
    tern_in_locale("resume", RUN)
    assert (tmp_path / FOLDER / "runs" / RUN / "result.json").exists()


def test_a_broker_may_be_in_a_directory_with_an_umlaut(tern_in_locale, tmp_path):
    tern_in_locale("broker", "config", "bröker")
    printed = tern_in_locale("broker", "config", "bröker")
    assert "ker: passwords of 0 devices" in printed
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["bröker"]
