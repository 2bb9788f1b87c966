"""The hardware map: which boards are on the desk, in the shape of Zephyr's twister; their power.

firmware/BOARDS.md describes it.
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

# Those of twister, of which some say nothing to tern, and tern's own.
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
_OFF_SECONDS = 2.0
_SWITCH_SECONDS = 60.0


@dataclass(frozen=True)
class MappedBoard:
    """A connected board of a map.

    serial: its port; None for an emulated board. power: "hub" and "port" for uhubctl; power_script:
    a command that gets "off" or "on". meter: options of `tern bench energy`.
    """

    id: str
    platform: str
    serial: str | None
    baud: int = BAUD
    fixtures: tuple[str, ...] = ()
    notes: str = ""
    power: dict[str, Any] = field(default_factory=dict)
    power_script: str | None = None
    meter: dict[str, Any] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()

    @property
    def fleet(self) -> str:
        """The board as a fleet of one."""
        return f"{self.platform}:1" if self.serial is None else f"port:{self.serial}"

    @property
    def has_power_control(self) -> bool:
        return bool(self.power or self.power_script)

    def power_cycle(self) -> None:
        """Switch the board off and on again. Raises UsageError if there is no way to, DeviceError."""
        command = self._power_command()
        self._switch(command, "off")
        time.sleep(_OFF_SECONDS)
        self._switch(command, "on")

    def _power_command(self) -> list[str]:
        """Return the command that is to get "off" or "on". Raises UsageError if there is none."""
        if self.power_script:
            return shlex.split(self.power_script)
        if not self.power:
            text = f"the map names no way to switch {self.id}"
            raise UsageError(text, "add power: or power_script: to it")
        if not shutil.which("uhubctl"):
            hint = "install it, or name a power_script in the map"
            raise UsageError("uhubctl is not installed", hint)
        return ["uhubctl", "-l", str(self.power["hub"]), "-p", str(self.power["port"]), "-a"]

    def _switch(self, command: list[str], action: str) -> None:
        """Run the command with the action "off" or "on". Raises DeviceError if it fails."""
        try:
            subprocess.run(
                [*command, action],
                check=True,
                capture_output=True,
                text=True,
                timeout=_SWITCH_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or getattr(error, "stdout", None) or error
            text = f"cannot switch {self.id} {action}: {str(output).strip()}"
            raise DeviceError(text) from error


def read_map(path: str | Path) -> list[MappedBoard]:
    """Read the connected boards of a hardware map. Raises UsageError."""
    entries = _load(Path(path))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        hint = "see firmware/BOARDS.md for its format"
        raise UsageError(f"{path} is not a hardware map", hint)
    boards = [_board(entry, path) for entry in entries if entry.get("connected")]
    if len({board.id for board in boards}) < len(boards):
        raise UsageError(f"{path} has two boards of one id")
    if not boards:
        raise UsageError(f"{path} has no connected board", hint="set connected: true")
    return boards


def _load(path: Path) -> Any:
    """Read a YAML file. Raises UsageError."""
    extras.require("yaml")
    import yaml

    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        hint = "see firmware/BOARDS.md"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _board(entry: dict[str, Any], path: str | Path) -> MappedBoard:
    """Read a board from its entry in the map.

    path: of the map. Raises UsageError for a wrong entry, and DeviceError if the board is not
    found.
    """
    place = f"{path}, board {entry.get('id') or entry.get('serial') or '?'}"
    unknown = sorted(entry.keys() - set(_KEYS))
    if unknown:
        hint = f"there are {', '.join(_KEYS)}"
        raise UsageError(f"{place}: there is no {unknown[0]!r}", hint)
    platform = entry.get("platform")
    if not isinstance(platform, str) or not entry.get("id"):
        raise UsageError(f"{place}: id and platform are missing")

    serial = entry.get("serial")
    is_emulated = catalogue.name_of(platform) is not None
    if serial is None and not is_emulated:
        serial = names.resolve(f"id:{entry['id']}")

    power = entry.get("power") or {}
    if power and not ("hub" in power and "port" in power):
        hint = "such as power: {hub: 1-1, port: 2}"
        raise UsageError(f"{place}: power needs hub and port", hint)
    meter = entry.get("meter") or {}
    if not isinstance(meter, dict):
        hint = "meter: {meter: ppk2}"
        raise UsageError(f"{place}: meter has options of tern bench energy", hint)
    expect = entry.get("expect", {})
    if isinstance(expect, str):
        expect = _load(Path(path).parent / expect)

    return MappedBoard(
        id=str(entry["id"]),
        platform=platform,
        serial=serial,
        baud=int(entry.get("baud", BAUD)),
        fixtures=tuple(entry.get("fixtures") or ()),
        notes=str(entry.get("notes", "")),
        power=power,
        power_script=entry.get("power_script"),
        meter=meter,
        expect=expectations.parse(expect, place),
    )
