"""Reads a hardware map, a file that lists the boards on a desk, and switches their power.

The file has the format of the hardware maps of twister, Zephyr's test runner, with some keys of
tern's own. docs/guides/emulators.md describes it.
"""

import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD
from terntools.emulators import catalogue
from terntools.testing import expectations
from terntools.testing.expectations import Expectation

# The keys of a board that twister knows, some of which mean nothing to tern, and tern's own.
_TWISTER_KEYS = (
    "available",
    "baud",
    "connected",
    "fixtures",
    "id",
    "notes",
    "platform",
    "post_script",
    "pre_script",
    "probe_id",
    "product",
    "runner",
    "serial",
)
_OWN_KEYS = ("expect", "meter", "power", "power_script")
_KEYS = sorted((*_TWISTER_KEYS, *_OWN_KEYS))
_OFF_SECONDS = 2.0  # that a board stays without power
_SWITCH_SECONDS = 60.0  # that the command which switches power may take


@dataclass(frozen=True)
class MappedBoard:
    """A connected board of a hardware map.

    serial: its port; None for an emulated board. baud: the speed of the port. fixtures: what is wired
    to it, by names that tests ask for. notes: for people. power: "hub" and "port" of the USB socket
    that uhubctl switches. power_script: another command that switches its power; it gets "off" or "on"
    as its last argument. meter: the value of --meter of `tern bench energy`. expect: what its figures, such as the
    latency of a report, should be.
    """

    id: str
    platform: str
    serial: str | None
    baud: int = BAUD
    fixtures: tuple[str, ...] = ()
    notes: str = ""
    power: dict[str, Any] = field(default_factory=dict)
    power_script: str | None = None
    meter: str | None = None
    expect: tuple[Expectation, ...] = ()

    @property
    def fleet(self) -> str:
        """What --fleet calls a fleet that has only this board."""
        return f"{self.platform}:1" if self.serial is None else f"port:{self.serial}"

    @property
    def has_power_control(self) -> bool:
        """Whether the map says how to switch the board's power."""
        return bool(self.power or self.power_script)

    def power_cycle(self) -> None:
        """Switch the board off and on again.

        Raises UsageError if the map does not say how, and DeviceError if it fails.
        """
        command = self._power_command()
        self._switch(command, "off")
        time.sleep(_OFF_SECONDS)
        self._switch(command, "on")

    def _power_command(self) -> list[str]:
        """Return the command that switches the board, to which "off" or "on" is to be added.

        Raises UsageError if the map names none, or if uhubctl is not installed.
        """
        if self.power_script:
            return shlex.split(self.power_script)
        if not self.power:
            text = f"the map names no way to switch {self.id}"
            raise UsageError(text, "add power: or power_script: to it")
        if not shutil.which("uhubctl"):
            hint = "install it, or name a power_script in the map"
            raise UsageError("uhubctl is not installed", hint)
        hub = str(self.power["hub"])
        port = str(self.power["port"])
        return ["uhubctl", "-l", hub, "-p", port, "-a"]

    def _switch(self, command: list[str], action: str) -> None:
        """Run the command of `_power_command` with "off" or "on". Raises DeviceError if it fails."""
        try:
            subprocess.run(
                [*command, action],
                check=True,
                capture_output=True,
                text=True,
                timeout=_SWITCH_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = str(error)
            # A command that has failed or takes too long may have said why.
            for stream in ("stderr", "stdout"):
                output = getattr(error, stream, None)
                if output:
                    reason = str(output)
                    break
            text = f"cannot switch {self.id} {action}: {reason.strip()}"
            raise DeviceError(text) from error


def read_map(path: str | Path) -> list[MappedBoard]:
    """Read the connected boards of a hardware map, a YAML file that lists boards.

    Raises UsageError for a wrong map, and DeviceError if the port of a board is not found.
    """
    entries = _load(Path(path))
    is_list = isinstance(entries, list)
    if not is_list or not all(isinstance(entry, dict) for entry in entries):
        hint = "see docs/guides/emulators.md for its format"
        raise UsageError(f"{path} is not a hardware map", hint)
    boards = []
    for entry in entries:
        if entry.get("connected"):
            boards.append(_board(entry, path))
    different_ids = {board.id for board in boards}
    if len(different_ids) < len(boards):
        raise UsageError(f"{path} has two boards of one id")
    if not boards:
        raise UsageError(f"{path} has no connected board", hint="set connected: true")
    return boards


def _load(path: Path) -> Any:
    """Read a YAML file, and return its content. Raises UsageError."""
    extras.require("yaml")
    import yaml

    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        hint = "see docs/guides/emulators.md"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _board(entry: dict[str, Any], path: str | Path) -> MappedBoard:
    """Read a board from its entry in a hardware map.

    path: of the map. Raises UsageError for a wrong entry, and DeviceError if the map gives no port
    and no board with this id is plugged in.
    """
    place = f"{path}, board {entry.get('id') or entry.get('serial') or '?'}"
    unknown_keys = sorted(entry.keys() - set(_KEYS))
    if unknown_keys:
        hint = f"there are {', '.join(_KEYS)}"
        raise UsageError(f"{place}: there is no {unknown_keys[0]!r}", hint)
    platform = entry.get("platform")
    if not isinstance(platform, str) or not entry.get("id"):
        raise UsageError(f"{place}: id and platform are missing")

    serial = entry.get("serial")
    is_emulated = catalogue.name_of(platform) is not None
    if serial is None and not is_emulated:
        serial = names.resolve(f"id:{entry['id']}")

    expect = entry.get("expect", {})
    if isinstance(expect, str):  # the name of a file beside the map
        expect = _load(Path(path).parent / expect)

    return MappedBoard(
        id=str(entry["id"]),
        platform=platform,
        serial=serial,
        baud=int(entry.get("baud", BAUD)),
        fixtures=tuple(entry.get("fixtures") or ()),
        notes=str(entry.get("notes", "")),
        power=_power_of(entry, place),
        power_script=entry.get("power_script"),
        meter=_meter_of(entry, place),
        expect=expectations.parse(expect, place),
    )


def _power_of(entry: dict[str, Any], place: str) -> dict[str, Any]:
    """Return how uhubctl switches a board; empty if its entry does not say.

    place: where the entry is, for errors. Raises UsageError.
    """
    power: dict[str, Any] = entry.get("power") or {}
    is_complete = "hub" in power and "port" in power
    if power and not is_complete:
        hint = "such as power: {hub: 1-1, port: 2}"
        raise UsageError(f"{place}: power needs hub and port", hint)
    return power


def _meter_of(entry: dict[str, Any], place: str) -> str | None:
    """Return a board's meter, as --meter of `tern bench energy` names it; None if it has none.

    place: where the entry is, for errors. Raises UsageError.
    """
    meter = entry.get("meter")
    if meter is not None and not isinstance(meter, str):
        hint = "such as meter: ppk2:a1,volts=3.3"
        raise UsageError(f"{place}: meter is a value of tern bench energy --meter", hint)
    return meter
