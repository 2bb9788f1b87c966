"""Watch a board: its frames, their rates, errors, budget, heap and temperature.

A port has one owner. So the monitor owns the board's port and offers another one for the host.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import select
import sys
import time
import tty
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tern import frames, wire
from ternhost import errors
from ternhost.command import add_command, add_option, print_line, print_result
from ternhost.errors import DeviceError
from ternhost.reach.absence import describe as describe_absence
from ternhost.reach.links import read_hello
from ternhost.reach.patience import GROWTH
from ternhost.reach.ports import names
from ternhost.reach.ports.link import PORT_ERRORS, open_port, safe_hello_request
from ternhost.store.boards import hello_fields
from ternhost.text import counted, visible
from terntools.boards import devices
from terntools.terminal import require_positive

_NAMES = {
    wire.HELLO: "HELLO",
    wire.REPORT: "REPORT",
    wire.ERROR: "ERROR",
    wire.ROUND: "ROUND",
    wire.HELLO_REQUEST: "HELLO_REQUEST",
}
_WINDOW = 10.0  # seconds over which rates are taken
STATUS = 5.0  # seconds between two lines with the state
_MOST_PAUSE = 30.0  # seconds between two requests to a board that does not answer
_TURN = 0.02  # seconds that bytes of the host may wait
_ABOUT_LINES = f"""\
Each frame gets a line, and the state one every {STATUS:g} seconds; with --quiet only the state."""
_TEMPERATURE = re.compile(r"; (-?[0-9]{1,4}) C$")  # at the end of a board's text


@dataclass
class State:
    """The last known state of a board, in the names of the JSON output."""

    port: str
    board: str = ""  # the text of its hello
    absence: str = ""  # why it is not, or was not, on its broker
    clients: int = 0
    budget: str | None = None
    heap_free_bytes: int | None = None
    temperature_celsius: float | None = None
    frames: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    damaged: int = 0
    # time of arrival (of time.monotonic) and size in bytes of the frames of the last seconds
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    def text(self, now: float) -> str:
        """Describe the state in one line. now: a time of time.monotonic()."""
        frames_rate, bytes_rate = self.rates(now)
        frames = counted(self.frames.total(), "frame")
        errors = counted(self.errors.total(), "error")
        parts = [
            f"{frames}, {frames_rate:.1f} and {bytes_rate:.0f} bytes a second",
            f"{errors}, {self.damaged} damaged",
            self.budget or "budget not told",
            devices.heap(self.heap_free_bytes),
        ]
        if self.temperature_celsius is not None:
            parts.append(f"{self.temperature_celsius:g} C")
        if self.absence:
            parts.append(self.absence)
        return "; ".join(parts)

    def rates(self, now: float) -> tuple[float, float]:
        """Return the frames and the bytes per second, over the last `_WINDOW` seconds.

        now: a time of time.monotonic().
        """
        while self.recent and self.recent[0][0] < now - _WINDOW:
            self.recent.popleft()
        if not self.recent:
            return 0.0, 0.0
        first_time, _ = self.recent[0]
        seconds = min(_WINDOW, now - first_time)
        seconds = max(1.0, seconds)  # so that one frame alone makes no enormous rate
        total_bytes = sum(size for _, size in self.recent)
        return len(self.recent) / seconds, total_bytes / seconds

    def count_frame(self, frame: bytes, now: float) -> None:
        """Count a frame of the board, and update the state by what the frame says.

        frame: b"" for a damaged one. now: a time of time.monotonic().
        """
        self.recent.append((now, len(frame)))
        if not frame:
            self.damaged += 1
            return
        frame_type = frame[0]
        self.frames[_NAMES.get(frame_type, hex(frame_type))] += 1
        with contextlib.suppress(frames.FrameError):
            if frame_type == wire.ERROR:
                _, _, code, _ = frames.fields_of(frame, wire.ERROR, wire.ERROR_FIELDS)
                self.errors[wire.error_name(code)] += 1
            elif frame_type == wire.HELLO:
                self._take_hello(read_hello(frame))

    def _take_hello(self, hello: Any) -> None:
        """Update the state by a HELLO, unless it is of another version of the protocol."""
        if hello.text is None:
            return
        self.board = hello.text
        self.absence = describe_absence(hello_fields(hello))
        self.clients = hello.clients or 0
        self.heap_free_bytes = hello.heap
        self.budget = devices.budget_text(hello)
        self.temperature_celsius = None
        temperature = _TEMPERATURE.search(hello.text)
        if temperature:
            self.temperature_celsius = float(temperature[1])


def describe(frame: bytes) -> str:
    """Describe a frame in one line, for people.

    The frame need not be authentic, since a monitor has no keys to check it. frame: b"" for a
    damaged one.
    """
    if not frame:
        return "damaged"
    frame_type = frame[0]
    name = _NAMES.get(frame_type, f"type {frame_type:#04x}")
    try:
        if frame_type == wire.HELLO:
            hello = read_hello(frame)
            text = f"{name} {hello.text or 'of another schema'}"
            absence = describe_absence(hello_fields(hello))
            return f"{text}: {absence}" if absence else text
        if frame_type == wire.ERROR:
            device, number, code, detail = frames.fields_of(frame, wire.ERROR, wire.ERROR_FIELDS)
            return f"{name} device {device} round {number}: {wire.error_name(code)} ({detail})"
        if frame_type in (wire.REPORT, wire.ROUND):
            device, number = frames.address(frame)
            return f"{name} device {device} round {number}, {len(frame)} bytes"
    except frames.FrameError as error:
        return f"{name} {error}"
    return f"{name} {len(frame)} bytes"


def _ignore(line: str) -> None:
    """Do nothing with a line."""


class Monitor:
    """Passes bytes on between a board and its host, and decodes the frames among them.

    For the host it opens a port of its own, a pseudoterminal, whose name is `tap`. While no host
    uses that, the monitor itself asks the board for HELLO frames.
    """

    def __init__(
        self,
        port: str,
        tell: Callable[[str], None],
        hello_every: float = 2.0,
        show: Callable[[str], None] = _ignore,
    ) -> None:
        """Open the board's port, and a port of its own for a host.

        tell: gets a line for each frame. show: gets one with the state every STATUS seconds.
        hello_every: seconds between two requests for a HELLO. Raises DeviceError and UsageError.
        """
        # What is seen, and how it is shown.
        self.state = State(port)
        self._tell = tell
        self._show = show
        self._shown = time.monotonic()  # when the state was last shown

        # The side of the board.
        self._board = open_port(port)
        self._board.timeout = 0  # reads do not wait
        self._every = hello_every
        self._asked = 0.0  # when the monitor last asked for a HELLO
        self._pause = hello_every  # seconds until it asks again
        self._hellos = -1  # that had come when it last asked

        # The side of the host: one end of a pseudoterminal is read and written here, and the host
        # opens the other one by its name. While nobody has it open, reads here fail.
        self._far, host_end = os.openpty()
        tty.setraw(host_end)
        self.tap = os.ttyname(host_end)
        os.close(host_end)
        os.set_blocking(self._far, False)

        # They decode the frames of the board, and those of the host.
        self._up = frames.Receiver()
        self._down = frames.Receiver()

    def close(self) -> None:
        """Give both ports back."""
        self._board.close()
        os.close(self._far)

    def run(self, until: float | None = None) -> None:
        """Pass bytes on, and show frames and state, until a time of time.monotonic().

        until: None to go on for ever. Raises DeviceError once the board is gone.
        """
        while until is None or time.monotonic() < until:
            self._wait_for_board()
            self._take_from_board()
            if time.monotonic() - self._shown > STATUS:
                self._shown = time.monotonic()
                self._show(f"= {self.state.text(self._shown)}")
            has_host = self._take_from_host()
            if not has_host and time.monotonic() - self._asked > self._pause:
                self._ask_again()

    def _wait_for_board(self) -> None:
        """Wait until the board has sent bytes, for at most _TURN seconds."""
        try:
            select.select([self._board.fileno()], [], [], _TURN)
        except io.UnsupportedOperation:  # a port of RFC 2217, which a thread of pyserial reads
            time.sleep(_TURN)

    def _take_from_board(self) -> None:
        """Pass the board's bytes on to the port of the host, and decode them."""
        with self._there():
            data = bytes(self._board.read(self._board.in_waiting or 1))
        if data:
            with contextlib.suppress(OSError):  # no reader, or one that does not read
                os.write(self._far, data)
            self._decode(self._up, data, "<")

    def _take_from_host(self) -> bool:
        """Pass the bytes of a host on to the board; return whether a host has its port open."""
        try:
            data = os.read(self._far, 4096)
        except BlockingIOError:  # it has sent nothing
            return True
        except OSError:  # EIO: nobody has the port open
            return False
        with self._there():
            self._board.write(data)
        self._decode(self._down, data, ">")
        return True

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """Raise DeviceError where code in this context meets an error of the board's port."""
        try:
            yield
        except PORT_ERRORS as error:
            raise DeviceError(
                f"the board on {self.state.port} is gone", hint="check its cable"
            ) from error

    def _ask_again(self) -> None:
        """Ask the board for a HELLO. If it has not answered the last request, it gets more time.

        A board with a slot may need it, and each request costs the board a slot.
        """
        self._asked = time.monotonic()
        hellos = self.state.frames[_NAMES[wire.HELLO]]
        has_answered = hellos > self._hellos
        self._hellos = hellos
        if has_answered:
            self._pause = self._every
        else:
            self._pause = min(GROWTH * self._pause, _MOST_PAUSE)
        self.ask_hello()

    def ask_hello(self) -> None:
        """Ask the board for a HELLO."""
        _, request = safe_hello_request(wire.AT_ONCE)
        with self._there():
            self._board.write(request)

    def _decode(self, receiver: frames.Receiver, data: bytes, arrow: str) -> None:
        """Show the frames that these bytes complete, and count those of the board.

        receiver: has the earlier bytes. arrow: "<" for bytes of the board, ">" for those of the
        host.
        """
        now = time.monotonic()
        receiver.give(data)
        while True:
            size = receiver.next()
            if size == frames.MORE:
                return
            if size == 0:
                continue  # an empty frame: a credit of the board, or a host that begins
            frame = b""
            if size > 0:  # a negative size stands for a damaged frame
                frame = bytes(receiver.frame[:size])
            if arrow == "<":
                self.state.count_frame(frame, now)
            self._tell(f"{arrow} {describe(frame)}")


def add_parser(subparsers: Any) -> None:
    """Add `tern board monitor` to the commands."""
    summary = "monitor a board: frames, rates, errors, budget, heap, temperature"
    example = "tern board monitor a0\ntern board monitor a0 --seconds 10 --json"
    parser = add_command(
        subparsers, "monitor", summary, example, _run, "print one JSON object at the end"
    )
    parser.epilog = f"{_ABOUT_LINES}\n\n{parser.epilog}"
    devices.add_board(parser)
    add_option(parser, "--seconds S", "end after S seconds (default: at Ctrl-C)", type=float)


def _run(args: argparse.Namespace) -> int:
    """Watch a board until --seconds are over or Ctrl-C, and then print its last state.

    The exit code is NO_DEVICE if nothing was heard of a board that runs tern.
    """
    require_positive(args, "seconds")
    start = time.monotonic()

    def print_stamped(line: str) -> None:
        """Print a line after the seconds since the start; on stderr if stdout is for the JSON."""
        line = f"{time.monotonic() - start:9.3f} {visible(line)}"
        print_line(line, sys.stderr if args.json else sys.stdout)

    tell = print_stamped  # for each frame
    if args.quiet:
        tell = _ignore
    monitor = Monitor(names.resolve(args.board), tell, show=print_stamped)
    # The monitor occupies the board's port, and has another one (its tap) for the user's host.
    print_line(f"other programs reach the board through {monitor.tap}", sys.stderr)
    until = None
    if args.seconds is not None:
        until = start + args.seconds
    with contextlib.closing(monitor), contextlib.suppress(KeyboardInterrupt):
        monitor.run(until)

    state = monitor.state
    frames_rate, bytes_rate = state.rates(time.monotonic())
    result = dict(vars(state))
    del result["recent"]  # the time and size of each recent frame, from which the rates follow
    result["seconds"] = round(time.monotonic() - start, 3)
    result["tap"] = monitor.tap
    result["frames_per_second"] = round(frames_rate, 2)
    result["bytes_per_second"] = round(bytes_rate, 1)
    text = f"{state.board or 'no tern heard'}: {state.text(time.monotonic())}"
    print_result(result, text, args.json)
    return errors.OK if state.board else errors.NO_DEVICE
