"""The emulated device's interpreter: a 32-bit MicroPython with single-precision floats.

Small ints, floats and viper's 32-bit wrap are as on boards. It is found on this machine, or built
from the source of Debian's package, which has 64 bits.
"""

import contextlib
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ternhost import cache
from ternhost.cache import Progress, Recipe
from ternhost.errors import DeviceError, UsageError
from terntools.emulators import debian
from terntools.emulators.debian import Requirement, Shell

# A board's heap: RP2040 leaves about this much to Python.
DEVICE_HEAP = "192k"

MICROPYTHON_VERSION = "1.25.0+ds-1"
_MAKE_OPTIONS = {
    "MICROPY_FORCE_32BIT": "1",
    "MICROPY_PY_FFI": "0",
    "MICROPY_PY_BTREE": "0",
    "CFLAGS_EXTRA": "-DMICROPY_FLOAT_IMPL=MICROPY_FLOAT_IMPL_FLOAT",
}
_FROZEN = 'include("$(MPY_DIR)/extmod/asyncio")\n'
_OPTIONS = {"make": _MAKE_OPTIONS, "frozen": _FROZEN, "tls": "lib/mbedtls"}
RECIPE = Recipe("micropython-device", MICROPYTHON_VERSION, _OPTIONS, ("micropython",))

_TREE = "micropython.tar"
_LIBRARIES = ("mbedtls", "lwip")  # emptied in Debian's MicroPython, packages of their own
# A security update of Debian changes the version of a package and not the release that it is made
# from.
_CHECKSUMS = {
    "lwip_2.2.1+dfsg1.orig.tar.xz": "83729c274c499d3348e9fbbe043a3113f3fa8953e7efddc7c21c7fcbb1f2b7b1"
}

SOURCE_REQUIREMENTS = (
    Requirement("debian-archive-keyring"),
    Requirement("dpkg-dev", "dpkg-source"),
    Requirement("xz-utils", "xz"),
    Requirement("bzip2", "bzip2"),
    Requirement("patch", "patch"),
    Requirement("make", "make"),
    Requirement("gcc", "gcc"),
    Requirement("libc6-dev"),
    Requirement("pkgconf", "pkg-config"),
    Requirement("python3", "python3"),
)
_REQUIREMENTS = (*SOURCE_REQUIREMENTS, Requirement("gcc-multilib"))
ARM_COMPILER = (
    Requirement("gcc-arm-none-eabi", "arm-none-eabi-gcc"),
    Requirement("libnewlib-arm-none-eabi"),
)

# Run by a candidate: prints its version, then each missing feature on a line.
_PROBE = """
import sys
print("tern-probe", sys.version)
if getattr(sys, "maxsize", 0) != 2147483647:
    print("small ints are not those of a 32-bit build")
if 16777216.0 + 1.0 != 16777216.0:
    print("floats are not single precision")
viper = "import micropython\\n@micropython.viper\\ndef square(x: int) -> int:\\n    return x * x\\n"
try:
    names = {}
    exec(viper, names)
    if names["square"](70000) != 605032704:
        print("viper does not wrap at 32 bits")
except Exception as error:
    print("viper does not work:", error)
modules = "array asyncio binascii cryptolib hashlib json os select socket struct termios time tls"
for name in modules.split():
    try:
        __import__(name)
    except ImportError:
        print("module", name, "is missing")
"""


@dataclass(frozen=True)
class Interpreter:
    """A MicroPython of this machine. faults: why it cannot be an emulated device."""

    path: Path
    origin: str
    version: str
    faults: tuple[str, ...]


def device_command(interpreter: Path, *arguments: str | Path, heap: str = DEVICE_HEAP) -> list[str]:
    """The command that runs `interpreter` with a board's heap."""
    return [str(interpreter), "-X", f"heapsize={heap}", *map(str, arguments)]


def probe(path: Path, origin: str) -> Interpreter:
    """Run an interpreter, and find out why it cannot be an emulated device.

    origin: where the path is from, for people.
    """
    command = device_command(path, "-c", _PROBE)
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Interpreter(path, origin, "", (f"does not run: {error}",))
    first_line, *faults = answer.stdout.splitlines() or [""]
    if not first_line.startswith("tern-probe "):
        last_line = (answer.stderr.strip() or "no output").splitlines()[-1]
        faults = [f"is not a MicroPython that works: {last_line}"]
    return Interpreter(path, origin, first_line.removeprefix("tern-probe "), tuple(faults))


def candidates() -> list[Interpreter]:
    """Return the interpreters of this machine, the best first: on PATH, and in the cache.

    If the environment names one in TERN_MICROPYTHON, it is the only candidate.
    """
    named = os.environ.get("TERN_MICROPYTHON")
    if named:
        return [probe(Path(named), "TERN_MICROPYTHON")]

    interpreters = []
    on_path = shutil.which("micropython")
    if on_path:
        interpreters.append(probe(Path(on_path), "PATH"))
    entry = cache.find_entry(RECIPE)
    if entry is not None:
        interpreters.append(probe(entry / "micropython", "cache"))
    return interpreters


def find_micropython() -> Path:
    """Return the path of the emulated device's interpreter.

    Raises UsageError for an unfit $TERN_MICROPYTHON, DeviceError if there is none.
    """
    interpreters = candidates()
    for interpreter in interpreters:
        if not interpreter.faults:
            return interpreter.path
        if interpreter.origin == "TERN_MICROPYTHON":
            faults = "; ".join(interpreter.faults)
            text = f"TERN_MICROPYTHON={interpreter.path} cannot be used: {faults}"
            hint = "unset it, or name a 32-bit MicroPython with single-precision floats"
            raise UsageError(text, hint)

    text = "there is no interpreter for an emulated device yet"
    for interpreter in interpreters:
        text += f"; {interpreter.path}: {', '.join(interpreter.faults)}"
    raise DeviceError(text, hint="make it: tern emulator build")


def build_device(progress: Progress) -> Path:
    """Return the path of the interpreter, built into the cache if none is found.

    As root, missing Debian packages are installed. Raises UsageError.
    """
    with contextlib.suppress(DeviceError):
        return find_micropython()
    if platform.machine() not in ("x86_64", "i686"):
        hint = "set TERN_MICROPYTHON to a 32-bit MicroPython with single-precision floats"
        raise UsageError(
            f"the emulated device is built on x86 only, and this is {platform.machine()}", hint
        )
    cache.build_entry(RECIPE, lambda work, out: _compile(work, out, progress), progress)
    return find_micropython()


@dataclass(frozen=True)
class Source:
    """MicroPython's source package: a release of Debian, and the version; None: the release's."""

    release: str
    version: str | None

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            "micropython-source", self.version or self.release, {"libraries": _LIBRARIES}, (_TREE,)
        )

    def unpack(self, work: Path, shell: Shell) -> tuple[Path, dict[str, str]]:
        """Unpack the source, fetched once, into `work`.

        Returns its folder and the sha256 of every package.
        """
        progress = shell.progress
        entry = cache.build_entry(
            self.recipe, lambda into, out: self._fetch(into, out, progress), progress
        )
        shell.run("tar", "-xf", entry / _TREE, "-C", work)
        record = cache.read_record(self.recipe)
        assert record is not None
        return work / "micropython", record["built_with"]

    def _fetch(self, work: Path, out: Path, progress: Progress) -> dict[str, str]:
        """Make the tarball of the source, with the compiler mpy-cross in it.

        Returns the sha256 of every package.
        """
        shell = Shell(work / "build.log", progress)
        packages, source = work / "packages", work / "micropython"
        packages.mkdir()
        self._download(packages, shell)
        shell.run("dpkg-source", "--extract", debian.only(packages, "micropython_*.dsc"), source)
        _bundle_libraries(source, packages, shell)
        progress("compiling mpy-cross")
        make(shell, "-C", source / "mpy-cross")
        shell.run("tar", "-cf", out / _TREE, "-C", work, source.name)
        return checksums_in(packages)

    def _download(self, packages: Path, shell: Shell) -> None:
        """Download the packages of the source. Raises BuildError if one is not as expected."""
        source_words, package = "the newest MicroPython", "micropython"
        if self.version:
            source_words = f"MicroPython {self.version}"
            package = f"micropython={self.version}"
        shell.progress(f"fetching the source of {source_words} from Debian {self.release}")
        if self.release == debian.RELEASE:
            debian.download((package, *_LIBRARIES), (), packages, shell)
        else:
            debian.download((package,), (), packages, shell, self.release)
            debian.download(_LIBRARIES, (), packages, shell)
        debian.require_checksums(packages, _CHECKSUMS)


def _bundle_libraries(source: Path, packages: Path, shell: Shell) -> None:
    """Put libraries into the source that Debian took out of it.

    Debian links its own, 64-bit Mbed TLS. A board has the source of it.
    """
    change = debian.only(source / "debian/patches", "*Use-system-mbedtls.patch")
    shell.run("patch", "-R", "-p1", "-i", change, cwd=source)
    for library in _LIBRARIES:
        folder = source / "lib" / library
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tarball = debian.only(packages, f"{library}_*.orig.tar.*")
        shell.run("tar", "-xf", tarball, "-C", folder, "--strip-components=1")
    # micropython-lib only has to look present.
    (source / "lib/micropython-lib").mkdir(exist_ok=True)
    (source / "lib/micropython-lib/README.md").touch()


PINNED = Source(debian.RELEASE, MICROPYTHON_VERSION)


def make(shell: Shell, *arguments: str | Path) -> None:
    """Run make on all cores. Raises BuildError."""
    shell.run("make", "-s", f"-j{os.cpu_count()}", *arguments)


def checksums_in(packages: Path) -> dict[str, str]:
    """The sha256 of every package in a folder, for the record of a build."""
    checksums = {}
    for path in sorted(packages.iterdir()):
        if path.is_file():
            checksums[path.name] = cache.sha256_of(path)
    return checksums


def _compile(work: Path, out: Path, progress: Progress) -> dict[str, str]:
    """Build the interpreter of the emulated device, and return what it was built with.

    work: folder to build in. out: folder of the product.
    """
    shell = Shell(work / "build.log", progress)
    debian.require(_REQUIREMENTS, shell)
    source, packages = PINNED.unpack(work, shell)
    manifest = work / "manifest.py"
    manifest.write_text(_FROZEN)
    progress(
        "compiling MicroPython for the emulated device: unix, 32 bits, single-precision floats"
    )
    options = [f"{name}={value}" for name, value in _MAKE_OPTIONS.items()]
    make(shell, "-C", source / "ports/unix", "BUILD=build", f"FROZEN_MANIFEST={manifest}", *options)
    shutil.copy(source / "ports/unix/build/micropython", out / "micropython")
    return {**packages, "compiler": version_of("gcc")}


def version_of(command: str) -> str:
    """The first line of what `command --version` prints; empty if it is not installed."""
    if not shutil.which(command):
        return ""
    answer = subprocess.run([command, "--version"], capture_output=True, text=True)
    return answer.stdout.partition("\n")[0]


def info() -> dict[str, Any]:
    """Return the interpreter in use, every candidate with its faults, and the record of the build."""
    used_interpreter: Interpreter | None = None
    rows = []
    for interpreter in candidates():
        rows.append({**asdict(interpreter), "path": str(interpreter.path)})
        if used_interpreter is None and not interpreter.faults:
            used_interpreter = interpreter
    return {
        "cache": str(cache.cache_root()),
        "micropython": str(used_interpreter.path) if used_interpreter else None,
        "version": used_interpreter.version if used_interpreter else None,
        "candidates": rows,
        "record": cache.read_record(RECIPE),
    }
