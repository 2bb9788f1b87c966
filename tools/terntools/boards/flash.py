"""Put MicroPython on a board: an ESP32 through esptool, a Pico by a UF2 file.

The file is the user's.
"""

import argparse
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from serial.tools import list_ports

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, InterruptedByUser, RefusedError, TernError, UsageError
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import devices, esp32, heard, pico_files, running, uf2, usb
from terntools.boards.repl import ExecutionError, NoPromptError, Repl
from terntools.terminal import Bar

_T = TypeVar("_T")
Progress = Callable[[int, int], None]  # bytes written, bytes in all
Tell = Callable[[str], None]  # a line for the user

DOWNLOADS = {
    names.RP2: "https://micropython.org/download/RPI_PICO/ (the .uf2 file; Pico W, Pico 2: see its list)",
    names.ESP32: "https://micropython.org/download/ESP32_GENERIC/ (the .bin file; other chips: see its list)",
}
SOURCES = "\n  ".join(("get it from", *(f"{family}: {url}" for family, url in DOWNLOADS.items())))
_INFO = "INFO_UF2.TXT"  # a file on the volume of a boot loader
_CHIP_BY_BOARD_ID = {"RPI-RP2": "RP2040", "RP2350": "RP2350"}  # by the Board-ID in this file
_RESTART_WAIT = 3.0  # seconds until a board that restarts is on its port again
_LEAVE_WAIT = 10.0  # seconds until a board has left its port for its boot loader
_HANG_UP_WAIT = 0.5  # seconds until a URL behind which there is no board hangs up
_SETTLE = 1.0  # seconds in which another volume may show up
_VOLUME_WAIT = 30.0  # seconds until the volume of a boot loader is mounted
_PORT_WAIT = 30.0  # seconds until MicroPython answers after flashing
_CHUNK = 64 * 1024  # bytes between two reports of progress
_PICO_RECOVER = (
    "nothing is lost: its boot loader is in ROM. Hold BOOTSEL while you plug the board in, "
    "and run the same command again"
)


@dataclass(frozen=True)
class Firmware:
    """A firmware file that was read and checked."""

    path: Path
    data: bytes
    family: str  # of chips: names.RP2 or names.ESP32
    chip: str  # "RP2040" or "RP2350"; esptool's name for an ESP32, such as "esp32s3"


def read_firmware(path: str | Path) -> Firmware:
    """Read a firmware and determine its chip. Raises UsageError."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="get a firmware file first"
        ) from error
    if data[:4] == b"UF2\n":
        return Firmware(path, data, names.RP2, uf2.read(data, path.name).chip)
    if data[:1] == b"\xe9":
        return Firmware(path, data, names.ESP32, esp32.image_chip(data, path.name))
    hint = "an ESP32 takes a .bin file, a Pico a .uf2 file, of MicroPython's download page"
    raise UsageError(f"{path.name} is not a firmware that tern can flash", hint)


def flash(
    port: str,
    firmware: Firmware,
    *,
    volume: str | Path | None = None,
    erase: bool = False,
    progress: Progress | None = None,
    tell: Tell = lambda line: None,
    **esp32_options: Any,
) -> dict[str, Any]:
    """Flash the board on `port`, check that it then runs MicroPython, and return a summary.

    volume: where the boot loader of a Pico is mounted, unless it is to be looked for. erase: erase
    files and ledger, too, so that the board becomes another device. esp32_options: reset, stub and
    baud of esp32.flash.

    Raises UsageError, with nothing changed, for a firmware that does not suit the board or would
    cost it its files, and where two boards may be meant. Raises DeviceError if the board does not
    answer, does not start, or is another one than before, and TernError if what was written does
    not verify.
    """
    if firmware.family == names.RP2:
        return _flash_pico(port, firmware, volume, erase, progress, tell)
    return _flash_esp32(port, firmware, erase, progress, tell, **esp32_options)


def _flash_esp32(
    port: str,
    firmware: Firmware,
    erase: bool,
    progress: Progress | None,
    tell: Tell,
    reset: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Flash an ESP32, and check that it starts.

    Without `reset` it stays in its boot loader, and is not checked.

    options: stub and baud of esp32.flash. Returns and raises the same as flash().
    """
    summary = esp32.flash(
        port,
        firmware.data,
        firmware.path.name,
        chip=firmware.chip,
        reset=reset,
        erase=erase,
        progress=progress,
        tell=tell,
        **options,
    )
    if reset:
        tell(f"waiting for MicroPython on {port}")
        summary["firmware"] = _require_start(port, firmware, summary["unique_id"])
    return summary


def _flash_pico(
    port: str,
    firmware: Firmware,
    volume: str | Path | None,
    erase: bool,
    progress: Progress | None,
    tell: Tell,
) -> dict[str, Any]:
    """Flash a Pico that runs MicroPython, or waits in its boot loader.

    Returns and raises the same as flash().
    """
    image = uf2.read(firmware.data, firmware.path.name)
    board = None  # what it said before it was flashed; one in its boot loader says nothing
    if find_volumes(volume):
        mounted = _waiting_board(port, volume, erase)
        pico_files.require_no_files(firmware.path.name, image)
        tell(
            f"the board in {mounted} waits in its boot loader and cannot say where its files are: they stay if this "
            "firmware is of the kind that the board had"
        )
    else:
        board = running.inspect(port)
        _require_chip(port, firmware, board)
        if not erase:
            pico_files.require_survival(firmware.path.name, image, board.files)
        tell(f"entering the boot loader of the board on {port}")
        mounted = _start_boot_loader(port, volume, erase)
    _require_chip_of_volume(mounted, firmware)

    tell(f"writing {firmware.path.name} to {mounted}")
    _copy(firmware.data, mounted / "firmware.uf2", progress)
    tell(f"waiting for MicroPython on {port}")
    identity = _wait_for(lambda: _identify(port), _PORT_WAIT)
    if identity is None:
        hint = "see `tern devices`: the port may have another name now; " + _PICO_RECOVER
        raise DeviceError(f"the file was written, but no MicroPython shows up on {port}", hint)
    if board is not None:
        _require_same_board(port, board.unique_id)
    return {
        "chip": firmware.chip,
        "offset": 0,
        "bytes": image.size,
        "verified": _is_version_of(image, identity.firmware, port),
        "firmware": identity.firmware,
    }


def _waiting_board(port: str, volume: str | Path | None, erase: bool) -> Path:
    """The volume of the one board that waits in its boot loader, where none runs on `port`.

    Raises UsageError.
    """
    _require_no_board_on(port, find_volumes(volume))
    if erase:
        hint = "flash it without --erase first, then once more with it"
        raise UsageError(
            "--erase needs a running MicroPython, and the board waits in its boot loader", hint
        )
    mounted = find_volume(volume)
    if mounted is None:
        raise DeviceError("the volume of the boot loader is gone", hint=_PICO_RECOVER)
    return mounted


def _require_no_board_on(port: str, waiting: Sequence[Path]) -> None:
    """Raise UsageError if a board runs on `port`: then those that wait in their boot loaders are
    other ones.
    """
    if comes_to(port):
        volumes = ", ".join(map(str, waiting))
        several = (
            "one waits in its boot loader"
            if len(waiting) == 1
            else "others wait in their boot loaders"
        )
        text = f"several boards may be meant: one runs on {port}, and {several} in {volumes}; nothing was changed"
        hint = f"to flash the board on {port}, unplug the others; to flash one that waits, name the port that it gets"
        raise UsageError(text, hint)


def _is_version_of(image: uf2.Image, version: str | None, port: str) -> bool:
    """Whether the MicroPython on `port` is known to be the one of the image.

    Raises DeviceError if it is another one.

    version: of the one on `port`; None where a user's program hides it.
    """
    if not version:
        return False
    if not image.contains(version.encode()):
        text = f"the file was written, but the board on {port} runs MicroPython {version}, which is not the file's"
        raise DeviceError(text, hint="see `tern devices`, and flash one board at a time")
    return True


def _require_chip_of_volume(mounted: Path, firmware: Firmware) -> None:
    """Raise UsageError if the boot loader that shows this volume is of another chip."""
    chip = volume_chip(mounted)
    if chip != firmware.chip:
        text = f"{firmware.path.name} is for {firmware.chip}, and the board in {mounted} has an {chip}; "
        text += "nothing was written"
        raise UsageError(text, f"get it for an {chip} board")


def _require_start(port: str, firmware: Firmware, unique_id: str) -> str | None:
    """Wait until an ESP32 runs after flashing; return MicroPython's version, or None where a user's
    program hides it.

    unique_id: the chip's number, in hexadecimal digits. Raises DeviceError, with what the board
    prints, if it does not start, and if another board is on `port`.
    """
    identity = _wait_for(lambda: _identify(port), _PORT_WAIT)
    try:
        _require_same_board(port, unique_id)
    except _OtherBoardError:
        raise
    except NoPromptError as error:  # either a user's program runs, or nothing does
        if identity is None and heard.is_firmware_missing(error.printed):
            text = f"{firmware.path.name} was written and verified, but does not start: {error.message}"
            hint = (
                "press its reset button; if that does not help, flash the firmware for its module"
            )
            raise DeviceError(text, hint) from error
    return identity.firmware if identity else None


class _OtherBoardError(DeviceError):
    """The board on a port is not the one that was there before."""


def _require_same_board(port: str, unique_id: str) -> None:
    """Raise _OtherBoardError if the chip on `port` has another number.

    Raises DeviceError if no MicroPython answers.
    """
    try:
        board = running.inspect(port)
    except RefusedError:  # it is locked, and says nothing
        return
    if board.unique_id != unique_id:
        text = f"another board is on {port} than before, and tern cannot tell which of them was flashed"
        raise _OtherBoardError(text, hint="see `tern devices`, and flash one board at a time")


def _require_chip(port: str, firmware: Firmware, board: running.RunningBoard) -> None:
    """Raise UsageError if the board has another chip than the firmware is for."""
    if firmware.chip not in board.description:
        text = f"{firmware.path.name} is for {firmware.chip}, "
        text += f"and the board on {port} is a {board.description}; nothing was changed"
        family = names.RP2 if board.is_pico else names.ESP32
        raise UsageError(text, DOWNLOADS[family])


def is_board_on(port: str) -> bool:
    """Whether a board is on `port`. A Pico that waits in its boot loader has no port."""
    if "://" not in port:
        return Path(port).exists() or any(each.device == port for each in list_ports.comports())
    end = time.monotonic() + _HANG_UP_WAIT
    try:
        with open_port(port, BAUD) as line:
            while time.monotonic() < end:
                line.read()
    except (TernError, *PORT_ERRORS):
        return False
    return True


def comes_to(port: str) -> bool:
    """Whether a board is on `port`, or comes to it: one that restarts has no port for some seconds."""
    return bool(_wait_for(lambda: is_board_on(port), _RESTART_WAIT))


def _start_boot_loader(port: str, volume: str | Path | None, erase: bool) -> Path:
    """Restart the Pico on `port` in its boot loader, and return where that is mounted. erase: its
    files before.

    Raises UsageError and DeviceError where it is not known which volume is the board's, with
    nothing written.
    """
    place = usb.place_of_port(port)
    waiting = find_volumes(volume)
    if waiting:
        _require_no_board_on(port, waiting)
    if erase:
        _erase_files(port)
    _enter_boot_loader(port)
    erased = "its files are erased; " if erase else ""
    if not _wait_for(lambda: not is_board_on(port), _LEAVE_WAIT):
        text = f"the board on {port} did not start its boot loader; {erased}nothing was written"
        raise DeviceError(
            text, hint="hold BOOTSEL while you plug it in, and run the same command again"
        )
    if not _wait_for(lambda: _volumes_at(place, volume), _VOLUME_WAIT):
        hint = "is it mounted? Name where with --volume; " + _PICO_RECOVER
        raise DeviceError(
            f"the boot loader's volume did not show up; {erased}nothing was written", hint
        )
    time.sleep(_SETTLE)  # another board may have come at the same time
    volumes = _volumes_at(place, volume)
    if len(volumes) != 1:
        listed = ", ".join(map(str, volumes)) or "none any more"
        text = f"several boards wait in their boot loaders: {listed}; {erased}nothing was written"
        raise DeviceError(text, hint="unplug the others, and run the same command again")
    return volumes[0]


def _erase_files(port: str) -> None:
    """Erase the files of the Pico on `port`.

    Raises TernError if its MicroPython cannot do so, and DeviceError.
    """
    with Repl(port, visits=True) as repl:
        try:
            repl.run(
                "import umachine\numachine.bootloader"
            )  # without it, the board could not be flashed
            pico_files.erase(repl)
        except ExecutionError as error:
            text = f"the files of the board on {port} cannot be erased: {error}"
            raise TernError(text, "leave out --erase, and erase them after flashing") from error


def _enter_boot_loader(port: str) -> None:
    """Start the boot loader of the Pico on `port`.

    Raises TernError if its MicroPython cannot do so.
    """
    has_prompt = False
    try:
        with Repl(port, visits=True) as repl:
            has_prompt = True
            repl.run("import umachine\numachine.bootloader()", timeout=2.0)
    except ExecutionError as error:
        hint = "hold BOOTSEL while you plug it in, and run the same command again"
        raise TernError(
            f"the board on {port} cannot enter its boot loader: {error}", hint
        ) from error
    except DeviceError:
        if not has_prompt:
            raise
        # It has left its port before it could answer, as it should.


def _volumes_at(place: str | None, named: str | Path | None) -> list[Path]:
    """The volumes of boot loaders, without those that are known to be at another place of the USB."""
    return [volume for volume in find_volumes(named) if not usb.is_elsewhere(volume, place)]


def find_volume(named: str | Path | None = None) -> Path | None:
    """The volume of a Pico's boot loader; None if there is none.

    named: the folder to look at, instead of all mounted volumes. Raises UsageError if several
    boards wait.
    """
    volumes = find_volumes(named)
    if len(volumes) > 1:
        hint = "name one with --volume"
        raise UsageError(
            f"several boards wait in their boot loaders: {', '.join(map(str, volumes))}", hint
        )
    return volumes[0] if volumes else None


def find_volumes(named: str | Path | None = None) -> list[Path]:
    """The volumes of the Picos that wait in their boot loaders. named: the folder to look at,
    instead of all.
    """
    folders = _mount_points() if named is None else [Path(named)]
    return [folder for folder in folders if _is_boot_loader(folder)]


def _is_boot_loader(folder: Path) -> bool:
    try:
        return (folder / _INFO).is_file()
    except OSError:  # it belongs to another user, or its device is gone
        return False


def _mount_points() -> Iterable[Path]:
    """Where volumes may be mounted, on Linux, macOS and Windows."""
    mounts = Path("/proc/mounts")
    if mounts.exists():
        yield from mounted_volumes(mounts.read_bytes())
    elif Path("/Volumes").is_dir():
        yield from Path("/Volumes").iterdir()
    else:
        yield from (Path(f"{letter}:/") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ")


def mounted_volumes(table: bytes) -> Iterator[Path]:
    """The folders in which FAT file systems are mounted. table: the content of Linux's
    /proc/mounts.
    """
    return (folder for _, folder in usb.mounts(table))


def volume_chip(volume: Path) -> str:
    """The chip whose boot loader shows `volume`. Raises UsageError."""
    text = (volume / _INFO).read_text(errors="replace")
    for line in text.splitlines():
        key, _, value = line.partition(":")
        board_id = value.strip()
        if key == "Board-ID" and board_id in _CHIP_BY_BOARD_ID:
            return _CHIP_BY_BOARD_ID[board_id]
    hint = f"see its {_INFO}, or name another folder with --volume"
    raise UsageError(f"{volume} is not the boot loader of a Pico", hint)


def _copy(data: bytes, target: Path, progress: Progress | None) -> None:
    """Write a firmware to a boot loader. Raises DeviceError, and InterruptedByUser after Ctrl-C.

    The board leaves its boot loader as soon as it has the last block, so later failures do not
    matter.
    """
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
            raise DeviceError(
                f"flashing broke off: {error.strerror}", hint=_PICO_RECOVER
            ) from error


def _identify(port: str) -> devices.Identity | None:
    """What a board that runs on `port` says that it is; None if none answers."""
    try:
        identity = devices.identify(port)
    except TernError:
        return None
    return identity if identity.firmware or identity.tern else None


def _wait_for(look: Callable[[], _T | None], seconds: float) -> _T | None:
    """Call `look` until it returns something true, or some seconds are over; return the last
    answer.
    """
    end = time.monotonic() + seconds
    while True:
        result = look()
        if result or time.monotonic() >= end:
            return result
        time.sleep(0.25)


def add_parser(subparsers: Any) -> None:
    example = """tern flash a0 --firmware RPI_PICO-v1.28.0.uf2
        tern flash u0 --firmware ESP32_GENERIC-v1.28.0.bin"""
    parser = add_command(subparsers, "flash", "put MicroPython on a board", example, _run)
    devices.add_board(parser)
    add_options(parser)
    add_option(parser, "--erase", "also erase its files with its ledger: it becomes another device")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `tern up` has as well."""
    add_option(
        parser, "--firmware FILE", "MicroPython: a .bin file for an ESP32, a .uf2 file for a Pico"
    )
    add_option(
        parser,
        "--volume DIR",
        "folder where a Pico's boot loader is mounted (default: look for it)",
    )
    add_option(parser, "--no-reset", "ESP32: its boot loader runs already (BOOT held at reset)")
    add_option(parser, "--no-stub", "ESP32: use the ROM's flasher, which is slower")
    add_option(parser, "--baud BAUD", "ESP32: baud rate while flashing", esp32.FLASH_BAUD)


def run_flash(port: str, firmware: Firmware, args: argparse.Namespace) -> dict[str, Any]:
    """Flash the board as these options say, and show the progress. `tern up` has no --erase."""
    with Bar("flashing") as bar:
        return flash(
            port,
            firmware,
            volume=args.volume,
            erase=getattr(args, "erase", False),
            progress=bar.update,
            tell=bar.say,
            reset=not args.no_reset,
            stub=not args.no_stub,
            baud=args.baud,
        )


def _run(args: argparse.Namespace) -> int:
    if not args.firmware:
        raise UsageError(
            "--firmware FILE is missing: tern does not come with MicroPython", hint=SOURCES
        )
    firmware = read_firmware(args.firmware)
    a_board_waits = firmware.family == names.RP2 and bool(find_volumes(args.volume))
    if a_board_waits and args.board == "auto":
        text = (
            "BOARD must be a port, not auto: a board waits in its boot loader, and has no port yet"
        )
        raise UsageError(text, hint="name the port that it gets, such as a0")
    port = names.resolve(args.board, may_be_absent=a_board_waits)
    result = {"port": port, **run_flash(port, firmware, args)}
    verified = (
        "verified"
        if result["verified"]
        else "written, but the board does not say which MicroPython it runs"
    )
    text = (
        f"{result['chip']} on {port}: {result['bytes']} bytes at {result['offset']:#x}, {verified}"
    )
    print_result(result, text, args.json)
    return errors.OK
