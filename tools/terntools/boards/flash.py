"""Put MicroPython on a board: an ESP32 through esptool, a Pico by a UF2 file. The file is the user's."""

import argparse
import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from serial.tools import list_ports

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, InterruptedByUser, RefusedError, TernError, UsageError
from ternhost.reach.ports import names
from terntools.boards import binary_info, devices, esp32, uf2
from terntools.boards.repl import ExecutionError, Repl
from terntools.terminal import Bar

_T = TypeVar("_T")
Progress = Callable[[int, int], None]
Tell = Callable[[str], None]

WHERE = {
    names.RP2: "https://micropython.org/download/RPI_PICO/ (the .uf2 file; Pico W, Pico 2: see its list)",
    names.ESP32: "https://micropython.org/download/ESP32_GENERIC/ (the .bin file; other chips: see its list)",
}
SOURCES = "\n  ".join(("get it from", *(f"{family}: {url}" for family, url in WHERE.items())))
_INFO = "INFO_UF2.TXT"
# Names of a chip's boot loader in INFO_UF2.TXT.
_BOARD_IDS = {"RPI-RP2": "RP2040", "RP2350": "RP2350"}
_VOLUME_WAIT = 30.0
_PORT_WAIT = 30.0
_CHUNK = 64 * 1024
_PICO_RECOVER = (
    "nothing is lost: its boot loader is in ROM. Hold BOOTSEL while you plug the board in, "
    "and run the same command again"
)

_FILES_HINT = (
    "take a firmware without files that fits the board; or, if the board is to become another device, "
    "add --erase (a board in its boot loader needs MicroPython first)"
)


@dataclass(frozen=True)
class Firmware:
    """A firmware file that was read and checked: `family` as in names, `chip` as the chip's maker writes it."""

    path: Path
    data: bytes
    family: str
    chip: str


def read_firmware(path: str | Path) -> Firmware:
    """Read a firmware and determine its chip. Raises UsageError."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="get a firmware file first") from error
    if data[:4] == b"UF2\n":
        return Firmware(path, data, names.RP2, uf2.read(data, path.name).chip)
    if data[:1] == b"\xe9":
        return Firmware(path, data, names.ESP32, esp32.image_chip(data, path.name))
    hint = "an ESP32 takes a .bin file, a Pico a .uf2 file, of MicroPython's download page"
    raise UsageError(f"{path.name} is not a firmware that tern can flash", hint)


def flash(
    port: str, firmware: Firmware, *, volume: str | Path | None = None, erase: bool = False,
    progress: Progress | None = None, tell: Tell = lambda line: None, **of_esp32: Any,
) -> dict[str, Any]:  # fmt: skip
    """Flash the board on `port`, and return a summary. Raises UsageError, DeviceError and TernError.

    erase: files and ledgers too, for another device. volume: where a Pico's boot loader shows up, if not where volumes
    are mounted. of_esp32: reset, stub and baud of esp32.flash."""
    if firmware.family == names.ESP32:
        of_esp32 = (
            {"reset": True}
            | of_esp32
            | {"chip": firmware.chip, "erase": erase, "progress": progress, "tell": tell}
        )
        done = esp32.flash(port, firmware.data, firmware.path.name, **of_esp32)
        if of_esp32["reset"]:
            tell(f"waiting for MicroPython on {port}")
            done["firmware"] = _require_start(port, firmware, done["unique_id"])
        return done
    return _flash_pico(port, firmware, volume, erase, progress, tell)


def _flash_pico(
    port: str,
    firmware: Firmware,
    volume: str | Path | None,
    erase: bool,
    progress: Progress | None,
    tell: Tell,
) -> dict[str, Any]:
    image = uf2.read(firmware.data, firmware.path.name)
    mounted = find_volume(volume)
    before = None
    if mounted is None:
        before = _ask(port)
        _require_chip(port, firmware, before)
        if not erase:
            _require_other_places(firmware, image, before.files)
        elif before.files is not None:
            _erase_files(port)
        tell(f"entering the boot loader of the board on {port}")
        _enter_boot_loader(port)
        mounted = _wait_for(lambda: find_volume(volume), _VOLUME_WAIT)
        if mounted is None:
            hint = "is it mounted? Name where with --volume; " + _PICO_RECOVER
            raise DeviceError("the boot loader's volume did not show up", hint)
    elif is_there(port):
        text = f"two boards may be meant: one runs on {port}, and one waits in its boot loader in {mounted}; "
        text += "nothing was changed"
        hint = f"to flash the board on {port}, unplug the other one; to flash the other one, name the port that it gets"
        raise UsageError(text, hint)
    elif erase:
        hint = "flash it without --erase first, then once more with it"
        raise UsageError("--erase needs a running MicroPython, and the board waits in its boot loader", hint)
    else:
        _require_other_places(firmware, image, None)
    chip = volume_chip(mounted)
    if chip != firmware.chip:
        text = f"{firmware.path.name} is for {firmware.chip}, and the board in {mounted} has an {chip}; "
        text += "nothing was changed"
        raise UsageError(text, f"get it for an {chip} board")
    tell(f"writing {firmware.path.name} to {mounted}")
    _copy(firmware.data, mounted / "firmware.uf2", progress)
    tell(f"waiting for MicroPython on {port}")
    identity = _wait_for(lambda: _alive(port), _PORT_WAIT)
    if identity is None:
        hint = "see `tern devices`: the port may have another name now; " + _PICO_RECOVER
        raise DeviceError(f"the file was written, but no MicroPython shows up on {port}", hint)
    if before is not None:
        _require_same(port, before.unique_id)
    done = {"chip": chip, "offset": 0, "bytes": image.size}
    return {**done, "verified": identity.firmware is not None, "firmware": identity.firmware}


def _require_start(port: str, firmware: Firmware, unique_id: str) -> str | None:
    """The version of the MicroPython that starts on `port` after flashing; None where a user's program hides it.

    Raises DeviceError if none does, with what the board prints, or if it is another board's."""
    identity = _wait_for(lambda: _alive(port), _PORT_WAIT)
    try:
        _require_same(port, unique_id)
    except _OtherBoardError:
        raise
    except DeviceError as error:
        if identity is None:
            text = f"{firmware.path.name} was written and verified, but does not start: {error.message}"
            hint = "press its reset button; if that does not help, flash the firmware for its module"
            raise DeviceError(text, hint) from error
    return identity.firmware if identity else None


class _OtherBoardError(DeviceError):
    """The board on a port is not the one that was there before."""


def _require_same(port: str, unique_id: str) -> None:
    """Raise an error if the board on `port` has another number than the one that was to be flashed."""
    with contextlib.suppress(RefusedError):  # a locked board tells nobody
        if _ask(port).unique_id != unique_id:
            text = f"another board is on {port} than before, and nobody knows which of them was flashed"
            raise _OtherBoardError(text, hint="see `tern devices`, and flash one board at a time")


@dataclass(frozen=True)
class _Board:
    """What a board that runs MicroPython tells: its description, its number, and where in flash its files are.

    files: None for a board that is no Pico, or whose firmware tells none."""

    description: str
    unique_id: str
    files: range | None


def _ask(port: str) -> _Board:
    """Raises DeviceError where no MicroPython answers on `port`."""
    with Repl(port, visits=True) as repl:
        description = repl.evaluate("__import__('sys').implementation[2]")
        unique_id = repl.evaluate("__import__('machine').unique_id()").hex()

        def read(address: int, n: int) -> bytes:
            if not uf2.FLASH_START <= address < uf2.FLASH_END:
                return b""
            data: bytes = repl.evaluate(f"bytes(__import__('uctypes').bytearray_at({address}, {n}))")
            return data

        files = None
        if "RP2" in description:
            with contextlib.suppress(ExecutionError):  # a MicroPython without uctypes
                files = binary_info.file_system(read)
    return _Board(description, unique_id, files)


def _require_chip(port: str, firmware: Firmware, board: _Board) -> None:
    if firmware.chip not in board.description:
        text = (
            f"{firmware.path.name} is for {firmware.chip}, and the board on {port} is a {board.description}; "
        )
        text += "nothing was changed"
        raise UsageError(text, WHERE[names.RP2 if "RP2" in board.description else names.ESP32])


def _require_other_places(firmware: Firmware, image: uf2.Image, files: range | None) -> None:
    """Raise UsageError for an image that would replace a board's files, or whose MicroPython would not find them.

    files: where the board keeps them; None where nobody knows, since it waits in its boot loader."""
    new_files = binary_info.file_system(image.read)
    reaches_files = any(image.writes_into(region) for region in (files, new_files) if region is not None)
    if reaches_files or image.has_file_system:
        text = f"{firmware.path.name} brings files of its own, which would replace the board's files, with its key "
        raise UsageError(f"{text}and its ledger; nothing was changed", _FILES_HINT)
    if files is not None and new_files is not None and files != new_files:
        text = f"the MicroPython of {firmware.path.name} keeps its files {_place(new_files)}, and the board's are "
        text += (
            f"{_place(files)}: it would erase them, with the board's key and its ledger; nothing was changed"
        )
        raise UsageError(text, _FILES_HINT)


def _place(region: range) -> str:
    start, stop = (address - uf2.FLASH_START for address in (region.start, region.stop))
    return f"from {start:#x} to {stop:#x}"


def _erase_files(port: str) -> None:
    erasing = "import rp2, vfs\nvfs.umount('/')\nvfs.VfsLfs2.mkfs(rp2.Flash(), progsize=256)"
    with Repl(port, visits=True) as repl:
        repl.run(erasing, timeout=60.0)


def is_there(port: str) -> bool:
    """Whether a board is on `port`. A Pico that waits in its boot loader has none."""
    if "://" not in port:
        return Path(port).exists() or any(each.device == port for each in list_ports.comports())
    with contextlib.suppress(TernError):
        identity = devices.identify(port)
        return bool(identity.firmware or identity.tern)
    return False


def _enter_boot_loader(port: str) -> None:
    # It goes while it is being talked to.
    with contextlib.suppress(DeviceError), Repl(port, visits=True) as repl:
        try:
            repl.run("import machine\nmachine.bootloader()", timeout=2.0)
        except ExecutionError as error:
            hint = "hold BOOTSEL while you plug it in, and run the same command again"
            raise TernError(f"the board on {port} cannot enter its boot loader: {error}", hint) from error


def find_volume(named: str | Path | None = None) -> Path | None:
    """The volume of a Pico's boot loader: the folder `named`, or the one volume that holds INFO_UF2.TXT."""
    if named is not None:
        return Path(named) if (Path(named) / _INFO).is_file() else None
    volumes = [point for point in _mount_points() if (point / _INFO).is_file()]
    if len(volumes) > 1:
        hint = "name one with --volume"
        raise UsageError(f"several boards wait in their boot loaders: {', '.join(map(str, volumes))}", hint)
    return volumes[0] if volumes else None


def _mount_points() -> Iterable[Path]:
    mounts = Path("/proc/mounts")
    if mounts.exists():
        yield from mounted_volumes(mounts.read_bytes())
    elif Path("/Volumes").is_dir():
        yield from Path("/Volumes").iterdir()
    else:
        yield from (Path(f"{letter}:/") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ")


def mounted_volumes(table: bytes) -> Iterator[Path]:
    """Where volumes with a FAT file system are mounted by Linux's /proc/mounts."""
    for line in table.splitlines():
        _, point, kind, *_ = line.split(b" ")
        if kind in (b"vfat", b"msdos", b"fuseblk", b"exfat"):
            # The kernel writes a space, a tab, a line feed and a backslash as three octal digits.
            plain = re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), point)
            yield Path(os.fsdecode(plain))


def volume_chip(volume: Path) -> str:
    """The chip whose boot loader shows `volume`. Raises UsageError."""
    text = (volume / _INFO).read_text(errors="replace")
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "Board-ID" and value.strip() in _BOARD_IDS:
            return _BOARD_IDS[value.strip()]
    raise UsageError(f"{volume} is not the boot loader of a Pico", hint="see its INFO_UF2.TXT")


def _copy(data: bytes, target: Path, progress: Progress | None) -> None:
    # The board leaves its boot loader as soon as it has the last block: later failures do not matter.
    sent = 0
    try:
        with open(target, "wb", buffering=0) as file:
            while sent < len(data):
                sent += file.write(data[sent : sent + _CHUNK])
                if progress:
                    progress(sent, len(data))
            os.fsync(file.fileno())
    except KeyboardInterrupt as error:
        raise InterruptedByUser("flashing was interrupted", hint=_PICO_RECOVER) from error
    except OSError as error:
        if sent < len(data) or error.errno in (errno.ENOSPC, errno.EROFS, errno.EACCES):
            raise DeviceError(f"flashing broke off: {error.strerror}", hint=_PICO_RECOVER) from error


def _alive(port: str) -> devices.Identity | None:
    try:
        identity = devices.identify(port)
    except TernError:
        return None
    return identity if identity.firmware or identity.tern else None


def _wait_for(look: Callable[[], _T | None], seconds: float) -> _T | None:
    end = time.monotonic() + seconds
    while (result := look()) is None and time.monotonic() < end:
        time.sleep(0.25)
    return result


def add_parser(subparsers: Any) -> None:
    example = """tern flash a0 --firmware RPI_PICO-v1.28.0.uf2
        tern flash u0 --firmware ESP32_GENERIC-v1.28.0.bin"""
    parser = add_command(subparsers, "flash", "put MicroPython on a board", example, _run)
    devices.add_board(parser)
    add_options(parser)
    add_option(parser, "--erase", "also erase its files with its ledger: it becomes another device")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tern up` has as well."""
    add_option(parser, "--firmware FILE", "MicroPython: a .bin file for an ESP32, a .uf2 file for a Pico")
    add_option(parser, "--volume DIR", "folder where a Pico's boot loader is mounted (default: look for it)")
    add_option(parser, "--no-reset", "ESP32: its boot loader runs already (BOOT held at reset)")
    add_option(parser, "--no-stub", "ESP32: use the ROM's flasher, which is slower")
    add_option(parser, "--baud BAUD", "ESP32: baud rate while flashing", esp32.FLASH_BAUD)


def run_flash(port: str, firmware: Firmware, args: argparse.Namespace) -> dict[str, Any]:
    with Bar("flashing") as bar:
        return flash(
            port, firmware, reset=not args.no_reset, stub=not args.no_stub, volume=args.volume, baud=args.baud,
            erase=getattr(args, "erase", False),
            progress=bar.update, tell=bar.say,
        )  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    if not args.firmware:
        raise UsageError("--firmware FILE is missing: tern does not come with MicroPython", hint=SOURCES)
    firmware = read_firmware(args.firmware)
    waits = firmware.family == names.RP2 and find_volume(args.volume) is not None
    if args.board == "auto" and waits:
        text = "BOARD must be a port, not auto: the board waits in its boot loader and has no port yet"
        raise UsageError(text, hint="name it: such as a0")
    port = args.board if waits and "/" in args.board else names.resolve(args.board)
    result = {"port": port, **run_flash(port, firmware, args)}
    text = f"{result['chip']} on {port}: {result['bytes']} bytes at {result['offset']:#x}, verified"
    print_result(result, text, args.json)
    return errors.OK
