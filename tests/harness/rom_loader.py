"""A chip of Espressif in its ROM's boot loader, or in esptool's stub, on a pseudo terminal.

The protocol: Espressif, "Serial Protocol" of esptool's documentation.
"""

import contextlib
import hashlib
import os
import struct
import threading
import zlib

from harness.port import Port

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

    cut_after: blocks after which the cable is pulled. faulty: the flash alters a bit of each block.
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
