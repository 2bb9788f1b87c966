"""Flash a Pico: restart it in its boot loader, and copy a UF2 file to the volume that this shows.

Several boards may be connected. Nothing is written where it is not certain which one is meant.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ternhost.errors import DeviceError, TernError, UsageError
from terntools.boards import at_port, pico_files, running, uf2, usb, volumes
from terntools.boards.firmware import Firmware
from terntools.boards.flash_options import FlashOptions
from terntools.boards.prompt_errors import ExecutionError
from terntools.boards.repl import Repl
from terntools.boards.volumes import RECOVER

LEAVE_WAIT = 10.0  # seconds until a board has left its port for its boot loader
VOLUME_WAIT = 30.0  # seconds until the volume of a boot loader is mounted
_SETTLE = 1.0  # seconds in which another volume may show up
_BOOTSEL = "hold BOOTSEL while you plug it in, and run the same command again"


def flash_pico(port: str, firmware: Firmware, options: FlashOptions) -> dict[str, Any]:
    """Flash a Pico that runs MicroPython, or waits in its boot loader; return a summary for JSON.

    port: names.AUTO for the only one, which waits in its boot loader and has no port yet.
    Raises what flash.flash raises.
    """
    name = firmware.path.name
    image = uf2.read(firmware.data, name)
    running_board = None  # what the board says before it is flashed; nothing in its boot loader
    boot_loader_volumes = volumes.find_volumes(options.volume)
    if boot_loader_volumes:
        boot_volume = _volume_of_waiting_board(port, boot_loader_volumes, options.erase)
        pico_files.require_no_files(name, image)
        options.tell(
            f"the board in {boot_volume} waits in its boot loader and cannot say where its files are: "
            "they stay if this firmware is of the kind that the board had"
        )
    else:
        running_board = running.inspect(port)
        at_port.require_chip(port, firmware, running_board)
        if not options.erase:
            pico_files.require_survival(name, image, running_board.files)
        options.tell(f"entering the boot loader of the board on {port}")
        boot_volume = _start_boot_loader(port, options.volume, options.erase)
    _require_chip_of_volume(boot_volume, firmware)

    options.tell(f"writing {name} to {boot_volume}")
    volumes.copy(firmware.data, boot_volume, options.progress)
    port = at_port.wait_for_pico(port)
    options.tell(f"waiting for MicroPython on {port}")
    identity = at_port.wait_for_micropython(port)
    if identity is None:
        raise DeviceError(
            f"the file was written, but no MicroPython shows up on {port}",
            hint=f"see 'tern board list': the port may have another name now; {RECOVER}",
        )
    if running_board is not None:
        at_port.require_same_board(port, running_board.unique_id)
    return {
        "port": port,
        "chip": firmware.chip,
        "offset": 0,
        "bytes": image.size,
        "verified": _is_version_of(image, identity.firmware, port),
        "firmware": identity.firmware,
    }


def _volume_of_waiting_board(port: str, boot_loader_volumes: Sequence[Path], erase: bool) -> Path:
    """Return the volume of the board that waits in its boot loader, if it is certain which one.

    boot_loader_volumes: all volumes of boot loaders that are mounted. erase: whether the user wants
    the files erased, which only a running board can do. Raises UsageError if several boards may be
    meant, and DeviceError if the board is gone.
    """
    _require_no_board_on(port, boot_loader_volumes)
    if erase:
        raise UsageError(
            "--erase needs a running MicroPython, and the board waits in its boot loader",
            hint="flash it without --erase first, then once more with it",
        )
    if len(boot_loader_volumes) > 1:
        raise UsageError(
            f"several boards wait in their boot loaders: {', '.join(map(str, boot_loader_volumes))}",
            hint="name one with --volume",
        )
    boot_volume = boot_loader_volumes[0]
    if not volumes.is_boot_loader(boot_volume):
        raise DeviceError("the volume of the boot loader is gone", hint=RECOVER)
    return boot_volume


def _require_no_board_on(port: str, boot_loader_volumes: Sequence[Path]) -> None:
    """Raise UsageError if a board runs on `port`: then those in boot loaders are other ones."""
    if not at_port.comes_to(port):
        return
    others = "others wait in their boot loaders"
    if len(boot_loader_volumes) == 1:
        others = "one waits in its boot loader"
    raise UsageError(
        f"several boards may be meant: one runs on {port}, and {others} in "
        f"{', '.join(map(str, boot_loader_volumes))}; nothing was changed",
        hint=f"to flash the board on {port}, unplug the others; to flash one that waits, name the "
        "port that it gets",
    )


def _require_chip_of_volume(mounted: Path, firmware: Firmware) -> None:
    """Raise UsageError if the boot loader that shows this volume is of another chip."""
    chip = volumes.volume_chip(mounted)
    if chip != firmware.chip:
        raise UsageError(
            f"{firmware.path.name} is for {firmware.chip}, and the board in {mounted} has an "
            f"{chip}; nothing was written",
            hint=f"get the firmware for an {chip} board",
        )


def _is_version_of(image: uf2.Image, version: str | None, port: str) -> bool:
    """Return whether the board on `port` is known to run the MicroPython of the image.

    version: the one that the board says; None if a user's program runs, which does not say it.
    Raises DeviceError if it is another one.
    """
    if not version:
        return False
    if not image.contains(version.encode()):
        raise DeviceError(
            f"the file was written, but the board on {port} runs MicroPython {version}, which is "
            "not the file's",
            hint="see 'tern board list', and flash one board at a time",
        )
    return True


def _start_boot_loader(port: str, volume: str | Path | None, erase: bool) -> Path:
    """Restart the Pico on `port` in its boot loader, and return the folder where that is mounted.

    volume: the folder that the user has named, or None to look for it. erase: whether to erase the
    board's files before. Raises UsageError and DeviceError, with nothing written, if it is not
    certain which volume is the board's.
    """
    usb_place = usb.place_of_port(port)
    boot_loader_volumes = volumes.find_volumes(volume)
    if boot_loader_volumes:
        _require_no_board_on(port, boot_loader_volumes)
    if erase:
        _erase_files(port)
    enter_boot_loader(port)

    outcome = "nothing was written"
    if erase:
        outcome = f"its files are erased; {outcome}"
    has_left = at_port.wait_for(lambda: not at_port.is_board_on(port), LEAVE_WAIT)
    if not has_left:
        text = f"the board on {port} did not start its boot loader; {outcome}"
        raise DeviceError(text, hint=_BOOTSEL)
    has_volume = at_port.wait_for(lambda: volumes_at(usb_place, volume), VOLUME_WAIT)
    if not has_volume:
        raise DeviceError(
            f"the boot loader's volume did not show up; {outcome}",
            hint=f"check that it is mounted, and name its folder with --volume; {RECOVER}",
        )
    time.sleep(_SETTLE)  # another board may have come at the same time
    candidates = volumes_at(usb_place, volume)
    if len(candidates) != 1:
        listed = "none any more"
        if candidates:
            listed = ", ".join(map(str, candidates))
        raise DeviceError(
            f"several boards wait in their boot loaders: {listed}; {outcome}",
            hint="unplug the others, and run the same command again",
        )
    return candidates[0]


def _erase_files(port: str) -> None:
    """Erase the files of the Pico on `port`.

    Raises TernError if its MicroPython cannot do so, and DeviceError.
    """
    with Repl(port, visits=True) as repl:
        try:
            # Without a boot loader, the board could not be flashed afterwards.
            repl.run("import umachine\numachine.bootloader")
            pico_files.erase(repl)
        except ExecutionError as error:
            text = f"the files of the board on {port} cannot be erased: {error}"
            raise TernError(text, "leave out --erase, and erase them after flashing") from error


def enter_boot_loader(port: str) -> None:
    """Start the boot loader of the Pico on `port`.

    Raises TernError if its MicroPython cannot do so.
    """
    has_prompt = False
    try:
        with Repl(port, visits=True) as repl:
            has_prompt = True
            repl.run("import umachine\numachine.bootloader()", timeout=2.0)
    except ExecutionError as error:
        text = f"the board on {port} cannot enter its boot loader: {error}"
        raise TernError(text, hint=_BOOTSEL) from error
    except DeviceError:
        if not has_prompt:
            raise
        # It has left its port before it could answer, as it should.


def volumes_at(place: str | None, named: str | Path | None) -> list[Path]:
    """Return the volumes of boot loaders that may be those of a board at a place of the USB.

    place: as from usb.place_of_port; None if it is not known, and then all volumes may. named: the
    folder that the user has named, or None.
    """
    found = volumes.find_volumes(named)
    return [volume for volume in found if not usb.is_elsewhere(volume, place)]
