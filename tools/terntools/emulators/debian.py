"""Debian packages: those to install, and the sources of those that tern builds."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternhost.cache import Progress, cache_root, sha256_of
from ternhost.errors import TernError, UsageError

# The release whose sources are built on any machine; one whose sources fit older compilers; the
# testing release.
RELEASE = "trixie"
OLDER = "bookworm"
NEXT = "forky"
_KEYRINGS = ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp")

# The date that is built in: that of MicroPython's package, so that the same source gives the same
# binary.
_SOURCE_DATE = "1746316800"

# Variables of a calling `make` or of a user's own builds that would leak into ours.
_LEAKS = {
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "MAKEOVERRIDES",
    "MAKEFILES",
    "CC",
    "CFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "V",
}


_SHOWN_LINES = 12  # of the output of a step that failed


@dataclass(frozen=True)
class Requirement:
    """A Debian package. It is not needed if its `command` is on PATH, wherever that is from."""

    package: str
    command: str | None = None

    def is_met(self) -> bool:
        """Return whether the command is on PATH, or the package is installed."""
        if self.command and shutil.which(self.command):
            return True
        try:
            command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", self.package]
            answer = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            return False
        return answer.returncode == 0 and answer.stdout == "installed"


class BuildError(TernError):
    """A step of a build failed; its log is kept."""


@dataclass(frozen=True)
class Shell:
    """Runs the steps of a build, with their output in a log."""

    log: Path
    progress: Progress

    def run(self, *command: str | Path, cwd: Path | None = None) -> None:
        """Run a command to its end; raise BuildError with the end of its output if it fails."""
        environment = {name: value for name, value in os.environ.items() if name not in _LEAKS}
        environment.update(
            LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive", SOURCE_DATE_EPOCH=_SOURCE_DATE
        )
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            output_start = log.tell()
            try:
                exit_code = subprocess.run(
                    command,
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                ).returncode
            except FileNotFoundError as error:
                raise BuildError(f"{command[0]} is not installed") from error
        if exit_code:
            output = (
                self.log.read_bytes()[output_start:].decode(errors="replace").strip().splitlines()
            )
            kept_log = cache_root() / "failed-build.log"
            kept_log.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.log, kept_log)
            last_lines = "\n    ".join(output[-_SHOWN_LINES:])
            text = f"{Path(command[0]).name} failed with exit code {exit_code}:\n    {last_lines}"
            raise BuildError(text, hint=f"log: {kept_log}")


def install(requirements: Collection[Requirement], progress: Progress) -> None:
    """`require` outside of a build."""
    with tempfile.TemporaryDirectory() as folder:
        needed = sorted(requirements, key=lambda requirement: requirement.package)
        require(needed, Shell(Path(folder, "log"), progress))


def require(requirements: Iterable[Requirement], shell: Shell) -> None:
    """Install the packages that are missing, as root.

    Raises UsageError with their names if the user is not root, or if there is no apt.
    """
    missing = [requirement.package for requirement in requirements if not requirement.is_met()]
    if not missing:
        return
    names = " ".join(missing)
    if not shutil.which("apt-get"):
        text = f"these are needed, by their names in Debian: {names}"
        raise UsageError(text, hint="install them, then try again")
    if os.geteuid() != 0:
        hint = f"as root: apt-get install --no-install-recommends {names}"
        raise UsageError(f"Debian packages are missing: {names}", hint=hint)
    shell.progress(f"installing Debian packages: {names}")
    shell.run("apt-get", "update")
    shell.run("apt-get", "install", "--yes", "--no-install-recommends", *missing)


def download(
    sources: Sequence[str],
    binaries: Sequence[str],
    folder: Path,
    shell: Shell,
    release: str = RELEASE,
) -> None:
    """Download source and binary packages of `release` into `folder`, checked by apt's signatures.

    A separate state of apt beside them needs no root and leaves the system's alone.
    """
    state = folder / f"apt-{release}"
    for subfolder in ("lists/partial", "cache/archives/partial"):
        (state / subfolder).mkdir(parents=True)
    archive = f"[signed-by={_keyring()}] {_mirror()} {release} main"
    lines = []
    if binaries:
        lines.append(f"deb {archive}\n")
    if sources:
        lines.append(f"deb-src {archive}\n")
    (state / "sources.list").write_text("".join(lines))
    settings = {
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    apt_command = ["apt-get", *(f"--option={name}={value}" for name, value in settings.items())]
    shell.run(*apt_command, "update")
    if binaries:
        shell.run(*apt_command, "download", *binaries, cwd=folder)
    if sources:
        shell.run(*apt_command, "source", "--download-only", *sources, cwd=folder)


def only(folder: Path, pattern: str) -> Path:
    """Return the only file of `folder` that fits `pattern`. Raises BuildError."""
    files = list(folder.glob(pattern))
    if len(files) != 1:
        text = (
            f"Debian's packages are not made as they were: {len(files)} files are called {pattern}"
        )
        raise BuildError(text, hint="report it: what terntools takes out of them needs an update")
    return files[0]


def require_checksums(folder: Path, wanted: Mapping[str, str]) -> None:
    """Raise BuildError where a file of `folder` is not the one whose SHA-256 is `wanted`."""
    for name, checksum in wanted.items():
        path = folder / name
        if not path.exists() or sha256_of(path) != checksum:
            text = f"Debian's {name} is not the one that tern was made for"
            raise BuildError(text, hint="report it: the checksums in terntools need an update")


def _keyring() -> Path:
    """The file of Debian's signing keys. Raises UsageError."""
    for name in _KEYRINGS:
        path = Path("/usr/share/keyrings", name)
        if path.exists():
            return path
    hint = "as root: apt-get install debian-archive-keyring"
    raise UsageError("Debian's signing keys are missing", hint)


def _mirror() -> str:
    """Return the address of a mirror of Debian: $TERN_DEBIAN_MIRROR, or one that apt knows.

    Raises UsageError if apt knows none.
    """
    override = os.environ.get("TERN_DEBIAN_MIRROR")
    if override:
        return override
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)"]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    rows = [line.partition(" ") for line in output.splitlines()]
    for uri, _, label in rows:
        if label == "Debian":
            return uri
    for uri, _, _ in rows:  # before the lists have been read there is no label
        if uri.rstrip("/").endswith("/debian"):
            return uri
    hint = "set TERN_DEBIAN_MIRROR to one, or TERN_MICROPYTHON to a suitable interpreter"
    raise UsageError("apt knows no Debian mirror on this machine", hint=hint)
