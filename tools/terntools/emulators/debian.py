"""Installs Debian packages, and downloads the sources of those from which tern builds emulators."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternhost.cache import Progress, cache_root, sha256_of
from ternhost.errors import TernError, UsageError

RELEASE = "trixie"  # the release of Debian whose sources are built, on any machine
OLDER = "bookworm"  # one whose sources fit older compilers
NEXT = "forky"  # the testing release
# The file of Debian's signing keys has the first name in newer releases, or the second.
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
    """A Debian package that a build needs.

    command: if the user has this program on PATH, from wherever, the package is not needed; None: the
    package is always needed.
    """

    package: str
    command: str | None = None

    def is_met(self) -> bool:
        """Return whether the command is on PATH, or the package is installed."""
        if self.command and shutil.which(self.command):
            return True
        try:
            command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", self.package]
            answer = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:  # not a Debian
            return False
        return answer.returncode == 0 and answer.stdout == "installed"


class BuildError(TernError):
    """A step of a build failed. Its log is kept."""


@dataclass(frozen=True)
class Shell:
    """Runs the steps of a build, and appends their output to a log.

    progress: shows the user a line about a step.
    """

    log: Path
    progress: Progress

    def run(self, *command: str | Path, cwd: Path | None = None) -> None:
        """Run a command to its end; raise BuildError with the end of its output if it fails."""
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            output_start = log.tell()
            try:
                finished = subprocess.run(
                    command,
                    cwd=cwd,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            except FileNotFoundError as error:
                raise BuildError(f"{command[0]} is not installed") from error
        if finished.returncode != 0:
            output = self.log.read_bytes()[output_start:].decode(errors="replace")
            last_lines = "\n    ".join(output.strip().splitlines()[-_SHOWN_LINES:])
            name = Path(command[0]).name
            text = f"{name} failed with exit code {finished.returncode}:\n    {last_lines}"
            raise BuildError(text, hint=f"log: {self._keep_log()}")

    def _keep_log(self) -> Path:
        """Copy the log into the cache, where it outlives the folder of the build; return the copy."""
        kept_log = cache_root() / "failed-build.log"
        kept_log.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.log, kept_log)
        return kept_log


def _environment() -> dict[str, str]:
    """Return the environment variables of a build step.

    They are this process's without those that would change what is built, and with some that make
    the same source give the same binary.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _LEAKS}
    environment["LC_ALL"] = "C.UTF-8"
    environment["DEBIAN_FRONTEND"] = "noninteractive"
    environment["SOURCE_DATE_EPOCH"] = _SOURCE_DATE
    return environment


def install(requirements: Collection[Requirement], progress: Progress) -> None:
    """Install the required packages that are missing, as `require` does, without a build's log.

    Raises UsageError and BuildError.
    """
    needed = sorted(requirements, key=lambda requirement: requirement.package)
    with tempfile.TemporaryDirectory() as folder:
        require(needed, Shell(Path(folder, "log"), progress))


def require(requirements: Iterable[Requirement], shell: Shell) -> None:
    """Install the required packages that are missing.

    Only root can install packages. Raises UsageError with the names of the packages for any other
    user, and on a machine without apt.
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
    dependencies: bool = False,
) -> None:
    """Download source and binary packages into `folder`; apt checks their signatures.

    sources, binaries: names of packages as apt takes them, such as "qemu" or "pioasm=2.1.1-1".
    release: of Debian. dependencies: whether to download all that the binary packages depend on,
    too, down to the C library. apt gets a state of its own in the folder, so that it needs no root
    and leaves that of the system alone.
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

    apt_command = ["apt-get", *_apt_options(state)]
    shell.run(*apt_command, "update")
    if binaries and dependencies:
        _download_with_dependencies(binaries, folder, shell, state)
    elif binaries:
        shell.run(*apt_command, "download", *binaries, cwd=folder)
    if sources:
        shell.run(*apt_command, "source", "--download-only", *sources, cwd=folder)


def _download_with_dependencies(
    binaries: Sequence[str], folder: Path, shell: Shell, state: Path
) -> None:
    """Download binary packages and all that they depend on, as if nothing were installed yet.

    state: the folder with apt's own state. The other parameters are those of `download`.
    """
    status = state / "status"
    status.touch()
    options = [*_apt_options(state), f"--option=Dir::State::Status={status}"]
    options += ["--download-only", "--yes", "--no-install-recommends"]
    shell.run("apt-get", "install", *options, *binaries)
    for package in (state / "cache" / "archives").glob("*.deb"):
        package.rename(folder / package.name)


def _apt_options(state: Path) -> list[str]:
    """Return the options that let apt-get keep its state in a folder, and read only its sources."""
    settings = {
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": state / "lists",
        "Dir::Cache": state / "cache",
        # Root's apt would download as another user, who cannot write here.
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    return [f"--option={name}={value}" for name, value in settings.items()]


def only(folder: Path, pattern: str) -> Path:
    """Return the only file of `folder` whose name fits `pattern`. Raises BuildError."""
    files = list(folder.glob(pattern))
    if len(files) != 1:
        text = (
            f"Debian's packages are not made as they were: {len(files)} files are called {pattern}"
        )
        raise BuildError(text, hint="report it: what terntools takes out of them needs an update")
    return files[0]


def require_checksums(folder: Path, wanted: Mapping[str, str]) -> None:
    """Raise BuildError unless these files of `folder` are those that tern was made for.

    wanted: SHA-256 checksums by the file's name.
    """
    for name, checksum in wanted.items():
        path = folder / name
        if not path.exists() or sha256_of(path) != checksum:
            text = f"Debian's {name} is not the one that tern was made for"
            raise BuildError(text, hint="report it: the checksums in terntools need an update")


def _keyring() -> Path:
    """Return the file of Debian's signing keys. Raises UsageError if it is not installed."""
    for name in _KEYRINGS:
        path = Path("/usr/share/keyrings", name)
        if path.exists():
            return path
    hint = "as root: apt-get install debian-archive-keyring"
    raise UsageError("Debian's signing keys are missing", hint)


def _mirror() -> str:
    """Return the address of a mirror of Debian.

    It is $TERN_DEBIAN_MIRROR if that is set, else one that the apt of this machine uses. Raises
    UsageError if there is none.
    """
    override = os.environ.get("TERN_DEBIAN_MIRROR")
    if override:
        return override
    # A line for each repository: its address, a space, and its label, which may be empty.
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)"]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    addresses = []
    for line in output.splitlines():
        address, _, label = line.partition(" ")
        if label == "Debian":
            return address
        addresses.append(address)
    # Before the lists of packages have been read there are no labels.
    for address in addresses:
        if address.rstrip("/").endswith("/debian"):
            return address
    hint = "set TERN_DEBIAN_MIRROR to one, or TERN_MICROPYTHON to a suitable interpreter"
    raise UsageError("apt knows no Debian mirror on this machine", hint=hint)
