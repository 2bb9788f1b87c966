"""Which Git commit the current directory is at, for the history of a board's figures."""

import os
import subprocess
from dataclasses import dataclass

NONE = "no commit"  # stands in the history for values that were measured without one


@dataclass(frozen=True)
class Commit:
    """A Git commit. name: NONE if there is none. why_none: why there is none, in words; else ""."""

    name: str
    why_none: str = ""


def current() -> Commit:
    """Return the commit of the current directory, or why it has none.

    The name ends with "-dirty" if a file in the directory differs from the commit.
    """
    try:
        repository = _git("rev-parse", "--git-dir")
    except OSError as error:
        why_none = f"Git cannot be run: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            why_none = "Git is not installed"
        return Commit(NONE, why_none)
    if repository.returncode != 0:
        if "not a git repository" in repository.stderr:
            return Commit(NONE, "this folder is in no Git repository")
        return Commit(NONE, f"Git says: {_first_line(repository.stderr)}")
    if _git("rev-parse", "--verify", "--quiet", "HEAD").returncode != 0:
        return Commit(NONE, "this Git repository has no commit yet")

    described = _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    name = described.stdout.strip()
    if not name:
        return Commit(NONE, f"Git says: {_first_line(described.stderr)}")
    return Commit(name)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Git, whose messages are in English. Raises OSError if it cannot be run."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        ["git", *words], capture_output=True, text=True, errors="replace", env=environment
    )


def _first_line(text: str) -> str:
    """Return the first line of what Git has printed."""
    lines = text.strip().splitlines()
    return lines[0] if lines else "nothing"
