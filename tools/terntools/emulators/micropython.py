"""Finds or builds the emulated device's interpreter.

It is a 32-bit MicroPython with single-precision floats, so that small integers, floats and the
32-bit arithmetic of viper code are as on boards. Debian's own package has 64 bits; the interpreter
is built from the package's source, unless a suitable one is on this machine.
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
# How MicroPython's Makefiles compile a file, but without information for debuggers, and without
# a file of dependencies: nothing here is compiled twice. That takes a sixth less time.
_COMPILE_A_FILE = "@$(CC) $(CFLAGS) -g0 -c -o $@ $<"
_MAKE_OPTIONS = {
    "MICROPY_FORCE_32BIT": "1",
    "MICROPY_PY_FFI": "0",
    "MICROPY_PY_BTREE": "0",
    "MICROPY_PY_THREAD": "0",
    "MICROPY_VFS_FAT": "0",
    "MICROPY_VFS_LFS1": "0",
    "compile_c": _COMPILE_A_FILE,
    "CFLAGS_EXTRA": "-DMICROPY_FLOAT_IMPL=MICROPY_FLOAT_IMPL_FLOAT",
}
_FROZEN = 'include("$(MPY_DIR)/extmod/asyncio")\n'
_OPTIONS = {"make": _MAKE_OPTIONS, "frozen": _FROZEN, "tls": "lib/mbedtls"}
RECIPE = Recipe("micropython-device", MICROPYTHON_VERSION, _OPTIONS, ("micropython",))
# The same of the newest source, for tests.
NEWEST_RECIPE = Recipe("micropython-newest", debian.NEXT, _OPTIONS, ("micropython",))

_TREE = "micropython.tar"
# Not in Debian's MicroPython, since they are packages of their own: the folders of each that
# builds read.
_LIBRARIES = {"mbedtls": ("library", "include"), "lwip": ("src",)}
# What no build reads of MicroPython itself. It has most of the files, and each takes time to unpack
# and to remove.
_UNUSED_FOLDERS = ("tests", "docs", "examples")
_USED_PORTS = ("unix", "rp2")
# SHA-256 of the libraries' own releases. A security update of Debian changes the version of its
# package, but not the release that the package is made from.
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
    """A MicroPython of this machine.

    origin: where its path is from, such as "PATH". faults: why it cannot be an emulated device; empty
    if it can.
    """

    path: Path
    origin: str
    version: str
    faults: tuple[str, ...]


def device_command(interpreter: Path, *arguments: str | Path, heap: str = DEVICE_HEAP) -> list[str]:
    """Return the command that runs an interpreter with as much heap as a board has.

    arguments: of the interpreter.
    """
    return [str(interpreter), "-X", f"heapsize={heap}", *map(str, arguments)]


def probe(path: Path, origin: str) -> Interpreter:
    """Run an interpreter, and find out whether it can be an emulated device.

    origin: where the path is from, for people.
    """
    command = device_command(path, "-c", _PROBE)
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Interpreter(path, origin, version="", faults=(f"does not run: {error}",))

    # A MicroPython prints its version, and then a line for each fault.
    first_line, _, other_lines = answer.stdout.partition("\n")
    faults = other_lines.splitlines()
    if not first_line.startswith("tern-probe "):
        error_output = answer.stderr.strip() or "no output"
        faults = [f"is not a MicroPython that works: {error_output.splitlines()[-1]}"]
    version = first_line.removeprefix("tern-probe ")
    return Interpreter(path, origin, version, tuple(faults))


def candidates() -> list[Interpreter]:
    """Return the interpreters of this machine: first that on PATH, then that in the cache.

    If the environment variable TERN_MICROPYTHON names one, it is the only candidate.
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
    """Return the path of an interpreter that can be an emulated device.

    Raises UsageError if the one that TERN_MICROPYTHON names cannot, and DeviceError if there is none.
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
    raise DeviceError(text, hint="build it: tern emulator build")


def build_device(progress: Progress) -> Path:
    """Return the path of an interpreter that can be an emulated device; build one if there is none.

    As root, Debian packages that the build needs are installed. progress: shows the user a line about a
    step. Raises UsageError.
    """
    with contextlib.suppress(DeviceError):
        return find_micropython()
    _build(RECIPE, PINNED, progress)
    return find_micropython()


def build_newest(progress: Progress) -> Path:
    """Return the path of the newest MicroPython that can be an emulated device; build it if needed.

    The parameter and errors are those of `build_device`.
    """
    return _build(NEWEST_RECIPE, NEWEST, progress) / "micropython"


def find_newest() -> Path | None:
    """Return the path of the interpreter that `build_newest` has built; None if there is none."""
    entry = cache.find_entry(NEWEST_RECIPE)
    return entry / "micropython" if entry else None


def _build(recipe: Recipe, source: "Source", progress: Progress) -> Path:
    """Return the folder of an interpreter, which is built unless it is there.

    recipe: of the interpreter. The other parameters and the errors are those of `build_device`.
    """
    if platform.machine() not in ("x86_64", "i686"):
        hint = "set TERN_MICROPYTHON to a 32-bit MicroPython with single-precision floats"
        raise UsageError(
            f"the emulated device is built on x86 only, and this is {platform.machine()}", hint
        )

    def build(work: Path, out: Path) -> dict[str, str]:
        return _compile(source, work, out, progress)

    return cache.build_entry(recipe, build, progress)


@dataclass(frozen=True)
class Source:
    """The source of MicroPython: Debian's package.

    release: of Debian. version: of the package; None: the one that the release has.
    """

    release: str
    version: str | None

    @property
    def recipe(self) -> Recipe:
        """What names the source in the cache: it is fetched again if any of this changes."""
        version = self.version or self.release
        options = {
            "libraries": _LIBRARIES,
            "without": _UNUSED_FOLDERS,
            "ports": _USED_PORTS,
        }
        return Recipe("micropython-source", version, options, products=(_TREE,))

    def unpack(self, work: Path, shell: Shell) -> tuple[Path, dict[str, str]]:
        """Unpack the source into the folder `work`; it is downloaded unless the cache has it.

        shell: runs the steps. Returns the folder of the source, and the SHA-256 of each package that it
        is from, by the package's file name.
        """
        progress = shell.progress

        def fetch(build_folder: Path, out: Path) -> dict[str, str]:
            return self._fetch(build_folder, out, progress)

        entry = cache.build_entry(self.recipe, fetch, progress)
        shell.run("tar", "-xf", entry / _TREE, "-C", work)
        record = cache.read_record(self.recipe)
        assert record is not None  # the entry was just made or found
        return work / "micropython", record["built_with"]

    def _fetch(self, work: Path, out: Path, progress: Progress) -> dict[str, str]:
        """Download the source, compile mpy-cross in it, and make a tarball of it.

        work: folder to work in. out: folder of the tarball. Returns the SHA-256 of each package.
        """
        shell = Shell(work / "build.log", progress)
        packages = work / "packages"
        source = work / "micropython"
        packages.mkdir()
        self._download(packages, shell)
        shell.run("dpkg-source", "--extract", debian.only(packages, "micropython_*.dsc"), source)
        _bundle_libraries(source, packages, shell)
        progress("compiling mpy-cross")
        # Without optimisation it takes half of the time to compile. What it makes is the same.
        make(shell, "-C", source / "mpy-cross", "COPT=-O0", f"compile_c={_COMPILE_A_FILE}")
        unused = [source / name for name in _UNUSED_FOLDERS]
        unused += [port for port in (source / "ports").iterdir() if port.name not in _USED_PORTS]
        excluded = [f"--exclude={folder.relative_to(work)}" for folder in unused]
        shell.run("tar", "-cf", out / _TREE, "-C", work, *excluded, source.name)
        return checksums_in(packages)

    def _download(self, packages: Path, shell: Shell) -> None:
        """Download the packages of the source into a folder.

        Raises BuildError if one is not as expected.
        """
        source_words = "the newest MicroPython"
        package = "micropython"
        if self.version:
            source_words = f"MicroPython {self.version}"
            package = f"micropython={self.version}"
        shell.progress(f"fetching the source of {source_words} from Debian {self.release}")
        if self.release == debian.RELEASE:
            sources = [package, *_LIBRARIES]
            debian.download(sources, binaries=(), folder=packages, shell=shell)
        else:
            debian.download(
                (package,), binaries=(), folder=packages, shell=shell, release=self.release
            )
            # The libraries are always those of RELEASE, whose checksums are known.
            debian.download(list(_LIBRARIES), binaries=(), folder=packages, shell=shell)
        debian.require_checksums(packages, _CHECKSUMS)


def _bundle_libraries(source: Path, packages: Path, shell: Shell) -> None:
    """Put the libraries into MicroPython's source that Debian took out of it.

    Debian's MicroPython is linked with its own, 64-bit Mbed TLS. That of a board is compiled with
    MicroPython. source: the folder of the source. packages: that of Debian's packages.
    """
    change = debian.only(source / "debian/patches", "*Use-system-mbedtls.patch")
    shell.run("patch", "-R", "-p1", "-i", change, cwd=source)
    for library, used_folders in _LIBRARIES.items():
        folder = source / "lib" / library
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tarball = debian.only(packages, f"{library}_*.orig.tar.*")
        used = [f"{library}-*/{name}" for name in used_folders]
        options = ("--strip-components=1", "--wildcards")
        shell.run("tar", "-xf", tarball, "-C", folder, *options, *used)
    # micropython-lib only has to look present.
    (source / "lib/micropython-lib").mkdir(exist_ok=True)
    (source / "lib/micropython-lib/README.md").touch()


PINNED = Source(debian.RELEASE, MICROPYTHON_VERSION)
NEWEST = Source(debian.NEXT, None)


def make(shell: Shell, *arguments: str | Path) -> None:
    """Run make with as many jobs as this machine has cores. Raises BuildError."""
    shell.run("make", "-s", f"-j{os.cpu_count()}", *arguments)


def checksums_in(packages: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder of packages by name, for the record of a build."""
    checksums = {}
    for path in sorted(packages.iterdir()):
        if path.is_file():
            checksums[path.name] = cache.sha256_of(path)
    return checksums


def _compile(origin: Source, work: Path, out: Path, progress: Progress) -> dict[str, str]:
    """Build the emulated device's interpreter, and return what it was built with.

    origin: of the source. work: folder to build in. out: folder of the product. progress: shows the
    user a line about a step. Returns the compiler's version and the SHA-256 of each source package.
    """
    shell = Shell(work / "build.log", progress)
    debian.require(_REQUIREMENTS, shell)
    source, packages = origin.unpack(work, shell)
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
    """Return the first line of what `command --version` prints; "" if it is not installed."""
    if not shutil.which(command):
        return ""
    answer = subprocess.run([command, "--version"], capture_output=True, text=True)
    return answer.stdout.partition("\n")[0]


def info() -> dict[str, Any]:
    """Return what `tern emulator info --json` says of the emulated device.

    That is the interpreter in use, every candidate with its faults, and the record of the build.
    """
    used_path: str | None = None
    used_version: str | None = None
    rows = []
    for interpreter in candidates():
        rows.append({**asdict(interpreter), "path": str(interpreter.path)})
        if used_path is None and not interpreter.faults:
            used_path = str(interpreter.path)
            used_version = interpreter.version
    return {
        "cache": str(cache.cache_root()),
        "micropython": used_path,
        "version": used_version,
        "candidates": rows,
        "record": cache.read_record(RECIPE),
    }
