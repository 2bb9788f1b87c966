"""Flash an ESP32 through esptool 5 (GPL-2.0-or-later, an optional extra: `boards`), imported only when needed."""

import functools
import struct
from collections.abc import Callable
from typing import Any

from ternhost import extras
from ternhost.errors import DeviceError, InterruptedByUser, TernError, UsageError
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port

Progress = Callable[[int, int], None]  # bytes written, bytes in all
Tell = Callable[[str], None]

_CHIP_ID_AT = 12  # of the extended header of an image
_HEADER_BYTES = 24
_PARTITION_TABLE = 0x8000
_PARTITION_TABLE_BYTES = 0xC00
_PARTITION = "<2sBBII16sI"  # magic, type, subtype, offset, size, label, flags
_PARTITION_BYTES = struct.calcsize(_PARTITION)
_PARTITION_MAGIC = b"\xaa\x50"
_FLASH_SIZE_AT = 3  # of an image's header: its upper half is the exponent of the flash's megabytes
_ERASED = b"\xff"
_SUPERBLOCK_BYTES = 8192  # the first two blocks of a file system: 0xff where there is none
# Where MicroPython has several files for a chip: the one for a flash of so many megabytes.
_FILE_BY_FLASH = {
    ("ESP32", 2): "ESP32_GENERIC-D2WD-*.bin",
    ("ESP32", 4): "ESP32_GENERIC-*.bin",
    ("ESP32-S3", 4): "ESP32_GENERIC_S3-FLASH_4M-*.bin",
    ("ESP32-S3", 8): "ESP32_GENERIC_S3-*.bin",
}
FLASH_BAUD = 460800
ATTEMPTS = 7  # to reach the boot loader, 0.7 s each

_RECOVER = (
    "the board does not start as it is, but nothing is lost: its boot loader is in ROM. Hold BOOT, press RESET, "
    "let BOOT go, and run the same command again with --no-reset"
)


def _esptool() -> Any:
    extras.require("esptool")
    import esptool
    import esptool.cmds
    import esptool.logger
    import esptool.targets

    return esptool


def image_chip(data: bytes, file: str) -> str:
    """esptool's name of the chip (such as "esp32s3") of a firmware for the whole flash. Raises UsageError.

    A .bin without the partition table at 0x8000 (an update over the air) would leave a board that does not start."""
    definitions = _esptool().targets.CHIP_DEFS
    if len(data) < _HEADER_BYTES:
        hint = "take the .bin file of your board, not .uf2 or .elf"
        raise UsageError(f"{file} is not a firmware for an ESP32", hint)
    (number,) = struct.unpack_from("<H", data, _CHIP_ID_AT)
    chips = {chip.IMAGE_CHIP_ID: name for name, chip in definitions.items() if name != "esp8266"}
    if number not in chips:
        raise UsageError(f"{file} is for a chip that esptool does not know (id {number})")
    name: str = chips[number]
    at = _PARTITION_TABLE - definitions[name].BOOTLOADER_FLASH_OFFSET
    if data[at : at + 2] != _PARTITION_MAGIC:
        hint = "take the .bin file of your board, not the .app-bin"
        raise UsageError(f"{file} is not a whole firmware: it has no partition table", hint)
    return name


def flash(
    port: str, data: bytes, name: str, *, chip: str, reset: bool = True, stub: bool = True,
    baud: int = FLASH_BAUD, erase: bool = False, attempts: int = ATTEMPTS, progress: Progress | None = None,
    tell: Tell = lambda line: None,
) -> dict[str, Any]:  # fmt: skip
    """Write `data` to the board on `port` and verify it. Raises UsageError for another `chip`, with nothing erased.

    reset: use the reset lines, else the board is in its boot loader already. erase: all of the flash first, files
    included. attempts: how often the boot loader is called. Raises DeviceError and TernError."""
    esptool = _esptool()
    _logger().progress = None  # of what is read
    loader = port_owner = _connect(esptool, port, reset, attempts)
    offset, connected = loader.BOOTLOADER_FLASH_OFFSET, loader.CHIP_NAME
    writing = False
    try:
        wanted = esptool.targets.CHIP_DEFS[chip].CHIP_NAME
        if connected != wanted:
            text = f"{name} is for {wanted}, and the board on {port} has an {connected}; nothing was changed"
            raise UsageError(text, hint=f"get the firmware of an {connected} board")
        tell(f"{connected} on {port}")
        if stub:
            loader = esptool.cmds.run_stub(loader)
            if reset:  # a bridge has a baud rate; a port without reset lines is seldom one
                loader.change_baud(baud)
        esptool.cmds.attach_flash(loader)
        size = esptool.cmds.detect_flash_size(loader)
        if size:
            flash_bytes = esptool.util.flash_size_bytes(size)
            _require_size(name, data, offset, connected, flash_bytes)
            if not erase:
                _require_other_places(
                    name, data, offset, flash_bytes, lambda at, n: _read(esptool, loader, at, n)
                )
        writing = True
        _logger().progress = progress
        esptool.cmds.write_flash(loader, [(offset, data)], erase_all=erase)  # verifies its MD5
        writing = False
        address = bytes(loader.read_mac()).hex()
        esptool.cmds.reset_chip(loader, "hard-reset" if reset else "no-reset")
    except KeyboardInterrupt as error:
        if not writing:
            raise
        raise InterruptedByUser("flashing was interrupted", hint=_RECOVER) from error
    except (esptool.FatalError, *PORT_ERRORS) as error:
        what = _first_line(error)
        if not writing:
            text = f"the boot loader stopped answering before anything was written: {what}"
            raise DeviceError(text, hint="run the same command again") from error
        if "MD5" in what or "region is empty" in what:
            hint = f"try a lower --baud; {_RECOVER}"
            raise TernError(f"what was written does not verify: {what}", hint) from error
        raise DeviceError(f"flashing broke off: {what}", hint=_RECOVER) from error
    finally:
        port_owner._port.close()
    return {"chip": connected, "offset": offset, "bytes": len(data), "verified": True, "unique_id": address}


def _read(esptool: Any, loader: Any, address: int, n: int) -> bytes:
    """n bytes of the board's flash."""
    data: bytes = esptool.cmds.read_flash(loader, address, n, None)
    return data


def _require_size(name: str, data: bytes, offset: int, chip: str, flash_bytes: int) -> None:
    """Raise UsageError for a firmware that needs more flash than the board has: it would restart for ever."""
    flash_megabytes = flash_bytes >> 20
    hint = f"get the firmware for a flash of {flash_megabytes} MB"
    if file := _FILE_BY_FLASH.get((chip, flash_megabytes)):
        hint += f": {file} for an {chip}"
    if offset + len(data) > flash_bytes:
        text = f"{name} is too large for the board's flash of {flash_megabytes} MB; nothing was changed"
        raise UsageError(text, hint)
    in_header = 1 << (data[_FLASH_SIZE_AT] >> 4) << 20
    table = data[_PARTITION_TABLE - offset :]
    needed = max([in_header, *(partition.stop for _, partition in partitions(table))])
    if needed > flash_bytes:
        text = f"{name} is for a flash of {-(-needed >> 20)} MB, and the board's has {flash_megabytes} MB; "
        raise UsageError(text + "nothing was changed", hint)


def _require_other_places(
    name: str, data: bytes, offset: int, flash_bytes: int, read: Callable[[int, int], bytes]
) -> None:
    """Raise UsageError for a firmware that would replace the board's files, or whose MicroPython would not find them.

    read: bytes of the board's flash, by address and number."""
    files = file_system(read(_PARTITION_TABLE, _PARTITION_TABLE_BYTES), flash_bytes)
    new_files = file_system(data[_PARTITION_TABLE - offset :], flash_bytes)
    end = offset + len(data)

    def is_in_use(region: range) -> bool:
        return bool(read(region.start, _SUPERBLOCK_BYTES).strip(_ERASED))

    def brings(region: range) -> bool:
        return bool(data[max(region.start - offset, 0) : region.stop - offset].strip(_ERASED))

    hint = "take a firmware without files, of the release that the board has; or, if the board is to become another "
    hint += "device, add --erase"
    for region in (files, new_files):
        if region is not None and end > region.start and (brings(region) or is_in_use(region)):
            text = f"{name} brings files of its own, which would replace the board's files, with its key and its ledger"
            raise UsageError(f"{text}; nothing was changed", hint)
    if files is not None and new_files != files and is_in_use(files):
        where = _place(new_files) if new_files else "nowhere"
        text = f"the MicroPython of {name} keeps its files {where}, and the board's are {_place(files)}: it would not "
        raise UsageError(f"{text}find them, nor the board's key and its ledger; nothing was changed", hint)


def _place(region: range) -> str:
    return f"from {region.start:#x} to {region.stop:#x}"


def partitions(table: bytes) -> list[tuple[str, range]]:
    """The partitions of a table, with their labels, in its order. Its format: ESP-IDF, "Partition Tables"."""
    found = []
    for at in range(0, min(len(table), _PARTITION_TABLE_BYTES) - _PARTITION_BYTES + 1, _PARTITION_BYTES):
        magic, _, _, start, size, label, _ = struct.unpack_from(_PARTITION, table, at)
        if magic != _PARTITION_MAGIC:
            break
        found.append((label.rstrip(b"\0").decode(errors="replace"), range(start, start + size)))
    return found


def file_system(table: bytes, flash_bytes: int) -> range | None:
    """Where MicroPython keeps its files by this partition table; None where there is no table or no room.

    As ports/esp32/main.c has it since 1.26: without a partition for files, they get what is left at the end."""
    found = partitions(table)
    for label, partition in found:
        if label in ("vfs", "ffat"):
            return partition
    end = max((partition.stop for _, partition in found), default=flash_bytes)
    return range(end, flash_bytes) if end < flash_bytes else None


def _connect(esptool: Any, port: str, reset: bool, attempts: int) -> Any:
    mode = "default-reset" if reset else "no-reset"
    open_port(port, BAUD).close()  # says clearly what keeps a port from being opened
    try:
        return esptool.cmds.detect_chip(port, BAUD, mode, connect_attempts=attempts)
    except (esptool.FatalError, *PORT_ERRORS) as error:
        hint = "hold BOOT, press RESET, let BOOT go, and run the same command again with --no-reset"
        raise DeviceError(f"no ESP32 answers on {port}: {_first_line(error)}", hint) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@functools.cache
def _logger() -> Any:
    # esptool's logger shows its progress; it can be replaced once in a process.
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
