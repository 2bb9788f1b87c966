"""Prepares the flash of emulated boards for tests.

The device library is installed on a flash once, which the cache keeps; each test gets a copy.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import tern
from ternhost import cache
from ternhost.cache import Recipe
from ternhost.errors import TernError
from terntools.boards import file_changes, installing, machines, mpy, self_check, software
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image, pico, qemu

_FLASH = "flash.bin"
# Modules of terntools.boards that decide what is on the flash, and whether it is right.
_TOOLS = (
    "answers",
    "constructs",
    "file_changes",
    "installing",
    "machines",
    "mpy",
    "self_check",
    "software",
    "undo",
)
_KEPT = 4  # flashes of each board in the cache: of other branches, and from before a change


@dataclass(frozen=True)
class PreparedFlash:
    """A flash to copy. processor: what mpy-cross calls the processor for which its code is compiled."""

    flash: Path
    processor: str


def deployed(name: str, processor: str | None = None) -> PreparedFlash:
    """Return the flash of an emulated board with the whole device library on it.

    It is made if the cache has none, or if anything that it depends on has changed. name: of the
    board, see catalogue. processor: to compile for, instead of the board's own, which has to run
    that code. Raises DeviceError if the board is not built, and MiscompiledError if compiled code
    computes something wrong on it.
    """
    cache_name = f"flash-{name}"
    if processor:
        cache_name += f"-{processor}"
    recipe = Recipe(
        name=cache_name,
        version=tern.__version__,
        options={"of": _fingerprint(name)},
        products=(_FLASH,),
    )

    def make(work: Path, out: Path) -> Mapping[str, str]:
        _forget_older(cache_name)
        return _deploy(name, processor, out / _FLASH)

    entry = cache.build_entry(recipe, make, progress=lambda line: None)
    record = json.loads((entry / cache.RECORD).read_text())
    return PreparedFlash(entry / _FLASH, record["built_with"]["processor"])


def library_files(machine: machines.Machine) -> dict[str, bytes]:
    """Return the whole device library, compiled for a machine, as contents by path on the board.

    Modules for other kinds of boards that tests use are in it as well.
    """
    files = software.library_files(machine, whole=True)
    for name in ("boards/emulated", "boards/esp32", "boards/rp2", "hash_drbg"):
        source = mpy.LIBRARY / f"{name}.py"
        files[f"/lib/tern/{name}.mpy"] = mpy.compiled(
            source.read_text(), machine.processor, source.name
        )
    return files


def _deploy(name: str, processor: str | None, flash: Path) -> Mapping[str, str]:
    """Install the device library on a new board, and copy its flash to the file `flash`.

    name: of the board. processor: to compile for; None: the board's own. Returns the processor for
    the record of the build.
    """
    with catalogue.boot(name) as board, Repl(board.url) as repl:
        machine = machines.Machine.of(repl)
    if processor:
        machine = replace(machine, processor=processor)
    files = library_files(machine)
    # Without the program that starts at power on: the code on the flash is not checked yet.
    files_without_main = {path: data for path, data in files.items() if path != software.MAIN}
    # In a folder of its own, since booting leaves a lock beside the flash.
    with tempfile.TemporaryDirectory(prefix="tern-flash-") as folder:
        new_flash = Path(folder, _FLASH)
        flash_image.write(name, new_flash, files_without_main)
        with catalogue.boot(name, new_flash, skip_idle=True) as board, Repl(board.url) as repl:
            changes = file_changes.compare(repl, files, prune=software.LIBRARY)
            installing.install(repl, machine, changes)
            repl.files.remove(software.MAIN)  # what copies it starts at the prompt
        shutil.copyfile(new_flash, flash)
    return {"processor": machine.processor}


def _fingerprint(name: str) -> str:
    """Return a hash of everything that decides what is on a board's flash, and whether it is right.

    That is the compiler, what it makes of the constructs that are checked on the board, the device
    library, the tools that install it, and the board's firmware. name: of the board.
    """
    digest = hashlib.sha256(mpy.compiler_version().encode())
    for architecture in mpy.ARCHITECTURES:
        with suppress(TernError):  # a compiler that does not know the architecture
            digest.update(mpy.compiled(self_check.source(), architecture, "constructs.py"))
    paths = [*mpy.library_modules(), mpy.MAIN]
    paths += [Path(installing.__file__).with_name(f"{tool}.py") for tool in _TOOLS]
    paths += [Path(flash_image.__file__), Path(__file__)]
    firmware = _firmware(name)
    if firmware is not None:
        paths.append(firmware)
    for path in paths:
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _firmware(name: str) -> Path | None:
    """Return the file of the firmware that an emulated board runs; None if it is not built."""
    if name != catalogue.PICO:
        return qemu.MACHINES[name].firmware()
    entry = cache.find_entry(pico.FIRMWARE)
    return entry / "firmware.bin" if entry else None


def _forget_older(cache_name: str) -> None:
    """Remove old flashes of this name from the cache, so that with a new one there are _KEPT."""
    entries = cache.cache_root().glob(f"{cache_name}-{tern.__version__}-*/{cache.RECORD}")
    with suppress(FileNotFoundError):  # another process removes them, too
        newest_first = sorted(entries, key=lambda path: path.stat().st_mtime, reverse=True)
        for record in newest_first[_KEPT - 1 :]:
            shutil.rmtree(record.parent, ignore_errors=True)
