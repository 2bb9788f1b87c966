"""Flash an ESP32 through esptool 5, which is imported only when needed.

esptool is GPL-2.0-or-later, and an optional extra: `boards`.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import TYPE_CHECKING, Any

from ternhost import extras
from ternhost.errors import DeviceError, InterruptedByUser, TernError, UsageError
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import esp32_files
from terntools.boards.flash_options import BootLoader, FlashOptions, Progress

if TYPE_CHECKING:
    from terntools.boards.firmware import Firmware

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

_RECOVER = (
    "the board does not start as it is, but nothing is lost: its boot loader is in ROM. Hold BOOT, press RESET, "
    "let BOOT go, and run the same command again with --no-reset"
)


def _esptool() -> Any:
    """Import esptool with the parts that are needed, and return it. Raises UsageError without it."""
    extras.require("esptool")
    import esptool
    import esptool.cmds
    import esptool.logger
    import esptool.reset
    import esptool.targets

    return esptool


def image_chip(data: bytes, file_name: str) -> str:
    """Return the chip that a firmware is for, in esptool's words, such as "esp32s3".

    data: a firmware for the whole flash. file_name: for messages. Raises UsageError for other
    files, such as an update over the air: without a partition table at 0x8000, the board would not
    start.
    """
    definitions = _esptool().targets.CHIP_DEFS
    if len(data) < _HEADER_BYTES:
        hint = "take the .bin file of your board, not .uf2 or .elf"
        raise UsageError(f"{file_name} is not a firmware for an ESP32", hint)
    (chip_id,) = struct.unpack_from("<H", data, _CHIP_ID_AT)
    names_by_id = {}
    for chip_name, definition in definitions.items():
        if chip_name != "esp8266":  # whose images have no chip's number
            names_by_id[definition.IMAGE_CHIP_ID] = chip_name
    if chip_id not in names_by_id:
        raise UsageError(f"{file_name} is for a chip that esptool does not know (id {chip_id})")
    name: str = names_by_id[chip_id]

    # The file begins with the boot loader, whose address depends on the chip.
    file_address = definitions[name].BOOTLOADER_FLASH_OFFSET
    partition_table = data[esp32_files.TABLE - file_address :]
    if not partition_table.startswith(esp32_files.ROW_MAGIC):
        hint = "take the .bin file of your board, not the .app-bin"
        raise UsageError(f"{file_name} is not a whole firmware: it has no partition table", hint)
    return name


def flash(port: str, firmware: Firmware, options: FlashOptions) -> dict[str, Any]:
    """Write a firmware to the board on `port`, verify it, and return a summary for JSON.

    The summary has the chip's number, which is its MAC address. Before anything is written, the
    board's chip, the size of its flash and the place of its files are compared with the firmware.

    Raises UsageError, with nothing changed, for a firmware that does not suit the board or would
    cost it its files. Raises DeviceError if the board does not answer, and TernError if what was
    written does not verify.
    """
    boot_loader = options.boot_loader
    esptool = _esptool()
    _logger().progress = None  # esptool shows the progress of reading, too
    rom = _connect(esptool, port, boot_loader)
    try:
        _require_chip(esptool, firmware, rom.CHIP_NAME, port)
        options.tell(f"{rom.CHIP_NAME} on {port}")
        loader = _start_flasher(esptool, rom, boot_loader)
        esptool.cmds.attach_flash(loader)
        _check_flash(esptool, loader, port, firmware, options.erase)
        mac = bytes(rom.read_mac()).hex()

        _write(esptool, loader, firmware, options)
        _restart(esptool, loader, firmware, boot_loader)
    except (esptool.FatalError, *PORT_ERRORS) as error:
        # _write() and _restart() raise errors of their own.
        reason = _first_line(error)
        text = f"the boot loader stopped answering before anything was written: {reason}"
        raise DeviceError(text, hint="run the same command again") from error
    finally:
        rom._port.close()
    return {
        "chip": rom.CHIP_NAME,
        "offset": rom.BOOTLOADER_FLASH_OFFSET,
        "bytes": len(firmware.data),
        "verified": True,
        "unique_id": mac,
    }


def _start_flasher(esptool: Any, rom: Any, boot_loader: BootLoader) -> Any:
    """Start esptool's flasher in the RAM of the board, and return it.

    rom: the boot loader in ROM.
    """
    stub = esptool.cmds.run_stub(rom)
    if boot_loader.reset:  # a port without reset lines is seldom a bridge with a baud rate
        stub.change_baud(boot_loader.baud)
    return stub


def _write(esptool: Any, loader: Any, firmware: Firmware, options: FlashOptions) -> None:
    """Write a firmware to flash, and verify it by the MD5 sum that the board computes.

    Raises InterruptedByUser after Ctrl-C, TernError if what was written does not verify, and
    DeviceError if the board stops answering.
    """
    _logger().progress = options.progress
    content = (loader.BOOTLOADER_FLASH_OFFSET, firmware.data)
    try:
        esptool.cmds.write_flash(loader, [content], erase_all=options.erase)
    except KeyboardInterrupt as error:
        raise InterruptedByUser("flashing was interrupted", hint=_RECOVER) from error
    except (esptool.FatalError, *PORT_ERRORS) as error:
        reason = _first_line(error)
        if "MD5" in reason or "region is empty" in reason:
            raise TernError(
                f"what was written does not verify: {reason}", f"try a lower --baud; {_RECOVER}"
            ) from error
        raise DeviceError(f"flashing broke off: {reason}", hint=_RECOVER) from error


def _restart(esptool: Any, loader: Any, firmware: Firmware, boot_loader: BootLoader) -> None:
    """Restart the board after flashing, where it has reset lines. Raises DeviceError."""
    mode = "no-reset"
    if boot_loader.reset:
        mode = "hard-reset"
    try:
        esptool.cmds.reset_chip(loader, mode)
    except (esptool.FatalError, *PORT_ERRORS) as error:
        raise DeviceError(
            f"{firmware.path.name} was written and verified, but the board could not be restarted: "
            f"{_first_line(error)}",
            hint="press its reset button, and see 'tern board list'",
        ) from error


def _check_flash(esptool: Any, loader: Any, port: str, firmware: Firmware, erase: bool) -> None:
    """Raise UsageError for a firmware that does not suit the board's flash, or costs its files.

    loader: of esptool, which talks to the board. erase: whether the files are to be erased anyway.
    """
    name = firmware.path.name
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
    _require_size(name, firmware.data, offset, loader.CHIP_NAME, flash_bytes)
    if not erase:
        read_flash = functools.partial(_read_flash, esptool, loader)
        esp32_files.require_survival(name, firmware.data, offset, flash_bytes, read_flash)


def _require_chip(esptool: Any, firmware: Firmware, connected: str, port: str) -> None:
    """Raise UsageError for a firmware for another chip than the one that is connected.

    connected: the chip as esptool shows it, such as "ESP32-S3".
    """
    wanted = esptool.targets.CHIP_DEFS[firmware.chip].CHIP_NAME
    if connected != wanted:
        raise UsageError(
            f"{firmware.path.name} is for {wanted}, and the board on {port} has an {connected}; "
            "nothing was changed",
            hint=f"get the firmware of an {connected} board",
        )


def _read_flash(esptool: Any, loader: Any, address: int, n: int) -> bytes:
    """Return n bytes of the board's flash, from an address on."""
    data: bytes = esptool.cmds.read_flash(loader, address, n, None)
    return data


def _require_size(name: str, data: bytes, offset: int, chip: str, flash_bytes: int) -> None:
    """Raise UsageError for a firmware that needs more flash than the board has.

    With such a firmware the board would restart for ever. name, data: of the firmware's file, which
    is written to the address `offset`. chip: as esptool shows it, such as "ESP32-S3". flash_bytes:
    the size of the board's flash.
    """
    flash_mb = flash_bytes // _MB
    hint = f"get the firmware for a flash of {flash_mb} MB"
    file_pattern = _FILE_BY_FLASH.get((chip, flash_mb))
    if file_pattern:
        hint += f": {file_pattern} for an {chip}"
    if offset + len(data) > flash_bytes:
        text = f"{name} is too large for the board's flash of {flash_mb} MB; nothing was changed"
        raise UsageError(text, hint)

    # The firmware names the size of its flash twice: in its header, and by where the last partition
    # ends. ESP-IDF's boot loader compares both at each start. The header has the size in the upper
    # 4 bits of a byte, as a power of two: n stands for 2**n megabytes.
    header_bytes = _MB << (data[_FLASH_SIZE_AT] >> 4)
    partitions = esp32_files.partitions(data[esp32_files.TABLE - offset :])
    table_bytes = max((partition.region.stop for partition in partitions), default=0)
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
    mode = "no-reset"
    if boot_loader.reset:
        mode = "default-reset"
    # Open the port without esptool first: these errors say better why it cannot be opened.
    open_port(port, BAUD).close()
    try:
        return esptool.cmds.detect_chip(port, BAUD, mode, connect_attempts=boot_loader.attempts)
    except (esptool.FatalError, *PORT_ERRORS) as error:
        hint = "hold BOOT, press RESET, let BOOT go, and run the same command again with --no-reset"
        raise DeviceError(f"no ESP32 answers on {port}: {_first_line(error)}", hint) from error


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its class if it has none."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[0]


@functools.cache
def _logger() -> Any:
    """Replace esptool's logger by one that prints nothing, and return it.

    Its attribute `progress` is called with the progress of reading and writing.
    """
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
    # esptool's warning about a port without reset lines keeps the logger of its import.
    _esptool().reset.ResetStrategy.print_once.already_printed = True
    return quiet
