"""At which commit `tern hil` measures figures, and why there is none."""

import shutil
import subprocess

import pytest

from terntools.testing import commits
from terntools.testing.commits import Commit

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="Git is not installed")


def git(*words):
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


@pytest.fixture
def outside(here, monkeypatch):
    """A directory in no repository, whatever is above it."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    return here


@needs_git
def test_a_commit_is_named_by_its_first_digits(outside):
    git("init")
    git("commit", "--allow-empty", "-m", "First")
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    assert commits.current() == Commit(head.stdout[:12])


@needs_git
def test_a_changed_file_makes_a_commit_dirty(outside):
    git("init")
    (outside / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "First")
    (outside / "file").write_text("b")
    assert commits.current().name.endswith("-dirty")


@needs_git
def test_a_folder_outside_of_a_repository_has_no_commit(outside):
    assert commits.current() == Commit(commits.NONE, "this folder is in no Git repository")


@needs_git
def test_a_repository_without_commits_is_not_taken_for_none(outside):
    git("init")
    assert commits.current() == Commit(commits.NONE, "this Git repository has no commit yet")


def test_without_git_there_is_no_commit(here, monkeypatch):
    monkeypatch.setenv("PATH", str(here))
    assert commits.current() == Commit(commits.NONE, "Git is not installed")


def test_a_git_that_may_not_be_run_is_not_taken_for_none(here, monkeypatch):
    (here / "git").touch()
    monkeypatch.setenv("PATH", str(here))
    assert commits.current().why_none.startswith("Git cannot be run")


def test_the_words_of_git_are_shown_if_it_fails_for_another_reason(here, monkeypatch):
    """Such as a repository of another user, which Git does not read."""
    program = here / "git"
    program.write_text("#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:/bin:/usr/bin")
    assert commits.current().why_none == "Git says: fatal: detected dubious ownership"
