"""Reads hardware maps, files that list the boards on a desk.

The file has the format of the hardware maps of twister, Zephyr's test runner, with some keys of
tern's own. docs/guides/emulators.md describes it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.guides import guide
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD
from ternhost.text import did_you_mean
from terntools.emulators import catalogue
from terntools.testing import expectations
from terntools.testing.expectations import Expectation
from terntools.testing.hardware import MappedBoard, UsbSocket

if TYPE_CHECKING:
    from terntools.testing.yaml_file import Value

# The keys of twister (scripts/schemas/twister/hwmap-schema.yaml in Zephyr) that tern reads, its own,
# and those that only twister needs, with those that twister writes itself.
_SHARED_KEYS = ("connected", "id", "platform", "serial", "baud", "fixtures", "notes")
_OWN_KEYS = ("expect", "meter", "power", "power_script")
_TWISTER_KEYS = (
    "available",
    "counter",
    "failures",
    "flash_before",
    "flash_timeout",
    "flash_with_test",
    "lock",
    "post_flash_script",
    "post_script",
    "pre_script",
    "probe_id",
    "product",
    "runner",
    "runner_params",
    "script_param",
    "serial_baud",
    "serial_pty",
)
_KEYS = (*_SHARED_KEYS, *_OWN_KEYS, *_TWISTER_KEYS)

_EMULATED = tuple(map(catalogue.platform_of, catalogue.NAMES))
_LONGEST_ID = 100  # characters; files of the results are named after the board
_LOWEST_BAUD, _HIGHEST_BAUD = 50, 20_000_000
_MOST_PORTS = 32  # of a USB hub
_USB_HUB = re.compile("[0-9]+(-[0-9]+([.][0-9]+)*)?")
_SEE_DOCS = f"{guide('emulators.md')} describes the format"


def read_map(path: str | Path, only: Sequence[str] = ()) -> list[MappedBoard]:
    """Read the connected boards of a hardware map, a YAML file that lists boards.

    only: ids of the boards to return; empty: all. Raises UsageError for a wrong map, with the line
    and the column, and for an id that it lacks, and DeviceError if the port of a board is not found.
    """
    extras.require("yaml")
    from terntools.testing import yaml_file

    content = yaml_file.read(Path(path), "hardware map")
    values = content.items("a list of boards", f"begin each board with -; {_SEE_DOCS}")
    boards: dict[str, MappedBoard] = {}
    places_of_ids: dict[str, Value] = {}
    places_of_ports: dict[str, Value] = {}
    for number, value in enumerate(values, 1):
        entry = _Entry(value.called(f"board {number}"))
        board = entry.board()
        if board is None:
            continue
        place_of_id = entry.values["id"]
        _require_different(places_of_ids, board.id, place_of_id)
        if board.serial is not None:
            port = _real_path(board.serial)
            place = entry.values.get("serial", place_of_id)
            _require_different(places_of_ports, port, place.called("port"))
        boards[board.id] = board
    if not boards:
        text = f"{content.place}: the hardware map has no connected board"
        raise UsageError(text, "set connected: true")
    for board_id in only:
        if board_id not in boards:
            text = f"{path} has no connected board {board_id!r}"
            advice = did_you_mean(board_id, boards) or f"it has {', '.join(boards)}"
            raise UsageError(text, advice)
    return [board for board in boards.values() if not only or board.id in only]


def _require_different(places: dict[str, Value], text: str, value: Value) -> None:
    """Note the place of an id or a port. Raises UsageError if another board has it, too.

    places: of those so far. value: where it stands in the map.
    """
    if text in places:
        raise UsageError(
            f"{value.place}: two connected boards have the {value.name} {text!r}",
            f"the other one is on line {places[text].line}; give each board its own",
        )
    places[text] = value


def _real_path(port: str) -> str:
    """Return the device that a port is, if it is a link such as /dev/serial/by-id/..."""
    if os.path.exists(port):
        return os.path.realpath(port)
    return port


class _Entry:
    """A board in a hardware map. values: by their keys."""

    def __init__(self, value: Value) -> None:
        self._value = value
        self.values = value.table(_KEYS, _SEE_DOCS)

    def board(self) -> MappedBoard | None:
        """Return the board; None if it is not connected.

        Raises UsageError for a wrong value, and DeviceError if no port has a board with this id.
        """
        is_connected = self._required("connected").flag()
        board_id = self._id(is_needed=is_connected)
        platform = self._platform(is_needed=is_connected)
        board = MappedBoard(
            id=board_id,
            platform=platform,
            serial=None,
            baud=self._baud(),
            fixtures=self._fixtures(),
            notes=self._optional_text("notes", lines=True) or "",
            power=self._power(),
            power_script=self._power_script(),
            meter=self._optional_text("meter", "a value of tern bench energy --meter"),
            expect=self._expect(),
        )
        port = self._named_port()
        if not is_connected:
            return None
        if port is not None:
            self._require_own_port(board_id, port)
        elif platform not in _EMULATED:
            port = self._port_of_id(board_id)
        return replace(board, serial=port)

    def _required(self, key: str) -> Value:
        """Return the value of a key that each board must have. Raises UsageError without it."""
        if key not in self.values:
            raise UsageError(f"{self._value.place}: {self._value.name} has no {key}", _SEE_DOCS)
        return self.values[key]

    def _optional_text(
        self, key: str, expected: str = "a text", *, lines: bool = False
    ) -> str | None:
        """Return the text of a key; None without it. Raises UsageError for what is no text.

        expected: what it must be, for the error. lines: whether it may have several.
        """
        if key not in self.values:
            return None
        return self.values[key].text(expected, lines=lines)

    def _id(self, *, is_needed: bool) -> str:
        """Return the board's id, with which files are named. Raises UsageError for a wrong one."""
        if not is_needed and "id" not in self.values:
            return ""
        value = self._required("id")
        expected = f"a text of at most {_LONGEST_ID} characters, without / and \\"
        text = value.text(expected)
        is_printable = text.isprintable() and text == text.strip()
        has_path = "/" in text or "\\" in text or text.startswith((".", "-"))
        if has_path or not is_printable or len(text) > _LONGEST_ID:
            hint = "files with the board's results get this name, so it begins with a letter or a digit"
            raise value.wrong(expected, hint)
        return text

    def _platform(self, *, is_needed: bool) -> str:
        """Return the board's platform; several are divided by blanks. Raises UsageError."""
        if not is_needed and "platform" not in self.values:
            return ""
        value = self._required("platform")
        expected = "a text, or a list of texts"
        texts = [value]
        if not value.is_text:
            texts = value.items(expected)
        words: list[str] = []
        for each in texts:
            words += each.text(expected).split()
        if not words:
            raise value.wrong(expected)
        for word in words:
            if word.endswith(catalogue.SUFFIX) and (word not in _EMULATED or len(words) > 1):
                advice = did_you_mean(word, _EMULATED)
                if word in _EMULATED:
                    advice = "an emulated board has no other platform"
                raise value.wrong(f"one of {', '.join(_EMULATED)}, or a real board's", advice)
        return " ".join(words)

    def _baud(self) -> int:
        """Return the speed of the board's port. Raises UsageError."""
        if "baud" not in self.values:
            return BAUD
        return self.values["baud"].whole_number(_LOWEST_BAUD, _HIGHEST_BAUD)

    def _fixtures(self) -> tuple[str, ...]:
        """Return what is wired to the board. Raises UsageError."""
        if "fixtures" not in self.values:
            return ()
        items = self.values["fixtures"].items("a list of texts", "such as fixtures: [ppk2]")
        return tuple(item.text() for item in items)

    def _power(self) -> UsbSocket | None:
        """Return the USB socket that switches the board; None without one. Raises UsageError."""
        if "power" not in self.values:
            return None
        value = self.values["power"]
        hint = f"such as power: {{hub: 1-1, port: 2}}; {guide('emulators.md')} describes it"
        if "power_script" in self.values:
            text = f"{value.place}: {self._value.name} has both power and power_script"
            raise UsageError(text, "keep the one that switches the board")
        table = value.table(("hub", "port"), hint)
        for key in ("hub", "port"):
            if key not in table:
                raise UsageError(f"{value.place}: power has no {key}", hint)
        expected = "a hub as uhubctl names it, such as 1-1.4"
        hub = table["hub"].text(expected)
        if not _USB_HUB.fullmatch(hub):
            raise table["hub"].wrong(expected)
        return UsbSocket(hub, table["port"].whole_number(1, _MOST_PORTS))

    def _power_script(self) -> str | None:
        """Return the command that switches the board; None without one. Raises UsageError."""
        command = self._optional_text("power_script", "a command")
        if command is not None:
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise self.values["power_script"].wrong(f"a command ({error})") from error
            if not words:
                raise self.values["power_script"].wrong("a command")
        return command

    def _expect(self) -> tuple[Expectation, ...]:
        """Return what is expected of the board's figures, here or in a file beside the map.

        Raises UsageError.
        """
        if "expect" not in self.values:
            return ()
        value = self.values["expect"]
        if value.is_text:
            from terntools.testing import yaml_file

            file = value.file.parent / value.text()
            if not os.path.isfile(file):  # which is false, too, for a name that is too long
                raise value.wrong("a table of figures, or a file beside the map", f"no file {file}")
            value = yaml_file.read(file, "file of expectations").called("expect")
        return expectations.parse(value)

    def _named_port(self) -> str | None:
        """Return the port that the map gives; None if it gives none. Raises UsageError."""
        if "serial" not in self.values:
            return None
        value = self.values["serial"]
        expected = f"a port: {names.NAMES.replace(f'{names.AUTO} (the only board), ', '')}"
        text = value.text(expected)
        if text == names.AUTO or text.startswith("id:") or "," in text:
            raise value.wrong(expected, "leave serial out to find the port by the board's id")
        try:
            return names.resolve(text, may_be_absent=True)
        except UsageError as error:
            raise value.wrong(expected) from error

    def _require_own_port(self, board_id: str, port: str) -> None:
        """Raise UsageError if the board with this id is plugged in at another port.

        Ports get other numbers when boards are plugged in again. An id that no board on USB has
        tells nothing.
        """
        ports = _ports_of(board_id)
        if ports and _real_path(port) not in map(_real_path, ports):
            raise UsageError(
                f"{self.values['serial'].place}: serial is {port}, and the board with the id "
                f"{board_id!r} is at {' and '.join(ports)}",
                "leave serial out, so that tern finds the board by its id",
            )

    def _port_of_id(self, board_id: str) -> str:
        """Return the port of the board on USB that has this serial number, in full.

        Raises DeviceError if there is none, and UsageError if there are several.
        """
        ports = _ports_of(board_id)
        place = self.values["id"].place
        if not ports:
            text = f"{place}: no board with the serial number {board_id!r} is plugged in"
            hint = (
                "'tern board list' lists the boards with their serial numbers; or add serial: PORT"
            )
            if "serial_pty" in self.values:
                hint = "serial_pty is no port: add serial: PORT"
            raise DeviceError(text, hint)
        if len(ports) > 1:
            text = (
                f"{place}: the serial number {board_id!r} is at several ports: {', '.join(ports)}"
            )
            raise UsageError(text, "add serial: and the port that is meant")
        return ports[0]


def _ports_of(board_id: str) -> list[str]:
    """Return the ports of boards on USB whose serial number is an id."""
    return [device.port for device in names.find() if device.serial_number == board_id]
