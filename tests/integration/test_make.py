"""Every target of the Makefile that `make help` lists works: docs and help in each run of the tests,
the others with --exhaustive.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
# These run the tests, or are run beside them.
OF_THE_TESTS = {"setup", "check", "test", "exhaustive", "versions", "lint"}
# What to give to the others, and a file that they make (a pattern), if they make one. Those in the
# checkout install packages into .venv.
IN_THE_CHECKOUT = {"docs": ([], "build/site/index.html"), "soak": (["SECONDS=5"], None)}
IN_A_COPY = {
    "help": ([], None),
    "demo": ([], "runs/*/report.html"),
    "sizes": ([], None),
    "lock": ([], "tools/locks/docs.txt"),
    "release": ([], "dist/*.whl"),
    "clean": ([], None),
}
QUICK = {"help", "docs"}


def make(target, folder, *variables):
    """Run a target in a folder whose .venv is set up; return the exit code and the output."""
    command = ["make", "--old-file=setup", target, *variables]
    environment = {**os.environ, "MAKEFLAGS": ""}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200
    )
    return ended.returncode, ended.stdout + ended.stderr


def is_set_up():
    """Whether .venv is as tools/setup.sh would leave it, so that this would not make it anew."""
    ready = ROOT / ".venv/.ready"
    if not ready.exists():
        return False
    locks = (ROOT / "tools/locks").glob("*")
    newest = max(each.stat().st_mtime for each in (ROOT / "pyproject.toml", *locks))
    return newest < ready.stat().st_mtime


@pytest.fixture
def copy(tmp_path):
    """A repository with the files of the checkout as they are now, and its .venv."""
    git = ["git", "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in listed.stdout.split("\0"):
        if (ROOT / path).is_file():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tmp_path / path)
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "a copy"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / ".git/info/exclude").write_text(".venv\n")
    return tmp_path


def of(targets):
    """The targets as parameters; those that take long only with --exhaustive."""
    parameters = []
    for target in targets:
        marks = () if target in QUICK else pytest.mark.exhaustive
        parameters.append(pytest.param(target, marks=marks))
    return parameters


def test_every_target_is_tried():
    assert {*TARGETS} == {*OF_THE_TESTS, *IN_THE_CHECKOUT, *IN_A_COPY}


@pytest.mark.parametrize("target", of(IN_THE_CHECKOUT))
def test_a_target_works(target):
    if not is_set_up():
        pytest.skip("make setup has to come first")
    variables, made = IN_THE_CHECKOUT[target]
    code, said = make(target, ROOT, *variables)
    assert code == 0, said
    assert made is None or list(ROOT.glob(made))


@pytest.mark.parametrize("target", of(IN_A_COPY))
def test_a_target_works_in_another_folder(target, copy):
    variables, made = IN_A_COPY[target]
    code, said = make(target, copy, *variables)
    assert code == 0, said
    assert made is None or list(copy.glob(made))


@pytest.mark.exhaustive
def test_clean_removes_what_was_built(copy):
    (copy / "build/site").mkdir(parents=True)
    make("clean", copy)
    assert not (copy / "build").exists()


def test_the_site_needs_only_files_of_the_repository(copy):
    """A link to a file that only a checkout in use has would break the site of a fresh clone."""
    prepared = subprocess.run(
        [ROOT / ".venv/bin/python", "-c", "import make_site; make_site.prepare()"],
        cwd=copy / "docs",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert prepared.returncode == 0, prepared.stderr
