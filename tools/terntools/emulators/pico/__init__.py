"""Builds and boots the emulated Pico: MicroPython's stock firmware in the emulator rp2040js.

The firmware, for the board RPI_PICO, is built from Debian's sources. Time is counted in simulated
cycles of the processor. A boot ROM of our own has the functions for floats, which take their time
there and not that of a real Pico's ROM. The time of flash and its cache are not modelled, nor is
the second core.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ternhost import cache, extras
from ternhost.cache import Progress, Recipe
from ternhost.errors import DeviceError
from terntools.boards import uf2
from terntools.emulators import debian, micropython
from terntools.emulators.debian import Requirement, Shell
from terntools.emulators.pico import symbols
from terntools.emulators.process import EmulatedMachine, start

_HERE = Path(__file__).parent
_ROM_SOURCES = ("bootrom.c", "tables.S", "bootrom.ld")
_NODE_FILES = ("core.mjs", "profile.mjs", "runner.mjs", "package.json", "package-lock.json")
_PACKAGES = ("pico-sdk-source=2.1.1-1", "tinyusb-source=0.18.0+dfsg-1", "pioasm=2.1.1-1")
_BOARD = "RPI_PICO"
_FROZEN = 'freeze("$(PORT_DIR)/modules")\ninclude("$(MPY_DIR)/extmod/asyncio")\n'

_OPTIONS = {"board": _BOARD, "frozen": _FROZEN, "packages": _PACKAGES}
FIRMWARE = Recipe("pico-firmware", micropython.MICROPYTHON_VERSION, _OPTIONS, ("firmware.bin",))
# The same build with its symbols, which only a profile needs. A build that was made before there were
# symbols boots all the same.
_SYMBOLS = "symbols.json"
PROFILED = replace(FIRMWARE, products=("firmware.bin", _SYMBOLS))

_RP2040JS = json.loads((_HERE / "package.json").read_text())["dependencies"]["rp2040js"]
_SOURCES = {name: cache.sha256_of(_HERE / name) for name in (*_ROM_SOURCES, *_NODE_FILES)}
_MADE = ("bootrom.bin", _SYMBOLS, "runner.mjs", "node_modules/rp2040js/package.json")
MACHINE = Recipe("pico-machine", _RP2040JS, _SOURCES, _MADE)

# The sampler in C as a native .mpy, for `tern bench latency`. dynruntime.mk compiles for size; the
# last -O counts.
_IN_C = {
    "makefile": (_HERE / "sampler.mk").read_text(),
    "sampler.c": cache.sha256_of(_HERE / "sampler.c"),
}
SAMPLER = Recipe("native-sampler", micropython.MICROPYTHON_VERSION, _IN_C, ("native_sampler.mpy",))

_FIRMWARE_REQUIREMENTS = (
    *micropython.SOURCE_REQUIREMENTS,
    *micropython.ARM_COMPILER,
    Requirement("libstdc++-arm-none-eabi-newlib"),
    Requirement("cmake", "cmake"),
    Requirement("g++", "g++"),
)
_NODE = Requirement("nodejs", "node")
_MACHINE_REQUIREMENTS = (*micropython.ARM_COMPILER, _NODE, Requirement("npm", "npm"))
_BOOT_SECONDS = 60  # to wait for the board's port
_BUILD = "build it: tern emulator build pico"
_FLASH_BYTES = 2 << 20  # as runner.mjs has it


def build_pico(progress: Progress) -> Path:
    """Build whatever of the emulated Pico the cache lacks; return the path of the firmware.

    That is the firmware, the machine (emulator and boot ROM), and the sampler in C. As root, Debian
    packages that the build needs are installed; for another user UsageError names them. progress:
    shows the user a line about a step.
    """
    needs_sampler = not cache.find_entry(SAMPLER)
    needs_firmware = not cache.find_entry(PROFILED)
    requirements = {_NODE}  # to run it
    needs_machine = not cache.find_entry(MACHINE)
    if needs_sampler or needs_firmware or needs_machine:
        extras.require("elftools")  # for MicroPython's linker of native modules, and for symbols
    if needs_sampler or needs_firmware:
        requirements.update(_FIRMWARE_REQUIREMENTS)
    if needs_machine:
        requirements.update(_MACHINE_REQUIREMENTS)
    debian.install(requirements, progress)

    firmware = cache.build_entry(PROFILED, _with_progress(_build_firmware, progress), progress)
    cache.build_entry(MACHINE, _with_progress(_build_machine, progress), progress)
    cache.build_entry(SAMPLER, _with_progress(_build_sampler, progress), progress)
    return firmware / "firmware.bin"


def _with_progress(
    build: Callable[[Path, Path, Progress], Mapping[str, str]], progress: Progress
) -> Callable[[Path, Path], Mapping[str, str]]:
    """Return a build function as `cache.build_entry` calls it, without the argument `progress`."""

    def build_entry(work: Path, out: Path) -> Mapping[str, str]:
        return build(work, out, progress)

    return build_entry


def _build_firmware(work: Path, out: Path, progress: Progress) -> Mapping[str, str]:
    """Build the stock firmware of a Pico, and return what it was built with.

    work: folder to build in. out: folder of the product. Returns the compiler's version and the
    SHA-256 of each source package.
    """
    shell = Shell(work / "build.log", progress)
    source, checksums = micropython.PINNED.unpack(work, shell)
    progress("fetching the SDK of the Pico")
    packages = work / "packages"
    sdk = work / "sdk"
    packages.mkdir()
    debian.download(sources=(), binaries=_PACKAGES, folder=packages, shell=shell)
    for package in packages.glob("*.deb"):
        shell.run("dpkg", "-x", package, sdk)
    # Debian has taken these libraries out of MicroPython's source: they are packages of their own.
    for name in ("pico-sdk", "tinyusb"):
        library = source / "lib" / name
        shutil.rmtree(library, ignore_errors=True)
        library.symlink_to(sdk / "usr/src" / name)
    manifest = work / "manifest.py"
    manifest.write_text(_FROZEN)

    progress(f"compiling the stock firmware of the Pico ({_BOARD})")
    port = source / "ports/rp2"
    build = port / "build"
    variables = {
        "MICROPY_BOARD": _BOARD,
        "MICROPY_BOARD_DIR": port / "boards" / _BOARD,
        "MICROPY_FROZEN_MANIFEST": manifest,
        "PICO_SDK_PATH_OVERRIDE": sdk / "usr/src/pico-sdk",
        "PICO_BUILD_DOCS": 0,
        "PICO_NO_PICOTOOL": 1,
        "pioasm_DIR": sdk / "usr/lib/cmake/pioasm",
    }
    options = [f"-D{name}={value}" for name, value in variables.items()]
    shell.run("cmake", "-S", port, "-B", build, *options)
    micropython.make(shell, "-C", build)
    shutil.copy(build / "firmware.bin", out)
    symbols.write(build / "firmware.elf", out / _SYMBOLS, has_names=True)
    compiler = micropython.version_of("arm-none-eabi-gcc")
    return {**checksums, **micropython.checksums_in(packages), "compiler": compiler}


def _build_machine(work: Path, out: Path, progress: Progress) -> Mapping[str, str]:
    """Build the boot ROM, install the emulator rp2040js, and return what they were built with.

    work: folder to build in. out: folder of the products. Returns the versions of compiler and Node.js.
    """
    shell = Shell(work / "build.log", progress)
    progress("compiling the boot ROM of the emulated Pico")
    elf = work / "bootrom.elf"
    linker_script = _HERE / "bootrom.ld"
    sources = [_HERE / "bootrom.c", _HERE / "tables.S"]
    flags = [
        "-mcpu=cortex-m0plus",
        "-mthumb",
        "-Os",
        "-g",
        "-Wall",
        "-Werror",
        "-ffreestanding",
        "-fno-builtin",
        "-nostdlib",
    ]
    shell.run("arm-none-eabi-gcc", *flags, "-T", linker_script, *sources, "-lgcc", "-o", elf)
    shell.run("arm-none-eabi-objcopy", "-O", "binary", elf, out / "bootrom.bin")
    symbols.write(elf, out / _SYMBOLS, has_names=False)
    progress(f"fetching rp2040js {MACHINE.version} with npm")
    for name in _NODE_FILES:
        shutil.copy(_HERE / name, out)
    shell.run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=out)
    return {
        "compiler": micropython.version_of("arm-none-eabi-gcc"),
        "node": micropython.version_of("node"),
    }


def _build_sampler(work: Path, out: Path, progress: Progress) -> Mapping[str, str]:
    """Build the sampler in C as a native module of MicroPython, and return what it was built with.

    work: folder to build in. out: folder of the product. Returns the compiler's version and the SHA-256
    of each source package.
    """
    shell = Shell(work / "build.log", progress)
    source, packages = micropython.PINNED.unpack(work, shell)
    progress("compiling the sampler in C for the Pico")
    shutil.copy(_HERE / "sampler.c", work)
    shutil.copy(_HERE / "sampler.mk", work / "Makefile")
    shell.run("make", "-C", work, f"MPY_DIR={source}", f"PYTHON={sys.executable}")
    shutil.copy(work / SAMPLER.products[0], out)
    return {**packages, "compiler": micropython.version_of("arm-none-eabi-gcc")}


def firmware_file() -> bytes:
    """Return the MicroPython of the emulated Pico as a UF2 file. Raises DeviceError if not built."""
    firmware = cache.find_entry(FIRMWARE)
    if firmware is None:
        raise DeviceError("the emulated Pico is not built yet", hint=_BUILD)
    return uf2.file_of((firmware / "firmware.bin").read_bytes())


def symbol_files() -> tuple[Path, Path]:
    """Return the files of symbols of the firmware and of the boot ROM, which `symbols.read` reads.

    Raises DeviceError if they are not built.
    """
    firmware = cache.find_entry(PROFILED)
    machine = cache.find_entry(MACHINE)
    if firmware is None or machine is None:
        raise DeviceError("the emulated Pico was built without what a profile needs", hint=_BUILD)
    return firmware / _SYMBOLS, machine / _SYMBOLS


def boot_pico(
    flash: Path | None = None,
    *,
    seed: int | None = None,
    skip_idle: bool = False,
    volume: Path | None = None,
    blank: bool = False,
    profile: Path | None = None,
) -> EmulatedMachine:
    """Boot an emulated Pico.

    flash: the file that keeps its flash; None: the flash is lost at the end. seed: makes the whole
    run the same each time. skip_idle: time in which it only waits passes at once. volume: the
    folder that stands for the drive of its USB boot loader. blank: a new flash holds no firmware,
    so that the boot loader waits for one. profile: the file into which the emulator writes which
    functions spend the time; see profile.mjs. Raises DeviceError if it is not built or does not
    start, and UsageError for a flash in use.
    """
    firmware = cache.find_entry(FIRMWARE)
    machine = cache.find_entry(MACHINE)
    if firmware is None or machine is None:
        raise DeviceError("the emulated Pico is not built yet", hint=_BUILD)
    command: list[str | Path] = ["node", machine / "runner.mjs", "--attached"]
    command += ["--bootrom", machine / "bootrom.bin"]
    if not blank:
        command += ["--firmware", firmware / "firmware.bin"]
    if flash is not None:
        command += ["--flash", flash]
    if seed is not None:
        command += ["--seed", str(seed)]
    if skip_idle:
        command.append("--skip-idle")
    if volume is not None:
        command += ["--volume", volume]
    if profile is not None:
        command += ["--profile", profile]
        for path in symbol_files():
            command += ["--symbols", path]

    try:
        board = start(command, flash, _FLASH_BYTES, _BOOT_SECONDS)
    except FileNotFoundError as error:
        raise DeviceError("Node.js is not installed", hint=_BUILD) from error
    if board is None:
        raise DeviceError(
            "the emulated Pico does not start", hint="'tern emulator info' lists the builds"
        )
    return board


def info() -> dict[str, Any]:
    """Return what `tern emulator info --json` says of the emulated Pico.

    That is the record of each build, None if there is none, and the version of Node.js.
    """
    return {
        "firmware": cache.read_record(FIRMWARE),
        "machine": cache.read_record(MACHINE),
        "node": micropython.version_of("node") or None,
    }
