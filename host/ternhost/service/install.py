"""Installs a service: its user, its directory and its unit, and starts it."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from ternhost import programs
from ternhost.errors import DeviceError, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.guides import guide
from ternhost.service.unit import STATE, USER, Unit, unit_name

_SYSTEMD = Path("/run/systemd/system")  # is there while systemd runs
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LINES = "15"  # of the log of a service that does not start


def require_possible(unit: Unit) -> None:
    """Raise an error if a service cannot be installed here. Nothing is changed.

    Raises UsageError, or DeviceError if a program that it starts is missing.
    """
    if not _SYSTEMD.is_dir() or shutil.which("systemctl", path=_SEARCH_PATH) is None:
        text = "systemd does not run on this machine"
        hint = "'tern service show' prints the unit; without systemd, see "
        hint += guide("operate.md")
        raise UsageError(text, hint=hint)
    if os.geteuid() != 0:
        raise UsageError("only root can install a service", hint="run the same command with sudo")
    name = unit_name(unit.name)
    is_known = _output("systemctl", "show", "--property=LoadState", "--value", name)
    if unit.file.exists() or is_known.strip() not in ("not-found", ""):
        hint = f"name another, or remove it: {remove_command(unit)}"
        raise UsageError(f"there is a unit {name} already", hint=hint)
    for program in unit.needs.programs:
        programs.find(program, _SEARCH_PATH)


def make_user() -> None:
    """Make the user of services and its directory, unless they are there.

    Raises UsageError if the user cannot be made, StorageError if the directory cannot.
    """
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        _run(
            "useradd",
            "--system",
            "--user-group",
            "--home-dir",
            str(STATE),
            "--shell",
            "/usr/sbin/nologin",
            USER,
        )
        entry = pwd.getpwnam(USER)
    with storage_errors():
        if not STATE.is_dir():
            STATE.mkdir(mode=0o750, parents=True)
            os.chown(STATE, entry.pw_uid, entry.pw_gid)


def start(unit: Unit) -> None:
    """Write the unit, enable and start the service, and wait until it is ready.

    A service that does not start is removed again. Raises DeviceError with the end of its log.
    """
    name = unit_name(unit.name)
    with storage_errors():
        write_file(unit.file, unit.text.encode())
    try:
        _run("systemctl", "daemon-reload")
        _run("systemctl", "enable", "--quiet", name)
        _run("systemctl", "start", name)
    except UsageError as error:
        lines = _output("journalctl", "--unit", name, "--lines", _LINES, "--output", "cat")
        _output("systemctl", "disable", "--now", "--quiet", name)
        unit.file.unlink(missing_ok=True)
        _output("systemctl", "daemon-reload")
        _output("systemctl", "reset-failed", name)
        log_lines = lines.strip() or error.message
        text = f"{name} does not start, and is removed again; its log:\n  "
        text += log_lines.replace("\n", "\n  ")
        raise DeviceError(text, hint="put this right, and install it again") from error


def remove_command(unit: Unit) -> str:
    """Return the command line that stops and removes a service. Its files in STATE stay."""
    name = unit_name(unit.name)
    return f"systemctl disable --now {name}; rm {unit.file}; systemctl daemon-reload"


def _run(*command: str) -> None:
    """Run a program. Raises UsageError with what it has printed, if it fails."""
    try:
        ended = _ended(*command)
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}", hint=f"install {command[0]}") from error
    if ended.returncode != 0:
        printed = (ended.stderr or ended.stdout).strip()
        text = f"{' '.join(command)} has failed: {printed or ended.returncode}"
        raise UsageError(text, hint="put this right, and install the service again")


def _output(*command: str) -> str:
    """Return what a program prints; "" if it cannot be run."""
    try:
        return _ended(*command).stdout
    except OSError:
        return ""


def _ended(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which pages nothing, until it ends. Raises OSError if it cannot be run."""
    environment = {**os.environ, "PATH": _SEARCH_PATH, "SYSTEMD_PAGER": "", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment
    )
