"""Flash an ESP32 through esptool 5, which is imported only when needed.

esptool is GPL-2.0-or-later, and an optional extra: `boards`.
"""

import functools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ternhost import extras
from ternhost.errors import DeviceError, InterruptedByUser, TernError, UsageError
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import esp32_files

Progress = Callable[[int, int], None]  # bytes written, bytes in all
Tell = Callable[[str], None]  # a line for the user

_HEADER_BYTES = 24  # of an image, with its extension
_FLASH_SIZE_AT = 3  # in the header: the upper four bits are n for a flash of 2^n MB
_CHIP_ID_AT = 12  # in the header
_MB = 1 << 20
# Where MicroPython has several files for a chip: the one for a flash of so many MB.
_FILE_BY_FLASH = {
    ("ESP32", 2): "ESP32_GENERIC-D2WD-*.bin",
    ("ESP32", 4): "ESP32_GENERIC-*.bin",
    (
        "ESP32-S3",
        4,
    ): "ESP32_GENERIC_S3-FLASH_4M-*.bin, or ESP32_GENERIC_S3-*.bin from MicroPython 1.26 on,",
    ("ESP32-S3", 8): "ESP32_GENERIC_S3-*.bin",
}
FLASH_BAUD = 460800
ATTEMPTS = 7  # to reach the boot loader, 0.7 s each

_RECOVER = (
    "the board does not start as it is, but nothing is lost: its boot loader is in ROM. Hold BOOT, press RESET, "
    "let BOOT go, and run the same command again with --no-reset"
)


@dataclass(frozen=True)
class BootLoader:
    """How esptool talks to the boot loader of a board.

    reset: use the reset lines; without them the board is in its boot loader already, and stays
    there. stub: use esptool's flasher, not the ROM's. baud: bits/s of the stub. attempts: how often
    the boot loader is called.
    """

    reset: bool = True
    stub: bool = True
    baud: int = FLASH_BAUD
    attempts: int = ATTEMPTS


DEFAULT = BootLoader()


def _esptool() -> Any:
    """Import esptool with the parts that are needed, and return it. Raises UsageError without it."""
    extras.require("esptool")
    import esptool
    import esptool.cmds
    import esptool.logger
    import esptool.targets

    return esptool


def image_chip(data: bytes, file_name: str) -> str:
    """Return the chip that a firmware for the whole flash is for, such as "esp32s3".

    file_name: for messages. Raises UsageError for other files, such as an update over the air:
    without a partition table at 0x8000, the board would not start.
    """
    definitions = _esptool().targets.CHIP_DEFS
    if len(data) < _HEADER_BYTES:
        hint = "take the .bin file of your board, not .uf2 or .elf"
        raise UsageError(f"{file_name} is not a firmware for an ESP32", hint)
    (chip_id,) = struct.unpack_from("<H", data, _CHIP_ID_AT)
    chips = {chip.IMAGE_CHIP_ID: name for name, chip in definitions.items() if name != "esp8266"}
    if chip_id not in chips:
        raise UsageError(f"{file_name} is for a chip that esptool does not know (id {chip_id})")
    name: str = chips[chip_id]
    partition_table = data[esp32_files.TABLE - definitions[name].BOOTLOADER_FLASH_OFFSET :]
    if not partition_table.startswith(esp32_files.ROW_MAGIC):
        hint = "take the .bin file of your board, not the .app-bin"
        raise UsageError(f"{file_name} is not a whole firmware: it has no partition table", hint)
    return name


def flash(
    port: str,
    data: bytes,
    name: str,
    *,
    chip: str,
    boot_loader: BootLoader = DEFAULT,
    erase: bool = False,
    progress: Progress | None = None,
    tell: Tell = lambda line: None,
) -> dict[str, Any]:
    """Write a firmware to the board on `port`, verify it, and return a summary.

    It has the chip's number (its MAC). data, name: the firmware and its file's name. chip: the chip
    that it is for, as image_chip names it. erase: erase the whole flash first, files included.

    Raises UsageError, with nothing changed, for a firmware that does not suit the board or would
    cost it its files. Raises DeviceError if the board does not answer, and TernError if what was
    written does not verify.
    """
    if erase and not boot_loader.stub:
        raise UsageError(
            "the flasher in ROM cannot erase the whole flash", hint="leave out --no-stub"
        )
    esptool = _esptool()
    logger = _logger()
    logger.progress = None  # esptool shows the progress of reading, too
    rom = _connect(esptool, port, boot_loader)
    loader = rom  # or the stub in RAM, once it runs
    offset = rom.BOOTLOADER_FLASH_OFFSET
    is_writing = is_written = False
    try:
        _require_chip(esptool, name, chip, rom.CHIP_NAME, port)
        tell(f"{rom.CHIP_NAME} on {port}")
        if boot_loader.stub:
            loader = esptool.cmds.run_stub(rom)
            if boot_loader.reset:  # a port without reset lines is seldom a bridge with a baud rate
                loader.change_baud(boot_loader.baud)
        esptool.cmds.attach_flash(loader)
        _check_flash(esptool, loader, port, name, data, erase)
        mac = bytes(rom.read_mac()).hex()

        is_writing = True
        logger.progress = progress
        esptool.cmds.write_flash(loader, [(offset, data)], erase_all=erase)  # and verifies its MD5
        is_writing, is_written = False, True
        esptool.cmds.reset_chip(loader, "hard-reset" if boot_loader.reset else "no-reset")
    except KeyboardInterrupt as error:
        if not is_writing:
            raise
        raise InterruptedByUser("flashing was interrupted", hint=_RECOVER) from error
    except (esptool.FatalError, *PORT_ERRORS) as error:
        if is_written:
            raise DeviceError(
                f"{name} was written and verified, but the board could not be restarted: "
                f"{_first_line(error)}",
                hint="press its reset button, and see `tern devices`",
            ) from error
        raise _explained(error, is_writing) from error
    finally:
        rom._port.close()
    return {
        "chip": rom.CHIP_NAME,
        "offset": offset,
        "bytes": len(data),
        "verified": True,
        "unique_id": mac,
    }


def _check_flash(esptool: Any, loader: Any, port: str, name: str, data: bytes, erase: bool) -> None:
    """Raise UsageError for a firmware that does not suit the board's flash, or costs its files.

    loader: of esptool, which talks to the board. name, data: the firmware and its file's name.
    erase: the files are to be erased anyway.
    """
    size_text = esptool.cmds.detect_flash_size(loader)  # such as "4MB"; None for an unknown flash
    if not size_text:
        if erase:
            return
        raise UsageError(
            f"the flash of the board on {port} does not say its size, so nobody knows where its "
            "files are; nothing was changed",
            hint="if the board is to become another device, add --erase",
        )
    flash_bytes = esptool.util.flash_size_bytes(size_text)
    offset = loader.BOOTLOADER_FLASH_OFFSET
    _require_size(name, data, offset, loader.CHIP_NAME, flash_bytes)
    if not erase:
        read_flash = functools.partial(_read_flash, esptool, loader)
        esp32_files.require_survival(name, data, offset, flash_bytes, read_flash)


def _explained(error: BaseException, is_writing: bool) -> TernError:
    """Return the error that says what an error of esptool or of the port means for the user.

    is_writing: the flash may be half written.
    """
    reason = _first_line(error)
    if not is_writing:
        text = f"the boot loader stopped answering before anything was written: {reason}"
        return DeviceError(text, hint="run the same command again")
    if "MD5" in reason or "region is empty" in reason:
        return TernError(
            f"what was written does not verify: {reason}", f"try a lower --baud; {_RECOVER}"
        )
    return DeviceError(f"flashing broke off: {reason}", hint=_RECOVER)


def _require_chip(esptool: Any, name: str, chip: str, connected: str, port: str) -> None:
    """Raise UsageError for a firmware for another chip than the one that is connected."""
    wanted = esptool.targets.CHIP_DEFS[chip].CHIP_NAME
    if connected != wanted:
        text = f"{name} is for {wanted}, and the board on {port} has an {connected}; nothing was changed"
        raise UsageError(text, hint=f"get the firmware of an {connected} board")


def _read_flash(esptool: Any, loader: Any, address: int, n: int) -> bytes:
    """n bytes of the board's flash."""
    data: bytes = esptool.cmds.read_flash(loader, address, n, None)
    return data


def _require_size(name: str, data: bytes, offset: int, chip: str, flash_bytes: int) -> None:
    """Raise UsageError for a firmware that needs more flash than the board has.

    With such a firmware the board would restart for ever. data: the firmware, which is written to
    `offset`. chip: as esptool shows it, such as "ESP32-S3".
    """
    flash_mb = flash_bytes // _MB
    hint = f"get the firmware for a flash of {flash_mb} MB"
    file_pattern = _FILE_BY_FLASH.get((chip, flash_mb))
    if file_pattern:
        hint += f": {file_pattern} for an {chip}"
    if offset + len(data) > flash_bytes:
        text = f"{name} is too large for the board's flash of {flash_mb} MB; nothing was changed"
        raise UsageError(text, hint)

    header_bytes = _MB << (data[_FLASH_SIZE_AT] >> 4)
    table_rows = esp32_files.partitions(data[esp32_files.TABLE - offset :])
    table_bytes = max((partition.region.stop for partition in table_rows), default=0)
    needed_bytes = max(header_bytes, table_bytes)
    if needed_bytes > flash_bytes:
        needed_mb = math.ceil(needed_bytes / _MB)
        text = f"{name} is for a flash of {needed_mb} MB, and the board's has {flash_mb} MB; nothing was changed"
        raise UsageError(text, hint)
    if table_bytes > header_bytes:
        text = (
            f"{name} would not start: its header says that it is for a flash of {header_bytes // _MB} MB, and its "
            f"partitions need {math.ceil(table_bytes / _MB)} MB; nothing was changed"
        )
        raise UsageError(text, "get the .bin file of your board again")


def _connect(esptool: Any, port: str, boot_loader: BootLoader) -> Any:
    """Reach the boot loader on `port`, and return esptool's loader for its chip.

    Raises DeviceError, and UsageError for what is no port.
    """
    mode = "default-reset" if boot_loader.reset else "no-reset"
    # Its errors say better than esptool's why a port cannot be opened.
    open_port(port, BAUD).close()
    try:
        return esptool.cmds.detect_chip(port, BAUD, mode, connect_attempts=boot_loader.attempts)
    except (esptool.FatalError, *PORT_ERRORS) as error:
        hint = "hold BOOT, press RESET, let BOOT go, and run the same command again with --no-reset"
        raise DeviceError(f"no ESP32 answers on {port}: {_first_line(error)}", hint) from error


def _first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@functools.cache
def _logger() -> Any:
    """Replace esptool's logger by one that prints nothing and passes the progress on; return it."""
    logger = _esptool().logger
    template: Any = logger.TemplateLogger

    def ignore(self: Any, *_: Any, **__: Any) -> None:
        pass

    class Quiet(template):  # type: ignore[misc]
        progress: Progress | None = None
        print = note = warning = error = stage = set_verbosity = ignore

        def progress_bar(self, cur_iter: int, total_iters: int, *_: Any, **__: Any) -> None:
            if self.progress:
                self.progress(cur_iter, total_iters)

    quiet = Quiet()
    logger.log.set_logger(quiet)
    return quiet
