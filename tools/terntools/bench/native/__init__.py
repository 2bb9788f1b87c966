"""The sampler in C as a native .mpy for the Pico, for `tern bench latency` alone: how fast it could be."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ternhost import cache, extras
from ternhost.cache import Progress, Recipe
from terntools.emulators import debian, micropython
from terntools.emulators.debian import Requirement, Shell

PROCESSOR = "armv6m"
MODULE = "native_sampler"
_SOURCE = Path(__file__).with_name("sampler.c")
# dynruntime.mk compiles for size; the last -O counts.
_MAKEFILE = f"""MOD = {MODULE}
SRC = {_SOURCE.name}
ARCH = {PROCESSOR}
include $(MPY_DIR)/py/dynruntime.mk
CFLAGS += -O2
"""
RECIPE = Recipe(
    name="native-sampler",
    version=micropython.MICROPYTHON_VERSION,
    options={"makefile": _MAKEFILE, _SOURCE.name: cache.sha256_of(_SOURCE)},
    products=(f"{MODULE}.mpy",),
)
_REQUIREMENTS = (
    *micropython.SOURCE_REQUIREMENTS,
    Requirement("gcc-arm-none-eabi", "arm-none-eabi-gcc"),
    Requirement("libnewlib-arm-none-eabi"),
)


def find() -> Path | None:
    entry = cache.find_entry(RECIPE)
    return entry / RECIPE.products[0] if entry else None


def build_native(progress: Progress) -> Path:
    """The .mpy, built into the cache if needed, as root with missing Debian packages. Raises UsageError, BuildError."""
    if (module := find()) is None:
        extras.require("elftools")  # MicroPython's linker of native modules reads object files with it
        with tempfile.TemporaryDirectory() as folder:
            debian.require(_REQUIREMENTS, Shell(Path(folder, "log"), progress))
        entry = cache.build_entry(RECIPE, lambda work, out: _build(work, out, progress), progress)
        module = entry / RECIPE.products[0]
    return module


def _build(work: Path, out: Path, progress: Progress) -> Mapping[str, str]:
    shell = Shell(work / "build.log", progress)
    source, packages = micropython.PINNED.unpack(work, shell)
    folder = work / "module"
    folder.mkdir()
    (folder / "Makefile").write_text(_MAKEFILE)
    shutil.copy(_SOURCE, folder)
    progress("compiling the sampler in C for the Pico")
    shell.run("make", "-C", folder, f"MPY_DIR={source}", f"PYTHON={sys.executable}")
    shutil.copy(folder / RECIPE.products[0], out)
    return {**packages, "compiler": micropython.version_of("arm-none-eabi-gcc")}
