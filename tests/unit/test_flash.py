"""Flashing: over a pty, esptool talks to a ROM loader of the tests that answers as a chip does; UF2
files.
"""

import contextlib
import hashlib
import os
import re
import struct
import threading
import zlib
from pathlib import Path

import pytest
from esptool.loader import ESPLoader
from harness.port import Port, silent
from littlefs import LittleFS
from spec.files import uf2_file

from ternhost.errors import DeviceError, InterruptedByUser, TernError, UsageError
from terntools.boards import esp32, flash, uf2, usb

SYNC, READ_REG, WRITE_REG, SECURITY_INFO = 0x08, 0x0A, 0x09, 0x14
MEM_BEGIN, MEM_END, MEM_DATA = 0x05, 0x06, 0x07
FLASH_BEGIN, FLASH_DATA, FLASH_END = 0x02, 0x03, 0x04
DEFLATE_BEGIN, DEFLATE_DATA, DEFLATE_END = 0x10, 0x11, 0x12
MD5, ERASE_FLASH = 0x13, 0xD0
READ_FLASH_SLOW, READ_FLASH = 0x0E, 0xD2
CHIP_MAGIC_REGISTER = 0x40001000
ROM_VALUE = 0x20120707  # in the ROM's answer to SYNC; a stub's has 0
FLASH_BYTES = 4 << 20
RDID, W25Q32 = 0x9F, 0x1640EF

# name: chip id, magic, base of the SPI registers, offsets of USR2 and W0, offset of the firmware
CHIPS = {
    "esp32": (0, 0x00F01D83, 0x3FF42000, 0x24, 0x80, 0x1000),
    "esp32s3": (9, 0, 0x60002000, 0x20, 0x58, 0x0),
}


class RomLoader(Port):
    """A chip in its boot loader on a pty.

    cut_after: blocks after which the cable is pulled; faulty: whether the flash alters a bit of
    each block.
    """

    def __init__(self, chip="esp32", cut_after=None, faulty=False):
        self.chip_id, self.magic, self.spi, self.usr2, self.w0, self.offset = CHIPS[chip]
        self.cut_after, self.faulty = cut_after, faulty
        self.flash, self.erased = bytearray(b"\x00" * FLASH_BYTES), False
        self.stub = False
        self.registers = {CHIP_MAGIC_REGISTER: self.magic}
        self.blocks = 0
        super().__init__()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        os.close(
            self.near
        )  # ends the thread, which closes `far`; until now no other pty has its name
        self._thread.join(60)

    def _serve(self):
        with contextlib.suppress(OSError):  # `near` is closed
            self._answer_all()
        os.close(self.far)

    def _answer_all(self):
        data = b""
        while True:
            data += os.read(self.far, 4096)
            *packets, data = data.split(b"\xc0")
            for packet in packets:
                packet = packet.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")
                if len(packet) >= 8 and packet[0] == 0:
                    self._answer(packet[1], packet[8:])
                    if self.cut_after is not None and self.blocks >= self.cut_after:
                        return  # `far` is closed, as when the cable is pulled

    def _send(self, packet):
        packet = packet.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
        os.write(self.far, b"\xc0" + packet + b"\xc0")

    def _reply(self, command, value=0, data=b"", failed=False):
        status = (b"\1\5" if failed else bytes(2)) + bytes(0 if self.stub else 2)
        self._send(struct.pack("<BBHI", 1, command, len(data) + len(status), value) + data + status)

    def _answer(self, command, body):
        words = struct.unpack_from(f"<{min(len(body), 16) // 4}I", body)
        if command == SYNC:
            for _ in range(8):
                self._reply(command, 0 if self.stub else ROM_VALUE)
        elif command == READ_REG:
            self._reply(command, self.registers.get(words[0], 0))
        elif command == WRITE_REG:
            self._write_register(words[0], words[1])
            self._reply(command)
        elif command == SECURITY_INFO and self.chip_id:
            self._reply(command, data=struct.pack("<IB7BII", 0, 0, *bytes(7), self.chip_id, 0))
        elif command in (FLASH_BEGIN, DEFLATE_BEGIN):
            self.erased = True
            size, *_, self._at = words
            self._inflate = zlib.decompressobj()
            self.flash[self._at : self._at + size] = b"\xff" * size
            self._reply(command)
        elif command in (FLASH_DATA, DEFLATE_DATA):
            data = body[16 : 16 + words[0]]
            if command == DEFLATE_DATA:
                data = self._inflate.decompress(data)
            if self.faulty:
                data = bytes([data[0] ^ 1]) + data[1:]
            self.flash[self._at : self._at + len(data)] = data
            self._at += len(data)
            self.blocks += 1
            self._reply(command)
        elif command == MD5:
            digest = hashlib.md5(self.flash[words[0] : words[0] + words[1]])
            self._reply(command, data=digest.digest() if self.stub else digest.hexdigest().encode())
        elif command == READ_FLASH_SLOW and not self.stub:
            self._reply(command, data=bytes(self.flash[words[0] : words[0] + 64]))
        elif command == READ_FLASH and self.stub:
            self._reply(command)
            data = bytes(self.flash[words[0] : words[0] + words[1]])
            for at in range(0, len(data), words[2]):
                self._send(data[at : at + words[2]])
            self._send(hashlib.md5(data).digest())
        elif command == ERASE_FLASH and self.stub:
            self.flash[:] = b"\xff" * FLASH_BYTES
            self._reply(command)
        elif command == MEM_END:
            self._reply(command)
            if words[0] == 0 and words[1]:  # a program in RAM is started: esptool's own flasher
                self.stub = True
                self._send(b"OHAI")
        elif command in (MEM_BEGIN, MEM_DATA, FLASH_END, DEFLATE_END, 0x0B, 0x0D, 0x0F):
            self._reply(command)
        else:
            self._reply(command, failed=True)

    def _write_register(self, address, value):
        self.registers[address] = value
        if address == self.spi and value & 1 << 18:  # SPI_USR: run the command of USR2
            command = self.registers.get(self.spi + self.usr2, 0) & 0xFF
            self.registers[self.spi] = 0
            self.registers[self.spi + self.w0] = W25Q32 if command == RDID else 0


@pytest.fixture
def rom(monkeypatch):
    """Make RomLoaders, which are closed at the end of the test."""
    command = ESPLoader.command

    # A chip answers within 0.1 to 3 s; the loader's thread may take longer on a busy machine.
    def patient(*args, timeout=0, **kwargs):
        return command(*args, timeout=max(timeout, 60), **kwargs)

    monkeypatch.setattr(ESPLoader, "command", patient)
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(
            contextlib.closing(RomLoader(*args, **options))
        )


def changed(data, at, value):
    return data[:at] + value + data[at + len(value) :]


FILES_AT = 0x200000  # in flash


def application(size=0x1F0000):
    """The partition of MicroPython: type, subtype, offset, size and label.

    By default it ends at FILES_AT.
    """
    return 0, 0, 0x10000, size, b"factory"


def files(size=0x200000):
    """The partition of its files. By default it ends with a flash of 4 MB."""
    return 1, 0x81, FILES_AT, size, b"vfs"


UNTIL_1_25 = (application(), files())  # the partitions of these releases of MicroPython
SINCE_1_26 = (application(),)  # its files have what is left of the flash


def partition_table(partitions):
    rows = [struct.pack("<2sBBII16sI", b"\xaa\x50", *partition, 0) for partition in partitions]
    return b"".join(rows).ljust(0xC00, b"\xff")


def firmware_for(chip="esp32", size=150_000, partitions=UNTIL_1_25, megabytes=4):
    """A file with the marks of a whole firmware: image header with flash size and chip id,
    partition table.
    """
    chip_id, *_, offset = CHIPS[chip]
    flash_size = (megabytes.bit_length() - 1) << 4
    fields = (0xE9, 1, 2, flash_size, 0x40081000, 0xEE, 0, 0, 0, chip_id, 0, 0, 0xFFFF, 0)
    header = struct.pack("<BBBBIB3BHBHH4xB", *fields)
    data = header + hashlib.shake_128(chip.encode()).digest(size - len(header))
    return changed(data, 0x8000 - offset, partition_table(partitions))


def flash_esp32(board, tmp_path, chip="esp32", size=150_000, **options):
    """Flash the board with a whole firmware for `chip`, with its ROM unless an option says
    otherwise.
    """
    firmware = flash.read_firmware(save(tmp_path, firmware_for(chip, size)))
    return flash.flash(board.port, firmware, reset=False, **{"stub": False, **options})


def read_firmware(tmp_path, data):
    return flash.read_firmware(save(tmp_path, data))


def save(tmp_path, data, name="firmware.bin"):
    path = Path(tmp_path / name)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("stub", [False, True])
def test_the_firmware_is_in_flash_at_the_chip_s_offset(rom, tmp_path, chip, stub):
    board, data, offset = rom(chip), firmware_for(chip), CHIPS[chip][5]
    shares = []
    result = flash_esp32(
        board, tmp_path, chip, stub=stub, progress=lambda done, n: shares.append(done / n)
    )
    assert (result["verified"], result["offset"]) == (True, offset)
    assert board.stub is stub
    assert board.flash[offset : offset + len(data)] == data
    assert not any(board.flash[:offset])
    assert (shares, shares[-1]) == (sorted(shares), 1)


def test_erase_clears_the_whole_flash(rom, tmp_path):
    board, data = rom(), firmware_for()
    flash_esp32(board, tmp_path, stub=True, erase=True)
    assert board.flash[0x1000 : 0x1000 + len(data)] == data
    assert set(board.flash[:0x1000]) == set(board.flash[0x1000 + len(data) + 4096 :]) == {0xFF}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a firmware", "not a firmware that tern can flash"),
        (b"", "not a firmware that tern can flash"),
        (b"\xe9" + bytes(10), "not a firmware for an ESP32"),
        (firmware_for()[:0x7000], "no partition table"),
        (changed(firmware_for(), 12, b"\x63\x00"), "does not know"),
    ],
)
def test_a_wrong_file_is_refused_without_a_board(tmp_path, content, message):
    with pytest.raises(UsageError, match=message):
        flash.read_firmware(save(tmp_path, content))


def test_a_file_that_is_too_large_is_refused_before_anything_is_erased(rom, tmp_path):
    board = rom()
    with pytest.raises(UsageError, match=r"too large .* 4 MB; nothing was changed"):
        flash_esp32(board, tmp_path, size=FLASH_BYTES)
    assert not board.erased


def test_the_error_after_a_pulled_cable_says_how_to_recover(rom, tmp_path, monkeypatch):
    monkeypatch.setattr("esptool.cmds.DEFAULT_CONNECT_ATTEMPTS", 1)  # an attempt takes a second
    board = rom("esp32", cut_after=3)
    with pytest.raises(DeviceError, match="flashing broke off") as caught:
        flash_esp32(board, tmp_path)
    with silent() as port:
        assert port != board.port, "esptool retries, and must not reach another test's board"
    assert caught.value.exit_code == 3
    assert "hold boot" in caught.value.hint.lower()
    assert "--no-reset" in caught.value.hint


def superblock(size=0x200000):
    """The first block of an empty file system of so many bytes."""
    return bytes(LittleFS(block_size=4096, block_count=size // 4096).context.buffer[:4096])


SUPERBLOCK = superblock()


def board_with_files(rom, chip="esp32", partitions=UNTIL_1_25):
    board = rom(chip)
    write(board, 0x8000, partition_table(partitions))
    write(board, FILES_AT, SUPERBLOCK)
    return board


def erased_board(rom, chip="esp32s3"):
    board = rom(chip)
    write(board, 0, b"\xff" * FLASH_BYTES)
    return board


def write(board, address, data):
    """Write to the flash of a board."""
    board.flash[address : address + len(data)] = data


def dump_of_another_board():
    """A whole flash: random bytes where the files are."""
    return firmware_for("esp32s3", FLASH_BYTES)


@pytest.mark.parametrize("stub", [False, True])
@pytest.mark.parametrize("new", [UNTIL_1_25, SINCE_1_26])
@pytest.mark.parametrize("old", [UNTIL_1_25, SINCE_1_26])
def test_a_firmware_that_keeps_the_place_of_the_files_is_flashed(rom, tmp_path, old, new, stub):
    """On 4 MB, from 2 MB to the end is the same place, whether the table says so or not."""
    board = board_with_files(rom, partitions=old)
    firmware = read_firmware(tmp_path, firmware_for(partitions=new))
    assert flash.flash(board.port, firmware, reset=False, stub=stub)["verified"]
    assert board.flash[FILES_AT : FILES_AT + len(SUPERBLOCK)] == SUPERBLOCK


@pytest.mark.parametrize("stub", [False, True])
@pytest.mark.parametrize("partitions", [UNTIL_1_25, ()], ids=["table", "no table"])
def test_a_dump_of_a_whole_flash_does_not_replace_the_files(rom, tmp_path, stub, partitions):
    board = board_with_files(rom, "esp32s3", partitions)
    dump = read_firmware(tmp_path, dump_of_another_board())
    with pytest.raises(UsageError, match=r"brings files of its own.*; nothing was changed"):
        flash.flash(board.port, dump, reset=False, stub=stub)
    assert not board.erased


def test_a_dump_of_a_whole_flash_replaces_the_files_with_erase(rom, tmp_path):
    board = board_with_files(rom, "esp32s3")
    dump = read_firmware(tmp_path, dump_of_another_board())
    flash.flash(board.port, dump, reset=False, stub=True, erase=True)
    assert board.flash == dump.data


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((application(), files(0x100000)), SINCE_1_26),
        (UNTIL_1_25, (application(0x2F0000),)),
        (UNTIL_1_25, (application(0x3F0000),)),
    ],
    ids=["the place of the files grows", "their place moves", "no place is left for them"],
)
def test_a_micropython_that_would_not_find_the_files_is_refused(rom, tmp_path, old, new):
    board = board_with_files(rom, partitions=old)
    if old != UNTIL_1_25:
        write(board, FILES_AT, superblock(0x100000))
    firmware = read_firmware(tmp_path, firmware_for(partitions=new))
    with pytest.raises(UsageError, match=r"keeps its files .*, and the board's are from 0x200000"):
        flash.flash(board.port, firmware, reset=False, stub=False)
    assert not board.erased


@pytest.mark.parametrize("stub", [False, True])
def test_a_dump_is_refused_for_an_erased_board_too(rom, tmp_path, stub):
    """It would make the board a copy of another one, with its key and with a ledger of the past."""
    board = erased_board(rom)
    dump = read_firmware(tmp_path, dump_of_another_board())
    with pytest.raises(UsageError, match="brings files of its own"):
        flash.flash(board.port, dump, reset=False, stub=stub)
    assert not board.erased


def test_a_file_that_is_padded_to_the_end_of_the_flash_is_flashed_where_there_are_no_files(
    rom, tmp_path
):
    board = erased_board(rom)
    padded = read_firmware(tmp_path, firmware_for("esp32s3").ljust(FLASH_BYTES, b"\xff"))
    assert flash.flash(board.port, padded, reset=False, stub=True)["verified"]


def test_a_board_without_files_takes_any_micropython(rom, tmp_path):
    board = erased_board(rom, "esp32")
    write(board, 0x8000, partition_table([application(), files(0x100000)]))
    firmware = read_firmware(tmp_path, firmware_for(partitions=SINCE_1_26))
    assert flash.flash(board.port, firmware, reset=False, stub=False)["verified"]


@pytest.mark.parametrize("stub", [False, True])
@pytest.mark.parametrize(
    "options",
    [{"megabytes": 8}, {"megabytes": 16}, {"partitions": (application(), files(0x600000))}],
    ids=["header: 8 MB", "header: 16 MB", "partitions: 8 MB"],
)
def test_a_firmware_for_a_larger_flash_is_refused(rom, tmp_path, options, stub):
    board = rom("esp32s3")
    firmware = read_firmware(tmp_path, firmware_for("esp32s3", **options))
    with pytest.raises(
        UsageError, match=r"is for a flash of (8|16) MB, and the board's has 4 MB"
    ) as caught:
        flash.flash(board.port, firmware, reset=False, stub=stub)
    assert "get the firmware for a flash of 4 MB: ESP32_GENERIC_S3-FLASH_4M" in caught.value.hint
    assert not board.erased


def test_a_firmware_for_a_smaller_flash_is_flashed(rom, tmp_path):
    firmware = read_firmware(
        tmp_path, firmware_for(partitions=[application(0x100000)], megabytes=2)
    )
    assert flash.flash(rom().port, firmware, reset=False, stub=False)["verified"]


def test_a_firmware_whose_partitions_exceed_the_flash_of_its_header_is_refused(rom, tmp_path):
    """ESP-IDF's boot loader compares them at each start."""
    board = rom()
    firmware = read_firmware(tmp_path, firmware_for(megabytes=1))
    with pytest.raises(
        UsageError, match=r"would not start: its header .* 1 MB, and its partitions need 4 MB"
    ):
        flash.flash(board.port, firmware, reset=False, stub=False)
    assert not board.erased


# An interrupted flash leaves a board without a partition table, and with its files.


def test_files_survive_where_the_partition_table_is_lost(rom, tmp_path):
    board = board_with_files(rom, partitions=())
    assert flash_esp32(board, tmp_path)["verified"]
    assert board.flash[FILES_AT : FILES_AT + len(SUPERBLOCK)] == SUPERBLOCK


def test_files_are_found_where_the_partition_table_is_lost(rom, tmp_path):
    board = board_with_files(rom, partitions=())
    firmware = read_firmware(tmp_path, firmware_for(partitions=[application(0x2F0000)]))
    with pytest.raises(UsageError, match="and the board's are from 0x200000 to 0x400000"):
        flash.flash(board.port, firmware, reset=False, stub=False)
    assert not board.erased


def test_a_micropython_that_can_read_the_files_again_is_flashed(rom, tmp_path):
    """The board's own, whose files would end with the flash, cannot read a file system that ends
    before.
    """
    board = rom()
    write(board, 0x8000, partition_table(SINCE_1_26))
    write(board, FILES_AT, superblock(0x100000))
    firmware = read_firmware(tmp_path, firmware_for(partitions=(application(), files(0x100000))))
    assert flash.flash(board.port, firmware, reset=False, stub=False)["verified"]
    with pytest.raises(UsageError, match="and the board's are from 0x200000 to 0x300000"):
        flash_esp32(board, tmp_path)


def test_a_program_that_reaches_over_the_files_is_refused(rom, tmp_path):
    board = board_with_files(rom)
    firmware = read_firmware(
        tmp_path, firmware_for(size=0x200000, partitions=[application(0x2F0000)])
    )
    with pytest.raises(
        UsageError, match=r"reaches to 0x201000, and the board's files are from 0x200000"
    ):
        flash.flash(board.port, firmware, reset=False, stub=False)
    assert not board.erased


def test_files_of_another_format_would_not_be_found(rom, tmp_path):
    """In a partition "ffat", MicroPython looks for FAT."""
    board = board_with_files(rom)
    fat = (*files()[:4], b"ffat")
    firmware = read_firmware(tmp_path, firmware_for(partitions=(application(), fat)))
    with pytest.raises(
        UsageError, match=r"keeps its files from 0x200000 to 0x400000 \(ffat\), and the board's"
    ):
        flash.flash(board.port, firmware, reset=False, stub=False)


def test_a_board_whose_table_is_for_a_larger_flash_can_be_repaired(rom, tmp_path):
    """Such a board restarts for ever. Its table names files behind the end of its flash."""
    board = rom()
    write(board, 0x8000, partition_table([application(), (1, 0x81, 0x800000, 0x800000, b"vfs")]))
    assert flash_esp32(board, tmp_path)["verified"]


def test_a_flash_of_unknown_size_is_flashed_only_if_it_may_be_erased(rom, tmp_path, monkeypatch):
    monkeypatch.setattr("esptool.cmds.detect_flash_size", lambda loader: None)
    board = board_with_files(rom)
    with pytest.raises(UsageError, match="does not say its size"):
        flash_esp32(board, tmp_path)
    assert not board.erased
    assert flash_esp32(board, tmp_path, stub=True, erase=True)["verified"]


def stop(done, total):
    """Progress that Ctrl-C ends half-way."""
    if done >= total // 2:
        raise KeyboardInterrupt


def test_the_error_after_ctrl_c_says_how_to_recover(rom, tmp_path):
    with pytest.raises(InterruptedByUser, match="flashing was interrupted") as caught:
        flash_esp32(rom(), tmp_path, progress=stop)
    assert caught.value.exit_code == 130
    assert "--no-reset" in caught.value.hint


def test_a_flash_that_alters_its_bytes_does_not_verify(rom, tmp_path):
    with pytest.raises(TernError, match="does not verify") as caught:
        flash_esp32(rom("esp32", faulty=True), tmp_path)
    assert "run the same command again" in caught.value.hint


def test_a_silent_port_has_no_esp32():
    with silent() as port, pytest.raises(DeviceError, match="no ESP32 answers"):
        esp32.flash(port, firmware_for(), "firmware.bin", chip="esp32", reset=False, attempts=1)


def test_the_command_reports_its_result_and_has_the_documented_exit_codes(rom, tmp_path, tern):
    good, other = save(tmp_path, firmware_for()), save(tmp_path, firmware_for("esp32s3"), "s3.bin")
    board = rom("esp32")
    common = ["--no-reset", "--no-stub"]
    message = r"is for ESP32-S3, and the board on .* has an ESP32; nothing was changed"
    assert re.search(
        message, tern("flash", board.port, "--firmware", str(other), *common, code=2).err
    )
    assert not board.erased
    assert not any(board.flash)
    assert (
        '"verified": true'
        in tern("flash", board.port, "--firmware", str(good), *common, "--json").out
    )
    assert "micropython.org/download" in tern("flash", board.port, *common, code=2).err
    tern("flash", "/dev/no-such-port", "--firmware", str(good), *common, code=3)


# UF2 files are checked block by block before they are copied to a Pico

PROGRAM = bytes(range(256)) * 10


def test_the_error_for_a_file_for_several_chips_names_them():
    """picotool makes files for RP2040 and RP2350 together."""
    both = uf2_file(PROGRAM) + uf2_file(PROGRAM, uf2.RP2350_ARM)
    with pytest.raises(UsageError, match=r"mixes several chips \(RP2040, RP2350 \(Arm\)\)"):
        uf2.read(both)


def test_blocks_for_absolute_addresses_are_part_of_the_image():
    """The boot ROM of an RP2350 writes them, too.

    Only the extra block of its erratum E10 is for nothing.
    """
    with pytest.raises(
        UsageError, match=r"mixes several chips \(RP2350 \(Arm\), absolute addresses\)"
    ):
        uf2.read(uf2_file(PROGRAM, uf2.RP2350_ARM) + uf2_file(PROGRAM, 0xE48BFF57, 0x10200000))


@pytest.mark.parametrize("bytes_of_block", [128, 255])
def test_blocks_that_a_pico_would_ignore_are_refused(bytes_of_block):
    """Its boot ROM takes 256 bytes for a multiple of 256."""
    one = changed(uf2_file(bytes(256)), 16, struct.pack("<I", bytes_of_block))
    with pytest.raises(
        UsageError, match=f"block 0 has {bytes_of_block} bytes for address 0x10000000"
    ):
        uf2.read(one)


def test_a_volume_of_another_user_is_passed_over(tmp_path, monkeypatch):
    """As /boot/efi on Debian. The tests may run as root, who may enter it: so the error is made."""
    volume = tmp_path / "RPI-RP2"
    volume.mkdir()
    (volume / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    monkeypatch.setattr(flash, "_mount_points", lambda: [tmp_path / "efi", volume])
    is_file = Path.is_file

    def deny(path):
        if path.parent.name == "efi":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", deny)
    assert flash.find_volume() == volume


@pytest.fixture
def disks(tmp_path, monkeypatch):
    """Linux's files about two disks, at 1-1.4 and 1-1.3 of the USB, and about a third that is at no
    USB.
    """
    folder = tmp_path / "class" / "block"
    folder.mkdir(parents=True)
    for name, place in (("sda1", "1-1.4"), ("sdb1", "1-1.3")):
        disk = tmp_path / "devices" / "usb1" / "1-1" / place / f"{place}:1.0" / "block" / name
        disk.mkdir(parents=True)
        (folder / name).symlink_to(disk)
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "".join(f"/dev/{name} /media/{name} vfat rw 0 0\n" for name in ("sda1", "sdb1", "sdc1"))
    )
    monkeypatch.setattr(usb, "_MOUNTS", mounts)
    monkeypatch.setattr(usb, "_BLOCK_DEVICES", folder)


@pytest.mark.parametrize(
    ("disk", "place", "elsewhere"),
    [
        ("sda1", "1-1.4", False),
        ("sdb1", "1-1.4", True),
        ("sdc1", "1-1.4", False),
        ("sdb1", None, False),
    ],
    ids=["the same place", "another place", "a volume of unknown place", "a port of unknown place"],
)
def test_whether_a_volume_is_at_another_place_of_the_usb(disks, disk, place, elsewhere):
    assert usb.is_elsewhere(Path("/media") / disk, place) is elsewhere


@pytest.mark.parametrize("name", ["RPI-RP2", "j\u00f6rg", "with space", "\u4f60\u597d", "tab\tx"])
def test_a_volume_is_found_where_it_is_mounted_under_any_name(name):
    escaped = f"/media/{name}".replace(" ", "\\040").replace("\t", "\\011")  # as the kernel does
    table = f"/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 {escaped} vfat rw 0 0\n".encode()
    assert list(flash.mounted_volumes(table)) == [Path(f"/media/{name}")]


def test_the_extra_block_of_an_rp2350_is_not_part_of_its_image():
    extra = uf2_file(bytes(256), 0xE48BFF57, 0x10FFFF00)
    image = uf2.read(extra + uf2_file(PROGRAM, uf2.RP2350_ARM))
    assert (image.chip, image.size) == ("RP2350", len(PROGRAM))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut short"),
        (uf2_file(PROGRAM)[:-1], "cut short"),
        (uf2_file(PROGRAM)[:-512], "blocks are missing"),
        (uf2_file(PROGRAM)[512:], "blocks are missing"),
        (bytes(512), "no UF2 file"),
        (changed(uf2_file(PROGRAM), 512, b"\0"), "block 1 is damaged"),
        (changed(uf2_file(PROGRAM), 1020, b"\0"), "block 1 is damaged"),
        (changed(uf2_file(PROGRAM), 512 + 16, struct.pack("<I", 1000)), "block 1 is damaged"),
        (changed(uf2_file(PROGRAM), 512 + 20, struct.pack("<I", 3)), "out of order|missing"),
        (changed(uf2_file(PROGRAM), 512 + 28, struct.pack("<I", uf2.RP2350_ARM)), "several chips"),
        (uf2_file(PROGRAM, 0x1C5F21B0), "for family 0x1c5f21b0, and not for a Pico"),
        (uf2_file(PROGRAM, start=0x20000000), "no flash"),
        (uf2_file(PROGRAM, start=0x100A0000), "where a Pico's program starts"),
        (changed(uf2_file(PROGRAM), 8, struct.pack("<I", 0x2001)), "not for the main flash"),
    ],
)
def test_uf2_files_that_are_not_whole_or_not_for_a_pico_are_refused(data, message):
    with pytest.raises(UsageError, match=message):
        uf2.read(data)


def test_the_volume_of_another_board_is_refused(tmp_path):
    (tmp_path / "INFO_UF2.TXT").write_text("UF2 Bootloader\nBoard-ID: SAMD21G18A-Feather-v0\n")
    with pytest.raises(UsageError, match="not the boot loader of a Pico"):
        flash.volume_chip(tmp_path)


def test_the_error_after_a_broken_copy_says_how_to_recover(tmp_path):
    (tmp_path / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    firmware = flash.read_firmware(save(tmp_path, uf2_file(bytes(200_000)), "new.uf2"))
    with pytest.raises(InterruptedByUser, match="flashing was interrupted") as caught:
        flash.flash("/dev/none", firmware, volume=tmp_path, progress=stop)
    assert caught.value.exit_code == 130
    assert "Hold BOOTSEL" in caught.value.hint
    (tmp_path / "firmware.uf2").unlink()
    (tmp_path / "firmware.uf2").symlink_to("/dev/full")
    with pytest.raises(DeviceError, match="flashing broke off: No space left") as caught:
        flash.flash("/dev/none", firmware, volume=tmp_path)
    assert "Hold BOOTSEL" in caught.value.hint
