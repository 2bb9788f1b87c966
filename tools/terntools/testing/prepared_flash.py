"""The flash of an emulated board with the device library: deployed once into the cache, then copied."""

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
from terntools.boards import deploy, mpy, self_check
from terntools.boards.repl import Repl
from terntools.emulators import catalogue, flash_image, pico, qemu

_FLASH = "flash.bin"
_TOOLS = ("answers", "constructs", "deploy", "mpy", "self_check")  # of terntools.boards
_KEPT = 4  # of each board: those of other branches, and of what was there before a change


@dataclass(frozen=True)
class PreparedFlash:
    """A flash to copy, and what mpy-cross calls the processor of its board."""

    flash: Path
    processor: str


def deployed(name: str, processor: str | None = None) -> PreparedFlash:
    """Return the flash of an emulated board with the whole library, which computes right there.

    It is made again for changed inputs. name: of the board. processor: compile for this one, whose
    code the board's own has to run. Raises DeviceError if the board is not built, and
    MiscompiledError.
    """
    cache_name = f"flash-{name}"
    if processor:
        cache_name += f"-{processor}"
    recipe = Recipe(cache_name, tern.__version__, {"of": _fingerprint(name)}, (_FLASH,))

    def make(work: Path, out: Path) -> Mapping[str, str]:
        _forget_older(cache_name)
        return _deploy(name, processor, out / _FLASH)

    entry = cache.build_entry(recipe, make, lambda line: None)
    record = json.loads((entry / cache.RECORD).read_text())
    return PreparedFlash(entry / _FLASH, record["built_with"]["processor"])


def library_files(machine: deploy.Machine) -> dict[str, bytes]:
    """Return the whole device library for `machine`, with modules of other boards that tests use."""
    files = deploy.library_files(machine, whole=True)
    for name in ("boards/emulated", "boards/esp32", "boards/rp2", "hash_drbg"):
        source = mpy.LIBRARY / f"{name}.py"
        files[f"/lib/tern/{name}.mpy"] = mpy.compiled(
            source.read_text(), machine.processor, source.name
        )
    return files


def _deploy(name: str, processor: str | None, flash: Path) -> Mapping[str, str]:
    """Deploy the library to a new board, copy its flash, and return what it was built with."""
    with catalogue.boot(name) as board, Repl(board.url) as repl:
        machine = deploy.Machine.of(repl)
    if processor:
        machine = replace(machine, processor=processor)
    files = library_files(machine)
    # Its lock is a file beside it, which does not belong into the cache.
    with tempfile.TemporaryDirectory(prefix="tern-flash-") as folder:
        new_flash = Path(folder, _FLASH)
        # Without the program that starts at power on: what is on it may not be right.
        flash_image.write(
            name, new_flash, {path: data for path, data in files.items() if path != deploy.MAIN}
        )
        with catalogue.boot(name, new_flash, skip_idle=True) as board, Repl(board.url) as repl:
            deploy.install(repl, machine, deploy.compare(repl, files, prune=deploy.LIBRARY))
            repl.remove(deploy.MAIN)  # what copies it starts at the prompt
        shutil.copyfile(new_flash, flash)
    return {"processor": machine.processor}


def _fingerprint(name: str) -> str:
    """Return a digest of everything that decides the content of the flash, and whether it is right."""
    digest = hashlib.sha256(mpy.compiler_version().encode())
    for architecture in mpy.ARCHITECTURES:
        digest.update(mpy.compiled(self_check.source(), architecture, "constructs.py"))
    tools = [Path(deploy.__file__).with_name(f"{tool}.py") for tool in _TOOLS]
    tools += [Path(flash_image.__file__), Path(__file__)]
    for path in filter(None, (*mpy.library_modules(), mpy.MAIN, *tools, _firmware(name))):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _firmware(name: str) -> Path | None:
    """The file of the firmware that an emulated board runs; None if it is not built."""
    if name != catalogue.PICO:
        return qemu.MACHINES[name].firmware()
    entry = cache.find_entry(pico.FIRMWARE)
    return entry / "firmware.bin" if entry else None


def _forget_older(kept: str) -> None:
    """Remove all but the newest flashes of this name."""
    entries = cache.cache_root().glob(f"{kept}-{tern.__version__}-*/{cache.RECORD}")
    with suppress(FileNotFoundError):  # another process forgets, too
        for record in sorted(entries, key=lambda path: path.stat().st_mtime, reverse=True)[
            _KEPT - 1 :
        ]:
            shutil.rmtree(record.parent, ignore_errors=True)
