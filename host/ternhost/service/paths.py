"""Finds the paths that a command line names, and whether a service could use them."""

import argparse
import os
import pwd
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.guides import guide
from ternhost.service.unit import STATE, USER

# A service does not see what is in these directories (ProtectHome).
_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
_DEVICES = Path("/dev")
# Attributes of the arguments that name a command, and no file.
_OF_COMMANDS = {"prog", "command", "verb", "learner", "name"}
_OF_PATHS = {"directory", "broker", "store", "dir"}  # attributes that name nothing else
_INSTALL = (
    "install it where every user may read it, such as in /opt/tern (python3 -m venv /opt/tern), and "
    f"give this command there: see {guide('operate.md')}"
)


def named_in(args: argparse.Namespace) -> Iterator[str]:
    """Yield the texts among the arguments of a command that may be paths.

    Of "mqtt:my-broker" that is "my-broker". A word without a slash or a dot may be the name of
    something else, such as a data set; it is a path only as the value of some arguments.
    """
    for name, value in vars(args).items():
        if name in _OF_COMMANDS:
            continue
        texts = value if isinstance(value, list) else [value]
        for text in texts:
            if not isinstance(text, str):
                continue
            _kind, colon, rest = text.partition(":")
            if colon and rest:
                yield rest
            if name in _OF_PATHS or "/" in text or "." in text:
                yield text


def writable_outside(args: argparse.Namespace) -> list[Path]:
    """Return the directories outside of STATE that a command may write to.

    They are the directories that the arguments name, and that of --store.
    """
    found = []
    for text in named_in(args):
        path = Path(text)
        if path.is_absolute() and path.is_dir() and not _is_below(path, _DEVICES):
            found.append(path)
    store = getattr(args, "store", None)
    if isinstance(store, str) and Path(store).is_absolute():
        found.append(Path(store).parent)
    outside = [path for path in found if not _is_below(path, STATE)]
    return sorted(set(outside))


def check(args: argparse.Namespace) -> None:
    """Raise UsageError if a service could not use the files that the arguments name."""
    for text in dict.fromkeys(named_in(args)):
        if "\0" in text or len(text.encode(errors="replace")) > os.pathconf("/", "PC_NAME_MAX"):
            continue
        path = Path(text)
        if text.startswith("~"):
            raise UsageError(f"{text}: a service has no such home", hint="give an absolute path")
        if not path.is_absolute():
            _check_relative(path)
        elif path.exists() and not _is_below(path, _DEVICES):
            _check_readable(path, f"move it to {STATE}, and give it to its user: chown -R {USER}:")
    for directory in writable_outside(args):
        if directory.exists() and not _may(directory, os.W_OK):
            text = f"the user {USER} of services cannot write to {directory}"
            raise UsageError(text, hint=f"chown -R {USER}: {directory}, or use a path in {STATE}")


def check_interpreter() -> None:
    """Raise UsageError if a service could not start the Python that runs this command."""
    interpreter = Path(sys.executable)
    places = (interpreter, Path(os.path.realpath(interpreter)), Path(__file__))
    for place in places:
        _check_readable(place, _INSTALL)
    if not _may(places[1], os.X_OK):
        raise UsageError(f"the user {USER} of services cannot run {places[1]}", hint=_INSTALL)


def _check_relative(path: Path) -> None:
    """Raise UsageError for a relative path that is here, and not where the service works."""
    is_elsewhere = path.exists() and not (STATE / path).exists()
    if not is_elsewhere:
        if (STATE / path).exists():
            _check_readable(STATE / path, f"give it to its user: chown -R {USER}: {STATE / path}")
        return
    text = f"{path} is in your working directory, and a service works in {STATE}"
    hint = f"move it there and give it to its user, then name it as now: mv {path} {STATE}/ && "
    raise UsageError(text, hint=f"{hint}chown -R {USER}: {STATE / path}")


def _check_readable(path: Path, hint: str) -> None:
    """Raise UsageError if a service could not read a path."""
    real_path = Path(os.path.realpath(path))
    for hidden in _HIDDEN:
        if _is_below(real_path, hidden) or _is_below(path, hidden):
            raise UsageError(f"{path}: services do not see files below {hidden}", hint=hint)
    if not _may(real_path, os.R_OK):
        raise UsageError(f"the user {USER} of services cannot read {path}", hint=hint)


def _may(path: Path, access: int) -> bool:
    """Return whether the user of services may access a path.

    access: os.R_OK, os.W_OK or os.X_OK. All directories above the path must let the user pass.
    """
    if not _allows(path, access):
        return False
    return all(_allows(parent, os.X_OK) for parent in path.parents)


def _allows(path: Path, access: int) -> bool:
    """Return whether the mode of a file or directory lets the user of services access it."""
    try:
        status = path.stat()
    except OSError:
        return False
    user, groups = _user_and_groups()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == user:
        mode >>= 6
    elif status.st_gid in groups:
        mode >>= 3
    return mode & access == access


def _user_and_groups() -> tuple[int | None, set[int]]:
    """Return the id of the user of services, and those of its groups; None if there is none yet."""
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        return None, set()
    return entry.pw_uid, set(os.getgrouplist(USER, entry.pw_gid))


def _is_below(path: Path, directory: Path) -> bool:
    """Return whether a path is a directory or something in it."""
    return path == directory or directory in path.parents
