"""Builds the firmware of QEMU's machines: MicroPython with the port in port/.

Everything is built from Debian's sources, into the cache.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ternhost import cache
from ternhost.cache import Progress, Recipe
from terntools.emulators import debian, micropython
from terntools.emulators.debian import Requirement, Shell
from terntools.emulators.micropython import PINNED, Source

_HERE = Path(__file__).parent
_PORT = _HERE / "port"
_TOOLCHAIN = _HERE / "toolchain"

# Debian packages with the configuration of QEMU's Xtensa core, and with GCC's arithmetic for it.
# They are from debian.OLDER; later compilers can use them, too.
_XTENSA_SOURCES = ("qemu",)
_XTENSA_BINARIES = ("binutils-source=2.40-2", "gcc-12-source=12.2.0-14+deb12u1")

_XTENSA_CHECKSUMS = {
    "qemu_7.2+dfsg.orig.tar.xz": "91aca71520040edc40b8d437aa3004dae614f58e286cf653ee8996c07af2962f",
    "binutils-source_2.40-2_all.deb": "4c03b0d0508f8134200ec083e4dbb81b906efbfa0d7a2bdb7aa0c120aabda246",
    "gcc-12-source_12.2.0-14+deb12u1_all.deb": "8f2a5411028dfe216aeb6346b926df0cc7471f375c6a375bf180fbf279af02a1",
}

# The compiler and C library for each instruction set, and the emulator that runs it.
_COMPILERS = {
    "rv32": (
        Requirement("gcc-riscv64-unknown-elf", "riscv64-unknown-elf-gcc"),
        Requirement("picolibc-riscv64-unknown-elf"),
    ),
    "xtensa": (
        Requirement("gcc-xtensa-lx106", "xtensa-lx106-elf-gcc"),
        Requirement("picolibc-xtensa-lx106-elf"),
    ),
    "m33": micropython.ARM_COMPILER,
}
_EMULATORS = {
    "rv32": "qemu-system-riscv32",
    "xtensa": "qemu-system-xtensa",
    "m33": "qemu-system-arm",
}


@dataclass(frozen=True)
class Build:
    """Firmware for some instruction sets, as an entry of the cache.

    name: of the entry. sets: the instruction sets. micropython: the source from which it is built.
    """

    name: str
    sets: tuple[str, ...]
    micropython: Source = PINNED

    @cached_property
    def recipe(self) -> Recipe:
        """What names the firmware in the cache: a change to anything in it causes a new build."""
        # The port, and the packages that are unpacked beside MicroPython's own source.
        inputs: dict[str, object] = {"port": cache.sha256_of_tree(_PORT), "packages": ["lwip"]}
        if "xtensa" in self.sets:  # the only one whose compiler is not complete in Debian
            inputs["toolchain"] = cache.sha256_of_tree(_TOOLCHAIN)
            inputs["binaries"] = list(_XTENSA_BINARIES)
        return Recipe(
            name=self.name,
            # Without a fixed version the firmware is that of the Debian release.
            version=self.micropython.version or self.micropython.release,
            options=inputs,
            products=tuple(f"{name}.elf" for name in self.sets),
        )

    def find(self, instruction_set: str) -> Path | None:
        """Return the file of the firmware for an instruction set; None if it is not built."""
        entry = cache.find_entry(self.recipe)
        return entry / f"{instruction_set}.elf" if entry else None

    def make(self, progress: Progress) -> Path:
        """Return the folder of the firmware, which is built unless it is there.

        As root, Debian packages that the build needs are installed. progress: shows the user a line
        about a step. Raises UsageError and BuildError.
        """
        requirements: set[Requirement] = set()
        for name in self.sets:
            emulator = _EMULATORS[name]
            requirements.add(Requirement(emulator, command=emulator))
        if not cache.find_entry(self.recipe):
            requirements.update(micropython.SOURCE_REQUIREMENTS)
            for name in self.sets:
                requirements.update(_COMPILERS[name])
        debian.install(requirements, progress)

        def compile_firmware(work: Path, out: Path) -> Mapping[str, str]:
            return self._compile(work, out, progress)

        return cache.build_entry(self.recipe, compile_firmware, progress)

    def _compile(self, work: Path, out: Path, progress: Progress) -> Mapping[str, str]:
        """Compile the firmware for each instruction set, and return what it was built with.

        work: folder to build in. out: folder of the products. progress: shows the user a line about a
        step. Returns versions of compilers and the SHA-256 of source packages.
        """
        shell = Shell(work / "build.log", progress)
        source, packages = self.micropython.unpack(work, shell)
        port = source / "ports/tern"
        shutil.copytree(_PORT, port)
        built_with = {**packages}
        for instruction_set in self.sets:
            options = []
            if instruction_set == "xtensa":
                toolchain, toolchain_sources = _make_toolchain(work, shell)
                options.append(f"XTENSA={toolchain}")
                built_with.update(toolchain_sources)
            progress(f"compiling MicroPython for QEMU: {instruction_set}")
            micropython.make(shell, "-C", port, f"ARCH={instruction_set}", "BUILD=build", *options)
            shutil.copy(port / "build/firmware.elf", out / f"{instruction_set}.elf")
            shutil.rmtree(port / "build")
            compiler, _ = _COMPILERS[instruction_set]
            built_with[f"compiler of {instruction_set}"] = micropython.version_of(
                str(compiler.command)
            )
        return built_with


ESP32 = Build("esp32-firmware", ("rv32", "xtensa"))
M33 = Build("m33-firmware", ("m33",))
NEWEST = Build("newest-firmware", ("rv32", "xtensa", "m33"), micropython.NEWEST)
# By their names in `tern emulator build`.
BUILDS = {"esp32": ESP32, "m33": M33, "newest": NEWEST}


def _make_toolchain(work: Path, shell: Shell) -> tuple[Path, dict[str, str]]:
    """Build what Debian's compiler for the Xtensa LX106 lacks for a core with register windows.

    work: folder to build in. shell: runs the steps. Returns the folder of what was built, and the
    SHA-256 of each source package.
    """
    shell.progress("fetching the configuration of QEMU's Xtensa core, and GCC's arithmetic for it")
    packages = work / "xtensa-packages"
    sources = work / "xtensa-sources"
    toolchain = work / "xtensa"
    packages.mkdir()
    sources.mkdir()
    debian.download(
        _XTENSA_SOURCES, _XTENSA_BINARIES, folder=packages, shell=shell, release=debian.OLDER
    )
    debian.require_checksums(packages, _XTENSA_CHECKSUMS)
    for package in packages.glob("*.deb"):
        shell.run("dpkg", "-x", package, sources)

    headers = "*/include/xtensa*"
    qemu = _unpack(packages, "qemu_*.orig.tar.*", ["*/target/xtensa/core-dc233c*"], sources, shell)
    binutils = _unpack(
        sources, "**/binutils-*.tar.*", [headers, "*/include/ansidecl.h"], sources, shell
    )
    gcc = _unpack(sources, "**/gcc-*.tar.*", ["*/libgcc/config/xtensa/*", headers], sources, shell)
    variables = (f"OUT={toolchain}", f"QEMU={qemu}", f"BINUTILS={binutils}", f"GCC={gcc}")
    micropython.make(shell, "-f", _TOOLCHAIN / "Makefile", *variables)
    return toolchain, micropython.checksums_in(packages)


def _unpack(packages: Path, name: str, patterns: Sequence[str], target: Path, shell: Shell) -> Path:
    """Unpack some files of a tarball into `target`; return the folder that the tarball makes there.

    packages: the folder of the tarball. name: the pattern of its name, which fits no other file.
    patterns: of the files to unpack. shell: runs tar.
    """
    tarball = debian.only(packages, name)
    folders_before = set(target.iterdir())
    shell.run("tar", "-xf", tarball, "-C", target, "--wildcards", *patterns)
    (folder,) = set(target.iterdir()) - folders_before
    return folder
